"""Bugs of bulk loads: what is staged, sealed, published, closed, and recovered."""

from collections.abc import Iterable
from typing import Any

import pytest
from msgspec.structs import replace

from dodona._core.loads.publishing import Publisher, Seals
from dodona._core.loads.records import LoadPhase, Records
from dodona._core.loads.ticket import Published
from dodona._core.protocol.steps import Protocol
from dodona._core.writing.senders import Stager
from dodona.schema import TableSchema
from dodona.types import LoadId, Timestamp
from dodona_tablets.core.cell.cell import Cell
from dodona_tablets.core.commit.taking import take_locks
from dodona_tablets.core.requests.nonatomic import NonAtomicWrites
from dodona_tablets.core.requests.staging import DELETIONS, Staging, Token
from dodona_tablets.core.rows.chunks.info import AttachedChunk
from dodona_tablets.core.rows.chunks.jobs import Built
from dodona_tablets.core.rows.chunks.sealing import sealed
from dodona_tablets.core.rows.chunks.view import ChunkView
from dodona_tablets.core.tablet.loads import CellLoads, Load
from dodona_tablets.core.tablet.publications import Publishing
from dodona_tablets.core.tablet.transaction import Transaction
from dodona_wire.messages.loads import CloseLoad, LoadHeld, SealLoad
from negative.bug import BUSY, CheckedBug, PlantedBug, Where

LOADS = Where("loads", seconds=15, changes=BUSY)
PATIENT = BUSY | {"patience_ms": 2_000, "fault_point_rate": 0.0}
FLUSHED = Where("loads", seconds=15, changes=BUSY | {"fault_point_rate": 1.0})
CRASHES = Where("loads", seconds=30, changes=PATIENT | {"cell_count": 4}, crash_count=30)


# Publication


def publish_without_a_look(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("dodona_tablets.core.tablet.publishing._check_changes", lambda *_: None)


def hold_back_no_reader(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Publishing, "blocks", lambda *_: False)
    patch.setattr(Publishing, "blocker_of_range", lambda *_: None)


def meet_no_load(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("dodona_tablets.core.commit.taking.check_rows", lambda *_: None)


def meet_no_holder(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("dodona_tablets.core.tablet.publishing.check_locks", lambda *_: None)


def share_a_tablet(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("dodona_tablets.core.tablet.publishing._wait_or_lose", lambda *_: None)


def forget_the_lock(patch: pytest.MonkeyPatch) -> None:
    def planted(cell: Cell, transaction: Transaction) -> None:
        take_locks(cell, transaction)
        for part in transaction.modifications:
            cell.tablets[part.tablet].publishing = None

    patch.setattr("dodona_tablets.core.start.replay.take_locks", planted)


def drop_what_is_being_published(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Staging, "_is_being_published", lambda *_: False)


def record_apart(patch: pytest.MonkeyPatch) -> None:
    """First the rows, and then, by another transaction, that they are there."""

    def planted(self: Publisher, seals: Seals) -> Protocol[Published]:
        session, load = self._session, self._ticket.load
        transaction = yield from session.begin()
        if (yield from self._records.state_in(transaction, load)) != "publishing":
            return (yield from self._look_up())
        recorded = yield from self._record_version(transaction)
        if recorded is not None:
            return recorded
        for path, by_tablet in seals.items():
            transaction.publications[path] = {it: at.publication for it, at in by_tablet.items()}
        timestamp = yield from session.commit(transaction)
        yield from self._records.move(load, ("publishing",), "published", {})
        return Published(timestamp or transaction.read_timestamp(), 0)

    patch.setattr(Publisher, "_commit", planted)


def record_no_version(patch: pytest.MonkeyPatch) -> None:
    def planted(*_: Any) -> Protocol[None]:
        return
        yield

    patch.setattr(Publisher, "_record_version", planted)


def tell_of_the_end_only(patch: pytest.MonkeyPatch) -> None:
    def planted(*_: Any) -> Protocol[None]:
        return
        yield

    patch.setattr(Publisher, "_find_after", planted)


# Seals


def publish_losing_attempts(patch: pytest.MonkeyPatch) -> None:
    seal = Staging._seal

    def planted(self: Staging, route: Any, request: SealLoad) -> None:
        load = self._cell.loads.open.get(request.load)
        staged = () if load is None else load.staged.items()
        chunks = [at for at, it in staged if _is_of(it, request)]
        seal(self, route, replace(request, chunks=tuple(chunks)))

    patch.setattr(Staging, "_seal", planted)


def _is_of(staged: Any, request: SealLoad) -> bool:
    return bool(staged.tablet == request.tablet and staged.part[0] != DELETIONS)


def look_at_memory_only(patch: pytest.MonkeyPatch) -> None:
    def planted(schema: TableSchema, staged: Any, existing: Iterable[Any], *rest: Any) -> Any:
        stores = [it for it in existing if not isinstance(it, ChunkView)]
        return sealed(schema, staged, stores, *rest)

    patch.setattr("dodona_tablets.core.rows.chunks.jobs.sealed", planted)


def keep_what_is_erased(patch: pytest.MonkeyPatch) -> None:
    """The deletions are made, and not published."""
    answer = Staging._answer_of

    def planted(self: Staging, load: Load, token: Token, _: Built | None) -> Any:
        return answer(self, load, token, None)

    def is_sealed(token: Token) -> bool:
        return not hasattr(token, "part")

    patch.setattr(
        Staging,
        "_answer_of",
        lambda self, load, token, built: (planted if is_sealed(token) else answer)(
            self, load, token, built
        ),
    )


# Staging and the fence


def show_what_is_staged(patch: pytest.MonkeyPatch) -> None:
    add = Staging._add

    def planted(self: Staging, load: Load, token: Token, built: Built) -> None:
        add(self, load, token, built)
        shown = AttachedChunk(built.info, self._cell.latest)
        self._cell.tablets[token.tablet].stores.attach(shown, built.chunk)

    patch.setattr(Staging, "_add", planted)


def name_all_calls_alike(patch: pytest.MonkeyPatch) -> None:
    make: Any = Stager.__init__

    def planted(self: Stager, *given: Any) -> None:
        path, load, kind, task, _, fault_at = given
        make(self, path, load, kind, task, Timestamp(0), fault_at)

    patch.setattr(Stager, "__init__", planted)


def stay_open(patch: pytest.MonkeyPatch) -> None:
    def planted(self: Staging, route: Any, _: CloseLoad) -> None:
        self._outbox.reply(route, LoadHeld(0))

    patch.setattr(Staging, "close", planted)


def open_again(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(CellLoads, "may_open", lambda *_: True)


def take_rows_of_any_load(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(NonAtomicWrites, "_is_of_load", lambda *_: True)


# Recovery


def give_up_what_is_published(patch: pytest.MonkeyPatch) -> None:
    move = Records.move

    def planted(
        self: Records, load: LoadId, allowed: Iterable[LoadPhase], state: LoadPhase, *rest: Any
    ) -> Protocol[LoadPhase | None]:
        more: tuple[LoadPhase, ...] = ("published",) if state == "aborted" else ()
        return (yield from move(self, load, (*allowed, *more), state, *rest))

    patch.setattr(Records, "move", planted)


def recover_in_silence(patch: pytest.MonkeyPatch) -> None:
    move = Records.move

    def planted(
        self: Records,
        load: LoadId,
        allowed: Iterable[LoadPhase],
        state: LoadPhase,
        fields: Any,
        _: Any = None,
    ) -> Protocol[LoadPhase | None]:
        return (yield from move(self, load, allowed, state, fields))

    patch.setattr(Records, "move", planted)


BUGS: tuple[PlantedBug | CheckedBug, ...] = (
    PlantedBug(
        None,
        "a load is published without a look at what changed since its seal",
        publish_without_a_look,
        ("NOCONFLICT",),
        LOADS,
    ),
    PlantedBug(
        None,
        "the publication of a load holds back no reader",
        hold_back_no_reader,
        ("EXT", "INVARIANT", "LATEST"),
        LOADS,
    ),
    PlantedBug(
        None,
        "ordinary transactions do not meet a load",
        meet_no_load,
        ("NOCONFLICT",),
        LOADS,
    ),
    PlantedBug(
        None,
        "the publication of a load ignores transactions that hold its rows",
        meet_no_holder,
        ("NOCONFLICT", "RWLOCK"),
        LOADS,
    ),
    PlantedBug(
        None,
        "two loads are published in one tablet at a time",
        share_a_tablet,
        ("NOCONFLICT", "EXT", "INVARIANT", "LOAD"),
        LOADS,
    ),
    PlantedBug(
        None,
        "a restart forgets the lock of a publication that is prepared",
        forget_the_lock,
        ("NOCONFLICT", "EXT", "INVARIANT", "LATEST"),
        CRASHES,
    ),
    PlantedBug(
        None,
        "a load that is being published is dropped when its lease ends",
        drop_what_is_being_published,
        ("CRASH", "ATOMICITY", "DURABILITY"),
        LOADS,
    ),
    PlantedBug(
        None,
        "a load's record is written by another transaction than its rows",
        record_apart,
        ("INVARIANT",),
        LOADS,
    ),
    PlantedBug(
        None,
        "an application's version is not recorded with the load's rows",
        record_no_version,
        ("INVARIANT",),
        LOADS,
    ),
    PlantedBug(
        None,
        "batches of losing attempts are published, too",
        publish_losing_attempts,
        ("GHOST",),
        LOADS,
    ),
    PlantedBug(
        None,
        "a seal looks at what is in memory only",
        look_at_memory_only,
        ("NOCONFLICT", "LOAD"),
        FLUSHED,
    ),
    PlantedBug(
        None,
        "rows stay in a range that a load erased",
        keep_what_is_erased,
        ("LOAD",),
        LOADS,
    ),
    PlantedBug(
        None,
        "what a load has staged is seen",
        show_what_is_staged,
        ("GHOST", "EXT", "INVARIANT", "CRASH"),
        LOADS,
    ),
    PlantedBug(
        None,
        "the batches of two calls have one name",
        name_all_calls_alike,
        ("ATOMICITY", "DURABILITY"),
        LOADS,
    ),
    PlantedBug(
        None,
        "a load that is called closed takes batches",
        stay_open,
        ("INVARIANT",),
        LOADS,
    ),
    PlantedBug(
        None,
        "a load that is over can be opened again",
        open_again,
        ("INVARIANT",),
        Where("loads", seconds=30, changes=BUSY, network={"repeat_rate": 0.5, "slow_rate": 0.1}),
    ),
    PlantedBug(
        None,
        "rows without atomicity are taken of any load",
        take_rows_of_any_load,
        ("INVARIANT",),
        LOADS,
    ),
    PlantedBug(
        None,
        "recovery gives up a load that was published",
        give_up_what_is_published,
        ("INVARIANT",),
        LOADS,
    ),
    PlantedBug(
        None,
        "no record says which loads were recovered",
        recover_in_silence,
        ("INVARIANT",),
        LOADS,
    ),
)
