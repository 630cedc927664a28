"""Schemas and rows against small models: which are refused, and what an accepted row becomes."""

import math
from collections.abc import Callable
from typing import Any, TypeVar

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dodona.errors import SchemaViolation
from dodona.keys import encode_key
from dodona.schema import TableSchema
from dodona.types import Key, Write
from suite.levels import examples

Made = TypeVar("Made")

NUMBERS = ("int64", "uint64", "double")
TYPES = (*NUMBERS, "boolean", "string", "utf8", "any")
EXAMPLES = settings(
    max_examples=examples(300),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)

definitions = st.fixed_dictionaries(
    {
        "name": st.sampled_from(["a", "b", "c", "d", "", "$e", "@f", "n" * 256, "n" * 257]),
        "type": st.sampled_from([*TYPES, "int31"]),
    },
    optional={
        "sort_order": st.sampled_from([None, "ascending", "descending", "upwards"]),
        "required": st.booleans(),
        "lock": st.sampled_from([None, "x", "y", "", "<primary>", "l" * 256, "l" * 257]),
        "aggregate": st.sampled_from([None, "sum", "min", "max", "first", "xdelta"]),
    },
)


def is_column_good(it: dict[str, Any]) -> bool:
    name: str = it["name"]
    kind: str = it["type"]
    lock, aggregate, order = it.get("lock"), it.get("aggregate"), it.get("sort_order")
    if not 1 <= len(name) <= 256 or name[0] in "$@" or kind not in TYPES:
        return False
    if order == "upwards":
        return False
    if order is not None:
        return kind != "any" and lock is None and aggregate is None
    if lock is not None and (not 1 <= len(lock) <= 256 or lock == "<primary>"):
        return False
    match aggregate:
        case "sum":
            return kind in NUMBERS
        case "min" | "max":
            return kind != "any"
        case "xdelta":
            return False
    return True


def is_good(columns: list[dict[str, Any]]) -> bool:
    names = [it["name"] for it in columns]
    are_keys = [it.get("sort_order") is not None for it in columns]
    return (
        all(map(is_column_good, columns))
        and len(set(names)) == len(names)
        and are_keys == sorted(are_keys, reverse=True)
        and True in are_keys
        and False in are_keys
    )


def attempt(make: Callable[[], Made]) -> Made | SchemaViolation:
    """What is made, or why it is not."""
    try:
        return make()
    except SchemaViolation as error:
        return error


def is_accepted(columns: list[dict[str, Any]]) -> bool:
    return isinstance(attempt(lambda: TableSchema.parse(columns)), TableSchema)


@EXAMPLES
@given(st.lists(definitions, max_size=4))
def test_a_schema_is_accepted_exactly_if_each_rule_is_kept(columns: list[dict[str, Any]]) -> None:
    schema = attempt(lambda: TableSchema.parse(columns))
    assert isinstance(schema, TableSchema) == is_good(columns)
    if isinstance(schema, TableSchema):
        assert [it.name for it in schema.columns] == [it["name"] for it in columns]
        locks = [it["lock"] for it in columns if it.get("lock") is not None]
        assert schema.lock_names == ("<primary>", *dict.fromkeys(locks))
        assert TableSchema.parse(schema.columns) == schema


@EXAMPLES
@given(st.integers(0, 40), st.integers(0, 1_100), st.integers(0, 40))
def test_counts_are_bounded(key_count: int, value_count: int, lock_count: int) -> None:
    keys = [
        {"name": f"k{at}", "type": "int64", "sort_order": "ascending"} for at in range(key_count)
    ]
    values: list[dict[str, Any]] = [{"name": f"v{at}", "type": "any"} for at in range(value_count)]
    for at, column in enumerate(values[:lock_count]):
        column["lock"] = f"l{at}"
    groups = min(lock_count, value_count) + 1
    is_allowed = 1 <= key_count <= 32 and 1 <= value_count <= 1_024 and groups <= 32
    assert is_accepted([*keys, *values]) == is_allowed


# ---- values

VALUES: dict[str, st.SearchStrategy[Any]] = {
    "int64": st.integers(-(1 << 63) - 1, 1 << 63),
    "uint64": st.integers(-1, 1 << 64),
    "double": st.floats(),
    "boolean": st.booleans(),
    "string": st.binary(max_size=5),
    "utf8": st.text(max_size=5),
    "any": st.recursive(
        st.none() | st.booleans() | st.floats() | st.text(max_size=3) | st.integers(-5, 5),
        lambda inner: (
            st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=2), inner, max_size=2)
        ),
        max_leaves=4,
    ),
}
values = st.one_of([VALUES[kind] for kind in sorted(VALUES)])


def double_of(value: Any) -> tuple[Any, ...]:
    """A whole number is never rounded."""
    if _is_int(value):
        return (float(value),) if float(value) == value else ()
    return (value,) if isinstance(value, float) else ()


def stored_as(kind: str, value: Any) -> tuple[Any, ...]:
    """(what a column of a type makes of a value), or () where it is refused."""
    if value is None:
        return (None,)
    match kind:
        case "int64":
            return (value,) if _is_int(value) and -(1 << 63) <= value < 1 << 63 else ()
        case "uint64":
            return (value,) if _is_int(value) and 0 <= value < 1 << 64 else ()
        case "double":
            return double_of(value)
        case "boolean":
            return (value,) if isinstance(value, bool) else ()
        case "string":
            if isinstance(value, str):
                return (value.encode(),)
            return (value,) if isinstance(value, bytes) else ()
        case "utf8":
            return (value,) if isinstance(value, str) else ()
    if _is_int(value):
        return (value,) if -(1 << 63) <= value < 1 << 64 else ()
    return (value,)


def _is_int(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


@EXAMPLES
@given(st.sampled_from(TYPES), values)
def test_a_value_is_stored_or_refused_by_the_type_of_its_column(kind: str, value: Any) -> None:
    schema = TableSchema.parse(
        [
            {"name": "k", "type": "int64", "sort_order": "ascending"},
            {"name": "v", "type": kind},
        ]
    )
    expected = stored_as(kind, value)
    write = attempt(lambda: schema.write_of({"k": 1, "v": value}))
    if isinstance(write, SchemaViolation):
        assert not expected
        assert write.attributes["column"] == "v"
    else:
        assert _same(write[2], expected)
        schema.check_write(write)


@EXAMPLES
@given(
    st.sampled_from([it for it in TYPES if it != "any"]),
    values,
    st.sampled_from(["ascending", "descending"]),
)
def test_a_key_column_takes_the_same_values_as_a_value_column_except_nan(
    kind: str, value: Any, order: str
) -> None:
    schema = TableSchema.parse(
        [{"name": "k", "type": kind, "sort_order": order}, {"name": "v", "type": "any"}]
    )
    expected = stored_as(kind, value)
    if expected and isinstance(expected[0], float) and math.isnan(expected[0]):
        expected = ()
    ways: list[Callable[[], Key]] = [
        lambda: schema.key_of({"k": value}),
        lambda: schema.bound_of([value]),
        lambda: schema.write_of({"k": value, "v": 1})[0],
    ]
    for way in ways:
        key = attempt(way)
        if isinstance(key, SchemaViolation):
            assert not expected
            assert key.attributes["column"] == "k"
        else:
            assert schema.decode_key(key) == expected
            schema.check_key(key)


def _same(left: Any, right: Any) -> bool:
    """Equal, where NaN is equal to itself."""
    return repr(left) == repr(right)


# ---- rows

ROW_SCHEMA = TableSchema.parse(
    [
        {"name": "k", "type": "int64", "sort_order": "ascending", "required": True},
        {"name": "l", "type": "int64", "sort_order": "ascending"},
        {"name": "must", "type": "int64", "required": True},
        {"name": "may", "type": "int64"},
        {"name": "sum", "type": "int64", "aggregate": "sum"},
    ]
)
rows = st.dictionaries(
    st.sampled_from(["k", "l", "must", "may", "sum", "other"]),
    st.none() | st.integers(0, 3),
    max_size=6,
).map(lambda row: {"k": 1, "l": None, "must": 2, **row} if len(row) % 2 else row)


def model_of(row: dict[str, Any], *, is_update: bool, is_aggregate: bool) -> Write | None:
    """The write that a row comes to; None where it is refused."""
    is_known = row.keys() <= {"k", "l", "must", "may", "sum"}
    has_required = row.get("k") is not None and row.get("must") is not None
    if not is_known or not has_required or "l" not in row:
        return None
    written = {}
    for bit, name in enumerate(("must", "may", "sum")):
        is_change = is_aggregate and name == "sum"
        if row.get(name) is not None or not (is_change or (is_update and name not in row)):
            written[bit] = row.get(name)
    key = encode_key([row["k"], row["l"]], ["int64", "int64"])
    return key, sum(1 << bit for bit in written), tuple(written.values())


@EXAMPLES
@given(rows, st.booleans(), st.booleans())
def test_a_row_becomes_the_write_of_its_mode(
    row: dict[str, Any], is_update: bool, is_aggregate: bool
) -> None:
    make = ROW_SCHEMA.change_of if is_aggregate else ROW_SCHEMA.write_of
    expected = model_of(row, is_update=is_update, is_aggregate=is_aggregate)
    write = attempt(lambda: make(row, is_update=is_update))
    if isinstance(write, SchemaViolation):
        assert expected is None
    else:
        assert write == expected
        ROW_SCHEMA.check_write(write)
