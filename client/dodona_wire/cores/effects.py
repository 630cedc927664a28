"""What a core asks its shell to do. Frozen records without behaviour.

The one law: effects are carried out in order, and nothing behind an `Append` leaves the process
until that append is durable. `ReplyAtOnce` and `AskTimestamps` are outside the law: they must not
tell anybody anything that matters and that a crash could take back.
"""

from typing import Any, Final

import msgspec

from dodona_wire.messages.catalog import Heartbeat
from dodona_wire.messages.cells import CellMessage
from dodona_wire.messages.families import Reply
from dodona_wire.types import CellId

Route = Any
"""Where a request came from: made by the shell, given back to it unread by the core."""


class Append(msgspec.Struct, frozen=True, gc=False):
    """Make the record durable."""

    record: Any


class ReplyTo(msgspec.Struct, frozen=True, gc=False):
    """Answer a request, once all appends before this are durable."""

    route: Route
    body: Reply


class ReplyAtOnce(msgspec.Struct, frozen=True, gc=False):
    """Answer a request now, whatever is not durable yet."""

    route: Route
    body: Reply


class SendToCell(msgspec.Struct, frozen=True, gc=False):
    """A one-way message to another cell, once all appends before this are durable."""

    cell: CellId
    body: CellMessage


class AskTimestamps(msgspec.Struct, frozen=True, gc=False):
    """Ask the oracle for one timestamp now; it comes back with the token, or not at all. `is_idle`
    if nobody waits for it."""

    token: Any
    is_idle: bool = False


class SendHeartbeat(msgspec.Struct, frozen=True, gc=False):
    """Tell the master, once all appends before this are durable; its Assignment comes back, or
    nothing does."""

    body: Heartbeat


class RunJob(msgspec.Struct, frozen=True, gc=False):
    """Do long work on chunks elsewhere; its result comes back with the token, after whatever it
    wrote is durable."""

    token: Any
    job: Any


class RemoveChunks(msgspec.Struct, frozen=True, gc=False):
    """Remove the files of these chunks, once all appends before this are durable."""

    numbers: tuple[int, ...]


class TruncateLog(msgspec.Struct, frozen=True, gc=False):
    """Nothing before the checkpoint of this number is needed, once all appends before this are
    durable."""

    checkpoint: int


class AskMaster(msgspec.Struct, frozen=True, gc=False):
    """A proxy's one request in flight; the range comes back with the token, or a failure does."""

    token: int
    count: int


Effect = (
    Append
    | ReplyTo
    | ReplyAtOnce
    | SendToCell
    | AskTimestamps
    | SendHeartbeat
    | RunJob
    | RemoveChunks
    | TruncateLog
    | AskMaster
)

HELD_EFFECTS: Final = frozenset((ReplyTo, SendToCell, SendHeartbeat, RemoveChunks, TruncateLog))
"""What waits for the appends before it."""
