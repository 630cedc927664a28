"""Row locks and commits of one cell, against a small model of the rules in the document.

The machine begins transactions, prepares and finishes them in any order, on few rows and lock
groups. The model keeps, per row and group, what the YTsaurus document names: an exclusive flag, a
count of shared locks, and two times. It knows nothing of masks, versions or waiting queues.
"""

from dataclasses import dataclass, field

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from dodona._core.messages import (
    Aborted,
    Committed,
    Failure,
    Prepare,
    Prepared,
    RowLock,
    TabletModifications,
)
from dodona.types import CellId, TransactionId, Write
from unit.tablets.cells import ATOMIC, REVISION, Bench, delete, key, put, update

MAIN, GROUP_B = 0, 1
WRITES = {
    "overwrite": {MAIN, GROUP_B},
    "update a": {MAIN},
    "update b": {GROUP_B},
    "delete": {MAIN},
}


@dataclass
class Group:
    writer: int | None = None
    readers: set[int] = field(default_factory=set)
    modified: int = 0
    read_locked: int = 0


@dataclass
class Pending:
    start: int
    writes: dict[int, str]
    reads: dict[int, tuple[int, bool]]
    prepared: int


def write(number: int, how: str) -> Write:
    match how:
        case "overwrite":
            return put(number, 1, "x")
        case "update a":
            return update(number, a=2)
        case "update b":
            return update(number, b="y")
    return delete(number)


class LockMachine(RuleBasedStateMachine):
    """Every transaction has a second participant that is never asked, so that prepares stay."""

    def __init__(self) -> None:
        super().__init__()
        self.bench = Bench(2)
        self.groups = {(row, group): Group() for row in range(3) for group in (MAIN, GROUP_B)}
        self.begun: list[int] = []
        self.pending: list[Pending] = []

    @rule()
    def begin(self) -> None:
        self.begun.append(self.bench.begin())

    @precondition(lambda self: self.begun)
    @rule(
        pick=st.integers(0, 99),
        writes=st.dictionaries(st.integers(0, 2), st.sampled_from(sorted(WRITES)), max_size=2),
        reads=st.dictionaries(
            st.integers(0, 2), st.tuples(st.sampled_from([1, 2, 3]), st.booleans()), max_size=2
        ),
    )
    def prepare(
        self, pick: int, writes: dict[int, str], reads: dict[int, tuple[int, bool]]
    ) -> None:
        start = self.begun.pop(pick % len(self.begun))
        reads = {row: lock for row, lock in reads.items() if row not in writes}
        verdict = self.verdict(start, writes, reads)
        if verdict == "wait":
            return  # its own tests cover waiting; here it would only hide what comes after
        locks = tuple(
            RowLock(key(row), mask, "shared_strong" if strong else "shared_weak")
            for row, (mask, strong) in reads.items()
        )
        changes = tuple(write(row, how) for row, how in writes.items())
        part = TabletModifications(ATOMIC, REVISION, changes, locks)
        cells = (CellId(0), CellId(1))
        route = self.bench.ask(Prepare(TransactionId(start), cells, (part,)))
        self.bench.answer_oracle()
        reply = self.bench.answer(route)
        assert isinstance(reply, Prepared if verdict == "yes" else Failure), (verdict, reply)
        if isinstance(reply, Prepared):
            self.hold(Pending(start, writes, reads, reply.timestamp))

    @precondition(lambda self: self.pending)
    @rule(pick=st.integers(0, 99), is_commit=st.booleans())
    def finish(self, pick: int, is_commit: bool) -> None:
        pending = self.pending.pop(pick % len(self.pending))
        at = self.bench.timestamp() if is_commit else None
        route = self.bench.decide(TransactionId(pending.start), at)
        self.bench.settle()
        assert isinstance(self.bench.answer(route), Committed if is_commit else Aborted)
        self.let_go(pending, at)

    @invariant()
    def locked_rows_are_those_of_pending_transactions(self) -> None:
        rows = {row for pending in self.pending for row in [*pending.writes, *pending.reads]}
        assert self.bench.nodes[CellId(0)].cell.tablets[ATOMIC].locked_count() == len(rows)

    # The model

    def verdict(
        self, start: int, writes: dict[int, str], reads: dict[int, tuple[int, bool]]
    ) -> str:
        """yes, no, or wait: everyone looks at main, a holder of main looks at all groups."""
        verdicts = set()
        wanted = [(row, WRITES[how], True) for row, how in writes.items()]
        wanted += [
            (row, {group for group in (MAIN, GROUP_B) if mask >> group & 1}, False)
            for row, (mask, _) in reads.items()
        ]
        for row, groups, is_write in wanted:
            for group in {MAIN, GROUP_B} if MAIN in groups else {MAIN, *groups}:
                verdicts.add(self.group_verdict(self.groups[row, group], start, is_write))
        return "no" if "no" in verdicts else "wait" if "wait" in verdicts else "yes"

    def group_verdict(self, group: Group, start: int, is_write: bool) -> str:
        if group.modified > start or (is_write and group.read_locked > start):
            return "no"
        holders = {group.writer} - {None} | (group.readers if is_write else set())
        prepared = {it.start: it.prepared for it in self.pending}
        if any(prepared[holder] >= start for holder in holders if holder is not None):
            return "no"
        return "wait" if holders else "yes"

    def hold(self, pending: Pending) -> None:
        self.pending.append(pending)
        for row, how in pending.writes.items():
            for group in WRITES[how]:
                self.groups[row, group].writer = pending.start
        for row, (mask, _) in pending.reads.items():
            for group in (MAIN, GROUP_B):
                if mask >> group & 1:
                    self.groups[row, group].readers.add(pending.start)

    def let_go(self, pending: Pending, at: int | None) -> None:
        for (row, _), group in self.groups.items():
            if group.writer == pending.start:
                group.writer = None
                group.modified = max(group.modified, at or 0)
            if pending.start in group.readers:
                group.readers.discard(pending.start)
                is_strong = pending.reads[row][1]
                group.read_locked = max(group.read_locked, at if at and is_strong else 0)


TestLocks = LockMachine.TestCase
TestLocks.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
