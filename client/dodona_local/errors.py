"""Errors of what runs on one machine: for the person at the terminal, never on the wire.

Owns: `LaunchFailed` and its like. Their messages are one sentence that says what to do.
"""

from dodona_wire.errors import DodonaError


class LaunchFailed(DodonaError):
    """The local cluster cannot start, or cannot be kept up."""

    kind, code, status, action = "launch_failed", 11190, 500, "stop"


class ExtraMissing(DodonaError):
    """A command needs packages of an extra that is not installed."""

    kind, code, status, action = "extra_missing", 11191, 500, "fix"


class RestoreFailed(DodonaError):
    """A backup could not be restored, or not to the end. The message says what is left of it."""

    kind, code, status, action = "restore_failed", 11192, 500, "stop"
