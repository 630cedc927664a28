"""Rows move from store to store and old versions go, against a model that forgets nothing.

The machine writes, changes aggregates and deletes in an atomic and a non-atomic table, keeps some
transactions prepared for long, rotates, flushes, compacts and cuts the log between any two steps,
lets time pass and restarts the cell. Whoever may read sees what the model says, whoever reads below
the retained timestamp is refused, and a restart changes nothing. Whoever reads on and on what has
changed is given every version once.
"""

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from dodona.schema import TableSchema
from dodona.types import (
    KEY_MAX,
    KEY_MIN,
    NULL_TIMESTAMP,
    CellId,
    SpecialWrites,
    TableSettings,
    TabletId,
    Timestamp,
    TransactionId,
    Write,
)
from dodona_tablets.core.rows.version import linked
from dodona_wire.cores.fault_points import FaultPoint
from dodona_wire.messages.base import Failure
from dodona_wire.messages.data import (
    ArrowPage,
    CommitOne,
    Committed,
    CountVersions,
    Lookup,
    Prepare,
    Prepared,
    ScanVersions,
    TabletModifications,
    WriteNonAtomic,
    Written,
)
from dodona_wire.rows.arrow import table_of
from suite.levels import examples
from unit.tablets.cells import ATOMIC, NON_ATOMIC, REVISION, SECOND, Bench

SCHEMA = TableSchema.parse(
    [
        {"name": "id", "type": "int64", "sort_order": "ascending"},
        {"name": "a", "type": "int64"},
        {"name": "b", "type": "int64", "lock": "group_b"},
        {"name": "sum", "type": "int64", "aggregate": "sum", "lock": "group_sum"},
    ]
)
FULL, SUM = 7, 4
CELL = CellId(0)
TABLETS = (ATOMIC, NON_ATOMIC)
HOLD_BACK_S = {ATOMIC: 75, NON_ATOMIC: 5}
"""The life of a transaction and some slack, or of a read: nothing younger ever goes."""

rows = st.integers(0, 2)
changes = st.fixed_dictionaries(
    {}, optional={name: st.integers(-3, 3) for name in ("a", "b", "sum")}
)
Change = dict[str, int]
Entry = tuple[int, Change | None, bool]
"""When, what (None deleted it), and whether its sum is a change."""
Fed = tuple[int, int, Change | None, bool]
"""A row, and an entry of it."""


POINTS = (FaultPoint.ROTATE_EARLY, FaultPoint.COMPACT_EARLY, FaultPoint.CHECKPOINT_EARLY)


class StoresMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.points: list[FaultPoint] = []
        """What the cell does too early just now."""

    @initialize(merges=st.booleans())
    def begin(self, merges: bool) -> None:
        allowed = TableSettings(min_data_ttl=0, max_data_ttl=0, merge_rows_on_flush=merges)
        fault_at = self.points.__contains__
        self.bench = Bench(2, schema=SCHEMA, settings=allowed, fault_at=fault_at)
        self.bench.holds_jobs = True
        self.shown = self.bench.nodes[CELL].cell.tablets[NON_ATOMIC].fence - 1
        self.model: dict[tuple[TabletId, int], list[Entry]] = {
            (tablet, row): [] for tablet in TABLETS for row in range(3)
        }
        self.prepared: list[tuple[TransactionId, Timestamp, int, Entry]] = []
        self.asked: list[tuple[object, TransactionId, int, Entry]] = []
        self.fed: dict[TabletId, tuple[int, list[Fed]]] = dict.fromkeys(TABLETS, (1, []))

    def parts(self, row: int, change: Change, is_delta: bool) -> tuple[Write, SpecialWrites | None]:
        key = SCHEMA.key_of({"id": row})
        if not change:
            return (key, 0, ()), None
        write = SCHEMA.write_of({"id": row, **change}, is_update=True)
        return write, {key: (SUM, 0)} if is_delta and "sum" in change else None

    @rule(row=rows, change=changes, is_delta=st.booleans(), stays=st.booleans())
    def commit(self, row: int, change: Change, is_delta: bool, stays: bool) -> None:
        write, special = self.parts(row, change, is_delta)
        part = TabletModifications(ATOMIC, REVISION, (write,), (), special)
        start = self.bench.begin()
        cells = (CELL, CellId(1))
        request = Prepare(start, cells, (part,)) if stays else CommitOne(start, (part,))
        route = self.bench.ask(request)
        self.bench.answer_oracle()
        entry = (0, change or None, is_delta and "sum" in change)
        self.asked.append((route, start, row, entry))
        self.take_answers()

    def take_answers(self) -> None:
        """Those who met a prepared row are answered later, or never after a restart."""
        unanswered = []
        for asked in self.asked:
            route, start, row, entry = asked
            reply = self.bench.answer(route)
            if isinstance(reply, Committed):
                self.model[ATOMIC, row].append((reply.timestamp, *entry[1:]))
            elif isinstance(reply, Prepared):
                self.prepared.append((start, reply.timestamp, row, entry))
            elif reply is None:
                unanswered.append(asked)
        self.asked = unanswered

    @precondition(lambda self: self.prepared)
    @rule(is_commit=st.booleans())
    def finish(self, is_commit: bool) -> None:
        """At its prepare timestamp, perhaps long ago: as a recovery does."""
        start, at, row, (_, change, is_delta) = self.prepared.pop()
        self.bench.decide(start, at if is_commit else None)
        self.bench.settle()
        if is_commit:
            self.model[ATOMIC, row].append((at, change, is_delta))
        self.take_answers()

    @rule(row=rows, change=changes, is_delta=st.booleans(), behind_s=st.integers(0, 59))
    def write(self, row: int, change: Change, is_delta: bool, behind_s: int) -> None:
        """Its stamp is raised above the tablet's last one, were that gone or not, and above what
        was shown, and to what is retained."""
        write, special = self.parts(row, change, is_delta)
        self.bench.oracle += 1
        stamp = Timestamp(self.bench.nodes[CELL].cell.latest - behind_s * SECOND)
        known = self.model[NON_ATOMIC, row]
        entries = [it for at in range(3) for it in self.model[NON_ATOMIC, at]]
        retained = self.bench.nodes[CELL].cell.tablets[NON_ATOMIC].retained_timestamp
        at = max([stamp, self.shown + 1, retained, *(entry[0] + 1 for entry in entries)])
        request = WriteNonAtomic(NON_ATOMIC, REVISION, stamp, True, (write,), special)
        assert self.bench.answer(self.bench.ask(request)) == Written(1, Timestamp(at))
        known.append((at, change or None, is_delta and "sum" in change))

    @rule(seconds=st.sampled_from([1, 40, 130]))
    def pass_time(self, seconds: int) -> None:
        for _ in range(seconds):
            self.bench.clock_us += 1_000_000
            self.bench.oracle += SECOND
            for _ in range(2):
                self.bench.nodes[CELL].tick(self.bench.now)
                self.bench.carry_out(CELL)
                self.bench.asked.pop() if self.bench.asked else None
        self.bench.asked.clear()
        self.bench.nodes[CELL].handle_timestamp(
            "oracle time", self.bench.timestamp(), self.bench.now
        )
        self.bench.in_flight.clear()
        self.take_answers()

    @rule(points=st.lists(st.sampled_from(POINTS), unique=True))
    def change_store(self, points: list[FaultPoint]) -> None:
        """One tick at which these things are done that nobody would do yet."""
        self.points[:] = points
        self.bench.clock_us += 100_000
        self.bench.nodes[CELL].tick(self.bench.now)
        self.points.clear()
        self.bench.carry_out(CELL)
        self.bench.asked.clear()
        self.bench.in_flight.clear()

    @rule()
    def finish_jobs(self) -> None:
        self.bench.finish_jobs()

    @rule()
    def restart(self) -> None:
        before = self.everything()
        self.bench.start(CELL)
        self.shown = self.bench.nodes[CELL].cell.tablets[NON_ATOMIC].fence - 1
        self.asked.clear()
        assert self.everything() == before

    def everything(self) -> list[Any]:
        """All versions that may still be told apart: of older ones the store in memory may have
        more than its chunk, which is all that a restart finds."""
        found: list[Any] = []
        for it in TABLETS:
            tablet = self.bench.nodes[CELL].cell.tablets[it]
            retained = tablet.retained_timestamp
            for key, versions in tablet.stores.rows():
                young = [linked(version, None) for version in versions if version[0] > retained]
                if young:
                    found.append((it, retained, key, young))
        return found

    @rule(tablet=st.sampled_from(TABLETS), row=rows, ago_s=st.integers(0, 200))
    def read(self, tablet: TabletId, row: int, ago_s: int) -> None:
        cell = self.bench.nodes[CELL].cell
        at = Timestamp(cell.latest - ago_s * SECOND)
        route = self.bench.ask(Lookup(tablet, REVISION, at, (SCHEMA.key_of({"id": row}),), FULL))
        reply = self.bench.answer(route)
        retained = cell.tablets[tablet].retained_timestamp
        if at < retained:
            assert isinstance(reply, Failure)
            assert reply.kind == "snapshot_too_old"
            assert reply.attributes["retained_timestamp"] == retained
        elif reply is None:
            assert any(on == row and below <= at for _, below, on, _ in self.prepared)
        else:
            assert reply.rows[0] == self.seen(tablet, row, at)  # type: ignore[union-attr]
            if tablet == NON_ATOMIC:
                self.shown = max(self.shown, at)

    @rule(tablet=st.sampled_from(TABLETS), ago_s=st.integers(0, 100), count=st.integers(1, 9))
    def go_on(self, tablet: TabletId, ago_s: int, count: int) -> None:
        """Read what has changed since the last time, page by page."""
        cell = self.bench.nodes[CELL].cell
        since, known = self.fed[tablet]
        at = Timestamp(max(cell.latest - ago_s * SECOND, since))
        found = self.changes_of(tablet, Timestamp(since), at, count)
        everything = sorted(
            (row, *entry) for row in range(3) for entry in self.model[tablet, row] if entry[0] <= at
        )
        if isinstance(found, Failure):
            retained = cell.tablets[tablet].retained_timestamp
            assert found.kind == "snapshot_too_old"
            assert since < retained
            kept = [entry for entry in everything if entry[1] <= retained]
            self.fed[tablet] = retained, kept
        elif found is None:
            assert any(below <= at for _, below, _, _ in self.prepared)
        else:
            known = known + found
            assert sorted(known) == everything
            self.fed[tablet] = at, known
            if tablet == NON_ATOMIC:
                self.shown = max(self.shown, at)

    def changes_of(
        self, tablet: TabletId, since: Timestamp, at: Timestamp, count: int
    ) -> list[Fed] | Failure | None:
        found: list[Fed] = []
        lower, lower_at = KEY_MIN, NULL_TIMESTAMP
        while True:
            rest = lower, KEY_MAX, FULL, count, lower_at
            page = self.bench.answer(
                self.bench.ask(ScanVersions(tablet, REVISION, since, at, *rest))
            )
            if page is None or isinstance(page, Failure):
                return page
            assert isinstance(page, ArrowPage)
            rows = table_of(page.batch).to_pylist()
            assert len(rows) <= count
            found += map(fed_of, rows)
            if page.resume is None:
                counting = CountVersions(tablet, REVISION, since, at, KEY_MIN, KEY_MAX)
                counts = self.bench.answer(self.bench.ask(counting))
                assert isinstance(counts, ArrowPage)
                assert sum(table_of(counts.batch).column(1).to_pylist()) == len(found)
                return found
            lower, lower_at = page.resume, page.resume_timestamp

    @rule(tablet=st.sampled_from(TABLETS), count=st.integers(1, 9))
    def begin_anew(self, tablet: TabletId, count: int) -> None:
        """Whatever is left of all changes comes to what a reader sees."""
        at = self.bench.nodes[CELL].cell.latest
        found = self.changes_of(tablet, NULL_TIMESTAMP, at, count)
        if isinstance(found, list):
            left = {row: [it[1:] for it in found if it[0] == row] for row in range(3)}
            assert all(self.seen(tablet, row, at) == folded(left[row], at) for row in range(3))
            self.fed[tablet] = (
                at,
                sorted(
                    (row, *entry)
                    for row in range(3)
                    for entry in self.model[tablet, row]
                    if entry[0] <= at
                ),
            )
            if tablet == NON_ATOMIC:
                self.shown = max(self.shown, at)

    def seen(self, tablet: TabletId, row: int, at: int) -> tuple[Any, ...] | None:
        return folded(self.model[tablet, row], at)

    @invariant()
    def nothing_goes_that_a_transaction_may_need(self) -> None:
        cell = self.bench.nodes[CELL].cell
        for number, tablet in cell.tablets.items():
            held_back = HOLD_BACK_S[number] * SECOND
            assert tablet.retained_timestamp <= max(cell.latest - held_back, 1)
            if tablet.is_atomic:
                assert all(tablet.retained_timestamp < start for start, *_ in self.prepared)
            tablet.stores.check()


def folded(entries: list[Entry], at: int) -> tuple[Any, ...] | None:
    """The values that a reader sees."""
    values: dict[str, int] | None = None
    for stamp, change, is_delta in sorted(entries, key=lambda it: it[0]):
        if stamp > at:
            break
        if change is None:
            values = None
            continue
        values = values or {}
        total = values.get("sum", 0) + change.get("sum", 0)
        values |= change | ({"sum": total} if is_delta else {})
    return None if values is None else (values.get("a"), values.get("b"), values.get("sum"))


def fed_of(row: dict[str, Any]) -> Fed:
    change = {
        column.name: row[column.name]
        for bit, column in enumerate(SCHEMA.value_columns)
        if row["$mask"] >> bit & 1
    }
    return row["id"], row["$timestamp"], change or None, row["$delta"] != 0


TestStores = StoresMachine.TestCase
TestStores.settings = settings(max_examples=examples(100), stateful_step_count=50, deadline=None)
