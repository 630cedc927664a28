"""What making a backup and restoring one have in common: many streams at once, and their progress.

Owns: how many streams there are, that the first error ends them all, and how a table is divided
among them: by ranges of keys, since tablets may move meanwhile. Each stream has one page or two of
rows in memory.
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
    """Another stream failed, or somebody interrupted: this one's end means nothing."""


class Stop:
    """Tells streams to end."""

    def __init__(self) -> None:
        self._event = Event()

    def set(self) -> None:
        self._event.set()

    def check(self) -> None:
        """Between two pages. Raises Stopped."""
        if self._event.is_set():
            raise Stopped

    def wait(self, seconds: float) -> None:
        """Sleep, but not beyond the end. Raises Stopped."""
        self._event.wait(seconds)
        self.check()


def run_all(do: Callable[[Job, Stop], Result], jobs: Iterable[Job]) -> list[Result]:
    """All results, in the jobs' order. Raises the first error, once every stream has ended."""
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
        except BaseException:  # the caller's interrupt: it is raised once they have ended
            stop.set()
            raise
    errors = [error for it in futures if (error := it.exception()) is not None]
    for error in errors:
        if not isinstance(error, Stopped):
            raise error
    return [it.result() for it in futures]


def ranges_of(pivot_keys: Sequence[tuple[Any, ...]]) -> list[tuple[Bound, Bound]]:
    """The ranges of keys that begin at these pivot keys, as reads take them."""
    lowers: list[Bound] = [pivot or None for pivot in pivot_keys]
    return list(zip(lowers, [*lowers[1:], None], strict=True))
