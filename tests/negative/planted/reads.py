"""Items 15 to 22: what a read may see of a commit that is under way.

Owns also the bugs of choosing a commit timestamp: they show in reads.
"""

from collections.abc import Iterable
from typing import Any

import pytest

from dodona.types import MAX_TIMESTAMP, SYNC_LAST_COMMITTED, CellId, Key, Timestamp, TransactionId
from dodona_tablets.core.cell.cell import Cell
from dodona_tablets.core.commit.participant import Participant
from dodona_tablets.core.node import NodeCore
from dodona_tablets.core.requests.reads import Reads
from dodona_tablets.core.tablet.locks import blocking_reader
from dodona_tablets.core.tablet.scans import scan
from dodona_tablets.core.tablet.snapshot import Read, blocker_of_keys
from dodona_tablets.core.tablet.tablet import Tablet
from dodona_tablets.core.tablet.transaction import Holder, State, Transaction
from dodona_wire.cores.effects import AskTimestamps
from dodona_wire.messages.data import Scan, ScanPage, TabletModifications
from negative.bug import BUSY, Plant, PlantedBug, Where


def never_wait(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("dodona_tablets.core.tablet.snapshot.blocking_reader", lambda *_: None)


def skip_what_is_not_resolved(patch: pytest.MonkeyPatch) -> None:
    def planted(holders: list[Holder], groups: int, timestamp: Timestamp) -> Transaction | None:
        is_newest = timestamp == SYNC_LAST_COMMITTED
        return None if is_newest else blocking_reader(holders, groups, timestamp)

    patch.setattr("dodona_tablets.core.tablet.snapshot.blocking_reader", planted)


def lose_rows_that_are_locked(patch: pytest.MonkeyPatch) -> None:
    def planted(tablet: Tablet, request: Scan) -> ScanPage | Transaction:
        page = scan(tablet, request)
        if isinstance(page, Transaction):
            return page
        left = [it for it in zip(page.keys, page.rows, strict=True) if it[0] not in tablet.locks]
        keys, values = tuple(key for key, _ in left), tuple(value for _, value in left)
        return ScanPage(keys, values, page.resume)

    patch.setattr("dodona_tablets.core.requests.reads.scan", planted)


def look_at_the_groups_that_are_read(patch: pytest.MonkeyPatch) -> None:
    def planted(tablet: Tablet, keys: Iterable[Key], groups: int, at: Timestamp, _: Any) -> Any:
        return blocker_of_keys(tablet, keys, groups, at)

    patch.setattr("dodona_tablets.core.tablet.snapshot.blocker_of_keys", planted)


def lock_the_groups_that_are_named(patch: pytest.MonkeyPatch) -> None:
    def planted(_: Tablet, part: TabletModifications, __: Timestamp) -> TabletModifications:
        return part

    patch.setattr("dodona_tablets.core.commit.participant.widened", planted)


def ask_before_locking(patch: pytest.MonkeyPatch) -> None:
    """The prepare timestamp is asked for first, and the locks are taken when it is there."""
    lock, handle = Participant.lock, Participant.handle_timestamp
    early: dict[Transaction, Timestamp] = {}

    def planted_lock(self: Participant, transaction: Transaction) -> None:
        if transaction in early:
            lock(self, transaction)
            if transaction.state is State.LOCKED:
                handle(self, transaction.id, early[transaction])
        else:
            transaction.state = State.WAITING
            self.ask_timestamp(transaction)

    def planted(self: Participant, transaction: TransactionId, timestamp: Timestamp) -> None:
        alive = self._cell.transactions.get(transaction)
        if alive is not None and alive.state is State.WAITING and alive not in early:
            early[alive] = timestamp
            planted_lock(self, alive)

    patch.setattr(Participant, "lock", planted_lock)
    patch.setattr(Participant, "handle_timestamp", planted)


class Reserve:
    """Commits one-cell transactions at timestamps that were asked for before their locks were
    taken, and that are above what the cell knows to have been read, if it looks at that."""

    def __init__(self, *, is_guarded: bool, is_forgetful: bool = False) -> None:
        self.is_guarded = is_guarded
        self.is_forgetful = is_forgetful
        self.kept: dict[CellId, list[Timestamp]] = {}
        self.read: dict[CellId, Timestamp] = {}

    def take(self, cell: Cell, transaction: Transaction) -> Timestamp | None:
        kept = self.kept.setdefault(cell.id, [])
        floor = transaction.id if self.is_forgetful else max(transaction.id, cell.fence)
        if self.is_guarded:
            floor = max(floor, self.read.get(cell.id, floor))
        fitting = [at for at in kept if at > floor]
        if not fitting:
            return None
        kept.remove(fitting[0])
        return fitting[0]

    def plant(self, patch: pytest.MonkeyPatch) -> None:
        lock, handle, attempt = Participant.lock, Participant.handle_timestamp, Reads._attempt
        start = NodeCore.start

        def planted_lock(participant: Participant, transaction: Transaction) -> None:
            cell = participant._cell
            lock(participant, transaction)
            is_mine = len(transaction.participants) == 1 and transaction.start != MAX_TIMESTAMP
            if transaction.state is State.LOCKED and is_mine:
                ask = AskTimestamps(transaction.id)  # one more, for the next one
                participant._outbox.send(ask)
                at = self.take(cell, transaction)
                if at is not None:
                    handle(participant, transaction.id, at)

        def planted(participant: Participant, token: TransactionId, at: Timestamp) -> None:
            cell = participant._cell
            alive = cell.transactions.get(token)
            if alive is None:
                self.kept.setdefault(cell.id, []).append(at)
            handle(participant, token, at)

        def planted_attempt(reads: Reads, route: Any, request: Read, *rest: Any) -> None:
            cell = reads._cell
            if request.timestamp < MAX_TIMESTAMP:
                known = self.read.get(cell.id, request.timestamp)
                self.read[cell.id] = max(known, request.timestamp)
            attempt(reads, route, request, *rest)

        def planted_start(core: NodeCore, now: Any) -> None:
            self.read.pop(core.cell.id, None)
            start(core, now)
            if self.is_forgetful:
                core._begin_serving(Timestamp(1))

        patch.setattr(Participant, "lock", planted_lock)
        patch.setattr(Participant, "handle_timestamp", planted)
        patch.setattr(Reads, "_attempt", planted_attempt)
        patch.setattr(NodeCore, "start", planted_start)


def reserve(*, is_guarded: bool, is_forgetful: bool = False) -> Plant:
    return lambda patch: Reserve(is_guarded=is_guarded, is_forgetful=is_forgetful).plant(patch)


BUGS = (
    PlantedBug(15, "a read does not wait for a prepared row", never_wait, ("EXT",)),
    PlantedBug(
        16,
        "the prepare timestamp is asked for before the locks are held",
        ask_before_locking,
        ("EXT",),
        Where(
            changes={"has_one_question": False},
            network={"slow_rate": 0.15, "slow_us_max": 500_000},
        ),
    ),
    PlantedBug(
        17,
        "a one-cell commit takes a timestamp below what has been read",
        reserve(is_guarded=False),
        ("EXT",),
        Where("bank"),
    ),
    PlantedBug(
        18,
        "what has been read is forgotten at a restart, timestamps from before it are used",
        reserve(is_guarded=True, is_forgetful=True),
        ("EXT",),
        Where("blind", changes=BUSY, crash_count=60),
    ),
    PlantedBug(
        19,
        "a read of the newest data skips a row whose commit is decided but not known there",
        skip_what_is_not_resolved,
        ("LATEST",),
    ),
    PlantedBug(
        20,
        "a one-cell commit takes a timestamp from before the commits that its caller had seen",
        reserve(is_guarded=True),
        ("MONOTONIC", "SESSION"),
        Where("bank"),
    ),
    PlantedBug(
        None,
        "a read that finds no row waits for writers of the groups that it reads only",
        look_at_the_groups_that_are_read,
        ("INVARIANT",),
        Where("column_groups"),
    ),
    PlantedBug(
        None,
        "a lock of a row that is not there is one of the groups that it names only",
        lock_the_groups_that_are_named,
        ("NOCONFLICT", "RWLOCK"),
        Where("column_groups"),
    ),
    PlantedBug(22, "a scan loses the rows that are locked", lose_rows_that_are_locked, ("EXT",)),
)
