"""Functions made for a schema: what they give is what the schema's own way gives, or nothing.

Owns: rows of all kinds, plain and not, for schemas of all kinds, with names that are no Python.
"""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dodona.errors import DataCorrupted, SchemaViolation
from dodona.keys import encode_key
from dodona.schema import TableSchema
from dodona.types import KEY_MAX, KEY_MIN, Key
from dodona_wire.rows import row_code
from dodona_wire.rows.row_code import NO_CODE
from dodona_wire.rows.sizes import write_bytes

NAMES = ("id", "a b", "it's", 'x"y', "\\", "\n", "{0}", "für", "None", "k0", "v0")
KEY_TYPES = ("int64", "uint64", "boolean", "string", "utf8", "double")
ORDERS = ("ascending", "descending")
VALUE_TYPES = (*KEY_TYPES, "any")
INT_EDGES = [0, -1, 1, -(1 << 63), (1 << 63) - 1, 1 << 63, -(1 << 63) - 1, (1 << 64) - 1, 1 << 64]


class Text(str):
    """No plain str."""


def columns(kinds: tuple[str, ...], count_max: int) -> st.SearchStrategy[list[dict[str, Any]]]:
    column = st.fixed_dictionaries({"type": st.sampled_from(kinds), "required": st.booleans()})
    return st.lists(column, min_size=1, max_size=count_max)


@st.composite
def schemas(draw: st.DrawFn) -> TableSchema:
    keys, values = draw(columns(KEY_TYPES, 3)), draw(columns(VALUE_TYPES, 4))
    names = draw(st.permutations(NAMES))
    for column in keys:
        column["sort_order"] = draw(st.sampled_from(ORDERS))
    named = [{**it, "name": name} for it, name in zip(keys + values, names, strict=False)]
    return TableSchema.parse(named)


VALUES = st.one_of(
    st.sampled_from(INT_EDGES),
    st.integers(-1000, 1000),
    st.floats(),
    st.booleans(),
    st.none(),
    st.binary(max_size=6),
    st.sampled_from([b"\x00", b"\x00\xff\x00", b"a" * 70_000, "a" * 70_000, "\ud800", "ä", ""]),
    st.text(max_size=6),
    st.builds(Text, st.text("ab", max_size=3)),
    st.builds(bytearray, st.binary(max_size=2)),
    st.lists(st.integers(0, 9), max_size=2),
)
OF_TYPE: dict[str, st.SearchStrategy[Any]] = {
    "int64": st.integers(-(1 << 63), (1 << 63) - 1),
    "uint64": st.integers(0, (1 << 64) - 1),
    "double": st.floats(),
    "boolean": st.booleans(),
    "string": st.binary(max_size=8),
    "utf8": st.text(max_size=8),
    "any": VALUES,
}


@st.composite
def schema_and_row(draw: st.DrawFn) -> tuple[TableSchema, dict[str, Any]]:
    schema = draw(schemas())
    row = {}
    for column in schema.columns:
        kind = draw(st.sampled_from(("plain", "plain", "plain", "plain", "any", "absent")))
        if kind != "absent":
            row[column.name] = draw(OF_TYPE[column.type] if kind == "plain" else VALUES)
    if draw(st.integers(0, 9)) == 0:
        row["stranger"] = 1
    return schema, row


def plainly(schema: TableSchema) -> TableSchema:
    """The same without its short ways."""
    other = TableSchema(schema.columns)
    other.__dict__["code"] = NO_CODE
    return other


def told(call: Any, *arguments: Any) -> Any:
    """What it gives, or the error that it raises."""
    try:
        return call(*arguments)
    except SchemaViolation as error:
        return error.message, error.attributes


def shown(value: Any) -> Any:
    """Types told apart, and NaN equal to itself."""
    if isinstance(value, tuple | list):
        return [shown(it) for it in value]
    return type(value).__name__, repr(value)


@given(schema_and_row())
def test_write_of_gives_the_same_result_as_the_general_code(
    case: tuple[TableSchema, dict[str, Any]],
) -> None:
    schema, row = case
    assert shown(told(schema.write_of, row)) == shown(told(plainly(schema).write_of, row))


@given(schema_and_row())
def test_key_of_gives_the_same_result_as_the_general_code(
    case: tuple[TableSchema, dict[str, Any]],
) -> None:
    schema, row = case
    key = {name: value for name, value in row.items() if name not in schema.value_names}
    assert shown(told(schema.key_of, key)) == shown(told(plainly(schema).key_of, key))


@given(schema_and_row(), st.data())
def test_generated_code_reads_a_row_with_its_key_and_values(
    case: tuple[TableSchema, dict[str, Any]], data: st.DataObject
) -> None:
    schema, row = case
    try:
        key, mask, values = plainly(schema).write_of(row)
    except SchemaViolation:
        return
    assert mask == schema.full_mask
    names = [column.name for column in schema.columns]
    right = dict(zip(names, schema.decode_key(key) + values, strict=True))
    quick = schema.code.row_of(key, values)
    assert quick is not None
    assert list(map(shown, quick.items())) == list(map(shown, right.items()))
    places = [at for at in range(len(schema.key_columns)) if data.draw(st.booleans())]
    chosen = data.draw(st.integers(0, schema.full_mask))
    read = schema.tuple_code(places, chosen)
    assert read is not None
    given = tuple([it for bit, it in enumerate(values) if chosen >> bit & 1])
    key_values = [schema.decode_key(key)[at] for at in places]
    assert list(map(shown, read(key, given))) == list(map(shown, (*key_values, *given)))


@st.composite
def schema_and_writes(draw: st.DrawFn) -> tuple[TableSchema, list[Any]]:
    """As clients that are broken, or evil, may send them: a key that was made well and cut, or of
    another table, values of any type and number, any mask."""
    schema = draw(schemas())
    writes = []
    for _ in range(draw(st.integers(0, 3))):
        values = tuple(draw(OF_TYPE[it.type] | st.none()) for it in schema.value_columns)
        key_values = [draw(OF_TYPE[it.type] | st.none()) for it in schema.key_columns]
        try:
            key = encode_key(key_values, schema.key_types)
        except (SchemaViolation, UnicodeEncodeError):
            key = Key(draw(st.binary(max_size=20)))
        write = [key, schema.full_mask, values]
        if draw(st.integers(0, 2)) == 0:
            at, byte = draw(st.integers(0, len(key))), draw(st.binary(max_size=1))
            write[0] = Key(key[:at] + byte + key[at + draw(st.integers(0, 1)) :])
        if draw(st.integers(0, 2)) == 0:
            write[1] = draw(st.integers(-1, 40))
        if draw(st.integers(0, 2)) == 0:
            write[2] = tuple(draw(st.lists(VALUES, max_size=4)))
        writes.append(tuple(write))
    return schema, writes


@given(schema_and_writes())
def test_writes_that_pass_the_quick_check_pass_the_full_check(
    case: tuple[TableSchema, list[Any]],
) -> None:
    schema, writes = case
    if schema.code.are_plain(writes, KEY_MIN, KEY_MAX):
        for write in writes:
            schema.check_write(write)


@pytest.mark.parametrize(
    ("key_type", "key"),
    [
        ("int64", b"\x04" + bytes(8)),
        ("int64", b"\x03" + bytes(7)),
        ("int64", b"\x03" + bytes(9)),
        ("int64", b""),
        ("utf8", b"\x10ab"),
        ("utf8", b"\x10ab\x00"),
        ("utf8", b"\x10\x00b\x00\x01"),
        ("utf8", b"\x03ab\x00\x01"),
        ("utf8", b"\x10ab\x00\x02"),
        ("utf8", b"\x10\xffa\x00\x01"),
        ("utf8", b"\x10"),
        ("utf8", b""),
        ("string", b"\x00\x01"),
    ],
)
def test_an_invalid_key_passes_neither_the_full_check_nor_the_quick_check(
    key_type: str, key: bytes
) -> None:
    schema = schema_of(key_type, "int64")
    write = Key(key), 1, (5,)
    with pytest.raises(SchemaViolation):
        schema.check_write(write)
    assert not schema.code.are_plain([write], KEY_MIN, KEY_MAX)


def test_keys_outside_a_range_are_not_taken_at_a_glance() -> None:
    schema = schema_of("int64", "int64")
    keys = [schema.key_of({"k": it}) for it in range(3)]
    writes = [(key, 1, (5,)) for key in keys]
    assert schema.code.are_plain(writes, keys[0], KEY_MAX)
    assert not schema.code.are_plain(writes, keys[1], KEY_MAX)
    assert not schema.code.are_plain(writes, keys[0], keys[2])


@given(schema_and_row())
def test_a_plain_write_is_no_larger_than_bytes_max(
    case: tuple[TableSchema, dict[str, Any]],
) -> None:
    schema, row = case
    plain = schema.code.write_of(row)
    if plain is not None:
        assert write_bytes(plain) <= schema.code.bytes_max


def test_the_longest_plain_write_almost_reaches_bytes_max() -> None:
    schema = schema_of("string", "utf8")
    length = row_code.PLAIN_BYTES_MAX
    plain = schema.code.write_of({"k": b"\x00" * length, "v": "x" * length})
    assert plain is not None
    assert 0.99 * schema.code.bytes_max < write_bytes(plain) <= schema.code.bytes_max


def schema_of(key_type: str, value_type: str, order: str = "ascending") -> TableSchema:
    return TableSchema.parse(
        [
            {"name": "k", "type": key_type, "sort_order": order},
            {"name": "v", "type": value_type},
        ]
    )


PLAIN: dict[str, Any] = {
    "int64": -5,
    "uint64": 1 << 63,
    "boolean": True,
    "string": b"a\x00b",
    "utf8": "a\x00b",
    "double": 1.5,
}


@pytest.mark.parametrize("key_type", ["int64", "uint64", "boolean", "string", "utf8"])
@pytest.mark.parametrize("value_type", list(PLAIN))
@pytest.mark.parametrize("order", ORDERS)
def test_plain_rows_go_the_short_way(key_type: str, value_type: str, order: str) -> None:
    code = schema_of(key_type, value_type, order).code
    row = {"k": PLAIN[key_type], "v": PLAIN[value_type]}
    write = code.write_of(row)
    assert write is not None
    assert write[0] == code.key_of({"k": row["k"]})
    if key_type in ("int64", "uint64"):
        assert code.row_of(write[0], write[2]) == row
        assert code.are_plain([write], KEY_MIN, KEY_MAX)
    if key_type in ("string", "utf8"):
        short = code.write_of({**row, "k": "ab" if key_type == "utf8" else b"ab"})
        assert short is not None
        assert code.are_plain([short], KEY_MIN, KEY_MAX)
        assert not code.are_plain([short, write], KEY_MIN, KEY_MAX), "a zero byte"


def test_generated_code_returns_none_for_values_that_are_not_plain() -> None:
    code = schema_of("int64", "any").code
    assert code.write_of({"k": 1, "v": 1}) is None
    assert code.key_of({"k": True}) is None
    assert code.key_of({"k": 1, "v": 1}) is None
    with pytest.raises(DataCorrupted):
        code.row_of(schema_of("uint64", "any").key_of({"k": 1}), (1,))


def test_a_schema_with_too_many_columns_has_no_generated_code(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(row_code, "COLUMNS_MAX", 1)
    row_code.row_code.cache_clear()
    try:
        assert schema_of("int64", "int64").code is NO_CODE
    finally:
        row_code.row_code.cache_clear()
