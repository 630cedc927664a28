"""A bulk load as a workload uses it, with everything written into the history.

Owns: the answers that a load's owner got, the names under which its publication was sent, and
whether every cell has acknowledged its end. A published load is a transaction of the history, from
its start timestamp to its commit timestamp. One that overwrites begins where it commits. In one
without atomicity, each row is written for itself.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, NamedTuple, TypeVar, cast

from dodona._core.loads.leases import Lease
from dodona._core.loads.ticket import LoadTicket, Published, Range
from dodona._core.protocol.steps import Calls, Post, Protocol, Step
from dodona._core.writing.senders import StagedBatch
from dodona_loadtest.histories.history import (
    Acquisition,
    Conflict,
    Erased,
    Presence,
    StampedWrite,
    Transaction,
    Write,
)
from dodona_loadtest.histories.recorder import Recorder
from dodona_loadtest.histories.shape import Row, TableShape
from dodona_wire.errors import CommitOutcomeUnknown, DodonaError, TransactionConflict
from dodona_wire.messages.data import CommitOne, Prepare, bare_commit
from dodona_wire.messages.families import Reply
from dodona_wire.messages.loads import CloseLoad, LoadHeld
from dodona_wire.types import KEY_MAX, KEY_MIN, LoadMode, Timestamp

PRESENCES: Final[dict[LoadMode, Presence]] = {
    "upsert": "any",
    "insert": "absent",
    "update": "there",
    "delete": "any",
}

Result = TypeVar("Result")


class Brought(NamedTuple):
    """Rows that are staged in a table, in the form of the history."""

    batches: list[StagedBatch]
    writes: list[Write]
    keys: list[str]
    """The keys in the form of refusals."""


class LoadPlan(NamedTuple):
    """The plan of a load."""

    tables: tuple[TableShape, ...]
    mode: LoadMode = "upsert"
    overwrites: bool = False
    start_timestamp: int | None = None
    erased: Mapping[str, Range] = MappingProxyType({})
    application: str | None = None
    version: int | None = None
    lease_ms: int = 2_000


class LoadAttempt:
    """One load. Its session is the owner, or continues it after the owner's end."""

    def __init__(self, db: Recorder, plan: LoadPlan, ticket: LoadTicket, asked_us: int) -> None:
        self.plan = plan
        self.ticket = ticket
        self.is_closed = False
        """Whether every cell has answered that the load is over there."""
        self._db = db
        record = self.record = db.history.begin(db.name, asked_us)
        record.load, record.presence = ticket.load, PRESENCES[plan.mode]
        record.is_fresh = plan.start_timestamp is None
        record.is_blind = plan.overwrites
        if record.is_blind or not record.is_fresh:
            taken = Acquisition(db.name, asked_us, db.now_us, ticket.load, ticket.load)
            db.history.acquisitions.append(taken)
        if not record.is_blind:
            record.start, record.begun_us = ticket.stamp, db.now_us
        for table in plan.tables:
            if table.path in plan.erased:
                lower, upper = plan.erased[table.path]
                bounds = table.bound(lower, KEY_MIN), table.bound(upper, KEY_MAX)
                record.erased.append(Erased(table.path, *bounds))
        self.is_unsure = False
        """Whether it may have been published, as far as its owner knows."""

    def stage(
        self, table: TableShape, rows: Sequence[Row], partition: int, attempt: int
    ) -> Protocol[Brought]:
        """Stage rows. None of them counts before `publish` gets them."""
        mode = self.plan.mode
        loads = self._db.session.loads
        data = _batch(rows)
        batches = yield from loads.stage(self.ticket, table.path, data, partition, attempt)
        if mode == "delete":
            writes = [Write(table.row_key(row), None) for row in rows]
        else:
            writes = [table.write(row, is_update=mode == "update") for row in rows]
        return Brought(batches, writes, [table.key_text(row) for row in rows])

    def publish(self, brought: Iterable[Brought]) -> Protocol[bool]:
        """Publish the rows. Return whether the owner's answer says that all are visible. Raises the
        error of a refusal."""
        db, record, chosen = self._db, self.record, list(brought)
        if record.commit_us is None:
            record.writes.extend(write for it in chosen for write in it.writes)
            record.commit_us = db.now_us
            if db.on_commit is not None:
                db.on_commit()
        publishing = db.session.loads.publish(self.ticket, [it for b in chosen for it in b.batches])
        try:
            published = yield from self.watch(publishing)
        except CommitOutcomeUnknown as error:
            db.history.unknown_count += not self.is_unsure
            self.is_unsure = True
            record.status, record.error = "info", error.message
            raise
        except DodonaError as error:
            self._fail(error, {key: it.row for b in chosen for key, it in _pairs(b)})
            raise
        self._end(published)
        return record.status == "ok"

    def abort(self) -> Protocol[None]:
        """Abort the load, unless it was published."""
        aborting = self._db.session.loads.abort(self.ticket, "it was aborted")
        published = yield from self.watch(aborting)
        self.is_unsure = False
        if self.record.commit_us is not None or published is not None:
            self._end(published)

    def renew(self) -> Protocol[None]:
        lease, leases = Lease(self.ticket), self._db.session.leases
        leases.add(lease)
        lease.due_us = 0
        return leases.do_due()

    def watch(self, protocol: Protocol[Result]) -> Protocol[Result]:
        """Note the requests that leave, and which cells have closed the load."""
        try:
            step = next(protocol)
            while True:
                _note_names(self.record, step)
                replies = yield step
                self.is_closed |= _closes(step, replies)
                step = protocol.send(replies)
        except StopIteration as end:
            return cast("Result", end.value)
        finally:
            protocol.close()

    def _end(self, published: Published | None) -> None:
        record = self.record
        record.end_us = self._db.now_us
        if published is None or published.is_skipped:
            record.status = "fail"
            record.error = "it was aborted" if published is None else "its version was published"
        else:
            record.status, record.commit = "ok", published.timestamp
            self._db.last_commit = published.timestamp

    def _fail(self, error: DodonaError, rows_by_key: dict[str, Any]) -> None:
        """Note an error. The load is as it was, unless it may have been published before."""
        record = self.record
        record.error = f"{error.kind}: {error.message}"
        if not self.is_unsure:
            record.status, record.end_us = "fail", self._db.now_us
        row = rows_by_key.get(repr(error.attributes.get("key")))
        if isinstance(error, TransactionConflict) and row is not None:
            said = error.attributes.get
            record.conflict = Conflict((row,), said("winner"), said("winner_timestamp"))


def begin_load(db: Recorder, plan: LoadPlan, owner: str = "") -> Protocol[LoadAttempt]:
    """Begin a load. Raises DodonaError."""
    asked_us = db.now_us
    ticket = yield from db.session.loads.begin(
        [table.path for table in plan.tables],
        mode=plan.mode,
        overwrites=plan.overwrites,
        start_timestamp=None if plan.start_timestamp is None else Timestamp(plan.start_timestamp),
        erased=plan.erased,
        application=plan.application,
        version=plan.version,
        lease_ms=plan.lease_ms,
        owner=owner,
    )
    return LoadAttempt(db, plan, ticket, asked_us)


class StampedLoad:
    """A load without atomicity. Each of its rows is written only once, and by no other session."""

    def __init__(self, db: Recorder, table: TableShape, ticket: LoadTicket) -> None:
        self.ticket = ticket
        self.is_closed = False
        """Whether every cell has answered that the load is over there."""
        self._db = db
        self._table = table

    def write(self, rows: Sequence[Row]) -> Protocol[None]:
        """Write rows. Raises the error that the caller gets."""
        db = self._db
        number = len(db.history.stamped_writes)
        writes = [self._table.write(row, is_update=False) for row in rows]
        records = [StampedWrite(db.name, number, it, True, db.now_us) for it in writes]
        db.history.stamped_writes.extend(records)
        if db.on_commit is not None:
            db.on_commit()
        loads = db.session.loads
        try:
            yield from loads.write(self.ticket, self._table.path, _batch(rows), "sync")
        except DodonaError as error:
            for record in records:  # the error names no tablet, so all rows are unsure
                record.status, record.error = "info", f"{error.kind}: {error.message}"
            raise
        else:
            for record in records:
                record.status = "ok"
        finally:
            for record in records:
                record.answered_us = db.now_us

    def finish(self) -> Protocol[None]:
        """Take no more rows."""
        finishing = self._db.session.loads.finish(self.ticket)
        try:
            step = next(finishing)
            while True:
                replies = yield step
                self.is_closed |= _closes(step, replies)
                step = finishing.send(replies)
        except StopIteration:
            return
        finally:
            finishing.close()


def _closes(step: Step, replies: Sequence[Reply]) -> bool:
    """Return whether this step shows that the load is over. One step asks all cells together."""
    bodies = [body for _, body in step.requests] if isinstance(step, Calls) else []
    if not bodies or not all(isinstance(body, CloseLoad) for body in bodies):
        return False
    return all(isinstance(it, LoadHeld) and it.lease_ms == 0 for it in replies)


def begin_stamped_load(db: Recorder, table: TableShape, lease_ms: int) -> Protocol[StampedLoad]:
    """Begin such a load. Raises DodonaError."""
    begin = db.session.loads.begin
    ticket = yield from begin([table.path], atomicity="none", lease_ms=lease_ms)
    return StampedLoad(db, table, ticket)


def vanish(protocol: Protocol[Any], steps_left: Callable[[Step], bool]) -> Protocol[bool]:
    """Run a protocol until `steps_left` says no to a step. The requests of that step are sent, but
    their answers are not awaited. Return whether it ended before. Raises what it raises."""
    try:
        step = next(protocol)
        while steps_left(step):
            step = protocol.send((yield step))
        if isinstance(step, Calls | Post):
            yield Post(step.requests)
        return False
    except StopIteration:
        return True
    finally:
        protocol.close()


def _note_names(record: Transaction, step: Step) -> None:
    for _, sent in step.requests if isinstance(step, Calls | Post) else ():
        body = bare_commit(sent)
        if not isinstance(body, CommitOne | Prepare) or body.transaction in record.names:
            continue
        if any(part.publication is not None for part in body.modifications):
            record.names.append(body.transaction)


def _batch(rows: Sequence[Row]) -> Any:
    import pyarrow

    return pyarrow.RecordBatch.from_pylist([dict(row) for row in rows])


def _pairs(brought: Brought) -> list[tuple[str, Write]]:
    return list(zip(brought.keys, brought.writes, strict=True))
