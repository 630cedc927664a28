"""Run many streams at the same time, for backups and restores, and report their progress.

Owns: the number of streams, that the first error ends all streams, and how a table is divided among
them. It is divided by ranges of keys, because tablets may move meanwhile. Each stream has at most
two batches of rows in memory.
"""

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from threading import Event
from typing import Any, Final, TypeVar

STREAMS: Final = 4

Job = TypeVar("Job")
Result = TypeVar("Result")
Bound = tuple[Any, ...] | None


class Stopped(Exception):
    """Another stream failed, or the caller was interrupted. The end of this stream has no other
    cause."""


class Stop:
    """A flag that tells streams to end."""

    def __init__(self) -> None:
        self._event = Event()

    def set(self) -> None:
        self._event.set()

    def check(self) -> None:
        """Check the flag, between two batches. Raises Stopped."""
        if self._event.is_set():
            raise Stopped

    def wait(self, seconds: float) -> None:
        """Sleep, but wake when the flag is set. Raises Stopped."""
        self._event.wait(seconds)
        self.check()


def run_all(do: Callable[[Job, Stop], Result], jobs: Iterable[Job]) -> list[Result]:
    """Run all jobs, and return their results in order. Raises the first error, once every stream
    has ended."""
    stop = Stop()

    def run(job: Job) -> Result:
        stop.check()
        try:
            return do(job, stop)
        except BaseException:
            stop.set()
            raise

    with ThreadPoolExecutor(STREAMS, "dodona-backup") as pool:
        futures = [pool.submit(run, job) for job in jobs]
        try:
            wait(futures)
        except BaseException:  # the caller's interrupt is raised once all streams have ended
            stop.set()
            raise
    errors = [error for it in futures if (error := it.exception()) is not None]
    for error in errors:
        if not isinstance(error, Stopped):
            raise error
    return [it.result() for it in futures]


def ranges_of(pivot_keys: Sequence[tuple[Any, ...]]) -> list[tuple[Bound, Bound]]:
    """Return the ranges of keys that begin at these pivot keys, in the form that reads take."""
    lowers: list[Bound] = [pivot or None for pivot in pivot_keys]
    return list(zip(lowers, [*lowers[1:], None], strict=True))
