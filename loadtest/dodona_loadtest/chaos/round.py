"""One round: sessions in processes of their own, faults, then rest, and the verdict.

Owns: the order of the steps. After the last fault all processes are brought back, and the sessions
end. Then these things must happen in time: no transaction is left, every tablet takes writes, every
lock can be taken, outcomes agree with rows. Last, all nodes are killed once more, together, so that
the dump comes from their logs.
"""

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from random import Random
from time import monotonic
from typing import Final

from dodona._core.protocol.limits import SessionLimits
from dodona._io.drivers import BlockingDriver
from dodona_loadtest.chaos.clients import ClientProcess, Order
from dodona_loadtest.chaos.cluster import Targets, cells_of
from dodona_loadtest.chaos.failovers import FailoverResult
from dodona_loadtest.chaos.faults import Role, draw_faults, role_of
from dodona_loadtest.checkers.violation import Violation
from dodona_loadtest.histories.history import Acquisition, History, RowKey, Transaction, Version
from dodona_loadtest.histories.recorder import Recorder
from dodona_loadtest.live.journal import Account, read_journal
from dodona_loadtest.live.outcomes import Answers, ask_outcomes, check_outcomes
from dodona_loadtest.live.phases import NotLive, Phases, rows_written
from dodona_loadtest.live.resting import RESOLVE_S_MAX, wait_for_rest
from dodona_loadtest.live.session_group import new_session, now_us
from dodona_loadtest.live.verdict import NO_COUNTS, Counts, is_unsure, judge
from dodona_loadtest.workloads import WORKLOADS
from dodona_local.errors import LaunchFailed
from dodona_local.launcher import LocalCluster
from dodona_wire.errors import DodonaError
from dodona_wire.types import Key

SET_UP_S_MAX: Final = 30.0
SESSIONS_END_S_MAX: Final = 60.0
RETRY_MS_MAX: Final = 10_000
"""A cell that moves to another node is back within two seconds, and later on a busy machine."""
"""Seconds: a call's time-out, the client's patience with an outcome, and its calls meanwhile."""
TOUCH_S_MAX: Final = 30.0
AT_ONCE_US: Final = 50_000
"""Hits that are at most this many µs apart are one fault."""


@dataclass(frozen=True, slots=True)
class RoundPlan:
    """The plan of a round."""

    number: int
    workload: str
    seed: float
    kills: int
    client_count: int = 3
    session_count: int = 6
    """Sessions in each client process."""
    think_ms_mean: float = 10.0
    after_ms_mean: float = 1_000.0
    """Milliseconds between two faults."""
    commit_death_rate: float = 0.008


@dataclass(slots=True)
class RoundResult:
    """The result of a round."""

    plan: RoundPlan
    kills: list[tuple[int, str]] = field(default_factory=list)
    pauses: list[tuple[int, str]] = field(default_factory=list)
    death_count: int = 0
    """Client processes that killed themselves in the middle of a commit."""
    counts: Counts = NO_COUNTS
    recoveries: list[tuple[Role, float]] = field(default_factory=list)
    """For a kill, ms until the first success of a client that needs that process. Left out if there
    was another hit in between."""
    failovers: list[FailoverResult] = field(default_factory=list)
    outcomes_asked: int = 0
    version_count: int = 0
    newest: int = 0
    """The largest timestamp that any client saw."""
    seconds: float = 0.0
    violations: list[Violation] = field(default_factory=list)


class Round:
    """One round. `before` has the timestamps of earlier rounds."""

    def __init__(
        self, plan: RoundPlan, cluster: LocalCluster, folder: Path, before: list[Acquisition]
    ) -> None:
        self.result = RoundResult(plan)
        self._plan = plan
        self._cluster = cluster
        self._folder = folder
        self._random = Random(plan.seed)
        self._faults_seed = self._random.random()
        self._workload_seed = self._random.random()
        self._workload = WORKLOADS[plan.workload](Random(self._workload_seed))
        self._history = History(acquisitions=list(before))
        session = new_session(limits=SessionLimits(retry_ms_max=RETRY_MS_MAX))
        self._driver = BlockingDriver(cluster.master_url, session.routing)
        name = f"r{plan.number}"
        self._db = Recorder(session, name, self._history, Random(self._random.random()), now_us)
        self._phases = Phases(self._db, self._workload)
        self._journals: list[Path] = []
        self._answers: Answers = []

    def run(self) -> RoundResult:
        began = monotonic()
        violations = self.result.violations
        try:
            self._run()
        except (NotLive, LaunchFailed) as error:
            violations.append(Violation("LIVENESS", str(error)))
        except DodonaError as error:
            violations.append(Violation("LIVENESS", f"nothing was broken any more, but: {error}"))
        finally:
            self._driver.close()
        self.result.seconds = monotonic() - began
        return self.result

    def _run(self) -> None:
        self._driver.run(self._phases.set_up(SET_UP_S_MAX))
        targets = Targets(self._cluster, self._plan.client_count, self._new_client)
        try:
            self._strike(targets)
            targets.heal()
            self._end_sessions(targets)
            self.result.death_count = targets.death_count
            self._gather()
            self._rest()
            dump = self._dump_twice(targets)
            self._history.crashes += targets.crashes
        finally:
            targets.close()
        self._judge(dump)
        self._driver.run(self._phases.remove())

    def _new_client(self, index: int, incarnation: int) -> ClientProcess:
        plan = self._plan
        name = f"r{plan.number}.c{index}.{incarnation}"
        journal = self._folder / f"{name}.journal"
        self._journals.append(journal)
        return ClientProcess(
            Order(
                name=name,
                master_url=self._cluster.master_url,
                workload=plan.workload,
                workload_seed=self._workload_seed,
                session_count=plan.session_count,
                think_ms_mean=plan.think_ms_mean,
                acknowledgement="prepared" if index % 2 else "decided",
                patience_ms=self._random.choice((300, 2_000, 10_000)),
                commit_death_rate=self._plan.commit_death_rate,
                journal=journal,
            )
        )

    def _strike(self, targets: Targets) -> None:
        targets.wait(int(self._plan.after_ms_mean))  # the clients are starting
        self.result.kills, self.result.pauses = targets.kills, targets.pauses
        for fault in draw_faults(self._faults_seed, targets.names, self._plan.after_ms_mean):
            if fault.is_patient:
                targets.wait_until_ready()
            targets.wait(fault.after_ms)
            targets.strike(fault)
            if len(targets.kills) >= self._plan.kills:
                return

    # Rest

    def _end_sessions(self, targets: Targets) -> None:
        late = targets.end_clients(SESSIONS_END_S_MAX)
        for text in targets.ended_early:
            self.result.violations.append(Violation("CRASH", text))
        if late:
            raise NotLive(f"sessions go on after {SESSIONS_END_S_MAX:g} s: {', '.join(late)}")

    def _gather(self) -> None:
        """Read the journals of all client processes, which have ended."""
        account = Account(self._history, self._workload.violations)
        for journal in self._journals:
            if journal.exists():  # else it was killed before it began
                account.add(read_journal(journal))

    def _rest(self) -> None:
        """No fault is left: all that was begun must end, and everything must work."""
        asyncio.run(wait_for_rest(self._node_urls))
        self._driver.run(self._phases.touch(TOUCH_S_MAX))
        locking = self._phases.take_all_locks(rows_written(self._history), RESOLVE_S_MAX)
        self._driver.run(locking)
        unsure = filter(is_unsure, self._history.transactions)
        self._answers = self._driver.run(ask_outcomes(self._db, unsure))
        asyncio.run(wait_for_rest(self._node_urls))

    async def _node_urls(self) -> Sequence[str]:
        return self._driver.run(self._phases.node_urls())

    def _dump_twice(self, targets: Targets) -> list[Version]:
        """Dump the rows before and after a restart of all nodes: both must be the same."""
        dumping = partial(self._phases.dump, rows_written(self._history))
        before = sorted(self._driver.run(dumping()), key=_version_order)
        targets.kill_all("node")
        self._driver.run(self._phases.look(TOUCH_S_MAX))
        after = sorted(self._driver.run(dumping()), key=_version_order)
        if before != after:
            text = "what the nodes recovered is not what they held"
            self.result.violations.append(Violation("DURABILITY", text))
        return after

    # The verdict

    def _judge(self, dump: list[Version]) -> None:
        result, history = self.result, self._history
        history.transactions.sort(key=lambda t: t.begin_us)
        result.violations += judge(history, dump, self._workload)
        result.violations += check_outcomes(self._answers, history, dump)
        result.counts = Counts.of(history)
        result.outcomes_asked = len(self._answers)
        result.version_count = len(dump)
        result.newest = _newest(history)
        result.recoveries = list(self._recoveries())

    def _recoveries(self) -> Iterator[tuple[Role, float]]:
        hits = [at_us for at_us, _ in (*self.result.kills, *self.result.pauses)]
        for at_us, name in self.result.kills:
            success_us = self._first_success_us(at_us, name)
            if success_us is None:
                continue
            if not any(at_us + AT_ONCE_US < hit_us < success_us for hit_us in hits):
                yield role_of(name), (success_us - at_us) / 1000

    def _first_success_us(self, at_us: int, name: str) -> int | None:
        """Return when a client first heard of a commit that needed the killed process and began
        after the kill. None if there is none."""
        ends = [
            t.end_us
            for t in self._history.transactions
            if t.status == "ok" and t.begin_us > at_us and t.end_us and self._needs(t, name)
        ]
        return min(ends, default=None)

    def _needs(self, t: Transaction, name: str) -> bool:
        role, number = role_of(name), name.partition(" ")[2]
        if not t.writes:
            return False
        if role == "node":
            cells = cells_of(self._cluster, name)
            is_known = len(cells) == 1  # otherwise the node may have had any cell, or none
            return is_known and any(_cell_of(self._db, it.row) == cells[0] for it in t.writes)
        return role != "client" or t.session.startswith(f"r{self._plan.number}.c{number}.")


def _cell_of(db: Recorder, row: RowKey) -> int:
    """Return the cell of a row. The table is not resharded meanwhile."""
    route = db.session.routing.find(row.table)
    assert route is not None, "the table was used a moment ago"
    cell = route.tablet_of(Key(row.key)).cell
    assert cell is not None, "the table is mounted"
    return cell


def _newest(history: History) -> int:
    seen = [t.start for t in history.transactions if t.is_fresh]
    seen += [t.commit for t in history.transactions if t.commit is not None]
    return max([*seen, *(a.last for a in history.acquisitions)], default=0)


def _version_order(version: Version) -> tuple[object, int]:
    return version.row, version.timestamp
