"""What all processes that take part in a load know about it. Pure data, which can be pickled.

Owns: the ticket, and the result of a load. A process needs the ticket to send rows. With the ticket
and the list of staged batches, any process may publish or abort. The process that began the load
keeps no state for it.
"""

from base64 import b64decode, b64encode
from collections.abc import Sequence
from typing import Any, Final, Literal

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
"""The longest lease that cells grant."""

KINDS: Final[dict[LoadMode, BatchKind]] = {
    "upsert": "write",
    "insert": "write",
    "update": "update",
    "delete": "delete",
}
"""What the rows of a load do."""

WriteMode = Literal["upsert", "insert", "update", "delete", "replace"]
"""What a call of `write` requires of existing rows, as of a load. Replace removes all others."""
WRITE_OWNER: Final = "write"
"""The owner that the load of such a call has in its record."""
Range = tuple[Sequence[Any] | None, Sequence[Any] | None]
"""Leading key values, or None for no limit: lower ≤ key < upper."""


class LoadTable(msgspec.Struct, frozen=True):
    """A table as it was when the load began. If the table changes, the staged rows no longer
    fit."""

    path: str
    columns: tuple[Column, ...]
    tablets: tuple[TabletId, ...]
    erased: tuple[tuple[Key, Key], ...]
    """The ranges in which the load's rows replace all others: lower ≤ key < upper."""
    settings: TableSettings
    """The table's attributes when the load began."""


@preload_decoder
class LoadTicket(msgspec.Struct, frozen=True):
    """The ticket of one load. Each process that sends rows of the load, or publishes it, needs a
    copy."""

    load: LoadId
    atomicity: Atomicity
    mode: LoadMode
    stamp: Timestamp
    """With atomicity, rows that changed after this timestamp are a conflict. Without atomicity, all
    rows of the load get this timestamp."""
    overwrites: bool
    """Whether the load overwrites what others changed meanwhile. Then such changes are no
    conflict."""
    lease_ms: int
    tables: tuple[LoadTable, ...]
    application: str | None = None
    version: int | None = None
    """The number that the application gives to the load. A number that was recorded is not
    published a second time."""
    query: str | None = None
    """Which query of a stream the versions belong to, if the application is a stream. A query that
    lost its checkpoint begins again at version 0, and takes over from the query before."""
    recorded_at: Timestamp = NULL_TIMESTAMP
    """When this version, or a later one, was published. Then there is nothing to do."""

    @property
    def since(self) -> Timestamp:
        """Rows that changed after this timestamp are a conflict."""
        return MAX_TIMESTAMP if self.overwrites else self.stamp

    @property
    def is_recorded(self) -> bool:
        """Whether another load has published this version, or a later one, before."""
        return self.recorded_at != NULL_TIMESTAMP

    def to_text(self) -> str:
        """Return the ticket as text, for programs that can pass only text on."""
        return b64encode(msgspec.msgpack.encode(self)).decode()

    @classmethod
    def from_text(cls, text: str) -> "LoadTicket":
        """Return the ticket from the text that `to_text` made. Raises InvalidRequest."""
        try:
            return msgspec.msgpack.decode(b64decode(text, validate=True), type=cls)
        except (ValueError, msgspec.DecodeError) as error:
            raise InvalidRequest(
                f"the text is not a ticket of a load, as `to_text` makes it: {error}"
            ) from error

    def table(self, path: str) -> LoadTable | None:
        return next((it for it in self.tables if it.path == path), None)


class Published(msgspec.Struct, frozen=True):
    """The result of a published load, or of `write`. Without atomicity, its rows have no common
    commit timestamp, and nothing was deleted."""

    timestamp: Timestamp
    row_count: int
    deleted_count: int = 0
    """How many rows in the ranges that the load replaced are not among its own rows."""
    is_skipped: bool = False
    """Whether the application's version was recorded before, at this timestamp. Then nothing was
    written."""
