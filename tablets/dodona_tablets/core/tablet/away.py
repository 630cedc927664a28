"""Say which chunks a read needs that are not on this machine.

Owns: the choice, by indexes only. A read that has met one missing chunk will meet the others that
overlap with it. To fetch these together takes less time than one after another.
"""

from collections.abc import Collection

from dodona_tablets.core.rows.chunks.chunk import Chunk, ChunkAway
from dodona_tablets.core.rows.chunks.view import ChunkView
from dodona_tablets.core.tablet.snapshot import Read
from dodona_tablets.core.tablet.tablet import Tablet
from dodona_wire.messages.data import CountVersions, Lookup, LookupVersions, ScanVersions
from dodona_wire.rows.keys import successor
from dodona_wire.types import MAX_TIMESTAMP, NULL_TIMESTAMP, Key, Timestamp


def chunks_for(tablet: Tablet, request: Read, away: ChunkAway) -> list[Chunk]:
    """Return the missing chunk that a read has met, and others that it will meet."""
    since = NULL_TIMESTAMP
    if isinstance(request, LookupVersions | ScanVersions | CountVersions):
        since = request.since
    if not isinstance(request, Lookup | LookupVersions):
        bounds = request.lower, request.upper
        return chunks_in(tablet, *bounds, away, since=since, timestamp=request.timestamp)
    return chunks_of_keys(tablet, request.keys, away, since=since, timestamp=request.timestamp)


def chunks_of_keys(
    tablet: Tablet,
    keys: Collection[Key],
    away: ChunkAway,
    *,
    since: Timestamp = NULL_TIMESTAMP,
    timestamp: Timestamp = MAX_TIMESTAMP,
) -> list[Chunk]:
    """Return the missing chunk that a look at a key has met, and others that may have one of these
    keys."""
    views = _away(tablet, since, timestamp)
    return _with(away, [it for it in views if it.may_have(keys)])


def chunks_in(
    tablet: Tablet,
    lower: Key,
    upper: Key,
    away: ChunkAway,
    *,
    since: Timestamp = NULL_TIMESTAMP,
    timestamp: Timestamp = MAX_TIMESTAMP,
) -> list[Chunk]:
    """Return the missing chunk that a read of a range has met, and others that it will meet. These
    have keys up to the end of the missing block: a page may end there."""
    end = min(upper, successor(away.chunk.uppers[away.place]))
    views = _away(tablet, since, timestamp)
    return _with(away, [it for it in views if it.meets(lower, end)])


def _away(tablet: Tablet, since: Timestamp, timestamp: Timestamp) -> list[ChunkView]:
    """Return the chunks that are away, and may have versions of `since < timestamp ≤ …`."""
    views = [it for it in tablet.stores.layers if isinstance(it, ChunkView) and it.chunk.is_away]
    return [it for it in views if it.max_timestamp > since and it.min_timestamp <= timestamp]


def _with(away: ChunkAway, views: list[ChunkView]) -> list[Chunk]:
    chunks = [away.chunk, *[it.chunk for it in views]]
    return list({it.info.number: it for it in chunks}.values())


def bytes_of(request: Read) -> int:
    """Return the size of the keys in a request."""
    if isinstance(request, Lookup | LookupVersions):
        keys: tuple[Key, ...] = request.keys
        return sum([len(it) for it in keys])
    return len(request.lower) + len(request.upper)
