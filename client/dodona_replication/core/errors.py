"""Errors of replicated logs: for the process that owns a log, never on the wire.

Owns: `DocumentUnreadable`, `DocumentMissing`, `DocumentTooOld`,
`IllegalChange` and `LogLost`.
"""

from dodona_wire.errors import DataCorrupted, DodonaError, InvalidRequest


class DocumentUnreadable(DataCorrupted):
    """The document of a log is not one that this release writes. `log` and `field` say where. Stop,
    and have an operator compare it with the log."""

    kind, code, status, action = "document_unreadable", 11193, 500, "stop"


class DocumentMissing(DataCorrupted):
    """The document of a log was there, and is gone. `log` says which. Stop, and call the
    operator."""

    kind, code, status, action = "document_missing", 11194, 500, "stop"


class DocumentTooOld(DataCorrupted):
    """A replica has a higher epoch than the document (R32): the document is older than the log.
    `log` and `replica` say where. Stop all processes that may own the log, and call the operator.
    The newest document has to come back: an old one may name replicas that lack entries."""

    kind, code, status, action = "document_too_old", 11197, 500, "stop"


class IllegalChange(InvalidRequest):
    """A change of a document breaks a rule of the protocol. `field` says where."""

    kind, code, status, action = "illegal_change", 11195, 409, "fix"


class LogLost(DodonaError):
    """This process does not own the log, or not any more. `log` says which. The process ends, and
    answers nothing. A new process reads the document, and finds the owner there."""

    kind, code, status, action = "log_lost", 11196, 503, "stop"
