"""Find a commit to a log's file whose very last write failed. If there may be one, it is made
again.

Owns: what the two commits that a file remembers say of each other. When a last write failed, LMDB
takes back two of its fields, and all others stay. A commit that succeeded looks like that, too,
after damage to its number. A caller may have the answer to that commit, so it is always right to
make the commit again. Its group is among the groups that no head names (see `log_tail`).

No checksum covers these fields. But each commit to a file writes one group. So its number is the
number of groups that the file then has.
"""

import os
import struct
from pathlib import Path
from typing import Final, NamedTuple

from dodona_wire.errors import DataCorrupted

_COMMIT: Final = struct.Struct("=120xQ16xQ")
"""The page that every other commit writes: how many values the file then has, and the commit's
number."""


class _Commit(NamedTuple):
    group_count: int
    number: int


def is_last_commit_in_doubt(path: Path, page_bytes: int) -> bool:
    """Return whether a commit succeeded, or nearly, that no head names. Raises DataCorrupted if the
    commits contradict each other."""
    with path.open("rb") as file:
        pages = [os.pread(file.fileno(), _COMMIT.size, at) for at in (0, page_bytes)]
    even, odd = (_Commit(*_COMMIT.unpack(page)) for page in pages)
    last, other = (odd, even) if odd.number > even.number else (even, odd)
    is_last_in_place = last.number % 2 == (last is odd)
    is_first = last.number == other.number == 0
    if is_last_in_place and last.group_count == last.number:
        if other.group_count == other.number and (is_first or other.number == last.number - 1):
            return False
        if other.group_count == last.number + 1 and (is_first or other.number == last.number - 1):
            return True
    text = "the last commits to a file of the log contradict each other"
    raise DataCorrupted(text, path=str(path))
