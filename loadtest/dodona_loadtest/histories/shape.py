"""A table as a workload defines it, and its rows in the words of a history.

Owns: the columns, lock groups and keys of a row's write. They follow the users' documents, not the
client's code. Must not import: any core.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import msgspec

from dodona_loadtest.histories.history import Columns, RowKey, Write, frozen, visible
from dodona_wire.rows.columns import MAIN_LOCK, Column
from dodona_wire.rows.keys import encode_key
from dodona_wire.types import Atomicity

Row = Mapping[str, Any]

YEAR_MS: Final = 365 * 86_400_000
KEEP_ALL: Final = {"min_data_ttl": YEAR_MS, "max_data_ttl": YEAR_MS}
"""Settings of a table: the checkers want every version, however long a run lasts."""
FLUSH_MS: Final = 1_500
"""How long a row of a table that removes rows stays in memory: it can go only from a chunk."""


class TableShape(msgspec.Struct, frozen=True):
    """A table as a workload defines it."""

    path: str
    columns: tuple[Column, ...]
    pivot_keys: tuple[tuple[Any, ...], ...]
    atomicity: Atomicity = "full"
    has_shared_writes: bool = False
    ttl_ms: int | None = None
    """The age at which a row goes, its newest version too. None: no version ever goes."""
    compute: Callable[[Row], Row] | None = None
    """Returns the computed key columns of a row, without the client's code. Rows and keys that
    sessions send may leave them out."""

    @property
    def attributes(self) -> dict[str, Any]:
        """The attributes with which it is created."""
        shared = {"enable_shared_write_locks": self.has_shared_writes}
        if self.ttl_ms is None:
            return KEEP_ALL | shared
        return shared | {
            "min_data_ttl": 0,
            "max_data_ttl": self.ttl_ms,
            "min_data_versions": 0,
            "dynamic_store_auto_flush_period": FLUSH_MS,
        }

    @property
    def key_columns(self) -> list[Column]:
        return [column for column in self.columns if column.sort_order is not None]

    @property
    def value_columns(self) -> list[Column]:
        return [column for column in self.columns if column.sort_order is None]

    def whole_key(self, row: Row) -> dict[str, Any]:
        """Return the key of a row with its computed columns, which the row may lack."""
        whole = row if self.compute is None else {**row, **self.compute(row)}
        return {column.name: whole[column.name] for column in self.key_columns}

    def row_key(self, row: Row) -> RowKey:
        values = [*self.whole_key(row).values()]
        key_types = [it.key_type for it in self.key_columns]
        return RowKey(self.path, bytes(encode_key(values, key_types)))

    def key_text(self, row: Row) -> str:
        """Return the key in the form of refusals."""
        return repr(self.whole_key(row))

    def bound(self, values: Sequence[Any] | None, default: bytes) -> bytes:
        if values is None:
            return default
        return bytes(encode_key(values, [column.key_type for column in self.key_columns]))

    def columns_read(self, row: Row | None) -> Columns | None:
        names = [column.name for column in self.value_columns]
        return visible(None if row is None else {name: row.get(name) for name in names})

    def write(
        self, row: Row, *, is_update: bool, is_aggregate: bool = False, is_shared: bool = False
    ) -> Write:
        """Return the write of an insert of this row: an overwrite sets absent columns to null."""
        columns = [it for it in self.value_columns if not is_update or it.name in row]
        by_name = sorted(columns, key=lambda it: it.name)
        values = tuple([(it.name, frozen(row.get(it.name))) for it in by_name])
        added = tuple(sorted(it.name for it in columns if is_aggregate and it.aggregate == "sum"))
        return Write(self.row_key(row), values, self.groups_of(columns), added, is_shared)

    def groups_of(self, columns: Sequence[Column]) -> tuple[int, ...]:
        """Return the lock groups of these columns."""
        return self.groups_named([column.lock or MAIN_LOCK for column in columns])

    def groups_named(self, locks: Sequence[str]) -> tuple[int, ...]:
        names = [MAIN_LOCK, *dict.fromkeys(it.lock for it in self.value_columns if it.lock)]
        return tuple(sorted({names.index(lock) for lock in locks}))
