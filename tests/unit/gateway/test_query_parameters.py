"""What an address says behind its path: each parameter once, and none that is no value."""

import pytest

from dodona.errors import InvalidRequest
from dodona.types import Timestamp
from dodona_gateway.core.requests import BulkRead
from dodona_wire.messages.rest import decode_query

TABLE = ("table", "//t")


def test_parameters_are_text_of_their_types() -> None:
    found = decode_query(BulkRead, [TABLE, ("timestamp", "12"), ("timeout_ms", "34")])
    assert found == BulkRead("//t", timestamp=Timestamp(12), timeout_ms=34)


def test_a_parameter_is_given_once() -> None:
    given = [TABLE, ("timeout_ms", "1"), ("timeout_ms", "1")]
    with pytest.raises(InvalidRequest, match="'timeout_ms' is given 2 times"):
        decode_query(BulkRead, given)


@pytest.mark.parametrize("name", ["timeout_ms", "timestamp"])
@pytest.mark.parametrize("word", ["null", "NULL"])
def test_null_is_refused_for_a_query_parameter_that_is_not_text(name: str, word: str) -> None:
    with pytest.raises(InvalidRequest, match=f"{name}.* is null: leave it out"):
        decode_query(BulkRead, [TABLE, (name, word)])


@pytest.mark.parametrize(
    ("name", "value"),
    [("timeout_ms", "0"), ("timeout_ms", "600001"), ("timeout_ms", "x"), ("bogus", "1")],
)
def test_an_invalid_query_parameter_is_named_in_the_error(name: str, value: str) -> None:
    with pytest.raises(InvalidRequest, match=name):
        decode_query(BulkRead, [TABLE, (name, value)])


def test_the_word_null_is_valid_text_in_a_query_parameter() -> None:
    assert decode_query(BulkRead, [("table", "null")]) == BulkRead("null")
