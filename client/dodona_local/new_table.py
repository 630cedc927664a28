"""A table that a command creates for its rows, and removes again if the command writes none.

Owns: what is removed after a failure: only what this call created, and only while it is empty. A
table that was there stays, and so does a table in which another client wrote.

The table is frozen before it is removed. A freeze waits for the transactions that commit in the
table, and then the table refuses writes. So no row comes between the last read and the removal.
"""

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Final

from dodona.client import Client
from dodona_wire.errors import (
    CommitOutcomeUnknown,
    DodonaError,
    DodonaWarning,
    TableExists,
)

REMOVE_MS_MAX: Final = 5_000
"""The longest wait of each call of the removal, in ms."""


@contextmanager
def new_table(db: Client, path: str, like: Any, keys: Sequence[str]) -> Iterator[None]:
    """Create and mount a table like data, then run the block. A table that exists must be like the
    data.

    If the block fails and the new table has no rows, remove the table, and the empty directories
    that were missing before. After CommitOutcomeUnknown the table stays, and after a mount that
    failed: a later call goes on with it. If the removal fails, a DodonaWarning says so. Raises the
    errors of `Client.create_table`, and those of the block."""
    missing = _missing_directories(db, path)
    try:
        db.create_table(path, like=like, keys=keys)
    except TableExists:
        db.create_table(path, like=like, keys=keys, mount=True, if_not_exists=True)
        yield
        return
    node = db.get(f"{path}/@id")
    db.mount_table(path)
    try:
        yield
    except CommitOutcomeUnknown:
        raise
    except (Exception, KeyboardInterrupt):
        _undo(db, path, node, missing)
        raise


def _missing_directories(db: Client, path: str) -> list[str]:
    """Return the directories above the path that do not exist, the deepest one first."""
    missing = []
    directory, _, _ = path.rpartition("/")
    while len(directory) > len("//") and not db.exists(directory):
        missing.append(directory)
        directory, _, _ = directory.rpartition("/")
    return missing


def _undo(db: Client, path: str, node: int, missing: Sequence[str]) -> None:
    try:
        is_removed = _remove(db, path, node)
    except DodonaError as error:
        text = f"The new table {path} is still there, because its removal failed: {error}"
        warnings.warn(DodonaWarning(text), stacklevel=2)
        return
    if is_removed:
        with suppress(DodonaError):  # such as a directory that has other tables by now
            for directory in missing:
                db.remove(directory, timeout_ms=REMOVE_MS_MAX)


def _remove(db: Client, path: str, node: int) -> bool:
    """Remove the table if it is still this node and has no rows. Return whether it was removed."""
    limit_ms = REMOVE_MS_MAX
    if not _is_empty(db, path, node):
        return False
    db.freeze_table(path, timeout_ms=limit_ms)
    if not _is_empty(db, path, node):
        db.unfreeze_table(path, timeout_ms=limit_ms)
        return False
    db.remove_table(path, timeout_ms=limit_ms)
    return True


def _is_empty(db: Client, path: str, node: int) -> bool:
    """Return whether the path is that of this node, which has no rows."""
    limit_ms = REMOVE_MS_MAX
    if not db.exists(path, timeout_ms=limit_ms):
        return False
    if db.get(f"{path}/@id", timeout_ms=limit_ms) != node:
        return False
    with db.hold_snapshot([path]) as snapshot:
        return not any(batch.num_rows for batch in snapshot.read_batches(path))
