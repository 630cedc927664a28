"""LMDB environments: whole when they are opened, and as durable as they look, or refused.

Owns: what LMDB leaves to its users. It makes a file in one write, which the first commit syncs: a
crash before that leaves a file that it does not take for its own. A commit whose last write failed
is taken back in the kernel's memory only, while the disk may have kept it. And of the two heads of
a file it believes the newer one, whatever that says: heads have no checksum.

For servers: the base install has no LMDB.
"""

import errno
import os
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import lmdb
from lmdb.verify import VerifyError, verify

from dodona_server.address_space import address_space_needed
from dodona_server.disk_space import disk_full, is_no_space
from dodona_wire.errors import DataCorrupted, InvalidRequest
from dodona_wire.net.descriptors import is_out_of_descriptors, out_of_descriptors
from dodona_wire.net.folder import FILE_MODE, make_whole

# A page's header, then magic, version, address, size, both trees, the last page, the transaction.
_HEAD: Final = struct.Struct("=16xII120xQ")
_MAGIC_AND_VERSION: Final = (0xBEEFC0DE, 1)
_LMDB_FORMAT: Final = 0
"""That of LMDB 0.9."""
_MAP_BYTES_DEFAULT: Final = 10 << 20
"""Of a file that is only made."""
_DISK_ERRORS: Final = (
    errno.EIO, errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM,
    errno.ENOENT,
)  # fmt: skip


def open_environment(
    path: Path, map_bytes: int | None, *, has_late_heads: bool = False
) -> lmdb.Environment:
    """Open the file, or make it. What can be read in it is durable. The folder is locked: nobody
    else has the file, and one thread at a time is in it.

    Without `map_bytes` it is opened to be read only, as it is. All of it is mapped: LMDB would go
    by a head, which if it is damaged may count too few pages, and to read the rest of a value
    behind those would kill the process.

    With late heads a commit is durable but for its head, which becomes so with the next commit: its
    owner has to find the last ones without (see `log_tail` of the tablets).

    Raises DataCorrupted, DiskFull, InvalidRequest (the disk does not let it be used, or the process
    may not have so much address space), Overloaded (this process may open no more files).
    """
    try:
        make_whole(path, lambda unfinished: _open(unfinished).close())
        _check_heads(path)
        if map_bytes is None:
            return _open(path, create=False, readonly=True, map_size=path.stat().st_size)
        options = {"metasync": False} if has_late_heads else {}
        environment = _open(path, create=False, map_size=map_bytes, **options)
        _make_durable(environment)
    except OSError as error:
        if is_no_space(error):
            raise disk_full(path.parent) from error
        if is_out_of_descriptors(error):
            raise out_of_descriptors(error, path) from error
        raise InvalidRequest(f"{path} can't be opened: {error}", path=str(path)) from error
    except lmdb.Error as error:
        if is_no_space(error):
            raise disk_full(path.parent) from error
        if is_out_of_descriptors(error):
            raise out_of_descriptors(error, path) from error
        is_disks = getattr(error, "code", None) in _DISK_ERRORS
        kind = InvalidRequest if is_disks else DataCorrupted
        raise kind(f"{path} can't be opened: {error}", path=str(path)) from error
    return environment


def _open(path: Path, **options: Any) -> lmdb.Environment:
    """Without LMDB's own lock: shared memory, with survivors of killed processes."""
    size_bytes = options.get("map_size", _MAP_BYTES_DEFAULT)
    with address_space_needed(path, size_bytes, may_ask_for_more=True):
        return lmdb.open(
            str(path),
            subdir=False,
            lock=False,
            lib_version=_LMDB_FORMAT,
            mode=FILE_MODE,
            **options,
        )


def _make_durable(environment: lmdb.Environment) -> None:
    """All that the last process left, so that a restart relies on nothing that may go again."""
    try:
        environment.sync(True)
    except BaseException:
        environment.close()
        raise


def make_environment(path: Path, map_bytes: int, items: Sequence[tuple[bytes, bytes]]) -> None:
    """Make the file, in the place of one that may be there, with these items. Each is brought by a
    commit of its own; they are synced together. Durable, with its name. Raises OSError, lmdb.Error;
    InvalidRequest (the process may not have so much address space)."""

    def fill(unfinished: Path) -> None:
        with _open(unfinished, map_size=map_bytes, sync=False) as environment:
            for key, value in items:
                with environment.begin(write=True) as transaction:
                    transaction.put(key, value, append=True)

    make_whole(path, fill, is_anew=True)


def _check_heads(path: Path) -> None:
    """Commits write the heads by turns. One that is not next to the other is damaged, and whichever
    LMDB takes may be the wrong one. Files of other versions are LMDB's to judge."""
    with path.open("rb") as file:
        page_bytes = os.sysconf("SC_PAGESIZE")
        heads = [file.read(page_bytes)[: _HEAD.size] for _ in range(2)]
    if not heads[0]:
        raise DataCorrupted(f"{path} is empty", path=str(path))  # LMDB would make a new one of it
    if any(len(head) < _HEAD.size for head in heads):
        return
    (*first_kind, first), (*second_kind, second) = map(_HEAD.unpack, heads)
    if not tuple(first_kind) == tuple(second_kind) == _MAGIC_AND_VERSION:
        return
    if abs(first - second) != 1 and (first, second) != (0, 0):
        raise DataCorrupted(
            f"the heads of {path} are of transactions {first} and {second}, not of two in a row",
            path=str(path),
        )


def verify_pages(path: Path) -> None:
    """Look at all pages of a file that nobody has open: structure, order, what is free. Raises
    DataCorrupted."""
    try:
        complaints = verify(str(path))  # type: ignore[no-untyped-call]  # it has no types
    except VerifyError as error:
        complaints = [str(error)]
    if complaints:
        text = f"{path} is damaged in {len(complaints)} places: {complaints[0]}"
        raise DataCorrupted(text, path=str(path))
