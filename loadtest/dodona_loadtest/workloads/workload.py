"""The shape of a workload.

Owns: what a run may ask of a workload, the mix of what sessions do, and the looks at snapshots.
Each protocol raises DodonaError where a server refuses or can't be reached; the run goes on then.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from random import Random
from typing import Any, Final

from dodona._core.protocol.steps import Protocol
from dodona_loadtest.checkers.violation import Violation
from dodona_loadtest.histories.history import History, Version
from dodona_loadtest.histories.recorder import Attempt, Recorder
from dodona_loadtest.histories.shape import TableShape
from dodona_wire.errors import DodonaError
from dodona_wire.types import TIMESTAMPS_PER_REQUEST_MAX

SNAPSHOTS_MAX: Final = 100
"""Timestamps remembered, to be looked at again."""


class Workload(ABC):
    """One run's callers. `violations` gathers what its own check found."""

    name: str
    table: TableShape
    may_be_resharded: bool = True
    """Whether the first table's rows may come to lie in other cells meanwhile."""
    cells_min: int = 1
    """Nodes without which its tables would say nothing of what it is for."""

    needs_python_client: bool = False
    """Whether it does what others have no operations for."""

    def __init__(self, random: Random) -> None:
        """`random` draws the sizes."""
        self.burst_rate = random.choice((0.0, 0.02, 0.3))
        self.violations: list[Violation] = []
        self.snapshot_count = 0
        self.counts: dict[str, int] = {}
        """What a run must contain, to say anything about what this workload is for."""
        self._snapshots: list[int] = []

    @property
    def tables(self) -> list[TableShape]:
        """Tables that keep every version: histories are judged by them."""
        return [self.table]

    @property
    def expiring(self) -> list[TableShape]:
        """Tables that let rows go, which only the workload itself judges."""
        return []

    @property
    def all_tables(self) -> list[TableShape]:
        """What is to be created and mounted."""
        return [*self.tables, *self.expiring]

    @abstractmethod
    def set_up(self, db: Recorder) -> Protocol[bool]:
        """Write the first rows, in one transaction. → whether it was committed."""

    def step(self, db: Recorder) -> Protocol[None]:
        """One thing that a session does: mostly a transaction."""
        if db.random.random() < self.burst_rate:
            # The counter runs ahead of the clock, and the ceiling is renewed on its account.
            db.doing = "timestamps"
            yield from db.take_timestamps(
                int(TIMESTAMPS_PER_REQUEST_MAX ** db.random.random() ** 0.2)
            )
            return
        dice = db.random.random()
        if dice < 0.75:
            db.doing = "write"
            yield from self.transact(db)
        elif dice < 0.85:
            db.doing = "audit"
            yield from self.audit(db)
        elif dice < 0.95:
            db.doing = "look at the newest"
            yield from self.look(db)
        else:
            db.doing = "audit of another time"
            yield from self._audit_elsewhen(db)

    @abstractmethod
    def transact(self, db: Recorder) -> Protocol[None]:
        """One transaction."""

    def look(self, db: Recorder) -> Protocol[None]:
        """Look at the newest state of some row."""
        yield from db.lookup_latest(self.tables[0], self.draw_key(db.random))

    @abstractmethod
    def draw_key(self, random: Random) -> dict[str, Any]:
        """The key of some row of the first table."""

    def audit(self, db: Recorder) -> Protocol[None]:
        """Look at the present as a whole and judge it."""
        yield from self._judge((yield from db.begin()))

    def _audit_elsewhen(self, db: Recorder) -> Protocol[None]:
        """A snapshot does not change: looking at it again shows the same. One of the future is
        refused: whatever is read there might still change."""
        if not self._snapshots:
            return
        timestamp = db.random.choice(self._snapshots)
        if db.random.random() < 0.3:
            timestamp = self._snapshots[-1] + int((1 << 34) ** db.random.random())
        yield from self._judge(db.begin_at(timestamp))

    def _judge(self, attempt: Attempt) -> Protocol[None]:
        try:
            rows = yield from attempt.scan(self.tables[0])
        except DodonaError as error:
            attempt.give_up(error)
            raise
        attempt.end()
        self.snapshot_count += 1
        self._snapshots = [*self._snapshots[1 - SNAPSHOTS_MAX :], attempt.record.start]
        problem = self.problem(rows)
        if problem:
            self.flag(f"at {attempt.record.start} {problem}")

    @abstractmethod
    def problem(self, rows: list[dict[str, Any]]) -> str | None:
        """What is wrong with a whole snapshot of the first table, if anything."""

    @abstractmethod
    def touch(self, db: Recorder) -> Protocol[bool]:
        """A transaction that writes to every tablet. → whether it was committed."""

    def conclude(self, db: Recorder) -> Protocol[None]:
        """The last look of all, when nothing is broken any more and nobody does anything. Raises
        DodonaError as long as it is too early."""
        yield from self.audit(db)

    def resolve(self, _history: History) -> None:
        """Before a run is judged: note what the last look told of those who were told nothing."""
        return

    def check(self, _history: History) -> list[Violation]:
        """What is wrong with a whole run, judged by more than snapshots."""
        return []

    def check_versions(self, _history: History, _dump: Sequence[Version]) -> list[Violation]:
        """The same, by what the tables held in the end."""
        return []

    def count(self, what: str, times: int = 1) -> None:
        self.counts[what] = self.counts.get(what, 0) + times

    def flag(self, text: str) -> None:
        self.violations.append(Violation("INVARIANT", text))
