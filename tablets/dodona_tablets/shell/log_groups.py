"""Encode a log's groups: a key with an index, a header with a checksum, MessagePack.

Owns: the format of a group, what the flags in its key say about its records, and how an error
describes damage. The error names the file, the group and, if it is known, the position of its
bytes. This module knows only that each group is a value under its key, and that keys sort as
indexes do.

The flags are in the key. So a search for some groups need not touch the values of other groups. The
checksum covers the flags.
"""

import struct
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec
import pyarrow

from dodona_tablets.core.records import ROW_RECORDS, Checkpoint, Record
from dodona_wire.errors import DataCorrupted

LOG_FORMAT: Final = 2

STRUCTURAL: Final = 1
"""Flag: the group may have records other than `ROW_RECORDS`."""
CHECKPOINT: Final = 2
"""Flag: the group has a checkpoint."""

_KEY: Final = struct.Struct(">QB")
"""Index, flags."""
KEY_BYTES: Final = _KEY.size
_KEY_1_BYTES: Final = 8
"""The length of keys in format 1. They have no flags."""
_HEADER: Final = struct.Struct(">BI")
"""Format, CRC-32 of key and body."""
_encoder: Final = msgspec.msgpack.Encoder()
_decoder: Final = msgspec.msgpack.Decoder(list[Record])


class GroupKey(msgspec.Struct, frozen=True, gc=False):
    """The key of a stored group."""

    index: int
    flags: int
    raw: bytes


def decode_key(raw: bytes, path: Path) -> GroupKey:
    """Decode a stored key. Raises DataCorrupted."""
    if len(raw) == _KEY.size:
        index, flags = _KEY.unpack(raw)
        return GroupKey(index, flags, raw)
    if len(raw) == _KEY_1_BYTES:
        raise other_format(path, 1)
    raise DataCorrupted(f"{raw!r} is not the key of a log group", path=str(path))


def encode_group(index: int, records: Sequence[Record]) -> tuple[GroupKey, bytearray]:
    """Encode one group as it is stored: its key and its value."""
    kinds = {type(record) for record in records}
    flags = 0 if kinds <= ROW_RECORDS else STRUCTURAL
    if Checkpoint in kinds:
        flags |= CHECKPOINT
    key = group_key(index, flags)
    value = bytearray(_HEADER.size)
    _encoder.encode_into(records, value, _HEADER.size)
    with memoryview(value) as view:
        checksum = zlib.crc32(view[_HEADER.size :], zlib.crc32(key.raw))
    _HEADER.pack_into(value, 0, LOG_FORMAT, checksum)
    return key, value


def group_key(index: int, flags: int) -> GroupKey:
    """Return the key of a group."""
    return GroupKey(index, flags, _KEY.pack(index, flags))


def decode_group(key: GroupKey, value: memoryview, path: Path) -> list[Record]:
    """Return the records of a stored group. Raises DataCorrupted."""
    if len(value) < _HEADER.size:
        raise damaged("is too short", path, key.index, value)
    found, checksum = _HEADER.unpack_from(value)
    if found != LOG_FORMAT:
        raise damaged(_other_format(found), path, key.index, value)
    body = value[_HEADER.size :]
    if zlib.crc32(body, zlib.crc32(key.raw)) != checksum:
        raise damaged("fails its checksum", path, key.index, value)
    try:
        return _decoder.decode(body)
    except msgspec.DecodeError as error:
        raise damaged(f"does not decode: {error}", path, key.index, value) from error


def other_format(path: Path, found: int) -> DataCorrupted:
    """Return the error about a log of a format that this release does not read."""
    return DataCorrupted(f"{path} {_other_format(found)}", path=str(path))


def _other_format(found: int) -> str:
    return (
        f"has format {found}. This release of Dodona reads format {LOG_FORMAT} only. Start the "
        "release that wrote the log, or restore a backup"
    )


def damaged(words: str, path: Path, index: int, value: memoryview | None = None) -> DataCorrupted:
    """Return the error about a group of the log that is, or should be, in this file."""
    place = {} if value is None else _place_of(value, path)
    return DataCorrupted(f"a group of the log {words}", path=str(path), group=index, **place)


def _place_of(value: memoryview, path: Path) -> dict[str, int]:
    """Return where in the file these bytes are. The bytes of a read transaction lie in a mapping of
    the file. Empty if these do not, or if the system does not list its mappings."""
    try:
        mappings = Path("/proc/self/maps").read_text("utf-8", "surrogateescape").splitlines()
    except OSError:
        return {}
    address = pyarrow.py_buffer(value).address
    for line in mappings:
        fields = line.split(maxsplit=5)
        if len(fields) == 6 and fields[5] == str(path):
            first, last = (int(it, 16) for it in fields[0].split("-"))
            if first <= address < last:
                return {"byte": address - first + int(fields[2], 16)}
    return {}
