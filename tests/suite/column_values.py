"""Values of users for each logical type: what a column takes, for tests of all kinds.

Owns: the names of types that stand for all of them, and strategies of their values, which include
both ends of each range, empty lists, and nulls where they may be.
"""

from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Context, Decimal
from typing import Any, Final

from hypothesis import strategies as st

from dodona_wire.rows.logical_types import TYPES, LogicalType, logical_type
from dodona_wire.rows.logical_values import load_of

DECIMALS: Final = (
    "decimal(1,0)",
    "decimal(9,9)",
    "decimal(10,2)",
    "decimal(18,0)",
    "decimal(38,10)",
    "decimal(39,0)",
    "decimal(76,76)",
)
LOGICAL: Final = (*[it.name for it in TYPES.values() if not it.is_stored], *DECIMALS)
"""Logical types, of decimals a few."""
KEYS: Final = LOGICAL
NESTED: Final = (
    "list<int64>",
    "list<optional<utf8>>",
    'struct<price:decimal(10,2),"a ""b":optional<date32>>',
    "dict<utf8,double>",
    "dict<string,optional<any>>",
    "dict<int64,list<uuid>>",
    "list<list<optional<struct<t:timestamp64,n:uint64>>>>",
    "struct<s:struct<j:json,f:float,b:boolean>,l:list<interval64>,d:dict<uint8,datetime>>",
)
"""Nested types: each form, with parts of each kind, and nested twice."""
_EXACT: Final = Context(prec=200)
_HOURS: Final = st.integers(-23, 23).map(lambda it: timezone(timedelta(hours=it)))


PLAIN: Final[dict[str, st.SearchStrategy[Any]]] = {
    "int64": st.integers(-(1 << 63), (1 << 63) - 1) | st.sampled_from([-(1 << 63), (1 << 63) - 1]),
    "uint64": st.integers(0, (1 << 64) - 1) | st.sampled_from([0, (1 << 64) - 1]),
    "double": st.floats(allow_nan=False),
    "boolean": st.booleans(),
    "string": st.binary(max_size=4) | st.sampled_from([b"\xff", b"base64:"]),
    "utf8": st.text(max_size=4) | st.sampled_from(["", "ä😀\0", "$base64"]),
    "any": st.recursive(
        st.booleans() | st.integers(-5, 5) | st.text("ab$", max_size=2) | st.binary(max_size=2),
        lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text("ab"), inner),
        max_leaves=3,
    ),
}
"""The same for types inside others whose values are the stored ones."""


def values_of(name: str) -> st.SearchStrategy[Any]:
    """Values that a column of this type takes."""
    kind = logical_type(name)
    if kind.members:
        return _nested_values(kind)
    if kind.is_stored:
        return PLAIN[name]
    match kind.form:
        case "float":
            return st.floats(width=32, allow_nan=False)
        case "json":
            return st.sampled_from(['{"a": [1, null]}', "1", '"ä"', " [] ", "true", "1e3"])
        case "uuid":
            return st.uuids()
        case "seconds" | "microseconds":
            return st.tuples(_stored(kind), _HOURS).map(lambda it: _elsewhere(kind, *it))
    return _stored(kind).map(load_of(kind))


def _nested_values(kind: LogicalType) -> st.SearchStrategy[Any]:
    parts = [
        values_of(it.kind.name) | st.none() if it.is_optional else values_of(it.kind.name)
        for it in kind.members
    ]
    if kind.form == "list":
        return st.lists(parts[0], max_size=3)
    if kind.form == "dict":
        return st.dictionaries(*parts, max_size=3)
    names = [it.name for it in kind.members]
    drawn = st.fixed_dictionaries(dict(zip(names, parts, strict=True)))
    return drawn.map(lambda it: {name: it[name] for name in names})


def _stored(kind: LogicalType) -> st.SearchStrategy[Any]:
    if kind.form == "decimal":
        largest, sign = 10**kind.precision - 1, 1 << 8 * kind.size_bytes - 1
        numbers = st.integers(-largest, largest) | st.sampled_from([-largest, -1, 0, largest])
        return numbers.map(lambda it: (it + sign).to_bytes(kind.size_bytes, "big"))
    edges = [kind.lowest, kind.highest, max(kind.lowest, -1), 0, 1]
    return st.integers(kind.lowest, kind.highest) | st.sampled_from(edges)


def _elsewhere(kind: LogicalType, stored: int, zone: timezone) -> datetime:
    """The same moment in another time zone, if it has a date there."""
    moment: datetime = load_of(kind)(stored)
    try:
        return moment.astimezone(zone)
    except OverflowError:
        return moment


_PLAIN_EXAMPLES: Final[dict[str, Any]] = {
    "int64": -7,
    "uint64": 1 << 63,
    "double": 0.5,
    "boolean": True,
    "string": b"\xff",
    "utf8": "ä",
    "any": {"a": [1, None, b""]},
}


def an_example(name: str) -> Any:
    """One value of a type, which is not null or zero."""
    kind = logical_type(name)
    if kind.form == "list":
        return [an_example(kind.members[0].kind.name)]
    if kind.form == "struct":
        return {it.name: an_example(it.kind.name) for it in kind.members}
    if kind.form == "dict":
        key, value = (an_example(it.kind.name) for it in kind.members)
        return {key: value}
    if kind.is_stored:
        return _PLAIN_EXAMPLES[name]
    examples: dict[str, Any] = {
        "integer": 7,
        "float": 0.5,
        "date": date(2024, 2, 29),
        "seconds": datetime(2024, 2, 29, 12, 30, 1, tzinfo=UTC),
        "microseconds": datetime(2024, 2, 29, 12, 30, 1, 5, tzinfo=UTC),
        "interval": timedelta(days=-1, microseconds=3),
        "json": '{"a": 1}',
    }
    if kind.form == "decimal":
        return Decimal(7).scaleb(-kind.scale, _EXACT)
    if kind.form == "uuid":
        return load_of(kind)(bytes(range(16)))
    return examples[kind.form]
