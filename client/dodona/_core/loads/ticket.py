"""What all processes that take part in a load know of it. Pure data, made to be pickled.

Owns: the ticket, and how a load ended. Rows are brought with a ticket, and whoever has it and what
was staged may publish or abort: nothing of a load is kept in the process that began it.
"""

from base64 import b64decode, b64encode
from typing import Final

import msgspec

from dodona_wire.errors import InvalidRequest
from dodona_wire.preload import preload_decoder
from dodona_wire.rows.schema import Column
from dodona_wire.types import (
    MAX_TIMESTAMP,
    NULL_TIMESTAMP,
    Atomicity,
    BatchKind,
    Key,
    LoadId,
    LoadMode,
    TableSettings,
    TabletId,
    Timestamp,
)

LEASE_MS: Final = 600_000
LEASE_MS_MAX: Final = 3_600_000
"""Cells grant no longer ones."""

KINDS: Final[dict[LoadMode, BatchKind]] = {
    "upsert": "write",
    "insert": "write",
    "update": "update",
    "delete": "delete",
}
"""What the rows of a load do."""


class LoadTable(msgspec.Struct, frozen=True):
    """A table as it was when the load began: what is staged fits no other."""

    path: str
    columns: tuple[Column, ...]
    tablets: tuple[TabletId, ...]
    erased: tuple[tuple[Key, Key], ...] = ()
    """Where the load's rows will be the only ones: lower ≤ key < upper."""
    settings: TableSettings | None = None
    """Its attributes when the load began; None in tickets of before."""


@preload_decoder
class LoadTicket(msgspec.Struct, frozen=True):
    """One load."""

    load: LoadId
    atomicity: Atomicity
    mode: LoadMode
    stamp: Timestamp
    """Rows that changed later are a conflict; the timestamp of all rows, without atomicity."""
    overwrites: bool
    """Whether what others changed meanwhile is overwritten, and no conflict."""
    lease_ms: int
    tables: tuple[LoadTable, ...]
    application: str | None = None
    version: int | None = None
    """What the load is to its application: none that was recorded with it is published again."""
    query: str | None = None
    """Whose versions these are, if the application is a stream: one that begins anew at version 0,
    with its checkpoint lost, takes over from the query before."""
    recorded_at: Timestamp = NULL_TIMESTAMP
    """When this version, or a later one, was published: then there is nothing to do."""

    @property
    def since(self) -> Timestamp:
        """Rows that changed later are a conflict."""
        return MAX_TIMESTAMP if self.overwrites else self.stamp

    @property
    def is_recorded(self) -> bool:
        """Whether another load has done all this before."""
        return self.recorded_at != NULL_TIMESTAMP

    def to_text(self) -> str:
        """For where only text can be handed on."""
        return b64encode(msgspec.msgpack.encode(self)).decode()

    @classmethod
    def from_text(cls, text: str) -> "LoadTicket":
        """The inverse. Raises InvalidRequest."""
        try:
            return msgspec.msgpack.decode(b64decode(text, validate=True), type=cls)
        except (ValueError, msgspec.DecodeError) as error:
            raise InvalidRequest(f"this is no ticket of a load: {error}") from error

    def table(self, path: str) -> LoadTable | None:
        return next((it for it in self.tables if it.path == path), None)


class Published(msgspec.Struct, frozen=True):
    """How a load that was published ended. Without atomicity its rows have no timestamp of their
    own, and nothing was deleted."""

    timestamp: Timestamp
    row_count: int
    deleted_count: int = 0
    """Rows that were in the ranges that it overwrote, and are not among its own."""
    is_skipped: bool = False
    """Its application's version was recorded before, at this timestamp; nothing was written."""
