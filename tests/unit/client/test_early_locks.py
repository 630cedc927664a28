"""Early locks, played by hand: who is asked in which order, and what follows each answer."""

from itertools import count
from typing import Any

import pytest

from dodona._core.protocol.steps import MASTER, ORACLE, Calls, Pause, Post, Target
from dodona._core.writing.early_locks import (
    AS_USUAL,
    ASK_MS_MAX,
    LEASE_MS,
    ROWS_MAX,
    WAIT_MS,
    Waiting,
    waiting_of,
)
from dodona._core.writing.transaction import TransactionBuffer
from dodona.errors import (
    CommitOutcomeUnknown,
    DodonaError,
    InvalidRequest,
    LimitExceeded,
    Overloaded,
    RowBlocked,
    SnapshotTooOld,
    TableNotMounted,
    TransactionConflict,
    Unavailable,
)
from dodona.types import Timestamp, TransactionId
from dodona_wire.messages.base import Failure
from dodona_wire.messages.catalog import GetTable
from dodona_wire.messages.data import (
    AskOutcome,
    CommitOne,
    Committed,
    ConditionalCommit,
    GenerateTimestamps,
    OutcomeUnknown,
    Prepare,
    TimestampRange,
)
from dodona_wire.messages.families import Reply, Request
from dodona_wire.messages.locks import (
    AcquireLocks,
    LocksAwaited,
    LocksGranted,
    ReleaseLocks,
    TabletKeys,
)
from dodona_wire.types import Owner, Revision, TabletId
from unit.client.protocols import (
    CONFLICT,
    LOST,
    MOVED,
    NEVER_SENT,
    PATH,
    Answer,
    Clock,
    Play,
    key,
    new_session,
    nobody,
    play,
    table,
    tablet,
)

OWNER, START = 40, 50
OTHER = "//u"
ENDED = Failure("locks_ended", "the locks have ended")
HELD = Failure("row_blocked", "row {'id': 1} is locked", {"key": {"id": 1}, "owner": 7})


def keys_of(*ids: int) -> list[dict[str, int]]:
    return [{"id": it} for it in ids]


def part(number: int, *ids: int, revision: int = 1) -> TabletKeys:
    return TabletKeys(TabletId(number), Revision(revision), tuple(map(key, ids)))


def stamp(at: int) -> TimestampRange:
    return TimestampRange(Timestamp(at), 1)


def granted(*parts: TabletKeys, owner: int = OWNER) -> LocksGranted:
    return LocksGranted(Owner(owner), parts)


AWAITED = LocksAwaited(Owner(OWNER), HELD)
IN_TWO_CELLS = {PATH: keys_of(100, 1)}
FIRST, SECOND = part(10, 1), part(11, 100)


class Bench:
    """A session that begins a transaction with early locks."""

    def __init__(self, locks: Any = None, waiting: Waiting = AS_USUAL, *tables: Any) -> None:
        self.clock = Clock()
        self.session = new_session(self.clock, *(tables or (table(),)))
        wanted = IN_TWO_CELLS if locks is None else locks
        self.play = Play(self.clock, self.session.begin(locks=wanted, waiting=waiting))

    def give_stamp(self, at: int) -> None:
        assert self.play.call == (ORACLE, GenerateTimestamps(1))
        self.play.answer(stamp(at))

    @property
    def asked(self) -> list[tuple[int, AcquireLocks]]:
        found = [(target, body) for target, body in self.play.calls]
        assert all(isinstance(body, AcquireLocks) for _, body in found)
        return found  # type: ignore[return-value]


def failed(
    it: "Play[Any]", error: type[DodonaError], answer: Answer
) -> tuple[DodonaError, list[tuple[int, Request]]]:
    """Play until the protocol fails with this error. → the error, and what was posted before."""
    posted: list[tuple[int, Request]] = []

    def go_on() -> None:
        for _ in range(1_000):
            match it.step:
                case Calls():
                    it.answer(*[answer(target, body) for target, body in it.calls])
                case Pause():
                    it.wait()
                case Post(requests):
                    posted.extend(requests)
                    it.posted()

    with pytest.raises(error) as caught:
        go_on()
    return caught.value, posted


def release_of(*cells: int, owner: int = OWNER) -> list[tuple[int, Request]]:
    return [(cell, ReleaseLocks(Owner(owner))) for cell in cells]


def begun(locks: Any = None) -> tuple[Bench, TransactionBuffer]:
    """A transaction that has begun, with its locks."""
    bench = Bench(locks)
    bench.give_stamp(OWNER)
    bench.play.answer(granted(FIRST))
    if locks is None:
        bench.play.answer(granted(SECOND), granted(FIRST))
    bench.give_stamp(START)
    return bench, bench.play.result


# ---- who is asked


def test_cells_are_asked_in_ascending_order_and_one_at_a_time() -> None:
    bench = Bench()
    bench.give_stamp(OWNER)
    request = AcquireLocks(Owner(OWNER), (FIRST,), LEASE_MS, ASK_MS_MAX)
    assert bench.asked == [(0, request)]
    bench.play.answer(granted(FIRST))
    (second, body), *_ = bench.asked
    assert (second, body.tablets, body.owner) == (1, (SECOND,), OWNER)
    bench.play.answer(granted(SECOND), granted(FIRST))
    bench.give_stamp(START)
    buffer = bench.play.result
    assert buffer.start_timestamp == START, "asked for after the last grant"
    assert buffer.locked.cells == (0, 1)
    assert buffer.locked_rows == {PATH: keys_of(1, 100)}


def test_a_cell_is_asked_once_for_all_rows_of_all_tables() -> None:
    there = table((tablet(20, 1, None), tablet(21, 0, 100)), path=OTHER)
    locks = {OTHER: keys_of(1, 100), PATH: keys_of(100, 1, 2, 1)}
    bench = Bench(locks, AS_USUAL, table(), there)
    bench.give_stamp(OWNER)
    ((cell, body),) = bench.asked
    assert (cell, body.tablets) == (0, (part(21, 100), part(10, 1, 2)))
    bench.play.answer(granted(*body.tablets))
    (cell, body), _ = bench.asked
    assert (cell, body.tablets) == (1, (part(20, 1), part(11, 100)))


def test_an_unknown_table_is_asked_for_before_the_owner() -> None:
    clock = Clock()
    session = new_session(clock)
    play = Play(clock, session.begin(locks=IN_TWO_CELLS))
    assert play.call == (MASTER, GetTable(PATH))
    play.answer(table())
    assert play.calls == ((ORACLE, GenerateTimestamps(1)),)


def test_no_rows_are_no_questions() -> None:
    bench = Bench({PATH: []})
    bench.give_stamp(OWNER)
    bench.give_stamp(START)
    assert bench.play.result.locked.cells == ()
    assert bench.play.result.locked_rows == {PATH: []}


# ---- waiting


def test_earlier_cells_are_renewed_while_a_later_one_lets_the_owner_wait() -> None:
    bench = Bench()
    bench.give_stamp(OWNER)
    bench.play.answer(granted(FIRST))
    for _ in range(3):
        asking, renewal = bench.asked
        assert (asking[0], asking[1].wait_ms) == (1, ASK_MS_MAX)
        assert renewal == (0, AcquireLocks(Owner(OWNER), (FIRST,), LEASE_MS, 0))
        bench.clock.now_us += ASK_MS_MAX * 1000
        bench.play.answer(AWAITED, granted(FIRST))
    assert asking[1].owner == OWNER, "the same place in line"
    bench.play.answer(granted(SECOND), granted(FIRST))
    bench.give_stamp(START)


def test_a_wait_has_an_end() -> None:
    bench = Bench(waiting=Waiting(3_000))
    bench.give_stamp(OWNER)
    waits = []

    def let_wait(target: Target, body: Request) -> Reply:
        assert isinstance(body, AcquireLocks)
        waits.append(body.wait_ms)
        bench.clock.now_us += body.wait_ms * 1000
        return AWAITED

    error, posted = failed(bench.play, RowBlocked, let_wait)
    assert waits == [2_000, 1_000]
    assert error.attributes == {"key": {"id": 1}, "owner": 7}
    assert posted == release_of(0)


def test_without_a_wait_the_answer_is_final() -> None:
    bench = Bench(waiting=Waiting(0))
    bench.give_stamp(OWNER)
    assert bench.asked[0][1].wait_ms == 0
    bench.play.answer(granted(FIRST))
    error, posted = failed(
        bench.play, RowBlocked, lambda target, _: granted(FIRST) if target == 0 else HELD
    )
    assert error.attributes["owner"] == 7
    assert posted == release_of(0, 1)


def test_free_rows_are_taken_from_cell_to_cell_up_to_the_number() -> None:
    tablets = (tablet(10, 0, None), tablet(11, 1, 100), tablet(12, 2, 200))
    locks = {PATH: keys_of(1, 2, 100, 101, 200)}
    bench = Bench(locks, Waiting(0, 3), table(tablets))
    bench.give_stamp(OWNER)
    assert [(it.skip_max, it.wait_ms) for _, it in bench.asked] == [(3, 0)]
    bench.play.answer(granted(part(10, 2)))
    assert bench.asked[0][1].skip_max == 2
    bench.play.answer(granted(part(11, 100, 101)), granted(part(10, 2)))
    bench.give_stamp(START)
    assert bench.play.result.locked_rows == {PATH: keys_of(2, 100, 101)}
    assert bench.play.result.locked.cells == (0, 1), "the third cell was not needed"


# ---- failures


def test_a_lost_answer_is_asked_for_again_under_the_same_owner() -> None:
    bench = Bench()
    bench.give_stamp(OWNER)
    bench.play.answer(granted(FIRST))
    before = bench.asked
    for reply in (LOST, NEVER_SENT):
        bench.play.answer(reply, granted(FIRST))
        bench.play.wait()
        assert [it.owner for _, it in bench.asked] == [OWNER, OWNER]
        assert [it.tablets for _, it in bench.asked] == [it.tablets for _, it in before]


def test_a_lost_renewal_changes_nothing() -> None:
    bench = Bench()
    bench.give_stamp(OWNER)
    bench.play.answer(granted(FIRST))
    bench.play.answer(granted(SECOND), LOST)
    bench.give_stamp(START)
    assert bench.play.result.locked.cells == (0, 1)


def test_a_silent_cell_is_given_up_and_all_locks_are_released() -> None:
    bench = Bench()
    bench.give_stamp(OWNER)
    bench.play.answer(granted(FIRST))
    began_us = bench.clock.now_us
    _, posted = failed(
        bench.play, Unavailable, lambda target, _: granted(FIRST) if target == 0 else LOST
    )
    assert posted == release_of(0, 1)
    assert bench.clock.now_us - began_us <= 11_000_000


@pytest.mark.parametrize("failure", [MOVED, ENDED, Failure("overloaded", "many rows")])
def test_a_refusal_that_may_pass_begins_anew_under_a_new_owner(failure: Failure) -> None:
    bench = Bench()
    bench.give_stamp(OWNER)
    bench.play.answer(granted(FIRST))
    bench.play.answer(failure, granted(FIRST))
    assert list(bench.play.posted()) == release_of(0, 1)
    bench.play.wait()
    assert bench.play.call == (MASTER, GetTable(PATH))
    bench.play.answer(table((tablet(10, 5, None, revision=2), tablet(11, 1, 100))))
    bench.give_stamp(OWNER + 1)
    ((cell, body),) = bench.asked
    assert (cell, body.owner, body.tablets) == (1, OWNER + 1, (SECOND,))
    bench.play.answer(granted(SECOND, owner=OWNER + 1))
    (cell, body), _ = bench.asked
    assert (cell, body.owner, body.tablets) == (5, OWNER + 1, (part(10, 1, revision=2),))


def test_locks_that_ended_in_an_earlier_cell_begin_anew() -> None:
    """Also if the later cell grants in the same moment: the owner has not got all of its rows."""
    bench = Bench()
    bench.give_stamp(OWNER)
    bench.play.answer(granted(FIRST))
    bench.play.answer(granted(SECOND), ENDED)
    assert list(bench.play.posted()) == release_of(0, 1)
    bench.play.wait()


def test_a_refusal_that_does_not_pass_is_raised_in_the_end() -> None:
    bench = Bench()
    owners, began_us = count(OWNER), bench.clock.now_us

    def answer(target: Target, body: Request) -> Reply:
        if target == ORACLE:
            return stamp(next(owners))
        return table() if target == MASTER else Failure("overloaded", "many rows")

    failed(bench.play, Overloaded, answer)
    assert bench.clock.now_us - began_us <= 11_000_000
    assert next(owners) > OWNER + 3


def test_a_tablet_that_no_cell_serves_is_looked_for() -> None:
    nowhere = table((tablet(10, None, None, state="unmounted"),))
    bench = Bench(IN_TWO_CELLS, AS_USUAL, nowhere)
    bench.play.wait()
    with pytest.raises(TableNotMounted):
        bench.play.answer(nowhere)


@pytest.mark.parametrize("kind", ["schema_violation", "invalid_request", "forbidden"])
def test_another_refusal_is_raised(kind: str) -> None:
    bench = Bench()
    bench.give_stamp(OWNER)
    error, posted = failed(bench.play, DodonaError, lambda *_: Failure(kind, "no"))
    assert error.kind == kind
    assert posted == release_of(0)


def test_a_transaction_without_a_start_timestamp_releases_its_rows() -> None:
    bench = Bench({PATH: keys_of(1)})
    bench.give_stamp(OWNER)
    bench.play.answer(granted(FIRST))
    _, posted = failed(bench.play, Unavailable, lambda *_: LOST)
    assert posted == release_of(0)


def test_many_rows_and_tables_without_atomicity_are_refused_before_a_cell_is_asked() -> None:
    clock = Clock()
    locks = {PATH: keys_of(*range(ROWS_MAX + 1))}
    with pytest.raises(LimitExceeded, match="at most 10000 rows"):
        Play(clock, new_session(clock, table()).begin(locks=locks))
    loose = table(path=OTHER, atomicity="none")
    with pytest.raises(InvalidRequest, match="atomicity none") as error:
        Play(clock, new_session(clock, loose).begin(locks={OTHER: keys_of(1)}))
    assert error.value.attributes["table"] == OTHER


# ---- commit and end


def commit(bench: Bench, buffer: TransactionBuffer, *ids: int) -> "Play[Timestamp | None]":
    rows = [{"id": it, "value": it} for it in ids]
    play(bench.clock, bench.session.insert_rows(buffer, PATH, rows), nobody)
    return Play(bench.clock, bench.session.commit(buffer))


def test_the_commit_names_the_owner_and_locks_what_it_did_not_write() -> None:
    bench, buffer = begun()
    requests = commit(bench, buffer, 1).calls
    assert [cell for cell, _ in requests] == [0, 1]
    locks = []
    for _, body in requests:
        assert isinstance(body, ConditionalCommit)
        assert (body.owner, body.conditions) == (OWNER, ())
        assert isinstance(body.request, Prepare)
        (it,) = body.request.modifications
        locks.append([(lock.key, lock.lock_type) for lock in it.locks])
    assert locks[1] == [(key(100), "exclusive")]


def test_a_commit_in_one_cell_names_the_owner_and_releases_nothing() -> None:
    bench, buffer = begun({PATH: keys_of(1)})
    it = commit(bench, buffer, 1)
    _, body = it.call
    assert isinstance(body, ConditionalCommit)
    assert isinstance(body.request, CommitOne)
    assert body.owner == OWNER
    it.answer(Committed(TransactionId(START), Timestamp(60)))
    assert it.result == 60, "the cell ends the locks with the commit"


def test_a_refused_commit_releases() -> None:
    bench, buffer = begun({PATH: keys_of(1)})
    it = commit(bench, buffer, 1)
    _, posted = failed(it, TransactionConflict, lambda *_: CONFLICT)
    assert posted == release_of(0)
    assert buffer.refused_rows == {PATH: [key(1)]}


def test_an_unknown_outcome_releases_nothing() -> None:
    """The transaction may be prepared, or commit later."""
    bench, buffer = begun({PATH: keys_of(1)})
    it = commit(bench, buffer, 1)
    it.answer(LOST)
    assert it.call == (0, AskOutcome(TransactionId(START)))
    with pytest.raises(CommitOutcomeUnknown):
        it.answer(OutcomeUnknown(TransactionId(START)))


def test_a_transaction_that_is_too_old_releases() -> None:
    bench, buffer = begun({PATH: keys_of(1)})
    bench.clock.now_us += 61_000_000
    it = Play(bench.clock, bench.session.commit(buffer))
    _, posted = failed(it, SnapshotTooOld, nobody)
    assert posted == release_of(0)


def test_an_abort_releases_once() -> None:
    bench, buffer = begun()
    it = Play(bench.clock, bench.session.abort(buffer))
    assert list(it.posted()) == release_of(0, 1)
    assert it.step is None
    assert buffer.is_aborted


# ---- arguments


def test_how_to_wait() -> None:
    def waiting(**how: Any) -> Waiting:
        given = {"wait_ms": None, "nowait": False, "skip_locked": None, **how}
        return waiting_of(True, **given)

    assert waiting() == Waiting(WAIT_MS, 0)
    assert waiting(wait_ms=5) == Waiting(5, 0)
    assert waiting(nowait=True) == Waiting(0, 0)
    assert waiting(skip_locked=3) == Waiting(0, 3)
