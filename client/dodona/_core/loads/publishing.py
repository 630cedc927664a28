"""Make the staged rows of a load visible: seal each tablet, then commit one transaction. Pure.

Owns: the check that the tables have not changed since the load began, the seals, and the
transaction that publishes. This transaction attaches the chunks in all tablets, and writes the
records of the load and of its application. All these changes become visible at one commit
timestamp, or never.

Invariants:
- The record durably says `publishing` before the first cell is asked to prepare.
- The lock on the record decides between a process that publishes and one that aborts.
"""

from collections.abc import Iterable
from functools import partial
from typing import Final, NamedTuple

from dodona._core.loads.records import (
    APPLICATIONS,
    LOADS,
    LoadPhase,
    Records,
)
from dodona._core.loads.tables import refusal_of, route_of
from dodona._core.loads.ticket import LoadTable, LoadTicket, Published
from dodona._core.loads.versions import check_versions, insert_versions, read_versions
from dodona._core.protocol.attempts import Again, may_read_again, repeated
from dodona._core.protocol.context import Context, error_of, expect
from dodona._core.protocol.retry import Patience
from dodona._core.protocol.routing import TableRoute, is_soon_served
from dodona._core.protocol.steps import Calls, Post, Protocol
from dodona._core.writing.senders import StagedBatch
from dodona._core.writing.transaction import TransactionBuffer
from dodona_wire.cores.fault_points import FaultPoint
from dodona_wire.errors import (
    CommitOutcomeUnknown,
    ConcurrentAppend,
    ConcurrentDeleteDelete,
    ConcurrentDeleteRead,
    ConcurrentTransaction,
    DodonaError,
    DuplicateKey,
    InvalidRequest,
    LoadEnded,
    MetadataChanged,
    ProtocolChanged,
    RowNotFound,
    SnapshotTooOld,
    TableNotMounted,
    TransactionAborted,
    TransactionConflict,
    Unavailable,
)
from dodona_wire.messages.base import Failure
from dodona_wire.messages.data import Publication
from dodona_wire.messages.loads import LoadSealed, SealLoad
from dodona_wire.types import Key, TabletId

FINAL: Final = (
    ConcurrentTransaction,
    ConcurrentAppend,
    ConcurrentDeleteDelete,
    ConcurrentDeleteRead,
    LoadEnded,
    MetadataChanged,
    ProtocolChanged,
)
"""Errors that no other attempt with the staged rows could avoid."""
REFUSALS: Final = (
    TransactionAborted,
    SnapshotTooOld,
    TableNotMounted,
    DuplicateKey,
    RowNotFound,
    Unavailable,
)
"""Errors that refuse a load, and that may also appear if the load was published before."""


class Sealed(NamedTuple):
    """What a tablet will show of the load, after all checks."""

    seal: LoadSealed
    publication: Publication


Seals = dict[str, dict[TabletId, Sealed]]
Erased = tuple[tuple[Key, Key], ...]


class Publisher:
    """The publisher of one load. Each process that publishes makes its own."""

    def __init__(
        self,
        context: Context,
        records: Records,
        ticket: LoadTicket,
        staged: Iterable[StagedBatch],
    ) -> None:
        self._context = context
        self._records = records
        self._session = records.session
        self._ticket = ticket
        self._chunks: dict[str, dict[TabletId, list[int]]] = {}
        for batch in staged:
            if ticket.table(batch.path) is None:
                raise InvalidRequest(
                    "A staged batch belongs to another load. Pass the batches of this load only.",
                    load=ticket.load,
                    table=batch.path,
                )
            chunks = self._chunks.setdefault(batch.path, {}).setdefault(batch.tablet, [])
            if batch.chunk not in chunks:
                chunks.append(batch.chunk)

    def publish(self) -> Protocol[Published]:
        """Publish the load. Raises the refusal of a seal or of the transaction: the load is then
        unchanged. Raises CommitOutcomeUnknown if the outcome can't be found out yet."""
        try:
            return (yield from self._seal_and_commit())
        except ConcurrentTransaction:
            raise
        except REFUSALS as error:  # if it was published before, nothing is staged
            published = yield from self._find_after(error)
            if published is None:
                raise
            return published

    def _find_after(self, error: DodonaError) -> Protocol[Published | None]:
        """Return how the load was published, or None if it was not. After None, no earlier attempt
        can publish it any more, since this writes the record again: the earlier transaction began
        before that. Raises CommitOutcomeUnknown if neither can be found out."""
        try:
            published = yield from self._find_published()
            if published is None:
                allowed: tuple[LoadPhase, ...] = ("running", "publishing")
                before = yield from self._records.move(self._ticket.load, allowed, "publishing", {})
                if before is None:
                    published = yield from self._find_published()
            return published
        except (LoadEnded, ConcurrentTransaction):
            raise
        except DodonaError:
            load = self._ticket.load
            text = (
                f"The outcome of load {load} is unknown. Publish or abort the load again. "
                f"Reason: {error}"
            )
            raise CommitOutcomeUnknown(text, load=load) from error

    def _seal_and_commit(self) -> Protocol[Published]:
        seals = yield from self._seal_all()
        before = yield from self._records.move(
            self._ticket.load, ("running", "publishing"), "publishing", _counts(seals)
        )
        if before is None:
            return (yield from self._look_up())
        return (yield from self._commit_patiently(seals))

    # The transaction

    def _commit_patiently(self, seals: Seals) -> Protocol[Published]:
        """Commit as `_commit` does, again while an attempt changes nothing. After SnapshotTooOld,
        the tablets are sealed again."""
        valid: Seals | None = seals

        def attempt(_: Patience | None) -> Protocol[Published | Again]:
            nonlocal valid
            if valid is None:
                valid = yield from self._seal_all()
            try:
                return (yield from self._commit(valid))
            except FINAL:
                raise
            except (SnapshotTooOld, TransactionAborted, Unavailable) as error:
                if isinstance(error, SnapshotTooOld):
                    valid = None
                return Again(error)

        return repeated(self._context, attempt, self._context.patience())

    def _commit(self, seals: Seals) -> Protocol[Published]:
        """Commit the transaction that publishes. After TransactionAborted or an error of its kind,
        nothing has changed."""
        session, ticket = self._session, self._ticket
        transaction = yield from session.begin()
        state = yield from self._records.state_in(transaction, ticket.load)
        if state != "publishing":
            return (yield from self._look_up())
        recorded = yield from self._record_version(transaction)
        if recorded is not None:
            return recorded
        counts = _counts(seals)
        row = {"load": ticket.load, "state": "published", **counts}
        yield from session.insert_rows(transaction, LOADS, [row], update=True)
        for path, sealed in seals.items():
            transaction.publications[path] = {
                tablet: it.publication for tablet, it in sealed.items()
            }
        try:
            timestamp = yield from session.commit(transaction)
        except TransactionConflict as error:
            if error.attributes.get("table") == APPLICATIONS:
                raise self._concurrent(error) from error
            raise
        assert timestamp is not None
        if self._context.fault_at(FaultPoint.LOSE_PUBLISHED):
            raise CommitOutcomeUnknown("The answer was lost.", transaction=transaction.id)
        return Published(timestamp, counts["row_count"], counts["deleted_count"])

    def _record_version(self, transaction: TransactionBuffer) -> Protocol[Published | None]:
        """Put the record of the application's version into the transaction. Return how the version
        was published if it was published before."""
        if self._ticket.application is None:
            return None
        known = yield from read_versions(self._records, self._ticket, transaction)
        published = check_versions(self._ticket, known)
        if published is None:
            yield from insert_versions(self._records, self._ticket, transaction)
        return published

    def _concurrent(self, error: DodonaError) -> ConcurrentTransaction:
        ticket = self._ticket
        return ConcurrentTransaction(
            f"Another load of application {ticket.application!r} is being published. "
            "Run this load again.",
            application=ticket.application,
            version=ticket.version,
            **error.attributes,
        )

    def _look_up(self) -> Protocol[Published]:
        """Return how the load was published before. Raises LoadEnded if it was aborted."""
        published = yield from self._find_published()
        if published is None:
            raise LoadEnded("The load was aborted.", load=self._ticket.load)
        return published

    def _find_published(self) -> Protocol[Published | None]:
        """Return how the load was published, or skipped since another load has its version. None:
        neither has happened yet. Raises LoadEnded if the load was aborted. Raises
        ConcurrentTransaction if another load has published the version meanwhile."""
        ticket, load = self._ticket, self._ticket.load
        published = yield from self._records.find_published(load)
        if published is not None:
            return published
        if ticket.application is None:
            yield from self._check_not_aborted()
            return None
        known = yield from read_versions(self._records, ticket)
        if any(it.load == load for it in known.values()):  # by an attempt that has just ended
            return (yield from self._records.find_published(load))
        try:
            published = check_versions(ticket, known)
        except ConcurrentTransaction:
            yield from self._check_not_aborted()
            raise
        if published is None:
            yield from self._check_not_aborted()
        return published

    def _check_not_aborted(self) -> Protocol[None]:
        """Check that the load was not aborted. Raises LoadEnded."""
        load = self._ticket.load
        record = yield from self._records.find(load)
        if record is not None and record.state == "aborted":
            raise LoadEnded(f"The load was aborted: {record.reason}", load=load)

    # Seals

    def _seal_all(self) -> Protocol[Seals]:
        """Seal every tablet that has rows of the load, or loses rows by it."""
        context, patience = self._context, self._context.patience()
        seals: Seals = {}
        for table in self._ticket.tables:
            seals[table.path] = yield from repeated(context, partial(self._seal, table), patience)
        return seals

    def _seal(
        self, table: LoadTable, _: Patience | None
    ) -> Protocol[dict[TabletId, Sealed] | Again]:
        route = yield from route_of(self._context, table)
        try:
            return (yield from self._seal_table(table, route))
        except Unavailable as error:
            return Again(error, (route,), is_write=True)

    def _seal_table(self, table: LoadTable, route: TableRoute) -> Protocol[dict[TabletId, Sealed]]:
        ticket, chunks = self._ticket, self._chunks.get(table.path, {})
        questions = []
        for tablet in route.tablets:
            erased = _erased(table, route, tablet.tablet)
            if tablet.tablet not in chunks and not erased:
                continue
            if not is_soon_served(tablet, is_write=True):
                raise refusal_of(route, tablet)
            if tablet.cell is None:
                raise Unavailable("No cell has the tablet yet. Repeat the call.", table=table.path)
            request = SealLoad(
                tablet.tablet,
                tablet.revision,
                ticket.load,
                tuple(chunks.get(tablet.tablet, ())),
                ticket.mode,
                ticket.since,
                erased,
            )
            questions.append((tablet.cell, request))
        at_once = self._context.limits.requests_in_flight_max
        sealed: dict[TabletId, Sealed] = {}
        for start in range(0, len(questions), at_once):
            some = questions[start : start + at_once]
            replies = yield Calls(tuple(some))
            if self._context.fault_at(FaultPoint.SEAL_TWICE):
                yield Post(tuple(some))
            for (_, request), reply in zip(some, replies, strict=True):
                if self._context.fault_at(FaultPoint.LOSE_SEALED):
                    raise Unavailable("The answer was lost.")
                if isinstance(reply, Failure):
                    raise _refusal(reply)
                seal = expect(reply, LoadSealed)
                publication = Publication(ticket.load, seal.chunks, request.erased)
                sealed[request.tablet] = Sealed(seal, publication)
        return sealed


def _erased(table: LoadTable, route: TableRoute, tablet: TabletId) -> Erased:
    """Return the part of the erased ranges that is in the tablet."""
    return tuple(
        [
            (lower, upper)
            for erased in table.erased
            for known, lower, upper in route.parts_of(*erased)
            if known.tablet == tablet
        ]
    )


def _refusal(failure: Failure) -> DodonaError:
    error = error_of(failure)
    if may_read_again(failure) and not isinstance(error, Unavailable):
        return Unavailable(error.message, **error.attributes)
    return error


def _counts(seals: Seals) -> dict[str, int]:
    sealed = [it.seal for by_tablet in seals.values() for it in by_tablet.values()]
    return {
        "row_count": sum([it.row_count for it in sealed]),
        "deleted_count": sum([it.deleted_count for it in sealed]),
    }
