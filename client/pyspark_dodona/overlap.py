"""Write while reading: the rows of a task go to the nodes while Spark makes the next ones.

Owns: the one thread of a task that writes, and the limit on the rows that were read ahead. The
thread that Spark started reads, as Spark expects. When `overlapped` returns or raises, no work is
in progress.
"""

import threading
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Final, TypeVar

if TYPE_CHECKING:
    import pyarrow

AHEAD_BYTES_MAX: Final = 32 << 20
"""About the size of all batches that wait to be written. The first part of a write has half as
many."""

Result = TypeVar("Result")


class ReadingFailed(Exception):
    """Reading failed, so rows are missing. The writer must not end as if it had all rows."""


def overlapped(
    batches: "Iterator[pyarrow.RecordBatch]",
    write: "Callable[[Iterator[pyarrow.RecordBatch]], Result]",
    ahead_bytes_max: int = AHEAD_BYTES_MAX,
) -> Result:
    """Return the result of `write(batches)`, which runs in another thread while this thread reads
    on.

    Raises the error of reading, or else the error of writing. In both cases the other thread
    stops."""
    ahead = _Ahead(ahead_bytes_max)
    with ThreadPoolExecutor(1, "dodona-write") as thread:
        writing = thread.submit(_write, write, ahead)
        try:
            for batch in batches:
                if not ahead.put(batch):
                    break  # the writer ended early: its result or error says why
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
    """The batches between the two threads, in their order."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._changed = threading.Condition()
        self._batches: deque[pyarrow.RecordBatch] = deque()
        self._size_bytes = 0
        self._is_whole: bool | None = None
        """None while more batches may come. False if reading failed."""
        self._is_closed = False

    # The thread that reads

    def put(self, batch: "pyarrow.RecordBatch") -> bool:
        """Wait for room, and add a batch. There is always room for one batch. Returns False if the
        writer takes no more."""
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
        """Note that all batches were read, or that reading failed."""
        with self._changed:
            self._is_whole = is_whole
            self._changed.notify()

    # The thread that writes

    def taken(self) -> "Iterator[pyarrow.RecordBatch]":
        """Return each batch as soon as it is there. Raises ReadingFailed."""
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
        """Take no more batches."""
        with self._changed:
            self._is_closed = True
            self._changed.notify()
