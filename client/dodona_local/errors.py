"""Errors of the launcher: for the person at the terminal, never on the wire.

Owns: `LaunchFailed`. Its message is one sentence that says what to do.
"""

from dodona.errors import DodonaError


class LaunchFailed(DodonaError):
    """The local cluster cannot start, or cannot be kept up."""

    kind, code, status, action = "launch_failed", 11190, 500, "stop"


class ExtraMissing(DodonaError):
    """A command needs packages of an extra that is not installed."""

    kind, code, status, action = "extra_missing", 11191, 500, "fix"
