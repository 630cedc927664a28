"""A row with very many versions, wherever they are, against the definition of a read; and how much
work a read of it is. (ytsaurus #1844)"""

import sys
from collections.abc import Callable, Iterator
from random import Random
from types import FrameType
from typing import Any, Final

import pytest

from dodona.schema import TableSchema
from dodona.types import (
    KEY_MAX,
    KEY_MIN,
    NULL_TIMESTAMP,
    SYNC_LAST_COMMITTED,
    CellId,
    Key,
    SpecialWrites,
    TableSettings,
    Timestamp,
)
from dodona_tablets.core.rows import hot_rows, store, version
from dodona_tablets.core.rows.version import Version, chain_of, values_between, version_of
from dodona_tablets.core.tablet import scans
from dodona_tablets.core.tablet.scans import scan, scan_arrow
from dodona_tablets.core.tablet.snapshot import lookup
from dodona_tablets.core.tablet.tablet import Tablet
from dodona_tablets.core.upkeep import compaction
from dodona_tablets.core.upkeep.flushing import Flushing
from dodona_wire.messages.data import ArrowPage, Lookup, LookupReply, Scan, ScanArrow, ScanPage
from dodona_wire.rows.arrow import table_of
from unit.tablets.cells import ATOMIC, REVISION, Bench, key

SCHEMA: Final = TableSchema.parse(
    [
        {"name": "id", "type": "int64", "sort_order": "ascending"},
        {"name": "sum", "type": "double", "aggregate": "sum"},
        {"name": "text", "type": "utf8"},
        {"name": "most", "type": "int64", "aggregate": "max", "lock": "other"},
    ]
)
COLUMNS: Final = SCHEMA.value_columns
ALL: Final = 1 << 30
HOT, COLD, LAST = key(5), key(2), key(9)
Values = tuple[Any, ...] | None


class Table:
    """One tablet with a hot row and two others, and all that was ever written to the hot one."""

    def __init__(self) -> None:
        settings = TableSettings(
            dynamic_store_auto_flush_period=3_600_000, min_data_ttl=0, max_data_ttl=0
        )
        self.bench = Bench(schema=SCHEMA, settings=settings)
        self.node = self.bench.nodes[CellId(0)]
        self.tablet: Tablet = self.node.cell.tablets[ATOMIC]
        self.versions: list[Version] = []

    def write(self, at: Timestamp, mask: int, values: tuple[Any, ...], deltas: int = 0) -> None:
        special: SpecialWrites | None = {HOT: (deltas, 0)} if deltas else None
        self.tablet.apply(((HOT, mask, values),), at, special)
        self.versions.append(version_of(at, mask, values, None, deltas))

    def add(self, at: Timestamp, amount: float = 0.1) -> None:
        self.write(at, 1, (amount,), 1)

    def others(self) -> None:
        for one in (COLD, LAST):
            self.tablet.apply(((one, 7, (0.5, "x", 1)),), self.bench.timestamp())

    def flush(self) -> None:
        flushing: Flushing = self.node._flushing
        flushing.rotate(self.tablet)
        self.bench.pass_time(0.2)

    def drop_flushed(self) -> None:
        for passive in list(self.tablet.stores.passive):
            if passive.is_flushed:
                self.tablet.stores.drop(passive.number)

    def expected(self, at: Timestamp, mask: int = 7) -> Values:
        newest_first = sorted(self.versions, key=lambda it: it[0], reverse=True)
        return values_between(chain_of(newest_first), NULL_TIMESTAMP, at, mask, COLUMNS, ALL)

    def look_up(self, at: Timestamp = SYNC_LAST_COMMITTED, mask: int = 7, one: Key = HOT) -> Values:
        found = lookup(self.tablet, Lookup(ATOMIC, REVISION, at, (one,), mask))
        assert isinstance(found, LookupReply)
        return found.rows[0]

    def scanned(self, at: Timestamp) -> dict[Key, Values]:
        lower = KEY_MIN
        rows: dict[Key, Values] = {}
        while True:
            page = scan(self.tablet, Scan(ATOMIC, REVISION, at, lower, KEY_MAX, 7, 10))
            assert isinstance(page, ScanPage)
            rows.update(zip(page.keys, page.rows, strict=True))
            if page.resume is None:
                return rows
            lower = page.resume

    def scanned_as_arrow(self, at: Timestamp) -> list[float]:
        lower, found = KEY_MIN, []
        while True:
            page = scan_arrow(self.tablet, ScanArrow(ATOMIC, REVISION, at, lower, KEY_MAX, 7, 10))
            assert isinstance(page, ArrowPage)
            found += table_of(page.batch).column("sum").to_pylist()
            if page.resume is None:
                return found
            lower = page.resume


@pytest.fixture
def small_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(version, "STEPS_MAX", 4)
    monkeypatch.setattr("dodona_tablets.core.rows.stores.STEPS_MAX", 4)
    monkeypatch.setattr(hot_rows, "TOP_VERSIONS_MAX", 2)
    monkeypatch.setattr(hot_rows, "LANDMARK_STEP", 3)
    monkeypatch.setattr(hot_rows, "LANDMARKS_MAX", 12)
    monkeypatch.setattr(store, "RUNG_STEP", 3)
    monkeypatch.setattr(scans, "HOT_VERSIONS_MIN", 4)
    monkeypatch.setattr(compaction, "TIER_CHUNKS_MAX", 2)


def random_write(table: Table, random: Random) -> None:
    at = table.bench.timestamp() + 10
    table.bench.oracle = at
    if table.versions and random.random() < 0.2:  # another lock group's, that was slow
        at -= random.randrange(1, 40)
        if any(it[0] == at for it in table.versions) or at <= table.tablet.retained_timestamp:
            return
    kind = random.randrange(8)
    if kind == 0:
        table.write(Timestamp(at), 0, ())
    elif kind == 1:
        table.write(Timestamp(at), 7, (random.random(), "a", random.randrange(9)))
    elif kind == 2:
        table.write(Timestamp(at), 2, (str(at),))
    elif kind == 3:
        table.write(Timestamp(at), 5, (random.random(), random.randrange(9)), 5)
    else:
        table.add(Timestamp(at), random.random())


@pytest.mark.usefixtures("small_bounds")
@pytest.mark.parametrize("seed", range(12))
def test_a_read_of_a_hot_row_equals_a_fold_of_all_its_versions(seed: int) -> None:
    """To the last bit, whatever comes late, is flushed, let go of from memory or compacted."""
    random, table = Random(seed), Table()
    table.others()
    for step in range(250):
        random_write(table, random)
        table.node.cell.latest = Timestamp(table.bench.oracle)
        if step % 31 == 30:
            table.flush()
        if step % 47 == 46:
            table.drop_flushed()
        if step % 90 == 89:
            table.bench.pass_time(1)
            table.bench.oracle += 100 << 30  # what was read before is retired
            table.node.cell.latest = Timestamp(table.bench.oracle)
            table.bench.pass_time(0.5)
        retained = table.tablet.retained_timestamp
        stamps = [it[0] for it in table.versions if it[0] > retained]
        at = random.choice([SYNC_LAST_COMMITTED, *stamps[-60:]])
        mask = random.choice([7, 7, 1, 2, 5])
        assert table.look_up(at, mask) == table.expected(at, mask), step
        if step % 5 == 0:
            rows = table.scanned(at)
            assert rows.get(HOT) == table.expected(at), step
        assert table.look_up(one=COLD) == (0.5, "x", 1)
    sums = [0.5, 0.5]
    if (row := table.expected(SYNC_LAST_COMMITTED)) is not None:
        sums.insert(1, row[0])
    assert table.scanned_as_arrow(SYNC_LAST_COMMITTED) == sums
    table.tablet.stores.check()


def lines_of(function: Callable[[], Any]) -> int:
    """How many lines of the tablets' code a call runs: the work that it is."""
    count = 0

    def traced(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal count
        if "dodona_tablets" not in frame.f_code.co_filename:
            return None
        count += event == "line"
        return traced

    before = sys.gettrace()
    sys.settrace(traced)
    try:
        function()
    finally:
        sys.settrace(before)
    return count


def placed(table: Table, count: int, where: str) -> Iterator[int]:
    """Numbers of versions to write; in between they are flushed."""
    flushed_at = {"memory": [], "chunk": [count - 1], "half": [count // 2]}[where]
    for number in range(count):
        yield number
        if number in flushed_at:
            table.bench.oracle = table.bench.oracle + 1
            table.flush()
            table.drop_flushed()


WHERE: Final = ("memory", "chunk", "half")


@pytest.mark.parametrize("where", WHERE)
@pytest.mark.parametrize("is_counter", [True, False])
def test_work_does_not_grow_with_the_number_of_versions(where: str, is_counter: bool) -> None:
    work: dict[int, tuple[int, ...]] = {}
    for count in (200, 4_000):
        table = Table()
        table.write(table.bench.timestamp(), 7, (0.0, "x", 1))
        for _ in placed(table, count, where):
            at = table.bench.timestamp()
            if is_counter:
                table.add(at)
            else:
                table.write(at, 4, (at,))
        table.look_up()  # makes landmarks
        table.scanned(SYNC_LAST_COMMITTED)
        middle = table.versions[count // 2][0]
        assert table.look_up(middle) == table.expected(middle)
        work[count] = (
            lines_of(table.look_up),
            lines_of(lambda at=middle, it=table: it.look_up(at)),  # type: ignore[misc]
            lines_of(lambda it=table: it.scanned(SYNC_LAST_COMMITTED)),  # type: ignore[misc]
        )
    newest, middle_work, scanned = work[4_000]
    assert newest < 200
    assert middle_work < 2_000
    assert scanned < 2_000
    assert newest <= 2 * work[200][0]


def test_a_landmark_moves_up_with_a_row_that_is_read_and_written() -> None:
    table = Table()
    for _ in range(1_000):
        table.add(table.bench.timestamp())
    table.look_up()
    most = 0
    for _ in range(200):
        table.add(table.bench.timestamp())
        most = max(most, lines_of(table.look_up))
    assert most < 1_000
    assert table.look_up() == table.expected(SYNC_LAST_COMMITTED)


def test_landmarks_are_bounded_and_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hot_rows, "LANDMARKS_MAX", 10)
    table = Table()
    rows = [key(number) for number in range(20, 30)]
    for _ in range(300):
        for one in rows:
            table.tablet.apply(((one, 1, (1.0,)),), table.bench.timestamp(), {one: (1, 0)})
    before = table.tablet.stores.memory_bytes
    for one in [*rows, *rows]:
        assert table.look_up(one=one) == (300.0, None, None)
        assert len(table.tablet.stores.hot_rows) <= 10
    assert table.tablet.stores.memory_bytes > before


def test_a_store_with_one_row_of_many_versions_goes_in_slices() -> None:
    made = store.DynamicStore(1)
    for at in range(1, 10_001):
        made.apply(((HOT, 1, (1.0,)),), Timestamp(at), 10)
    slice_count = 1
    while not made.shrink(1_000):
        slice_count += 1
    assert slice_count == 10
