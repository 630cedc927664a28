"""The watch over early locks sees what a cell does wrong, and nothing else."""

import pytest

from dodona.types import CellId, TransactionId
from dodona_tablets.core.cell.cell import Cell
from dodona_wire.messages.base import Failure
from dodona_wire.messages.data import CommitOne, ConditionalCommit
from dodona_wire.messages.locks import AcquireLocks, ReleaseLocks, TabletKeys
from dodona_wire.types import Owner
from simulator.lines import LineWatch
from unit.tablets.cells import ATOMIC, REVISION, Bench, changes, key, put


class Watched:
    """A cell that is watched after each request."""

    def __init__(self) -> None:
        self.bench = Bench(1)
        self.watch = LineWatch("cell")

    @property
    def cell(self) -> Cell:
        return self.bench.nodes[CellId(0)].cell

    def lock(self, *ids: int) -> Owner:
        owner = Owner(self.bench.timestamp())
        keys = TabletKeys(ATOMIC, REVISION, tuple(map(key, ids)))
        self.bench.ask(AcquireLocks(owner, (keys,), 10_000, 2_000))
        self.watch.look(self.cell)
        return owner

    def promises(self) -> list[str]:
        self.watch.look(self.cell)
        return [it.promise for it in self.watch.violations]


@pytest.fixture
def watched() -> Watched:
    return Watched()


def test_what_is_right_breaks_no_promise(watched: Watched) -> None:
    first = watched.lock(1, 2)
    watched.lock(2, 3)
    watched.lock(3)
    watched.bench.ask(ReleaseLocks(first))
    assert watched.promises() == []


def test_two_owners_of_one_row_are_seen(watched: Watched) -> None:
    watched.lock(1)
    second = watched.lock(1)
    watched.cell.early.requests[second].is_granted = True
    assert watched.promises() == ["MUTEX"]


def test_a_transaction_that_holds_a_locked_row_is_seen(watched: Watched) -> None:
    start = watched.bench.begin()
    watched.bench.commit_one(start, put(1, 1))
    owner = watched.lock(1)
    watched.cell.early.requests[owner].is_granted = True
    assert watched.promises() == ["MUTEX"]


def test_an_owner_that_comes_again_is_seen(watched: Watched) -> None:
    owner = watched.lock(1)
    request = watched.cell.early.requests[owner]
    watched.bench.ask(ReleaseLocks(owner))
    watched.watch.look(watched.cell)
    watched.cell.early.join(request)
    assert watched.promises() == ["MUTEX"]


def test_an_owner_of_before_a_crash_is_seen(watched: Watched) -> None:
    watched.lock(1)
    watched.watch.note_crash()
    assert watched.promises() == ["MUTEX"]


def test_one_that_passes_an_earlier_one_is_seen(watched: Watched) -> None:
    watched.lock(1)
    watched.lock(1, 2)
    later = watched.lock(2)
    watched.cell.early.requests[later].is_granted = True
    assert watched.promises() == ["FIFO"]


def test_one_that_waits_for_nobody_is_seen(watched: Watched) -> None:
    owner = watched.lock(1)
    watched.cell.early.requests[owner].is_granted = False
    assert watched.promises() == ["FIFO"]


@pytest.mark.parametrize("is_kept", [True, False])
def test_an_owner_that_loses_a_row_it_kept_is_seen(watched: Watched, is_kept: bool) -> None:
    owner, start = watched.lock(1), TransactionId(watched.bench.begin())
    request = CommitOne(start, (changes(put(1, 1)),))
    watched.watch.note_request(ConditionalCommit(request, (), owner))
    if not is_kept:
        watched.bench.ask(ReleaseLocks(owner))
    failure = Failure("transaction_conflict", "lost", {"key": {"id": 1}})
    watched.cell.outcomes.put(start, failure)
    assert watched.promises() == (["NOLOSE"] if is_kept else [])
