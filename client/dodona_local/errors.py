"""Define errors of programs on one machine: for the user at the terminal, never on the wire.

Owns: `LaunchFailed` and similar errors. Their messages say in one sentence what to do.
"""

from pathlib import Path

from dodona_wire.errors import DiskFull, DodonaError
from dodona_wire.net.folder import NO_SPACE


class LaunchFailed(DodonaError):
    """The local cluster can't start, or can't be kept running."""

    kind, code, status, action = "launch_failed", 11190, 500, "stop"


class ExtraMissing(DodonaError):
    """A command needs packages of an extra that is not installed."""

    kind, code, status, action = "extra_missing", 11191, 500, "fix"


class RestoreFailed(DodonaError):
    """A backup could not be restored, or only in part. The message says what the restore left, if
    anything."""

    kind, code, status, action = "restore_failed", 11192, 500, "stop"


def unwritable(path: Path, error: OSError) -> DodonaError:
    """Return the error about a file that could not be written: DiskFull, or LaunchFailed."""
    if error.errno in NO_SPACE:
        text = f"the disk of {path} is full: make room, then run the command again"
        return DiskFull(text, path=str(path))
    return LaunchFailed(f"cannot write {path}: {error.strerror}")
