"""Computed key columns through the real client: as in YTsaurus, rows and keys do not name them."""

from typing import Any

import pytest
import yt.wrapper as yt

from dodona_wire.expressions.farm_hash import farm_hash

pytestmark = [
    pytest.mark.integration,
    pytest.mark.part("YTsaurus's client leaves computed columns to the server"),
]

EXPRESSION = "farm_hash(k, s) % 8u"
SCHEMA = [
    {"name": "hash", "type": "uint64", "sort_order": "ascending", "expression": EXPRESSION},
    {"name": "k", "type": "int64", "sort_order": "ascending"},
    {"name": "s", "type": "string", "sort_order": "ascending"},
    {"name": "v", "type": "int64"},
]


def test_the_server_computes_the_column(client: yt.YtClient, folder: str) -> None:
    path = f"{folder}/computed"
    attributes = {"dynamic": True, "schema": SCHEMA, "pivot_keys": [[], [yt.yson.YsonUint64(4)]]}
    client.create("table", path, attributes=attributes)
    client.mount_table(path, sync=True)
    assert client.get(f"{path}/@schema")[0]["expression"] == EXPRESSION
    client.insert_rows(path, [{"k": 3, "s": "hello", "v": 1}, {"k": 54, "v": 2}])
    hashes = farm_hash(3, b"hello") % 8, farm_hash(54, None) % 8
    rows: list[dict[str, Any]] = [
        {"hash": hashes[0], "k": 3, "s": "hello", "v": 1},
        {"hash": hashes[1], "k": 54, "s": None, "v": 2},
    ]
    found = client.lookup_rows(path, [{"k": 3, "s": "hello"}, {"k": 54}])
    assert sorted(map(dict, found), key=lambda it: it["k"]) == rows
    assert [dict(it) for it in client.select_rows(f"* from [{path}] where k = 3")] == rows[:1]
    text = f"k from [{path}] where {EXPRESSION} = hash and farm_hash(s, k) != hash"
    assert sorted(it["k"] for it in client.select_rows(text)) == [3, 54]
    client.insert_rows(path, [{**rows[0], "v": 5}])
    with pytest.raises(yt.YtResponseError, match="its expression gives") as refused:
        client.insert_rows(path, [{**rows[0], "hash": hashes[0] ^ 1}])
    assert refused.value.contains_code(307)
    client.delete_rows(path, [{"k": 54}])
    assert [it["v"] for it in client.select_rows(f"v from [{path}]")] == [5]


def test_an_expression_that_no_row_can_compute_is_refused(client: yt.YtClient, folder: str) -> None:
    schema = [{**SCHEMA[0], "expression": "farm_hash(k) % (8u - 8u)"}, *SCHEMA[1:]]
    with pytest.raises(yt.YtResponseError, match=r"'hash' is wrong.*divides by zero") as refused:
        client.create("table", f"{folder}/zero", attributes={"dynamic": True, "schema": schema})
    assert refused.value.contains_code(307)
    client.create("table", f"{folder}/zero", attributes={"dynamic": True, "schema": SCHEMA})
    with pytest.raises(yt.YtResponseError, match="The expression of a column can't change"):
        client.alter_table(f"{folder}/zero", schema=schema)
