"""The items of a replica's file: how logs and entries become keys and values.

Owns: the format of both, with their checksums. An item is one of these:

- the format, and the identity: the replica's id and its cluster;
- the place in the journal beside the file (see `replica_journal`);
- the state of a log, by its name: its number in this file, its epoch, and its tail. The last index
  is not in it: the last entry has it;
- a piece of an entry, by the number of its log, its index, and the place of the piece.

An entry is cut into pieces that fit into one page of the engine. A longer value would need a run of
adjacent pages, and free pages are seldom adjacent (decision 017). A log that begins anew gets
another number, so its old entries can be removed later, in steps.

Must not import: lmdb.
"""

import struct
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import msgspec

from dodona_replication.core.entries import is_sound
from dodona_replication.core.records import LogState
from dodona_replication.core.tail import Tail
from dodona_wire.errors import DataCorrupted
from dodona_wire.messages.replicas import Entry

FORMAT_VERSION: Final = b"2"
FORMAT_WITHOUT_JOURNAL: Final = b"1"
"""The format before this one. It is the same, but for the journal and the place in it."""
FORMAT_KEY: Final = b"\x00format"
IDENTITY_KEY: Final = b"\x00identity"
PLACE_KEY: Final = b"\x00place"
STATE_PREFIX: Final = b"\x01"
PIECE_PREFIX: Final = b"\x02"
PIECES_END: Final = b"\x03"
"""Above the keys of all pieces."""
PIECE_BYTES: Final = 4_080
"""A page of 4 KiB without its header: so a piece takes one page, or shares one."""

_KEY: Final = struct.Struct(">cIQI")
_ENTRY: Final = struct.Struct(">QIQ")
"""Before the records of an entry: its epoch, its checksum, and how long the records are."""
_CHECKSUM_BYTES: Final = 4


class Identity(msgspec.Struct, frozen=True, array_like=True):
    """Who the replica is. Drawn with the file, and never changed (R8)."""

    replica: str
    cluster: str


class StoredState(msgspec.Struct, frozen=True, array_like=True):
    """The state of a log as it is stored."""

    number: int
    epoch: int
    first_index: int
    epoch_before: int
    starts: tuple[tuple[int, int], ...]

    @classmethod
    def of(cls, number: int, state: LogState) -> "StoredState":
        """Return what is stored of a state."""
        tail = state.tail
        return cls(number, state.epoch, tail.first_index, tail.epoch_before, tuple(tail.starts))

    def state(self, last_index: int) -> LogState:
        """Return the state, with the index of the last entry that was found."""
        tail = Tail(self.first_index, self.epoch_before, self.starts, last_index)
        return LogState(self.epoch, tail)


class Place(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The last frame of the journal whose entries are in this file, and what makes others sure."""

    key: bytes
    """The checksums of all frames begin with it."""
    number: int
    offset: int
    checksum: int
    salt: bytes
    """The frames behind this one have it."""


_identities: Final = msgspec.msgpack.Decoder(Identity)
_states: Final = msgspec.msgpack.Decoder(StoredState)
_places: Final = msgspec.msgpack.Decoder(Place)


def sealed(key: bytes, value: Identity | StoredState | Place) -> bytes:
    """Return the stored form of a value: a checksum of its key and itself, and the value."""
    data = msgspec.msgpack.encode(value)
    return _checksum(key, data) + data


def unsealed_identity(stored: bytes, path: Path) -> Identity:
    """Return the identity of a file. Raises DataCorrupted."""
    data = _unsealed(IDENTITY_KEY, stored, "the identity of the replica", path)
    return _identities.decode(data)


def unsealed_place(stored: bytes, path: Path) -> Place:
    """Return the place of a file in its journal. Raises DataCorrupted."""
    return _places.decode(_unsealed(PLACE_KEY, stored, "the place in the journal", path))


def unsealed_state(key: bytes, stored: bytes, path: Path) -> StoredState:
    """Return the state of the log with this key. Raises DataCorrupted."""
    return _states.decode(_unsealed(key, stored, f"the state of log {log_of(key)}", path))


def state_key(log: str) -> bytes:
    """Return the key of a log's state."""
    return STATE_PREFIX + log.encode()


def log_of(key: bytes) -> str:
    """Return the name of the log whose state has this key."""
    return key[1:].decode(errors="replace")


def piece_key(number: int, index: int, place: int = 0) -> bytes:
    """Return the key of a piece of an entry. Keys of the same log rise with the index."""
    return _KEY.pack(PIECE_PREFIX, number, index, place)


def parse_piece_key(key: bytes, path: Path) -> tuple[int, int, int]:
    """Return the number, the index and the place of this key. Raises DataCorrupted."""
    if len(key) != _KEY.size:
        raise DataCorrupted("A key of the store is not one of a replica.", path=str(path), key=key)
    _, number, index, place = _KEY.unpack(key)
    return number, index, place


def pieces_of(number: int, entry: Entry) -> Iterator[tuple[bytes, bytes]]:
    """Yield the items of an entry."""
    data = _ENTRY.pack(entry.epoch, entry.checksum, len(entry.records)) + entry.records
    for place, begin in enumerate(range(0, len(data), PIECE_BYTES)):
        yield piece_key(number, entry.index, place), data[begin : begin + PIECE_BYTES]


def joined(log: str, index: int, pieces: Sequence[bytes], path: Path) -> Entry:
    """Return the entry with these pieces. Raises DataCorrupted, which names the log and the
    index."""
    data = b"".join(pieces)
    if len(data) < _ENTRY.size:
        raise damaged("is too short", log, index, path)
    epoch, checksum, size_bytes = _ENTRY.unpack_from(data)
    entry = Entry(index, epoch, checksum, data[_ENTRY.size :])
    if len(entry.records) != size_bytes:
        raise damaged("lacks a part", log, index, path)
    if not is_sound(entry):
        raise damaged("has a wrong checksum", log, index, path)
    return entry


def damaged(reason: str, log: str, index: int, path: Path) -> DataCorrupted:
    """Return the error about an entry that is not as it was written."""
    text = (
        f"An entry of a replicated log {reason}: the replica's disk damaged it. Replace this "
        "replica by a new one, which copies the log."
    )
    return DataCorrupted(text, path=str(path), log=log, index=index)


def other_format(found: bytes | None, path: Path) -> DataCorrupted:
    """Return the error about a file of another format."""
    text = "no format" if found is None else f"format {found.decode(errors='replace')}"
    return DataCorrupted(
        f"{path} has {text}. This release of Dodona reads formats "
        f"{FORMAT_WITHOUT_JOURNAL.decode()} and {FORMAT_VERSION.decode()} of a log replica only. "
        "Start the release that wrote the file.",
        path=str(path),
    )


def _unsealed(key: bytes, stored: bytes, what: str, path: Path) -> bytes:
    data = stored[_CHECKSUM_BYTES:]
    if stored[:_CHECKSUM_BYTES] != _checksum(key, data):
        raise DataCorrupted(f"The checksum of {what} is wrong.", path=str(path))
    return data


def _checksum(key: bytes, data: bytes) -> bytes:
    return zlib.crc32(data, zlib.crc32(key)).to_bytes(_CHECKSUM_BYTES, "big")
