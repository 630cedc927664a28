"""One load test from its first table to its verdict, as Locust's events drive it.

Owns: the run that all users share, its figures, and its end: by an event, or when its history is
full.
Invariant: one process, one kind of user, one writer of the history at a time. The operator's
session sets up and judges while no user does anything.
"""

import time

from gevent import spawn
from locust.env import Environment
from locust.runners import LocalRunner

from dodona_loadtest.checkers.violation import Violation
from dodona_loadtest.histories.recorder import Recorder
from dodona_loadtest.histories.row_session import RowSession
from dodona_loadtest.live.run import Report, Run
from dodona_loadtest.swarm.native import native
from dodona_loadtest.swarm.options import Asked, read_options
from dodona_loadtest.swarm.tally import Tally
from dodona_loadtest.swarm.verdict import Verdict
from dodona_loadtest.workloads import Workload


class Trial:
    """One test, made at its start. Raises ValueError, OSError, DodonaError, NotLive,
    TablesInTheWay."""

    def __init__(self, environment: Environment) -> None:
        if not isinstance(environment.runner, LocalRunner):
            raise ValueError("one process only, no workers: a history has one writer")
        classes = environment.user_classes
        if len(classes) != 1:
            names = ", ".join(it.__name__ for it in classes)
            raise ValueError(f"one kind of user at a time, not {names or 'none'}")
        assert environment.parsed_options is not None, "it is started by a command"
        self.client = classes[0].__name__
        self.asked: Asked = read_options(environment.parsed_options, environment.host)
        if self.asked.needs_python_client and not getattr(classes[0], "is_python_client", False):
            raise ValueError(f"{self.asked.order.workload} goes over the Python client only")
        self.tally = Tally()
        self._environment = environment
        self._is_full = False
        self.run: Run = native().run(self._make())
        native().run(self.run.begin())
        self._began = time.monotonic()

    def begin(self) -> None:
        """Start the clock: users are about to come."""
        self._began = time.monotonic()

    async def _make(self) -> Run:
        return Run(self.asked.order, self.asked.make)

    @property
    def workload(self) -> Workload:
        return self.run.workload

    def new_session(self, rows: RowSession | None = None) -> Recorder:
        """Return the session of one user."""
        return self.run.new_session(rows)

    def step(self, db: Recorder) -> None:
        """Run one step of a session of the Python client. Raises DodonaError."""
        native().run(self.run.step(db))

    def note(self, name: str, latency_us: int, refusal: str | None) -> None:
        """Count an operation that is over."""
        if time.monotonic() - self._began >= self.asked.warm_up_s:
            self.tally.note(name, latency_us, refusal)
        if self.run.report.history.record_count >= self.asked.records_max and not self._is_full:
            self._is_full = True
            assert self._environment.runner is not None, "it runs"
            spawn(self._environment.runner.quit)  # this ends the greenlet, too

    def flag(self, db: Recorder, surprise: Exception) -> None:
        """Note an error that is none of Dodona's own."""
        text = f"{db.name} broke within {db.doing!r}: {surprise!r}"
        self.workload.violations.append(Violation("CRASH", text))

    @property
    def seconds(self) -> float:
        """How long the test has run, without its warm-up."""
        return max(0.0, time.monotonic() - self._began - self.asked.warm_up_s)

    def finish(self) -> Verdict:
        """Finish, once no user does anything any more."""
        seconds = self.seconds
        report = native().run(self._finish())
        report.seconds = seconds
        order = self.asked.order
        title = f"{order.workload}, {self.client}, {report.session_count} users, seed {order.seed}"
        return Verdict(
            title,
            report,
            self.tally,
            self.tally.judge(self.asked.limits, report.seconds),
            [*self._notes(), *report.notes],
        )

    async def _finish(self) -> Report:
        self.run.session_group.end()
        await self.run.session_group.wait_until_idle()
        try:
            return await self.run.finish()
        finally:
            await self.run.session_group.close()

    def _notes(self) -> list[str]:
        notes = [f"{count} {what}" for what, count in sorted(self.workload.counts.items())]
        notes += [f"it does not look at {flag}" for flag in self.asked.ignored]
        if self._is_full:
            notes.append(f"it ended early, with {self.asked.records_max:,} records: --records-max")
        return notes
