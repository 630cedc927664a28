"""Run a master and one cell in this process, on the stores that servers have. One thread at a time.

Owns: carrying out both cores' effects under one rule. Effects are carried out in order, and no
reply behind an append leaves before the append is durable. Messages between the cores (timestamps,
heartbeats) are method calls. A flush has a begin, a run and an end. While it runs, in any thread,
the cores go on, and records gather for the next flush.
"""

import os
import time
from _queue import SimpleQueue
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final, Protocol

from dodona._core.protocol.steps import MASTER, ORACLE, Target
from dodona_oracle.core.allocator import AllocatorSettings
from dodona_oracle.core.clock_guard import DAY_US, START_VARIABLE
from dodona_oracle.core.master import MasterCore
from dodona_oracle.shell.store import MasterStore
from dodona_server.disk_space import DiskSpace, no_space_told
from dodona_server.process import read_clock
from dodona_tablets.core.cell.limits import CellLimits
from dodona_tablets.core.node import NodeCore
from dodona_tablets.shell.chunk_files import ChunkFiles
from dodona_tablets.shell.jobs import Jobs
from dodona_tablets.shell.log import CellLog
from dodona_tablets.shell.recovery import DRAIN_S_MAX, DRAIN_STEP_S, note_disk, open_chunks
from dodona_wire.cores.effects import (
    HELD_EFFECTS,
    Append,
    AskTimestamps,
    Effect,
    RemoveChunks,
    ReplyAtOnce,
    ReplyTo,
    RunJob,
    SendHeartbeat,
    TruncateLog,
)
from dodona_wire.errors import (
    DodonaError,
    FolderInUse,
    InvalidRequest,
    Unavailable,
    error_from_wire,
)
from dodona_wire.messages.base import Failure
from dodona_wire.messages.catalog import Assignment
from dodona_wire.messages.data import GenerateTimestamps, TimestampRange
from dodona_wire.messages.families import Reply, Request
from dodona_wire.shown import shown
from dodona_wire.types import CellId, Now, Timestamp

CELL: Final = CellId(0)
ADDRESS: Final = "embedded"
LOG_BYTES_MAX: Final = 64 << 30
COMPACTION_BYTES_PER_S: Final = 64 << 20
LIMITS: Final = CellLimits(heartbeat_period_ms=10, heartbeat_hold_ms=0)
"""A heartbeat is a method call here, so it is frequent, and a mount is fast."""
DIGITS_MAX: Final = 6
"""The length of a number of days, at most."""

Deliver = Callable[[Reply], None]
Asked = tuple[Target, Request, Deliver]


class _Core(Protocol):
    def take_effects(self) -> list[Effect]: ...


class _Log(Protocol):
    def append(self, records: Sequence[Any]) -> None: ...


class _Batch:
    """Records that are made durable together, and the replies that wait for them."""

    __slots__ = ("held", "records")

    def __init__(self) -> None:
        self.records: list[Any] = []
        self.held: list[Effect] = []


class _Outbox:
    """The effects of one core that are not carried out yet. Appends gather, and the replies behind
    them wait."""

    def __init__(
        self, core: _Core, log: _Log, handle_durable: Callable[[Any, Now], None] | None = None
    ) -> None:
        self._core = core
        self._log = log
        self._handle_durable = handle_durable
        self._gathering = _Batch()
        self._in_flight: _Batch | None = None

    @property
    def is_flush_due(self) -> bool:
        return bool(self._gathering.records)

    def sort(self) -> list[Effect]:
        """Take the core's effects. Return those that may be carried out now, in order."""
        free: list[Effect] = []
        for effect in self._core.take_effects():
            if type(effect) is Append:
                self._gathering.records.append(effect.record)
            elif type(effect) in HELD_EFFECTS and self._gathering.records:
                self._gathering.held.append(effect)
            elif type(effect) in HELD_EFFECTS and self._in_flight is not None:
                self._in_flight.held.append(effect)
            else:
                free.append(effect)
        return free

    def begin(self) -> None:
        """Begin a flush of the gathered records. Later records gather for the next flush."""
        assert self._in_flight is None, "one flush at a time"
        self._in_flight, self._gathering = self._gathering, _Batch()

    def write(self) -> None:
        """Make the flush's records durable. This uses the log only, so another thread may use the
        cores."""
        if self._in_flight is not None and self._in_flight.records:
            self._log.append(self._in_flight.records)

    def end(self, now: Now) -> list[Effect]:
        """End the flush: tell the core that its records are durable. Return the effects that
        waited, in order."""
        batch, self._in_flight = self._in_flight, None
        assert batch is not None
        if self._handle_durable is not None:
            for record in batch.records:
                self._handle_durable(record, now)
        return batch.held


def _allocator_settings() -> AllocatorSettings:
    """Return a master's settings of timestamps. An embedded database may need only one: how far the
    clock may be ahead at a start. A database that was closed for longer could not be opened
    otherwise. Raises InvalidRequest."""
    text = os.environ.get(START_VARIABLE)
    if text is None:
        return AllocatorSettings()
    if not (text.isascii() and text.isdecimal() and 0 < len(text) <= DIGITS_MAX and int(text)):
        raise InvalidRequest(
            f"{START_VARIABLE} takes a number of days, at least 1, not {shown(text)}"
        )
    return AllocatorSettings(clock_start_us_max=int(text) * DAY_US)


class Cores:
    """Both cores and their stores. Make them with `open`. After any exception their state is
    unknown: close them and open others, which recovers. All methods but `flush` must be called by
    one thread at a time. `flush` must be called by one thread, between `begin_flush` and
    `end_flush`."""

    def __init__(self, folder: Path, store: MasterStore, log: CellLog) -> None:
        self._folder = folder
        self._space = DiskSpace(folder)
        self._store = store
        self._log = log
        self._master = MasterCore.recover(store.items(), read_clock(), _allocator_settings())
        self._node = NodeCore(CELL, ADDRESS, LIMITS)
        for record in log.survey():
            self._node.foresee(record)
        for record in log.read():
            self._node.replay(record)
        chunks = ChunkFiles(log.path)
        open_chunks(self._node, chunks)
        self._results: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._jobs = Jobs(chunks, COMPACTION_BYTES_PER_S, self._deliver, self._fail)
        self._node.start(read_clock())
        self._node.note_log(log.size_bytes(), log.fill_ratio(), read_clock())
        self._master_outbox = _Outbox(self._master, store, self._master.handle_durable)
        self._node_outbox = _Outbox(self._node, log)
        self._is_flushing = False
        self._refusal: Failure | None = None
        self._write_all()
        self._look_at_disk(read_clock())
        if not self._node.is_serving:
            why = self._master.why_not_ready(read_clock())
            if why is not None:
                raise Unavailable(why, path=str(folder))
            refusal = self._refusal
            assert refusal is not None, "the master refuses a cell that does not serve"
            raise error_from_wire(refusal.kind, refusal.message, refusal.attributes)

    @classmethod
    def open(cls, folder: Path) -> "Cores":
        """Recover the folder, which has the layout of a local cluster with one node.

        Raises FolderInUse, DataCorrupted, DiskFull, InvalidRequest.
        """
        with no_space_told(folder):
            return cls._open(folder)

    @classmethod
    def _open(cls, folder: Path) -> "Cores":
        DiskSpace(folder).make_way()
        try:
            store = MasterStore.open(folder / "master")
        except FolderInUse as error:
            raise in_use(folder, error) from error
        try:
            log = CellLog.open(folder / f"node-{CELL}", LOG_BYTES_MAX)
        except FolderInUse as error:
            store.close()
            raise in_use(folder, error) from error
        except BaseException:
            store.close()
            raise
        try:
            return cls(folder, store, log)
        except BaseException:
            store.close()
            log.close()
            raise

    def serve(self, requests: Sequence[Asked]) -> None:
        """Handle requests together. Requests that need no flush and no passage of time are answered
        before this returns. Later calls, even without requests, answer the others."""
        self._take_results()
        now = read_clock()
        is_about_tables = any(target == MASTER for target, _, _ in requests)
        if now.instant_us >= self._deadline_us() or is_about_tables:
            self._master.tick(now)
            self._node.note_log(self._log.size_bytes(), self._log.fill_ratio(), now)
            self._look_at_disk(now)
            self._node.tick(now)
            self._settle(now)
        for target, body, deliver in requests:
            self._handle(target, body, deliver, now)
        self._settle(now)

    @property
    def is_flush_due(self) -> bool:
        """Return whether there are records to flush, and no flush runs."""
        is_due = self._node_outbox.is_flush_due or self._master_outbox.is_flush_due
        return is_due and not self._is_flushing

    def begin_flush(self) -> bool:
        """Begin a flush if one is due. Return whether the caller must call `flush`, and then
        `end_flush`."""
        if not self.is_flush_due:
            return False
        self._is_flushing = True
        self._master_outbox.begin()
        self._node_outbox.begin()
        return True

    def flush(self) -> None:
        """Make the flush's records durable. Blocks; the cores may be used meanwhile. Raises
        DiskFull, and the errors of the stores."""
        with no_space_told(self._folder):
            self._master_outbox.write()
            self._node_outbox.write()

    def end_flush(self) -> None:
        """End a flush, and send the replies that waited for it."""
        now = read_clock()
        self._is_flushing = False
        self._node.note_log(self._log.size_bytes(), self._log.fill_ratio(), now)
        for effect in [*self._master_outbox.end(now), *self._node_outbox.end(now)]:
            self._carry_out(effect, now)
        self._settle(now)

    def finish(self) -> None:
        """Bring rows into chunks before a clean end, for at most `DRAIN_S_MAX`."""
        until_s = time.monotonic() + DRAIN_S_MAX
        while time.monotonic() < until_s:
            self._node.drain(read_clock())
            self._write_all()
            if self._node.is_drained:
                break
            time.sleep(DRAIN_STEP_S)
            self._take_results()
        self._node.finish(read_clock())
        self._write_all()

    def _write_all(self) -> None:
        self._settle(read_clock())
        while self.begin_flush():
            self.flush()
            self.end_flush()

    def close(self) -> None:
        """Close the stores. All data that was reported durable is durable."""
        try:
            self._jobs.close()
        finally:
            self._store.close()
            self._log.close()

    def _look_at_disk(self, now: Now) -> None:
        if not self._is_flushing:  # a flush may be using the log
            note_disk(self._node, self._log, self._space)
            self._master.note_disk(self._node.cell.room.disk_shortage, now)

    def _deadline_us(self) -> int:
        master_us = self._master.next_deadline()
        node_us = self._node.next_deadline()
        return node_us if master_us is None else min(master_us, node_us)

    def _handle(self, target: Target, body: Any, deliver: Deliver, now: Now) -> None:
        if target in (MASTER, ORACLE):
            self._master.handle(deliver, body, now)
        elif target == CELL:
            self._node.handle(deliver, body, now)
        else:
            deliver(Failure("unavailable", f"there is no cell {target} here", {"is_sent": False}))

    # ---- long work: a thread for each job; the next call takes its result

    def _deliver(self, token: Any, result: Any) -> None:
        self._results.put(lambda: self._node.handle_job(token, result, read_clock()))

    def _fail(self, error: BaseException) -> None:
        def end() -> None:
            raise error

        self._results.put(end)

    def _take_results(self) -> None:
        while not self._results.empty():
            self._results.get()()
            self._settle(read_clock())

    # ---- effects

    def _settle(self, now: Now) -> None:
        """Carry out effects until both outboxes have only effects that wait for a flush."""
        while effects := [*self._master_outbox.sort(), *self._node_outbox.sort()]:
            tokens = [token for it in effects if (token := self._carry_out(it, now)) is not None]
            if tokens:
                request = GenerateTimestamps(len(tokens))
                self._master.handle(partial(self._deal, tokens), request, now)

    def _carry_out(self, effect: Effect, now: Now) -> Any:
        """Carry out an effect. Return the token of a request for a timestamp, else None: such
        requests are sent together."""
        match effect:
            case ReplyTo() | ReplyAtOnce():
                effect.route(effect.body)
            case AskTimestamps():
                return effect.token
            case SendHeartbeat():
                self._master.handle(self._assign, effect.body, now)
            case RunJob():
                self._jobs.run(effect)
            case RemoveChunks():
                self._jobs.remove(effect)
            case TruncateLog():
                self._jobs.truncate(self._log, effect)
            case _:
                raise AssertionError(f"an effect that one cell alone can't have: {effect}")
        return None

    def _deal(self, tokens: list[Any], reply: Reply) -> None:
        if isinstance(reply, TimestampRange):
            now = read_clock()
            for place, token in enumerate(tokens):
                self._node.handle_timestamp(token, Timestamp(reply.first + place), now)

    def _assign(self, reply: Reply) -> None:
        if isinstance(reply, Assignment):
            self._node.handle_assignment(reply, read_clock())
        elif isinstance(reply, Failure):
            self._refusal = reply


def in_use(folder: Path, error: DodonaError) -> FolderInUse:
    """Return the same error, for the folder that the user named."""
    return FolderInUse(
        f"{folder} is open already, in another process or by another client in this process: "
        "close it there, or use another folder",
        path=str(folder),
        reason=error.message,
    )
