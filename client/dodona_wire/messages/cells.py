"""Messages between cells: one way, repeated until answered, each safe to repeat.

Each message names its sender.
"""

from dodona_wire.messages.base import Message
from dodona_wire.messages.data import RowVersion
from dodona_wire.rows.schema import Column
from dodona_wire.types import NULL_TIMESTAMP, CellId, Key, TabletId, Timestamp, TransactionId


class QueryStatus(Message, frozen=True, array_like=True, gc=False, tag=50):
    """The recovering coordinator asks: are you prepared? If not, never be (poison)."""

    source: CellId
    transaction: TransactionId


class Status(Message, frozen=True, array_like=True, gc=False, tag=51):
    """The answer. `state` is prepared, committed or refused; the first two have a timestamp."""

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
    """Whether the coordinator has no record any more. Then a participant that is still prepared
    aborts. Any other participant asked long ago, and got an answer."""


class Acknowledge(Message, frozen=True, array_like=True, gc=False, tag=54):
    """The outcome is durable (or needs no record) at `source`."""

    source: CellId
    transaction: TransactionId


class AskCoordinator(Message, frozen=True, array_like=True, gc=False, tag=55):
    """A prepared participant asks the coordinator after a long wait for its decision."""

    source: CellId
    transaction: TransactionId


# Moves of rows: a tablet takes over the rows of a range that was another tablet's


class AskRows(Message, frozen=True, array_like=True, gc=False, tag=56):
    """Ask for the rows of `tablet` with lower ≤ key < upper, for `target`. `tablet` takes no writes
    any more. → TellRows, a page at a time: ask again from where it ended."""

    source: CellId
    tablet: TabletId
    target: TabletId
    lower: Key
    upper: Key


class TellRows(Message, frozen=True, array_like=True, gc=False, tag=57):
    """A page of rows with their versions, newest first, from `lower` to `resume`, which is None at
    the end of the range. The masks are for `columns`. Versions below `retained_timestamp` may be
    gone."""

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
