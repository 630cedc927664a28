"""The checkers on serializable transactions: what they have read, and what refusals may name."""

from collections import Counter

import pytest

from dodona_loadtest.checkers.read_locks import read_locks
from dodona_loadtest.histories.history import (
    Columns,
    Conflict,
    Glance,
    Lock,
    Read,
    RowKey,
    Scan,
    Transaction,
    Write,
)
from dodona_loadtest.workloads.list_append import hash_of
from dodona_tablets.core.node import NodeCore
from simulator.simulation import Simulation
from unit.checkers.script import TABLE, A, B, C, Script, value


@pytest.fixture
def script() -> Script:
    return Script()


def reader(script: Script, start: int, *reads: Read | Scan | Glance) -> Transaction:
    """A serializable transaction that has read this."""
    t = script.begin(start, "reader")
    t.is_serializable = True
    t.reads = [it for it in reads if isinstance(it, Read)]
    t.scans = [it for it in reads if isinstance(it, Scan)]
    t.glances = [it for it in reads if isinstance(it, Glance)]
    return t


def scan(*reads: Read) -> Scan:
    return Scan(TABLE, b"a", b"c", reads)


# What was read is unchanged at the commit


@pytest.mark.parametrize(
    "read", [Read(A, value(1)), scan(Read(A, value(1))), Glance(A, ("v",), value(1))]
)
@pytest.mark.parametrize("is_serializable", [True, False])
def test_a_change_of_what_was_read_is_seen_below_the_commit(
    script: Script, read: Read | Scan | Glance, *, is_serializable: bool
) -> None:
    script.write(1, 2, Write(A, value(1)))
    t = reader(script, 3, read)
    t.is_serializable = is_serializable
    script.write(4, 5, Write(A, value(2)), session="other")
    script.finish(t, 6, Write(C, value(3)))
    assert script.promises() == ({"VALID"} if is_serializable else set())


@pytest.mark.parametrize("read", [Read(B, None), scan(), Glance(B, ("v",), None)])
def test_a_row_that_came_is_seen_below_the_commit(
    script: Script, read: Read | Scan | Glance
) -> None:
    t = reader(script, 3, read)
    script.write(4, 5, Write(B, value(2)), session="other")
    script.finish(t, 6, Write(C, value(3)))
    assert script.promises() == {"VALID"}


def test_own_writes_and_later_ones_change_nothing(script: Script) -> None:
    t = reader(script, 3, Read(A, None), scan())
    script.finish(t, 4, Write(A, value(1)))
    script.write(5, 6, Write(B, value(2)), session="other")
    assert script.check() == []


def test_a_refused_transaction_may_have_read_what_changed(script: Script) -> None:
    t = reader(script, 3, Read(A, None))
    script.write(4, 5, Write(A, value(2)), session="other")
    script.finish(t, None, Write(C, value(3)), status="fail")
    assert script.check() == []


@pytest.mark.parametrize(
    ("names", "seen", "is_valid"),
    [(("v",), value(1), True), (("w",), (), False), ((), (), True)],
)
def test_columns_that_were_not_read_may_change(
    script: Script, names: tuple[str, ...], seen: Columns, *, is_valid: bool
) -> None:
    script.write(1, 2, Write(A, value(1), (1,)))
    t = reader(script, 3, Glance(A, names, seen))
    script.write(4, 5, Write(A, (("w", 2),), (2,)), session="other")
    script.finish(t, 6, Write(C, value(3)))
    script.dump[1] = script.dump[1]._replace(columns=(("w", 2),))
    assert script.promises() == (set() if is_valid else {"VALID"})


# What the reads exclude


@pytest.mark.parametrize(
    ("reads", "held"),
    [
        ((), ""),
        ((Read(B, None),), "b"),
        ((Read(A, None), Glance(C, ("v",), None)), "abc"),
        ((scan(),), "ab"),
        ((scan(), Read(C, None)), "abc"),
        ((Read(RowKey("//other", b"b"), None),), ""),
    ],
)
def test_reads_lock_all_rows_between_the_first_and_the_last(
    script: Script, reads: tuple[Read | Scan | Glance, ...], held: str
) -> None:
    t = reader(script, 3, *reads)
    found = [it for it in (A, B, C) if read_locks(t, it)]
    assert "".join(it.key.decode() for it in found) == held
    t.is_serializable = False
    assert not any(read_locks(t, it) for it in (A, B, C))


@pytest.mark.parametrize(("row", "is_real"), [(A, True), (B, False)])
def test_a_refusal_may_name_a_writer_of_what_was_read(
    script: Script, row: RowKey, *, is_real: bool
) -> None:
    t = reader(script, 3, Read(A, None))
    script.write(4, 5, Write(A, value(1)), Write(B, value(1)), session="other")
    script.finish(t, None, Write(C, value(3)), status="fail")
    t.conflict = Conflict((row,), None, 5)
    assert script.promises() == (set() if is_real else {"FALSE-CONFLICT"})


@pytest.mark.parametrize(("row", "is_real"), [(A, True), (B, False)])
def test_a_refusal_may_name_a_reader_of_what_is_written(
    script: Script, row: RowKey, *, is_real: bool
) -> None:
    t = reader(script, 3, Read(A, None))
    loser = script.begin(4, "loser")
    asked_us = script.now()
    script.finish(loser, None, Write(A, value(1)), Write(B, value(1)), status="fail")
    loser.conflict = Conflict((row,), 3, None)
    script.finish(t, 6, Write(C, value(3)))
    t.commit_us = asked_us
    assert script.promises() == (set() if is_real else {"FALSE-CONFLICT"})


def test_two_readers_of_a_row_do_not_refuse_each_other(script: Script) -> None:
    t, loser = reader(script, 3, Read(A, None)), reader(script, 4, Read(A, None))
    loser.session = "loser"
    asked_us = script.now()
    script.finish(loser, None, locks=(Lock(B, False),), status="fail")
    loser.conflict = Conflict((A,), 3, None)
    script.finish(t, 6, Write(C, value(3)))
    t.commit_us = asked_us
    assert script.promises() == {"FALSE-CONFLICT"}


# What the workload contains


def count(run: Simulation, counts: Counter[str]) -> None:
    pivots = [it[0] for it in run.workload.table.pivot_keys[1:]]
    tablet_of = {
        run.workload.table.row_key({"id": number}): sum(hash_of(number) >= it for it in pivots)
        for number in range(500)
    }
    for t in run.history.transactions:
        written = {tablet_of[it.row] for it in t.writes}
        if t.is_serializable and t.writes:
            counts[t.status] += 1
            counts["read elsewhere"] += any(tablet_of[it.row] not in written for it in t.reads)
            counts["found nothing"] += any(not it.reads for it in t.scans)
            counts["absent"] += any(it.columns is None for it in t.reads)
            counts["stopped early"] += any(it.columns == () for it in t.glances)
            counts["refused by name"] += t.conflict is not None
        counts["blind"] += t.is_blind and t.status == "ok"


@pytest.mark.slow("many seeds")
def test_the_serializable_workload_contains_phantoms_and_other_cells() -> None:
    counts: Counter[str] = Counter()
    for seed in range(12):
        run = Simulation(seed, 6, "serializable", NodeCore)
        assert run.run().violations == []
        count(run, counts)
    kinds = "ok", "fail", "read elsewhere", "found nothing", "absent", "stopped early", "blind"
    assert all(counts[kind] > 10 for kind in kinds), counts
    assert counts["refused by name"], counts
