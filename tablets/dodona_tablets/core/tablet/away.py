"""Say which chunks a read needs that are not on this machine.

Owns: the choice, by indexes only. A read that has met one missing chunk will meet the others that
overlap with it. To fetch these together takes less time than one after another.
"""

from dodona_tablets.core.rows.chunks.chunk import Chunk, ChunkAway
from dodona_tablets.core.rows.chunks.view import ChunkView
from dodona_tablets.core.tablet.snapshot import Read
from dodona_tablets.core.tablet.tablet import Tablet
from dodona_wire.messages.data import Lookup, LookupVersions
from dodona_wire.rows.keys import successor
from dodona_wire.types import Key


def chunks_for(tablet: Tablet, request: Read, away: ChunkAway) -> list[Chunk]:
    """Return the missing chunk that a read has met, and others that it will meet. For a range,
    these are the chunks with keys up to the end of the missing block: a page may end there."""
    found = {away.chunk.info.number: away.chunk}
    layers = [it for it in tablet.stores.layers if isinstance(it, ChunkView)]
    views = [it for it in layers if it.chunk.is_away]
    if isinstance(request, Lookup | LookupVersions):
        keys, at = request.keys, request.timestamp
        wanted = [it for it in views if it.may_have(keys, at)]
    else:
        last = successor(away.chunk.uppers[away.place])
        wanted = [it for it in views if it.meets(request.lower, min(request.upper, last))]
    found.update({it.chunk.info.number: it.chunk for it in wanted})
    return list(found.values())


def bytes_of(request: Read) -> int:
    """Return the size of the keys in a request."""
    if isinstance(request, Lookup | LookupVersions):
        keys: tuple[Key, ...] = request.keys
        return sum([len(it) for it in keys])
    return len(request.lower) + len(request.upper)
