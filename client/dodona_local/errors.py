"""Define errors of programs on one machine: for the user at the terminal, never on the wire.

Owns: `LaunchFailed` and similar errors. Their messages say in one sentence what to do.
"""

from dodona_wire.errors import DodonaError


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
