"""Values of users for each logical type: what a column takes, for tests of all kinds.

Owns: the names of types that stand for all of them, and strategies of their values, which include
both ends of each range.
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
_EXACT: Final = Context(prec=200)
_HOURS: Final = st.integers(-23, 23).map(lambda it: timezone(timedelta(hours=it)))


def values_of(name: str) -> st.SearchStrategy[Any]:
    """Values that a column of this type takes."""
    kind = logical_type(name)
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


def an_example(name: str) -> Any:
    """One value of a type, which is not null or zero."""
    kind = logical_type(name)
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
