"""The journal of a replica's store: the newest entries, which the store's file does not have yet.

Owns: one file of a fixed length, which is a ring of frames, and the search for damage. A frame has
the entries of one append. To write it takes one write and one sync, whose cost does not depend on
the size of the store. Later one transaction of the store's file gets the entries of many frames.

The store's file has a `Place`: the last frame whose entries it has, and a salt, which each of its
transactions draws. So the two files belong together, or they are refused:

- The frame of the place must be there. If it is not, the journal is of another folder, or older
  than the file, or damaged.
- A frame behind it must have the salt. If it has another one, the file is older than the journal,
  and lacks epochs and cuts.

Invariants:
- Frames follow each other in the ring, with rising numbers without gaps. No frame is written over
  the one of the place, or over a later one: what waits takes at most half of the ring.
- A frame begins in a block of its own. So a write that is torn touches no other frame.
- The first frame that is not whole ends the journal: it was never durable. If a later frame is
  there, the one before is damaged, and the journal is refused.
- A checksum begins with a key, which is drawn with the journal and is in the store's file. So bytes
  that a client has chosen are never taken for a frame.

The file has all its bytes before its first use. So a write never changes its length or its extents,
and the sync need not write these.
"""

import errno
import os
import secrets
import struct
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from dodona_replication.core.records import EntriesAdded
from dodona_replication.shell.replica_keys import Place
from dodona_server.disk_space import disk_full, is_no_space
from dodona_wire.errors import DataCorrupted, InvalidRequest
from dodona_wire.messages.replicas import Entry
from dodona_wire.net.descriptors import is_out_of_descriptors, out_of_descriptors
from dodona_wire.net.folder import UNFINISHED_NAME, make_whole, private_file

JOURNAL_NAME: Final = "replica.journal"
JOURNAL_BYTES: Final = 1 << 20
WAITING_BYTES_MAX: Final = 512 << 10
WAITING_ENTRIES_MAX: Final = 500
"""So long are all frames that wait, and so many entries they have. The store's file takes all of
them in one or two ms, during which the event loop of the replica stands still."""
FRAME_BYTES_MAX: Final = 64 << 10
"""Larger appends go straight to the store's file: to write them twice gains little."""
BLOCK_BYTES: Final = 4_096
"""What a disk writes whole, or not. Disks with smaller sectors write several of them."""
SECRET_BYTES: Final = 8
"""Random bytes of a key, and of a salt."""

_HEAD: Final = struct.Struct("<Q8sI")
"""A frame begins with its number, its salt, and the length of its body."""
_CHECKSUM: Final = struct.Struct("<I")
"""Then comes the checksum of the key, of this head, and of the body. The body follows."""
_BODY: Final = _HEAD.size + _CHECKSUM.size


class StoredEntry(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """An entry in a frame. The order of the fields is a part of the format."""

    index: int
    epoch: int
    checksum: int
    records: bytes


class StoredEntries(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Entries of one log in a frame."""

    log: str
    entries: tuple[StoredEntry, ...]


_encoder: Final = msgspec.msgpack.Encoder()
_decoder: Final = msgspec.msgpack.Decoder(list[StoredEntries])


class _Frame(NamedTuple):
    """A whole frame in the bytes of a journal."""

    offset: int
    end: int
    number: int
    salt: bytes
    checksum: int
    body: memoryview


class FoundJournal(NamedTuple):
    """What a journal has."""

    data: bytes
    last: Place
    """The last frame, and the salt of the next one."""
    end: int
    """Where the last frame ends."""
    waiting: list[EntriesAdded]
    """The entries that the store's file does not have."""
    waiting_bytes: int
    """The length of their frames."""


class Journal:
    """An open journal. One thread at a time may use it."""

    def __init__(self, path: Path, found: FoundJournal) -> None:
        """Open the journal that was read, to go on behind its last frame.

        All its bytes are written again, as they were read. So they are durable, even if a sync of
        an earlier process failed and left some in the kernel's memory only. Raises DiskFull,
        Overloaded, InvalidRequest.
        """
        self.last = found.last
        """The last frame, and the salt of the next one."""
        self._end = found.end
        self._waiting_bytes = found.waiting_bytes
        self._waiting_count = sum([len(it.entries) for it in found.waiting])
        self._buffer = bytearray()
        with _errors_told(path):
            self._descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
            try:
                self._write_again(found.data)
            except BaseException:
                self.close()
                raise

    def append(self, added: Sequence[EntriesAdded]) -> bool:
        """Make the entries durable in one frame. Return whether it did: it does not if they are too
        many, or if too many would wait. Raises OSError, after which the process has to end."""
        entry_count, size_bytes = 0, _BODY
        for it in added:
            entry_count += len(it.entries)
            size_bytes += sum([len(entry.records) for entry in it.entries])
        entry_count += self._waiting_count
        if size_bytes > FRAME_BYTES_MAX or entry_count > WAITING_ENTRIES_MAX:
            return False
        last = self.last
        checksum = self._fill_buffer(last, added)
        length = len(self._buffer)
        if length > FRAME_BYTES_MAX or self._waiting_bytes + length > WAITING_BYTES_MAX:
            return False
        offset = self._end if self._end + length <= JOURNAL_BYTES else 0
        self._write(self._buffer, offset)
        self.last = Place(last.key, last.number + 1, offset, checksum, last.salt)
        self._end = offset + length
        self._waiting_bytes += length
        self._waiting_count = entry_count
        return True

    def next_place(self) -> Place:
        """Return the place that the store's file is to have with the entries of all frames."""
        last = self.last
        return Place(last.key, last.number, last.offset, last.checksum, _secret())

    def go_on(self, place: Place) -> None:
        """Note that the store's file has this place, durably."""
        self.last = place
        self._waiting_bytes = self._waiting_count = 0

    def close(self) -> None:
        os.close(self._descriptor)

    def _fill_buffer(self, last: Place, added: Sequence[EntriesAdded]) -> int:
        """Make the frame behind the last one. Return its checksum."""
        buffer = self._buffer
        _encoder.encode_into([_stored(it) for it in added], buffer, _BODY)
        body_bytes = len(buffer) - _BODY
        _HEAD.pack_into(buffer, 0, last.number + 1, last.salt, body_bytes)
        view = memoryview(buffer)
        checksum = _checksum_of(last.key, view[: _HEAD.size], view[_BODY:])
        view.release()  # a buffer with a view has a fixed size
        _CHECKSUM.pack_into(buffer, _HEAD.size, checksum)
        buffer += bytes(-len(buffer) % BLOCK_BYTES)
        return checksum

    def _write_again(self, data: bytes) -> None:
        self._write(data, 0)

    def _write(self, data: bytes | bytearray, offset: int) -> None:
        written_bytes = os.pwrite(self._descriptor, data, offset)
        if written_bytes != len(data):
            text = f"of {len(data)} bytes of the journal {written_bytes} were written"
            raise OSError(errno.EIO, text)
        os.fdatasync(self._descriptor)


def check_unused(path: Path) -> None:
    """Check that a file which knows no journal has none beside it with frames. Else the file is
    older than the journal, or another one was there. Raises DataCorrupted, Overloaded,
    InvalidRequest."""
    if path.exists():
        with _errors_told(path):
            data = path.read_bytes()
        if data[BLOCK_BYTES:].strip(b"\0"):  # the first frame after a start is in the second block
            raise _damaged("is of another file than the one beside it, or newer", path)


def make_journal(path: Path) -> Place:
    """Make a journal without entries, in the place of one that may exist. The file is durable, and
    so is its name. Return the place for the store's file. Raises DiskFull, Overloaded,
    InvalidRequest, which leave no part of the file."""
    key, salt = _secret(), _secret()
    body = _encoder.encode([])
    head = _HEAD.pack(0, salt, len(body))
    checksum = _checksum_of(key, head, body)
    data = (head + _CHECKSUM.pack(checksum) + body).ljust(JOURNAL_BYTES, b"\0")

    def fill(unfinished: Path) -> None:
        with private_file(unfinished, "wb") as file:
            file.write(data)

    with _errors_told(path):
        try:
            make_whole(path, fill, is_anew=True)
        except BaseException:
            with suppress(OSError):
                path.with_name(UNFINISHED_NAME).unlink(missing_ok=True)
            raise
    return Place(key, 0, 0, checksum, salt)


def read_journal(path: Path, place: Place) -> FoundJournal:
    """Return what the journal of a store's file with this place has. Raises DataCorrupted,
    Overloaded, InvalidRequest."""
    with _errors_told(path):
        data = path.read_bytes()
    if len(data) != JOURNAL_BYTES:
        raise _damaged(f"has {len(data)} bytes, and should have {JOURNAL_BYTES}", path)
    view = memoryview(data)
    last = _frame_at(view, place.offset, place.key, range(place.number, place.number + 1))
    if last is None or last.checksum != place.checksum:
        text = f"lacks frame {place.number}, which the file beside it names"
        raise _damaged(f"{text}. It is damaged, or is not the newest journal of this file", path)
    waiting: list[EntriesAdded] = []
    waiting_bytes = 0
    for frame in _frames_behind(view, last, place.key):
        if frame.salt != place.salt:
            raise _damaged("is newer than the file beside it", path)
        waiting += [_added(it) for it in _decoder.decode(frame.body)]
        waiting_bytes += frame.end - frame.offset
        last = frame
    later = range(last.number + 2, 1 << 64)
    for offset in range(0, JOURNAL_BYTES, BLOCK_BYTES):
        if _frame_at(view, offset, place.key, later) is not None:
            raise _damaged(f"has no whole frame {last.number + 1}, but a later one", path)
    found = Place(place.key, last.number, last.offset, last.checksum, place.salt)
    return FoundJournal(data, found, last.end, waiting, waiting_bytes)


def _frames_behind(view: memoryview, last: _Frame, key: bytes) -> Iterator[_Frame]:
    """Yield the frames that follow this one. A frame without room at the end is at the start."""
    frame: _Frame | None = last
    while frame is not None:
        wanted = range(frame.number + 1, frame.number + 2)
        frame = _frame_at(view, frame.end, key, wanted) or _frame_at(view, 0, key, wanted)
        if frame is not None:
            yield frame


def _frame_at(view: memoryview, offset: int, key: bytes, wanted: range) -> _Frame | None:
    """Return the frame at this place. None if there is no whole one with a number that is
    wanted."""
    begin = offset + _BODY
    if begin > len(view):
        return None
    number, salt, body_bytes = _HEAD.unpack_from(view, offset)
    if number not in wanted or body_bytes > FRAME_BYTES_MAX or begin + body_bytes > len(view):
        return None
    (checksum,) = _CHECKSUM.unpack_from(view, offset + _HEAD.size)
    body = view[begin : begin + body_bytes]
    if _checksum_of(key, view[offset : offset + _HEAD.size], body) != checksum:
        return None
    end = begin + body_bytes
    return _Frame(offset, end + -end % BLOCK_BYTES, number, salt, checksum, body)


def _checksum_of(key: bytes, head: bytes | memoryview, body: bytes | memoryview) -> int:
    return zlib.crc32(body, zlib.crc32(head, zlib.crc32(key)))


def _secret() -> bytes:
    return secrets.token_bytes(SECRET_BYTES)


def _stored(added: EntriesAdded) -> StoredEntries:
    entries = [StoredEntry(it.index, it.epoch, it.checksum, it.records) for it in added.entries]
    return StoredEntries(added.log, tuple(entries))


def _added(stored: StoredEntries) -> EntriesAdded:
    entries = [Entry(it.index, it.epoch, it.checksum, it.records) for it in stored.entries]
    return EntriesAdded(stored.log, tuple(entries))


@contextmanager
def _errors_told(path: Path) -> Iterator[None]:
    """Replace errors of the disk before the store is open. Raises DiskFull, Overloaded,
    DataCorrupted (the file is missing), InvalidRequest."""
    try:
        yield
    except FileNotFoundError as error:
        raise _damaged("is missing", path) from error
    except OSError as error:
        if is_no_space(error):
            raise disk_full(path.parent) from error
        if is_out_of_descriptors(error):
            raise out_of_descriptors(error, path) from error
        text = f"{path} can't be used: {error.strerror}. Check the disk and the permissions."
        raise InvalidRequest(text, path=str(path)) from error


def _damaged(words: str, path: Path) -> DataCorrupted:
    return DataCorrupted(
        f"The journal of a log replica {words}: entries of its logs may be lost. Put both files "
        "back as they were, or replace this replica by a new one, which copies the logs.",
        path=str(path),
    )
