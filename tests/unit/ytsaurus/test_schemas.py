"""Schemas and attributes between YTsaurus's words and Dodona's, both ways."""

from typing import Any

import pytest

from dodona.errors import InvalidRequest, SchemaViolation
from dodona.schema import TableSchema
from dodona_wire.rows.logical_types import TYPES
from dodona_ytsaurus.terms.schemas import (
    STORAGE_ATTRIBUTES,
    check_settable,
    columns_of,
    object_id,
    own_attributes,
    pivot_keys_of,
    stored,
    yt_attributes,
    yt_schema,
)
from dodona_ytsaurus.terms.types_v3 import TYPES_V3
from dodona_ytsaurus.yson import Attributed, Uint64

KEY = {"name": "k", "type": "int64", "sort_order": "ascending"}


def test_columns_in_old_and_new_types() -> None:
    schema = [
        {**KEY, "name": "h", "expression": "k + 1"},
        {**KEY, "group": "g", "max_inline_hunk_size": 5, "expression": None},
        {"name": "v", "type": "string", "required": True, "lock": "a"},
        {"name": "n", "type_v3": {"type_name": "optional", "item": "uint64"}, "aggregate": "sum"},
        {"name": "b", "type_v3": "bool"},
        {"name": "c", "type": "bool"},
        {"name": "y", "type": "any", "type_v3": {"type_name": "optional", "item": "yson"}},
    ]
    assert columns_of(Attributed(schema, {"strict": True, "unique_keys": True})) == [
        {**KEY, "name": "h", "expression": "k + 1"},
        KEY,
        {"name": "v", "type": "string", "required": True, "lock": "a"},
        {"name": "n", "type": "uint64", "required": False, "aggregate": "sum"},
        {"name": "b", "type": "boolean", "required": True},
        {"name": "c", "type": "boolean"},
        {"name": "y", "type": "any", "required": False},
    ]


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("required", [True, False])
def test_a_schema_is_parsed_back_from_its_ytsaurus_form(kind: str, required: bool) -> None:
    schema = [KEY, {"name": "v", "type": kind, "required": required}]
    if kind == "any" and required:
        return  # which no table has
    parsed = TableSchema.parse(columns_of(schema))
    shown = yt_schema(
        [
            {"name": it.name, "type": it.type, "sort_order": it.sort_order, "required": it.required}
            for it in parsed.columns
        ]
    )
    assert shown.attributes == {"strict": True, "unique_keys": True}
    assert TableSchema.parse(columns_of(shown)) == parsed
    for column in shown.value:
        old = {name: column[name] for name in column if name != "type_v3"}
        new = {name: column[name] for name in column if name not in ("type", "required")}
        assert columns_of([old])[0] == columns_of([new])[0]


def test_every_type_is_spelt_both_ways() -> None:
    assert sorted(TYPES_V3.values()) == sorted(TYPES)


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        (5, "list of columns"),
        (None, "list of columns"),
        ({"name": "k"}, "list of columns"),
        ([5], "must be a map"),
        ([None], "must be a map"),
        ([{"name": "k"}], "type"),
        ([{"name": "k", "type": "int31"}], "int31"),
        ([{"name": "k", "type": 5}], "5"),
        ([{"name": "k", "type": ["int64"]}], "int64"),
        ([{"name": "k", "type_v3": "tz_date"}], "tz_date"),
        ([{"name": "k", "type_v3": {"type_name": "tuple", "elements": []}}], "tuple"),
        ([{"name": "k", "type_v3": {"type_name": "list"}}], "list needs item"),
        ([{"name": "k", "type_v3": {"type_name": "list", "item": {"type_name": "x"}}}], "x"),
        ([{"name": "k", "type_v3": {"type_name": "dict", "key": "utf8"}}], "dict needs value"),
        ([{"name": "k", "type_v3": {"type_name": "struct"}}], "struct needs members"),
        ([{"name": "k", "type_v3": {"type_name": "struct", "members": []}}], "one or more"),
        (
            [{"name": "k", "type_v3": {"type_name": "struct", "members": [{"type": "int8"}]}}],
            "name",
        ),
        (
            [{"name": "k", "type_v3": {"type_name": "struct", "members": [{"name": "a"}]}}],
            "needs type",
        ),
        ([{"name": "k", "type_v3": {"type_name": "optional"}}], "type_v3"),
        (
            [
                {
                    "name": "k",
                    "type_v3": {"type_name": "optional", "item": {"type_name": "optional"}},
                }
            ],
            "v3",
        ),
        ([{**KEY, "unknown": 1}], "unknown"),
        (Attributed([KEY], {"unique_keys": False}), "unique_keys"),
        (Attributed([KEY], {"strict": False}), "strict"),
        ([{**KEY, "sort_ordr": "ascending"}], "sort_ordr' of a column .* mean sort_order"),
        ([{**KEY, "tpye_v3": "int64"}], "tpye_v3' of a column .* mean type_v3"),
    ],
)
def test_schemas_that_can_not_be_kept(schema: Any, words: str) -> None:
    with pytest.raises(SchemaViolation, match=words):
        columns_of(schema)


# ---- what a node is made with


def test_storage_is_left_out_and_the_rest_kept() -> None:
    given = {
        **dict.fromkeys(STORAGE_ATTRIBUTES, "x"),
        "dynamic": True,
        "schema": [],
        "tablet_count": 5,
        "pivot_keys": [],
        "atomicity": "full",
        "mine": [Uint64(5), {"a": None}],
        "min_data_ttl": 7,
        "isolation": "serializable",
        "mount_config": Attributed({"max_data_versions": 3, "min_data_ttl": 1}, {"x": 1}),
    }
    own = own_attributes(given, "table")
    settings = {"isolation": "serializable", "min_data_ttl": 7, "max_data_versions": 3}
    assert own == {"mine": [5, {"a": None}], **settings}
    assert type(own["mine"][0]) is int


def test_a_directory_has_no_schema_of_ours() -> None:
    given = {"schema": "mine", "tablet_count": 5, "mount_config": {"x": 1}, "account": "a"}
    assert own_attributes(given, "map_node") == {
        "schema": "mine",
        "tablet_count": 5,
        "mount_config": {"x": 1},
    }


@pytest.mark.parametrize(
    "given", [{"acl": []}, {"owner": "x"}, {"mount_config": 5}, {"mount_config": {"magic": 1}}]
)
def test_attributes_without_effect_are_refused(given: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequest):
        own_attributes(given, "table")


def test_access_is_no_attribute() -> None:
    check_settable("mine")
    with pytest.raises(InvalidRequest, match="tokens"):
        check_settable("acl")


@pytest.mark.parametrize("value", [Attributed(1, {"a": 1}), b"\xff", [b"\xff"], {"a": b"\xff"}])
def test_values_that_are_not_kept(value: Any) -> None:
    with pytest.raises(InvalidRequest):
        stored(value)


@pytest.mark.parametrize(
    "value", [5, None, "x", {"a": []}, [5], [[], 5], [None], [[], {"a": 1}], [[], "ab"]]
)
def test_pivot_keys_are_lists_in_a_list(value: Any) -> None:
    with pytest.raises(InvalidRequest, match="a list of keys, each a list of values"):
        pivot_keys_of(value)


def test_pivot_keys_of_either_integers() -> None:
    keys = pivot_keys_of(Attributed([[], Attributed([Uint64(5), b"x"], {"a": 1})], {"b": 1}))
    assert keys == [[], [5, b"x"]]
    assert type(keys[1][0]) is int


# ---- what attributes look like

TABLE = {
    "type": "table",
    "id": 5,
    "path": "//a/t",
    "key_columns": ["k"],
    "schema": [{**KEY, "required": False}],
    "tablet_state": "mounting",
    "retained_timestamp": 7,
    "tablets": [
        {
            "index": 0,
            "state": "mounted",
            "id": 6,
            "pivot_key": [],
            "revision": 2,
            "retained_timestamp": 7,
            "cell": 1,
        },
        {
            "index": 1,
            "state": "unmounted",
            "id": 8,
            "pivot_key": [5],
            "revision": 0,
            "retained_timestamp": 1,
            "cell": None,
        },
    ],
}


def test_a_descending_column_is_kept_and_shown() -> None:
    key = {"name": "n", "type": "int64", "sort_order": "descending"}
    columns = [KEY, key, {"name": "v", "type": "any"}]
    parsed = TableSchema.parse(columns_of(columns))
    assert [it.sort_order for it in parsed.columns] == ["ascending", "descending", None]
    assert [it.get("sort_order") for it in yt_schema(columns).value] == [
        "ascending",
        "descending",
        None,
    ]
    shown = yt_attributes({**TABLE, "key_columns": ["k", "n"], "schema": columns})
    assert shown["key_columns"] == ["k", "n"]
    assert shown["sorted_by"] == ["k", {"name": "n", "sort_order": "descending"}]


def test_a_table_is_shown_with_the_attributes_of_ytsaurus() -> None:
    shown = yt_attributes(TABLE)
    assert (shown["type"], shown["id"], shown["key"]) == ("table", "0-5-191-0", "t")
    assert (shown["sorted_by"], shown["schema_mode"]) == (["k"], "strong")
    assert type(shown["retained_timestamp"]) is Uint64
    assert shown["schema"].attributes == {"strict": True, "unique_keys": True}
    first, second = shown["tablets"]
    assert first == {
        "index": 0,
        "state": "mounted",
        "tablet_id": "0-6-2be-0",
        "pivot_key": [],
        "mount_revision": 2,
        "retained_timestamp": 7,
        "cell_id": "0-1-2bc-0",
    }
    assert "cell_id" not in second


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        ("mounting", "mounted"),
        ("unfreezing", "mounted"),
        ("unmounting", "unmounted"),
        ("freezing", "frozen"),
        ("frozen_mounting", "frozen"),
        ("mounted", "mounted"),
        ("mixed", "mixed"),
    ],
)
def test_where_a_state_leads(state: str, expected: str) -> None:
    shown = yt_attributes({**TABLE, "tablet_state": state})
    assert (shown["tablet_state"], shown["expected_tablet_state"]) == (state, expected)


def test_the_user_attributes_of_a_directory_are_shown_unchanged() -> None:
    own = {"schema": 1, "tablets": "x", "retained_timestamp": [], "tablet_state": {}, "key": "mine"}
    shown = yt_attributes({"type": "directory", "id": 3, "path": "//a/d", **own})
    assert shown == {"type": "map_node", "id": "0-3-12f-0", "path": "//a/d", **own}
    assert yt_attributes({"type": "directory", "id": 0, "path": "/"})["key"] == ""


def test_ids_have_four_words_in_hexadecimal() -> None:
    assert object_id(255, 401) == "0-ff-191-0"
