"""Writing while reading: a task's rows go to the nodes while Spark makes the next ones.

Owns: the one thread of a task that writes, and the bound on what was read ahead of it. The thread
that Spark started reads, as Spark expects. When this returns or raises, nothing is under way.
"""

import threading
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Final, TypeVar

if TYPE_CHECKING:
    import pyarrow

AHEAD_BYTES_MAX: Final = 32 << 20
"""Of batches that wait to be written, about: what is written at first has half as many."""

Result = TypeVar("Result")


class ReadingFailed(Exception):
    """Rows will be missing: whoever writes must not end as if they were all."""


def overlapped(
    batches: "Iterator[pyarrow.RecordBatch]",
    write: "Callable[[Iterator[pyarrow.RecordBatch]], Result]",
    ahead_bytes_max: int = AHEAD_BYTES_MAX,
) -> Result:
    """`write(batches)`, in a thread that gets them while this one reads on. → what it returned.

    Raises what reading raised, else what writing raised; in either case the other one stops.
    """
    ahead = _Ahead(ahead_bytes_max)
    with ThreadPoolExecutor(1, "dodona-write") as thread:
        writing = thread.submit(_write, write, ahead)
        try:
            for batch in batches:
                if not ahead.put(batch):
                    break  # it ended before its time: the result says why
        except BaseException:
            ahead.end(is_whole=False)
            raise
        ahead.end()
        return writing.result()


def _write(write: "Callable[[Iterator[pyarrow.RecordBatch]], Result]", ahead: "_Ahead") -> Result:
    try:
        return write(ahead.taken())
    finally:
        ahead.close()


class _Ahead:
    """Batches between the two threads, in their order."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._changed = threading.Condition()
        self._batches: deque[pyarrow.RecordBatch] = deque()
        self._size_bytes = 0
        self._is_whole: bool | None = None
        """None while there may be more."""
        self._is_closed = False

    # The thread that reads

    def put(self, batch: "pyarrow.RecordBatch") -> bool:
        """Wait for room. One batch has always room. → False if nobody takes any more."""
        with self._changed:
            self._changed.wait_for(
                lambda: self._is_closed or self._size_bytes < self._bytes_max or not self._batches
            )
            if self._is_closed:
                return False
            self._batches.append(batch)
            self._size_bytes += batch.nbytes
            self._changed.notify()
            return True

    def end(self, *, is_whole: bool = True) -> None:
        """These were all, or reading failed."""
        with self._changed:
            self._is_whole = is_whole
            self._changed.notify()

    # The thread that writes

    def taken(self) -> "Iterator[pyarrow.RecordBatch]":
        """Each batch, as soon as it is there. Raises ReadingFailed."""
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._batches or self._is_whole is not None)
                if self._is_whole is False:
                    raise ReadingFailed
                if not self._batches:
                    return
                batch = self._batches.popleft()
                self._size_bytes -= batch.nbytes
                self._changed.notify()
            yield batch

    def close(self) -> None:
        """No more are taken."""
        with self._changed:
            self._is_closed = True
            self._changed.notify()
