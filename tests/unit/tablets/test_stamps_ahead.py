"""A table that had no atomicity gets it, and clients' clocks were ahead of the oracle's."""

import pytest
from msgspec.structs import replace

from dodona.errors import SnapshotTooOld
from dodona.types import CellId, Revision, TabletId, Timestamp
from dodona_wire.messages.base import Failure
from dodona_wire.messages.catalog import TabletAssignment, TabletSource
from dodona_wire.messages.data import CommitOne, Committed, TabletModifications, WriteNonAtomic
from dodona_wire.messages.families import Reply
from unit.tablets.cells import ATOMIC, NON_ATOMIC, REVISION, SECOND, Bench, assignment, put

CELLS = HERE, THERE = CellId(0), CellId(1)
ANEW = Revision(2)
AHEAD_S = 30
SAME = assignment(ATOMIC, "none", ANEW)


def bench_with_stamps_ahead() -> Bench:
    bench = Bench(0)
    bench.tables = [assignment(ATOMIC, "none")]
    for cell in CELLS:
        bench.add(cell)
        for value in (1, 2):
            stamp = Timestamp(bench.oracle + AHEAD_S * SECOND)
            bench.ask(WriteNonAtomic(ATOMIC, REVISION, stamp, True, (put(1, value),)), cell)
        bench.assign(cell, [])
    return bench


@pytest.mark.parametrize(
    "wanted",
    [
        assignment(ATOMIC, "full", ANEW),
        replace(assignment(NON_ATOMIC, "full", ANEW), sources=(TabletSource(ATOMIC, HERE),)),
        replace(assignment(NON_ATOMIC, "full", ANEW), sources=(TabletSource(ATOMIC, THERE),)),
    ],
    ids=["the same", "a copy of this cell", "a copy of another"],
)
@pytest.mark.parametrize("is_restarted", [False, True])
def test_commits_are_refused_until_the_oracle_has_passed_them(
    wanted: TabletAssignment, is_restarted: bool
) -> None:
    bench = bench_with_stamps_ahead()
    bench.assign(HERE, [wanted])
    bench.settle()
    for _ in range(AHEAD_S - 2):
        if is_restarted:
            bench.start(HERE)
        bench.pass_time(1)
        bench.settle()
        refusal = commit(bench, wanted)
        assert isinstance(refusal, Failure)
        assert refusal.kind == SnapshotTooOld.kind
    for _ in range(4):
        bench.pass_time(1)
        bench.settle()
    assert isinstance(commit(bench, wanted), Committed)
    tablet = bench.nodes[HERE].cell.tablets[TabletId(wanted.tablet)]
    ((_, (*_, stamped, committed)),) = tablet.dump()
    assert stamped[2] == (2, None)
    assert committed[2] == (3, None)


def commit(bench: Bench, wanted: TabletAssignment) -> Reply | None:
    part = TabletModifications(wanted.tablet, wanted.revision, (put(1, 3),))
    route = bench.ask(CommitOne(bench.begin(), (part,)), HERE)
    bench.answer_oracle()
    return bench.answer(route)


def test_a_table_without_atomicity_is_mounted_without_a_wait_for_the_oracle() -> None:
    bench = bench_with_stamps_ahead()
    bench.assign(HERE, [SAME])
    bench.answer_oracle()
    assert [it.tablet for it in bench.heartbeats[HERE].mounted] == [ATOMIC]
