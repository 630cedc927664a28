"""Measure the most private memory that a process had during a piece of work.

The kernel keeps a peak of all resident memory, mapped files included. It keeps none of private
memory, so this module looks again and again.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from dodona_loadtest.harness.servers import private_memory_bytes

PERIOD_S: Final = 0.02


class Peak:
    """The peak so far."""

    def __init__(self) -> None:
        self.size_bytes = 0


@contextmanager
def peak_memory(pid: int) -> Iterator[Peak]:
    """Watch a process for the length of a `with` block. The process must not end before."""
    peak, stop = Peak(), threading.Event()

    def look() -> None:
        is_over = False
        while not is_over:
            is_over = stop.wait(PERIOD_S)
            peak.size_bytes = max(peak.size_bytes, private_memory_bytes(pid))

    thread = threading.Thread(target=look, name="peak-memory")
    thread.start()
    try:
        yield peak
    finally:
        stop.set()
        thread.join()
