"""Address space: the maps of files, and the error if there is too little address space.

Owns: what counts as a lack of address space, and the error that says so. The map of a log is much
larger than its content, because the log may grow that long. A limit of the process (`ulimit -v`)
may allow less. That is a fault of the settings: neither the file nor the disk is damaged.

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
    """Return whether a file could not be mapped. Errors of LMDB have a `code`, others an errno."""
    number = error.errno if isinstance(error, OSError) else getattr(error, "code", None)
    return number == errno.ENOMEM


@contextmanager
def address_space_needed(
    path: Path, size_bytes: int | None = None, *, may_ask_for_more: bool = False
) -> Iterator[None]:
    """Map a file in the block: `size_bytes`, by default all. Raises InvalidRequest, which names the
    limit, if the process may not have so much address space. With `may_ask_for_more` a damaged file
    may ask for more: if `size_bytes` are available, the error is passed on."""
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
    """Map all of an open file, which is not empty. Raises InvalidRequest, OSError."""
    with address_space_needed(path):
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)


def _is_given(size_bytes: int) -> bool:
    """Return whether there is so much. The test takes no memory: it maps without write access."""
    try:
        mmap.mmap(-1, size_bytes, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, mmap.PROT_READ).close()
    except OSError:
        return False
    return True


def _refusal(path: Path, needed_bytes: int) -> InvalidRequest:
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    needed_mib = -(-needed_bytes >> _MIB_BITS)
    text = f"{path} can't be mapped into memory: it needs {needed_mib} MiB more of address space"
    if limit == resource.RLIM_INFINITY:
        text += ", which the system refuses. Raise vm.max_map_count, or vm.overcommit_memory"
        return InvalidRequest(text, path=str(path), needed_bytes=needed_bytes)
    text += (
        f", and the limit of this process is {limit >> _MIB_BITS} MiB. It is a limit of address "
        "space, not of memory: lift it (`ulimit -v unlimited`) and start the process again"
    )
    return InvalidRequest(text, path=str(path), needed_bytes=needed_bytes, limit_bytes=limit)
