"""Recover a cell's core from its files, and drain it before a clean stop.

Owns: when a cell may stop, the order of draining, and the order of recovery: the log's records, the
chunks that these name, the start. Chunks that the log does not name (*orphans*) are most likely
from work that a crash ended. They stay until the core proves that: see `open_chunks`.
"""

import asyncio
import gc
import logging
import time
from typing import TYPE_CHECKING, Final

from dodona_server.disk_space import DiskSpace
from dodona_server.lifecycle import wait_until
from dodona_server.logs import tell
from dodona_server.process import read_clock
from dodona_server.recovery_book import RecoveryBook
from dodona_server.runtime import Runtime
from dodona_tablets.core.node import NodeCore
from dodona_tablets.shell.node_chunks import NodeChunks
from dodona_tablets.shell.node_log import NodeLog
from dodona_wire.cores.recoveries import Recovery
from dodona_wire.errors import DataCorrupted
from dodona_wire.types import NO_CLUSTER, Now

if TYPE_CHECKING:  # an embedded database has no settings, and need not load what reads them
    from dodona_tablets.shell.settings import NodeSettings

DRAIN_S_MAX: Final = 10.0
DRAIN_STEP_S: Final = 0.005

_logger: Final = logging.getLogger("dodona.node")


def recover(
    settings: "NodeSettings", log: NodeLog, chunks: NodeChunks, book: RecoveryBook
) -> NodeCore:
    """Return the core as its log and chunks have it. It does not serve yet. Writes the start into
    the book. Raises DataCorrupted, OSError."""
    core = NodeCore(settings.cell_id, settings.address, settings.limits(), epoch=log.epoch)
    count = 0
    began = read_clock()
    gc.disable()  # millions of objects are made here, and all stay
    for record in log.survey():
        core.foresee(record)
    for record in log.read():
        core.replay(record)
        count += 1
    orphan_count = open_chunks(core, chunks)
    gc.enable()
    gc.freeze()
    now = read_clock()
    core.start(now)
    keep_posted(core, log, DiskSpace(log.path), now)
    took_us = now.instant_us - began.instant_us
    found = {"cell": settings.cell, "records": count, "seconds": round(took_us / 1e6, 3)}
    tell(_logger, logging.INFO, "recovered", "the log was replayed", **found)
    book.begin(
        Recovery(
            began.unix_us,
            took_us // 1000,
            record_count=count,
            size_bytes=log.size_bytes(),
            chunk_count=len(core.cell.chunks.open),
            orphan_count=orphan_count,
            transaction_count=core.recovered.transaction_count,
            transactions=tuple(core.recovered.transactions),
            loads=core.recovered.loads,
        )
    )
    return core


def keep_posted(core: NodeCore, log: NodeLog, space: DiskSpace, now: Now) -> None:
    """Report to the core what only the log and the disk know."""
    core.note_log(log.size_bytes(), log.fill_ratio(), now)
    note_disk(core, log, space)


def note_disk(core: NodeCore, log: NodeLog, space: DiskSpace) -> None:
    """Report to the core why there is no space, if there is none. If the log was opened without
    space for a file to append to, it gets one as soon as there is space. No thread may read or
    append meanwhile."""
    shortage = space.shortage()
    is_writable = log.is_writable or (shortage is None and log.make_writable())
    if not is_writable:
        shortage = shortage or space.text
    core.cell.room.note_disk(shortage, is_log_writable=is_writable)


def open_chunks(core: NodeCore, chunks: NodeChunks) -> int:
    """Open all chunks that the log names. Returns the number of orphans.

    Orphans stay until the cell has joined its cluster and its next checkpoint is durable. Their
    numbers are not used again. Raises DataCorrupted, Unavailable, OSError.
    """
    orphans = check_orphans(core, chunks.numbers(lambda: core.cell.cluster), chunks.place)
    if orphans:
        text = "%d chunks are not named by the log: the next checkpoint removes them"
        _logger.info(text, len(orphans))
    core.open_chunks(chunks.open_all(core.chunks_needed()), orphans, chunks.first_number)
    return len(orphans)


def check_orphans(core: NodeCore, found: set[int], place: str) -> tuple[int, ...]:
    """Return the numbers of those chunks that are orphans, after the log was replayed.

    A cell makes no chunk before it has joined a cluster. So a log that never joined one does not
    belong to the chunks. Raises DataCorrupted.
    """
    orphans = tuple(sorted(found - core.chunks_needed().keys()))
    if orphans and core.cell.cluster == NO_CLUSTER:
        raise DataCorrupted(
            f"{place} has {len(orphans)} chunks that the log does not name. The log is that of a "
            "new cell, so the log of the chunks is missing, or they are those of another cluster. "
            "Put the old log back, restore a backup, or use another place for chunks.",
            path=place,
        )
    return orphans


async def finish(core: NodeCore, runtime: Runtime) -> None:
    """Admit nothing new, and wait until no work is under way. That is: each transaction has an
    outcome, no batch or read is left, and everything is durable."""
    runtime.call(core.refuse_writes)
    await wait_until(lambda: not (core.is_busy or runtime.statistics().waiting_count))


async def drain(core: NodeCore, runtime: Runtime) -> None:
    """Bring all rows into chunks, as far as there is time, so that the next start is fast."""
    until_s = time.monotonic() + DRAIN_S_MAX
    while not core.is_drained and time.monotonic() < until_s:
        runtime.call(core.drain)
        await asyncio.sleep(DRAIN_STEP_S)
    runtime.call(core.finish)
