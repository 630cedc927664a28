"""Every error that Dodona raises on purpose, chosen by what the caller does next.

Owns: the error tree, its numeric codes, its REST statuses, and the translation to and from the
`kind` that travels on the wire. Message text is for people; code and class are for programs.
A broken invariant is not in this tree: it is an assertion and stops the process.
"""

from typing import Any, ClassVar, Final, Literal

from dodona_wire.shown import shown

MESSAGE_LENGTH_MAX: Final = 4_000
"""Others' messages, as those of DuckDB and Arrow, repeat what was given, however long."""
ATTRIBUTE_LENGTH_MAX: Final = 1_000
"""Of an attribute, in an error's text."""

Action = Literal["rerun", "look", "ask", "begin_again", "repeat", "fix", "stop"]


class DodonaError(Exception):
    """Base of all. `attributes` say where: table, key, lock, tablet, cell, timestamps."""

    kind: ClassVar[str] = "internal"
    code: ClassVar[int] = 1
    """The number YTsaurus gives to this error where it has one."""
    status: ClassVar[int] = 500
    action: ClassVar[Action] = "stop"

    def __init__(self, message: str, **attributes: Any) -> None:
        if len(message) > MESSAGE_LENGTH_MAX:
            message = message[: MESSAGE_LENGTH_MAX - 1] + "…"
        super().__init__(message)
        self.message = message
        self.attributes = attributes

    @property
    def is_retryable(self) -> bool:
        """Whether running the whole transaction again may succeed, with nobody doing anything."""
        return self.action in ("rerun", "begin_again", "repeat")

    def __str__(self) -> str:
        if not self.attributes:
            return self.message
        given = self.attributes.items()
        details = ", ".join(f"{name}={shown(it, ATTRIBUTE_LENGTH_MAX)}" for name, it in given)
        return f"{self.message} ({details})"


class DodonaWarning(UserWarning):
    """Something was done as asked, and is of no use: see the text. It is no error, and travels
    nowhere."""


class TransactionAborted(DodonaError):
    """The transaction was given up and left nothing behind. Run the whole transaction again."""

    kind, code, status = "transaction_aborted", 11103, 409
    action: ClassVar[Action] = "rerun"


class TransactionConflict(TransactionAborted):
    """Another transaction won a lock or wrote first. Run the whole transaction again."""

    kind, code, status = "transaction_conflict", 1700, 409
    action: ClassVar[Action] = "rerun"


class ConcurrentAppend(TransactionConflict):
    """A row that a load changes was changed, or one in a range that it replaces was written, after
    the load's start timestamp. Run the whole load again."""

    kind, code, status, action = "concurrent_append", 11106, 409, "rerun"


class ConcurrentDeleteRead(TransactionConflict):
    """A row that a load relies on, as it updates it or replaces its range, was deleted after the
    load's start timestamp. Run the whole load again."""

    kind, code, status, action = "concurrent_delete_read", 11107, 409, "rerun"


class ConcurrentDeleteDelete(TransactionConflict):
    """A row that a load deletes was deleted by somebody else after the load's start timestamp. Run
    the whole load again: it will find the row gone, which is no error."""

    kind, code, status, action = "concurrent_delete_delete", 11108, 409, "rerun"


class MetadataChanged(TransactionConflict):
    """The table's schema or attributes were changed while a load, or a read of several pages, was
    under way. Look at the table as it is now: run the whole load again if its rows still fit."""

    kind, code, status = "metadata_changed", 11109, 409
    action: ClassVar[Action] = "look"


class ConcurrentTransaction(TransactionConflict):
    """Another load published the version of the application while this one ran, or some of the
    load's tables have the version and others do not. Look at what that load wrote, then run the
    whole load again: it is skipped where the other one made it."""

    kind, code, status, action = "concurrent_transaction", 11110, 409, "rerun"


class ProtocolChanged(TransactionConflict):
    """The table was removed, made anew, resharded or unmounted while a load was under way. Look at
    what is there now: run the whole load again if it is meant for that table."""

    kind, code, status = "protocol_changed", 11111, 409
    action: ClassVar[Action] = "look"


class LoadEnded(TransactionAborted):
    """The bulk load is over: published, aborted, or its lease expired. What was staged of it and
    not published is gone. Run the whole load again."""

    kind, code, status, action = "load_ended", 11114, 409, "rerun"


class CommitOutcomeUnknown(DodonaError):
    """The commit may or may not have happened. Ask `outcome(transaction)` before anything else."""

    kind, code, status, action = "commit_outcome_unknown", 11100, 504, "ask"


class SnapshotTooOld(DodonaError):
    """What this timestamp has to see can't be proved, or is not kept any more. Begin anew."""

    kind, code, status, action = "snapshot_too_old", 1729, 410, "begin_again"


class Unavailable(DodonaError):
    """A server could not be reached or is not ready. Repeat the call."""

    kind, code, status, action = "unavailable", 105, 503, "repeat"


class TabletMoved(Unavailable):
    """The route is stale. The client refreshes it by itself; seen only if that did not help."""

    kind, code, status, action = "tablet_moved", 1704, 421, "repeat"


class RowBlocked(Unavailable):
    """A row stayed locked for longer than a call may wait, as a server that is to decide about its
    holder does not answer. Repeat the call."""

    kind, code, status, action = "row_blocked", 1713, 503, "repeat"


class Overloaded(Unavailable):
    """A queue or a store is at its stated limit. Wait, then repeat the call."""

    kind, code, status, action = "overloaded", 1703, 429, "repeat"


class DiskFull(Overloaded):
    """The disk of a server, or of an embedded database, has no space left for what is new: `path`
    says which. Nothing was written, and reads go on. Make room, then repeat the call."""

    kind, code, status, action = "disk_full", 11104, 507, "repeat"


class FolderInUse(Unavailable):
    """Another process, or another client in this one, has this data folder open."""

    kind, code, status, action = "folder_in_use", 11101, 503, "repeat"


class RequestTimedOut(Unavailable):
    """A request did not reach the gateway whole in time; nothing came of it. Send it faster, or in
    parts."""

    kind, code, status, action = "request_timed_out", 3, 408, "repeat"


class NodeLocked(DodonaError):
    """A master transaction holds this node of the tree. Once it has ended, repeat the call."""

    kind, code, status, action = "node_locked", 402, 409, "repeat"


class TransactionNotFound(DodonaError):
    """The master knows no such transaction: it ended, or was not pinged in time. Begin again."""

    kind, code, status, action = "transaction_not_found", 11000, 404, "begin_again"


class WrongGateway(TransactionNotFound):
    """Another gateway holds this transaction. Send its requests to that one, or begin again."""

    kind, code, status, action = "wrong_gateway", 11000, 421, "begin_again"


class InvalidRequest(DodonaError):
    """The call can never succeed as it is. Fix the code."""

    kind, code, status, action = "invalid_request", 100, 400, "fix"


class UnsupportedMediaType(InvalidRequest):
    """The gateway does not take a body of this type here. Send one of those that it names."""

    kind, code, status, action = "unsupported_media_type", 11115, 415, "fix"


class NotAcceptable(InvalidRequest):
    """The gateway can't answer in any of the forms that were asked for. Ask for one it names."""

    kind, code, status, action = "not_acceptable", 11116, 406, "fix"


class SchemaViolation(InvalidRequest):
    """A row or a schema does not fit: which column of which row, and why."""

    kind, code, status, action = "schema_violation", 307, 400, "fix"


class NodeNotFound(InvalidRequest):
    """The tree has no directory, table or attribute of this path."""

    kind, code, status, action = "node_not_found", 500, 404, "fix"


class TableNotFound(NodeNotFound):
    """No table has this path."""

    kind, code, status, action = "table_not_found", 500, 404, "fix"


class NodeExists(InvalidRequest):
    """Something is at this path already."""

    kind, code, status, action = "node_exists", 501, 409, "fix"


class TableExists(NodeExists):
    """A table has this path already."""

    kind, code, status, action = "table_exists", 501, 409, "fix"


class TableNotMounted(InvalidRequest):
    """A tablet is not served by any cell, or frozen and written to. Mount or unfreeze it."""

    kind, code, status, action = "table_not_mounted", 1702, 409, "fix"


class InvalidTabletState(InvalidRequest):
    """What was asked of a table can't be done in the state that its tablets are in."""

    kind, code, status, action = "invalid_tablet_state", 1706, 409, "fix"


class LimitExceeded(InvalidRequest):
    """A stated limit (rows, bytes, timestamps) was passed. Split the work."""

    kind, code, status, action = "limit_exceeded", 1717, 413, "fix"


class DuplicateKey(InvalidRequest):
    """A key comes twice where it may come once, or its row is there already. Fix the rows."""

    kind, code, status, action = "duplicate_key", 306, 409, "fix"


class RowNotFound(InvalidRequest):
    """A row that is to be updated is not there. Fix the rows, or write them whole."""

    kind, code, status, action = "row_not_found", 11105, 404, "fix"


class TransactionClosed(InvalidRequest):
    """The transaction was committed or aborted before."""

    kind, code, status, action = "transaction_closed", 11003, 409, "fix"


class Unauthenticated(InvalidRequest):
    """Who calls is not known: no token, or none that is good (any more). Send one that is."""

    kind, code, status, action = "unauthenticated", 900, 401, "fix"


class Forbidden(InvalidRequest):
    """The caller's token does not allow this. `role` and `path` say what it lacks."""

    kind, code, status, action = "forbidden", 901, 403, "fix"


class DataCorrupted(DodonaError):
    """Stored data failed its checks. Stop, keep the folder, call the operator."""

    kind, code, status, action = "data_corrupted", 11102, 500, "stop"


def _tree(root: type[DodonaError]) -> list[type[DodonaError]]:
    return [root, *(leaf for child in root.__subclasses__() for leaf in _tree(child))]


ERRORS_BY_KIND: dict[str, type[DodonaError]] = {error.kind: error for error in _tree(DodonaError)}
"""The one table that the wire, REST and the documentation are made from."""

for _error in (*ERRORS_BY_KIND.values(), DodonaWarning):
    _error.__module__ = "dodona.errors"  # tracebacks show the name that users import


def error_from_wire(kind: str, message: str, attributes: dict[str, Any]) -> DodonaError:
    """The error that a server described. A kind from a newer server becomes the base class."""
    return ERRORS_BY_KIND.get(kind, DodonaError)(message, **attributes)
