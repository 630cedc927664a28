"""Logical types through the real client: it sends and gets the stored values, as from YTsaurus."""

from typing import Any, Final

import pytest
import yt.wrapper as yt
from yt import yson
from yt.yson import get_bytes

pytestmark = [
    pytest.mark.integration,
    pytest.mark.part("YTsaurus's client sends logical types in their stored form"),
]

PRICE: Final = {"type_name": "decimal", "precision": 5, "scale": 2}
SCHEMA: Final = [
    {"name": "day", "type": "date", "sort_order": "ascending"},
    {"name": "at", "type": "timestamp64"},
    {"name": "small", "type": "int8"},
    {"name": "x", "type": "float"},
    {"name": "price", "type_v3": {"type_name": "optional", "item": PRICE}},
    {"name": "id", "type": "uuid"},
]
ROW: Final = {"day": 19_782, "at": -5, "small": -128, "x": 0.5}
BYTES: Final = {"price": b"\x80\x00\x04\xe2", "id": b"\x00\xff" * 8}


def plain(row: Any) -> dict[str, Any]:
    return {
        name: get_bytes(value) if name in BYTES and value is not None else value
        for name, value in row.items()
    }


def test_rows_and_queries_have_stored_values(client: yt.YtClient, folder: str) -> None:
    path = f"{folder}/logical"
    attributes = {"dynamic": True, "schema": SCHEMA, "pivot_keys": [[], [19_782]]}
    client.create("table", path, attributes=attributes)
    client.mount_table(path, sync=True)
    client.insert_rows(path, [{**ROW, **BYTES}])
    row = {**ROW, **BYTES}
    assert [plain(it) for it in client.lookup_rows(path, [{"day": 19_782}])] == [row]
    assert [plain(it) for it in client.select_rows(f"* from [{path}] where day = 19782u")] == [row]
    (found,) = client.select_rows(f"at + 1 as later, small * 2 as double from [{path}]")
    assert found == {"later": -4, "double": -256}
    schema = client.get(f"{path}/@schema")
    assert [it["type"] for it in schema] == [
        "date", "timestamp64", "int8", "float", "string", "uuid",
    ]  # fmt: skip
    assert dict(schema[4]["type_v3"]["item"]) == PRICE
    with pytest.raises(yt.YtResponseError, match="does not fit in int8"):
        client.insert_rows(path, [{**ROW, "small": 300}])
    client.delete_rows(path, [{"day": 19_782}])
    assert list(client.lookup_rows(path, [{"day": 19_782}])) == []


ITEM: Final = {
    "type_name": "struct",
    "members": [
        {"name": "price", "type": PRICE},
        {"name": "note", "type": {"type_name": "optional", "item": "utf8"}},
    ],
}
NESTED: Final = [
    {"name": "k", "type": "int64", "sort_order": "ascending"},
    {
        "name": "items",
        "type_v3": {"type_name": "optional", "item": {"type_name": "list", "item": ITEM}},
    },
    {
        "name": "counts",
        "type_v3": {
            "type_name": "optional",
            "item": {"type_name": "dict", "key": "utf8", "value": "uint64"},
        },
    },
]
RAW: Final = b"\x80\x00\x04\xe2"


def test_lists_structs_and_dicts_have_the_forms_of_yson(client: yt.YtClient, folder: str) -> None:
    path = f"{folder}/nested"
    client.create("table", path, attributes={"dynamic": True, "schema": NESTED})
    client.mount_table(path, sync=True)
    row = {
        "k": 1,
        "items": [{"price": RAW, "note": "ä"}, {"note": None, "price": RAW}],
        "counts": [["x", yson.YsonUint64(1 << 63)], ["y", yson.YsonUint64(2)]],
    }
    client.insert_rows(path, [row, {"k": 2, "items": [], "counts": None}])
    first, second = client.lookup_rows(path, [{"k": 1}, {"k": 2}])
    assert [[get_bytes(it["price"]), it["note"]] for it in first["items"]] == [
        [RAW, "ä"],
        [RAW, None],
    ]
    assert [*map(list, first["counts"])] == [["x", 1 << 63], ["y", 2]]
    assert all(isinstance(it[1], yson.YsonUint64) for it in first["counts"])
    assert (list(second["items"]), second["counts"]) == ([], None)
    (found,) = client.select_rows(f"items, counts from [{path}] where k = 1")
    assert [it["note"] for it in found["items"]] == ["ä", None]
    assert [*map(list, found["counts"])] == [["x", 1 << 63], ["y", 2]]
    schema = client.get(f"{path}/@schema")
    assert [it["type"] for it in schema] == ["int64", "any", "any"]
    assert schema[1]["type_v3"]["item"]["item"]["members"][0]["type"] == PRICE
    with pytest.raises(yt.YtResponseError, match=r"items\[0\].price"):
        client.insert_rows(path, [{"k": 3, "items": [{"note": "x"}]}])
