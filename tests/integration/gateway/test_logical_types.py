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


def test_a_descending_column_is_read_in_its_order_page_by_page(rest: Rest) -> None:
    path = f"//logical/{next(_numbers)}"
    schema = [{**SCHEMA[0], "sort_order": "descending"}, SCHEMA[5]]
    days = ["2024-03-01", "2024-02-29", "2024-02-28", None]
    rest("create_table", path=path, schema=schema, mount=True, pivot_keys=[[], ["2024-02-29"]])
    assert rest("get_table", path=path)["schema"][0]["sort_order"] == "descending"
    rest("insert_rows", table=path, rows=[{"day": it, "small": 1} for it in days[::-1]])
    found: list[str | None] = []
    following = None
    while following is not None or not found:
        page = rest("select_rows", table=path, limit=1, lower=following)
        found += [row["day"] for row in page["rows"]]
        following = page.get("next")
    assert found == days
    asked = f"select day from [{path}] where day >= date '2024-02-29'"
    assert rest("query_rows", sql=asked)["rows"] == [[it] for it in days[:2]]


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


NESTED: Final[dict[str, Any]] = {
    "k": 1,
    "items": [{"price": "12.50", "on": None}, {"price": "0.01", "on": "2024-02-29"}],
    "counts": {"ä": 18_446_744_073_709_551_615, "$base64": 0},
    "raw": {"base64:/w==": {"$base64": "/w=="}},
}
NESTED_SCHEMA: Final = [
    {"name": "k", "type": "int64", "sort_order": "ascending"},
    {"name": "items", "type": "list<struct<price: decimal(5,2), on: optional<date>>>"},
    {"name": "counts", "type": "dict<utf8,uint64>"},
    {"name": "raw", "type": "dict<string,any>"},
]


@pytest.fixture
def nested(rest: Rest) -> str:
    path = f"//logical/{next(_numbers)}"
    rest("create_table", path=path, schema=NESTED_SCHEMA, mount=True)
    return path


def test_lists_structs_and_dicts_are_json(rest: Rest, nested: str) -> None:
    rest("insert_rows", table=nested, rows=[NESTED])
    assert rest("lookup_rows", table=nested, keys=[{"k": 1}])["rows"] == [NESTED]
    assert rest("select_rows", table=nested)["rows"] == [NESTED]
    (found,) = rest("lookup_versions", table=nested, keys=[{"k": 1}])["rows"]
    assert found["values"]["items"][0]["value"] == NESTED["items"]
    schema = rest("get_table", path=nested)["schema"]
    assert schema[1]["type"] == "list<struct<price:decimal(5,2),on:optional<date>>>"
    query = f"select items[1].price as price, counts['ä'] as n from [{nested}]"
    assert rest("query_rows", sql=query)["rows"] == [["12.50", NESTED["counts"]["ä"]]]


def test_bulk_streams_have_the_same_json(rest: Rest, nested: str) -> None:
    for form, body in (("ndjson", json.dumps(NESTED).encode()), ("msgpack", msgpack.packb(NESTED))):
        rest.http.post(
            "/v1/bulk/write",
            params={"table": nested},
            content=body,
            headers={"content-type": TYPES[form]},  # type: ignore[index]  # one of its names
        ).raise_for_status()
        answer = rest.http.get(
            "/v1/bulk/read",
            params={"table": nested},
            headers={"accept": TYPES[form]},  # type: ignore[index]  # one of its names
        ).raise_for_status()
        read: Any = json.loads if form == "ndjson" else msgpack.unpackb
        assert read(answer.content) == NESTED


def test_a_refused_part_has_its_place(rest: Rest, nested: str) -> None:
    bad = {**NESTED, "items": [{"price": "12.505", "on": None}]}
    problem = rest.refused("insert_rows", table=nested, rows=[NESTED, bad])
    assert "'items[0].price' takes 2 digits behind the point" in problem.detail
    assert problem.attributes["column"] == "items"
    assert problem.attributes["place"] == "items[0].price"
    assert problem.attributes["row_index"] == 1


def test_a_reserved_name_in_a_dict_is_a_name(rest: Rest, nested: str) -> None:
    """In a body, and in a line of a stream. `raw` has values of type any, where it is a mark."""
    rows = [
        {**NESTED, "k": 2, "raw": {"$dict": {"a": 1}}},
        {**NESTED, "k": 3, "raw": {"$base64": {"$dict": {"$base64": "x"}}}},
        {**NESTED, "k": 4, "counts": {"$double": 7}},
    ]
    rest("insert_rows", table=nested, rows=rows[:2])
    rest.http.post(
        "/v1/bulk/write",
        params={"table": nested},
        content=json.dumps(rows[2]).encode(),
        headers={"content-type": TYPES["ndjson"]},
    ).raise_for_status()
    assert rest("select_rows", table=nested)["rows"] == rows
    problem = rest.refused("insert_rows", table=nested, rows=[{"k": 5, "raw": {"a": {"$dict": 1}}}])
    assert problem.attributes["column"] == "raw"
    assert problem.attributes["row_index"] == 0


def test_an_interval_of_a_query_has_the_text_of_a_row(rest: Rest, table: str) -> None:
    rest("insert_rows", table=table, rows=[ROW])
    for sql in (f"select took from [{table}]", f"select [took][1] as took from [{table}]"):
        assert rest("query_rows", sql=sql) == {
            "columns": ["took"],
            "types": ["duration[us]"],
            "rows": [[ROW["took"]]],
        }
    problem = rest.refused("query_rows", sql="select interval '1 month' as took")
    assert "Column 'took' has an interval with months" in problem.detail
