"""Thousands of tablets in one cell: what one costs, and that work on many comes in slices."""

import gc
import tracemalloc
from typing import Any, Final

import msgspec
import pytest

from dodona.schema import TableSchema
from dodona.types import KEY_MAX, CellId, Key, Revision, TabletId, Timestamp
from dodona_tablets.core.mounting.mounting import SLICE_PERIOD_MS, SLICE_TABLETS
from dodona_tablets.core.records import TabletMounted, TabletsDropped, TabletUnmounted
from dodona_tablets.core.tablet.tablet import TABLET_BYTES, Tablet
from dodona_tablets.core.upkeep.flushing import Flushing
from dodona_wire.cores.effects import Append, SendHeartbeat
from dodona_wire.messages.catalog import Assignment, TabletAssignment
from unit.tablets.cells import CLUSTER, SCHEMA, Bench, assignment, put

CELL: Final = CellId(0)
COUNT: Final = 20 * SLICE_TABLETS
EMPTY_BYTES_MAX: Final = 20_000


def described(number: int, *, has_own_columns: bool = False) -> TabletAssignment:
    """As it comes from the master: nothing in it is shared with another."""
    name = f"value {number}" if has_own_columns else "value"
    columns = TableSchema.parse(
        [
            {"name": "id", "type": "int64", "sort_order": "ascending"},
            {"name": name, "type": "int64"},
            {"name": "text", "type": "utf8", "lock": "texts"},
        ]
    ).columns
    lower, upper = Key(b"%06d" % number), Key(b"%06d" % (number + 1))
    made = TabletAssignment(
        TabletId(number), Revision(1), f"//table {number}", columns, "full", lower, upper
    )
    return msgspec.msgpack.decode(msgspec.msgpack.encode(made), type=TabletAssignment)


@pytest.mark.slow("thousands of tablets")
@pytest.mark.part("memory of tablets")
@pytest.mark.parametrize("has_own_columns", [False, True])
def test_an_empty_tablet_needs_little_memory_and_the_estimate_covers_it(
    has_own_columns: bool,
) -> None:
    count = 200
    gc.collect()
    tracemalloc.start()
    try:
        tablets = []
        for number in range(count):
            tablet = Tablet(described(number, has_own_columns=has_own_columns))
            tablet.serve_after(tablet.fence)
            tablet.check_writes(())
            tablets.append(tablet)
        gc.collect()
        each_bytes = tracemalloc.get_traced_memory()[0] / count
    finally:
        tracemalloc.stop()
    assert each_bytes < EMPTY_BYTES_MAX
    if not has_own_columns:
        assert TABLET_BYTES / 2 < each_bytes < TABLET_BYTES


class Many:
    """A cell that is told of many tablets, and what it does about them, slice by slice."""

    def __init__(self) -> None:
        self.bench = Bench()
        self.core = self.bench.nodes[CELL]
        self.wanted = [*self.bench.tables, *map(numbered, range(10, 10 + COUNT))]
        self.records: list[list[Any]] = []
        """Of each batch of events."""
        self.heartbeat_count = 0

    def assign(self, tablets: list[TabletAssignment], *dropped: TabletId) -> None:
        bench = self.bench
        bench.revision = Revision(bench.revision + 1)
        sequence = bench.heartbeats[CELL].sequence
        told = Assignment(tuple(tablets), {}, sequence, bench.revision, CLUSTER, dropped)
        self.core.handle_assignment(told, bench.now)
        self.take()

    def take(self) -> None:
        effects = self.core.take_effects()
        self.records.append([it.record for it in effects if isinstance(it, Append)])
        for effect in effects:
            if isinstance(effect, SendHeartbeat):
                self.heartbeat_count += 1
                self.bench.heartbeats[CELL] = effect.body
            elif hasattr(effect, "token"):
                self.bench.asked.append((CELL, effect.token))

    def work(self) -> int:
        """Until nothing is left. → in how many slices"""
        slice_count = 0
        while self.core.next_deadline() < self.bench.clock_us + 50_000:
            self.bench.clock_us = max(self.bench.clock_us, self.core.next_deadline())
            self.core.tick(self.bench.now)
            self.take()
            slice_count += 1
            assert slice_count < COUNT
        return slice_count

    def largest(self, kind: type[Any]) -> int:
        return max(sum(isinstance(it, kind) for it in batch) for batch in self.records)

    def total(self, kind: type[Any]) -> int:
        return sum(isinstance(it, kind) for batch in self.records for it in batch)


def numbered(number: int) -> TabletAssignment:
    made = assignment(TabletId(number), "full")
    return msgspec.structs.replace(made, columns=SCHEMA.columns, upper=KEY_MAX)


def test_tablets_are_mounted_in_slices_between_which_commits_go_on() -> None:
    many = Many()
    many.assign(many.wanted)
    assert len(many.core.cell.tablets) == 2 + SLICE_TABLETS
    assert many.core.next_deadline() <= many.bench.clock_us + SLICE_PERIOD_MS * 1000
    at = many.bench.commit(put(1, 1))
    assert many.bench.read(1, at) == (1, None)
    many.work()
    assert len(many.core.cell.tablets) == 2 + COUNT
    assert many.total(TabletMounted) >= COUNT - SLICE_TABLETS
    assert many.largest(TabletMounted) <= SLICE_TABLETS
    many.bench.answer_oracle()
    assert len(many.bench.heartbeats[CELL].mounted) == 2 + COUNT


def test_tablets_are_unmounted_and_dropped_in_slices() -> None:
    many = Many()
    many.assign(many.wanted)
    many.work()
    many.bench.answer_oracle()
    many.records.clear()
    many.assign(many.bench.tables)
    many.work()
    assert many.total(TabletUnmounted) == COUNT
    assert many.largest(TabletUnmounted) <= SLICE_TABLETS
    many.bench.pass_time(0.5)
    while stored := many.bench.heartbeats[CELL].stored:
        assert len(stored) <= 1_000
        many.assign(many.bench.tables, *stored)
        many.bench.pass_time(0.5)
    assert many.total(TabletsDropped) >= COUNT / 1_000
    assert len(many.core.cell.tablets) == 2


def test_all_that_a_batch_of_events_changes_is_one_heartbeat() -> None:
    """A heartbeat names every tablet: one for each would be more than quadratic."""
    many = Many()
    many.assign(many.wanted)
    slice_count = many.work()
    assert slice_count >= COUNT / SLICE_TABLETS - 1
    many.heartbeat_count = 0
    for _, token in many.bench.asked:
        many.core.handle_timestamp(token, Timestamp(many.bench.oracle + 1), many.bench.now)
    many.take()
    assert many.heartbeat_count == 1


def test_a_newer_assignment_replaces_the_rest_of_an_older_assignment() -> None:
    many = Many()
    many.assign(many.wanted)
    made = len(many.core.cell.tablets)
    many.assign(many.wanted[:made])
    many.work()
    assert len(many.core.cell.tablets) == made


def test_tablets_without_rows_take_no_part_in_ticks(monkeypatch: pytest.MonkeyPatch) -> None:
    many = Many()
    many.assign(many.wanted)
    many.work()
    many.bench.answer_oracle()
    looked_at: list[TabletId] = []
    original = Flushing._is_due

    def noted(self: Flushing, tablet: Tablet) -> bool:
        looked_at.append(tablet.assignment.tablet)
        return original(self, tablet)

    monkeypatch.setattr(Flushing, "_is_due", noted)
    many.bench.commit(put(1, 1))
    many.bench.pass_time(0.5)
    assert set(looked_at) == {many.bench.tables[0].tablet}


def test_the_statistics_of_a_cell_include_the_memory_of_its_tablets() -> None:
    many = Many()
    before = many.core.statistics().tablet_bytes
    many.assign(many.wanted)
    many.work()
    assert many.core.statistics().tablet_bytes == before + COUNT * TABLET_BYTES
