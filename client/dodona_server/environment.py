"""LMDB environments: each is whole when it is opened and durable as it looks, or it is refused.

Owns: what LMDB leaves to its users.

- LMDB makes a file in one write, which the first commit syncs. A crash before that leaves a file
  that LMDB does not accept.
- If the last write of a commit fails, LMDB undoes it only in the kernel's memory. The disk may have
  kept it.
- LMDB believes the newer one of the two heads of a file, without a check: heads have no checksum.

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

# A page's header, then magic, version, address, size, both trees, last page, transaction.
_HEAD: Final = struct.Struct("=16xII120xQ")
_MAGIC_AND_VERSION: Final = (0xBEEFC0DE, 1)
_LMDB_FORMAT: Final = 0
"""The file format of LMDB 0.9."""
_MAP_BYTES_DEFAULT: Final = 10 << 20
"""The map of a file that is only created."""
_DISK_ERRORS: Final = (
    errno.EIO, errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM,
    errno.ENOENT,
)  # fmt: skip


def open_environment(
    path: Path, map_bytes: int | None, *, has_late_heads: bool = False
) -> lmdb.Environment:
    """Open the file, or create it. All that can be read in it is durable. The folder is locked, so
    no other process has the file. One thread at a time uses it.

    Without `map_bytes` the file is opened for reads only, and mapped as a whole. LMDB alone
    would use the size in a head. If that head is damaged, it may count too few pages. Then a read
    of a value behind those pages would kill the process.

    With late heads a commit is durable except for its head, which becomes durable with the next
    commit. Its owner must find the last commits without their heads (see `log_tail` of the
    tablets).

    Raises DataCorrupted, DiskFull, Overloaded (this process may open no more files). Raises
    InvalidRequest if the disk does not permit it, or the process lacks address space.
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
    """Open without LMDB's own lock: it is shared memory, and killed processes stay in it."""
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
    """Make durable what the last process left: a restart must not rely on data that may vanish."""
    try:
        environment.sync(True)
    except BaseException:
        environment.close()
        raise


def make_environment(path: Path, map_bytes: int, items: Sequence[tuple[bytes, bytes]]) -> None:
    """Make the file with these items, in the place of one that may exist. Each item has a commit of
    its own, and all are synced together. The file is durable, and so is its name. Raises OSError,
    lmdb.Error; InvalidRequest (the process may not have so much address space)."""

    def fill(unfinished: Path) -> None:
        with _open(unfinished, map_size=map_bytes, sync=False) as environment:
            for key, value in items:
                with environment.begin(write=True) as transaction:
                    transaction.put(key, value, append=True)

    make_whole(path, fill, is_anew=True)


def _check_heads(path: Path) -> None:
    """Check the two heads, which commits write in turn. If their numbers are not consecutive (or
    both 0), one is damaged, and LMDB may take the wrong one. Files of other versions are left to
    LMDB. Raises DataCorrupted."""
    with path.open("rb") as file:
        page_bytes = os.sysconf("SC_PAGESIZE")
        heads = [file.read(page_bytes)[: _HEAD.size] for _ in range(2)]
    if not heads[0]:
        raise DataCorrupted(f"{path} is empty", path=str(path))  # LMDB would begin it anew
    if any(len(head) < _HEAD.size for head in heads):
        return
    (*first_kind, first), (*second_kind, second) = map(_HEAD.unpack, heads)
    if not tuple(first_kind) == tuple(second_kind) == _MAGIC_AND_VERSION:
        return
    if abs(first - second) != 1 and (first, second) != (0, 0):
        raise DataCorrupted(
            f"{path} is damaged: its heads have transactions {first} and {second}, which are not "
            "consecutive",
            path=str(path),
        )


def verify_pages(path: Path) -> None:
    """Check all pages of a file that no process has open: structure, order, and free pages. Raises
    DataCorrupted."""
    try:
        complaints = verify(str(path))  # type: ignore[no-untyped-call]  # it has no types
    except VerifyError as error:
        complaints = [str(error)]
    if complaints:
        text = f"{path} is damaged in {len(complaints)} places: {complaints[0]}"
        raise DataCorrupted(text, path=str(path))
