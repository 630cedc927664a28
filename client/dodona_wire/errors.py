"""Every error that Dodona raises on purpose: a class for each reaction of the caller.

Owns: the error tree, its numeric codes, its REST statuses, and the translation to and from the
`kind` on the wire. The message is for people. The code and the class are for programs. A broken
invariant is not in this tree: it is an assertion and stops the process.
"""

from typing import Any, ClassVar, Final, Literal

from dodona_wire.shown import shown

MESSAGE_LENGTH_MAX: Final = 4_000
"""Characters of a message. Messages of DuckDB and Arrow repeat their input, however long it is."""
ATTRIBUTE_LENGTH_MAX: Final = 1_000
"""Characters of one attribute in the text of an error."""

Action = Literal["rerun", "look", "ask", "begin_again", "repeat", "fix", "stop"]


class DodonaError(Exception):
    """Base of all errors. `attributes` say where: table, key, lock, tablet, cell, timestamps."""

    kind: ClassVar[str] = "internal"
    code: ClassVar[int] = 1
    """YTsaurus's number for this error, if YTsaurus has one."""
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
        """Whether a rerun of the whole transaction may succeed without any other change."""
        return self.action in ("rerun", "begin_again", "repeat")

    def __str__(self) -> str:
        if not self.attributes:
            return self.message
        given = self.attributes.items()
        details = ", ".join(f"{name}={shown(it, ATTRIBUTE_LENGTH_MAX)}" for name, it in given)
        return f"{self.message} ({details})"


class DodonaWarning(UserWarning):
    """Dodona did what the caller asked, but it has no use: the text says why. It is no error, and
    never travels to another process."""


class TransactionAborted(DodonaError):
    """The transaction was aborted and left nothing behind. Run the whole transaction again."""

    kind, code, status = "transaction_aborted", 11103, 409
    action: ClassVar[Action] = "rerun"


class TransactionConflict(TransactionAborted):
    """Another transaction won a lock or wrote first. Run the whole transaction again."""

    kind, code, status = "transaction_conflict", 1700, 409
    action: ClassVar[Action] = "rerun"


class ConcurrentAppend(TransactionConflict):
    """After the load's start timestamp, a row that the load changes was changed, or a row in a
    range that it replaces was written. Run the whole load again."""

    kind, code, status, action = "concurrent_append", 11106, 409, "rerun"


class ConcurrentDeleteRead(TransactionConflict):
    """After the load's start timestamp, a row that the load updates, or a row in a range that it
    replaces, was deleted. Run the whole load again."""

    kind, code, status, action = "concurrent_delete_read", 11107, 409, "rerun"


class ConcurrentDeleteDelete(TransactionConflict):
    """After the load's start timestamp, another writer deleted a row that the load deletes. Run the
    whole load again: it finds the row gone, which is no error."""

    kind, code, status, action = "concurrent_delete_delete", 11108, 409, "rerun"


class MetadataChanged(TransactionConflict):
    """The table's schema or attributes changed during a load, or during a read of several pages.
    Look at the table as it is now. If the rows still fit, run the whole load again."""

    kind, code, status = "metadata_changed", 11109, 409
    action: ClassVar[Action] = "look"


class ConcurrentTransaction(TransactionConflict):
    """Another load published the same version of the application while this one ran. Look at the
    rows of that load, then run the whole load again: it is skipped if all its tables have the
    version. Or only some of the load's tables have the version: load only the other tables, or use
    another version."""

    kind, code, status, action = "concurrent_transaction", 11110, 409, "rerun"


class ProtocolChanged(TransactionConflict):
    """The table was removed, created again, resharded or unmounted during a load. Look at the table
    that exists now. If the load is meant for it, run the whole load again."""

    kind, code, status = "protocol_changed", 11111, 409
    action: ClassVar[Action] = "look"


class LoadEnded(TransactionAborted):
    """The bulk load is over: published, aborted, or its lease expired. Staged rows that were not
    published are gone. Run the whole load again."""

    kind, code, status, action = "load_ended", 11114, 409, "rerun"


class LocksEnded(TransactionAborted):
    """The locks that a transaction took before it began have ended: their lease is over, the table
    was unmounted, or the cell restarted. Run the whole transaction again."""

    kind, code, status, action = "locks_ended", 11118, 409, "rerun"


class PrerequisiteFailed(DodonaError):
    """A condition of the commit does not hold, so nothing was committed. `condition` names it, and
    `found` says what the row has. Look at the row. The same commit would fail again."""

    kind, code, status, action = "prerequisite_failed", 1000, 412, "look"


class CommitOutcomeUnknown(DodonaError):
    """The commit may or may not have happened. Ask `outcome(transaction)` before anything else."""

    kind, code, status, action = "commit_outcome_unknown", 11100, 504, "ask"


class SnapshotTooOld(DodonaError):
    """Data at this timestamp can't be proved complete, or are not kept any more. Begin again."""

    kind, code, status, action = "snapshot_too_old", 1729, 410, "begin_again"


class Unavailable(DodonaError):
    """A server could not be reached or is not ready. Repeat the call."""

    kind, code, status, action = "unavailable", 105, 503, "repeat"


class TabletMoved(Unavailable):
    """The client's route is stale, and a new one did not help. Repeat the call."""

    kind, code, status, action = "tablet_moved", 1704, 421, "repeat"


class RowBlocked(Unavailable):
    """A row stayed locked for longer than a call may wait, because the transaction that holds it
    has no outcome yet. It is in doubt, or waits for the oracle. Repeat the call."""

    kind, code, status, action = "row_blocked", 1713, 503, "repeat"


class Overloaded(Unavailable):
    """A queue or a store is at its stated limit. Wait, then repeat the call."""

    kind, code, status, action = "overloaded", 1703, 429, "repeat"


class DiskFull(Overloaded):
    """The disk of a server, or of an embedded database, has no space for new data: `path` says
    which. Nothing of the write remains, and reads continue. Free some space, then repeat the
    call."""

    kind, code, status, action = "disk_full", 11104, 507, "repeat"


class FolderInUse(Unavailable):
    """Another process, or another client in this process, has this data folder open."""

    kind, code, status, action = "folder_in_use", 11101, 503, "repeat"


class RequestTimedOut(Unavailable):
    """The gateway did not receive the whole request in time, and the request had no effect. Send it
    faster, or in parts."""

    kind, code, status, action = "request_timed_out", 3, 408, "repeat"


class LeaseHeld(DodonaError):
    """Another owner has this named lease. Repeat the call after the lease expires or is
    released."""

    kind, code, status, action = "lease_held", 11117, 409, "repeat"


class NodeLocked(DodonaError):
    """A master transaction holds this node of the tree. Repeat the call after its end."""

    kind, code, status, action = "node_locked", 402, 409, "repeat"


class TransactionNotFound(DodonaError):
    """The server has no such transaction: it ended, or got no ping in time. Begin again."""

    kind, code, status, action = "transaction_not_found", 11000, 404, "begin_again"


class WrongGateway(TransactionNotFound):
    """Another gateway holds this transaction. Send its requests to that gateway, or begin again."""

    kind, code, status, action = "wrong_gateway", 11000, 421, "begin_again"


class InvalidRequest(DodonaError):
    """The call can never succeed as it is. Fix the code."""

    kind, code, status, action = "invalid_request", 100, 400, "fix"


class UnsupportedMediaType(InvalidRequest):
    """The gateway does not accept this type of body here. Send a type that the message names."""

    kind, code, status, action = "unsupported_media_type", 11115, 415, "fix"


class NotAcceptable(InvalidRequest):
    """The gateway can't answer in a requested type. Ask for a type that the message names."""

    kind, code, status, action = "not_acceptable", 11116, 406, "fix"


class SchemaViolation(InvalidRequest):
    """A row or a schema does not fit. The error says which column of which row, and why."""

    kind, code, status, action = "schema_violation", 307, 400, "fix"


class NodeNotFound(InvalidRequest):
    """The tree has no directory, table or attribute at this path."""

    kind, code, status, action = "node_not_found", 500, 404, "fix"


class TableNotFound(NodeNotFound):
    """There is no table at this path."""

    kind, code, status, action = "table_not_found", 500, 404, "fix"


class NodeExists(InvalidRequest):
    """There is a node at this path already."""

    kind, code, status, action = "node_exists", 501, 409, "fix"


class TableExists(NodeExists):
    """There is a table at this path already."""

    kind, code, status, action = "table_exists", 501, 409, "fix"


class TableNotMounted(InvalidRequest):
    """No cell serves the tablet, or it is frozen and can only be read. Mount or unfreeze it."""

    kind, code, status, action = "table_not_mounted", 1702, 409, "fix"


class InvalidTabletState(InvalidRequest):
    """The state of the tablets does not allow this call on the table."""

    kind, code, status, action = "invalid_tablet_state", 1706, 409, "fix"


class LimitExceeded(InvalidRequest):
    """The call exceeded a stated limit (rows, bytes, timestamps). Split the work."""

    kind, code, status, action = "limit_exceeded", 1717, 413, "fix"


class DuplicateKey(InvalidRequest):
    """A key comes twice where it may come once, or its row exists already. Fix the rows."""

    kind, code, status, action = "duplicate_key", 306, 409, "fix"


class RowNotFound(InvalidRequest):
    """A row to update does not exist. Fix the rows, or write them whole."""

    kind, code, status, action = "row_not_found", 11105, 404, "fix"


class TransactionClosed(InvalidRequest):
    """The transaction was committed or aborted before."""

    kind, code, status, action = "transaction_closed", 11003, 409, "fix"


class Unauthenticated(InvalidRequest):
    """The gateway does not know the caller: there is no token, or it is not valid (any more). Send
    a valid token."""

    kind, code, status, action = "unauthenticated", 900, 401, "fix"


class Forbidden(InvalidRequest):
    """The caller's token does not allow this call. `role` and `path` say what the token lacks."""

    kind, code, status, action = "forbidden", 901, 403, "fix"


class DataCorrupted(DodonaError):
    """Stored data failed its checks. Stop, keep the folder, call the operator."""

    kind, code, status, action = "data_corrupted", 11102, 500, "stop"


def _tree(root: type[DodonaError]) -> list[type[DodonaError]]:
    return [root, *(leaf for child in root.__subclasses__() for leaf in _tree(child))]


ERRORS_BY_KIND: dict[str, type[DodonaError]] = {error.kind: error for error in _tree(DodonaError)}
"""The only table of errors: the wire, REST and the documentation are made from it."""

for _error in (*ERRORS_BY_KIND.values(), DodonaWarning):
    _error.__module__ = "dodona.errors"  # tracebacks show the name that users import


def error_from_wire(kind: str, message: str, attributes: dict[str, Any]) -> DodonaError:
    """Return the error that a server described. A kind of a newer server is the base class."""
    return ERRORS_BY_KIND.get(kind, DodonaError)(message, **attributes)
