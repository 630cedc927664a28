"""Check every byte of a cell's data folder that no process has open: log and chunks.

Owns: `verify_cell`. The log says which chunks there must be, and what each has. Any other chunk is
from work that a crash ended. Damage to one chunk does not keep the others from being checked. The
check changes nothing.
"""

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import msgspec

from dodona_tablets.core.node import NodeCore
from dodona_tablets.core.rows.chunks.info import ChunkInfo
from dodona_tablets.shell.chunk_files import CHUNKS_NAME, numbers_in, verify_chunk, verify_files
from dodona_tablets.shell.log import LOG_NAME, check_files
from dodona_tablets.shell.log_check import Begin, LogSummary, read_log, unwatched, verify_log
from dodona_tablets.shell.log_segments import find_segments
from dodona_tablets.shell.objects import PART
from dodona_tablets.shell.recovery import check_orphans
from dodona_wire.errors import DataCorrupted, InvalidRequest
from dodona_wire.net.folder import locked_to_read
from dodona_wire.types import CellId

_SOME_CELL = CellId(0)
"""What a log has does not depend on the number of its cell."""


class CellSummary(msgspec.Struct, frozen=True):
    """What a cell's folder has. It is sound unless there are `damages`."""

    log: LogSummary
    tablet_count: int
    chunk_count: int
    version_count: int
    """Versions in chunks."""
    chunk_bytes: int
    leftover_count: int
    """Chunks that the log does not name. A cell that serves removes them after a checkpoint."""
    damages: tuple[DataCorrupted, ...]
    """Damage to chunks."""


def verify_cell(folder: Path, begin: Begin = unwatched) -> CellSummary:
    """Check a cell's data folder.

    Raises DataCorrupted if the log is damaged or lacks a file. The error names the file. If they
    are known, it also names the group and the position of its bytes. Raises InvalidRequest if there
    is no log, and FolderInUse.
    """
    places = find_segments(folder / LOG_NAME)
    check_files(folder, places)
    if not places:
        raise InvalidRequest(f"There is no log in {folder}.", path=str(folder))
    with locked_to_read(folder):
        log = verify_log(folder, begin)
        core = replayed(folder)
        needed = core.chunks_needed()
        found = numbers_in(folder / CHUNKS_NAME)
        check_orphans(core, found, str(folder / CHUNKS_NAME))
        chunk_bytes = sum(info.size_bytes for info in needed.values())
        advance = begin("chunks", chunk_bytes)
        damages = [_verify(folder / CHUNKS_NAME, info, advance) for info in needed.values()]
        return CellSummary(
            log,
            len(core.cell.tablets),
            len(needed),
            sum(info.row_count for info in needed.values()),
            chunk_bytes,
            len(found - set(needed)),
            tuple([it for it in damages if it is not None]),
        )


def replayed(folder: Path) -> NodeCore:
    """Return a core as the log in this data folder has it, without chunks. Raises DataCorrupted."""
    core = NodeCore(_SOME_CELL, "offline")
    for record in read_log(folder, is_survey=True):
        core.foresee(record)
    for record in read_log(folder):
        core.replay(record)
    return core


def _verify(
    folder: Path, wanted: ChunkInfo, advance: Callable[[int], None]
) -> DataCorrupted | None:
    try:
        found = verify_chunk(folder, wanted.number)
    except DataCorrupted as error:
        return error
    finally:
        advance(wanted.size_bytes)
    if found == wanted:
        return None
    text = "The chunk file does not match its record in the log."
    return DataCorrupted(text, path=str(folder), chunk=wanted.number)


class ObjectsSummary(NamedTuple):
    """What a folder of objects has. It is sound if `damages` is empty."""

    chunk_count: int
    version_count: int
    chunk_bytes: int
    leftover_count: int
    """Objects without the other one of their chunk: an upload that did not end. No log names such a
    chunk."""
    damages: tuple[DataCorrupted, ...]


def verify_objects(folder: Path, begin: Callable[[int], Callable[[int], None]]) -> ObjectsSummary:
    """Check all chunks in a folder that is an object store. `begin` gets the bytes of all, and
    returns what is called with the bytes of each. It is not known here which chunks a log names."""
    every = {it for it in folder.rglob("*") if it.suffix in (".arrow", ".index", PART)}
    paths = sorted(
        it for it in every if it.suffix == ".arrow" and it.with_suffix(".index") in every
    )
    advance = begin(sum(it.stat().st_size for it in paths))
    found: list[ChunkInfo] = []
    damages: list[DataCorrupted] = []
    for path in paths:
        try:
            found.append(verify_files(path, path.with_suffix(".index")))
        except DataCorrupted as error:
            damages.append(error)
        advance(path.stat().st_size)
    rows, size_bytes = sum(it.row_count for it in found), sum(it.size_bytes for it in found)
    leftover_count = len(every) - 2 * len(paths)
    return ObjectsSummary(len(paths), rows, size_bytes, leftover_count, tuple(damages))
