"""The servers of a cluster: master, proxies and nodes, each a process with its production core.

Owns: what a restart gives back to each core, and the effects that only one kind of server has:
questions to the master, heartbeats, messages between cells. As the production shells do it, but
over the simulated network. Knows the cores' interface, nothing of their inside.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import msgspec

from dodona.errors import DataCorrupted, Overloaded
from dodona.types import CellId, Timestamp
from dodona_loadtest.histories.history import Acquisition
from dodona_oracle.core.allocator import AllocatorSettings
from dodona_oracle.core.master import MasterCore
from dodona_oracle.core.proxy import ProxyCore
from dodona_oracle.core.records import (
    Group,
    Item,
    MasterState,
    Put,
    Remove,
    changes_of,
    state_from_items,
)
from dodona_tablets.core.cell.limits import CellLimits
from dodona_tablets.core.node import NodeCore
from dodona_tablets.core.records import Checkpoint, Record
from dodona_tablets.core.rows.chunks.chunk import Chunk
from dodona_tablets.core.rows.chunks.index import encode_index
from dodona_tablets.core.rows.chunks.jobs import Built, Job, build
from dodona_wire.cores.batcher import Batcher
from dodona_wire.cores.effects import (
    AskMaster,
    AskTimestamps,
    Effect,
    RemoveChunks,
    RunJob,
    SendHeartbeat,
    SendToCell,
    TruncateLog,
)
from dodona_wire.cores.fault_points import FaultAt, no_faults
from dodona_wire.messages.base import Failure
from dodona_wire.messages.catalog import Assignment, RegisterProxy
from dodona_wire.messages.cells import CellMessage
from dodona_wire.messages.data import GenerateTimestamps, TimestampRange
from dodona_wire.messages.families import Reply, Request
from simulator.disk import Disk, DiskOptions
from simulator.host import CoreStopped, Host
from simulator.lines import LineWatch
from simulator.takeover import LATE_US_MAX, LostDisk
from simulator.transport import Route, Transport

MASTER_ADDRESS = "master:8500"
PROXY_HEARTBEAT_US = 1_000_000
ASYNC_LOSS_US_MAX = 100_000
"""What a crash may take back of durability=async: production's default."""

NO_SPACE = Failure(Overloaded.kind, "no space is left for chunks")

_encode_record = msgspec.msgpack.Encoder().encode
_decode_record: Callable[[bytes], Record] = msgspec.msgpack.Decoder(Record).decode


class MasterHost(Host):
    """The master. Its store is what its durable records come to."""

    disk: Disk

    def __init__(
        self,
        transport: Transport,
        disk_options: DiskOptions,
        timeout_us: int,
        settings: AllocatorSettings | None = None,
        fault_at: FaultAt = no_faults,
    ) -> None:
        super().__init__(transport, "master", MASTER_ADDRESS, timeout_us)
        self._settings = settings
        self._machine = "machine"
        self._fault_at = fault_at
        self.disk = Disk(self.world, self.name, disk_options)

    def displace(self) -> "MasterHost":
        """Its volume is attached to another machine, where the returned process, not started yet,
        is to go on. This one runs until it notices. Of what it was writing all was written or
        nothing; it hears of that late, or not at all. Half of its callers stay with it."""
        successor = MasterHost(
            self.transport, self.disk.options, self._timeout_us, self._settings, self._fault_at
        )
        successor.random, successor.disk = self.random, self.disk
        successor._machine = f"machine since {self.world.now_us}"
        written_count = self.disk.detach()
        if written_count and self.random.random() < 0.5:
            boot, delay_us = self._boot, self.random.randrange(LATE_US_MAX)
            self.world.after(delay_us, lambda: self._hear_late(boot, written_count))
        self.doom.spare()
        self.disk = LostDisk(self.world, self.name, self.random, self.end)
        sources = [name for name in self.transport.ports if self.random.random() < 0.5]
        self.transport.displace(self.address, tuple(sources))
        return successor

    def _hear_late(self, boot: int, written_count: int) -> None:
        if boot == self._boot and self.is_up:
            self._on_durable(written_count)

    def end(self) -> None:
        """Crash, if it has not yet."""
        if self.is_up:
            self.crash()

    def stored(self) -> MasterState:
        """What is durable of it."""
        return state_from_items(self._items())

    def _items(self) -> list[Item]:
        items: dict[tuple[str, bytes], bytes] = {}
        for record in self.disk.records:
            assert isinstance(record, Put | Remove | Group)
            for change in changes_of(record):
                if isinstance(change, Put):
                    items[change.bucket, change.key] = change.value
                else:
                    items.pop((change.bucket, change.key), None)
        return [(bucket, key, value) for (bucket, key), value in items.items()]

    def _recover(self) -> MasterCore:
        stored = self._items()
        self.disk.open(self._on_durable, self.stop)
        return MasterCore.recover(
            stored, self.clock.now(), self._settings, self._machine, self._fault_at
        )

    def _deliver_other(self, effect: Effect) -> None:
        raise AssertionError(f"a master has no use for {effect}")


class ProxyHost(Host):
    """A proxy: stateless, so that a restart begins with nothing."""

    def __init__(
        self, transport: Transport, name: str, timeout_us: int, fault_at: FaultAt = no_faults
    ) -> None:
        super().__init__(transport, name, f"{name}:8600", timeout_us)
        self._fault_at = fault_at

    def start(self) -> None:
        super().start()
        self._register(self._boot)

    def _recover(self) -> ProxyCore:
        return ProxyCore(fault_at=self._fault_at)

    def _register(self, boot: int) -> None:
        if boot == self._boot and self.port is not None:
            self.port.call(MASTER_ADDRESS, RegisterProxy(self.address), _ignore)
            self.world.after(PROXY_HEARTBEAT_US, lambda: self._register(boot))

    def _deliver_other(self, effect: Effect) -> None:
        assert isinstance(effect, AskMaster)
        assert self.port is not None
        token = effect.token
        self.port.call(
            MASTER_ADDRESS,
            GenerateTimestamps(effect.count),
            lambda reply: self._answer(token, reply),
        )

    def _answer(self, token: int, reply: Reply) -> None:
        if isinstance(reply, TimestampRange):
            self.enter(self.core.handle_range, token, reply.first)
        else:
            assert isinstance(reply, Failure)
            self.enter(self.core.handle_failure, token, reply.message)


CoreFactory = Callable[[CellId, str, CellLimits, FaultAt], NodeCore]


class NodeHost(Host):
    """A tablet node: one cell, one log. `make_core` may plant a bug."""

    disk: Disk
    at_once_age_us_max = ASYNC_LOSS_US_MAX

    def __init__(
        self,
        transport: Transport,
        cell: CellId,
        disk_options: DiskOptions,
        timeout_us: int,
        limits: CellLimits,
        has_one_question: bool,
        acquisitions: list[Acquisition],
        make_core: CoreFactory,
        fault_at: FaultAt = no_faults,
    ) -> None:
        super().__init__(transport, f"cell-{cell}", f"cell-{cell}:8700", timeout_us)
        self.cell = cell
        self._absent_disk: Disk | None = None
        self.disk = Disk(self.world, self.name, disk_options)
        self._acquisitions = acquisitions
        self._make_core = make_core
        self._fault_at = fault_at
        self._limits = limits
        self._addresses: dict[CellId, str] = {}
        self._batcher: Batcher[tuple[Any, int]] = Batcher()
        self._questions: list[tuple[Any, int]] = []
        self._is_idle = True
        self._has_one_question = has_one_question
        self._heartbeat: SendHeartbeat | None = None
        self._beating: list[SendHeartbeat] = []
        self.lines = LineWatch(self.name)
        self._jobs: dict[int, None] = {}
        """Under way: the numbers of the files that they make."""

    def move(self, address: str) -> None:
        """The next start is somewhere else."""
        assert not self.is_up
        self.address = address

    def take_away_disk(self) -> None:
        """The next start finds an empty one, until `return_disk`: a volume was not attached."""
        assert not self.is_up
        self._absent_disk = self._absent_disk or self.disk
        self.disk = Disk(self.world, f"{self.name}/empty", self.disk.options)

    def return_disk(self) -> None:
        assert not self.is_up
        self.disk, self._absent_disk = self._absent_disk or self.disk, None

    @property
    def has_empty_disk(self) -> bool:
        return self._absent_disk is not None

    def _recover(self) -> NodeCore:
        self._addresses = {}
        self._batcher = Batcher()
        self._questions = []
        self._heartbeat = None
        self._beating = []
        core = self._make_core(self.cell, self.address, self._limits, self._fault_at)
        records = [_decode_record(record) for record in self.disk.records]
        if self.random.random() < 0.5:  # it spares work, and changes nothing
            for record in records:
                core.foresee(record)
        for record in records:
            core.replay(record)
        self._jobs = {}
        self._open_chunks(core)
        core.start(self.clock.now())
        self.disk.open(self._on_durable, self.stop)
        return core

    def receive(self, route: Route, body: Request | CellMessage) -> None:
        if isinstance(body, CellMessage):
            self.enter(self.core.handle_cell_message, body)
        else:
            self.lines.note_request(body)
            super().receive(route, body)

    def _append(self, record: Any) -> None:
        super()._append(_encode_record(record))

    def _deliver_other(self, effect: Effect) -> None:
        assert self.port is not None
        match effect:
            case AskTimestamps():
                question = (effect.token, self.world.now_us)
                if self._has_one_question:
                    self._batcher.add(question)
                    self._is_idle &= effect.is_idle
                else:
                    self._questions.append(question)
            case SendToCell():
                self.port.post(self._addresses.get(effect.cell), effect.body)
            case SendHeartbeat():
                self._beat(effect)
            case RunJob():
                self._run(effect)
            case RemoveChunks():
                self._remove(effect.numbers)
            case TruncateLog():
                self._truncate(effect.checkpoint)
            case _:
                raise AssertionError(f"a node has no use for {effect}")

    # Chunks: a job's result is there after some time, and durable then

    def _open_chunks(self, core: NodeCore) -> None:
        """Give the core what its log names, read anew."""
        needed = core.chunks_needed()
        files = self.disk.files
        found = {
            number: Chunk(info, files[number].data, encode_index(files[number].index)[0])
            for number, info in needed.items()
        }
        core.open_chunks(found, tuple(sorted(files.keys() - found.keys())))

    def _run(self, effect: RunJob) -> None:
        self._jobs[effect.job.number] = None
        boot = self._boot
        self.world.after(self._job_us(), lambda: self._finish_job(boot, effect))

    def _job_us(self) -> int:
        """How long the next job takes."""
        return self.disk.file_duration_us()

    def _finish_job(self, boot: int, effect: RunJob) -> None:
        if boot != self._boot or not self.is_up:
            return
        del self._jobs[effect.job.number]
        if self.disk.is_full:
            self.disk.fault_counts["file refused"] += 1
            self._refused(effect.job)
            self.enter(self.core.handle_job, effect.token, NO_SPACE)
            return
        try:
            result = self._made(effect.job)
        except Exception as error:
            raise CoreStopped(self.name, error) from error
        self.enter(self.core.handle_job, effect.token, result)

    def _made(self, job: Job) -> Built | Failure | None:
        """Do a job. Its file is durable then."""
        result = build(job)
        if isinstance(result, Built):
            self.disk.files[result.info.number] = result.chunk
        return result

    def _refused(self, job: Job) -> None:
        """Forget a job that a full disk refused."""

    def _remove(self, numbers: tuple[int, ...]) -> None:
        for number in numbers:
            self.disk.files.pop(number, None)

    def stray_chunks(self) -> list[int]:
        """Files of chunks that nobody has any part of."""
        return [it for it in self.disk.files if it not in self.core.cell.chunks.open]

    def stray_objects(self) -> list[int]:
        """Such chunks elsewhere: there are none."""
        return []

    @contextmanager
    def all_rows(self) -> Iterator[None]:
        """Within the block, the rows of all chunks are in memory."""
        yield

    def crash(self) -> None:
        for number in self._jobs:
            self.disk.leave_unfinished(number)
        self.lines.note_crash()
        super().crash()

    def _truncate(self, checkpoint: int) -> None:
        def is_checkpoint(record: bytes) -> bool:
            decoded = _decode_record(record)
            return isinstance(decoded, Checkpoint) and decoded.number == checkpoint

        self.disk.truncate(is_checkpoint)

    # Timestamps: one request in flight, for all that were asked for before it was sent

    def _finish_effects(self) -> None:
        if self.core.cell.counts.protocol_violation_count:
            raise CoreStopped(
                self.name, AssertionError("a protocol violation, but our clients do not lie")
            )
        self.lines.look(self.core.cell)
        if not self._has_one_question:
            self._ask_each()
            return
        count = self._batcher.next_batch_count()
        if count is not None:
            assert self.port is not None
            is_idle, self._is_idle = self._is_idle, True
            self.port.call(MASTER_ADDRESS, GenerateTimestamps(count, is_idle), self._deal)

    def _deal(self, reply: Reply) -> None:
        if isinstance(reply, TimestampRange):
            try:
                shares = self._batcher.split(reply.first)
            except DataCorrupted as error:
                raise CoreStopped(self.name, error) from error
            for (token, asked_us), at, _ in shares:
                self._take_timestamp(token, asked_us, at)
        else:
            self._batcher.fail()  # the core asks again for what it still wants
        self._finish_effects()

    def _ask_each(self) -> None:
        """Another shell may ask for each by itself: the core must not count on any order."""
        assert self.port is not None
        asked, self._questions = self._questions, []
        for token, asked_us in asked:
            self.port.call(MASTER_ADDRESS, GenerateTimestamps(1), self._receiver(token, asked_us))

    def _receiver(self, token: Any, asked_us: int) -> Callable[[Reply], None]:
        def receive(reply: Reply) -> None:
            if isinstance(reply, TimestampRange):
                self._take_timestamp(token, asked_us, reply.first)

        return receive

    def _take_timestamp(self, token: Any, asked_us: int, at: Timestamp) -> None:
        self._acquisitions.append(Acquisition(self.name, asked_us, self.world.now_us, at, at))
        self.enter(self.core.handle_timestamp, token, at)

    # Heartbeats: one at a time beside one that may be held, and the newest next

    def _beat(self, effect: SendHeartbeat) -> None:
        if not all(it.body.hold_ms for it in self._beating) or len(self._beating) > 1:
            self._heartbeat = effect
            return
        assert self.port is not None
        self._beating.append(effect)
        self.port.call(MASTER_ADDRESS, effect.body, partial(self._take_assignment, effect))

    def _take_assignment(self, effect: SendHeartbeat, reply: Reply) -> None:
        self._beating.remove(effect)
        if isinstance(reply, Assignment):
            self._addresses.update(reply.addresses)
            self.enter(self.core.handle_assignment, reply)
        if self._heartbeat is not None:
            waiting, self._heartbeat = self._heartbeat, None
            self._beat(waiting)


def _ignore(_: Reply) -> None:
    """Whether it arrived is seen by whoever looks at the cluster."""
