"""Computed key columns: which expressions a schema takes, what they give, and which rows fit.

Owns: YTsaurus's meaning of each operator and function, with nulls and at the ends of the types. The
properties in tests/properties/test_computed.py hold that columns and single rows are alike.
"""

from datetime import UTC, date, datetime
from typing import Any

import msgspec
import pyarrow as pa
import pytest

from dodona.errors import SchemaViolation
from dodona.schema import Column, TableSchema
from dodona.types import DELETE_MASK, Key
from dodona_wire.expressions.farm_hash import farm_hash
from dodona_wire.rows.computed_arrow import check_computed_columns, with_computed

INT64_MIN, INT64_MAX, UINT64_MAX = -(1 << 63), (1 << 63) - 1, (1 << 64) - 1
INPUTS = {
    "i": "int64",
    "u": "uint64",
    "d": "double",
    "b": "boolean",
    "s": "string",
    "t": "utf8",
    "day": "date",
    "moment": "timestamp64",
    "second": "datetime",
    "small": "int8",
    "id": "uuid",
}


def schema_of(expression: str, kind: str = "uint64", **more: Any) -> TableSchema:
    key = {"sort_order": "ascending"}
    return TableSchema.parse(
        [
            {"name": "c", "type": kind, "expression": expression, **key, **more},
            *({"name": name, "type": it, **key} for name, it in INPUTS.items()),
            {"name": "v", "type": "int64"},
        ]
    )


def computed(expression: str, kind: str, **given: Any) -> Any:
    """The value of the computed column, after it was checked alone and as a column."""
    schema = schema_of(expression, kind)
    row = dict.fromkeys(INPUTS) | given
    key = schema.key_of(row)
    found = schema.decode_key(key)[0]
    assert schema.key_of({"c": found, **row}) == key
    schema.stored.check_key(key)
    stored = schema.stored
    fields = [pa.field(it.name, _arrow(it)) for it in stored.key_columns]
    plain = [[it] for it in _stored_values(schema, key)]
    batch = pa.RecordBatch.from_arrays(
        [pa.array(it, field.type) for it, field in zip(plain, fields, strict=True)],
        schema=pa.schema(fields),
    )
    check_computed_columns(stored, batch)
    assert with_computed(schema, batch, ()).equals(batch)
    return found


def _stored_values(schema: TableSchema, key: Key) -> tuple[Any, ...]:
    from dodona_wire.rows.keys import decode_key

    return decode_key(key, schema.key_types)


def _arrow(column: Column) -> pa.DataType:
    kinds = {"boolean": pa.bool_(), "double": pa.float64(), "utf8": pa.string()}
    kinds |= {"string": pa.binary(), "int64": pa.int64(), "uint64": pa.uint64()}
    return kinds[column.stored]


@pytest.mark.parametrize(
    ("expression", "kind", "given", "expected"),
    [
        ("farm_hash(i, s, b)", "uint64", {"i": 3, "s": b"hello", "b": True}, 13185060272037541714),
        ("farm_hash(i, s, b)", "uint64", {"i": 54, "b": False}, 1607147011416532415),
        ("farm_hash(t)", "uint64", {"t": "für"}, farm_hash("für".encode())),
        ("farm_hash(t) % 64", "uint64", {"t": "x"}, farm_hash(b"x") % 64),
        (
            "int64(farm_hash(i))",
            "int64",
            {"i": 42},
            (farm_hash(42) + (1 << 63)) % (1 << 64) - (1 << 63),
        ),
        ("farm_hash(id)", "uint64", {}, farm_hash(None)),
        ("i + 1", "int64", {"i": INT64_MAX}, INT64_MIN),
        ("i - 1", "int64", {"i": INT64_MIN}, INT64_MAX),
        ("u - 1", "uint64", {"u": 0}, UINT64_MAX),
        ("u * 2", "uint64", {"u": UINT64_MAX}, UINT64_MAX - 1),
        ("-i", "int64", {"i": INT64_MIN}, INT64_MIN),
        ("-u", "uint64", {"u": 1}, UINT64_MAX),
        ("~i", "int64", {"i": 0}, -1),
        ("i / 2", "int64", {"i": -7}, -3),
        ("i % 4", "int64", {"i": -7}, -3),
        ("u / 2u", "uint64", {"u": 7}, 3),
        ("u % 4", "uint64", {"u": 7}, 3),
        ("i & 6 | 1", "int64", {"i": -3}, 5),
        ("u << 63", "uint64", {"u": 3}, 1 << 63),
        ("i << 63", "int64", {"i": 1}, INT64_MIN),
        ("i >> 1", "int64", {"i": -3}, -2),
        ("u >> 60", "uint64", {"u": UINT64_MAX}, 15),
        ("i + 1", "int64", {}, None),
        ("if(i = 0, null, 10 / i)", "int64", {"i": 0}, None),
        ("if(i = 0, 0, 10 / i)", "int64", {"i": 0}, 0),
        ("if(i = 0, 0, 10 / i)", "int64", {"i": 3}, 3),
        ("if(i < 0, 1, 2)", "int64", {}, 1),
        ("if(b, 1, 2)", "int64", {}, None),
        ("i = null", "boolean", {}, True),
        ("i > null", "boolean", {"i": INT64_MIN}, True),
        ("i != 0 and 10 / i > 1", "boolean", {"i": 0}, False),
        ("i != 0 and 10 / i > 1", "boolean", {"i": 4}, True),
        ("i = 0 or 10 / i > 1", "boolean", {"i": 0}, True),
        ("b and i = 1", "boolean", {"i": 1}, None),
        ("b and i = 1", "boolean", {"i": 2}, False),
        ("not b", "boolean", {"b": True}, False),
        ("i in (1, 2)", "boolean", {"i": 2}, True),
        ("i between 1 and 2", "boolean", {"i": 3}, False),
        ("is_null(s)", "boolean", {}, True),
        ("s is not null", "boolean", {}, False),
        ("if_null(i, 5)", "int64", {}, 5),
        ("coalesce(u, uint64(i), 7)", "uint64", {"i": 3}, 3),
        ("uint64(i)", "uint64", {"i": -1}, UINT64_MAX),
        ("int64(d)", "int64", {"d": -2.9}, -2),
        ("double(u)", "double", {"u": UINT64_MAX}, 2.0**64),
        ("boolean(u)", "boolean", {"u": 2}, True),
        ("d / 2", "double", {"d": 1.0}, 0.5),
        ("d / 0.0", "double", {"d": -1.0}, float("-inf")),
        ("concat(s, 'x')", "string", {"s": b"\x00"}, b"\x00x"),
        ("t || '!'", "utf8", {"t": "für"}, "für!"),
        ("lower(t)", "utf8", {"t": "ÄbΣ"}, "äbς"),
        ("upper(s)", "string", {"s": b"a\xff"}, b"A\xff"),
        ("length(t)", "int64", {"t": "für"}, 4),
        ("s < 'b'", "boolean", {"s": b"a\xff"}, True),
        ("timestamp_floor_hour(i)", "int64", {"i": 3_601}, 3_600),
        ("timestamp_floor_day(i)", "int64", {"i": -1}, -86_400),
        ("timestamp_floor_day(u)", "uint64", {"u": 86_401}, 86_400),
        ("timestamp_floor_week(i)", "int64", {"i": 0}, -3 * 86_400),
        ("timestamp_floor_month(i)", "int64", {"i": 1_709_164_800}, 1_706_745_600),
        ("timestamp_floor_year(i)", "int64", {"i": -1}, -365 * 86_400),
        ("timestamp_floor_month(day)", "date", {"day": date(2024, 2, 29)}, date(2024, 2, 1)),
        ("timestamp_floor_quarter(day)", "date", {"day": date(2024, 6, 1)}, date(2024, 4, 1)),
        ("timestamp_floor_hour(day)", "date", {"day": date(2024, 2, 29)}, date(2024, 2, 29)),
        (
            "timestamp_floor_week(moment)",
            "timestamp64",
            {"moment": datetime(2024, 2, 29, 5, 6, 7, 8, UTC)},
            datetime(2024, 2, 26, tzinfo=UTC),
        ),
        (
            "timestamp_floor_hour(second)",
            "datetime",
            {"second": datetime(2024, 2, 29, 5, 6, 7, tzinfo=UTC)},
            datetime(2024, 2, 29, 5, tzinfo=UTC),
        ),
        ("if(b, day, null)", "date", {"b": True, "day": date(2024, 2, 29)}, date(2024, 2, 29)),
        ("small * 2", "int8", {"small": 5}, 10),
        ("18446744073709551615u", "uint64", {}, UINT64_MAX),
    ],
)
def test_an_expression_gives_ytsauruss_value(
    expression: str, kind: str, given: dict[str, Any], expected: Any
) -> None:
    assert computed(expression, kind, **given) == expected


@pytest.mark.parametrize(
    ("expression", "kind", "given", "reason"),
    [
        ("10 / i", "int64", {"i": 0}, "divides by zero"),
        ("10u % u", "uint64", {"u": 0}, "divides by zero"),
        ("i / -1", "int64", {"i": INT64_MIN}, "can't be divided by -1"),
        ("i << i", "int64", {"i": 64}, "A shift by 64 bits"),
        ("int64(d)", "int64", {"d": 1e30}, "does not fit in int64"),
        ("d / 0.0", "double", {"d": 0.0}, "NaN"),
        ("small * 2", "int8", {"small": 100}, "200 does not fit in int8"),
        ("timestamp_floor_week(u)", "uint64", {"u": 5}, "begins before the first value"),
        ("timestamp_floor_day(i)", "int64", {"i": INT64_MIN}, "begins before the first value"),
        ("concat(s, '')", "utf8", {"s": b"\xff"}, "not UTF-8"),
    ],
)
def test_a_row_without_a_value_is_refused(
    expression: str, kind: str, given: dict[str, Any], reason: str
) -> None:
    schema = schema_of(expression, kind)
    row = dict.fromkeys(INPUTS) | given
    with pytest.raises(SchemaViolation, match=f"column 'c' has no value.*{reason}") as alone:
        schema.write_of({**row, "v": 1})
    assert alone.value.attributes["column"] == "c"
    stored = schema.stored
    fields = [pa.field(it.name, _arrow(it)) for it in stored.key_columns]
    rows = [dict.fromkeys(INPUTS), row]
    arrays = [pa.array([it.get(field.name) for it in rows], field.type) for field in fields]
    batch = pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))
    with pytest.raises(SchemaViolation, match=reason) as together:
        with_computed(schema, batch, ())
    assert together.value.message == alone.value.message
    assert together.value.attributes["row_index"] == 1


@pytest.mark.parametrize(
    ("expression", "kind", "reason"),
    [
        ("farm_hash(tt)", "uint64", r"tt is no key column.*Did you mean t\?"),
        ("farm_hash(v)", "uint64", "v is no key column without an expression. There are: i, u"),
        ("farm_hash(c)", "uint64", "c is no key column without an expression"),
        ("farm_hash(x.t)", "uint64", "x.t is no key column"),
        ("farmhash(t)", "uint64", r"no function farmhash.*Did you mean farm_hash\?"),
        ("farm_hash()", "uint64", "farm_hash takes 1 or more arguments, not 0"),
        ("farm_hash(d)", "uint64", "Argument 1 of farm_hash must be .*string.*not double"),
        ("lower(i)", "string", "Argument 1 of lower must be string, not int64"),
        ("if(i, 1, 2)", "int64", "A condition must be a boolean, not int64"),
        ("if(b, 1, 'x')", "int64", "if takes values of one type"),
        ("i + u", "int64", "The operator [+] takes values of one type .* not int64 and uint64"),
        ("i < u", "boolean", "The operator < takes values of one type"),
        ("s + 'x'", "string", "The operator [+] takes"),
        ("farm_hash(t)", "int64", "The expression gives uint64, and the column is int64"),
        ("i", "uint64", "The expression gives int64, and the column is uint64"),
        ("1 / 0", "int64", "divides by zero"),
        ("farm_hash(t", "uint64", r"Expected a comma or \), found the end of the expression"),
        ("i 5", "int64", "Expected an operator, or the end of the expression"),
        ("", "uint64", "Expected an expression, found the end"),
        ("i = 'x", "uint64", "no end"),
        ("(i, u) = (1, 2u)", "boolean", "A tuple can't be used here"),
        ("case when b then 1 else 2 end", "int64", r"CASE in a computed column. Use if\("),
        ("s like 'x%'", "boolean", "LIKE in a computed column"),
        ("sum(i)", "int64", "no function sum"),
        ("(" * 60 + "i" + ")" * 60, "int64", "nested deeper than 50"),
        ("i" + " + 1" * 60, "int64", "more than 50 nested operators"),
        ("i" + " " * 4_096, "int64", "more than 4096 characters"),
        ("\ud800", "uint64", "not valid Unicode"),
        ("i", "date", "gives int64, and the column is uint64"),
        ("u", "date", "gives no date, but a number"),
        ("second", "date", "gives no date, but a datetime"),
        ("if(b, day, date)", "date", "date is no key column"),
        ("id", "uuid", "a column of type uuid can't be computed"),
    ],
)
def test_a_schema_refuses_an_expression(expression: str, kind: str, reason: str) -> None:
    with pytest.raises(SchemaViolation, match=reason) as error:
        schema_of(expression, kind)
    assert error.value.attributes["column"] == "c"


IMPOSSIBLE = [
    ("u / 0", "uint64", 0, "divides by zero"),
    ("i % 0", "int64", 0, "divides by zero"),
    ("farm_hash(t) % 0", "uint64", 0, "divides by zero"),
    ("u % (1 - 1)", "uint64", 0, "divides by zero"),
    ("u % (0 * 7u)", "uint64", 0, "divides by zero"),
    ("i / -0", "int64", 0, "divides by zero"),
    ("i % length('')", "int64", 0, "divides by zero"),
    ("i % if(1 = 2, 1, coalesce(null, 0))", "int64", 0, "divides by zero"),
    ("if(is_null(u), 5, u % 0)", "uint64", 18, "divides by zero"),
    ("if(u % 0 = 1u, u, 1u)", "uint64", 3, "divides by zero"),
    ("b and i / 0 > 5", "boolean", 6, "divides by zero"),
    ("coalesce(u, u / 0)", "uint64", 12, "divides by zero"),
    ("-(1 + (i % (2 - 2)))", "int64", 7, "divides by zero"),
    ("i << 64", "int64", 0, "A shift by 64 bits"),
    ("u >> (30 + 40)", "uint64", 0, "A shift by 70 bits"),
    ("i + int64(1e30)", "int64", 10, "does not fit in int64"),
]


@pytest.mark.parametrize(("expression", "kind", "at", "reason"), IMPOSSIBLE)
def test_a_new_schema_refuses_a_part_that_no_row_can_compute(
    expression: str, kind: str, at: int, reason: str
) -> None:
    with pytest.raises(SchemaViolation, match=f"expression of column 'c'.*{reason}") as error:
        schema_of(expression, kind)
    attributes = error.value.attributes
    assert (attributes["column"], attributes["offset"]) == ("c", at)
    assert attributes["expression"] == repr(expression)


@pytest.mark.parametrize(
    ("expression", "kind", "reason"),
    [
        ("300", "int8", "300 does not fit in int8"),
        ("0.0 / 0.0", "double", "NaN"),
        ("concat('\\xff', '')", "utf8", "not UTF-8"),
    ],
)
def test_a_new_schema_refuses_a_constant_that_its_column_can_not_have(
    expression: str, kind: str, reason: str
) -> None:
    with pytest.raises(SchemaViolation, match=f"expression of column 'c'.*{reason}"):
        schema_of(expression, kind)


@pytest.mark.parametrize(("expression", "kind", "at", "reason"), IMPOSSIBLE)
def test_a_stored_schema_with_an_impossible_part_is_read(
    expression: str, kind: str, at: int, reason: str
) -> None:
    good = schema_of("if(b, null, null)", kind).columns
    stored = TableSchema((msgspec.structs.replace(good[0], expression=expression), *good[1:]))
    assert [it.name for it in stored.computed] == ["c"]
    assert stored.stored.key_names == stored.key_names


@pytest.mark.parametrize(
    ("expression", "kind", "given"),
    [
        ("d / 0", "double", {"d": 1.0}),
        ("i / null", "int64", {"i": 1}),
        ("i % (i - 1)", "int64", {"i": 3}),
        ("i << 63", "int64", {"i": 1}),
    ],
)
def test_a_schema_takes_a_divisor_that_some_rows_can_compute(
    expression: str, kind: str, given: dict[str, Any]
) -> None:
    computed(expression, kind, **given)


def test_only_a_key_column_that_may_be_null_is_computed() -> None:
    with pytest.raises(SchemaViolation, match="'c' can't be required"):
        schema_of("farm_hash(t)", required=True)
    key = {"name": "k", "type": "int64", "sort_order": "ascending"}
    with pytest.raises(SchemaViolation, match="only a key column can be computed"):
        TableSchema.parse([key, {"name": "v", "type": "int64", "expression": "k"}])
    with pytest.raises(SchemaViolation, match="malformed"):
        TableSchema.parse([{**key, "expression": 5}, {"name": "v", "type": "int64"}])


def test_a_computed_column_uses_no_other_computed_column() -> None:
    key = {"type": "int64", "sort_order": "ascending"}
    columns = [
        {"name": "a", "expression": "b + 1", **key},
        {"name": "b", "expression": "k + 1", **key},
        {"name": "k", **key},
        {"name": "v", "type": "int64"},
    ]
    with pytest.raises(SchemaViolation, match="b is no key column without an expression"):
        TableSchema.parse(columns)
    columns[0]["expression"] = "k * 2"
    schema = TableSchema.parse(columns)
    assert schema.decode_key(schema.key_of({"k": 5})) == (10, 6, 5)


HASHED = TableSchema.parse(
    [
        {
            "name": "hash",
            "type": "uint64",
            "sort_order": "ascending",
            "expression": "farm_hash(user) % 64",
        },
        {"name": "user", "type": "utf8", "sort_order": "ascending"},
        {"name": "v", "type": "int64"},
    ]
)
X = farm_hash(b"x") % 64


def test_rows_and_keys_may_leave_out_a_computed_column() -> None:
    key = HASHED.bound_of([X, "x"])
    assert HASHED.key_of({"user": "x"}) == HASHED.key_of({"hash": X, "user": "x"}) == key
    assert HASHED.write_of({"user": "x", "v": 1}) == (key, 1, (1,))
    assert HASHED.write_of({"v": 1, "hash": X, "user": "x"}) == (key, 1, (1,))
    assert HASHED.write_of({"user": "x", "v": None}, is_update=True) == (key, 1, (None,))
    assert HASHED.key_of({"user": None}) == HASHED.bound_of([farm_hash(None) % 64, None])


@pytest.mark.parametrize(
    ("given", "reason"),
    [(X + 1, "leave the column out"), (None, "leave the column out"), (str(X), "an int, not str")],
)
def test_a_wrong_value_of_a_computed_column_is_refused(given: Any, reason: str) -> None:
    with pytest.raises(SchemaViolation, match=reason):
        HASHED.key_of({"hash": given, "user": "x"})
    with pytest.raises(SchemaViolation, match=reason):
        HASHED.write_of({"hash": given, "user": "x", "v": 1})


def test_the_error_of_a_wrong_value_says_what_is_right() -> None:
    with pytest.raises(SchemaViolation) as error:
        HASHED.key_of({"hash": X + 1, "user": "x"})
    assert error.value.message == (
        f"the computed column 'hash' is {X + 1} in this row, and its expression gives {X}: leave "
        "the column out"
    )
    assert error.value.attributes == {
        "column": "hash",
        "expression": "'farm_hash(user) % 64'",
        "value": str(X + 1),
        "computed": str(X),
    }


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ({"v": 1}, "missing key column 'user'"),
        ({"hash": X, "v": 1}, "missing key column 'user'"),
        ({"user": "x"}, "at least one column that is not a key"),
        ({"user": "x", "hash": X}, "at least one column that is not a key"),
        ({"user": "x", "v": 1, "w": 2}, "no such column"),
        ({"user": "x", "w": 2}, "no such column"),
    ],
)
def test_other_columns_must_be_named_as_before(row: dict[str, Any], reason: str) -> None:
    with pytest.raises(SchemaViolation, match=reason):
        HASHED.write_of(row)


def test_a_cell_computes_each_key_again() -> None:
    stored = HASHED.stored
    stored.check_write(HASHED.write_of({"user": "x", "v": 1}))
    wrong = HASHED.bound_of([X + 1, "x"])
    for write in ((wrong, 1, (1,)), (wrong, DELETE_MASK, ())):
        with pytest.raises(SchemaViolation, match=f"is {X + 1} in this row.*gives {X}"):
            stored.check_write(write)
    stored.check_prefix(HASHED.bound_of([X + 1, "x"]))  # a pivot key may be any
    assert not stored.code.are_plain([(wrong, 1, (1,))], wrong, Key(wrong + b"\xff"))
