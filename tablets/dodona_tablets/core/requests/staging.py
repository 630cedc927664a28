"""Stage bulk loads: take their batches, hold their snapshots, and seal them for publication.

Owns:
- the requests about loads, but for the publication, which is a part of a transaction (see
  `publishing`);
- the leases of loads;
- the snapshot that the tablets of an open load keep for it.

Invariants:
- A batch is staged only when it is durable, as a chunk of its own that the log names.
- A batch of a load that is not open is refused at any time. So no batch of a finished job can
  arrive later.
- A load stays open until each transaction that publishes it has an outcome.
"""

from contextlib import suppress
from functools import partial
from typing import Any, Final, NamedTuple

from dodona_tablets.core.cell.cell import Cell
from dodona_tablets.core.cell.outbox import Outbox
from dodona_tablets.core.commit.admission import (
    atomicity_mismatch,
    check_lease,
    check_room,
)
from dodona_tablets.core.records import ChunkStaged, LoadClosed, LoadOpened, StagedChunk
from dodona_tablets.core.requests.loading import check_batches
from dodona_tablets.core.requests.nonatomic import check_stamp
from dodona_tablets.core.rows.chunks.info import AttachedChunk
from dodona_tablets.core.rows.chunks.jobs import BatchJob, Built, SealJob
from dodona_tablets.core.rows.chunks.zones import views_met
from dodona_tablets.core.rows.store import DynamicStore
from dodona_tablets.core.tablet.loads import BatchPlace, Load, Seal
from dodona_tablets.core.tablet.publications import PublicationRows
from dodona_tablets.core.tablet.snapshot import too_old
from dodona_tablets.core.tablet.tablet import Tablet
from dodona_tablets.core.tablet.transaction import State
from dodona_tablets.core.upkeep.caching import Caching, Need
from dodona_tablets.core.upkeep.flushing import Flushing
from dodona_wire.cores.effects import RemoveChunks, RunJob
from dodona_wire.cores.fault_points import FaultPoint
from dodona_wire.errors import DodonaError, InvalidRequest, Overloaded, ProtocolChanged
from dodona_wire.messages.base import Failure, failure_of
from dodona_wire.messages.families import Reply
from dodona_wire.messages.loads import (
    CloseLoad,
    LoadHeld,
    LoadSealed,
    OpenLoad,
    PeekLoad,
    RenewLoad,
    SealLoad,
    StageArrow,
    Staged,
)
from dodona_wire.types import MAX_TIMESTAMP, MIN_TIMESTAMP, LoadId, ReaderId, TabletId, Timestamp

HOLD_PERIOD_MS: Final = 5_000
"""How often the cell renews the snapshots of open loads."""
DELETIONS: Final = -1
"""The partition of the chunks that a seal makes."""


class StageToken(NamedTuple):
    """A batch on its way into a staged chunk."""

    load: LoadId
    tablet: TabletId
    part: BatchPlace
    number: int


class SealToken(NamedTuple):
    """A seal in progress of one load in one tablet."""

    load: LoadId
    tablet: TabletId
    seal: Seal
    number: int
    stores: tuple[DynamicStore, ...]
    """The stores that the seal reads."""

    def is_of(self, request: SealLoad) -> bool:
        """Return whether the request asks for this seal again. An answer may take longer than a
        call waits."""
        asked = request.chunks, request.erased, request.mode, request.since
        return (self.load, self.tablet) == (request.load, request.tablet) and self.seal[:4] == asked


Token = StageToken | SealToken


class Staging:
    """The handler of requests about loads. A cell has one instance."""

    def __init__(self, cell: Cell, outbox: Outbox, caching: Caching, flushing: Flushing) -> None:
        self._cell = cell
        self._outbox = outbox
        self._caching = caching
        self._flushing = flushing
        self._under_way: dict[Token, list[Any]] = {}
        """The routes that wait for each batch and each seal."""
        self._needs: dict[SealToken, Need] = {}
        """The chunks that each running seal holds on this machine."""
        self._hold_at_us = 0

    # Requests

    def open(self, route: Any, request: OpenLoad) -> None:
        self._answer(route, self._open, request)

    def renew(self, route: Any, request: RenewLoad) -> None:
        self._answer(route, self._renew, request)

    def peek(self, route: Any, request: PeekLoad) -> None:
        load = self._cell.loads.open.get(request.load)
        left_us = 0 if load is None else load.until_us - self._cell.now.instant_us
        self._outbox.reply(route, LoadHeld(max(left_us, 0) // 1000))

    def close(self, route: Any, request: CloseLoad) -> None:
        """Close a load. To close it again, or to close an unknown load, is harmless. A load that is
        being published is not over yet, because only the log outlasts a restart."""
        load = self._cell.loads.open.get(request.load)
        if load is not None and self._cell.fault_at(FaultPoint.CLOSE_LOAD_LATE):
            load.is_closing = True
        elif load is not None:
            self._close(load, "it was closed")
        is_over = request.load not in self._cell.loads.open
        self._outbox.reply(route, LoadHeld(0 if is_over else HOLD_PERIOD_MS))

    def stage(self, route: Any, request: StageArrow) -> None:
        self._answer(route, self._stage, request)

    def seal(self, route: Any, request: SealLoad) -> None:
        self._answer(route, self._seal, request)

    def _answer(self, route: Any, handler: Any, request: Any) -> None:
        try:
            handler(route, request)
        except DodonaError as error:
            self._outbox.reply(route, failure_of(error))

    # Leases

    def _open(self, route: Any, request: OpenLoad) -> None:
        loads = self._cell.loads
        known = loads.open.get(request.load)
        if known is None:
            self._check_opening(request)
            record = LoadOpened(
                request.load, request.atomicity, request.lease_ms, request.since, request.tablets
            )
            self._hold(record)
            self._outbox.append(record)
            loads.apply_open(record)
        self._renew(route, RenewLoad(request.load))

    def _check_opening(self, request: OpenLoad) -> None:
        cell, loads = self._cell, self._cell.loads
        if not loads.may_open(request.load):
            raise loads.ended_error(request.load)
        if not cell.may_be_issued(Timestamp(request.load)):
            text = "The load id must be a timestamp from the oracle."
            raise InvalidRequest(text, load=request.load)
        if request.lease_ms <= 0 or not MIN_TIMESTAMP <= request.since <= MAX_TIMESTAMP:
            text = "The load needs a positive lease and a valid start timestamp."
            raise InvalidRequest(text, load=request.load)
        check_lease("load", request.lease_ms, cell.limits.load_lease_ms_max)
        if request.atomicity == "none":
            check_stamp(cell, request.since)
        cell.room.check_log()
        if len(loads.open) >= cell.limits.loads_max:
            raise Overloaded(
                f"Too many loads are open in this cell: the limit is {cell.limits.loads_max}. "
                "Close loads.",
                cell=cell.id,
            )
        if request.atomicity == "none":
            return  # such a load is not compared with older rows
        for number in request.tablets:
            tablet = cell.tablets.get(number)
            if tablet is not None and request.since < tablet.retained_timestamp:
                raise too_old(tablet, request.since)

    def _renew(self, route: Any, request: RenewLoad) -> None:
        load = self._cell.loads.get(request.load)
        load.renew(self._cell.now.instant_us)
        self._outbox.reply(route, LoadHeld(load.opened.lease_ms))

    def tick(self) -> None:
        """Close each load whose lease has ended, or that waits to close. Hold the snapshots of the
        others."""
        cell, now_us = self._cell, self._cell.now.instant_us
        for load in list(cell.loads.open.values()):
            if load.is_closing:
                self._close(load, "it was closed")
            elif load.until_us <= now_us or cell.fault_at(FaultPoint.EXPIRE_LOAD_EARLY):
                self._close(load, f"it was not renewed for {load.opened.lease_ms} ms")
        if now_us >= self._hold_at_us:
            self._hold_at_us = now_us + HOLD_PERIOD_MS * 1000
            for load in cell.loads.open.values():
                with suppress(Overloaded):  # the load may then be too old for a seal
                    self._hold(load.opened)

    def _hold(self, opened: LoadOpened) -> None:
        """Keep what the tablets of a load show at its start, to find conflicts and deletions.
        Raises Overloaded."""
        cell = self._cell
        tablets = [it for it in opened.tablets if it in cell.tablets]
        lease_ms = 2 * HOLD_PERIOD_MS
        reader = ReaderId(opened.load)
        cell.readers.hold(reader, opened.since, tablets, lease_ms, cell.now.instant_us)

    def _close(self, load: Load, reason: str) -> None:
        cell, number = self._cell, load.opened.load
        load.is_closing = True
        if self._is_being_published(number):
            return
        self._outbox.append(LoadClosed(number, reason))
        cell.loads.apply_close(number, reason)
        cell.readers.let_go(ReaderId(number))
        cell.chunks.note_released()

    def _is_being_published(self, load: LoadId) -> bool:
        publications = [
            part.publication
            for alive in self._cell.transactions.values()
            for part in alive.modifications
            if alive.state is not State.COMMITTED
        ]
        return any(it is not None and it.load == load for it in publications)

    # Batches

    def _stage(self, route: Any, request: StageArrow) -> None:
        cell = self._cell
        load = cell.loads.take_batch(request.load, "full", cell.now.instant_us)
        if request.part[0] < 0:  # for deletions: else two chunks have one name
            text = "The partition number is negative. Pass 0 or more."
            raise InvalidRequest(text, load=request.load)
        tablet = self._tablet(request)
        known = load.find(request.tablet, request.part)
        if known is not None:
            self._outbox.reply(route, _staged(known))
            return
        for token, routes in self._under_way.items():
            if token[:3] == (request.load, request.tablet, request.part):
                routes.append(route)
                return
        self._check_staging(tablet)
        number = cell.chunks.take_number()
        assignment = tablet.assignment
        bounds = assignment.lower, assignment.upper
        job = BatchJob(
            number, tablet.schema, request.batch, *bounds, kind=request.kind, is_exact=True
        )
        token = StageToken(request.load, request.tablet, request.part, number)
        self._register(tablet, token, len(request.batch))
        self._under_way[token] = [route]
        self._outbox.send(RunJob(token, job))

    def _tablet(self, request: StageArrow | SealLoad) -> Tablet:
        cell = self._cell
        tablet = cell.tablet(request.tablet, request.revision)
        if not tablet.is_atomic:
            raise atomicity_mismatch("full", "none", tablet)
        tablet.check_open()
        cell.room.check_log()
        check_batches(cell, len(request.batch) if isinstance(request, StageArrow) else 0)
        return tablet

    def _check_staging(self, tablet: Tablet) -> None:
        check_room(self._cell, tablet)
        self._check_count(self._cell.limits.staged_chunks_max)

    def _check_count(self, count_max: int) -> None:
        cell = self._cell
        staged_count = sum([len(it.staged) for it in cell.loads.open.values()])
        if staged_count >= count_max:
            raise Overloaded(
                f"Too many batches are staged in this cell: the limit is {count_max}. "
                "Publish or close loads.",
                cell=cell.id,
            )

    def _register(self, tablet: Tablet, token: Token, size_bytes: int) -> None:
        self._cell.chunks.begin_batch(token.number, size_bytes)
        tablet.active_count += 1

    # Seals

    def _seal(self, route: Any, request: SealLoad) -> None:
        cell = self._cell
        load = cell.loads.take_batch(request.load, "full", cell.now.instant_us)
        tablet = self._tablet(request)
        _check_staged(load, tablet, request.chunks)
        for token, routes in self._under_way.items():
            if isinstance(token, SealToken) and token.is_of(request):
                routes.append(route)
                return
        if request.since < tablet.retained_timestamp:
            raise too_old(tablet, request.since)
        if request.erased:  # each seal makes a chunk of deletions: as many more are allowed
            self._check_count(2 * cell.limits.staged_chunks_max)
        if tablet.active.rows:
            self._flushing.rotate(tablet)
        stores = tablet.stores
        seal = Seal(
            request.chunks,
            request.erased,
            request.mode,
            request.since,
            stores.active.number,
            tablet.publication_count,
        )
        chunks = [load.staged[number].chunk for number in request.chunks]
        rows = PublicationRows(tablet.schema, chunks, (), cell.chunks.open)
        job = SealJob(
            cell.chunks.take_number(),
            tablet.schema,
            rows.views,
            stores.layers,
            request.mode,
            request.since,
            request.erased,
        )
        pinned = tuple([it for it in stores.layers if isinstance(it, DynamicStore)])
        for store in pinned:
            store.pin_count += 1
        token = SealToken(request.load, request.tablet, seal, job.number, pinned)
        self._register(tablet, token, 0)
        self._under_way[token] = [route]
        views = views_met(job.staged, job.existing, job.mode, job.since, job.erased)
        run, give_up = partial(self._run_seal, token, job), partial(self.handle, token)
        self._caching.prepare([it.chunk for it in views], run, give_up)

    def _run_seal(self, token: SealToken, job: SealJob, need: Need) -> None:
        """Run a seal, whose chunks are here now."""
        self._needs[token] = need
        self._outbox.send(RunJob(token, job))

    # Results

    def handle(self, token: Token, result: Built | Failure | None) -> None:
        """Finish a job: a batch is staged or not, a load is sealed in a tablet or can't be."""
        cell = self._cell
        cell.chunks.end_batch(token.number)
        tablet = cell.tablets[token.tablet]
        tablet.active_count -= 1
        if isinstance(token, SealToken):
            for store in token.stores:
                store.pin_count -= 1
            if (need := self._needs.pop(token, None)) is not None:
                self._caching.end(need)
        answer = self._finished(tablet, token, result)
        for route in self._under_way.pop(token):
            self._outbox.reply(route, answer)

    def _finished(self, tablet: Tablet, token: Token, result: Built | Failure | None) -> Reply:
        if isinstance(result, Failure):
            result.attributes.setdefault("table", tablet.assignment.path)
            return result
        try:
            load = self._cell.loads.get(token.load)
            if isinstance(token, SealToken):
                _check_staged(load, tablet, token.seal.chunks)
        except DodonaError as error:  # the load is over, or was published meanwhile
            if result is not None:
                self._outbox.send(RemoveChunks((token.number,)))
            return failure_of(error)
        if result is not None:
            self._add(load, token, result)
        return self._answer_of(load, token, result)

    def _add(self, load: Load, token: Token, built: Built) -> None:
        cell = self._cell
        cell.chunks.add(token.number, built.chunk)
        part = token.part if isinstance(token, StageToken) else (DELETIONS, 0, 0, token.number)
        chunk = AttachedChunk(built.info, MAX_TIMESTAMP)
        staged = StagedChunk(token.tablet, part, chunk)
        self._outbox.append(ChunkStaged(load.opened.load, staged))
        load.add(staged)

    def _answer_of(self, load: Load, token: Token, built: Built | None) -> Staged | LoadSealed:
        if isinstance(token, StageToken):
            return Staged(0, 0) if built is None else Staged(token.number, built.info.row_count)
        seal, deleted_count = token.seal, 0
        row_count = sum([load.staged[it].chunk.info.row_count for it in seal.chunks])
        if built is not None:
            seal = seal._replace(chunks=(*seal.chunks, token.number))
            deleted_count = built.info.row_count
        load.seals[token.tablet] = seal
        return LoadSealed(seal.chunks, row_count, deleted_count)


def _check_staged(load: Load, tablet: Tablet, chunks: tuple[int, ...]) -> None:
    """Raise ProtocolChanged unless the load still has these chunks for the tablet."""
    assignment = tablet.assignment
    for number in chunks:
        staged = load.staged.get(number)
        if staged is None or staged.tablet != assignment.tablet:
            text = (
                "The staged rows are gone: the table was unmounted during the load, or the rows "
                "were published. Look at the table."
            )
            raise ProtocolChanged(text, load=load.opened.load, table=assignment.path)


def _staged(known: StagedChunk) -> Staged:
    return Staged(known.chunk.info.number, known.chunk.info.row_count)
