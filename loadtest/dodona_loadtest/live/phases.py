"""What comes before and after the sessions of a run: tables, last writes, and the final dump.

Owns: the protocols of these phases, which any driver may run. A step that must work once all faults
are over is repeated until a deadline. After the deadline it raises NotLive.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, Final

from dodona._core.protocol.steps import Pause, Protocol
from dodona._core.reading.versions import VersionedRow
from dodona_loadtest.histories.history import History, RowKey, Version, frozen
from dodona_loadtest.histories.recorder import Recorder
from dodona_loadtest.histories.shape import TableShape
from dodona_loadtest.workloads import Workload
from dodona_wire.errors import DodonaError, NodeExists
from dodona_wire.rows.schema import TableSchema
from dodona_wire.types import Key

KEYS_PER_DUMP: Final = 20
"""Keys of one lookup: each may have thousands of versions."""
KEYS_PER_LOCK: Final = 10_000
"""Keys locked in one transaction: a tenth of the limit."""
PAUSE_MS: Final = 50
ANSWER_MS_MAX: Final = 10_000


class NotLive(Exception):
    """A step that had to work once all faults were over did not."""


class TablesInTheWay(Exception):
    """The workload's tables are there already, and may belong to a user."""


class Phases:
    """The protocols of one run. `db` is a session of its own."""

    def __init__(self, db: Recorder, workload: Workload) -> None:
        self._db = db
        self._workload = workload
        self._catalog = db.session.catalog

    def set_up(self, wait_s_max: float) -> Protocol[None]:
        """Make, mount and fill the tables. Raises TablesInTheWay, NotLive."""
        for table in self._workload.all_tables:
            try:
                yield from self._catalog.create_table(
                    table.path,
                    table.columns,
                    table.atomicity,
                    table.pivot_keys,
                    mount=True,
                    attributes=table.attributes,
                )
            except NodeExists as error:
                raise TablesInTheWay(f"{table.path} is there already: remove it first") from error
        yield from self._until_true(lambda: self._workload.set_up(self._db), "set-up", wait_s_max)

    def node_urls(self) -> Protocol[list[str]]:
        """Return the addresses of the nodes that serve the tables."""
        cells = set()
        for table in self._workload.tables:
            info = yield from self._catalog.get_table(table.path)
            cells |= {tablet.cell for tablet in info.tablets}
        cluster = yield from self._catalog.get_cluster(ANSWER_MS_MAX)
        return [cell.address for cell in cluster.cells if cell.cell in cells]

    def touch(self, wait_s_max: float) -> Protocol[None]:
        """Check that every tablet takes writes, and that a whole snapshot can be read."""
        yield from self._until_true(
            lambda: self._workload.touch(self._db), "writing to all tablets", wait_s_max
        )
        yield from self.look(wait_s_max)

    def look(self, wait_s_max: float) -> Protocol[None]:
        """Check that a whole snapshot can be read."""
        yield from self._until_true(self._audit, "reading a whole snapshot", wait_s_max)

    def take_all_locks(self, rows: Iterable[RowKey], wait_s_max: float) -> Protocol[None]:
        """Check that no transaction holds a lock on any of these rows: new transactions lock them
        all. Each locks at most `KEYS_PER_LOCK` of them. They write nothing, so that they leave no
        version. Tables without atomicity have no locks. The time limit is for all together."""
        began_us = self._db.now_us
        for table, keys in self._keys_to_lock(rows):
            lock = partial(self._lock, table, keys)
            yield from self._until_true(lock, "locking all rows", wait_s_max, began_us)

    def dump(self, rows: Iterable[RowKey]) -> Protocol[list[Version]]:
        """Return all versions of these rows, and of rows that scans find, by the public API."""
        session = self._db.session
        versions: list[Version] = []
        keys_by_table = self._keys_by_table(rows)
        for table in self._workload.tables:
            found = yield from session.select(table.path)
            keys = keys_by_table[table.path] | {table.row_key(row).key: None for row in found}
            schema = TableSchema(table.columns)
            for batch in _batches(sorted(keys), KEYS_PER_DUMP):
                users_keys = [_key_of(schema, key) for key in batch]
                histories = yield from session.lookup_versions(table.path, users_keys)
                versions += [it for history in histories for it in _versions(table, history)]
        return versions

    def remove(self) -> Protocol[None]:
        for table in self._workload.all_tables:
            yield from self._catalog.remove_table(table.path)

    def _audit(self) -> Protocol[bool]:
        yield from self._workload.conclude(self._db)
        return True

    def _keys_to_lock(self, rows: Iterable[RowKey]) -> Iterator[tuple[TableShape, Sequence[bytes]]]:
        keys_by_table = self._keys_by_table(rows)
        for table in self._workload.tables:
            if table.atomicity != "none":
                for keys in _batches(list(keys_by_table[table.path]), KEYS_PER_LOCK):
                    yield table, keys

    def _lock(self, table: TableShape, keys: Sequence[bytes]) -> Protocol[bool]:
        session, schema = self._db.session, TableSchema(table.columns)
        buffer = yield from session.begin()
        users_keys = [_key_of(schema, key) for key in keys]
        yield from session.lock_rows(buffer, table.path, users_keys, lock_type="exclusive")
        yield from session.commit(buffer)
        return True

    def _keys_by_table(self, rows: Iterable[RowKey]) -> dict[str, dict[bytes, None]]:
        keys: dict[str, dict[bytes, None]] = {table.path: {} for table in self._workload.tables}
        for row in rows:
            keys[row.table][row.key] = None
        return keys

    def _until_true(
        self,
        attempt: Callable[[], Protocol[bool]],
        what: str,
        wait_s_max: float,
        began_us: int | None = None,
    ) -> Protocol[None]:
        began_us = self._db.now_us if began_us is None else began_us
        deadline_us = began_us + int(wait_s_max * 1e6)
        reason = "it was refused"
        while True:
            try:
                if (yield from attempt()):
                    return
            except DodonaError as error:
                reason = str(error)
            if self._db.now_us > deadline_us:
                raise NotLive(f"{what} did not work within {wait_s_max:g} s: {reason}")
            yield Pause(PAUSE_MS)


def rows_written(history: History) -> list[RowKey]:
    """Return every row that a session tried to write, sorted."""
    rows = {write.row for t in history.transactions for write in t.writes}
    rows.update(stamped.write.row for stamped in history.stamped_writes)
    return sorted(rows)


def _batches(keys: list[bytes], count: int) -> Iterator[list[bytes]]:
    for first in range(0, len(keys), count):
        yield keys[first : first + count]


def _key_of(schema: TableSchema, key: bytes) -> dict[str, Any]:
    return dict(zip(schema.key_names, schema.decode_key(Key(key)), strict=True))


def _versions(table: TableShape, history: VersionedRow) -> Iterator[Version]:
    """Return a row's versions in the form of the checkers: what each commit left in it."""
    row = table.row_key(history.key)
    columns: dict[int, list[tuple[str, Any]]] = {at: [] for at in history.write_timestamps}
    for name, values in sorted(history.values.items()):
        for value in values:
            columns[value.timestamp].append((name, frozen(value.value)))
    for timestamp, written in columns.items():
        yield Version(row, timestamp, tuple(written))
    for timestamp in history.delete_timestamps:
        yield Version(row, timestamp, None)
