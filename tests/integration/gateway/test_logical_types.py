"""Logical types over REST: each value is one text, in rows, keys, bounds and pivot keys."""

import itertools
import json
from typing import Any, Final

import msgpack
import pytest

from dodona_gateway.core.content import TYPES
from integration.gateway.rest import Rest

pytestmark = [pytest.mark.integration, pytest.mark.part("REST has a text for each logical type")]

ROW: Final = {
    "day": "2024-02-29",
    "at": "2024-02-29T12:30:00.000001Z",
    "took": "-PT86399S",
    "price": "12.50",
    "id": "a3bb189e-8bf9-3888-9912-ace4e6543002",
    "small": -128,
    "text": '{"a": 1}',
}
SCHEMA: Final = [
    {"name": "day", "type": "date", "sort_order": "ascending"},
    {"name": "at", "type": "timestamp"},
    {"name": "took", "type": "interval"},
    {"name": "price", "type": "decimal(5,2)"},
    {"name": "id", "type": "uuid"},
    {"name": "small", "type": "int8"},
    {"name": "text", "type": "json"},
]
KEY: Final = {"day": ROW["day"]}
_numbers: Final = itertools.count()


@pytest.fixture
def table(rest: Rest) -> str:
    path = f"//logical/{next(_numbers)}"
    rest("create_table", path=path, schema=SCHEMA, mount=True, pivot_keys=[[], [ROW["day"]]])
    return path


def test_rows_keys_and_bounds_are_texts(rest: Rest, table: str) -> None:
    rest("insert_rows", table=table, rows=[ROW])
    assert rest("lookup_rows", table=table, keys=[KEY])["rows"] == [ROW]
    assert rest("select_rows", table=table, lower=[ROW["day"]])["rows"] == [ROW]
    assert rest("select_rows", table=table, upper=[ROW["day"]])["rows"] == []
    assert rest("get_table", path=table)["tablets"][1]["pivot_key"] == [ROW["day"]]
    (found,) = rest("lookup_versions", table=table, keys=[KEY])["rows"]
    assert found["key"] == KEY
    assert found["values"]["price"][0]["value"] == ROW["price"]
    transaction = rest("begin_transaction")["transaction"]
    changed = {**ROW, "price": "1.00"}
    rest("insert_rows_in_transaction", transaction, table=table, rows=[changed])
    rest("lock_rows_in_transaction", transaction, table=table, keys=[{"day": "2024-03-01"}])
    rest("commit_transaction", transaction)
    assert rest("lookup_rows", table=table, keys=[KEY])["rows"] == [changed]
    rest("delete_rows", table=table, keys=[KEY])
    assert rest("select_rows", table=table)["rows"] == []


def test_a_query_in_a_transaction_takes_parameters(rest: Rest, table: str) -> None:
    """It sees the start of the transaction and its own rows, and not what others wrote since."""
    march = {**ROW, "day": "2024-03-01"}
    rest("insert_rows", table=table, rows=[ROW])
    transaction = rest("begin_transaction", read_own_writes=True)["transaction"]
    rest("insert_rows", table=table, rows=[{**ROW, "day": "2024-03-02"}])
    rest("insert_rows_in_transaction", transaction, table=table, rows=[march])
    parameters = {"first": ROW["day"], "price": ROW["price"], "at": ROW["at"], "id": ROW["id"]}
    wanted = '"at" = $at::timestamptz and id = $id::uuid and price = $price::decimal(5,2)'
    sql = f"select day, price from [{table}] where day >= $first::date and {wanted} order by day"
    found = rest("query_rows_in_transaction", transaction, sql=sql, parameters=parameters)["rows"]
    assert found == [[ROW["day"], ROW["price"]], [march["day"], ROW["price"]]]
    sql = f"select day from [{table}] where day > ?::date"
    given = {"sql": sql, "parameters": [ROW["day"]]}
    assert rest("query_rows_in_transaction", transaction, **given)["rows"] == [[march["day"]]]
    problem = rest.refused("query_rows_in_transaction", transaction, **{**given, "parameters": []})
    assert problem.kind == "invalid_request"
    rest("abort_transaction", transaction)


def test_bulk_streams_have_the_same_texts(rest: Rest, table: str) -> None:
    lines = json.dumps(ROW) + "\n"
    for form, body in (("ndjson", lines.encode()), ("msgpack", msgpack.packb(ROW))):
        rest.http.post(
            "/v1/bulk/write",
            params={"table": table},
            content=body,
            headers={"content-type": TYPES[form]},  # type: ignore[index]  # one of its names
        ).raise_for_status()
        answer = rest.http.get(
            "/v1/bulk/read",
            params={"table": table, "lower": json.dumps([ROW["day"]])},
            headers={"accept": TYPES[form]},  # type: ignore[index]  # one of its names
        ).raise_for_status()
        read: Any = json.loads if form == "ndjson" else msgpack.unpackb
        assert read(answer.content) == ROW


@pytest.mark.parametrize(
    ("column", "value", "text"),
    [
        ("at", "2024-02-29T12:30:00", "has no time zone"),
        ("price", 12.5, "a decimal as text"),
        ("price", "12.505", "digits behind the point"),
        ("small", 300, "does not fit in int8"),
        ("day", 5, "a date such as"),
    ],
)
def test_a_value_that_is_no_text_of_its_type_is_refused(
    rest: Rest, table: str, column: str, value: Any, text: str
) -> None:
    problem = rest.refused("insert_rows", table=table, rows=[ROW, {**ROW, column: value}])
    assert text in problem.detail
    assert problem.attributes["column"] == column
    assert problem.attributes["row_index"] == 1
