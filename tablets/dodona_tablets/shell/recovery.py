"""From the files of a cell to its core, and back before a clean stop.

Owns: the order of recovery (the log's records, then the chunks that these name, then the start),
when a cell may stop, and the order of draining. Whatever lies among the chunks and is not named is
of work that a crash ended.
"""

import asyncio
import gc
import logging
import time
from typing import Final

from dodona._core.recoveries import Recovery
from dodona._io.life import wait_until
from dodona._io.logs import tell
from dodona._io.process import read_clock
from dodona._io.recovery_book import RecoveryBook
from dodona._io.runtime import Runtime
from dodona.types import CellId
from dodona_tablets.core.node import NodeCore
from dodona_tablets.shell.chunk_files import ChunkFiles
from dodona_tablets.shell.log import CellLog
from dodona_tablets.shell.settings import NodeSettings

DRAIN_S_MAX: Final = 10.0
DRAIN_STEP_S: Final = 0.005

_logger: Final = logging.getLogger("dodona.node")


def recover(
    settings: NodeSettings, log: CellLog, files: ChunkFiles, book: RecoveryBook
) -> NodeCore:
    """The cell as its log and chunks have it, not serving yet; the start is in the book. Raises
    DataCorrupted, OSError."""
    core = NodeCore(CellId(settings.cell), settings.address, settings.limits())
    count = 0
    began = read_clock()
    gc.disable()  # millions of objects are made here, and all of them stay
    for record in log.survey():
        core.foresee(record)
    for record in log.read():
        core.replay(record)
        count += 1
    orphan_count = open_chunks(core, files)
    gc.enable()
    gc.freeze()
    now = read_clock()
    core.start(now)
    core.note_log(log.size_bytes(), log.fill_ratio(), now)
    took_us = now.instant_us - began.instant_us
    found = {"cell": settings.cell, "records": count, "seconds": round(took_us / 1e6, 3)}
    tell(_logger, logging.INFO, "recovered", "the log was replayed", **found)
    book.begin(
        Recovery(
            began.unix_us,
            took_us // 1000,
            record_count=count,
            size_bytes=log.size_bytes(),
            chunk_count=len(core.cell.chunks),
            orphan_count=orphan_count,
            transaction_count=core.recovered.transaction_count,
            transactions=tuple(core.recovered.transactions),
            loads=core.recovered.loads,
        )
    )
    return core


def open_chunks(core: NodeCore, files: ChunkFiles) -> int:
    """All that the log names; what else lies there is of work that a crash ended. → how much that
    was, which is removed."""
    needed = core.chunks_needed()
    orphans = files.remove_orphans(needed)
    if orphans:
        _logger.info("%d chunks that the log does not know were removed", len(orphans))
    core.open_chunks({number: files.open(info) for number, info in needed.items()})
    return len(orphans)


async def finish(core: NodeCore, runtime: Runtime) -> None:
    """Let in nothing new, and wait until nothing is under way: no transaction without an outcome,
    no batch, no read that waits, nothing that is not durable."""
    runtime.call(core.refuse_writes)
    await wait_until(lambda: not (core.is_busy or runtime.statistics().waiting_count))


async def drain(core: NodeCore, runtime: Runtime) -> None:
    """Bring all rows into chunks, as far as there is time: the next start is quick then."""
    until_s = time.monotonic() + DRAIN_S_MAX
    while not core.is_drained and time.monotonic() < until_s:
        runtime.call(core.drain)
        await asyncio.sleep(DRAIN_STEP_S)
    runtime.call(core.finish)
