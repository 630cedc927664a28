"""The interface of a workload.

Owns: what a run may ask of a workload, the mix of what sessions do, and the looks at snapshots.
Each protocol raises DodonaError if a server refuses or can't be reached. Then the run continues.
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
"""Timestamps that are remembered, for another look."""


class Workload(ABC):
    """The callers of one run. `violations` has what its own check found."""

    name: str
    table: TableShape
    may_be_resharded: bool = True
    """Whether the first table's rows may move to other cells meanwhile."""
    cells_min: int = 1
    """The least number of nodes with which its tables test what it is for."""

    needs_python_client: bool = False
    """Whether it needs operations that other clients lack."""

    def __init__(self, random: Random) -> None:
        """`random` draws the sizes."""
        self.burst_rate = random.choice((0.0, 0.02, 0.3))
        self.violations: list[Violation] = []
        self.snapshot_count = 0
        self.counts: dict[str, int] = {}
        """Events that a run must contain, to test what this workload is for."""
        self._snapshots: list[int] = []

    @property
    def tables(self) -> list[TableShape]:
        """Tables that keep every version: histories are judged by them."""
        return [self.table]

    @property
    def expiring(self) -> list[TableShape]:
        """Tables that remove old rows. Only the workload itself judges them."""
        return []

    @property
    def all_tables(self) -> list[TableShape]:
        """The tables to create and mount."""
        return [*self.tables, *self.expiring]

    @abstractmethod
    def set_up(self, db: Recorder) -> Protocol[bool]:
        """Write the first rows, in one transaction. Return whether it was committed."""

    def step(self, db: Recorder) -> Protocol[None]:
        """Do one thing of a session: mostly a transaction."""
        if db.random.random() < self.burst_rate:
            # The counter runs ahead of the clock, so the ceiling has to be renewed.
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
        """Run one transaction."""

    def look(self, db: Recorder) -> Protocol[None]:
        """Look at the newest state of some row."""
        yield from db.lookup_latest(self.tables[0], self.draw_key(db.random))

    @abstractmethod
    def draw_key(self, random: Random) -> dict[str, Any]:
        """Return the key of some row of the first table."""

    def audit(self, db: Recorder) -> Protocol[None]:
        """Look at the present as a whole and judge it."""
        yield from self._judge((yield from db.begin()))

    def _audit_elsewhen(self, db: Recorder) -> Protocol[None]:
        """Look at another snapshot. One of the past does not change, so another look shows the
        same. One of the future is refused, because its rows might still change."""
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
        """Return the error in a whole snapshot of the first table, if there is one."""

    @abstractmethod
    def touch(self, db: Recorder) -> Protocol[bool]:
        """Run a transaction that writes to every tablet. Return whether it was committed."""

    def conclude(self, db: Recorder) -> Protocol[None]:
        """Take the last look, after all faults and sessions. Raises DodonaError while too early."""
        yield from self.audit(db)

    def resolve(self, _history: History) -> None:
        """Before a run is judged, note the outcomes that the last look showed for unsure ones."""
        return

    def check(self, _history: History) -> list[Violation]:
        """Return the violations in a whole run, judged by more than snapshots."""
        return []

    def check_versions(self, _history: History, _dump: Sequence[Version]) -> list[Violation]:
        """Return the violations that the final contents of the tables show."""
        return []

    def count(self, what: str, times: int = 1) -> None:
        self.counts[what] = self.counts.get(what, 0) + times

    def flag(self, text: str) -> None:
        self.violations.append(Violation("INVARIANT", text))
