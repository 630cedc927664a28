"""Make the columns of a query's result columns of Arrow that have the same values. Pure.

Owns: what a result has for types of DuckDB that Arrow lacks, or that DuckDB would change on the way
to Arrow. The same holds inside lists, structs and maps.

- An INTERVAL is a duration in microseconds, as in reads. DuckDB returns nanoseconds, which wrap
  around beyond 292 years. A month has no fixed length, so an interval with months is refused.
- A UHUGEINT is a decimal of 38 digits. DuckDB returns the greatest ones as negative numbers.
- A BIT and a BIGNUM are text. DuckDB returns the bytes in which it keeps them.
- A time of day with an offset is text. Inside another value it is refused.

DuckDB converts the values, and Arrow gives the numbers of intervals their type. pyarrow is imported
on first use.
"""

from collections.abc import Callable, Iterator
from typing import Any, Final

from dodona_wire.errors import InvalidRequest

_INTERVAL: Final = "interval"
_TIME_WITH_OFFSET: Final = "time with time zone"
_CASTS: Final = {
    "uhugeint": "decimal(38, 0)",
    "bit": "varchar",
    "bignum": "varchar",
    _TIME_WITH_OFFSET: "varchar",
}
"""The types to which DuckDB casts values of other types."""
_CHANGED: Final = frozenset({_INTERVAL, *_CASTS})
_HOLDERS: Final = frozenset({"list", "array", "struct", "tuple", "map", "union"})


class ResultColumns:
    """The columns of one result. `relation` returns all rows of the given relation, with columns
    that Arrow has."""

    def __init__(self, relation: Any) -> None:
        """Raises InvalidRequest for a column that a query must cast."""
        self._kinds = relation.types
        changed = [not _CHANGED.isdisjoint(_leaves(it)) for it in self._kinds]
        self._is_any_interval = any(_INTERVAL in _leaves(it) for it in self._kinds)
        self.relation = relation
        if any(changed):
            columns = zip(relation.columns, self._kinds, changed, strict=True)
            selected = [
                f"{_Converter(name).top(kind, f'#{place}') if its else f'#{place}'} as "
                f"{quoted(name)}"
                for place, (name, kind, its) in enumerate(columns, start=1)
            ]
            self.relation = relation.project(", ".join(selected))

    def schema(self, schema: Any) -> Any:
        """Return the `pyarrow.Schema` of the result; `schema` is that of the relation's data."""
        import pyarrow

        if not self._is_any_interval:
            return schema
        pairs = zip(schema, self._kinds, strict=True)
        return pyarrow.schema([it.with_type(_arrow_type(it.type, kind)) for it, kind in pairs])

    def batch(self, schema: Any, batch: Any) -> Any:
        """Return a record batch of the relation's data in the schema of the result."""
        import pyarrow

        if not self._is_any_interval:
            return batch
        pairs = zip(batch.columns, schema.types, strict=True)
        arrays = [it if it.type.equals(kind) else it.cast(kind) for it, kind in pairs]
        return pyarrow.RecordBatch.from_arrays(arrays, schema=schema)


def quoted(name: str) -> str:
    """Return a name in SQL."""
    return '"' + name.replace('"', '""') + '"'


def _text(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"


def _leaves(kind: Any) -> frozenset[str]:
    """Return the types inside a type of DuckDB that have no types inside."""
    if kind.id not in _HOLDERS:
        return frozenset({kind.id})
    return frozenset().union(*[_leaves(it) for _, it in _children(kind)])


def _children(kind: Any) -> Iterator[tuple[str, Any]]:
    """Yield the names and types inside. Those of an array have its size, too."""
    return ((name, it) for name, it in kind.children if hasattr(it, "id"))


class _Converter:
    """The SQL of the values of one column."""

    def __init__(self, column: str) -> None:
        self._column = column
        self._lambda_count = 0

    def top(self, kind: Any, sql: str) -> str:
        """Return the column's values. Raises InvalidRequest."""
        if kind.id in _HOLDERS and _TIME_WITH_OFFSET in _leaves(kind):
            raise self._refusal(kind, "whose offsets would be lost")
        return self._value(kind, sql)

    def _value(self, kind: Any, sql: str) -> str:
        if _CHANGED.isdisjoint(_leaves(kind)):
            return sql
        if kind.id == _INTERVAL:
            return self._microseconds(sql)
        if kind.id in _CASTS:
            return f"cast({sql} as {_CASTS[kind.id]})"
        if kind.id == "union":
            raise self._refusal(kind, "which has no form in Arrow with the same values")
        children = [*_children(kind)]
        if kind.id in ("list", "array"):
            return self._each(sql, lambda item: self._value(children[0][1], item))
        if kind.id in ("struct", "tuple"):
            return self._struct(children, sql)
        (_, key), (_, value) = children
        entries = self._each(
            f"map_entries({sql})",
            lambda it: (
                f"struct_pack(key := {self._value(key, f'{it}.key')}, "
                f"value := {self._value(value, f'{it}.value')})"
            ),
        )
        return f"map_from_entries({entries})"

    def _each(self, sql: str, convert: Callable[[str], str]) -> str:
        self._lambda_count += 1
        item = f"item{self._lambda_count}"
        return f"list_transform({sql}, lambda {item}: {convert(item)})"

    def _struct(self, children: list[tuple[str, Any]], sql: str) -> str:
        if not children[0][0]:  # a tuple
            parts = [
                self._value(kind, f"struct_extract({sql}, {place})")
                for place, (_, kind) in enumerate(children, start=1)
            ]
            made = f"row({', '.join(parts)})"
        else:
            named = [
                (name, self._value(kind, f"struct_extract({sql}, {_text(name)})"))
                for name, kind in children
            ]
            parts = [f"{quoted(name)} := {part}" for name, part in named]
            made = f"struct_pack({', '.join(parts)})"
        return f"case when {sql} is null then null else {made} end"

    def _microseconds(self, sql: str) -> str:
        text = (
            f"Column {self._column!r} has an interval with months, which have no fixed length. "
            "Cast the column to text."
        )
        return (
            f"case when datepart('month', {sql}) <> 0 or datepart('year', {sql}) <> 0 "
            f"then cast(error({_text(text)}) as bigint) else epoch_us({sql}) end"
        )

    def _refusal(self, kind: Any, reason: str) -> InvalidRequest:
        text = f"Column {self._column!r} is {kind}, {reason}. Cast the column to text."
        return InvalidRequest(text)


def _arrow_type(given: Any, kind: Any) -> Any:
    """Return the Arrow type of a column of this type of DuckDB, whose data are `given`."""
    import pyarrow

    if _INTERVAL not in _leaves(kind):
        return given
    if kind.id == _INTERVAL:
        return pyarrow.duration("us")
    children = [it for _, it in _children(kind)]
    if kind.id in ("struct", "tuple"):
        pairs = zip(given, children, strict=True)
        return pyarrow.struct([it.with_type(_arrow_type(it.type, its)) for it, its in pairs])
    if kind.id == "map":
        key, value = children
        item = given.item_field.with_type(_arrow_type(given.item_type, value))
        return pyarrow.map_(_arrow_type(given.key_type, key), item)
    return pyarrow.list_(given.value_field.with_type(_arrow_type(given.value_type, children[0])))
