"""Map files into memory without a descriptor that stays open.

Owns: `map_file`. A process has few descriptors, and a cell may have thousands of chunks. Python's
`mmap` keeps a copy of the descriptor for as long as the map exists. Arrow's `memory_map` has the
kernel read up to 8 MiB of each file immediately, which a start with many chunks can't afford. So
this module calls the system itself.

Invariant: a map lives as long as anything that refers to its bytes: the buffer, slices, arrays and
views. A reader sees the file, also after its removal.
"""

import ctypes
import mmap
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from dodona_server.address_space import address_space_needed

_LIBC: Final = ctypes.CDLL(None, use_errno=True)
_LIBC.mmap.restype = ctypes.c_void_p
_LIBC.mmap.argtypes = (
    *(ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int),
    ctypes.c_long,
)
_LIBC.munmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t)
Ended = Callable[[], object]
_FAILED: Final = ctypes.c_void_p(-1).value


class _Map:
    """A map that Arrow's buffers refer to. It ends with the last of them."""

    def __init__(self, address: int, size_bytes: int, ended: Ended | None) -> None:
        self._address = address
        self._size_bytes = size_bytes
        self._ended = ended

    def __del__(self, unmap: Any = _LIBC.munmap) -> None:
        unmap(self._address, self._size_bytes)
        if self._ended is not None:
            self._ended()


def map_file(path: Path, ended: Ended | None = None) -> memoryview:
    """Return all bytes of a file, for reading. `ended` is called when the map ends, in any thread.
    Raises InvalidRequest if this process may not have so much address space, and OSError."""
    with path.open("rb") as file:
        size_bytes = os.fstat(file.fileno()).st_size
        if size_bytes == 0:  # no bytes, no map
            if ended is not None:
                ended()
            return memoryview(b"")
        with address_space_needed(path):
            address = _LIBC.mmap(
                None, size_bytes, mmap.PROT_READ, mmap.MAP_SHARED, file.fileno(), 0
            )
            if address == _FAILED:
                number = ctypes.get_errno()
                raise OSError(number, os.strerror(number), str(path))
    buffer = pa.foreign_buffer(address, size_bytes, _Map(address, size_bytes, ended))
    return memoryview(buffer).cast("B")  # in Arrow's own views, bytes have signs
