"""Computed key columns over REST: rows, keys and streams without them, and a wrong value."""

import itertools
import json
from typing import Any, Final

import pytest

from dodona_gateway.core.content import TYPES
from dodona_wire.expressions.farm_hash import farm_hash
from integration.gateway.rest import Rest

pytestmark = [pytest.mark.integration, pytest.mark.part("REST computes key columns")]

EXPRESSION: Final = "farm_hash(user) % 8"
SCHEMA: Final = [
    {"name": "hash", "type": "uint64", "sort_order": "ascending", "expression": EXPRESSION},
    {"name": "user", "type": "utf8", "sort_order": "ascending"},
    {"name": "v", "type": "int64"},
]
ANN: Final = {"hash": farm_hash(b"ann") % 8, "user": "ann", "v": 1}
KEY: Final = {"user": "ann"}
_numbers: Final = itertools.count()


@pytest.fixture
def table(rest: Rest) -> str:
    path = f"//computed/{next(_numbers)}"
    rest("create_table", path=path, schema=SCHEMA, mount=True, pivot_keys=[[], [4]])
    return path


def test_rows_and_keys_leave_out_a_computed_column(rest: Rest, table: str) -> None:
    assert rest("get_table", path=table)["schema"][0]["expression"] == EXPRESSION
    rest("insert_rows", table=table, rows=[{"user": "ann", "v": 1}])
    assert rest("lookup_rows", table=table, keys=[KEY])["rows"] == [ANN]
    rest("insert_rows", table=table, rows=[{**ANN, "v": 2}])
    (found,) = rest("lookup_versions", table=table, keys=[KEY])["rows"]
    assert found["key"] == {"hash": ANN["hash"], "user": "ann"}
    transaction = rest("begin_transaction")["transaction"]
    rest("insert_rows_in_transaction", transaction, table=table, rows=[{"user": "bob", "v": 3}])
    rest("lock_rows_in_transaction", transaction, table=table, keys=[{"user": "eve"}])
    rest("delete_rows_in_transaction", transaction, table=table, keys=[KEY])
    rest("commit_transaction", transaction)
    assert [it["user"] for it in rest("select_rows", table=table)["rows"]] == ["bob"]


def post(rest: Rest, table: str, row: dict[str, Any]) -> Any:
    return rest.http.post(
        "/v1/bulk/write",
        params={"table": table},
        content=json.dumps(row).encode() + b"\n",
        headers={"content-type": TYPES["ndjson"]},
    )


def test_a_stream_leaves_out_a_computed_column(rest: Rest, table: str) -> None:
    post(rest, table, {"user": "ann", "v": 1}).raise_for_status()
    assert rest("select_rows", table=table)["rows"] == [ANN]


def test_a_wrong_value_is_refused_with_the_right_one(rest: Rest, table: str) -> None:
    wrong = {**ANN, "hash": 9}
    for answer in (
        rest.http.post("/v1/rows/insert", json={"table": table, "rows": [wrong]}),
        post(rest, table, wrong),
    ):
        assert answer.status_code == 400, answer.text
        error = answer.json()["error"] if "error" in answer.json() else answer.json()
        assert "'hash' is 9 in this row" in json.dumps(error)
        assert str(ANN["hash"]) in json.dumps(error)
    assert rest("select_rows", table=table)["rows"] == []


def test_a_query_reads_several_narrow_ranges(rest: Rest, table: str) -> None:
    rest("insert_rows", table=table, rows=[{"user": f"u{n}", "v": n} for n in range(50)])
    text = f"select v from [{table}] where user in ('u7', 'u9', 'none') order by v"
    assert rest("query_rows", sql=text)["rows"] == [[7], [9]]


def test_the_console_shows_the_expression(rest: Rest, table: str) -> None:
    page = rest.http.get("/console/table", params={"path": table}).raise_for_status()
    assert "<th>expression</th>" in page.text
    assert f"<code>{EXPRESSION}</code>" in page.text


@pytest.mark.parametrize("expression", ["k % 0", "if(k = 1, 5, k / (1 - 1))"])
def test_an_expression_that_no_row_can_compute_is_refused(rest: Rest, expression: str) -> None:
    key = {"type": "int64", "sort_order": "ascending"}
    plain = [{"name": "k", **key}, {"name": "v", "type": "int64"}]
    schema = [{"name": "h", **key, "expression": expression}, *plain]
    path = f"//computed/{next(_numbers)}"
    problems = [rest.refused("create_table", path=path, schema=schema)]
    rest("create_table", path=path, schema=plain)
    problems.append(rest.refused("alter_table", path=path, schema=schema))
    for problem in problems:
        assert problem.kind == "schema_violation"
        assert "divides by zero" in problem.detail
        assert problem.attributes["column"] == "h"
        assert problem.attributes["expression"] == repr(expression)
