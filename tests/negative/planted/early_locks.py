"""Bugs of early locks: who gets a row, when it is handed over, and what others do meanwhile."""

from typing import Any, Final

import pytest

from dodona._core.beginning import Beginnings
from dodona._core.protocol.steps import Protocol
from dodona._core.writing import early_locks
from dodona._core.writing.transaction import TransactionBuffer
from dodona_loadtest.checkers.violation import Promise
from dodona_tablets.core.cell.cell import Cell
from dodona_tablets.core.cell.early_locks import EarlyLocks, LockRequest, Row
from dodona_tablets.core.commit.lines import stands_in_line
from dodona_tablets.core.commit.participant import Participant
from dodona_tablets.core.requests.locking import Locking
from dodona_tablets.core.tablet.transaction import State, Transaction
from dodona_wire.types import MAX_TIMESTAMP, TransactionId
from negative.bug import BUSY, Plant, PlantedBug, Where

SECONDS: Final = 8
SHORT_LEASE_MS: Final = 10
HOT: Final = Where("hot_rows", seconds=SECONDS, changes=BUSY)
LOSSY: Final = Where("hot_rows", seconds=SECONDS, changes=BUSY | {"fault_point_rate": 1.0})
"""Locks end early."""
CRASHING: Final = Where(
    "hot_rows",
    seconds=SECONDS,
    changes=BUSY,
    network={"repeat_rate": 0.3, "slow_rate": 0.15, "slow_us_max": 500_000, "late_rate": 0.9},
    crash_count=3,
)


def pass_those_who_wait(patch: pytest.MonkeyPatch) -> None:
    def is_first(early: EarlyLocks, request: LockRequest) -> bool:
        heads = [early._head(it) for it in request.rows]
        return all(it is request or (it is not None and not it.is_granted) for it in heads)

    patch.setattr(EarlyLocks, "is_first", is_first)


def pass_holders(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Row, "holder", None)


def hand_over_when_prepared(patch: pytest.MonkeyPatch) -> None:
    handle, holder = Participant.handle_timestamp, Row.holder

    def prepare(participant: Participant, transaction: TransactionId, timestamp: Any) -> None:
        handle(participant, transaction, timestamp)
        cell = participant._cell
        alive = cell.transactions.get(transaction)
        if alive is not None and alive.state is State.PREPARED and alive.owner in requests(cell):
            cell.end_early(requests(cell)[alive.owner])

    def locked_by(row: Row) -> Transaction | None:
        found: Transaction | None = holder.fget(row)  # type: ignore[attr-defined]
        return None if found is None or found.state is State.PREPARED else found

    patch.setattr(Participant, "handle_timestamp", prepare)
    patch.setattr(Row, "holder", property(locked_by))


def requests(cell: Cell) -> dict[Any, LockRequest]:
    return cell.early.requests


def wake_one(patch: pytest.MonkeyPatch) -> None:
    leave = EarlyLocks.leave
    patch.setattr(EarlyLocks, "leave", lambda early, request: leave(early, request)[:1])


def wake_nobody_after_a_lease(patch: pytest.MonkeyPatch) -> None:
    tick = Locking.tick

    def planted(locking: Locking) -> None:
        cell = locking._cell
        woken = [*cell.woken]
        tick(locking)
        ended = [it for it in cell.woken if requests(cell).get(it.owner) is not it]
        cell.woken = [*woken, *ended]

    patch.setattr(Locking, "tick", planted)


def let_pass(patch: pytest.MonkeyPatch, *, is_blind: bool) -> None:
    def planted(cell: Cell, transaction: Transaction) -> bool:
        is_it = is_blind == (transaction.start == MAX_TIMESTAMP)
        return not is_it and stands_in_line(cell, transaction)

    patch.setattr("dodona_tablets.core.commit.participant.stands_in_line", planted)


def let_blind_writers_pass(patch: pytest.MonkeyPatch) -> None:
    let_pass(patch, is_blind=True)


def let_plain_writers_pass(patch: pytest.MonkeyPatch) -> None:
    let_pass(patch, is_blind=False)


def forget_who_ended(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(EarlyLocks, "why_ended", lambda *_: None)


def forget_the_fence(patch: pytest.MonkeyPatch) -> None:
    """A late copy of a request of before the crash is granted: nobody knows of these locks."""
    check = Locking._check

    def planted(locking: Locking, body: Any) -> None:
        fence, locking._cell.fence = locking._cell.fence, type(body.owner)(1)
        try:
            check(locking, body)
        finally:
            locking._cell.fence = fence

    patch.setattr(Locking, "_check", planted)


def leave_unwritten_rows_out(patch: pytest.MonkeyPatch) -> None:
    """Where leases are short, others get the rows of owners that still think."""
    hold = TransactionBuffer.hold

    def planted(buffer: TransactionBuffer, path: str, schema: Any, keys: Any) -> None:
        hold(buffer, path, schema, keys)
        buffer.tables[path].locks.clear()

    patch.setattr(TransactionBuffer, "hold", planted)
    patch.setattr(early_locks, "LEASE_MS", SHORT_LEASE_MS)


def begin_before_the_locks(patch: pytest.MonkeyPatch) -> None:
    begin = Beginnings.begin

    def planted(session: Beginnings, *given: Any, **named: Any) -> Protocol[TransactionBuffer]:
        start = yield from session._context.generate_timestamp()
        buffer = yield from begin(session, *given, **named)
        if buffer.locked.owner:
            buffer.start_timestamp, buffer.id = start, TransactionId(start)
        return buffer

    patch.setattr(Beginnings, "begin", planted)


_RUNS: tuple[tuple[str, Plant, Promise, Where], ...] = (
    ("a request passes an earlier one that waits", pass_those_who_wait, "FIFO", HOT),
    ("rows are locked early that a transaction holds", pass_holders, "MUTEX", HOT),
    ("a row is handed over when its owner is prepared", hand_over_when_prepared, "MUTEX", HOT),
    ("only the first of those who wait is looked at", wake_one, "FIFO", HOT),
    ("nobody is looked at when a lease ends", wake_nobody_after_a_lease, "FIFO", LOSSY),
    ("a blind writer passes early locks", let_blind_writers_pass, "MUTEX", HOT),
    ("a writer passes early locks", let_plain_writers_pass, "NOLOSE", HOT),
    ("an owner gets rows again after its locks have ended", forget_who_ended, "MUTEX", HOT),
    ("an owner of before a crash gets rows after it", forget_the_fence, "MUTEX", CRASHING),
    (
        "rows that are locked early and not written have no part in the commit",
        leave_unwritten_rows_out,
        "EXCLUSION",
        HOT,
    ),
    ("the start is asked for before the locks", begin_before_the_locks, "NOLOSE", HOT),
)

BUGS: tuple[PlantedBug, ...] = tuple(
    PlantedBug(None, title, plant, (promise,), where) for title, plant, promise, where in _RUNS
)
