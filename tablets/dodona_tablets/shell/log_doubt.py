"""A commit to a log's file whose very last write failed: made or not, it is made again.

Owns: what the two commits that a file remembers say of each other, and how a group is read of
which only the failed one knows. LMDB takes a failed last write back in two of its fields; all
others, with the tree that has the group, stay. A commit that was made looks like that too, after
damage to its number, and somebody may have been told of it: to make it again is right always.

No sum covers what is looked at here. But each commit to a file is one group's, so that its number
is that of the groups there are with it.
"""

import os
import struct
from pathlib import Path
from typing import Final, NamedTuple

import lmdb

from dodona._io.environment import open_environment
from dodona._io.folder import UNFINISHED_NAME
from dodona.errors import DataCorrupted

_COMMIT: Final = struct.Struct("=120xQ16xQ")
"""The page that every other commit writes: how many values there are with it, and its number."""
_TAKEN_BACK: Final = struct.Struct("=QQ")
"""Of those: the last page of the file, and the number."""
_TAKEN_BACK_AT: Final = 136


class _Commit(NamedTuple):
    group_count: int
    number: int


def find_commit_in_doubt(path: Path, page_bytes: int) -> int | None:
    """Its number, if there is one. Raises DataCorrupted if the commits contradict each other."""
    with path.open("rb") as file:
        pages = [os.pread(file.fileno(), _COMMIT.size, at) for at in (0, page_bytes)]
    even, odd = (_Commit(*_COMMIT.unpack(page)) for page in pages)
    last, other = (odd, even) if odd.number > even.number else (even, odd)
    is_last_in_place = last.number % 2 == (last is odd)
    is_first = last.number == other.number == 0
    if is_last_in_place and last.group_count == last.number:
        if other.group_count == other.number and (is_first or other.number == last.number - 1):
            return None
        if other.group_count == last.number + 1 and (is_first or other.number == last.number - 1):
            return last.number + 1
    text = "the last commits to a file of the log contradict each other"
    raise DataCorrupted(text, path=str(path))


def read_last_of(path: Path, page_bytes: int, number: int) -> tuple[bytes, bytes]:
    """Key and value of the group that this commit, which is in doubt, brought. From a copy of the
    file in which it is in force. Raises DataCorrupted."""
    copy = path.with_name(UNFINISHED_NAME)
    try:
        copy.write_bytes(path.read_bytes())
        with copy.open("r+b") as file:
            last_page = os.fstat(file.fileno()).st_size // page_bytes - 1
            fields = _TAKEN_BACK.pack(last_page, number)
            os.pwrite(file.fileno(), fields, page_bytes * (number % 2) + _TAKEN_BACK_AT)
        with (
            open_environment(copy, 1, is_read_only=True) as environment,
            environment.begin() as transaction,
            transaction.cursor() as cursor,
        ):
            cursor.last()
            return cursor.item()
    except lmdb.Error as error:
        text = f"the last commit to a file of the log can't be read: {error}"
        raise DataCorrupted(text, path=str(path)) from error
    finally:
        copy.unlink(missing_ok=True)
