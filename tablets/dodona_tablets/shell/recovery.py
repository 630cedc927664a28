"""From the files of a cell to its core, and back before a clean stop.

Owns: the order of recovery (the log's records, then the chunks that these name, then the start) and
of draining. Whatever lies among the chunks and is not named is of work that a crash ended.
"""

import asyncio
import gc
import logging
import time
from typing import Final

from dodona._io.process import read_clock
from dodona._io.runtime import Runtime
from dodona.types import CellId
from dodona_tablets.core.node import NodeCore
from dodona_tablets.shell.chunk_files import ChunkFiles
from dodona_tablets.shell.log import CellLog
from dodona_tablets.shell.settings import NodeSettings

DRAIN_S_MAX: Final = 10.0
DRAIN_STEP_S: Final = 0.005

_logger: Final = logging.getLogger("dodona.node")


def recover(settings: NodeSettings, log: CellLog, files: ChunkFiles) -> NodeCore:
    """The cell as its log and chunks have it, not serving yet. Raises DataCorrupted, OSError."""
    core = NodeCore(CellId(settings.cell), settings.address, settings.limits())
    count = 0
    began = read_clock()
    gc.disable()  # millions of objects are made here, and all of them stay
    for record in log.survey():
        core.foresee(record)
    for record in log.read():
        core.replay(record)
        count += 1
    open_chunks(core, files)
    gc.enable()
    gc.freeze()
    now = read_clock()
    core.start(now)
    core.note_log(log.size_bytes(), log.fill_ratio(), now)
    seconds = (now.instant_us - began.instant_us) / 1e6
    _logger.info("cell %d: %d records replayed in %.2f s", settings.cell, count, seconds)
    return core


def open_chunks(core: NodeCore, files: ChunkFiles) -> None:
    """All that the log names; what else lies there is of work that a crash ended."""
    needed = core.chunks_needed()
    orphans = files.remove_orphans(needed)
    if orphans:
        _logger.info("%d chunks that the log does not know were removed", len(orphans))
    core.open_chunks({number: files.open(info) for number, info in needed.items()})


async def drain(core: NodeCore, runtime: Runtime) -> None:
    """Bring all rows into chunks, as far as there is time: the next start is quick then."""
    until_s = time.monotonic() + DRAIN_S_MAX
    while not core.is_drained and time.monotonic() < until_s:
        runtime.call(core.drain)
        await asyncio.sleep(DRAIN_STEP_S)
    runtime.call(core.finish)
