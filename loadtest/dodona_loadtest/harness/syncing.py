"""Syncs for libraries that write files and leave them to the kernel.

Owns: the sync of what is new in a folder, and of its folders, so that such a write is as durable as
that of a database.
"""

import os
from pathlib import Path


def files_in(folder: Path) -> set[Path]:
    """Everything in the folder, folders within it included."""
    return set(folder.rglob("*"))


def sync_new(folder: Path, known: set[Path]) -> None:
    """What came since `known`, and all folders, which name what is new."""
    there = files_in(folder)
    folders = {path for path in there if path.is_dir()}
    for path in sorted((there - known) | folders | {folder}):
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
