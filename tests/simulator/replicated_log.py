"""A replicated log under virtual time: processes that compete to own it, replicas, and an etcd.

Owns: the hosts of the owners, what goes wrong with all, and the truth. Each entry of the log has a
*chain*: a hash of its records and of the chain before it. So two logs with one chain at an index
are the same up to there. What is acknowledged, and what a read shows, is compared with the chains
of all that was acknowledged before.
Must not import: any core but those of `dodona_replication`.
"""

import json
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

from dodona_replication.core.coordination import Answer, Compare, InDoubt
from dodona_replication.core.document import Document, Revisioned, owner_id
from dodona_replication.core.owner import Owner
from dodona_replication.core.owner_effects import (
    Acknowledged,
    AskCoordinator,
    AskReplica,
    Ended,
    Identity,
    OwnerLimits,
    Replay,
)
from dodona_replication.core.take_over import TakeOver
from dodona_wire.errors import Unavailable
from dodona_wire.messages.base import Failure
from dodona_wire.types import Now
from simulator.acknowledged import Truth, chained
from simulator.coordinator import CoordinatorOptions, CoordinatorPort, SimulatedEtcd
from simulator.network import Network, NetworkOptions
from simulator.replica_host import CLUSTER, LOG, ReplicaHost
from simulator.world import Clock, World

COPIES_MIN: Final = 2
CALL_US_MAX: Final = 400_000
"""How long a process waits for the answer of a replica."""
LOOK_US: Final = 5_000
DRIFT_PPM_MAX: Final = 4_500
"""Of one clock. Two clocks differ by less than 1 %."""
AWAY: Final = Failure("unavailable", "no answer")

MakeOwner = Callable[[TakeOver, bytes, Any], Owner]
MakeTakeOver = Callable[[Identity, Revisioned, OwnerLimits, Any], TakeOver]


class Process:
    """A process that may own the log."""

    def __init__(self, run: "ReplicatedLogRun", name: str) -> None:
        self.name = name
        self._run = run
        self._world, self._network = run.world, run.network
        self._random = run.world.stream(f"process/{name}")
        self._clock = Clock(run.world, self._random.randrange(1 << 40))
        self._clock.set_instant_drift(self._random.randint(-DRIFT_PPM_MAX, DRIFT_PPM_MAX))
        self._paused: list[Callable[[], None]] | None = None
        self._start()
        self._later(self._live)

    def _start(self) -> None:
        """A new process: it knows nothing of the one before."""
        number = self._random.randrange(1 << 62)
        self.port = CoordinatorPort(self._world, self._run.etcd, f"{self.name}.{number}")
        self.identity = Identity(CLUSTER, LOG, owner_id(self.name, number.to_bytes(8)))
        self.taking: TakeOver | None = None
        self.owner: Owner | None = None
        self._chains: dict[int, str] = {}
        self._acknowledged_index = 0
        self._checkpoint_index = 0
        self._is_reading = False
        self._asked: tuple[int, int] | None = None
        """When a read was asked for that waits, and what was acknowledged then."""
        self.port.watch(LOG, 0, lambda it: self._when_awake(lambda: self._see(it)))

    # ---- what goes wrong

    def crash(self) -> None:
        self.port.close()
        self._start()

    def pause(self, duration_us: int) -> None:
        """Stand still: what arrives meanwhile is handled afterwards."""
        if self._paused is None:
            self._paused = []
            self._world.after(duration_us, self._resume)

    def _resume(self) -> None:
        waiting, self._paused = self._paused or [], None
        if self.owner is not None:  # it may answer before it hears anything
            self._read(self.owner, self._clock.now())
        self._random.shuffle(waiting)
        for action in waiting:
            action()

    def _when_awake(self, action: Callable[[], None]) -> None:
        if self._paused is None:
            action()
        else:
            self._paused.append(action)

    # ---- life

    def _later(self, action: Callable[[], None]) -> None:
        delay_us = self._random.randrange(1_000, 30_000)
        self._world.after(delay_us, lambda: self._when_awake(action))

    def _live(self) -> None:
        self._work()
        self._later(self._live)

    def _work(self) -> None:
        now, owner = self._clock.now(), self.owner
        if owner is None:
            if self.taking is None and not self._is_reading and self._wants_it():
                self.begin()
            return
        self._read(owner, now)
        if owner.is_open(now) and self._random.random() < 0.7:
            self._append(owner)
        if self._random.random() < 0.2:
            owner.offer(self._run.spares_of(owner.document), now)
        is_drained = owner.is_open(now) and owner.acknowledged_index == owner.last_index
        if self._random.random() < self._run.release_rate and is_drained:
            owner.release(now)
        self._drive()

    def _read(self, owner: Owner, now: Now) -> None:
        """Read what this process may. Without a lease it asks first, and reads later."""
        truth = self._run.truth
        if owner.may_read(now):
            truth.read(self.name, owner.acknowledged_index, self._chain_at)
            return
        if self._asked is None:
            self._asked = now.instant_us, truth.last_index
            owner.ping(now)
        if owner.may_read_since(self._asked[0], now):
            truth.read(self.name, owner.acknowledged_index, self._chain_at, self._asked[1])
            self._asked = None

    def _chain_at(self, index: int) -> str | None:
        """What is before the first entry was cut: the checkpoint has it."""
        is_cut = index < min(self._chains)
        return self._run.truth.chains.get(index) if is_cut else self._chains.get(index)

    def begin(self, expected: Revisioned | None = None) -> None:
        """Take the log over, if this is its document still."""
        self._is_reading = True
        self.port.read(LOG, self._when_read(self.identity, expected))

    def _wants_it(self) -> bool:
        return self._random.random() < self._run.ambition

    def _append(self, owner: Owner) -> None:
        index = owner.last_index + 1
        if index % 17 == 0:  # a checkpoint has the chain of all before it
            records = json.dumps({"checkpoint": self._chains[index - 1]}).encode()
            self._checkpoint_index = index
        else:
            records = json.dumps({"value": self._random.randrange(1 << 62)}).encode()
        self._chain(index, records)
        assert owner.append(records, self._clock.now()) == index

    def _chain(self, index: int, records: bytes) -> None:
        content = json.loads(records)
        before = self._chains.get(index - 1)
        if before is None:
            before = content["checkpoint"] if index > 1 else ""
        self._chains[index] = chained(before, records)

    def _when_read(self, identity: Identity, expected: Revisioned | None) -> Callable[[Any], None]:
        def take(found: Revisioned | Unavailable | None) -> None:
            if identity != self.identity:
                return
            self._is_reading = False
            is_free = expected in (None, found)
            if isinstance(found, Revisioned) and is_free and self._core is None:
                self._chains = {}
                run = self._run
                self.taking = run.make_take_over(identity, found, run.limits, self._clock.now())
                self._drive()

        return lambda found: self._when_awake(lambda: take(found))

    # ---- the cores

    @property
    def _core(self) -> TakeOver | Owner | None:
        return self.owner or self.taking

    def _see(self, current: Revisioned) -> None:
        if (core := self._core) is not None:
            core.handle_document(current, self._clock.now())
            self._drive()

    def _drive(self) -> None:
        """Carry out effects until there are none, and set the timer."""
        while (core := self._core) is not None:
            effects = core.take_effects()
            for effect in effects:
                self._carry_out(core, effect)
            if core is self.taking and self.taking.is_recovered and self.owner is None:
                self._open(self.taking)
            elif not effects:
                break
        if core is not None and (due_us := core.next_deadline()) is not None:
            delay_us = max(self._clock.delay_until(due_us), 1_000)
            self._world.after(delay_us, lambda: self._when_awake(lambda: self._tick(core)))

    def _open(self, taking: TakeOver) -> None:
        opening = json.dumps({"opened": taking.epoch}).encode()
        self.owner = self._run.make_owner(taking, opening, self._clock.now())
        self.taking = self._asked = None
        self._acknowledged_index = 0
        self._chain(self.owner.opening_index, opening)

    def _tick(self, core: TakeOver | Owner) -> None:
        now = self._clock.now()
        due_us = core.next_deadline()
        if core is self._core and due_us is not None and due_us <= now.instant_us:
            core.tick(now)
            self._drive()

    def _carry_out(self, core: TakeOver | Owner, effect: object) -> None:
        match effect:
            case AskReplica():
                self._ask(core, effect)
            case AskCoordinator(compare=compare):
                self.port.compare(
                    LOG,
                    compare.revision,
                    compare.document,
                    lambda it: self._hear(core, compare, it),
                )
            case Replay(entries=entries):
                for entry in entries:
                    self._chain(entry.index, entry.records)
            case Acknowledged(index=index):
                self._acknowledge(index)
            case Ended():
                self._run.truth.counts["ended"] += 1
                self.owner = self.taking = None

    def _acknowledge(self, index: int) -> None:
        owner = self.owner
        assert owner is not None
        self._run.acknowledge(self.name, owner, index, self._chains[index])
        checkpoint, self._acknowledged_index = self._checkpoint_index, index
        if self._run.cuts and owner.opening_index < checkpoint <= index:
            self._checkpoint_index = 0
            owner.cut(checkpoint, self._clock.now())

    def _hear(self, core: TakeOver | Owner, compare: Compare, answer: Answer | Unavailable) -> None:
        def take() -> None:
            if core is self._core:
                found = InDoubt("unavailable") if isinstance(answer, Unavailable) else answer
                core.handle_answer(compare, found, self._clock.now())
                self._drive()

        self._when_awake(take)

    def _ask(self, core: TakeOver | Owner, asked: AskReplica) -> None:
        sent_us = self._clock.now().instant_us

        def take(reply: object) -> None:
            if core is self._core:
                core.handle_reply(asked, reply, sent_us, self._clock.now())
                self._drive()

        self.send(asked, CALL_US_MAX, take)

    def send(self, asked: AskReplica, wait_us: int, then: Callable[[object], None]) -> None:
        """Send a request. Its first answer counts, or that it took too long."""
        answered: list[object] = []

        def take(reply: object) -> None:
            if not answered:
                answered.append(reply)
                then(reply)

        def receive(reply: object) -> None:
            self._network.send(
                asked.replica,
                self.name,
                type(reply).__name__.encode(),
                lambda *_: self._when_awake(lambda: take(reply)),
            )

        host = self._run.replicas.get(asked.replica)
        if host is not None:
            self._network.send(
                self.name,
                asked.replica,
                type(asked.request).__name__.encode(),
                lambda *_: host.receive(asked.request, receive),
            )
        self._world.after(wait_us, lambda: self._when_awake(lambda: take(AWAY)))


MakeProcess = Callable[["ReplicatedLogRun", str], Process]


class ReplicatedLogRun:
    """One run: a storm, and then rest, in which somebody must own the log."""

    def __init__(
        self,
        seed: int,
        *,
        process_count: int = 3,
        replica_count: int = 5,
        member_count: int = 3,
        make_owner: MakeOwner = Owner,
        make_take_over: MakeTakeOver = TakeOver,
        make_process: "MakeProcess | None" = None,
        limits: OwnerLimits | None = None,
    ) -> None:
        self.world = World(seed)
        self.network = Network(self.world, 300)
        self.etcd = SimulatedEtcd(self.world, self.network)
        self.truth = Truth()
        self.limits = limits or OwnerLimits()
        self.make_owner, self.make_take_over = make_owner, make_take_over
        self._random = self.world.stream("run")
        self.ambition = self._random.choice((0.005, 0.02, 0.1))
        self.release_rate = self._random.choice((0.0, 0.002, 0.02))
        self.cuts = self._random.random() < 0.5
        self._storms = True
        self._disks_lost = 0
        names = [f"disk-{number}" for number in range(replica_count)]
        self.replicas = {it: ReplicaHost(self.world, self.network, it) for it in names}
        document = Document.initial(names[:member_count], COPIES_MIN)
        self.etcd._apply(LOG, document)
        make = make_process or Process
        self.processes = [make(self, f"node-{it}") for it in range(process_count)]

    def spares_of(self, document: Document) -> Sequence[str]:
        alive = [it for it, host in self.replicas.items() if not host.is_lost]
        return [it for it in alive if it not in document.members]

    def acknowledge(self, who: str, owner: Owner, index: int, chain: str) -> None:
        self.truth.acknowledge(who, index, chain)
        self._check_members()

    def _check_members(self) -> None:
        """Every member of the document's set has all that is acknowledged, unless its disk is
        lost."""
        newest = self.etcd.newest(LOG)
        assert newest is not None
        for replica in newest.document.members:
            host = self.replicas[replica]
            if not host.is_lost and not host.has(self.truth.last_index):
                self.truth.faults.append(f"{replica} lacks {self.truth.last_index}")

    # ---- what goes wrong

    def _harm(self) -> None:
        if not self._storms:
            return
        random = self._random
        process = random.choice(self.processes)
        replica = random.choice([it for it in self.replicas.values() if not it.is_lost])
        match random.randrange(12):
            case 0:
                process.crash()
            case 1 | 2:
                process.pause(random.randrange(1, 3_000_000))
            case 3 | 4:
                replica.crash()
            case 5:
                self.etcd.lose_leader(random.randrange(1, 2_000_000))
            case 6 | 7 | 8:
                self._cut(process.name, replica.name, random.randrange(1, 4_000_000))
            case 9:
                self._cut(process.name, "etcd", random.randrange(1, 3_000_000))
            case 10:
                self._calm_or_storm()
            case 11 if self._disks_lost < 1 and random.random() < 0.3:
                self._disks_lost += 1
                replica.is_lost = True
        self.world.after(random.randrange(1, 700_000), self._harm)

    def _cut(self, one: str, other: str, duration_us: int) -> None:
        for link in ((one, other), (other, one)):
            if self._random.random() < 0.8:
                self.network.cut(*link)
                self.world.after(duration_us, partial(self.network.mend, *link))

    def _calm_or_storm(self) -> None:
        random = self._random
        rates = NetworkOptions(
            loss_rate=random.choice((0, 0.01, 0.1)),
            repeat_rate=random.choice((0, 0.05)),
            slow_rate=random.choice((0, 0.02)),
            reorder_rate=random.choice((0, 0.1)),
            delay_us_mean=random.choice((300, 3_000)),
            slow_us_max=1_500_000,
        )
        self.network.storm(rates)
        self.etcd.storm(CoordinatorOptions(forgotten_rate=random.choice((0, 0.3))))

    def _look(self) -> None:
        self._check_members()
        self.world.after(LOOK_US, self._look)

    def run(self, seconds: int = 20, rest_seconds: int = 15) -> Truth:
        self._harm()
        self._look()
        self.world.run_until(seconds * 1_000_000)
        self._storms = False
        self.network.calm()
        self.ambition, self.release_rate = min(self.ambition, 0.005), 0.0
        acknowledged = self.truth.counts["acknowledged"]
        self.world.run_until((seconds + rest_seconds) * 1_000_000)
        self._check_members()
        if self.truth.counts["acknowledged"] <= acknowledged:
            self.truth.faults.append("nothing is acknowledged although nothing is broken")
        return self.truth
