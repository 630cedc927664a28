"""Row locks and commits of one cell, against a small model of the rules in the document.

The machine begins transactions, prepares and finishes them in any order, on few rows and lock
groups, lets some of them wait, and restarts the cell. The model keeps, per row and group, what the
YTsaurus document names: who holds it and how, and three times. It knows nothing of masks, versions
or waiting queues.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from dodona.schema import TableSchema
from dodona.types import (
    SYNC_LAST_COMMITTED,
    CellId,
    LockType,
    SpecialWrites,
    TableSettings,
    Timestamp,
    TransactionId,
    Write,
)
from dodona_wire.messages.base import Failure
from dodona_wire.messages.data import (
    Aborted,
    Committed,
    Lookup,
    LookupReply,
    Prepare,
    Prepared,
    RowLock,
    TabletModifications,
)
from suite.levels import examples
from unit.tablets.cells import ATOMIC, REVISION, Bench

SCHEMA = TableSchema.parse(
    [
        {"name": "id", "type": "int64", "sort_order": "ascending"},
        {"name": "a", "type": "int64"},
        {"name": "b", "type": "int64", "lock": "group_b"},
        {"name": "c", "type": "int64", "lock": "group_c"},
    ]
)
MAIN, GROUP_B, GROUP_C = GROUPS = range(3)
ROWS = range(2)
COLUMNS = {MAIN: "a", GROUP_B: "b", GROUP_C: "c"}
UNPREPARED = 1 << 62
CELL = CellId(0)

Writes = dict[int, tuple[frozenset[int] | None, frozenset[int]]]
"""By row, the groups written (None deletes it), and those that are to be shared."""

Demand = tuple[int, LockType, frozenset[int]]
"""A row, how it is locked, and in which groups."""


@dataclass
class Group:
    """`holders` are lock types by start timestamp, one or more each; `times` by lock type."""

    holders: dict[int, set[LockType]] = field(default_factory=dict)
    times: dict[LockType, int] = field(default_factory=dict)


@dataclass
class Running:
    """`demands` are those of its writes, and once it holds them, of its locks too."""

    start: int
    demands: list[Demand]
    locks: list[Demand]
    writes: Writes
    route: object = None
    prepared: int = UNPREPARED


STOPPED_BY: dict[LockType, tuple[LockType, ...]] = {
    "exclusive": ("exclusive", "shared_write", "shared_weak", "shared_strong"),
    "shared_write": ("exclusive", "shared_weak", "shared_strong"),
    "shared_weak": ("exclusive", "shared_write"),
    "shared_strong": ("exclusive", "shared_write"),
}
"""Whose locks, held or committed since, stand in the way of this one."""

# Small transactions: large ones only ever stop each other.
groups = st.frozensets(st.sampled_from(GROUPS), min_size=1, max_size=2)
writes = st.dictionaries(
    st.sampled_from(ROWS),
    st.tuples(st.one_of(groups, groups, groups, st.none()), st.frozensets(st.sampled_from(GROUPS))),
    max_size=1,
)
lock_types: st.SearchStrategy[LockType] = st.sampled_from(
    ("shared_weak", "shared_strong", "exclusive", "shared_write")
)
locks = st.lists(st.tuples(st.sampled_from(ROWS), lock_types, groups), max_size=2)


def mask_of(groups: Iterable[int]) -> int:
    return sum(1 << group for group in groups)


class LockMachine(RuleBasedStateMachine):
    """Every transaction has a second participant that is never asked, so that prepares stay."""

    def __init__(self) -> None:
        super().__init__()
        allowed = TableSettings(enable_shared_write_locks=True)
        self.bench = Bench(2, schema=SCHEMA, settings=allowed)
        self.groups = {(row, group): Group() for row in ROWS for group in GROUPS}
        self.commits: dict[int, list[tuple[int, bool]]] = {row: [] for row in ROWS}
        """When each row was written, and whether it was there afterwards."""
        self.begun: list[int] = []
        self.fenced: list[int] = []
        self.waiting: list[Running] = []
        self.pending: list[Running] = []

    def begin(self) -> None:
        self.begun += [self.bench.begin() for _ in range(3)]

    @rule(asked=st.lists(st.tuples(st.integers(0, 99), writes, locks), min_size=1, max_size=5))
    def prepare(self, asked: list[tuple[int, Writes, list[Demand]]]) -> None:
        for pick, writes, locks in asked:
            if len(self.begun) < 3:
                self.begin()
            self.prepare_one(pick, writes, locks)

    def prepare_one(self, pick: int, writes: Writes, locks: list[Demand]) -> None:
        """A write of no groups is a deletion, which takes the main lock."""
        start = self.begun.pop(pick % len(self.begun))
        changes: list[Write] = []
        special: SpecialWrites = {}
        demands: list[Demand] = []
        for row, (written, shared) in writes.items():
            key = SCHEMA.key_of({"id": row})
            if written is None:
                changes.append((key, 0, ()))
                demands.append((row, "exclusive", frozenset({MAIN})))
                continue
            values = {COLUMNS[group]: start for group in written}
            changes.append(SCHEMA.write_of({"id": row, **values}, is_update=True))
            special[key] = (0, mask_of(written & shared))
            demands.append((row, "exclusive", written - shared))
            demands.append((row, "shared_write", written & shared))
        held = tuple(
            RowLock(SCHEMA.key_of({"id": row}), mask_of(groups), lock_type)
            for row, lock_type, groups in locks
        )
        part = TabletModifications(ATOMIC, REVISION, tuple(changes), held, special or None)
        running = Running(start, demands, locks, writes)
        verdict = self.verdict(running)
        running.route = self.bench.ask(Prepare(TransactionId(start), (CELL, CellId(1)), (part,)))
        self.bench.answer_oracle()
        reply = self.bench.answer(running.route)
        answers = {Prepared: "yes", Failure: "no", type(None): "wait"}
        assert answers[type(reply)] == verdict, reply
        if isinstance(reply, Prepared):
            self.hold(running, reply.timestamp)
        elif reply is None:
            self.waiting.append(running)

    @precondition(lambda self: self.pending)
    @rule(ends=st.lists(st.tuples(st.integers(0, 99), st.booleans()), min_size=1, max_size=3))
    def finish(self, ends: list[tuple[int, bool]]) -> None:
        for pick, is_commit in ends[: len(self.pending)]:
            self.finish_one(pick, is_commit)

    def finish_one(self, pick: int, is_commit: bool) -> None:
        ended = self.pending.pop(pick % len(self.pending))
        at = self.bench.timestamp() if is_commit else None
        route = self.bench.decide(TransactionId(ended.start), at)
        self.bench.settle()
        assert isinstance(self.bench.answer(route), Committed if is_commit else Aborted)
        if at is not None:
            for row, (written, _) in ended.writes.items():
                self.commits[row].append((at, written is not None))
        self.let_go(ended, at)
        self.look_at_those_who_waited()

    @rule()
    def restart(self) -> None:
        """Whoever was only waiting is forgotten, and nobody who began before is let in."""
        self.bench.start(CELL)
        self.fenced, self.begun, self.waiting = self.begun, [], []

    @precondition(lambda self: self.fenced)
    @rule()
    def come_too_late(self) -> None:
        start = TransactionId(self.fenced.pop())
        change = SCHEMA.write_of({"id": 0, "a": 1}, is_update=True)
        part = TabletModifications(ATOMIC, REVISION, (change,))
        reply = self.bench.answer(self.bench.ask(Prepare(start, (CELL, CellId(1)), (part,))))
        assert isinstance(reply, Failure)
        assert reply.kind == "snapshot_too_old"

    @rule(row=st.sampled_from(ROWS), wanted=groups, is_newest=st.booleans(), ago=st.integers(0, 9))
    def read(self, row: int, wanted: frozenset[int], is_newest: bool, ago: int) -> None:
        """It waits for writers of both kinds that are prepared at or below its timestamp: of the
        groups that it reads, or of any that may create the row."""
        at = SYNC_LAST_COMMITTED if is_newest else Timestamp(self.bench.timestamp() - ago)
        request = Lookup(ATOMIC, REVISION, at, (SCHEMA.key_of({"id": row}),), mask_of(wanted))
        route = self.bench.ask(request)
        self.bench.answer_oracle()
        must_wait = any(
            running.prepared <= at
            for running in self.pending
            for on, lock_type, groups in running.demands
            if on == row and lock_type in ("exclusive", "shared_write")
            if groups & ((wanted | {MAIN}) if self.is_there(row, at) else set(GROUPS))
        )
        assert isinstance(self.bench.answer(route), type(None) if must_wait else LookupReply)

    @invariant()
    def locked_rows_are_those_of_pending_transactions(self) -> None:
        rows = {row for it in self.pending for row, _, groups in it.demands if groups}
        tablet = self.bench.nodes[CELL].cell.tablets[ATOMIC]
        assert tablet.locked_count() == len(rows)
        tablet.stores.check()

    # The model

    def verdict(self, running: Running) -> str:
        """yes, no, or wait: everyone looks at main, a holder of main looks at all groups."""
        verdicts = {
            self.group_verdict(self.groups[row, group], running.start, lock_type)
            for row, lock_type, groups in self.demands_of(running)
            for group in (GROUPS if MAIN in groups else groups | {MAIN} if groups else ())
        }
        return "no" if "no" in verdicts else "wait" if "wait" in verdicts else "yes"

    def group_verdict(self, group: Group, start: int, lock_type: LockType) -> str:
        stopped_by = STOPPED_BY[lock_type]
        if any(group.times.get(other, 0) > start for other in stopped_by):
            return "no"
        prepared = {it.start: it.prepared for it in self.pending}
        holders = [it for it, types in group.holders.items() if types.intersection(stopped_by)]
        if any(prepared[holder] >= start for holder in holders):
            return "no"
        return "wait" if holders else "yes"

    def look_at_those_who_waited(self) -> None:
        """Some go on, in the order of their prepare timestamps; some have lost, before or after
        one of these took its locks; for the others somebody must still be in the way."""
        replies = [(running, self.bench.answer(running.route)) for running in self.waiting]
        granted = [(it.timestamp, running) for running, it in replies if isinstance(it, Prepared)]
        refused = [running for running, it in replies if isinstance(it, Failure)]
        lost = [running for running in refused if self.verdict(running) == "no"]
        for _, running in sorted(granted, key=lambda it: it[0]):
            assert self.verdict(running) == "yes"
            self.hold(running, UNPREPARED)
            lost += [running for running in refused if self.verdict(running) == "no"]
        assert all(running in lost for running in refused)
        for at, running in granted:
            running.prepared = at
        self.waiting = [running for running, reply in replies if reply is None]
        assert all(self.has_blocker(running) for running in self.waiting)

    def has_blocker(self, running: Running) -> bool:
        verdicts = {
            self.group_verdict(Group(self.groups[row, group].holders), UNPREPARED, lock_type)
            for row, lock_type, groups in self.demands_of(running)
            for group in (GROUPS if MAIN in groups else groups | {MAIN} if groups else ())
        }
        return "wait" in verdicts

    def is_there(self, row: int, at: int) -> bool:
        return max([it for it in self.commits[row] if it[0] <= at], default=(0, False))[1]

    def demands_of(self, running: Running) -> list[Demand]:
        """A row that was not there when it began is locked as a whole. (Main looks at all.)"""
        locks = [
            (row, lock_type, groups)
            if not groups or MAIN in groups or self.is_there(row, running.start)
            else (row, lock_type, frozenset(GROUPS))
            for row, lock_type, groups in running.locks
        ]
        return running.demands + locks

    def hold(self, running: Running, prepared: int) -> None:
        running.demands, running.locks = self.demands_of(running), []
        running.prepared = prepared
        self.pending.append(running)
        for row, lock_type, groups in running.demands:
            for group in groups:
                self.groups[row, group].holders.setdefault(running.start, set()).add(lock_type)

    def let_go(self, ended: Running, at: int | None) -> None:
        for group in self.groups.values():
            for lock_type in group.holders.pop(ended.start, ()):
                if at is not None and lock_type != "shared_weak":
                    group.times[lock_type] = max(group.times.get(lock_type, 0), at)


TestLocks = LockMachine.TestCase
TestLocks.settings = settings(max_examples=examples(150), stateful_step_count=40, deadline=None)
