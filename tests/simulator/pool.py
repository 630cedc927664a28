"""Worker processes that work off a list of jobs, and outlive whatever one of them meets.

Owns: who has which jobs, and the end of all workers. A job that raises, or takes its process with
it, is answered by `Failed`; those that the process had not begun go to others. Workers are made
anew instead of forked: whatever threads and locks the caller has stay with the caller.
Must not import: anything of the simulator.
"""

import contextlib
import multiprocessing
import signal
import traceback
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from typing import Final, Generic, NamedTuple, TypeVar

JOBS_PER_BATCH: Final = 4
END_SECONDS_MAX: Final = 5.0

Job = TypeVar("Job")
Answer = TypeVar("Answer")

_spawning = multiprocessing.get_context("spawn")


class Failed(NamedTuple):
    """Why there is no answer."""

    text: str


def work_off(
    function: Callable[[Job], Answer], jobs: Iterable[Job], worker_count: int
) -> Generator[tuple[Job, Answer | Failed], None, None]:
    """Each job with its answer, as they come. Ends all workers when it ends, or is closed."""
    assert worker_count > 0
    waiting = deque(jobs)
    workers: list[_Worker[Job, Answer]] = []
    try:
        while waiting or any(worker.jobs for worker in workers):
            while waiting and len(workers) < worker_count:
                workers.append(_Worker(function))
            for worker in workers:
                if waiting and not worker.jobs:
                    worker.take([waiting.popleft() for _ in range(_batch_size(waiting, workers))])
            for worker in _speaking(workers):
                job, answer = worker.hear()
                if worker.is_dead:
                    workers.remove(worker)
                    waiting.extendleft(reversed(worker.jobs))
                    worker.end()
                yield job, answer
    finally:
        for worker in workers:
            worker.end()


def _batch_size(waiting: deque[Job], workers: list["_Worker[Job, Answer]"]) -> int:
    """The last jobs are dealt out one by one, so that nobody has several while others have none."""
    return min(JOBS_PER_BATCH, -(-len(waiting) // (2 * len(workers))))


class _Worker(Generic[Job, Answer]):
    """One process, and the jobs it has not answered yet, in its order."""

    def __init__(self, function: Callable[[Job], Answer]) -> None:
        self.jobs: deque[Job] = deque()
        self.is_dead = False
        self.connection, other_end = _spawning.Pipe()
        arguments = (other_end, function)
        self._process = _spawning.Process(target=_serve, args=arguments, daemon=True)
        with _uninterrupted():
            self._process.start()
        other_end.close()

    def take(self, jobs: list[Job]) -> None:
        self.jobs.extend(jobs)
        with contextlib.suppress(OSError):  # it is dead: that shows when it is heard
            self.connection.send(jobs)

    def hear(self) -> tuple[Job, Answer | Failed]:
        """The next answer, or its death, of which its first job is guilty."""
        try:
            answer = self.connection.recv()
        except (EOFError, OSError):
            self.is_dead = True
            self._process.join(END_SECONDS_MAX)
            answer = Failed(f"its process ended with exit code {self._process.exitcode}")
        return self.jobs.popleft(), answer

    def end(self) -> None:
        self.connection.close()
        self._process.terminate()
        self._process.join(END_SECONDS_MAX)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()
        self._process.close()


@contextlib.contextmanager
def _uninterrupted() -> Iterator[None]:
    """Who is started meanwhile never hears of an interruption from the keyboard: the caller alone
    decides what becomes of the run."""
    resource_tracker.ensure_running()  # a worker's start would start it, and let signals through
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _speaking(workers: list[_Worker[Job, Answer]]) -> list[_Worker[Job, Answer]]:
    busy = {worker.connection: worker for worker in workers if worker.jobs}
    ready = wait(list(busy))
    return [worker for connection, worker in busy.items() if connection in ready]


def _serve(connection: Connection, function: Callable[[Job], Answer]) -> None:
    """A worker's life."""
    with contextlib.suppress(EOFError, OSError):  # nobody is there to listen any more
        while True:
            for job in connection.recv():
                connection.send(_answer_to(job, function))


def _answer_to(job: Job, function: Callable[[Job], Answer]) -> Answer | Failed:
    try:
        return function(job)
    except Exception:  # noqa: BLE001 - whatever it is, the caller reports it
        return Failed(traceback.format_exc().rstrip())
