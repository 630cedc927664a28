"""Schemas and rows: each reason for which one is refused, and what an accepted one becomes."""

from typing import Any

import pytest

from dodona.errors import SchemaViolation
from dodona.keys import encode_key
from dodona.schema import (
    KEY_COLUMNS_MAX,
    LOCK_GROUPS_MAX,
    NAME_LENGTH_MAX,
    VALUE_COLUMNS_MAX,
    Column,
    TableSchema,
)
from dodona.types import Key
from dodona.values import NESTING_DEPTH_MAX, VALUE_BYTES_MAX
from dodona_wire.rows.row_rules import KEY_BYTES_MAX, ROW_BYTES_MAX

Definition = dict[str, Any]

ID: Definition = {"name": "id", "type": "int64", "sort_order": "ascending"}
VALUE: Definition = {"name": "value", "type": "int64"}


def keys(count: int) -> list[Definition]:
    return [{**ID, "name": f"k{it}"} for it in range(count)]


def values(count: int, **more: Any) -> list[Definition]:
    return [{**VALUE, "name": f"v{it}", **more} for it in range(count)]


@pytest.mark.parametrize(
    ("columns", "reason"),
    [
        ([{"name": "id"}], "malformed"),
        ([{**ID, "type": "int65"}, VALUE], "type .*one of .*int64, .*not 'int65'.*mean int64"),
        ([{**ID, "colour": "red"}, VALUE], "no field 'colour': use one of name, type, sort_order"),
        ([{**ID, "sort_ordr": "ascending"}, VALUE], "no field 'sort_ordr': use 'sort_order'"),
        ([ID, {**VALUE, "Required": True}], "no field 'Required': use 'required'"),
        ([ID, {**VALUE, "required" * 100_000: True}], "no field 'required.*…: use one of name"),
        ([{**ID, "sort_order": "upwards"}, VALUE], "sort_order .*one of ascending, descending"),
        ([5, VALUE], "a dict or a Column, not int"),
        ([{**ID, "name": ""}, VALUE], "empty or too long"),
        ([{**ID, "name": "n" * (NAME_LENGTH_MAX + 1)}, VALUE], "empty or too long"),
        ([{**ID, "name": "\ud800"}, VALUE], "not Unicode"),
        ([ID, {**VALUE, "lock": "\ud800"}], "not Unicode"),
        ([ID, VALUE, VALUE], "two columns have the same name"),
        ([VALUE, ID], "before all others"),
        ([VALUE], "sort_order"),
        ([ID], "not a key"),
        ([*keys(KEY_COLUMNS_MAX + 1), VALUE], "at most"),
        ([ID, *values(VALUE_COLUMNS_MAX + 1)], "at most"),
        ([{**ID, "lock": "a"}, VALUE], "lock"),
        ([{**ID, "aggregate": "sum"}, VALUE], "aggregate"),
        ([ID, {**VALUE, "lock": ""}], "lock name"),
        ([ID, {**VALUE, "lock": "l" * (NAME_LENGTH_MAX + 1)}], "lock name"),
        ([{**ID, "name": "$id"}, VALUE], "can't begin with"),
        ([ID, {**VALUE, "name": "@value"}], "can't begin with"),
        ([ID, {**VALUE, "lock": "<primary>"}], "lock of columns without `lock`"),
        ([ID, {**VALUE, "type": "utf8", "aggregate": "sum"}], "sum aggregates int64, .*not utf8"),
        ([ID, {**VALUE, "type": "any", "aggregate": "min"}], "min aggregates .*not any"),
        ([ID, {**VALUE, "type": "any", "aggregate": "max"}], "max aggregates .*not any"),
        ([ID, {**VALUE, "aggregate": "xdelta"}], "aggregate .*one of sum, .*not 'xdelta'"),
        ([{**ID, "type": "any"}, VALUE], "of type any"),
        ([Column("id", "int65", "ascending"), VALUE], "not 'int65'"),
        ([ID, Column("value", "int64", required="yes")], "malformed"),  # type: ignore[arg-type]
        ([ID, *({**it, "lock": it["name"]} for it in values(LOCK_GROUPS_MAX))], "lock groups"),
    ],
)
def test_an_invalid_schema_is_refused_with_the_reason(columns: list[Any], reason: str) -> None:
    with pytest.raises(SchemaViolation, match=reason):
        TableSchema.parse(columns)


@pytest.mark.parametrize(
    ("aggregate", "types"),
    [
        ("sum", ["int64", "uint64", "double"]),
        ("min", ["int64", "uint64", "double", "boolean", "string", "utf8"]),
        ("max", ["int64", "uint64", "double", "boolean", "string", "utf8"]),
        ("first", ["int64", "uint64", "double", "boolean", "string", "utf8", "any"]),
    ],
)
def test_each_aggregate_accepts_its_column_types(aggregate: str, types: list[str]) -> None:
    columns = [{"name": it, "type": it, "aggregate": aggregate} for it in types]
    assert TableSchema.parse([ID, *columns]).aggregate_mask == (1 << len(types)) - 1


def test_thirty_two_lock_groups_are_allowed_the_main_one_among_them() -> None:
    locks = [{**it, "lock": it["name"]} for it in values(LOCK_GROUPS_MAX - 1)]
    schema = TableSchema.parse([ID, *locks, {**VALUE, "name": "main"}])
    assert len(schema.lock_names) == LOCK_GROUPS_MAX


def test_the_largest_schema_is_accepted() -> None:
    schema = TableSchema.parse([*keys(KEY_COLUMNS_MAX), *values(VALUE_COLUMNS_MAX)])
    assert len(schema.columns) == KEY_COLUMNS_MAX + VALUE_COLUMNS_MAX
    assert schema.full_mask.bit_count() == VALUE_COLUMNS_MAX


# ---- rows

EVERY_TYPE = TableSchema.parse(
    [
        ID,
        {"name": "i", "type": "int64"},
        {"name": "u", "type": "uint64"},
        {"name": "d", "type": "double"},
        {"name": "b", "type": "boolean"},
        {"name": "s", "type": "string"},
        {"name": "t", "type": "utf8"},
        {"name": "a", "type": "any"},
    ]
)
DEEP: list[Any] = []
for _ in range(NESTING_DEPTH_MAX + 1):
    DEEP = [DEEP]


@pytest.mark.parametrize(
    ("column", "value", "reason"),
    [
        ("i", "1", "takes an int, not str"),
        ("i", True, "takes an int, not bool"),
        ("i", 1.0, "takes an int, not float"),
        ("i", 1 << 63, "fit in int64"),
        ("i", -(1 << 63) - 1, "fit in int64"),
        ("u", "1", "takes an int, not str"),
        ("u", -1, "fit in uint64"),
        ("u", 1 << 64, "fit in uint64"),
        ("d", "1.0", "takes a float"),
        ("d", True, "takes a float"),
        ("b", 1, "takes a bool"),
        ("s", 5, "takes bytes or str"),
        ("s", bytes(VALUE_BYTES_MAX + 1), "longer than"),
        ("t", b"bytes", "takes a str"),
        ("t", "\ud800", "not Unicode"),
        ("t", "é" * (VALUE_BYTES_MAX // 2 + 1), "longer than"),
        ("a", DEEP, "nested deeper"),
        ("a", {1: 2}, "takes a str"),
        ("a", 1 << 64, "fit in uint64"),
        ("a", -(1 << 63) - 1, "fit in int64"),
        ("a", {"x": object()}, "takes None, numbers"),
        ("a", {b"x": 1}, "takes a str, not bytes"),
        ("a", ["\ud800"], "not Unicode"),
        ("a", ["x" * (VALUE_BYTES_MAX // 2)] * 2, "longer than"),
        ("a", bytes(VALUE_BYTES_MAX), "longer than"),
        ("s", "\ud800", "not Unicode"),
        ("d", 10**400, "fit in double"),
        ("id", None, None),
        ("id", "x", "takes an int"),
        ("stranger", 1, "no such column"),
    ],
)
def test_an_invalid_value_is_refused_with_column_and_reason(
    column: str, value: Any, reason: str | None
) -> None:
    row = {"id": 1, "i": 1, column: value}
    if reason is None:
        assert EVERY_TYPE.write_of(row)[0] == encode_key([None], ["int64"])
        return
    with pytest.raises(SchemaViolation, match=reason) as caught:
        EVERY_TYPE.write_of(row)
    assert column in str(caught.value)


REQUIRED = TableSchema.parse(
    [
        {**ID, "required": True},
        {"name": "must", "type": "int64", "required": True},
        {"name": "may", "type": "int64"},
    ]
)


@pytest.mark.parametrize("is_update", [False, True])
@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ({"must": 1}, "missing key column 'id'"),
        ({"id": None, "must": 1}, "required column is null"),
        ({"id": 1, "must": None}, "required column is null"),
        ({"id": 1, "may": 1}, "required column is missing"),
    ],
)
def test_a_row_without_a_required_value_is_refused(
    row: Definition, reason: str, is_update: bool
) -> None:
    with pytest.raises(SchemaViolation, match=reason):
        REQUIRED.write_of(row, is_update=is_update)


def test_a_row_of_only_keys_writes_nothing() -> None:
    with pytest.raises(SchemaViolation, match="not a key"):
        EVERY_TYPE.write_of({"id": 1}, is_update=True)


def test_a_key_with_more_than_key_columns_is_refused() -> None:
    with pytest.raises(SchemaViolation, match="only key columns") as caught:
        EVERY_TYPE.key_of({"id": 1, "i": 2})
    assert caught.value.attributes["columns"] == ["i"]


OPTIONAL_KEYS = TableSchema.parse(
    [{**ID, "name": "k"}, {**ID, "name": "l", "required": False}, VALUE]
)


def test_key_columns_have_to_be_named_and_may_be_null() -> None:
    types = ["int64", "int64"]
    assert OPTIONAL_KEYS.key_of({"k": None, "l": 2}) == encode_key([None, 2], types)
    nulls = {"k": None, "l": None}
    assert OPTIONAL_KEYS.key_of(nulls) == encode_key([None, None], types)
    assert OPTIONAL_KEYS.write_of({**nulls, "value": 1})[0] == encode_key([None, None], types)
    for row, column in (({"l": 2}, "k"), ({"k": 1}, "l"), ({}, "k")):
        for refuse in (
            OPTIONAL_KEYS.key_of,
            lambda row: OPTIONAL_KEYS.write_of({**row, "value": 1}),
        ):
            with pytest.raises(SchemaViolation, match=r"missing key column .* or null") as caught:
                refuse(row)
            assert caught.value.attributes == {"column": column}
    with pytest.raises(SchemaViolation, match=r"column 'id': give .* for it \(") as caught:
        REQUIRED.key_of({})
    assert caught.value.attributes == {"column": "id"}


@pytest.mark.parametrize("row", [{"m": 1}, {"k": 1, "m": 2}, {"m": 1, "n": 2}])
def test_a_misspelt_key_is_no_key_of_nulls(row: Definition) -> None:
    with pytest.raises(SchemaViolation, match="only key columns"):
        OPTIONAL_KEYS.key_of(row)
    with pytest.raises(SchemaViolation, match="no such column"):
        OPTIONAL_KEYS.write_of({**row, "value": 1})


def test_nan_is_no_key_and_may_be_a_value() -> None:
    schema = TableSchema.parse(
        [
            {"name": "k", "type": "double", "sort_order": "ascending"},
            {"name": "d", "type": "double"},
            {"name": "a", "type": "any"},
        ]
    )
    nan = float("nan")
    for encode in (
        lambda: schema.key_of({"k": nan}),
        lambda: schema.write_of({"k": nan, "d": 1}),
        lambda: schema.bound_of([nan]),
    ):
        with pytest.raises(SchemaViolation, match="NaN") as caught:
            encode()
        assert caught.value.attributes == {"column": "k"}
    assert repr(schema.write_of({"k": 1, "d": nan, "a": [nan]})[2]) == "(nan, [nan])"


def test_a_key_from_the_wire_with_nan_is_refused() -> None:
    schema = TableSchema.parse([{"name": "k", "type": "double", "sort_order": "ascending"}, VALUE])
    encoded_nan = Key(b"\x05" + (0xFFF8 << 48).to_bytes(8, "big"))
    with pytest.raises(SchemaViolation, match="NaN"):
        schema.check_key(encoded_nan)


def test_a_key_from_the_wire_with_a_null_required_column_is_refused() -> None:
    schema = TableSchema.parse([{**ID, "required": True}, VALUE])
    with pytest.raises(SchemaViolation, match="required column is null") as caught:
        schema.check_key(Key(b"\x02"))
    assert caught.value.attributes == {"column": "id"}


def test_a_key_has_a_longest_length() -> None:
    schema = TableSchema.parse(
        [
            {"name": "k", "type": "string", "sort_order": "ascending"},
            {"name": "l", "type": "string", "sort_order": "ascending"},
            VALUE,
        ]
    )
    half = bytes([1]) * (KEY_BYTES_MAX // 2)
    assert len(schema.key_of({"k": half, "l": b""})) < KEY_BYTES_MAX
    long: Definition = {"k": half, "l": half}
    for encode in (lambda: schema.key_of(long), lambda: schema.write_of({**long, "value": 1})):
        with pytest.raises(SchemaViolation, match="a key is longer"):
            encode()
    with pytest.raises(SchemaViolation, match="a key is longer"):
        schema.check_key(encode_key([half, half], schema.key_types))


def test_a_row_has_a_longest_length() -> None:
    columns = [{"name": f"v{at}", "type": "string"} for at in range(9)]
    schema = TableSchema.parse([ID, *columns])
    largest = bytes(ROW_BYTES_MAX // 8)
    row = {it["name"]: largest for it in columns[:7]}
    write = schema.write_of({"id": 1, **row})
    assert write[2][-2:] == (None, None)
    row |= {"v7": largest}
    with pytest.raises(SchemaViolation, match="a row is longer"):
        schema.write_of({"id": 1, **row})
    with pytest.raises(SchemaViolation, match="a row is longer"):
        schema.check_write((write[0], schema.full_mask, (*write[2][:7], largest, None)))


def test_subclasses_of_str_bytes_and_float_are_stored_as_the_base_type() -> None:
    class Text(str): ...

    class Bytes(bytes): ...

    class Float(float): ...

    row = {"id": 1, "t": Text("x"), "s": Bytes(b"y"), "d": Float(1.5), "a": [Text("z")]}
    stored = EVERY_TYPE.write_of(row, is_update=True)[2]
    assert stored == (1.5, b"y", "x", ["z"])
    assert [type(it) for it in (*stored[:3], *stored[3])] == [float, bytes, str, str]


def test_a_bound_is_a_prefix_of_the_key() -> None:
    assert EVERY_TYPE.bound_of([]) == b""
    assert EVERY_TYPE.bound_of([7]) == encode_key([7], ["int64"])
    with pytest.raises(SchemaViolation, match="more values than key columns"):
        EVERY_TYPE.bound_of([7, 8])


def test_overwriting_sets_every_column_and_updating_only_those_given() -> None:
    overwriting = REQUIRED.write_of({"id": 1, "must": 2})
    updating = REQUIRED.write_of({"id": 1, "must": 2}, is_update=True)
    assert overwriting[1:] == (0b11, (2, None))
    assert updating[1:] == (0b01, (2,))


def test_text_becomes_bytes_in_a_string_column_and_an_int_a_float() -> None:
    row = {"id": 1, "s": "é", "d": 3}
    _, mask, stored = EVERY_TYPE.write_of(row, is_update=True)
    assert (mask, stored) == (0b10100, (3.0, "é".encode()))


@pytest.mark.parametrize(
    ("mask", "given", "reason"),
    [
        (0b100, (1,), "column mask"),
        (0b11, (1,), "column mask"),
        (-1, (), "column mask"),
        (0b01, (None,), "required column is null"),
        (0b01, ("x",), "takes an int"),
    ],
)
def test_the_node_checks_a_write_again(mask: int, given: tuple[Any, ...], reason: str) -> None:
    with pytest.raises(SchemaViolation, match=reason):
        REQUIRED.check_write((encode_key([1], ["int64"]), mask, given))


def test_locks_follow_the_columns_written() -> None:
    schema = TableSchema.parse(
        [ID, {**VALUE, "name": "a", "lock": "x"}, {**VALUE, "name": "b"}, {**VALUE, "name": "c"}]
    )
    assert schema.lock_names == ("<primary>", "x")
    assert [schema.lock_mask(it) for it in (0b001, 0b010, 0b111, 0)] == [0b10, 0b01, 0b11, 0b01]
    assert schema.check_mask(0b01) == 0b11
    assert schema.check_mask(0b10) == 0b11


def test_columns_are_chosen_by_name() -> None:
    assert EVERY_TYPE.column_mask(["id", "d", "i"]) == 0b101
    assert EVERY_TYPE.column_mask(None) == EVERY_TYPE.full_mask
    with pytest.raises(SchemaViolation, match="no such column"):
        EVERY_TYPE.column_mask(["x"])
