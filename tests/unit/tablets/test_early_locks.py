"""Early locks of a cell: who gets a row, in which order, and what others do meanwhile."""

from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from dodona.types import CellId
from dodona_tablets.core.cell.early_locks import LOCKS_ENDED
from dodona_wire.cores.effects import ReplyAtOnce
from dodona_wire.messages.conditions import RowCondition, TabletConditions
from dodona_wire.messages.data import (
    CommitOne,
    Committed,
    ConditionalCommit,
    Prepare,
    Prepared,
    RowLock,
)
from dodona_wire.messages.locks import (
    AcquireLocks,
    LocksAwaited,
    LocksGranted,
    TabletKeys,
)
from dodona_wire.types import Key, Owner, Revision, TabletId
from unit.tablets.cells import (
    ATOMIC,
    NON_ATOMIC,
    REVISION,
    SECOND,
    Bench,
    assignment,
    changes,
    key,
    put,
    update,
)
from unit.tablets.owners import (
    BOTH,
    LEASE_MS,
    ask,
    commit,
    granted,
    is_waiting,
    kind_of,
    locked,
    new_owner,
    release,
    said,
)

NO_KEY = TabletKeys(ATOMIC, REVISION, (Key(b"?"),))


@pytest.fixture
def bench() -> Bench:
    return Bench(2)


# ---- turns


def test_a_free_row_is_granted_and_a_locked_one_is_waited_for(bench: Bench) -> None:
    first = locked(bench, 1)
    second = ask(bench, new_owner(bench), 1)
    assert is_waiting(bench, second)
    release(bench, first)
    assert granted(bench, second) == [True]


def test_requests_are_granted_in_order_of_arrival(bench: Bench) -> None:
    owner = locked(bench, 1)
    owners = [new_owner(bench) for _ in range(4)]
    routes = [ask(bench, it, 1) for it in owners]
    for place, it in enumerate([owner, *owners[:-1]]):
        release(bench, it)
        assert granted(bench, *routes) == [other <= place for other in range(4)]


def test_a_set_is_granted_whole(bench: Bench) -> None:
    one, two = locked(bench, 1), locked(bench, 2)
    both = ask(bench, new_owner(bench), 1, 2, 3)
    release(bench, one)
    assert is_waiting(bench, both)
    release(bench, two)
    assert granted(bench, both) == [True]


def test_a_request_that_overlaps_an_earlier_one_waits_behind_it(bench: Bench) -> None:
    one = locked(bench, 1)
    earlier = ask(bench, new_owner(bench), 1, 2)
    later = ask(bench, new_owner(bench), 2)
    other = ask(bench, new_owner(bench), 3)
    assert granted(bench, earlier, later, other) == [False, False, True]
    release(bench, one)
    assert granted(bench, earlier, later) == [True, False]


def test_all_that_can_go_are_granted_together(bench: Bench) -> None:
    owner = locked(bench, 1, 2, 3)
    routes = [ask(bench, new_owner(bench), it) for it in (1, 2, 3)]
    release(bench, owner)
    assert granted(bench, *routes) == [True] * 3


def test_a_request_that_leaves_lets_the_next_one_go(bench: Bench) -> None:
    locked(bench, 1)
    first, owner = ask(bench, new_owner(bench), 1, 2), new_owner(bench)
    middle, last = ask(bench, owner, 2, 3), ask(bench, new_owner(bench), 3)
    release(bench, owner)
    assert said(bench, middle) == LOCKS_ENDED
    assert granted(bench, first, last) == [False, True]


def test_a_repeated_request_gets_the_same_answer(bench: Bench) -> None:
    owner = new_owner(bench)
    grants = [said(bench, ask(bench, owner, 1)) for _ in range(2)]
    assert isinstance(grants[0], LocksGranted)
    assert grants[0] == grants[1]
    waiting = new_owner(bench)
    routes = [ask(bench, waiting, 1) for _ in range(2)]
    release(bench, owner)
    assert granted(bench, *routes) == [True] * 2


# ---- transactions


def test_a_commit_hands_the_row_over_at_once(bench: Bench) -> None:
    """The grant may leave before the record of the commit is durable."""
    kinds: list[type] = []
    bench.note = lambda cell, effect: kinds.append(type(effect))  # type: ignore[method-assign]
    owner, following = locked(bench, 1), new_owner(bench)
    route = ask(bench, following, 1)
    assert isinstance(commit(bench, owner, put(1, 1)), Committed)
    assert granted(bench, route) == [True]
    assert kinds.count(ReplyAtOnce) == 2, "both grants"
    assert isinstance(commit(bench, following, put(1, 2)), Committed)
    assert bench.read(1) == (2, None)


def test_a_prepared_owner_keeps_its_row_until_the_outcome(bench: Bench) -> None:
    owner, start = locked(bench, 1), bench.begin()
    part = changes(put(1, 1))
    prepared = bench.ask(ConditionalCommit(Prepare(start, BOTH, (part,)), (), owner))
    bench.answer_oracle()
    assert isinstance(said(bench, prepared), Prepared)
    route = ask(bench, new_owner(bench), 1)
    assert is_waiting(bench, route)
    bench.decide(start, bench.timestamp())
    bench.settle()
    assert granted(bench, route) == [True]


@pytest.mark.parametrize("is_committed", [True, False])
def test_a_request_waits_for_a_transaction_that_commits(bench: Bench, is_committed: bool) -> None:
    start = bench.begin()
    bench.prepare(start, put(1, 1), cell=0)
    bench.answer_oracle()
    route = ask(bench, new_owner(bench), 1)
    assert is_waiting(bench, route)
    bench.decide(start, bench.timestamp() if is_committed else None)
    bench.settle()
    assert granted(bench, route) == [True]


def test_a_request_waits_for_a_transaction_that_a_restart_takes_again(bench: Bench) -> None:
    start = bench.begin()
    bench.prepare(start, put(1, 1), cell=0)
    bench.answer_oracle()
    bench.start(CellId(0))
    route = ask(bench, new_owner(bench), 1)
    assert is_waiting(bench, route)
    bench.decide(start, bench.timestamp())
    bench.settle()
    assert granted(bench, route) == [True]


def test_a_plain_writer_is_refused_and_the_owner_passes(bench: Bench) -> None:
    owner = locked(bench, 1)
    refused: Any = bench.try_commit(put(1, 1))
    assert kind_of(refused) == "transaction_conflict"
    assert refused.attributes["winner"] == owner
    assert refused.attributes["key"] == {"id": 1}
    assert isinstance(bench.try_commit(put(2, 2)), Committed)
    assert isinstance(commit(bench, owner, put(1, 3)), Committed)


def test_a_request_that_waits_for_transactions_alone_closes_its_rows(bench: Bench) -> None:
    """Otherwise newcomers could keep it waiting for ever."""
    start = bench.begin()
    bench.prepare(start, put(1, 1), cell=0)
    bench.answer_oracle()
    ask(bench, new_owner(bench), 1, 2)
    assert kind_of(bench.try_commit(put(2, 2))) == "transaction_conflict"


def test_a_request_behind_an_owner_closes_nothing(bench: Bench) -> None:
    locked(bench, 1)
    ask(bench, new_owner(bench), 1, 2)
    assert isinstance(bench.try_commit(put(2, 2)), Committed)


def test_a_blind_transaction_stands_in_line(bench: Bench) -> None:
    owner = locked(bench, 1)
    before = ask(bench, new_owner(bench), 1)
    blind = bench.commit_blind(bench.begin(), put(1, 5), put(2, 5))
    behind = ask(bench, new_owner(bench), 2)
    bench.answer_oracle()
    assert is_waiting(bench, before, blind, behind)
    release(bench, owner)
    assert granted(bench, before, behind) == [True, False]
    assert is_waiting(bench, blind)
    release(bench, Owner(said(bench, before).owner))
    bench.answer_oracle()
    assert isinstance(said(bench, blind), Committed)
    assert granted(bench, behind) == [True]
    assert not bench.nodes[CellId(0)].cell.tablets[ATOMIC].locks


def test_a_refusal_names_the_blind_transaction_that_is_next_in_line(bench: Bench) -> None:
    """It closes its rows while it waits for a transaction alone."""
    bench.prepare(bench.begin(), put(1, 1), cell=0)
    bench.answer_oracle()
    locked(bench, 2)
    blind = bench.begin()
    bench.commit_blind(blind, put(1, 5), put(2, 5))
    release(bench, Owner(next(iter(bench.nodes[CellId(0)].cell.early.requests))))
    refused: Any = bench.try_commit(put(2, 2))
    assert refused.attributes["winner"] == blind
    waiting = said(bench, ask(bench, new_owner(bench), 2, wait_ms=0))
    assert waiting.attributes["owner"] == blind


def test_a_blind_transaction_that_waits_too_long_leaves_the_line(bench: Bench) -> None:
    first = locked(bench, 1)
    blind = bench.commit_blind(bench.begin(), put(1, 5), put(2, 5))
    owner = new_owner(bench)
    for _ in range(6):
        ask(bench, owner, 2)
        bench.pass_time(1)
    refused = said(bench, blind)
    assert kind_of(refused) == "transaction_conflict"
    assert refused.attributes["key"] == {"id": 1}
    assert refused.attributes["winner"] == first
    assert granted(bench, ask(bench, owner, 2)) == [True]


def test_the_owner_is_checked_as_anybody_else(bench: Bench) -> None:
    """Early locks are in memory. A commit before the lock is a conflict for an older start."""
    start = bench.begin()
    bench.commit(put(1, 1))
    owner = locked(bench, 1)
    assert kind_of(commit(bench, owner, put(1, 2), start=start)) == "transaction_conflict"
    assert isinstance(commit(bench, owner, put(1, 2)), Committed), "it kept its lock"


def test_a_refused_owner_keeps_its_locks(bench: Bench) -> None:
    start = bench.begin()
    bench.commit(put(2, 1))
    owner = locked(bench, 1)
    waiting = ask(bench, new_owner(bench), 1)
    assert kind_of(commit(bench, owner, put(2, 2), start=start)) == "transaction_conflict"
    assert is_waiting(bench, waiting)


def keep(bench: Bench, number: int) -> Any:
    """Prepare a transaction that only requires a row to stay as it is."""
    condition = RowCondition(key(number), column_mask=1, values=(1,))
    request = Prepare(bench.begin(), BOTH, (changes(),))
    route = bench.ask(ConditionalCommit(request, (TabletConditions(ATOMIC, (condition,)),)))
    bench.answer_oracle()
    return said(bench, route)


def test_a_condition_does_not_pass_an_early_lock(bench: Bench) -> None:
    """It would refuse the owner."""
    bench.commit(put(1, 1))
    owner = locked(bench, 1)
    assert kind_of(keep(bench, 1)) == "transaction_conflict"
    assert isinstance(commit(bench, owner, put(1, 2)), Committed)


def test_a_request_waits_for_a_condition_that_was_there_before(bench: Bench) -> None:
    bench.commit(put(1, 1))
    prepared = keep(bench, 1)
    assert isinstance(prepared, Prepared)
    owner = new_owner(bench)
    route = ask(bench, owner, 1)
    assert is_waiting(bench, route)
    bench.decide(prepared.transaction, bench.timestamp())
    bench.settle()
    assert granted(bench, route) == [True]
    assert isinstance(commit(bench, owner, put(1, 2)), Committed)


def test_a_lock_without_data_is_refused_too(bench: Bench) -> None:
    locked(bench, 1)
    lock = RowLock(key(1), lock_mask=1, lock_type="exclusive")
    route = bench.ask(CommitOne(bench.begin(), (changes(locks=(lock,)),)))
    assert kind_of(said(bench, route)) == "transaction_conflict"


def test_an_owner_whose_row_another_one_has_is_refused(bench: Bench) -> None:
    owner = locked(bench, 1)
    release(bench, owner)
    locked(bench, 1)
    assert kind_of(commit(bench, owner, put(1, 1))) == "transaction_conflict"


# ---- ends


def test_a_lease_ends_and_the_next_one_goes(bench: Bench) -> None:
    owner = locked(bench, 1)
    following = new_owner(bench)
    for _ in range(LEASE_MS // 1000 + 1):
        route = ask(bench, following, 1)
        bench.pass_time(1)
        bench.answer_oracle()
    assert granted(bench, ask(bench, following, 1)) == [True]
    assert said(bench, ask(bench, owner, 1)) == LOCKS_ENDED
    assert isinstance(said(bench, route), LocksGranted | LocksAwaited)


def test_a_lease_may_end_at_the_tick_that_ends_a_wait(bench: Bench) -> None:
    """A request whose turn comes in this tick waits for nobody, and is granted."""
    locked(bench, 1)
    bench.pass_time(LEASE_MS / 1000 - 2)
    route = ask(bench, new_owner(bench), 1, wait_ms=2_000)
    bench.pass_time(2)
    assert granted(bench, route) == [True]


def test_a_lease_may_end_at_the_tick_that_ends_the_wait_of_a_blind_writer(bench: Bench) -> None:
    locked(bench, 1)
    bench.pass_time(LEASE_MS / 1000 - 5.1)
    route = bench.commit_blind(bench.begin(), put(1, 5))
    bench.pass_time(5.1)
    assert kind_of(said(bench, route)) == "transaction_conflict"
    assert not bench.nodes[CellId(0)].cell.early.requests


def test_a_repeated_request_renews_the_lease(bench: Bench) -> None:
    owner = locked(bench, 1)
    for _ in range(2 * LEASE_MS // 1000):
        bench.pass_time(1)
        assert granted(bench, ask(bench, owner, 1)) == [True]
    assert kind_of(bench.try_commit(put(1, 1))) == "transaction_conflict"


def test_a_request_ends_when_its_client_has_gone(bench: Bench) -> None:
    owner = locked(bench, 1)
    route = ask(bench, new_owner(bench), 1, 2)
    following = ask(bench, new_owner(bench), 2)
    for _ in range(4):
        bench.pass_time(1)
        ask(bench, owner, 1)
    assert is_waiting(bench, following) is False
    awaited = said(bench, route)
    assert isinstance(awaited, LocksAwaited), "it is answered, so that its client repeats it"
    assert awaited.reason.kind == "row_blocked"
    assert awaited.reason.attributes["owner"] == owner
    assert awaited.reason.attributes["key"] == {"id": 1}
    for _ in range(3):
        bench.pass_time(1)
    assert not [it for it in bench.nodes[CellId(0)].cell.early.requests.values() if it.is_waiting]


@pytest.mark.parametrize("end", ["release", "commit", "lease"])
def test_an_owner_that_has_ended_gets_nothing_any_more(bench: Bench, end: str) -> None:
    owner = locked(bench, 1)
    if end == "release":
        release(bench, owner)
    elif end == "commit":
        assert isinstance(commit(bench, owner, put(1, 1)), Committed)
    else:
        for _ in range(LEASE_MS // 1000 + 1):
            bench.pass_time(1)
    assert said(bench, ask(bench, owner, 1)) == LOCKS_ENDED
    assert isinstance(bench.try_commit(put(1, 1)), Committed)


def test_a_release_that_comes_first_ends_the_request_that_comes_late(bench: Bench) -> None:
    owner = new_owner(bench)
    release(bench, owner)
    assert said(bench, ask(bench, owner, 1)) == LOCKS_ENDED


def test_a_restart_ends_all_early_locks(bench: Bench) -> None:
    owner = locked(bench, 1)
    waiting = new_owner(bench)
    ask(bench, waiting, 1)
    bench.start(CellId(0))
    for it in (owner, waiting):
        assert kind_of(said(bench, ask(bench, it, 1))) == "locks_ended"
    assert isinstance(bench.try_commit(put(1, 1)), Committed)


def test_an_unmount_ends_the_early_locks_of_its_tablet(bench: Bench) -> None:
    owner = locked(bench, 1)
    waiting = ask(bench, new_owner(bench), 1)
    closed = replace(assignment(ATOMIC, "full", Revision(2)), mode="unmounted")
    bench.assign(CellId(0), [closed])
    bench.pass_time(1)
    assert said(bench, waiting) == LOCKS_ENDED
    assert kind_of(said(bench, ask(bench, owner, 1))) == "locks_ended"
    assert not bench.nodes[CellId(0)].cell.early.requests


# ---- what a cell does not take


@pytest.mark.parametrize(
    ("spoil", "kind"),
    [
        (lambda it: {"tablets": (TabletKeys(TabletId(99), REVISION, ()),)}, "tablet_moved"),
        (lambda it: {"tablets": (TabletKeys(ATOMIC, Revision(9), ()),)}, "tablet_moved"),
        (lambda it: {"tablets": (TabletKeys(NON_ATOMIC, REVISION, ()),)}, "invalid_request"),
        (lambda it: {"tablets": it.tablets * 2}, "invalid_request"),
        (lambda it: {"tablets": (TabletKeys(ATOMIC, REVISION, (key(1),) * 2),)}, "invalid_request"),
        (lambda it: {"tablets": (NO_KEY,)}, "schema_violation"),
        (lambda it: {"owner": Owner(0)}, "locks_ended"),
        (lambda it: {"owner": Owner(it.owner + 1_000 * SECOND)}, "invalid_request"),
        (lambda it: {"lease_ms": 0}, "invalid_request"),
        (lambda it: {"wait_ms": -1}, "invalid_request"),
        (lambda it: {"skip_max": -1}, "invalid_request"),
    ],
)
def test_what_means_nothing_is_refused(
    bench: Bench, spoil: Callable[[AcquireLocks], dict[str, Any]], kind: str
) -> None:
    good = AcquireLocks(
        new_owner(bench), (TabletKeys(ATOMIC, REVISION, (key(1),)),), LEASE_MS, 2_000
    )
    assert kind_of(said(bench, bench.ask(replace(good, **spoil(good))))) == kind
    assert isinstance(said(bench, bench.ask(good)), LocksGranted)


def test_a_blind_transaction_has_no_owner(bench: Bench) -> None:
    owner = locked(bench, 1)
    request = CommitOne(bench.begin(), (changes(put(1, 1)),), is_blind=True)
    assert kind_of(said(bench, bench.ask(ConditionalCommit(request, (), owner)))) == (
        "invalid_request"
    )


def test_the_name_of_an_owner_may_be_that_of_a_transaction(bench: Bench) -> None:
    """Only a client that lies does this. It harms nobody else."""
    start = bench.begin()
    owner = Owner(start)
    assert isinstance(said(bench, ask(bench, owner, 1)), LocksGranted)
    route = bench.commit_blind(start, put(1, 1))
    bench.answer_oracle()
    release(bench, owner)
    bench.answer_oracle()
    assert isinstance(said(bench, route), Committed)


def test_transactions_leave_no_trace(bench: Bench) -> None:
    owner = locked(bench, 1, 2)
    assert isinstance(commit(bench, owner, put(1, 1), update(2, a=1)), Committed)
    cell = bench.nodes[CellId(0)].cell
    assert (cell.early.requests, cell.early.row_count, cell.early._lines) == ({}, 0, {})
