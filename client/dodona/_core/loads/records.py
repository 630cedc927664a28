"""The system tables that remember loads. Pure.

Owns: the paths and schemas of these tables, their creation, and the changes of a record's state.
Each change is a transaction that reads the record first. So if one process publishes a load and
another aborts it, only one of them succeeds. The transaction that makes the rows of a load visible
also writes the record that says so.
States: running → publishing → published → finished, or running, publishing → aborted. `publishing`
is the intent. Only the transaction decides what follows.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, Literal, TypeVar

import msgspec

from dodona._core.loads.ticket import Published
from dodona._core.protocol.attempts import Again, repeated
from dodona._core.protocol.context import Context
from dodona._core.protocol.retry import Patience
from dodona._core.protocol.steps import Protocol
from dodona._core.row_session import RowSession
from dodona._core.writing.transaction import TransactionBuffer
from dodona_wire.errors import (
    InvalidRequest,
    NodeExists,
    NodeNotFound,
    SnapshotTooOld,
    TableNotMounted,
    TransactionAborted,
    Unavailable,
)
from dodona_wire.rows.schema import TableSchema
from dodona_wire.types import NO_LOAD, LoadId, Timestamp

LOADS: Final = "//sys/loads"
APPLICATIONS: Final = "//sys/load_applications"
RECOVERIES: Final = "//sys/load_recoveries"

KEPT_MS: Final = 30 * 24 * 3600 * 1000
"""How long a record stays after its last change."""

Result = TypeVar("Result")

LoadPhase = Literal["running", "publishing", "published", "finished", "aborted"]
UNFINISHED: Final = ("running", "publishing", "published")


def _key(name: str, kind: str) -> dict[str, Any]:
    return {"name": name, "type": kind, "sort_order": "ascending"}


def _values(**kinds: str) -> list[dict[str, Any]]:
    return [{"name": name, "type": kind} for name, kind in kinds.items()]


SCHEMAS: Final[dict[str, list[dict[str, Any]]]] = {
    LOADS: [
        _key("load", "uint64"),
        *_values(
            state="utf8",
            tables="any",
            mode="utf8",
            owner="utf8",
            lease_ms="int64",
            application="utf8",
            version="int64",
            row_count="int64",
            deleted_count="int64",
            commit_timestamp="uint64",
            reason="utf8",
        ),
    ],
    APPLICATIONS: [
        _key("application", "utf8"),
        _key("path", "utf8"),
        *_values(version="int64", load="uint64", query="utf8", table="uint64"),
    ],
    RECOVERIES: [
        _key("load", "uint64"),
        *_values(outcome="utf8", state_before="utf8", owner="utf8", tables="any", reason="utf8"),
    ],
}

ATTRIBUTES: Final[dict[str, dict[str, Any]]] = {
    LOADS: {"min_data_versions": 0, "max_data_versions": 1, "max_data_ttl": KEPT_MS},
    APPLICATIONS: {"max_data_versions": 1},
    RECOVERIES: {"min_data_versions": 0, "max_data_versions": 1, "max_data_ttl": KEPT_MS},
}


class LoadRecord(msgspec.Struct, frozen=True):
    """What the system tables remember of a load, for thirty days after its end."""

    load: LoadId
    """The id of the load, which is also its start timestamp."""
    state: LoadPhase
    tables: tuple[str, ...]
    mode: str
    owner: str
    lease_ms: int
    """How long cells keep the load without a renewal."""
    application: str | None
    version: int | None
    row_count: int | None
    """Set when the load is published."""
    deleted_count: int | None
    commit_timestamp: Timestamp | None
    """Set when the load is finished."""
    reason: str | None
    """Why the load was aborted."""


class LoadRecovery(msgspec.Struct, frozen=True):
    """How another process ended a load whose owner had stopped."""

    load: LoadId
    outcome: Literal["rolled_forward", "rolled_back"]
    """Rolled forward: the load had been published, and only its cleanup was missing. Rolled back:
    it had not been published."""
    state_before: LoadPhase
    owner: str
    """The process that recovered the load."""
    tables: tuple[str, ...]
    reason: str


class Records:
    """The system tables, read and written by a session."""

    def __init__(self, session: RowSession, context: Context) -> None:
        self.session = session
        self._context = context
        self._are_there = False

    def ensure(self) -> Protocol[None]:
        """Create the tables that are missing. Two processes may try at the same time. Raises
        InvalidRequest, Unavailable and errors of its kind."""
        if self._are_there:
            return
        catalog = self.session.catalog
        for path, schema in SCHEMAS.items():
            try:
                table = yield from catalog.get_table(path)
            except NodeNotFound:
                with suppress(NodeExists):  # another process has just created it
                    yield from catalog.create_table(path, schema, attributes=ATTRIBUTES[path])
                table = yield from catalog.get_table(path)
            check_columns(path, table.schema)
            if not table.is_mounted:
                yield from catalog.mount_table(path)
        self._are_there = True

    # Reading

    def find(self, load: LoadId) -> Protocol[LoadRecord | None]:
        """Return the record of a load, or None."""
        rows = yield from self._lookup(LOADS, {"load": load})
        return _record(rows) if rows is not None else None

    def published_at(self, load: LoadId) -> Protocol[Timestamp]:
        """Return when a load in the state `published` was published: its record was written by that
        commit. The record of a load that is `finished` by now has the timestamp itself."""
        (row,) = yield from self.session.lookup_versions(LOADS, [{"load": load}])
        if row.values["state"][0].value == "finished":
            return Timestamp(row.values["commit_timestamp"][0].value)
        return row.write_timestamps[0]

    def find_published(self, load: LoadId) -> Protocol[Published | None]:
        """Return how a load was published, or None if it was not."""
        record = yield from self.find(load)
        if record is None or record.state not in ("published", "finished"):
            return None
        timestamp = record.commit_timestamp or (yield from self.published_at(load))
        return Published(timestamp, record.row_count or 0, record.deleted_count or 0)

    def list_loads(self, since: LoadId = NO_LOAD) -> Protocol[list[LoadRecord]]:
        """Return all records of loads from the id `since` on, oldest first."""
        rows = yield from self._rows(LOADS, [since])
        return [_record(row) for row in rows]

    def list_recoveries(self) -> Protocol[list[LoadRecovery]]:
        rows = yield from self._rows(RECOVERIES)
        return [
            LoadRecovery(**{**row, "tables": tuple(row["tables"] or ())})  # fields are columns
            for row in rows
        ]

    def _rows(
        self, path: str, lower: Sequence[Any] | None = None
    ) -> Protocol[list[dict[str, Any]]]:
        try:
            rows = yield from self.read(lambda: self.session.select(path, lower))
        except NodeNotFound:  # there never was a load
            return []
        return list(rows)

    def _lookup(self, path: str, key: Mapping[str, Any]) -> Protocol[dict[str, Any] | None]:
        try:
            rows = yield from self.read(lambda: self.session.lookup_rows(path, [key]))
        except NodeNotFound:
            return None
        return rows[0] if rows else None

    def read(self, read: Callable[[], Protocol[Result]]) -> Protocol[Result]:
        """Read. If a table is not mounted, mount it and read again: the process that made the table
        may have ended before the mount."""
        try:
            return (yield from read())
        except TableNotMounted:
            self._are_there = False
            yield from self.ensure()
            return (yield from read())

    # Changing

    def add(self, load: LoadId, fields: Mapping[str, Any]) -> Protocol[None]:
        """Write the first record of a load, as soon as the load is open."""
        row = {"load": load, "state": "running", **fields}
        yield from self.session.write_rows(LOADS, [row], False, "sync")

    def move(
        self,
        load: LoadId,
        allowed: Iterable[LoadPhase],
        state: LoadPhase,
        fields: Mapping[str, Any],
        recovery: Mapping[str, Any] | None = None,
    ) -> Protocol[LoadPhase | None]:
        """Change the state of a load if it is one of those allowed. With `recovery`, also write a
        record of the recovery. Return the state before, or None if nothing was changed. Raises
        Unavailable and errors of its kind."""

        def attempt(_: Patience | None) -> Protocol[LoadPhase | Again | None]:
            try:
                return (yield from self._try_move(load, allowed, state, recovery, fields))
            except (TransactionAborted, SnapshotTooOld, Unavailable) as error:
                return Again(error)

        return (yield from repeated(self._context, attempt, self._context.patience()))

    def _try_move(
        self,
        load: LoadId,
        allowed: Iterable[LoadPhase],
        state: LoadPhase,
        recovery: Mapping[str, Any] | None,
        fields: Mapping[str, Any],
    ) -> Protocol[LoadPhase | None]:
        session = self.session
        transaction = yield from session.begin()
        before = yield from self.state_in(transaction, load)
        if before is None or before not in allowed:
            return None
        row = {"load": load, "state": state, **fields}
        yield from session.insert_rows(transaction, LOADS, [row], update=True)
        if recovery is not None:
            audit = {"load": load, "state_before": before, **recovery}
            yield from session.insert_rows(transaction, RECOVERIES, [audit])
        yield from session.commit(transaction)
        return before

    def state_in(self, transaction: TransactionBuffer, load: LoadId) -> Protocol[LoadPhase | None]:
        """Return the state of a load as the transaction sees it, or None."""
        at = transaction.read_timestamp()
        rows = yield from self.session.lookup_rows(LOADS, [{"load": load}], timestamp=at)
        return rows[0]["state"] if rows else None


def check_columns(path: str, schema: TableSchema) -> None:
    """Raise InvalidRequest if a system table does not have the columns that this release gives
    it."""
    columns = TableSchema.parse(SCHEMAS[path]).columns
    if schema.columns != columns:
        found = ", ".join([it.name for it in schema.columns])
        expected = ", ".join([it.name for it in columns])
        raise InvalidRequest(
            f"A system table has the columns {found}. This release of Dodona reads {expected}. "
            "Move or remove the table.",
            table=path,
        )


def _record(row: Mapping[str, Any]) -> LoadRecord:
    names = LoadRecord.__struct_fields__
    fields = {name: row[name] for name in names}
    return LoadRecord(**{**fields, "tables": tuple(row["tables"] or ())})
