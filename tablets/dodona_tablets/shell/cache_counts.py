"""Count the copies of chunks that a node has in its folder, and what became of them.

Owns: how much of the disk the copies take. A file that was removed takes its space until its last
map ends, so it counts until then. Threads may use it side by side, and the end of a map may come in
any thread.
"""

from collections.abc import Callable
from functools import partial
from threading import RLock
from typing import Final, Literal, NamedTuple

FetchOutcome = Literal["done", "missing", "damaged", "failed"]
OUTCOMES: Final[tuple[FetchOutcome, ...]] = ("done", "missing", "damaged", "failed")


class CacheReport(NamedTuple):
    """What a node reports of its copies of chunks."""

    size_bytes: int
    limit_bytes: int | None
    """None if there is no limit."""
    evicted_bytes: int
    fetches: dict[str, int]
    """By outcome."""


class _Copy:
    """A file with the rows of a chunk."""

    def __init__(self, size_bytes: int) -> None:
        self.size_bytes = size_bytes
        self.is_named = True
        """Whether it is still in the folder."""
        self.maps: set[object] = set()


class CacheCounts:
    """The counts of one cell's copies of chunks since the start."""

    def __init__(self) -> None:
        self._lock = RLock()  # a map may end while this thread has it
        self._copies: dict[int, _Copy] = {}
        self._size_bytes = 0
        self._evicted_bytes = 0
        self._fetches = dict.fromkeys(OUTCOMES, 0)

    @property
    def size_bytes(self) -> int:
        """The bytes on the disk: those of all copies, and of removed ones that are mapped."""
        return self._size_bytes

    def report(self, limit_bytes: int | None) -> CacheReport:
        """Return the counts."""
        with self._lock:
            fetches = {str(outcome): count for outcome, count in self._fetches.items()}
            return CacheReport(self._size_bytes, limit_bytes, self._evicted_bytes, fetches)

    def add(self, number: int, size_bytes: int) -> None:
        """Note a new file. It takes the place of an older one of the same chunk."""
        with self._lock:
            self.remove(number)
            self._copies[number] = _Copy(size_bytes)
            self._size_bytes += size_bytes

    def map(self, number: int) -> Callable[[], None]:
        """Note that the file of a chunk is mapped. Call the result when the map ends. More calls
        change nothing."""
        mapped = object()
        with self._lock:
            copy = self._copies[number]
            copy.maps.add(mapped)
        return partial(self._end_map, copy, mapped)

    def _end_map(self, copy: _Copy, mapped: object) -> None:
        with self._lock:
            if mapped in copy.maps:
                copy.maps.remove(mapped)
                self._forget_if_gone(copy)

    def remove(self, number: int, *, is_evicted: bool = False) -> None:
        """Note that the file of a chunk is no longer in the folder."""
        with self._lock:
            copy = self._copies.pop(number, None)
            if copy is not None:
                copy.is_named = False
                self._evicted_bytes += copy.size_bytes if is_evicted else 0
                self._forget_if_gone(copy)

    def _forget_if_gone(self, copy: _Copy) -> None:
        if not copy.is_named and not copy.maps:
            self._size_bytes -= copy.size_bytes

    def note_fetch(self, outcome: FetchOutcome) -> None:
        """Count an attempt to fetch a chunk."""
        with self._lock:
            self._fetches[outcome] += 1
