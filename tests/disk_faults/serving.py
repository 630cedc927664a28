"""The same stores below the real runtime: requests come at once, group commits gather them.

Owns: the two workloads that drive a core as its server does, for several clients, but without
sockets. What is promised here is what was answered. Other than with the stories of `workloads`, a
seed does not fix the order of events: threads and clocks have a part in it.
"""

import asyncio
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from pathlib import Path
from random import Random
from typing import Any, Final

from disk_faults.stores import FOLDER, LOG_BYTES_MAX, Mark, Wrong, read_log, read_store
from dodona.types import (
    TIMESTAMP_COUNTER_BITS,
    CellId,
    Timestamp,
    TransactionId,
    WireWrite,
    Write,
)
from dodona_oracle.core.allocator import AllocatorSettings
from dodona_oracle.core.master import MasterCore
from dodona_oracle.core.records import state_from_items
from dodona_oracle.shell.store import MasterStore
from dodona_server.process import read_clock
from dodona_server.runtime import Runtime
from dodona_tablets.core.cell.limits import CellLimits
from dodona_tablets.core.node import NodeCore
from dodona_tablets.core.records import (
    CommitDecided,
    CommittedHere,
    PreparedHere,
    Record,
    RowsWritten,
)
from dodona_tablets.shell.log import CellLog
from dodona_wire.cores.effects import AskTimestamps, SendHeartbeat, SendToCell
from dodona_wire.messages.catalog import Assignment, Table
from dodona_wire.messages.data import (
    CommitOne,
    Committed,
    Decide,
    GenerateTimestamps,
    Prepare,
    Prepared,
    TabletModifications,
    TimestampRange,
    WriteNonAtomic,
    Written,
)
from dodona_wire.messages.families import Reply, Request
from unit.oracle.realm import create
from unit.tablets.cells import ATOMIC, CLUSTER, NON_ATOMIC, REVISION, assignment, put

CLIENTS: Final = 4
REQUESTS_PER_CLIENT: Final = 6
KEYS: Final = 100
TEXT_BYTES: Final = (0, 10, 300, 5_000)
CELL_LIMITS: Final = CellLimits(blocked_wait_ms_max=20)
"""Rows that a life left prepared stay so: whoever wants them is not to wait for long."""
MASTER_SETTINGS: Final = AllocatorSettings(window_us=4_000, renew_us=2_000)

_HERE: Final = CellId(0)
_ELSEWHERE: Final = CellId(1)
_ASSIGNED: Final = (assignment(ATOMIC, "full"), assignment(NON_ATOMIC, "none"))


class ServedCell:
    """Commits, prepares with their decisions, and rows without atomicity, each with a number that
    its rows say."""

    name = "cell that serves"

    def run(self, folder: Path, seed: int, mark: Mark) -> None:
        log = CellLog.open(folder / FOLDER, LOG_BYTES_MAX)
        asyncio.run(_serve_cell(log, Random(seed), mark))
        log.close()

    def judge(self, folder: Path, seed: int, marks: Sequence[bytes]) -> None:
        records = read_log(folder)
        found = _numbers_in(records)
        prepared = {it.transaction for it in records if isinstance(it, PreparedHere)}
        decided = {it.transaction for it in records if isinstance(it, CommitDecided)}
        check_told(marks, found, prepared - decided)


class ServedMaster:
    """Ranges of timestamps, faster than a ceiling lasts, and tables."""

    name = "master that serves"

    def run(self, folder: Path, seed: int, mark: Mark) -> None:
        store = MasterStore.open(folder / FOLDER)
        asyncio.run(_serve_master(store, Random(seed), mark))
        store.close()

    def judge(self, folder: Path, seed: int, marks: Sequence[bytes]) -> None:
        state = state_from_items(read_store(folder))
        told = _told(marks)
        if (last := max(told["issued"], default=-1)) >= state.ceiling:
            raise Wrong(f"timestamp {last} was given out, and the ceiling is {state.ceiling}")
        tables = {int(it.path.rpartition("t")[2]) for it in state.tables}
        if missing := told["had"] - tables:
            raise Wrong(f"tables were made, and are not there: {sorted(missing)}")
        if alien := tables - told["asked"]:
            raise Wrong(f"tables are there, but nobody asked for them: {sorted(alien)}")


def check_told(marks: Iterable[bytes], found: set[int], undecided: Collection[int]) -> None:
    """What a cell has, against what it said: of which requests there are rows, and which prepared
    transactions have no decision. Raises Wrong."""
    told = _told(marks)
    if missing := told["had"] - found:
        raise Wrong(f"answered, and not there: {sorted(missing)} ({len(found)} are)")
    if alien := found - told["asked"]:
        raise Wrong(f"there, but never asked for: {sorted(alien)}")
    if missing := told["decided"].intersection(undecided):
        raise Wrong(f"decided, and only prepared: {sorted(missing)}")


def _told(marks: Iterable[bytes]) -> dict[str, set[int]]:
    told: dict[str, set[int]] = {"asked": set(), "had": set(), "decided": set(), "issued": set()}
    for mark in marks:
        word, number = mark.split()
        told[word.decode()].add(int(number))
    return told


def _new_number() -> int:
    """Never the same again, in this life or another."""
    return time.monotonic_ns()


# A cell


def rows_of(number: int) -> tuple[Write, ...]:
    """What the request of this number writes, and nobody else."""
    random = Random(number)
    keys = random.sample(range(KEYS), random.randint(1, 4))
    return tuple(put(key, number, "x" * random.choice(TEXT_BYTES)) for key in keys)


def _numbers_in(records: Iterable[Record]) -> set[int]:
    """Of the requests whose rows are in these records. Raises Wrong if some of them are not."""
    found: set[int] = set()
    for record in records:
        writes: tuple[WireWrite, ...]
        match record:
            case CommittedHere() | PreparedHere():
                (part,) = record.modifications
                writes = part.writes
            case RowsWritten():
                writes = record.writes
            case _:
                continue
        number = writes[0][2][0]
        if [tuple(it) for it in writes] != [tuple(it) for it in rows_of(number)]:
            raise Wrong(f"{record} has not the rows of request {number}")
        found.add(number)
    return found


class Surroundings:
    """All that a cell needs of others: an oracle, a master, and a neighbour that hears nothing."""

    def __init__(self, core: NodeCore) -> None:
        self._core = core
        self._last = Timestamp(0)
        self.runtime: Runtime
        self.is_serving = asyncio.Event()
        self.handlers: dict[type[Any], Callable[[Any], None]] = {
            AskTimestamps: self._answer,
            SendHeartbeat: self._assign,
            SendToCell: lambda _: None,
        }

    def timestamp(self) -> Timestamp:
        """As an oracle of several lives gives them: by the clock, and rising."""
        seconds, nanoseconds = divmod(time.time_ns(), 1_000_000_000)
        now = (seconds << TIMESTAMP_COUNTER_BITS) + nanoseconds
        self._last = Timestamp(max(self._last + 1, now))
        return self._last

    def _answer(self, effect: AskTimestamps) -> None:
        self.runtime.call(self._core.handle_timestamp, effect.token, self.timestamp())

    def _assign(self, effect: SendHeartbeat) -> None:
        assigned = Assignment(_ASSIGNED, {}, effect.body.sequence, REVISION, CLUSTER)
        self.runtime.call(self._core.handle_assignment, assigned)
        if len(effect.body.mounted) == len(_ASSIGNED):
            self.is_serving.set()


async def _serve_cell(log: CellLog, random: Random, mark: Mark) -> None:
    core = NodeCore(_HERE, "address", CELL_LIMITS)
    records = list(log.read())
    for number in sorted(_numbers_in(records)):
        mark(b"had %d" % number)  # whoever asks is told so from now on
    for record in records:
        core.replay(record)
    core.start(read_clock())
    around = Surroundings(core)
    around.runtime = Runtime(core, log, around.handlers)
    around.runtime.start()
    await around.is_serving.wait()
    seeds = [random.randrange(1 << 32) for _ in range(CLIENTS)]
    await asyncio.gather(*(use_cell(around, Random(seed), mark) for seed in seeds))
    await around.runtime.close()


async def use_cell(
    around: Surroundings,
    random: Random,
    mark: Mark,
    count: int = REQUESTS_PER_CLIENT,
    pauses_s: Sequence[float] = (0.0,),
) -> None:
    """One client's requests. The number of each is marked as "asked", and as "had" when it is
    answered; a transaction as "decided"."""
    for _ in range(count):
        number = _new_number()
        mark(b"asked %d" % number)
        await random.choice((_commit, _prepare, _write))(around, number, mark)
        await asyncio.sleep(random.choice(pauses_s))


async def _commit(around: Surroundings, number: int, mark: Mark) -> None:
    start = TransactionId(around.timestamp())
    request = CommitOne(start, _changes(number))
    await _ask(around.runtime, request, Committed, lambda _: mark(b"had %d" % number))


async def _prepare(around: Surroundings, number: int, mark: Mark) -> None:
    start, cells = TransactionId(around.timestamp()), (_HERE, _ELSEWHERE)
    request = Prepare(start, cells, _changes(number))
    reply = await _ask(around.runtime, request, Prepared, lambda _: mark(b"had %d" % number))
    if isinstance(reply, Prepared):
        decision = Decide(start, cells, around.timestamp())
        await _ask(around.runtime, decision, Committed, lambda _: mark(b"decided %d" % start))


async def _write(around: Surroundings, number: int, mark: Mark) -> None:
    request = WriteNonAtomic(NON_ATOMIC, REVISION, around.timestamp(), True, rows_of(number))
    await _ask(around.runtime, request, Written, lambda _: mark(b"had %d" % number))


def _changes(number: int) -> tuple[TabletModifications, ...]:
    return (TabletModifications(ATOMIC, REVISION, rows_of(number)),)


class _Caller:
    """Hears an answer the moment that it leaves."""

    def __init__(self, wanted: type[Reply], hear: Callable[[Any], None]) -> None:
        self._wanted = wanted
        self._hear = hear
        self.answer: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()

    def reply(self, request_id: int, body: Reply) -> None:
        if isinstance(body, self._wanted):
            self._hear(body)
        self.answer.set_result(body)


async def _ask(
    runtime: Runtime, body: Request, wanted: type[Reply], hear: Callable[[Any], None]
) -> Reply:
    """The answer, whatever it is; `hear` is told of one that is as wanted."""
    caller = _Caller(wanted, hear)
    runtime.handle((caller, 1), body)
    return await caller.answer


# A master


async def _serve_master(store: MasterStore, random: Random, mark: Mark) -> None:
    items = list(store.items())
    for table in state_from_items(items).tables:
        mark(b"had %d" % int(table.path.rpartition("t")[2]))
    runtime = Runtime(MasterCore.recover(items, read_clock(), MASTER_SETTINGS), store)
    runtime.start()
    seeds = [random.randrange(1 << 32) for _ in range(CLIENTS)]
    await asyncio.gather(*(_use_master(runtime, Random(seed), mark) for seed in seeds))
    await runtime.close()


async def _use_master(runtime: Runtime, random: Random, mark: Mark) -> None:
    for _ in range(REQUESTS_PER_CLIENT):
        await random.choice((_take_timestamps, _make_table))(runtime, random, mark)
        await asyncio.sleep(random.choice((0, 0.002)))


async def _take_timestamps(runtime: Runtime, random: Random, mark: Mark) -> None:
    def tell_last(given: TimestampRange) -> None:
        mark(b"issued %d" % (given.first + given.count - 1))

    request = GenerateTimestamps(random.choice((1, 1000)))
    await _ask(runtime, request, TimestampRange, tell_last)


async def _make_table(runtime: Runtime, random: Random, mark: Mark) -> None:
    number = _new_number()
    mark(b"asked %d" % number)
    await _ask(runtime, create(f"//d/t{number}"), Table, lambda _: mark(b"had %d" % number))
