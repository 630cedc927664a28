"""Verify every byte of a master's store that no process has open.

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
    """What a sound store contains."""

    table_count: int
    tablet_count: int
    cells: tuple[CellId, ...]
    """The cells that have joined."""
    ceiling: Timestamp
    """The master gave out no timestamp above this one."""
    size_bytes: int


def verify_master(folder: Path) -> MasterSummary:
    """Check the data folder of a master: its pages, its checksums and its values. All values must
    be readable, and they must be those of the last transaction.

    Raises DataCorrupted, InvalidRequest (there is no store), FolderInUse.
    """
    path = folder / FILE_NAME
    if not path.exists():
        raise InvalidRequest(f"There is no store of a master in {folder}.", path=str(folder))
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
