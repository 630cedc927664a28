"""Tables in the terms of users: what a client returns of a table, and its tablets. Pure.

Owns: the translation between the terms of users and of the catalog: key values and encoded keys.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec

from dodona._core.protocol.arguments import check_prefix
from dodona_wire.errors import InvalidRequest
from dodona_wire.messages.catalog import Table, Tablet
from dodona_wire.rows.keys import encode_key
from dodona_wire.rows.schema import Column, TableSchema
from dodona_wire.shown import shown
from dodona_wire.types import Atomicity, CellId, Key, Revision, TableSettings, TabletId

TABLETS_MAX: Final = 10_000
COLUMNS_SHOWN_MAX: Final = 20
_EVEN_BYTES: Final = 2
"""Bytes of a pivot key of type string, if all values are divided evenly."""
_EVEN_ENDS: Final = 1 << 8 * _EVEN_BYTES
_ENDS: Final = {"int64": (-(1 << 63), (1 << 63) - 1), "uint64": (0, (1 << 64) - 1)}


class TabletInfo(msgspec.Struct, frozen=True):
    """One tablet. `pivot_key` has the leading key values at which it begins. It ends where the next
    tablet begins. `state` is unmounted, mounted (reads and writes) or frozen (reads only). While
    the state changes, it is mounting, frozen_mounting, freezing, unfreezing or unmounting."""

    tablet: TabletId
    pivot_key: tuple[Any, ...]
    state: str
    cell: CellId | None
    revision: Revision


class TableInfo(msgspec.Struct, frozen=True):
    """A table as the master knew it at one time. `settings` are the last ones that were set. A
    tablet uses those of its last mount or remount."""

    path: str
    schema: TableSchema
    atomicity: Atomicity
    tablets: tuple[TabletInfo, ...]
    settings: TableSettings = TableSettings()

    @property
    def is_mounted(self) -> bool:
        """Whether all tablets accept reads and writes."""
        return all(tablet.state == "mounted" for tablet in self.tablets)

    def __repr__(self) -> str:
        columns = [column_words(it) for it in self.schema.columns[:COLUMNS_SHOWN_MAX]]
        more = len(self.schema.columns) - len(columns)
        if more > 0:
            columns.append(f"and {more:,} more columns")
        settings = [] if self.settings == TableSettings() else [repr(self.settings)]
        return f"<TableInfo {self.path}: {', '.join([*columns, *self._states(), *settings])}>"

    def _states(self) -> list[str]:
        """Return what there is to say of the table besides its columns."""
        counts = Counter(tablet.state for tablet in self.tablets)
        states = [f"{count:,} {state}" for state, count in counts.items()]
        return [f"atomicity {self.atomicity}", f"tablets: {', '.join(states)}"]

    def _repr_html_(self) -> str:
        from dodona_wire.html_tables import html_table

        names = ["name", "type", "sort_order", "required", "lock", "aggregate"]
        if self.schema.computed:
            names.append("expression")
        rows = [[getattr(it, name) for name in names] for it in self.schema.columns]
        notes = [self.path, *self._states()]
        return html_table(names, rows, notes, what="column", is_plain=True)


def column_words(column: Column) -> str:
    """Return what a schema says of a column, in the short form of the command line."""
    words: list[str] = [column.name, column.type]
    if column.sort_order is not None:
        words.append("descending" if column.is_descending else "key")
    if column.required:
        words.append("required")
    if column.aggregate is not None:
        words.append(column.aggregate)
    if column.lock is not None:
        words.append(f"lock={column.lock}")
    if column.expression is not None:
        words.append(f"expression={column.expression}")
    return ":".join(words)


def describe(table: Table) -> TableInfo:
    """Return a table of the catalog in the terms of users."""
    schema = TableSchema(table.columns)
    tablets = tuple([_describe_tablet(schema, it) for it in table.tablets])
    return TableInfo(table.path, schema, table.atomicity, tablets, table.settings)


def _describe_tablet(schema: TableSchema, tablet: Tablet) -> TabletInfo:
    return TabletInfo(
        tablet.tablet,
        schema.decode_prefix(tablet.pivot_key),
        tablet.state,
        tablet.cell,
        tablet.revision,
    )


def pivots_of(
    schema: TableSchema, pivot_keys: Sequence[Sequence[Any]] | None, tablet_count: int | None
) -> tuple[Key, ...]:
    """Return the first keys of all tablets. Without arguments there is one tablet."""
    if pivot_keys is not None and tablet_count is not None:
        raise InvalidRequest("Pass either pivot_keys or tablet_count, not both.")
    if pivot_keys is not None:
        if isinstance(pivot_keys, str | bytes | Mapping) or not isinstance(pivot_keys, Iterable):
            raise InvalidRequest(
                f"pivot_keys are a list of pivot keys, not {type(pivot_keys).__name__}"
            )
        pivots = [check_prefix(it, "a pivot key") for it in pivot_keys]
        return tuple([schema.bound_of(it) for it in pivots])
    if tablet_count is None:
        return (Key(b""),)
    if type(tablet_count) is not int or not 0 < tablet_count <= TABLETS_MAX:
        raise InvalidRequest(f"a table has 1 to {TABLETS_MAX} tablets, not {shown(tablet_count)}")
    return _even_pivots(schema.key_columns[0], tablet_count)


def _even_pivots(column: Column, count: int) -> tuple[Key, ...]:
    """Divide all values of the first key column evenly. This suits hashes and other even keys."""
    kind = column.logical
    if column.type == "string" or kind.form == "uuid":
        size = kind.size_bytes or _EVEN_BYTES
        values: list[Any] = [
            it.to_bytes(_EVEN_BYTES, "big").ljust(size, b"\0")
            for it in _even_numbers(column, 0, _EVEN_ENDS - 1, count)
        ]
    elif kind.stored in ("int64", "uint64"):
        lowest, highest = _ENDS[kind.stored] if kind.is_stored else (kind.lowest, kind.highest)
        if count > highest - lowest + 1:
            raise InvalidRequest(f"{column.type} has fewer values than {count} tablets.")
        values = _even_numbers(column, lowest, highest, count)
    else:
        raise InvalidRequest(
            f"tablet_count can't divide a first key column of type {column.type}. Pass pivot_keys.",
            column=column.name,
        )
    return (Key(b""), *(encode_key([value], [column.key_type]) for value in values))


def _even_numbers(column: Column, lowest: int, highest: int, count: int) -> list[int]:
    """Return the first numbers of all tablets but the first, in the order of the column."""
    steps = [at * (highest - lowest + 1) // count for at in range(1, count)]
    return [highest - it if column.is_descending else lowest + it for it in steps]
