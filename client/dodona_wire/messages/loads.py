"""The requests of bulk loads to a cell, and the replies."""

from dodona_wire.messages.base import Message
from dodona_wire.types import (
    Atomicity,
    BatchKind,
    Key,
    LoadId,
    LoadMode,
    Revision,
    TabletId,
    Timestamp,
)

# Requests


class OpenLoad(Message, frozen=True, array_like=True, gc=False, tag=22):
    """Take batches of this load from now on, until its lease ends. Every request of the load to
    this cell renews the lease. An atomic load stages them, and what these tablets show at `since`
    is kept meanwhile. A load without atomicity writes them immediately. All its rows get the
    timestamp `since`, by its client's clock. → LoadHeld | Failure."""

    load: LoadId
    atomicity: Atomicity
    lease_ms: int
    since: Timestamp
    tablets: tuple[TabletId, ...] = ()


class RenewLoad(Message, frozen=True, array_like=True, gc=False, tag=23):
    """Begin the lease of an open load again. → LoadHeld | Failure."""

    load: LoadId


class PeekLoad(Message, frozen=True, array_like=True, gc=False, tag=28):
    """Ask how long this load stays open here without renewal. The question changes nothing.
    → LoadHeld."""

    load: LoadId


class CloseLoad(Message, frozen=True, array_like=True, gc=False, tag=24):
    """Take no more batches of this load, and drop its staged rows that were not published.
    → LoadHeld, with a lease of 0 once the load is over; not while it is being published."""

    load: LoadId


class StageArrow(Message, frozen=True, array_like=True, gc=False, tag=26):
    """Keep a batch for a load, invisible until the load is published. `batch` is an Arrow IPC
    stream. It has all columns to write, the key columns and some others to update, or the key
    columns to delete. `part` (partition, attempt, call, place) names the batch: a repeat is not
    staged twice.
    → Staged | Failure."""

    tablet: TabletId
    revision: Revision
    load: LoadId
    part: tuple[int, int, int, int]
    kind: BatchKind
    batch: bytes


class SealLoad(Message, frozen=True, array_like=True, gc=False, tag=27):
    """Check that these staged chunks can be published in a tablet, and make the missing deletions:
    of all other rows in the erased ranges. Rows that changed after `since` are a conflict.
    → LoadSealed | Failure."""

    tablet: TabletId
    revision: Revision
    load: LoadId
    chunks: tuple[int, ...]
    mode: LoadMode
    since: Timestamp
    erased: tuple[tuple[Key, Key], ...] = ()


# Replies


class LoadHeld(Message, frozen=True, array_like=True, gc=False, tag=42):
    """The load is open for `lease_ms` from now; with 0 it is not open any more."""

    lease_ms: int


class Staged(Message, frozen=True, array_like=True, gc=False, tag=43):
    """The batch is durable as this chunk of the tablet."""

    chunk: int
    row_count: int


class LoadSealed(Message, frozen=True, array_like=True, gc=False, tag=44):
    """These chunks can be published together: those of the request, and deletions."""

    chunks: tuple[int, ...]
    row_count: int
    deleted_count: int
