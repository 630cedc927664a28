"""Find what a query needs from each table: its columns and a range of keys. Pure.

Owns: the reading of DuckDB's plan. DuckDB moves each condition as near to its table as the meaning
of the query allows. It drops the columns that the query does not use. From the conditions directly
above a scan, this module makes the smallest range of keys that contains all their rows.
Invariant: a range may be too large, but never too small. A condition that is not understood does
not make the range smaller.
In a plan, columns have names of this module (`column_id`), so that no quotes and no names of users
cause errors.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import reduce
from itertools import product
from typing import Any, Final

import msgspec

from dodona._core.sql.constants import Expression, constant, predecessor, successor
from dodona_wire.rows.keys import encode_key
from dodona_wire.rows.logical_types import LogicalType
from dodona_wire.rows.schema import Column, TableSchema
from dodona_wire.types import KEY_MAX, KEY_MIN, Key

Parse = Callable[[str], Expression | None]
Interval = tuple[Any, Any]
"""The smallest and the largest stored value, both included. None means that there is no such
limit. An interval without a smallest value has null, too."""

RANGES_MAX: Final = 32
"""How many narrow ranges of keys are read instead of one wide range."""
EXPRESSION_LENGTH_MAX: Final = 1 << 20
NESTING_DEPTH_MAX: Final = 100
_EVERYTHING: Final[Interval] = (None, None)
_WIDER: Final = {
    "short": ("BIGINT", "HUGEINT"),
    "int64": ("HUGEINT",),
    "uint64": ("HUGEINT",),
}
"""Types of DuckDB that hold each value of a column of integers."""
_COLUMN_ID: Final = re.compile(r"c(\d+)_(\d+)(?:\..*)?", re.DOTALL)
"""The name of a column, or of a field of it: if a query needs some fields only, a scan has them."""
_MIRRORED: Final = {
    "COMPARE_EQUAL": "COMPARE_EQUAL",
    "COMPARE_LESSTHAN": "COMPARE_GREATERTHAN",
    "COMPARE_LESSTHANOREQUALTO": "COMPARE_GREATERTHANOREQUALTO",
    "COMPARE_GREATERTHAN": "COMPARE_LESSTHAN",
    "COMPARE_GREATERTHANOREQUALTO": "COMPARE_LESSTHANOREQUALTO",
}


class ScanRange(msgspec.Struct, frozen=True):
    """What to read from a table: `columns`, of lower ≤ key < upper in the order of the table. The
    ends are leading key column values as they are stored: `TableSchema.load_bound` makes those of
    users."""

    columns: tuple[str, ...]
    lower: tuple[Any, ...] | None = None
    upper: tuple[Any, ...] | None = None
    ranges: tuple[Interval, ...] = ()
    """Narrower ranges within this one that have all the rows, in their order; none overlap. Without
    them, the whole range is read."""

    def parts(self) -> tuple[Interval, ...]:
        """Return the ranges to read."""
        return self.ranges or ((self.lower, self.upper),)


def column_id(table: int, column: int) -> str:
    """Return the name of a column in a plan: the indexes of its table and of the column."""
    return f"c{table}_{column}"


def scan_ranges(
    plan: Iterable[dict[str, Any]], schemas: Sequence[TableSchema], parse: Parse
) -> list[ScanRange | None]:
    """Return for each table what all of its scans in the plan need, or None if it has no scan."""
    needed: list[ScanRange | None] = [None] * len(schemas)
    for name, columns, conditions in _scans(plan):
        ids = [_COLUMN_ID.fullmatch(it) for it in columns]
        if not all(ids) or not ids:
            if "ARROW_SCAN" in name:  # the scan may be of any table
                return [ScanRange(tuple([it.name for it in schema.columns])) for schema in schemas]
            continue
        table = int(_group(ids[0], 1))
        schema = schemas[table]
        places = sorted({int(_group(it, 2)) for it in ids})
        names = tuple([schema.columns[place].name for place in places])
        trees = [parse(it) for it in conditions]
        ranges = _key_ranges(table, schema, [it for it in trees if it is not None])
        narrow = tuple(ranges) if len(ranges) > 1 else ()
        found = ScanRange(names, ranges[0][0], ranges[-1][1], narrow)
        needed[table] = _both(schema, needed[table], found)
    return needed


def _group(found: re.Match[str] | None, number: int) -> str:
    assert found is not None
    return found[number]


def _scans(plan: Iterable[dict[str, Any]]) -> Iterator[tuple[str, list[str], list[str]]]:
    """Yield each leaf: the name of the operator, its columns, and the conditions directly above
    it."""
    waiting: list[tuple[dict[str, Any], list[str]]] = [(node, []) for node in plan]
    while waiting:
        node, conditions = waiting.pop()
        name, info, children = node["name"].strip(), node["extra_info"], node["children"]
        if not children:
            columns = info.get("Projections", [])
            yield name, [columns] if isinstance(columns, str) else columns, conditions
        below: list[str] = []
        if name == "FILTER":
            below = [*conditions, *_texts(info.get("Expression"))]
        waiting += [(child, below) for child in children]


def _texts(condition: object) -> list[str]:
    """Return the condition as a list of one text, or an empty list. DuckDB gives a list for a text
    with line breaks, and the places of the breaks are lost."""
    if not isinstance(condition, str) or "\0" in condition:
        return []
    return [condition] if len(condition) <= EXPRESSION_LENGTH_MAX else []


def _both(schema: TableSchema, one: ScanRange | None, other: ScanRange) -> ScanRange:
    """Return a range that is enough for two scans of one table."""
    if one is None:
        return other
    names = [it.name for it in schema.columns if it.name in (*one.columns, *other.columns)]
    lower = _outermost(schema, min, (one.lower, other.lower))
    upper = _outermost(schema, max, (one.upper, other.upper))
    ranges = one.ranges if one.ranges == other.ranges else ()
    return ScanRange(tuple(names), lower, upper, ranges)


def _outermost(
    schema: TableSchema, choose: Callable[..., Any], ends: Sequence[tuple[Any, ...] | None]
) -> tuple[Any, ...] | None:
    """Return the end that `choose` finds among places in the order of the table."""
    if None in ends:
        return None
    found: tuple[Any, ...] = choose(ends, key=lambda it: encode_key(it, schema.key_types))
    return found


# ---- from conditions to a range of keys


def _key_ranges(
    table: int, schema: TableSchema, conditions: Sequence[Expression]
) -> list[Interval]:
    def interval_of(place: int, kind: LogicalType) -> Interval:
        column = column_id(table, place)
        return intersection(*[_interval(it, column, kind) for it in conditions])

    def points_of(place: int, kind: LogicalType) -> frozenset[Any] | None:
        column = column_id(table, place)
        return fewest([points(it, column, kind) for it in conditions])

    return key_ranges(schema, interval_of, points_of)


def key_ranges(
    schema: TableSchema,
    interval_of: Callable[[int, LogicalType], Interval],
    points_of: Callable[[int, LogicalType], frozenset[Any] | None],
) -> list[Interval]:
    """Return ranges of keys that have all the rows, in their order: leading key column values as
    they are stored, lower ≤ key < upper. `interval_of` returns the interval of each column's stored
    values. `points_of` returns its values, if they are few. There are several ranges only if
    a column has several values, from which a computed column is computed."""
    kinds = [it.logical for it in schema.key_columns]
    known = {place: interval_of(place, kind) for place, kind in enumerate(kinds)}
    inputs = sorted({place for it in schema.computed for place in it.inputs})
    choices: dict[int, list[Any]] = {}
    count = 1
    for place in inputs:
        its = points_of(place, kinds[place])
        if its and count * len(its) <= RANGES_MAX:
            choices[place] = sorted(its)
            count *= len(its)
    found = []
    for values in product(*choices.values()):
        fixed = {place: (it, it) for place, it in zip(choices, values, strict=True)}
        found.append(_key_range(schema, known | fixed))
    return _in_order(schema, found) if len(found) > 1 else found


def _key_range(schema: TableSchema, known: Mapping[int, Interval]) -> Interval:
    """Return one range of keys, lower ≤ key < upper in the order of the table. Leading columns with
    one value count, and the first one that has more. Later columns do not count. The value of a
    computed column follows from its inputs."""
    intervals = dict(known)
    for it in schema.computed:
        derived = it.interval(known)
        both = intersection(known[it.place], derived)
        is_empty = None not in both and both[0] > both[1]
        intervals[it.place] = derived if is_empty else both
    columns = schema.key_columns
    prefix: list[Any] = []
    for place, column in enumerate(columns):
        least, greatest = intervals[place]
        if least is not None and least == greatest:
            prefix.append(least)
            continue
        first, last = (greatest, least) if column.is_descending else (least, greatest)
        lower = tuple(prefix) if first is None else (*prefix, first)
        upper = _end(prefix if last is None else [*prefix, last], columns)
        return lower or None, upper
    return tuple(prefix), _end(prefix, columns)


def _in_order(schema: TableSchema, ranges: Sequence[Interval]) -> list[Interval]:
    """Return the ranges in the order of their keys. Ranges that overlap become one."""

    def first(it: Interval) -> Key:
        return KEY_MIN if it[0] is None else schema.stored.bound_of(it[0])

    def end(it: Interval) -> Key:
        return KEY_MAX if it[1] is None else schema.stored.bound_of(it[1])

    found: list[Interval] = []
    for it in sorted(ranges, key=first):
        if found and first(it) < end(found[-1]):
            found[-1] = (found[-1][0], max(it, found[-1], key=end)[1])
        else:
            found.append(it)
    return found


def _end(values: Sequence[Any], columns: Sequence[Column]) -> tuple[Any, ...] | None:
    """Return leading values after all keys that begin with `values`, with few keys between. None:
    there are no such values."""
    for place in reversed(range(len(values))):
        value, column = values[place], columns[place]
        if column.is_descending:  # null comes after the smallest value
            return (*values[:place], predecessor(value, column.logical))
        following = successor(value, column.logical)
        if following is not None:
            return (*values[:place], following)
    return None


def _interval(tree: Expression, column: str, column_kind: LogicalType, depth: int = 0) -> Interval:
    """Return the interval of the column's values for which the condition is true."""
    if depth > NESTING_DEPTH_MAX:
        return _EVERYTHING
    kind, children = tree.get("type"), tree.get("children", [])
    if kind in ("CONJUNCTION_AND", "CONJUNCTION_OR"):
        others = [it for it in children if kind == "CONJUNCTION_AND" or not _is_null(it, column)]
        parts = [_interval(it, column, column_kind, depth + 1) for it in others]
        if kind == "CONJUNCTION_AND":
            return intersection(*parts)
        hull = reduce(_hull, parts) if parts else _EVERYTHING
        return hull if len(others) == len(children) else (None, hull[1])  # null is below all values
    if kind == "COMPARE_IN" and _is_values(children[0], column, column_kind):
        values = [constant(child, column_kind) for child in children[1:]]
        return _EVERYTHING if None in values or not values else (min(values), max(values))
    if kind == "COMPARE_BETWEEN" and _is_values(tree["input"], column, column_kind):
        return constant(tree["lower"], column_kind), constant(tree["upper"], column_kind)
    if kind in _MIRRORED:
        return _compared(kind, tree["left"], tree["right"], column, column_kind)
    return _EVERYTHING


def _compared(
    kind: str, left: Expression, right: Expression, column: str, column_kind: LogicalType
) -> Interval:
    if _is_values(right, column, column_kind):
        kind, left, right = _MIRRORED[kind], right, left
    if not _is_values(left, column, column_kind):
        return _EVERYTHING
    value = constant(right, column_kind)
    if kind == "COMPARE_EQUAL":
        return value, value
    return (None, value) if kind.startswith("COMPARE_LESS") else (value, None)


def points(
    tree: Expression, column: str, column_kind: LogicalType, depth: int = 0
) -> frozenset[Any] | None:
    """Return the column's values for which the condition is true, if they are few. None: the
    column may have others."""
    if depth > NESTING_DEPTH_MAX:
        return None
    kind, children = tree.get("type"), tree.get("children", [])
    if kind in ("CONJUNCTION_AND", "CONJUNCTION_OR"):
        parts = [points(it, column, column_kind, depth + 1) for it in children]
        if kind == "CONJUNCTION_AND":
            return fewest(parts)
        return None if None in parts else _few(frozenset().union(*[it for it in parts if it]))
    if kind == "COMPARE_IN" and _is_values(children[0], column, column_kind):
        if len(children) > RANGES_MAX + 1:
            return None
        values = [constant(child, column_kind) for child in children[1:]]
        return None if None in values else frozenset(values)
    if kind == "COMPARE_EQUAL":
        value, _ = _compared(kind, tree["left"], tree["right"], column, column_kind)
        return None if value is None else frozenset([value])
    return None


def fewest(parts: Iterable[frozenset[Any] | None]) -> frozenset[Any] | None:
    """Return the smallest of these sets, of which the column has a value each."""
    return min([it for it in parts if it is not None], key=len, default=None)


def _few(values: frozenset[Any]) -> frozenset[Any] | None:
    return values if len(values) <= RANGES_MAX else None


def intersection(*intervals: Interval) -> Interval:
    """Return the interval that lies in all of them."""
    least = [it for it, _ in intervals if it is not None]
    greatest = [it for _, it in intervals if it is not None]
    return max(least, default=None), min(greatest, default=None)


def _hull(one: Interval, other: Interval) -> Interval:
    least, greatest = (one[0], other[0]), (one[1], other[1])
    return (
        None if None in least else min(least),
        None if None in greatest else max(greatest),
    )


# ---- columns


def _is_null(tree: Expression, column: str) -> bool:
    return tree.get("type") == "OPERATOR_IS_NULL" and _is_column(tree["children"][0], column)


def _is_values(tree: Expression, column: str, column_kind: LogicalType) -> bool:
    """Return whether this has the values of the column. DuckDB compares integers in a type that
    holds all values of both sides."""
    if tree.get("type") == "OPERATOR_CAST":
        wider = _WIDER.get("short" if column_kind.form == "integer" else column_kind.name, ())
        tree = tree["child"] if tree["type_expr"]["type_name"] in wider else tree
    return _is_column(tree, column)


def _is_column(tree: Expression, column: str) -> bool:
    return tree.get("type") == "COLUMN_REF" and tree["column_names"] == [column]
