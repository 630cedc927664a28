"""Cells on a bench: cores driven by hand, with an oracle that answers when told to.

Owns: `Bench`, one or more `NodeCore`s with one table spread over them, and short words for what
tests do with them. Knows the cores' public inputs and effects only (and dumps of their state).
"""

from collections import defaultdict
from typing import Any

import msgspec

from dodona.schema import TableSchema
from dodona.types import (
    KEY_MAX,
    SYNC_LAST_COMMITTED,
    Atomicity,
    CellId,
    ClusterId,
    Key,
    Now,
    Revision,
    TableSettings,
    TabletId,
    Timestamp,
    TransactionId,
    Write,
)
from dodona_tablets.core.cell.limits import CellLimits
from dodona_tablets.core.node import NodeCore
from dodona_tablets.core.records import Checkpoint, Record
from dodona_tablets.core.rows.chunks.chunk import Chunk
from dodona_tablets.core.rows.chunks.index import encode_index
from dodona_tablets.core.rows.chunks.info import ChunkInfo
from dodona_tablets.core.rows.chunks.jobs import Built, build
from dodona_wire.cores.effects import (
    Append,
    AskTimestamps,
    EvictChunks,
    FetchChunk,
    RemoveChunks,
    ReplyAtOnce,
    ReplyTo,
    RunJob,
    SendHeartbeat,
    SendToCell,
    TouchChunks,
    TruncateLog,
)
from dodona_wire.cores.fault_points import FaultAt, no_faults
from dodona_wire.messages.catalog import Assignment, TabletAssignment
from dodona_wire.messages.data import (
    CommitOne,
    DataRequest,
    Decide,
    Lookup,
    Prepare,
    RowLock,
    TabletModifications,
)
from dodona_wire.messages.families import Reply

SCHEMA = TableSchema.parse(
    [
        {"name": "id", "type": "int64", "sort_order": "ascending"},
        {"name": "a", "type": "int64"},
        {"name": "b", "type": "utf8", "lock": "group_b"},
    ]
)
ATOMIC, NON_ATOMIC = TabletId(1), TabletId(2)
MODES: dict[TabletId, Atomicity] = {ATOMIC: "full", NON_ATOMIC: "none"}
REVISION = Revision(1)
SECOND = 1 << 30
CLUSTER = ClusterId(1)


class Bench:
    """`count` cells; each has tablet ATOMIC (full) and NON_ATOMIC (none) of its own."""

    def __init__(
        self,
        count: int = 1,
        limits: CellLimits | None = None,
        *,
        schema: TableSchema | None = None,
        settings: TableSettings = TableSettings(),  # noqa: B008 - frozen
        fault_at: FaultAt = no_faults,
    ) -> None:
        self.tables = [
            msgspec.structs.replace(
                assignment(tablet, atomicity),
                settings=settings,
                columns=(schema or SCHEMA).columns,
            )
            for tablet, atomicity in MODES.items()
        ]
        self.clock_us = 1_000_000
        self.oracle = 1_000_000 * SECOND
        self.limits = limits
        self.fault_at = fault_at
        self.nodes: dict[CellId, NodeCore] = {}
        self.logs: defaultdict[CellId, list[Record]] = defaultdict(list)
        """What a restart finds."""
        self.appended: defaultdict[CellId, list[Record]] = defaultdict(list)
        """All that was ever written there."""
        self.replies: dict[Any, list[Reply]] = {}
        self.asked: list[tuple[CellId, Any]] = []
        self.in_flight: list[tuple[CellId, Any]] = []
        self.heartbeats: dict[CellId, Any] = {}
        self.jobs: list[tuple[CellId, RunJob]] = []
        self.holds_jobs = False
        """Whether long work stays under way until `finish_jobs`."""
        self.files: defaultdict[CellId, dict[int, Chunk]] = defaultdict(dict)
        self.objects: dict[tuple[CellId, int], Any] = {}
        """The rows of each chunk, as an object store has them."""
        self.is_cold = False
        """Whether a start finds no rows of chunks."""
        self.fetches: list[tuple[CellId, ChunkInfo]] = []
        self.holds_fetches = False
        """Whether chunks stay on their way until `finish_fetches`."""
        self.evicted: list[int] = []
        self.touched: list[tuple[int, ...]] = []
        self.revision = Revision(0)
        """The last that was given out."""
        for index in range(count):
            self.add(CellId(index))

    def add(self, cell: CellId) -> None:
        self.start(cell)
        self.assign(cell, [])  # it joins
        self.assign(cell, self.tables)
        self.answer_oracle()

    def start(self, cell: CellId) -> None:
        """A fresh process over the same log: what a restart does."""
        node = self.nodes[cell] = NodeCore(cell, f"address-{cell}", self.limits, self.fault_at)
        for record in self.logs[cell]:
            node.foresee(record)
        for record in self.logs[cell]:
            node.replay(record)
        needed = node.chunks_needed()
        self.jobs = [job for job in self.jobs if job[0] != cell]
        self.fetches = [it for it in self.fetches if it[0] != cell]
        self.files[cell] = {number: self._reopened(cell, number) for number in needed}
        node.open_chunks(self.files[cell])
        node.start(self.now)
        self.carry_out(cell)
        self.answer_oracle()

    def _reopened(self, cell: CellId, number: int) -> Chunk:
        known = self.files[cell][number]
        rows = None if self.is_cold else self.objects.get((cell, number), known.data)
        return Chunk(known.info, rows, encode_index(known.index)[0])

    def assign(
        self, cell: CellId, tablets: list[TabletAssignment], dropped: tuple[TabletId, ...] = ()
    ) -> None:
        sequence = self.heartbeats[cell].sequence
        self.revision = max([self.revision, *[tablet.revision for tablet in tablets]])
        assignment = Assignment(tuple(tablets), {}, sequence, self.revision, CLUSTER, dropped)
        self.nodes[cell].handle_assignment(assignment, self.now)
        self.carry_out(cell)

    @property
    def now(self) -> Now:
        return Now(self.clock_us, self.clock_us)

    def timestamp(self) -> Timestamp:
        self.oracle += 1
        return Timestamp(self.oracle)

    def begin(self) -> TransactionId:
        return TransactionId(self.timestamp())

    # Effects

    def finish_jobs(self) -> None:
        """Do all long work that was asked for, and whatever that leads to."""
        while self.jobs:
            cell, effect = self.jobs.pop(0)
            result = build(effect.job)
            if isinstance(result, Built):
                self.files[cell][result.info.number] = result.chunk
                self.objects[cell, result.info.number] = result.chunk.data
            self.nodes[cell].handle_job(effect.token, result, self.now)
            self.carry_out(cell)

    def finish_fetches(self, result: Any = None) -> None:
        """Bring all chunks that were asked for, or give this result for each."""
        while self.fetches:
            self.finish_fetch(result)

    def finish_fetch(self, result: Any = None) -> None:
        """Bring the first chunk that was asked for, or give this result for it."""
        cell, info = self.fetches.pop(0)
        found = self.objects[cell, info.number] if result is None else result
        self.nodes[cell].handle_chunk(info.number, found, self.now)
        self.carry_out(cell)
        self.clock_us += 2_000  # until the next slice
        self.nodes[cell].tick(self.now)
        self.carry_out(cell)

    def carry_out(self, cell: CellId) -> None:
        for effect in self.nodes[cell].take_effects():
            self.note(cell, effect)
            match effect:
                case Append():
                    self.logs[cell].append(effect.record)
                    self.appended[cell].append(effect.record)
                case ReplyTo() | ReplyAtOnce():
                    self.replies.setdefault(effect.route, []).append(effect.body)
                case AskTimestamps():
                    self.asked.append((cell, effect.token))
                case SendToCell():
                    self.in_flight.append((effect.cell, effect.body))
                case SendHeartbeat():
                    self.heartbeats[cell] = effect.body
                case RunJob() | RemoveChunks() | TruncateLog():
                    self._work(cell, effect)
                case _:
                    self._keep(cell, effect)
        if not self.holds_jobs:
            self.finish_jobs()
        if not self.holds_fetches:
            self.finish_fetches()

    def _keep(self, cell: CellId, effect: Any) -> None:
        match effect:
            case FetchChunk():
                self.fetches.append((cell, effect.info))
            case EvictChunks():
                self.evicted += effect.numbers
            case TouchChunks():
                self.touched.append(effect.numbers)
            case _:
                raise AssertionError(effect)

    def note(self, cell: CellId, effect: Any) -> None:
        """For benches that write effects down. Does nothing here."""

    def _work(self, cell: CellId, effect: RunJob | RemoveChunks | TruncateLog) -> None:
        if isinstance(effect, RunJob):
            self.jobs.append((cell, effect))
        elif isinstance(effect, RemoveChunks):
            for number in effect.numbers:
                del self.files[cell][number]
        else:
            log = self.logs[cell]
            while not is_checkpoint(log[0], effect.checkpoint):
                log.pop(0)

    def answer_oracle(self) -> None:
        """Answer every question asked so far, and those asked because of it."""
        while self.asked:
            cell, token = self.asked.pop(0)
            self.nodes[cell].handle_timestamp(token, self.timestamp(), self.now)
            self.carry_out(cell)

    def deliver(self) -> None:
        """Deliver all cell messages, and those sent because of them."""
        while self.in_flight:
            cell, body = self.in_flight.pop(0)
            self.nodes[cell].handle_cell_message(body, self.now)
            self.carry_out(cell)
            self.answer_oracle()

    def settle(self) -> None:
        self.answer_oracle()
        self.deliver()

    def pass_time(self, seconds: float) -> None:
        """Let both clocks go on, and every cell tick until then."""
        for _ in range(int(seconds * 10)):
            self.clock_us += 100_000
            self.oracle += SECOND // 10
            for cell, node in self.nodes.items():
                node.tick(self.now)
                self.carry_out(cell)

    # Requests: each returns its route; `answer` is what came for it

    def ask(self, body: DataRequest, cell: int = 0) -> object:
        route = object()
        self.nodes[CellId(cell)].handle(route, body, self.now)
        self.carry_out(CellId(cell))
        return route

    def answer(self, route: object) -> Reply | None:
        replies = self.replies.get(route, [])
        assert len(replies) <= 1, "two answers to one request"
        return replies[0] if replies else None

    def commit_one(self, start: TransactionId, *writes: Write, cell: int = 0) -> object:
        return self.ask(CommitOne(start, (changes(*writes),)), cell)

    def commit_blind(self, start: TransactionId, *writes: Write, cell: int = 0) -> object:
        return self.ask(CommitOne(start, (changes(*writes),), is_blind=True), cell)

    def commit(self, *writes: Write, cell: int = 0) -> Timestamp:
        """Begin and commit at once; the commit timestamp."""
        return self.try_commit(*writes, cell=cell).timestamp  # type: ignore[union-attr]

    def try_commit(
        self, *writes: Write, start: TransactionId | None = None, cell: int = 0
    ) -> Reply | None:
        """As `commit`, or begun earlier; whatever comes for it."""
        route = self.commit_one(start or self.begin(), *writes, cell=cell)
        self.answer_oracle()
        return self.answer(route)

    def prepare(self, start: TransactionId, *writes: Write, cell: int) -> object:
        cells = tuple(sorted(self.nodes))
        return self.ask(Prepare(start, cells, (changes(*writes),)), cell)

    def decide(self, start: TransactionId, at: Timestamp | None, cell: int = 0) -> object:
        return self.ask(Decide(start, tuple(sorted(self.nodes)), at), cell)

    def lookup(
        self, *ids: int, at: Timestamp = SYNC_LAST_COMMITTED, cell: int = 0, mask: int = 3
    ) -> object:
        keys = tuple(key(number) for number in ids)
        return self.ask(Lookup(ATOMIC, REVISION, at, keys, mask), cell)

    def read(
        self, number: int, at: Timestamp = SYNC_LAST_COMMITTED, cell: int = 0
    ) -> tuple[Any, ...] | None:
        route = self.lookup(number, at=at, cell=cell)
        self.answer_oracle()
        return self.answer(route).rows[0]  # type: ignore[union-attr]


def assignment(
    tablet: TabletId, atomicity: Atomicity, revision: Revision = REVISION
) -> TabletAssignment:
    path = f"//test/{atomicity}"
    return TabletAssignment(tablet, revision, path, SCHEMA.columns, atomicity, Key(b""), KEY_MAX)


def key(number: int) -> Key:
    return SCHEMA.key_of({"id": number})


def put(number: int, a: int | None, b: str | None = None) -> Write:
    return SCHEMA.write_of({"id": number, "a": a, "b": b})


def update(number: int, **values: Any) -> Write:
    return SCHEMA.write_of({"id": number, **values}, is_update=True)


def delete(number: int) -> Write:
    return key(number), 0, ()


def changes(*writes: Write, locks: tuple[RowLock, ...] = ()) -> TabletModifications:
    return TabletModifications(ATOMIC, REVISION, writes, locks)


def is_checkpoint(record: Record, number: int) -> bool:
    return isinstance(record, Checkpoint) and record.number == number
