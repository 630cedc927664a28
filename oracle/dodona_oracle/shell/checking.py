"""A look at every byte of a master's store that nobody has open.

Owns: `verify_master`. Changes nothing.
"""

from pathlib import Path

import msgspec

from dodona_oracle.core.records import state_from_items
from dodona_oracle.shell.store import FILE_NAME, read_items
from dodona_server.environment import open_environment, verify_pages
from dodona_wire.errors import InvalidRequest
from dodona_wire.net.folder import locked_to_read
from dodona_wire.types import CellId, Timestamp


class MasterSummary(msgspec.Struct, frozen=True):
    """What a sound store has."""

    table_count: int
    tablet_count: int
    cells: tuple[CellId, ...]
    """Those that have joined."""
    ceiling: Timestamp
    """No timestamp was given out above it."""
    size_bytes: int


def verify_master(folder: Path) -> MasterSummary:
    """Check a master's data folder: pages, checksums, and that all values are those of the last
    transaction and are understood.

    Raises DataCorrupted, InvalidRequest (there is no store), FolderInUse.
    """
    path = folder / FILE_NAME
    if not path.exists():
        raise InvalidRequest(f"there is no master's store in {folder}", path=str(folder))
    with locked_to_read(folder):
        verify_pages(path)
        with open_environment(path, None) as environment:
            state = state_from_items(read_items(environment, path))
    return MasterSummary(
        len(state.tables),
        sum(len(table.tablets) for table in state.tables),
        tuple(state.cells),
        state.ceiling,
        path.stat().st_size,
    )
