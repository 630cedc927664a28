"""Computed columns: one row alone, a column of rows, and the check of a cell agree.

Owns: random expressions of all operators and functions, over rows with nulls, and with numbers at
the ends of their types. A row that has no value alone has none among others either.
"""

import re
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, reject, settings
from hypothesis import strategies as st

from dodona.errors import SchemaViolation
from dodona.keys import encode_key
from dodona.schema import TableSchema
from dodona.types import KEY_MAX, KEY_MIN, Key
from dodona_wire.rows.arrow import arrow_schema
from dodona_wire.rows.arrow_keys import encode_keys
from dodona_wire.rows.computed_arrow import check_computed_columns, with_computed
from suite.levels import examples

EDGES = [0, 1, 2, 63, 64, 86_399, 86_400, 1 << 31, (1 << 63) - 1]
SIGNED = st.sampled_from([*EDGES, -1, -2, -86_401, -(1 << 63)]) | st.integers(-100, 100)
UNSIGNED = st.sampled_from([*EDGES, (1 << 64) - 1, 1 << 63]) | st.integers(0, 100)
INPUTS: dict[str, tuple[str, st.SearchStrategy[Any]]] = {
    "i": ("int64", SIGNED),
    "j": ("int64", SIGNED),
    "u": ("uint64", UNSIGNED),
    "w": ("uint64", UNSIGNED),
    "d": ("double", st.floats(allow_nan=False)),
    "b": ("boolean", st.booleans()),
    "s": ("string", st.binary(max_size=5) | st.binary(min_size=60, max_size=70)),
    "t": ("utf8", st.text(max_size=5) | st.sampled_from(["Straße", "İΣ", "a\0b", "x" * 100])),
}
KEY = {"sort_order": "ascending"}
FLOORS = ("hour", "day", "week", "month", "quarter", "year")
Text = st.SearchStrategy[str]


def leaf(kind: str) -> Text:
    names = [name for name, (its, _) in INPUTS.items() if its == kind]
    literals: dict[str, Text] = {
        "int64": SIGNED.filter(lambda it: it > -(1 << 63)).map(lambda it: f"({it})"),
        "uint64": UNSIGNED.map(lambda it: f"{it}u"),
        "double": st.sampled_from(["0.0", "1.5", "1e300", "(-2.25)"]),
        "boolean": st.sampled_from(["true", "false"]),
        "string": st.sampled_from(["''", "'x'", "'\\xff'", "'Ä'"]),
    }
    if kind == "string":
        names.append("t")
    return st.sampled_from(names) | st.sampled_from(names) | literals[kind] | st.just("null")


@st.composite
def expression(draw: st.DrawFn, kind: str, depth: int = 3) -> str:
    if depth == 0 or draw(st.integers(0, 4)) == 0:
        found = draw(leaf(kind))
        name = draw(leaf(kind).filter(str.isalpha))  # it gives a null its kind
        return found if found != "null" else f"if(true, null, {name})"

    def part(its: str = kind) -> str:
        return draw(expression(its, depth - 1))

    others = ("int64", "uint64", "double", "boolean", "string")
    shared = [f"if({part('boolean')}, {part()}, {part()})", f"coalesce({part()}, {part()})"]
    if kind in ("int64", "uint64"):
        operator = draw(st.sampled_from(["+", "-", "*", "/", "%", "&", "|", "<<", ">>"]))
        hashed = ", ".join([part(it) for it in draw(st.lists(HASHED, min_size=1, max_size=3))])
        other = draw(st.sampled_from(["int64", "uint64", "double"]))
        shared += [
            f"({part()} {operator} {part()})",
            f"(-{part()})",
            f"(~{part()})",
            f"{kind}({part(other)})",
            f"{kind}(farm_hash({hashed}))",
            f"{kind}(length({part('string')}))",
            f"timestamp_floor_{draw(st.sampled_from(FLOORS))}({part()})",
        ]
    elif kind == "double":
        operator = draw(st.sampled_from(["+", "-", "*", "/"]))
        shared += [f"({part()} {operator} {part()})", f"double({part('int64')})", f"(-{part()})"]
    elif kind == "boolean":
        its = draw(st.sampled_from(others))
        operator = draw(st.sampled_from(["=", "!=", "<", "<=", ">", ">="]))
        shared += [
            f"({part(its)} {operator} {part(its)})",
            f"({part()} and {part()})",
            f"({part()} or {part()} or {part()})",
            f"(not {part()})",
            f"is_null({part(its)})",
            f"boolean({part('uint64')})",
        ]
    else:
        shared += [f"concat({part()}, {part()})", f"lower({part()})", f"upper({part()})"]
    return draw(st.sampled_from(shared))


HASHED = st.sampled_from(["int64", "uint64", "boolean", "string"])
ROW = st.fixed_dictionaries({name: its | st.none() for name, (_, its) in INPUTS.items()})


@st.composite
def tables(draw: st.DrawFn) -> tuple[TableSchema, list[dict[str, Any]]]:
    kind = draw(st.sampled_from(["int64", "uint64", "double", "boolean", "string", "utf8"]))
    text = draw(expression("string" if kind == "utf8" else kind))
    columns = [
        {"name": "c", "type": kind, "expression": text, **KEY},
        *({"name": name, "type": it, **KEY} for name, (it, _) in INPUTS.items()),
        {"name": "v", "type": "int64"},
    ]
    try:
        schema = TableSchema.parse(columns)
    except SchemaViolation as error:
        if not re.search("divide|shift|not UTF-8", error.message):
            raise
        reject()  # a constant part of the expression has no value
    return schema, draw(st.lists(ROW, min_size=1, max_size=6))


def alone(schema: TableSchema, row: dict[str, Any]) -> Key | str:
    try:
        return schema.key_of(row)
    except SchemaViolation as error:
        if "'c' has no value" not in error.message:
            raise
        return error.message


def batch_of(schema: TableSchema, rows: list[dict[str, Any]]) -> Any:
    wanted = pa.schema(list(arrow_schema(schema))[:-1])
    arrays = [pa.array([row.get(field.name) for row in rows], field.type) for field in wanted]
    return pa.RecordBatch.from_arrays(arrays, schema=wanted)


@settings(max_examples=examples(500))
@given(tables())
def test_rows_alone_and_together_have_the_same_keys(
    table: tuple[TableSchema, list[dict[str, Any]]],
) -> None:
    schema, rows = table
    keys = [alone(schema, row) for row in rows]
    good = [row for row, key in zip(rows, keys, strict=True) if isinstance(key, bytes)]
    batch = with_computed(schema, batch_of(schema, good), ())
    assert encode_keys(schema, batch).to_pylist() == [it for it in keys if isinstance(it, bytes)]
    check_computed_columns(schema.stored, batch)
    for key in keys:
        if isinstance(key, bytes):
            schema.stored.check_key(key)
            whole = dict(zip(schema.key_names, schema.decode_key(key), strict=True))
            assert schema.key_of(whole) == key
    if len(good) < len(rows):
        with pytest.raises(SchemaViolation) as error:
            with_computed(schema, batch_of(schema, rows), ())
        assert error.value.message == keys[error.value.attributes["row_index"]]


@settings(max_examples=examples(200))
@given(tables(), st.data())
def test_a_wrong_value_is_refused_alone_and_together(
    table: tuple[TableSchema, list[dict[str, Any]]], data: st.DataObject
) -> None:
    schema, rows = table
    row = rows[0]
    key = alone(schema, row)
    if isinstance(key, str):
        return
    right, *others = schema.decode_key(key)
    kind = schema.key_columns[0].type
    wrong = data.draw(next(its for it, its in INPUTS.values() if it == kind) | st.none())
    if wrong == right:
        return
    with pytest.raises(SchemaViolation, match="leave the column out"):
        schema.key_of({"c": wrong, **row})
    other = encode_key((wrong, *others), schema.key_types)
    with pytest.raises(SchemaViolation, match="leave the column out"):
        schema.stored.check_key(other)
    batch = batch_of(schema, [{"c": wrong, **row}])
    with pytest.raises(SchemaViolation, match="leave the column out"):
        check_computed_columns(schema.stored, batch)


NUMBERS = st.sampled_from(
    ["farm_hash(i, {0})", "farm_hash({0}) % 64", "uint64(i) + 1u", "100u / u"]
)


@settings(max_examples=examples(300))
@given(
    expression=NUMBERS,
    text=st.sampled_from(["string", "utf8", "none"]),
    row=ROW,
    shift=st.sampled_from([0, 0, 1]),
)
def test_the_quick_check_of_a_cell_accepts_only_what_the_long_one_accepts(
    expression: str, text: str, row: dict[str, Any], shift: int
) -> None:
    name = {"string": "s", "utf8": "t", "none": "u"}[text]
    names = ["i", "u", *([] if text == "none" else [name])]
    columns = [
        {"name": "c", "type": "uint64", "expression": expression.format(name), **KEY},
        *({"name": it, "type": INPUTS[it][0], **KEY} for it in names),
        {"name": "v", "type": "int64"},
    ]
    schema = TableSchema.parse(columns)
    given = {it: row[it] for it in names}
    key = alone(schema, given)
    if isinstance(key, str):
        return
    right, *others = schema.decode_key(key)
    value = right if right is None else (right + shift) % (1 << 64)
    sent = encode_key((value, *others), schema.key_types), 1, (7,)
    stored = schema.stored
    is_plain = stored.code.are_plain([sent], KEY_MIN, KEY_MAX)
    if value == right:
        stored.check_write(sent)
        is_simple = None not in given.values() and text in ("none", "utf8")
        is_simple = is_simple and (text == "none" or (row["t"].isascii() and "\0" not in row["t"]))
        assert is_plain or not is_simple
    else:
        assert not is_plain
        with pytest.raises(SchemaViolation, match="leave the column out"):
            stored.check_write(sent)
