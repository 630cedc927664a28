"""One run from its seed: set-up, safety under faults, liveness after them, and the verdict.

Owns: the phases and the limits of each, the sessions and their deaths, and the report. Whatever is
wrong ends up as a violation; nothing else makes a run fail.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final

from dodona._core.protocol.limits import SessionLimits, TransactionLimits
from dodona._core.protocol.steps import Protocol
from dodona._core.session import Session
from dodona.errors import DodonaError, TableExists, Unavailable
from dodona.types import KEY_MIN
from dodona_loadtest.checkers.sweep import check
from dodona_loadtest.checkers.violation import Violation
from dodona_loadtest.histories.history import History, RowKey, Transaction, Version
from dodona_loadtest.histories.recorder import Recorder
from dodona_loadtest.histories.shape import TableShape
from dodona_loadtest.live.outcomes import Answers, ask_outcomes, check_outcomes
from dodona_loadtest.workloads import WORKLOADS
from dodona_tablets.core.node import NodeCore
from simulator import expiry, table_lifecycle
from simulator.cluster import Cluster
from simulator.drawing import draw_options
from simulator.driver import ClientProcess, Task
from simulator.fault_injector import FaultInjector
from simulator.faults import Options
from simulator.feed import Follower
from simulator.host import CoreStopped
from simulator.servers import CoreFactory
from simulator.thinning import Thinning
from simulator.waiting import pause, until_it_works, until_true
from simulator.world import World

SECOND_US: Final = 1_000_000
SET_UP_US_MAX: Final = 30 * SECOND_US
SESSIONS_END_US_MAX: Final = 60 * SECOND_US
"""A call's time-out, the client's patience with an outcome, and its calls on the way."""
RESOLVE_US_MAX: Final = 10 * SECOND_US
"""How long after the last session's end a cell may still hold a transaction or a lock."""
OUTCOMES_ASKED_MAX: Final = 30
LOADS_END_US_MAX: Final = 10 * SECOND_US
"""How long a bulk load may be open without its owner: its lease, and a little."""
LINES_END_US_MAX: Final = 12 * SECOND_US
"""How long an owner that has vanished may have early locks: its lease, and a little."""
DROP_US_MAX: Final = 5 * SECOND_US
"""How long a cell may keep a tablet that nobody needs."""
OBJECTS_END_US_MAX: Final = 20 * SECOND_US
"""How long after a start an object that nobody needs may be there: its removal is repeated by
starts only."""
TOUCH_US_MAX: Final = 30 * SECOND_US
RESTART_US_MAX: Final = 10 * SECOND_US
POLL_US: Final = 100_000

RESHARD_PIVOTS_MAX: Final = 3
LIFE_S_MAX: Final = 3


class NotLive(Exception):
    """Something that had to happen after all faults ended did not."""


@dataclass(slots=True)
class Result:
    """What a run came to. `digest` is equal for equal seeds."""

    seed: int
    workload: str
    seconds: int
    violations: list[Violation] = field(default_factory=list)
    digest: str = ""
    counts: dict[str, int] = field(default_factory=dict)
    fault_counts: dict[str, int] = field(default_factory=dict)
    """All that went wrong, by kind."""
    scheduled_fault_count: int = 0
    """Of these, the ones that the seed had scheduled one by one: no datagram among them."""
    message_counts: dict[str, int] = field(default_factory=dict)
    fault_point_counts: dict[str, int] = field(default_factory=dict)
    """How often each `FaultPoint` fired, by its name; 0 for those that did not."""
    acknowledgement: str = ""
    thinning: Thinning = Thinning()  # noqa: RUF009 - frozen

    @property
    def command(self) -> str:
        """What replays this run."""
        where = f"--workload {self.workload} --seconds {self.seconds}"
        words = ["python -m simulator", str(self.seed), where, self.thinning.arguments]
        return " ".join(word for word in words if word)


def _as_drawn(options: Options) -> Options:
    return options


def simulate(
    seed: int,
    seconds: int = 20,
    workload: str | None = None,
    make_core: CoreFactory = NodeCore,
    thinning: Thinning = Thinning(),  # noqa: B008 - frozen
    alter: Callable[[Options], Options] = _as_drawn,
) -> Result:
    """Run one seed. `make_core` may make nodes with a planted bug; `thinning` leaves out some of
    what the seed would have go wrong; `alter` may change what it drew, to look harder in one
    direction."""
    return Simulation(seed, seconds, workload, make_core, thinning, alter).run()


def options_of(seed: int, seconds: int) -> Options:
    """All that goes wrong in that run."""
    return draw_options(World(seed).stream("options"), seconds * SECOND_US)


class Simulation:
    """One run. Use it once."""

    def __init__(
        self,
        seed: int,
        seconds: int,
        workload: str | None,
        make_core: CoreFactory,
        thinning: Thinning = Thinning(),  # noqa: B008 - frozen
        alter: Callable[[Options], Options] = _as_drawn,
    ) -> None:
        assert seconds > 0
        names = sorted(WORKLOADS)
        name = workload or names[seed % len(names)]
        self.world = World(seed)
        self.workload = WORKLOADS[name](self.world.stream("workload"))
        self.options = self._for_the_workload(alter(thinning.thin(options_of(seed, seconds))))
        self.result = Result(
            seed,
            name,
            seconds,
            acknowledgement=self.options.acknowledgement,
            thinning=thinning,
        )
        self._faults_end_us = (thinning.until_s or seconds) * SECOND_US
        self.history = History()
        self.fault_injector = FaultInjector(self.world, self.options.fault_point_rate)
        self.cluster = Cluster(
            self.world, self.options, self.history.acquisitions, make_core, self.fault_injector
        )
        self._random = self.world.stream("sessions")
        self._follower = Follower(self.workload.tables if self.options.is_followed else ())
        self._tasks: list[Task] = []
        self._session_count = 0
        self._killed_count = 0
        self._freeze_count = 0
        self._reshard_count = 0
        self._alter_count = 0
        self._copy_count = 0
        self._trial_count = 0
        self._dropped_count = 0
        self._operator_error_count = 0
        self._is_ending = False
        self._answers: Answers = []
        self._client_sessions = [self._new_session(client) for client in self.cluster.clients]

    def _for_the_workload(self, options: Options) -> Options:
        """Where no client's clock stamps rows, nothing is kept for the sake of late ones. Where
        rows expire, they do so before the run ends."""
        if self.workload.expiring:
            options = replace(options, transaction_life_s_max=LIFE_S_MAX, is_tidied=True)
        if any(table.atomicity == "none" for table in self.workload.tables):
            return options
        return replace(options, clock_difference_s_max=options.transaction_life_s_max)

    def run(self) -> Result:
        violations = self.result.violations
        try:
            self._run_phases()
        except CoreStopped as error:
            violations.append(Violation("CRASH", str(error)))
        except NotLive as error:
            violations.append(Violation("LIVENESS", str(error)))
        else:
            self.history.crashes = self.cluster.node_crashes()
            paths = {table.path for table in self.workload.tables}
            dump = [version for version in self.cluster.dump() if version.row.table in paths]
            self.workload.resolve(self.history)
            violations += check(self.history, dump)
            violations += check_outcomes(self._answers, self.history, dump)
            violations += self.cluster.disagreements()
            violations += self.workload.check(self.history)
            violations += self._follower.check(dump if self.options.is_followed else ())
        violations += self.cluster.line_violations()
        violations += self.workload.violations
        self._report()
        self.cluster.close()
        return self.result

    def _run_phases(self) -> None:
        self.cluster.start()
        self._set_up()
        self.cluster.schedule_faults()
        self.fault_injector.storm()
        for index in range(self.options.session_count):
            self._start_session(index)
        if self.options.remount_us_mean:
            client, db = self._recorder(0)
            self._tasks.append(Task(client, self._operate(db)))
        if self.options.is_followed:
            client = self.cluster.clients[0]
            session = self._new_session(client)
            self._tasks.append(
                Task(client, self._follower.follow(session, lambda: self._is_ending))
            )
        self.world.run_until(self.world.now_us + self._faults_end_us)
        self._is_ending = True
        self.cluster.heal()
        self.fault_injector.calm()
        self._demand(LOADS_END_US_MAX, self.cluster.loads_left)
        storm_over_us = self.cluster.network.empty_at_us
        self._demand(SESSIONS_END_US_MAX, self._unfinished_sessions)
        self._demand(RESOLVE_US_MAX, self.cluster.unresolved)
        self._demand(LINES_END_US_MAX, self.cluster.lines_left)
        # A late copy of an operator's request must not unmount what is mounted from here on.
        self.world.run_until(max(self.world.now_us, storm_over_us))
        # Full memory is let go of as timestamps go on: they wait for a clock that stepped back.
        touch_us_max = TOUCH_US_MAX + self.cluster.timestamps_ahead_us()
        self._run_until_done(self._touch_all(), touch_us_max, "writing to every tablet")
        self._demand(RESOLVE_US_MAX, self.cluster.unresolved)
        self._demand(DROP_US_MAX, self.cluster.strays)
        self._demand(DROP_US_MAX, self.cluster.stray_files)
        self.result.violations += expiry.judge(self.world, self.cluster, self.workload.expiring)
        # The last appends become durable, and nothing of the object store is late any more.
        settled_at_us = self.cluster.objects.settled_at_us
        self.world.run_until(max(self.world.now_us + SECOND_US, settled_at_us))
        before = sorted(self.cluster.dump(), key=_version_order)
        kept = self.cluster.kept()
        self._dropped_count = self.cluster.dropped_count()
        self.cluster.restart_nodes()
        if self.cluster.kept() != kept:
            text = "the tablets that the nodes recovered are not those that they kept"
            self.result.violations.append(Violation("DURABILITY", text))
        self._demand(RESTART_US_MAX, self.cluster.starting)
        self._run_until_done(self._audit(), TOUCH_US_MAX, "the last audit")
        self._demand(OBJECTS_END_US_MAX, self.cluster.stray_objects)
        catch_up = partial(self._follower.catch_up, self._new_session(self.cluster.clients[0]))
        self._run_until_done(until_it_works(catch_up), TOUCH_US_MAX, "the end of the feed")
        self._run_until_done(self._ask_outcomes(), TOUCH_US_MAX, "asking for outcomes")
        if sorted(self.cluster.dump(), key=_version_order) != before:
            text = "what the nodes recovered is not what they held"
            self.result.violations.append(Violation("DURABILITY", text))

    # Sessions

    def _new_session(self, client: ClientProcess) -> Session:
        return Session(
            instant_us=client.instant_us,
            unix_us=client.unix_us,
            dice=client.random.random,
            routing=client.routing,
            limits=self._session_limits(),
            acknowledgement=self.options.acknowledgement,
            fault_at=self.fault_injector,
        )

    def _session_limits(self) -> SessionLimits:
        options = self.options
        return SessionLimits(
            retry_ms_max=options.patience_ms,
            transaction=TransactionLimits(life_ms_max=options.transaction_life_s_max * 1000),
            keys_per_request_max=options.page_rows_max,
            rows_per_page_max=options.page_rows_max,
        )

    def _recorder(self, index: int) -> tuple[ClientProcess, Recorder]:
        at = index % len(self.cluster.clients)
        self._session_count += 1
        name = f"s{self._session_count}"
        client = self.cluster.clients[at]
        random = self.world.stream(f"session/{name}")
        recorder = Recorder(
            self._client_sessions[at], name, self.history, random, lambda: self.world.now_us
        )
        return client, recorder

    def _start_session(self, index: int) -> None:
        """A session lives until its caller vanishes; another takes its place."""
        client, db = self._recorder(index)
        task = Task(client, self._use(db))
        self._tasks.append(task)
        options = self.options
        if options.session_life_us_mean:
            self._kill_later(task, index, 1 / options.session_life_us_mean)
        if options.commit_death_rate:
            db.on_commit = lambda: self._kill_at_commit(task, index)

    def _kill_at_commit(self, task: Task, index: int) -> None:
        """Some time during the commit: it takes a few round trips and flushes."""
        if self._random.random() < self.options.commit_death_rate:
            round_trip_us = 2 * self.options.network.delay_us_mean
            flush_us = self.options.disk.flush_us_mean
            self._kill_later(task, index, 1 / (2 * round_trip_us + flush_us))

    def _kill_later(self, task: Task, index: int, rate: float) -> None:
        self.world.after(int(self._random.expovariate(rate)), lambda: self._kill(task, index))

    def _kill(self, task: Task, index: int) -> None:
        if not self._is_ending and not task.is_over:
            task.kill()
            self._killed_count += 1
            self._start_session(index)

    def _use(self, db: Recorder) -> Protocol[None]:
        """Steps of the workload with pauses between, until the safety phase is over."""
        while not self._is_ending:
            yield pause(db, self.options.think_us_mean)
            try:
                yield from self.workload.step(db)
            except DodonaError:
                continue  # what the caller was told is in the history

    def _operate(self, db: Recorder) -> Protocol[None]:
        """An operator who unmounts and mounts tables, reshards, alters and copies them, freezes
        and unfreezes them, and makes and removes others. What an earlier attempt left halfway is
        put right first."""
        while True:
            yield pause(db, self.options.remount_us_mean)
            if self._is_ending:
                return
            try:
                if db.random.random() < 0.6:
                    path = db.random.choice(self.workload.all_tables).path
                    yield from self._open(db, path)
                    yield from self._close_for_a_while(db, path)
                    yield from self._open(db, path)
                else:
                    yield from self._try_out(db, f"//scratch/{db.random.randrange(3)}")
            except DodonaError:
                self._operator_error_count += 1

    def _close_for_a_while(self, db: Recorder, path: str) -> Protocol[None]:
        dice = db.random.random()
        if dice < 0.6:
            yield from db.session.catalog.unmount_table(path)
            table = self.workload.tables[0]
            is_first = path == table.path
            if dice < 0.2 and is_first and self.workload.may_be_resharded:
                yield from self._reshard(db, path)
            elif dice < 0.3 and is_first:
                yield from table_lifecycle.reorder(db, table)
                self._alter_count += 1
            elif dice < 0.4 and is_first and table.atomicity == "full":
                copy = f"//copies/{db.unique_value().replace('/', '-')}"
                self._copy_count += yield from table_lifecycle.copy(db, table, copy)
        else:
            yield from db.session.catalog.freeze_table(path)
            self._freeze_count += 1
        yield pause(db, 20_000)

    def _reshard(self, db: Recorder, path: str) -> Protocol[None]:
        """Other tablets, in whatever cells they come to lie, from now on."""
        drawn = [
            tuple(self.workload.draw_key(db.random).values())
            for _ in range(db.random.randrange(RESHARD_PIVOTS_MAX + 1))
        ]
        table = self.workload.tables[0]
        in_order = sorted(dict.fromkeys(drawn), key=lambda it: table.bound(it, KEY_MIN))
        pivot_keys = [(), *in_order]
        yield from db.session.catalog.reshard_table(path, pivot_keys)
        self._reshard_count += 1

    def _open(self, db: Recorder, path: str) -> Protocol[None]:
        """Mounted, and not frozen."""
        catalog = db.session.catalog
        table = yield from catalog.get_table(path)
        if any(tablet.state == "frozen" for tablet in table.tablets):
            yield from catalog.unfreeze_table(path)
        yield from catalog.mount_table(path)

    def _try_out(self, db: Recorder, path: str) -> Protocol[None]:
        wrong = yield from table_lifecycle.try_out(db, path)
        if wrong is not None:
            self.result.violations += wrong
            self._trial_count += 1

    # Phases

    def _set_up(self) -> None:
        self._run_until_done(self._create_tables(), SET_UP_US_MAX, "the set-up")

    def _create_tables(self) -> Protocol[None]:
        _, db = self._recorder(0)
        for table in self.workload.all_tables:
            yield from until_it_works(partial(self._create, db, table))
        yield from self._mount_all(db)
        yield from until_true(partial(self.workload.set_up, db))

    def _create(self, db: Recorder, table: TableShape) -> Protocol[None]:
        try:
            yield from db.session.catalog.create_table(
                table.path,
                table.columns,
                table.atomicity,
                table.pivot_keys,
                attributes=table.attributes,
            )
        except TableExists:
            return  # an earlier attempt's reply was lost

    def _mount_all(self, db: Recorder) -> Protocol[None]:
        for table in self.workload.all_tables:
            yield from until_it_works(partial(self._open, db, table.path))

    def _touch_all(self) -> Protocol[None]:
        """Every tablet takes writes again, whatever an operator had begun."""
        _, db = self._recorder(0)
        yield from self._mount_all(db)
        yield from until_true(lambda: self.workload.touch(db))

    def _audit(self) -> Protocol[None]:
        _, db = self._recorder(0)
        yield from until_it_works(lambda: self.workload.conclude(db))

    def _ask_outcomes(self) -> Protocol[None]:
        """A stranger is told what became of transactions, after a restart of all cells."""
        _, db = self._recorder(0)
        db.session = self._new_session(self.cluster.clients[0])
        asked = self.history.transactions
        for t in self._random.sample(asked, min(len(asked), OUTCOMES_ASKED_MAX)):
            yield from until_it_works(partial(self._ask_outcome, db, t))

    def _ask_outcome(self, db: Recorder, t: Transaction) -> Protocol[None]:
        """Until it is final, or forgotten: pending is said as long as a cell is silent, and with a
        short patience that is one which is not where it was. In the end all can be heard."""
        answers = yield from ask_outcomes(db, [t])
        if any(outcome.state == "pending" for _, outcomes in answers for outcome in outcomes):
            raise Unavailable("the outcome is pending")
        self._answers += answers

    def _run_until_done(self, protocol: Protocol[None], limit_us: int, what: str) -> None:
        task = Task(self.cluster.clients[0], protocol)
        self._demand(limit_us, lambda: [] if task.is_over else [f"{what} goes on"])

    def _demand(self, limit_us: int, unfinished: Callable[[], list[str]]) -> None:
        """Let time pass until nothing is unfinished, no longer than the limit."""
        deadline_us = self.world.now_us + limit_us
        while left := unfinished():
            if self.world.now_us >= deadline_us:
                text = f"after {limit_us // SECOND_US} s without faults: " + "; ".join(left[:5])
                raise NotLive(text)
            self.world.run_until(self.world.now_us + POLL_US)

    def _unfinished_sessions(self) -> list[str]:
        count = sum(not task.is_over for task in self._tasks)
        return [f"{count} sessions go on"] if count else []

    # The report

    def _report(self) -> None:
        result, network = self.result, self.cluster.network
        self.world.trace.update(self.history.digest().encode())
        result.digest = self.world.trace.hexdigest()
        statuses = [t.status for t in self.history.transactions if t.commit_us is not None]
        errors = [t.error for t in self.history.transactions]
        result.counts = {
            "virtual seconds": self.world.now_us // SECOND_US,
            "messages": network.delivered_count,
            "crashes": sum(host.crash_count for host in self.cluster.hosts.values()),
            "sessions killed": self._killed_count,
            "frozen": self._freeze_count,
            "resharded": self._reshard_count,
            "altered": self._alter_count,
            "copied": self._copy_count,
            "tried out": self._trial_count,
            "dropped at last": self._dropped_count,
            "operator errors": self._operator_error_count,
            "transactions": len(self.history.transactions),
            "commits asked for": len(statuses),
            "committed": statuses.count("ok"),
            "refused": statuses.count("fail"),
            "conflicts": sum(error.startswith("transaction_conflict") for error in errors),
            "told unknown": self.history.unknown_count,
            "gone while committing": statuses.count("open"),
            "unsure": statuses.count("info") + statuses.count("open"),
            "snapshots": self.workload.snapshot_count,
            "blind": sum(t.is_blind and t.status == "ok" for t in self.history.transactions),
            "pages of changes": self._follower.page_count,
            **self.workload.counts,
        }
        result.fault_counts = self.cluster.fault_counts
        result.scheduled_fault_count = self.cluster.scheduled_counts.total()
        result.fault_point_counts = dict(self.fault_injector.counts)
        result.message_counts = dict(sorted(self.cluster.transport.request_counts.items()))


def _version_order(version: Version) -> tuple[RowKey, int]:
    return version.row, version.timestamp
