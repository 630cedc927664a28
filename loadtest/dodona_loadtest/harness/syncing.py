"""Syncs for libraries that write files and leave them to the kernel.

Owns: the sync of new files in a folder, and of its folders. With it such a write is as durable as
that of a database.
"""

import os
from pathlib import Path


def files_in(folder: Path) -> set[Path]:
    """Return everything in the folder, folders within it included."""
    return set(folder.rglob("*"))


def sync_new(folder: Path, known: set[Path]) -> None:
    """Sync files that came after `known`, and all folders, which have the new names."""
    there = files_in(folder)
    folders = {path for path in there if path.is_dir()}
    for path in sorted((there - known) | folders | {folder}):
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
