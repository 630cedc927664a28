"""The jobs of the work queue: how many there are, and what must hold once workers stop.

Owns: the numbers of jobs, and the check that each job was done exactly once. Invariant: between one
and two batches of jobs wait while workers run. So no worker finds an empty queue. The worker that
finishes the last job of a batch puts in the next batch.
"""

from collections.abc import Collection, Iterator, Sequence
from typing import Any, Final

from dodona_loadtest.harness.errors import ContenderFailed

BATCH_JOBS: Final = 5_000
TEXT: Final = "a letter to write".ljust(92, ".")
"""With its key of 8 bytes, a job has 100."""


class Jobs:
    """The jobs of one run, as the client process knows them."""

    def __init__(self) -> None:
        self._put_count = 0
        self.finished: list[int] = []
        """The jobs whose end was acknowledged, in this order."""

    def first_batches(self) -> Iterator[range]:
        """Return the jobs that wait when the workers begin."""
        yield self._next_batch()
        yield self._next_batch()

    def finish(self, job: int) -> range | None:
        """Note an acknowledged job. Return the batch to put in now, or None."""
        self.finished.append(job)
        return None if len(self.finished) % BATCH_JOBS else self._next_batch()

    def check(self, done: Collection[int], left: Collection[int]) -> None:
        """Check the two tables, while no worker runs. Raises ContenderFailed unless each job was
        done exactly once, or waits."""
        finished, found = set(self.finished), set(done)
        if len(finished) != len(self.finished):
            raise ContenderFailed(f"{_twice(self.finished)} was done twice")
        if finished != found:
            some = min(finished ^ found)
            raise ContenderFailed(f"job {some} was acknowledged or is in the results, not both")
        if found & set(left):
            raise ContenderFailed(f"job {min(found & set(left))} was done, and still waits")
        if len(found) + len(left) != self._put_count:
            text = f"of {self._put_count} jobs {len(found)} were done, and {len(left)} wait"
            raise ContenderFailed(text)

    def _next_batch(self) -> range:
        first = self._put_count
        self._put_count += BATCH_JOBS
        return range(first, self._put_count)


def rows_of(batch: range) -> list[dict[str, Any]]:
    """Return the rows of these jobs."""
    return [{"id": job, "text": TEXT} for job in batch]


def _twice(finished: Sequence[int]) -> str:
    seen: set[int] = set()
    again = [job for job in finished if job in seen or seen.add(job)]  # type: ignore[func-returns-value]
    return f"job {again[0]}"
