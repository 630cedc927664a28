"""What sessions do in a run, and what they record."""

from collections import Counter
from random import Random
from typing import Any, cast

import pytest

from dodona._core.protocol.steps import Calls, Protocol
from dodona._core.session import Session
from dodona.schema import Column
from dodona.types import CellId, Timestamp, TransactionId
from dodona_loadtest.histories.history import History, RowKey, Transaction, Write
from dodona_loadtest.histories.recorder import Recorder
from dodona_loadtest.histories.shape import TableShape
from dodona_loadtest.workloads import Bank, Blind, Cycle
from dodona_loadtest.workloads.blind import ROWS_PER_TABLET
from dodona_tablets.core.node import NodeCore
from dodona_wire.messages.data import CommitOne, Prepare
from simulator.simulation import Simulation

SHAPE = TableShape(
    "//t",
    (
        Column("id", "int64", sort_order="ascending"),
        Column("p", "int64", lock="left"),
        Column("q", "utf8", lock="right"),
        Column("r", "utf8"),
    ),
    ((),),
)
KEY = SHAPE.row_key({"id": 7})

# What is recorded


def test_an_overwrite_sets_absent_columns_to_null_and_takes_all_groups() -> None:
    write = SHAPE.write({"id": 7, "p": 1}, is_update=False)
    assert write == Write(KEY, (("p", 1), ("q", None), ("r", None)), (0, 1, 2))


@pytest.mark.parametrize(
    ("row", "groups"), [({"p": 1}, (1,)), ({"q": "x"}, (2,)), ({"r": "x", "p": 1}, (0, 1))]
)
def test_an_update_takes_the_lock_groups_of_its_columns(
    row: dict[str, Any], groups: tuple[int, ...]
) -> None:
    write = SHAPE.write({"id": 7} | row, is_update=True)
    assert write == Write(KEY, tuple(sorted(row.items())), groups)


def test_a_row_is_recorded_without_its_nulls() -> None:
    assert SHAPE.columns_read({"id": 7, "p": None, "q": "x", "r": None}) == (("q", "x"),)
    assert SHAPE.columns_read(None) is None


def test_keys_sort_as_rows_do() -> None:
    keys = [SHAPE.row_key({"id": number}) for number in (-5, -1, 0, 3, 200)]
    assert keys == sorted(keys)
    assert RowKey("//t", SHAPE.bound((3,), b"")) == keys[3]
    assert SHAPE.bound(None, b"\xff") == b"\xff"


# What the workloads demand


def test_a_bank_that_does_not_add_up() -> None:
    bank = Bank(Random(1))
    rows = [{"id": 0, "balance": bank.total - 1}, {"id": 1, "balance": 1}]
    assert bank.problem(rows) is None
    assert bank.problem(rows[1:]) == f"the total is 1, not {bank.total}"


def test_a_ring_that_is_broken() -> None:
    cycle = Cycle(Random(1))
    count = cycle.node_count
    ring = [{"node": node, "next": (node + 1) % count} for node in range(count)]
    assert cycle.problem(ring) is None
    assert cycle.problem(ring[:-1]) is not None, "a node is missing"
    assert cycle.problem([{"node": 0, "next": 0}, *ring[1:]]) is not None, "two rings"
    assert cycle.problem([*ring[:-1], {"node": count - 1, "next": 1}]) is not None, "a lasso"
    assert cycle.problem([]) is not None


def test_a_bundle_that_is_not_of_one_write() -> None:
    blind = Blind(Random(1))
    solo, local, wide = blind.narrow[1], blind.narrow[0], blind.wide[0]
    assert len(solo) == 1
    assert len(wide) == blind.tablet_count
    rows = [{"id": row, "mark": "x", "count": 1} for row in (*solo, *local, *wide)]
    assert blind.problem([]) is None, "all erased"
    assert blind.problem(rows) is None
    assert blind.problem(rows[:-1]) is not None, "a row is missing"
    assert blind.problem([*rows[:-1], rows[-1] | {"mark": "y"}]) is not None, "another mark"
    assert blind.problem([*rows[:-1], rows[-1] | {"count": 2}]) is not None, "another count"
    memo = {"id": local[0], "mark": None, "count": None, "memo": "x"}
    assert blind.problem([memo]) is None, "annotated after it was erased"


def test_every_row_of_the_blind_workload_is_in_one_bundle() -> None:
    for seed in range(10):
        blind = Blind(Random(seed))
        rows = sorted(row for bundle in blind.bundles for row in bundle)
        assert rows == list(range(ROWS_PER_TABLET * blind.tablet_count))
        for bundle in blind.narrow:
            assert bundle[0] // ROWS_PER_TABLET == bundle[-1] // ROWS_PER_TABLET


# Writes without a transaction


def blind_run(seed: int) -> list[Transaction]:
    run = Simulation(seed, 10, "blind", NodeCore)
    assert run.run().violations == []
    return run.history.transactions


@pytest.mark.slow("many seeds")
def test_the_blind_workload_contains_erasures_renames_and_refusals() -> None:
    """Writes to one cell and to several, erasures, refusals, and names that were refused."""
    counts: Counter[str] = Counter()
    for t in (t for seed in range(20) for t in blind_run(seed)):
        if t.is_blind:
            counts[f"blind {t.status}"] += 1
            counts["erased"] += all(write.columns is None for write in t.writes)
            counts["renamed"] += len(t.names) > 1
            counts["several rows"] += len(t.writes) > 1
        elif t.commit_us == t.begin_us:
            counts["several cells"] += 1
        elif t.conflict is not None:
            counts["conflicts"] += 1
    for kind in ("blind ok", "erased", "several rows", "several cells", "conflicts"):
        assert counts[kind] > 30, counts
    assert counts["renamed"] > 5, counts
    assert counts["blind fail"] > 5, counts


class Steps:
    """A session whose writes are these steps."""

    def __init__(self, *requests: CommitOne | Prepare) -> None:
        self._requests = requests

    def write_rows(self, *_: Any) -> Protocol[Timestamp]:
        for request in self._requests:
            yield Calls(((0, request),))
        return Timestamp(1_000)


def recorded(*requests: CommitOne | Prepare) -> Transaction:
    """What the history has of a write that goes out like that."""
    history, session = History(), cast("Session", Steps(*requests))
    writing = Recorder(session, "s", history, Random(1), lambda: 0).write(SHAPE, [{"id": 7}])
    assert len(list(writing)) == len(requests)
    (record,) = history.transactions
    return record


def to_one(number: int) -> CommitOne:
    return CommitOne(TransactionId(number), (), True)


def to_several(number: int) -> Prepare:
    return Prepare(TransactionId(number), (CellId(0), CellId(1)), ())


def test_a_restarted_write_to_several_cells_has_its_last_start() -> None:
    """What was committed between the two is no conflict. Found under faults (seed 40, 20 s)."""
    record = recorded(to_several(5), to_several(5), to_several(9))
    assert (record.start, record.names, record.is_blind) == (9, [5], False)


def test_a_write_is_blind_if_its_last_attempt_went_to_one_cell() -> None:
    """Its rows may come to lie in fewer cells, or in more, from one attempt to the next."""
    record = recorded(to_several(5), to_one(3), to_one(3), to_one(4))
    assert (record.start, record.begun_us, record.is_blind) == (0, None, True)
    assert record.names == [5, 3, 4]
    record = recorded(to_one(3), to_several(5))
    assert (record.start, record.names, record.is_blind) == (5, [3], False)


def test_a_blind_write_is_recorded_with_names_and_without_a_start() -> None:
    for t in blind_run(1):
        if t.is_blind:
            assert t.begun_us is None
            assert t.start == 0
            assert not t.reads
            assert t.names or t.status != "ok"
        elif t.status == "ok":
            assert t.begun_us is not None
            assert t.start > 0
