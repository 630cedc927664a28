"""Effects: what a core asks its shell to do. Frozen records without behaviour.

Invariant: the shell carries out effects in order. No effect after an `Append` leaves the process
until that append is durable. `ReplyAtOnce` and `AskTimestamps` are exceptions: they must not reveal
anything that matters and that a crash could take back.
"""

from typing import Any, Final

import msgspec

from dodona_wire.messages.catalog import Heartbeat
from dodona_wire.messages.cells import CellMessage
from dodona_wire.messages.families import Reply
from dodona_wire.types import CellId

Route = Any
"""Where a request came from. The shell makes it, and the core returns it unread."""


class Append(msgspec.Struct, frozen=True, gc=False):
    """Make the record durable."""

    record: Any


class ReplyTo(msgspec.Struct, frozen=True, gc=False):
    """Answer a request, once all appends before this are durable."""

    route: Route
    body: Reply


class ReplyAtOnce(msgspec.Struct, frozen=True, gc=False):
    """Answer a request now, even if appends are not durable yet."""

    route: Route
    body: Reply


class SendToCell(msgspec.Struct, frozen=True, gc=False):
    """Send a one-way message to another cell, once all appends before this are durable."""

    cell: CellId
    body: CellMessage


class AskTimestamps(msgspec.Struct, frozen=True, gc=False):
    """Ask the oracle for one timestamp now. It comes back with the token, or not at all. `is_idle`
    says that no transaction waits for it."""

    token: Any
    is_idle: bool = False


class SendHeartbeat(msgspec.Struct, frozen=True, gc=False):
    """Send the master a heartbeat, once all appends before this are durable. Its Assignment comes
    back, or nothing."""

    body: Heartbeat


class RunJob(msgspec.Struct, frozen=True, gc=False):
    """Do long work on chunks elsewhere. The result comes back with the token, after all that the
    work wrote is durable."""

    token: Any
    job: Any


class RemoveChunks(msgspec.Struct, frozen=True, gc=False):
    """Remove the files of these chunks, once all appends before this are durable."""

    numbers: tuple[int, ...]


class FetchChunk(msgspec.Struct, frozen=True, gc=False):
    """Fetch the rows of a chunk from the object store. Its bytes come back with its number, checked
    and mapped, or a failure."""

    info: Any
    """The description of the chunk."""


class EvictChunks(msgspec.Struct, frozen=True, gc=False):
    """Remove the copies of these chunks on this machine. The object store keeps them."""

    numbers: tuple[int, ...]
    maps: tuple[Any, ...] = ()
    """What keeps the maps of the files: it is dropped here, and not where requests wait."""


class TouchChunks(msgspec.Struct, frozen=True, gc=False):
    """Note, for the next start, that these chunks were read, in this order."""

    numbers: tuple[int, ...]


class TruncateLog(msgspec.Struct, frozen=True, gc=False):
    """Remove the log before the checkpoint of this number, once all appends before this are
    durable."""

    checkpoint: int


class AskMaster(msgspec.Struct, frozen=True, gc=False):
    """Send a proxy's one request in flight. The range, or a failure, comes back with the token."""

    token: int
    count: int


class ReadEntries(msgspec.Struct, frozen=True, gc=False):
    """Answer with stored entries of a log, once all appends before this are durable. Entries of an
    epoch above `epoch` came later, and are left out."""

    route: Route
    log: str
    first_index: int
    last_index: int
    epoch: int
    bytes_max: int


Effect = (
    Append
    | ReplyTo
    | ReplyAtOnce
    | SendToCell
    | AskTimestamps
    | SendHeartbeat
    | RunJob
    | RemoveChunks
    | FetchChunk
    | EvictChunks
    | TouchChunks
    | TruncateLog
    | AskMaster
    | ReadEntries
)

HELD_EFFECTS: Final = frozenset(
    (ReplyTo, SendToCell, SendHeartbeat, RemoveChunks, TruncateLog, ReadEntries)
)
"""The effects that wait for the appends before them."""
