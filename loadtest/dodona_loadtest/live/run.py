"""One run of a workload on a running cluster: set-up, sessions, rest, verdict.

Owns: the order of these. The caller decides which code starts the sessions, and when they end.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Final

from dodona._core.protocol.limits import SessionLimits
from dodona_loadtest.checkers.violation import Violation
from dodona_loadtest.histories.history import History
from dodona_loadtest.histories.recorder import Recorder
from dodona_loadtest.histories.row_session import RowSession
from dodona_loadtest.live.outcomes import ask_outcomes, check_outcomes
from dodona_loadtest.live.phases import NotLive, Phases, rows_written
from dodona_loadtest.live.resting import RESOLVE_S_MAX, wait_for_rest
from dodona_loadtest.live.session_group import SessionGroup, now_us
from dodona_loadtest.live.verdict import Counts, is_unsure, judge
from dodona_loadtest.workloads import WORKLOADS, Workload
from dodona_wire.errors import DodonaError

SET_UP_S_MAX: Final = 30.0
TOUCH_S_MAX: Final = 30.0
VIOLATIONS_SHOWN_MAX: Final = 20


@dataclass(frozen=True, slots=True)
class Order:
    """What to run. The seed decides what sessions want to do, not the results. `workload` is a name
    of WORKLOADS, or any name if the run gets a `make`."""

    master_url: str
    workload: str
    seed: int
    seconds: float = 30.0
    session_count: int = 16
    think_ms_mean: float = 5.0
    patience_ms: int = SessionLimits().retry_ms_max
    """How long a client repeats a call, or asks for an outcome, before its caller gets an error."""


@dataclass(slots=True)
class Report:
    """The results of a run."""

    order: Order
    history: History = field(default_factory=History)
    session_count: int = 0
    seconds: float = 0.0
    version_count: int = 0
    violations: list[Violation] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    """Other facts that a reader has to know."""

    def lines(self) -> list[str]:
        """Return lines for a reader."""
        head = f"{self.order.workload}, {self.session_count} sessions, seed {self.order.seed}"
        verdict = [str(it) for it in self.violations[:VIOLATIONS_SHOWN_MAX]]
        return [
            f"{head}: {self.version_count} versions in the end",
            *Counts.of(self.history).lines(self.seconds),
            *self.notes,
            *(verdict or ["no violation"]),
            *([f"{len(self.violations)} violations"] if verdict else []),
        ]


class Run:
    """One run. Make it in the event loop in which its sessions run."""

    def __init__(self, order: Order, make: Callable[[Random], Workload] | None = None) -> None:
        """`make` makes the workload, if it is none of WORKLOADS."""
        self.report = Report(order)
        self._random = Random(order.seed)
        make = WORKLOADS[order.workload] if make is None else make
        self.workload = make(Random(self._random.random()))
        self.session_group = SessionGroup(
            order.master_url,
            self.workload,
            self.report.history,
            think_ms_mean=order.think_ms_mean,
            limits=SessionLimits(retry_ms_max=order.patience_ms),
        )
        self._db = self.session_group.recorder("operator", Random(self._random.random()))
        self._phases = Phases(self._db, self.workload)
        self._began = time.monotonic()

    async def begin(self) -> None:
        """Make the tables and fill them. Raises DodonaError, TablesInTheWay, NotLive."""
        await self.session_group.connect()
        await self.session_group.run(self._db, self._phases.set_up(SET_UP_S_MAX))
        urls = await self.session_group.run(self._db, self._phases.node_urls())
        if len(urls) < self.workload.cells_min and self.workload.tables:
            await self.session_group.run(self._db, self._phases.remove())
            needed = f"{self.workload.name} needs {self.workload.cells_min} nodes"
            raise NotLive(f"{needed}, and its tables are on {len(urls)}")
        self._began = time.monotonic()

    def new_session(self, rows: RowSession | None = None) -> Recorder:
        """Return one more session, for `session_group.use` or `step`. With `rows` it is a session
        of another client, which its owner drives."""
        self.report.session_count += 1
        name = f"s{self.report.session_count}"
        random = Random(self._random.random())
        if rows is None:
            return self.session_group.recorder(name, random)
        return Recorder(rows, name, self.report.history, random, now_us)

    async def step(self, db: Recorder) -> None:
        """Run one step of the workload. Raises DodonaError."""
        await self.session_group.run(db, self.workload.step(db))

    async def finish(self) -> Report:
        """Finish, once all sessions are over. All open work must end, everything must work, and the
        checkers judge. The tables are removed if there is no violation."""
        self.report.seconds = time.monotonic() - self._began
        try:
            await self._rest_and_judge()
        except (NotLive, DodonaError) as error:
            self.report.violations.append(Violation("LIVENESS", str(error)))
            self.report.violations += self.workload.violations
        if not self.report.violations:
            await self._remove()
        return self.report

    async def _remove(self) -> None:
        """Remove the tables. All is judged by now: tables that stay behind break no promise."""
        try:
            await self.session_group.run(self._db, self._phases.remove())
        except DodonaError as error:
            self.report.notes.append(f"the tables were not removed: {error}")

    async def _rest_and_judge(self) -> None:
        report, run, db, phases = self.report, self.session_group.run, self._db, self._phases
        await wait_for_rest(lambda: run(db, phases.node_urls()))
        await run(db, phases.touch(TOUCH_S_MAX))
        rows = rows_written(report.history)
        await run(db, phases.take_all_locks(rows, RESOLVE_S_MAX))
        answers = await run(db, ask_outcomes(db, filter(is_unsure, report.history.transactions)))
        dump = await run(db, phases.dump(rows))
        report.version_count = len(dump)
        report.violations += judge(report.history, dump, self.workload)
        report.violations += check_outcomes(answers, report.history, dump)
