"""Results of queries: what becomes of each type of SQL, in both forms."""

from typing import Any

import msgspec
import pyarrow
import pytest

from dodona._core.protocol.limits import QueryLimits
from dodona._core.sql.engine import Engine
from dodona.errors import InvalidRequest
from dodona_gateway.core.answers import QueryResult
from dodona_gateway.core.results import query_result

pytest.importorskip("duckdb")

EXPRESSIONS: list[tuple[str, Any, Any]] = [
    ("1::tinyint", 1, 1),
    ("18446744073709551615::ubigint", 18446744073709551615, 18446744073709551615),
    ("sum(1)", 1, 1),
    ("18446744073709551616::hugeint", "18446744073709551616", "18446744073709551616"),
    ("-9223372036854775809::hugeint", "-9223372036854775809", "-9223372036854775809"),
    ("-9223372036854775808::hugeint", -9223372036854775808, -9223372036854775808),
    ("1.50::decimal(10, 2)", "1.50", "1.50"),
    ("1.5::double", 1.5, 1.5),
    ("'inf'::double", {"$double": "Infinity"}, float("inf")),
    ("['-inf'::float]", [{"$double": "-Infinity"}], [float("-inf")]),
    ("null", None, None),
    ("true", True, True),
    ("'ä'", "ä", "ä"),
    ("encode('ä')", "ä", "ä".encode()),
    (r"'\xff'::blob", {"$base64": "/w=="}, b"\xff"),
    (r"['a'::blob]", [{"$base64": "YQ=="}], [b"a"]),
    ("date '2020-01-02'", "2020-01-02", "2020-01-02"),
    ("time '01:02:03'", "01:02:03", "01:02:03"),
    ("time_ns '01:02:03.123456789'", "01:02:03.123456789", "01:02:03.123456789"),
    ("timestamp '2020-01-02 03:04:05.5'", "2020-01-02T03:04:05.500000", None),
    ("timestamp_ns '2020-01-02 03:04:05.123456789'", "2020-01-02T03:04:05.123456789", None),
    ("null::timestamp_ns", None, None),
    ("timestamptz '2020-01-02 03:04:05+00'", "2020-01-02T03:04:05+00:00", None),
    ("interval '2 days 3.5 seconds'", "P2DT3.5S", None),
    ("interval '0 days'", "P0D", None),
    ("interval '-1 day' - interval '1 microsecond'", "-P1DT0.000001S", None),
    ("interval '1 hour' * 3000000", "P125000D", None),
    ("34028236692093846346337::uhugeint", "34028236692093846346337", None),
    ("0::decimal(20, 10)", "0.0000000000", None),
    ("'101'::bit", "101", None),
    ("[interval '1 day']", ["P1D"], None),
    ("{'$a': 1, 'b': [1.5::decimal(3, 1)]}", {"$a": 1, "b": ["1.5"]}, {"$a": 1, "b": ["1.5"]}),
    ("map {1: 'x'}", [[1, "x"]], None),
    ("'b'::enum('a', 'b')", "b", None),
    ("'[1]'::json", "[1]", None),
]


def result_of(expression: str, *, is_json: bool) -> QueryResult:
    table = Engine(QueryLimits()).run(f"select {expression} as it")
    return query_result(table, is_json=is_json)


@pytest.mark.parametrize(
    ("expression", "as_json", "as_msgpack"), EXPRESSIONS, ids=[it[0] for it in EXPRESSIONS]
)
def test_a_value_is_shown(expression: str, as_json: Any, as_msgpack: Any) -> None:
    shown = result_of(expression, is_json=True)
    assert shown.columns == ["it"]
    assert shown.rows == [[as_json]]
    assert msgspec.json.decode(msgspec.json.encode(shown))["rows"] == [[as_json]]
    packed = result_of(expression, is_json=False)
    expected = as_json if as_msgpack is None else as_msgpack
    assert packed.rows == [[expected]]
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(packed))["rows"] == [[expected]]


@pytest.mark.parametrize(
    "expression",
    ["'infinity'::date", "'-infinity'::timestamp", "[date '99999-01-01']", "'24:00:00'::time"],
)
@pytest.mark.parametrize("is_json", [True, False])
def test_a_date_out_of_range_is_refused_unless_the_query_casts_the_date_to_text(
    expression: str, is_json: bool
) -> None:
    with pytest.raises(InvalidRequest, match="Cast it to text") as refused:
        result_of(expression, is_json=is_json)
    assert refused.value.attributes == {"column": "it", "row_index": 0}
    assert result_of(f"({expression})::varchar", is_json=is_json).rows[0][0]


def test_columns_keep_their_order_their_types_and_their_names_even_if_these_are_alike() -> None:
    table = pyarrow.table([[1, 2], ["a", None]], names=["it", "it"])
    found = query_result(table, is_json=True)
    assert found == QueryResult(["it", "it"], ["int64", "string"], [[1, "a"], [2, None]])
    assert query_result(table.slice(0, 0), is_json=True).rows == []
