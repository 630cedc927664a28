"""Errors: codes, statuses, and headers, which are ASCII, one line, and bounded."""

import json

import pytest

from dodona.errors import (
    ERRORS_BY_KIND,
    DodonaError,
    Forbidden,
    InvalidRequest,
    NodeNotFound,
    Overloaded,
    TabletMoved,
    TransactionConflict,
    Unauthenticated,
    Unavailable,
)
from dodona_ytsaurus.terms.errors import (
    HEADER_LENGTH_MAX,
    MESSAGE_LENGTH_MAX,
    RETRIED,
    error_headers,
    error_status,
    yt_error,
)

ROWS_ARE_RETRIED = {1700, 1701, 1702, 1712, 1713, 1721, 1735, 1736, 1744, 1745, 1746}


@pytest.mark.parametrize("kind", sorted(ERRORS_BY_KIND))
def test_the_ytsaurus_client_retries_only_errors_with_the_action_repeat(kind: str) -> None:
    error = ERRORS_BY_KIND[kind]("x")
    code = yt_error(error).code
    if code in RETRIED:
        assert error.action == "repeat"
    if error.action == "fix":
        assert code not in RETRIED


@pytest.mark.parametrize("kind", sorted(ERRORS_BY_KIND))
def test_no_error_looks_as_if_the_gateway_were_away(kind: str) -> None:
    status = error_status(ERRORS_BY_KIND[kind]("x"))
    assert status in (400, 401, 403) or kind == "internal"


@pytest.mark.parametrize(
    ("error", "code", "status"),
    [
        (InvalidRequest("x"), 1, 400),
        (TransactionConflict("x"), 1700, 400),
        (NodeNotFound("x"), 500, 400),
        (Unauthenticated("x"), 900, 401),
        (Forbidden("x"), 901, 403),
        (Overloaded("x"), 108, 400),
        (Unavailable("x"), 105, 400),
        (TabletMoved("x"), 1701, 400),
        (DodonaError("x"), 1, 500),
    ],
)
def test_codes_and_statuses(error: DodonaError, code: int, status: int) -> None:
    assert (yt_error(error).code, error_status(error)) == (code, status)


def test_every_row_conflict_can_be_retried_by_the_client() -> None:
    assert yt_error(TransactionConflict("x")).code in ROWS_ARE_RETRIED


@pytest.mark.parametrize(
    "message", ["plain", "two\nlines\r\n", "Ж\U0001f600é", "\x00\x7f", "\ud800", "x" * 100_000, ""]
)
def test_headers_are_one_short_line_of_ascii(message: str) -> None:
    error = yt_error(
        InvalidRequest(message, path=message, keys=[message.encode("utf-8", "replace")])
    )
    headers = error_headers(error)
    assert set(headers) == {"X-YT-Response-Code", "X-YT-Error", "X-YT-Response-Message"}
    for value in headers.values():
        assert value.isprintable() or value == ""
        assert value.isascii()
        assert len(value) <= HEADER_LENGTH_MAX
    told = json.loads(headers["X-YT-Error"])
    assert told["code"] == 1
    shown = message.encode("utf-8", "backslashreplace").decode()
    assert told["message"] == shown[: len(told["message"])]
    assert len(told["message"]) >= min(500, len(shown))


def test_a_long_message_of_long_characters_is_cut_within_the_bound() -> None:
    headers = error_headers(yt_error(InvalidRequest("\U0001f600" * 10_000)))
    assert len(headers["X-YT-Error"]) <= HEADER_LENGTH_MAX
    assert json.loads(headers["X-YT-Error"])["message"] == "\U0001f600" * 500


def test_the_attributes_of_an_error_are_encoded_as_json() -> None:
    error = yt_error(
        InvalidRequest("x", key=b"\xff", n=1 << 70, nested={"a": ("b", 1.5)}, none=None)
    )
    told = json.loads(error_headers(error)["X-YT-Error"])["attributes"]
    assert told["kind"] == "invalid_request"
    assert told["n"] == 1 << 70
    assert told["nested"] == {"a": ["b", 1.5]}
    assert told["none"] is None


def test_a_conflict_error_has_the_attributes_of_ytsaurus() -> None:
    facts = {"key": {"k": 1}, "lock": "main", "start_timestamp": 5, "table": "//t", "tablet": 3}
    told = yt_error(TransactionConflict("lost", **facts, winner_timestamp=7)).attributes
    assert told["table_path"] == "//t"
    assert told["tablet_id"] == 3
    assert told["loser_transaction_id"] == 5
    assert told["winner_transaction_commit_timestamp"] == 7
    assert "winner_transaction_id" not in told
    assert told | facts == told
    held = yt_error(TransactionConflict("lost", **facts, winner=6)).attributes
    assert held["winner_transaction_id"] == 6
    assert "table_path" not in yt_error(Unavailable("away", table="//t")).attributes


def test_a_message_is_cut() -> None:
    assert len(yt_error(InvalidRequest("x" * 10_000)).message) == MESSAGE_LENGTH_MAX
