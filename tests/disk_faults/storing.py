"""A cell that does everything with its disk: log, flushes, compactions, checkpoints, truncations.

Owns: the workload whose rows leave memory. It is `serving`'s, with the threads that a server has
for long work, and a core that is told to begin such work early and often. What is judged are the
rows that the whole of the recovery finds, wherever they are; and that a cell goes on from there.
"""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from random import Random
from typing import Any, Final

from disk_faults.serving import CELL_LIMITS, Surroundings, check_told, rows_of, use_cell
from disk_faults.stores import FOLDER, Mark, Wrong
from dodona.types import CellId, Key, Now, Timestamp, TransactionId
from dodona_server.process import read_clock
from dodona_server.runtime import Runtime
from dodona_tablets.core.node import NodeCore
from dodona_tablets.core.records import CommittedHere
from dodona_tablets.core.tablet.transaction import State
from dodona_tablets.shell.chunk_files import ChunkFiles
from dodona_tablets.shell.jobs import Jobs
from dodona_tablets.shell.log import CellLog
from dodona_tablets.shell.recovery import open_chunks
from dodona_wire.cores.effects import RemoveChunks, RunJob, TruncateLog
from dodona_wire.cores.fault_points import FaultAt, FaultPoint, no_faults

LOG_BYTES_MAX: Final = 1 << 23
"""Of a log with files of 512 KiB at most, and of a quarter before a checkpoint."""
CLIENTS: Final = 4
REQUESTS_PER_CLIENT: Final = 10
PAUSES_S: Final = (0.0, 0.002, 0.01)
"""Between two requests: long work needs ticks to begin."""
RATES: Final = {
    FaultPoint.ROTATE_EARLY: 0.4,
    FaultPoint.COMPACT_EARLY: 0.6,
    FaultPoint.CHECKPOINT_EARLY: 0.3,
    FaultPoint.RAISE_WATERMARK_EARLY: 0.3,
}
TICK_S: Final = 0.002
COMPACTION_BYTES_PER_S: Final = 1 << 30


class StoringCell:
    """Requests as those of a `ServedCell`; their rows are flushed and compacted, their log cut."""

    name = "cell that stores"

    def run(self, folder: Path, seed: int, mark: Mark) -> None:
        random = Random(seed)
        draw = Random(seed + 1)
        cell = _Recovered(folder, lambda point: draw.random() < RATES.get(point, 0.0))
        for number in sorted(_numbers_in(cell.core)):
            mark(b"had %d" % number)  # whoever asks is told so from now on
        asyncio.run(_serve(cell, random, mark))
        cell.log.close()

    def judge(self, folder: Path, seed: int, marks: Sequence[bytes]) -> None:
        found = _Recovered(folder).look()
        check_told(marks, *found)
        cell = _Recovered(folder)
        cell.log.append([CommittedHere(TransactionId(1), Timestamp(1), ())])
        cell.log.close()
        if _Recovered(folder).look() != found:
            raise Wrong("a recovery behind one more record finds other rows")


class _Recovered:
    """A cell as its log and chunks have it, by the server's own steps."""

    def __init__(self, folder: Path, fault_at: FaultAt = no_faults) -> None:
        self.log = CellLog.open(folder / FOLDER, LOG_BYTES_MAX)
        try:
            self.files = ChunkFiles(folder / FOLDER)
            self.core = NodeCore(CellId(0), "address", CELL_LIMITS, fault_at)
            for record in self.log.survey():
                self.core.foresee(record)
            for record in self.log.read():
                self.core.replay(record)
            open_chunks(self.core, self.files)
        except BaseException:
            self.log.close()
            raise

    def look(self) -> tuple[set[int], set[int]]:
        """Close it. → whose rows are there, and which transactions are prepared."""
        try:
            self.core.start(Now(0, 0))
            alive = self.core.cell.transactions.values()
            prepared = {int(it.id) for it in alive if it.state is State.PREPARED}
            return _numbers_in(self.core), prepared
        finally:
            self.log.close()


def _numbers_in(core: NodeCore) -> set[int]:
    """Of the requests whose rows are there, committed or prepared. Raises Wrong if any has not all
    of its own."""
    keys_by_number: dict[int, set[Key]] = {}
    for row_key, values in _rows_in(core):
        number, text = values
        expected = {it[0]: it[2] for it in rows_of(number)}
        if expected.get(row_key) != (number, text):
            raise Wrong(f"{row_key!r} has not what request {number} wrote")
        keys_by_number.setdefault(number, set()).add(row_key)
    for number, keys in keys_by_number.items():
        if keys != {it[0] for it in rows_of(number)}:
            raise Wrong(f"of request {number} there are only {sorted(keys)}")
    return set(keys_by_number)


def _rows_in(core: NodeCore) -> Iterator[tuple[Key, Any]]:
    for tablet in core.cell.tablets.values():
        for row_key, versions in tablet.stores.rows():
            for version in versions:
                yield row_key, tuple(version[2])
    for alive in core.cell.transactions.values():
        if alive.state is State.PREPARED:
            for part in alive.modifications:
                for write in part.writes:
                    yield Key(write[0]), tuple(write[2])


async def _serve(cell: _Recovered, random: Random, mark: Mark) -> None:
    core, log = cell.core, cell.log
    core.start(read_clock())
    jobs = Jobs(
        cell.files,
        COMPACTION_BYTES_PER_S,
        lambda token, result: runtime.call_from_thread(core.handle_job, token, result),
        lambda error: runtime.call_from_thread(_raise, error),
        shares_loop=True,
    )
    around = Surroundings(core)
    handlers: dict[type[Any], Callable[[Any], None]] = {
        **around.handlers,
        RunJob: jobs.run,
        RemoveChunks: jobs.remove,
        TruncateLog: partial(jobs.truncate, log),
    }
    runtime = around.runtime = Runtime(core, log, handlers)
    runtime.start()
    await around.is_serving.wait()
    ticking = asyncio.create_task(_tick(runtime, core))
    seeds = [random.randrange(1 << 32) for _ in range(CLIENTS)]
    clients = [
        use_cell(around, Random(seed), mark, REQUESTS_PER_CLIENT, PAUSES_S) for seed in seeds
    ]
    await asyncio.gather(*clients)
    ticking.cancel()
    await runtime.close()
    jobs.close()


async def _tick(runtime: Runtime, core: NodeCore) -> None:
    """Long work is begun at ticks, which a server that is used for milliseconds hardly has."""
    while True:
        await asyncio.sleep(TICK_S)
        runtime.call(core.tick)


def _raise(error: BaseException, _: Now) -> None:
    raise error
