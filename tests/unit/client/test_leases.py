"""Renewals of loads: which, how often, and what is concluded from the answers."""

import gc

import pytest

from dodona._core.loads.leases import ROUNDS_PER_LEASE, Lease
from dodona._core.loads.ticket import LoadTicket
from dodona._core.protocol.steps import MASTER, Target
from dodona._core.session import Session
from dodona.types import CellId, LoadId, Timestamp
from dodona_wire.messages.base import Failure
from dodona_wire.messages.catalog import Cell, Cluster, GetCluster
from dodona_wire.messages.families import Reply, Request
from dodona_wire.messages.loads import LoadHeld, RenewLoad
from unit.client.protocols import LOST, Clock, new_session, nobody, play, table

LEASE_MS = 60_000
PERIOD_MS = LEASE_MS // ROUNDS_PER_LEASE
HELD = LoadHeld(LEASE_MS)
ENDED = Failure("load_ended", "it is over")
BUSY = Failure("overloaded", "not now")
CLUSTER = Cluster((), tuple([Cell(CellId(at), f"node{at}", True, 0) for at in (0, 1, 2)]))


class Cells:
    """Answers for two cells, and for a master."""

    def __init__(self) -> None:
        self.cluster = Cluster((), CLUSTER.cells[:2])
        self.replies: dict[Target, Reply] = {}
        self.asked: list[tuple[Target, int]] = []

    def answer(self, target: Target, body: Request) -> Reply:
        if target == MASTER:
            assert isinstance(body, GetCluster)
            return self.cluster
        assert isinstance(body, RenewLoad)
        self.asked.append((target, body.load))
        return self.replies.get(target, HELD)

    def take(self) -> list[tuple[Target, int]]:
        asked, self.asked = self.asked, []
        return asked


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def session(clock: Clock) -> Session:
    return new_session(clock, table())


@pytest.fixture
def cells() -> Cells:
    return Cells()


def lease(number: int, lease_ms: int = LEASE_MS) -> Lease:
    load = LoadId(number)
    return Lease(LoadTicket(load, "full", "upsert", Timestamp(load), False, lease_ms, ()))


def go_on(clock: Clock, session: Session, cells: Cells) -> list[tuple[Target, int]]:
    """Until the next renewal. → who was asked about what."""
    wait_ms = session.leases.wait_ms()
    assert wait_ms is not None
    clock.now_us += wait_ms * 1000
    play(clock, session.leases.do_due(), cells.answer)
    return cells.take()


def test_a_load_is_renewed_in_all_cells_four_times_a_lease(
    clock: Clock, session: Session, cells: Cells
) -> None:
    mine = lease(7)
    session.leases.add(mine)
    for _ in range(5):
        assert session.leases.wait_ms() == PERIOD_MS
        play(clock, session.leases.do_due(), nobody)  # not due
        assert go_on(clock, session, cells) == [(0, 7), (1, 7)]
    assert mine.is_open


def test_a_load_is_also_renewed_in_cells_without_its_tablets(
    clock: Clock, session: Session, cells: Cells
) -> None:
    """Who joined it knows nothing of them, and a tablet may move there."""
    mine = lease(7)
    session.leases.add(mine)
    cells.cluster = CLUSTER
    cells.replies = {0: ENDED, 1: ENDED}
    assert go_on(clock, session, cells) == [(0, 7), (1, 7), (2, 7)]
    assert mine.is_open
    cells.replies = {MASTER: LOST}
    assert go_on(clock, session, cells) == [(0, 7), (1, 7), (2, 7)]


def test_the_client_renews_each_load_by_its_own_lease(
    clock: Clock, session: Session, cells: Cells
) -> None:
    slow, fast = lease(7), lease(8, LEASE_MS // 3)
    session.leases.add(slow)
    session.leases.add(fast)
    rounds = [go_on(clock, session, cells) for _ in range(3)]
    assert rounds[0] == rounds[1] == [(0, 8), (1, 8)]
    assert sorted(rounds[2]) == [(0, 7), (0, 8), (1, 7), (1, 8)]


@pytest.mark.parametrize("reply", [LOST, BUSY, Failure("invalid_request", "what is that?")])
def test_a_round_that_was_not_answered_is_followed_by_the_next(
    clock: Clock, session: Session, cells: Cells, reply: Failure
) -> None:
    mine = lease(7)
    session.leases.add(mine)
    cells.replies = {0: reply, 1: reply}
    for _ in range(3):
        assert len(go_on(clock, session, cells)) == 2
    assert mine.is_open


def test_a_load_that_is_over_everywhere_is_not_renewed_again(
    clock: Clock, session: Session, cells: Cells
) -> None:
    mine, other = lease(7), lease(8)
    session.leases.add(mine)
    cells.replies = {0: ENDED, 1: ENDED}
    go_on(clock, session, cells)
    assert not mine.is_open
    assert session.leases.wait_ms() is None
    session.leases.add(other)
    cells.replies = {}
    assert go_on(clock, session, cells) == [(0, 8), (1, 8)]


@pytest.mark.parametrize("reply", [HELD, LOST])
def test_a_load_stays_open_if_one_of_two_cells_does_not_know_the_load(
    clock: Clock, session: Session, cells: Cells, reply: Reply
) -> None:
    """It may have come to the cluster after the load had begun."""
    mine = lease(7)
    session.leases.add(mine)
    cells.replies = {0: reply, 1: ENDED}
    go_on(clock, session, cells)
    assert mine.is_open


def test_a_load_that_has_ended_or_has_no_references_is_not_renewed(
    clock: Clock, session: Session, cells: Cells
) -> None:
    lost, ended = lease(7), lease(8)
    for it in (lost, ended):
        session.leases.add(it)
    ended.is_open = False
    del lost, it
    gc.collect()
    assert session.leases.wait_ms() is None
    play(clock, session.leases.do_due(), nobody)


def test_a_renewal_asks_the_master_for_cells_if_the_client_knows_none(
    clock: Clock, cells: Cells
) -> None:
    session = new_session(clock)
    mine = lease(7)
    session.leases.add(mine)

    def answer(target: Target, body: Request) -> Reply:
        if target == MASTER:
            assert isinstance(body, GetCluster)
            return CLUSTER
        return cells.answer(target, body)

    clock.now_us += PERIOD_MS * 1000
    play(clock, session.leases.do_due(), answer)
    assert cells.take() == [(0, 7), (1, 7), (2, 7)]
    nowhere = new_session(clock)
    nowhere.leases.add(mine)
    clock.now_us += PERIOD_MS * 1000
    play(clock, nowhere.leases.do_due(), lambda *_: LOST)
    assert mine.is_open
