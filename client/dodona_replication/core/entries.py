"""The entries of a log: their checksum, and what makes them well-formed.

Owns: `checksum_of` and `check_entries`. The owner of a log makes the checksum. The replica compares
it before it stores an entry, and each reader of the entry compares it again.
Must not import: any shell.
"""

import struct
import zlib
from collections.abc import Sequence
from typing import Final

from dodona_replication.core.document import EPOCH_MAX
from dodona_replication.core.tail import NO_EPOCH
from dodona_wire.errors import InvalidRequest, LimitExceeded
from dodona_wire.messages.replicas import (
    ENTRIES_BYTES_MAX,
    ENTRIES_MAX,
    ENTRY_BYTES_MAX,
    Entry,
)

INDEX_MAX: Final = (1 << 63) - 1
_NAME: Final = struct.Struct(">QQ")


def checksum_of(index: int, epoch: int, records: bytes) -> int:
    """Return the checksum of an entry: CRC-32 of its index, its epoch and its records."""
    return zlib.crc32(records, zlib.crc32(_NAME.pack(index, epoch)))


def make_entry(index: int, epoch: int, records: bytes) -> Entry:
    """Return an entry with its checksum."""
    return Entry(index, epoch, checksum_of(index, epoch, records), records)


def is_sound(entry: Entry) -> bool:
    """Return whether the checksum of an entry fits."""
    return checksum_of(entry.index, entry.epoch, entry.records) == entry.checksum


def check_entries(
    log: str, epoch: int, previous: tuple[int, int], entries: Sequence[Entry]
) -> None:
    """Check entries that follow the entry `previous` (index, epoch), in a request of this epoch.
    Raises InvalidRequest, LimitExceeded. Both name the log and the index."""
    _check_size(log, entries)
    index, epoch_before = previous
    is_name = 1 <= epoch_before <= epoch if index else epoch_before == NO_EPOCH
    if not is_name or not 0 <= index <= INDEX_MAX - len(entries):
        raise _malformed(log, index, f"its index and epoch {epoch_before} name no entry")
    for entry in entries:
        if entry.index != index + 1:
            raise _malformed(log, entry.index, f"it follows entry {index}: leave none out")
        if not max(epoch_before, 1) <= entry.epoch <= epoch:
            raise _malformed(
                log,
                entry.index,
                f"its epoch {entry.epoch} is not between the one before ({epoch_before}) and the "
                f"one of the request ({epoch})",
            )
        if not is_sound(entry):
            raise _malformed(log, entry.index, "its checksum is wrong: send it again")
        index, epoch_before = entry.index, entry.epoch


def check_epoch(log: str, epoch: int) -> None:
    """Check the epoch of a request. Raises InvalidRequest."""
    if not 1 <= epoch <= EPOCH_MAX:
        text = f"An epoch is between 1 and {EPOCH_MAX}, not {epoch}. Take over the log first."
        raise InvalidRequest(text, log=log)


def _check_size(log: str, entries: Sequence[Entry]) -> None:
    if len(entries) > ENTRIES_MAX:
        text = f"A message has at most {ENTRIES_MAX} entries, not {len(entries)}. Send them in two."
        raise LimitExceeded(text, log=log)
    sizes = [len(it.records) for it in entries]
    if sum(sizes) > ENTRIES_BYTES_MAX or max(sizes, default=0) > ENTRY_BYTES_MAX:
        raise LimitExceeded(
            f"An entry has at most {ENTRY_BYTES_MAX} bytes, and a message {ENTRIES_BYTES_MAX}. "
            "Make smaller entries, or send them in two messages.",
            log=log,
        )


def _malformed(log: str, index: int, reason: str) -> InvalidRequest:
    return InvalidRequest(f"An entry of the request is malformed: {reason}.", log=log, index=index)
