"""Address space: what files are mapped into, and the error where there is none left.

Owns: what counts as a lack of address space, and the error that says so. A log is mapped by far
more than it holds, since it may grow that long. A limit of the process (`ulimit -v`) that allows
less is a fault of its settings: neither the file nor the disk is damaged.

Reads limits of this process, and nothing else. Must not import LMDB: the base install has none.
"""

import errno
import mmap
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Final

from dodona_wire.errors import InvalidRequest

_MIB_BITS: Final = 20


def is_no_address_space(error: BaseException) -> bool:
    """Whether a file could not be mapped: by Python, or by LMDB, whose errors have a `code`."""
    number = error.errno if isinstance(error, OSError) else getattr(error, "code", None)
    return number == errno.ENOMEM


@contextmanager
def address_space_needed(
    path: Path, size_bytes: int | None = None, *, may_ask_for_more: bool = False
) -> Iterator[None]:
    """Map a file in the block: `size_bytes` of it, by default all. Raises InvalidRequest, which
    names the limit, if the process may not have so much address space. A file that is damaged
    `may_ask_for_more`: then the error is passed on where there is as much as it should take."""
    try:
        yield
    except Exception as error:
        if not is_no_address_space(error):
            raise
        needed = path.stat().st_size if size_bytes is None else size_bytes
        if may_ask_for_more and _is_given(needed):
            raise
        raise _refusal(path, needed) from error


def map_to_read(file: BinaryIO, path: Path) -> mmap.mmap:
    """All of an open file, which is not empty. Raises InvalidRequest, OSError."""
    with address_space_needed(path):
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)


def _is_given(size_bytes: int) -> bool:
    """Whether there is so much. Nothing is counted against memory, since nothing can be written."""
    try:
        mmap.mmap(-1, size_bytes, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, mmap.PROT_READ).close()
    except OSError:
        return False
    return True


def _refusal(path: Path, needed_bytes: int) -> InvalidRequest:
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    needed_mib = -(-needed_bytes >> _MIB_BITS)
    text = f"{path} can't be mapped into memory: it takes {needed_mib} MiB more of address space"
    if limit == resource.RLIM_INFINITY:
        text += ", which the system does not give. Raise vm.max_map_count, or vm.overcommit_memory"
        return InvalidRequest(text, path=str(path), needed_bytes=needed_bytes)
    text += (
        f", and this process may have {limit >> _MIB_BITS} MiB in all. It is address space, not "
        "memory: lift the limit (`ulimit -v unlimited`) and start the process again"
    )
    return InvalidRequest(text, path=str(path), needed_bytes=needed_bytes, limit_bytes=limit)
