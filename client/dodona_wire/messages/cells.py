"""Messages between cells: one way, repeated until answered, each safe to repeat. Each names its
sender."""

from dodona_wire.messages.base import Message
from dodona_wire.messages.data import RowVersion
from dodona_wire.rows.schema import Column
from dodona_wire.types import NULL_TIMESTAMP, CellId, Key, TabletId, Timestamp, TransactionId


class QueryStatus(Message, frozen=True, array_like=True, gc=False, tag=50):
    """Recovery by the coordinator: are you prepared? If not, never be (poison)."""

    source: CellId
    transaction: TransactionId


class Status(Message, frozen=True, array_like=True, gc=False, tag=51):
    """`state` is prepared, committed or refused; the timestamp belongs to the first two."""

    source: CellId
    transaction: TransactionId
    state: str
    timestamp: Timestamp


class TellCommit(Message, frozen=True, array_like=True, gc=False, tag=52):
    source: CellId
    transaction: TransactionId
    timestamp: Timestamp


class TellAbort(Message, frozen=True, array_like=True, gc=False, tag=53):
    source: CellId
    transaction: TransactionId
    is_forgotten: bool = False
    """The coordinator has no record any more, so that it aborts whoever is still prepared. Whoever
    is not has asked long ago, and was answered."""


class Acknowledge(Message, frozen=True, array_like=True, gc=False, tag=54):
    """The outcome is durable (or needs no record) at `source`."""

    source: CellId
    transaction: TransactionId


class AskCoordinator(Message, frozen=True, array_like=True, gc=False, tag=55):
    """From a participant that is prepared and has waited long for the decision."""

    source: CellId
    transaction: TransactionId


# Rows that move: a tablet whose range was another's takes over its rows


class AskRows(Message, frozen=True, array_like=True, gc=False, tag=56):
    """Send the rows of `tablet` (which nobody writes any more) of lower ≤ key < upper, for
    `target`. Answered by TellRows, a page at a time: ask again from where it ended."""

    source: CellId
    tablet: TabletId
    target: TabletId
    lower: Key
    upper: Key


class TellRows(Message, frozen=True, array_like=True, gc=False, tag=57):
    """A page of rows with their versions, newest first, from `lower` to `resume`, which is None
    at the end of the range. `columns` are those that the masks are about. What was before
    `retained_timestamp` may be gone."""

    source: CellId
    tablet: TabletId
    target: TabletId
    columns: tuple[Column, ...]
    lower: Key
    rows: tuple[tuple[Key, tuple[RowVersion, ...]], ...]
    resume: Key | None
    retained_timestamp: Timestamp = NULL_TIMESTAMP


CellMessage = (
    QueryStatus
    | Status
    | TellCommit
    | TellAbort
    | Acknowledge
    | AskCoordinator
    | AskRows
    | TellRows
)
