"""Keep processes running by a thread of this process, until it is ended.

Owns: the thread and its event loop, the wait for the first start, and the error that ended all.
Must not import: the servers.
"""

import asyncio
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from typing import Final

from dodona_local.errors import LaunchFailed
from dodona_local.folder import DataFolder
from dodona_local.restart import BACK_OFF_S_MAX
from dodona_local.supervisor import Plan, ProcessStatus, Report, Supervisor
from dodona_wire.errors import DodonaError

START_WAIT_S_MAX: Final = 120.0


class SupervisorThread:
    """A supervisor with a thread of its own. `start` it once, and `end` it once."""

    def __init__(
        self,
        plans: Sequence[Plan],
        folder: DataFolder,
        warn: Report,
        back_off_s_max: float = BACK_OFF_S_MAX,
        *,
        fork_modules: Sequence[str] = (),
        on_ready: Callable[[], None] = lambda: None,
        on_end: Callable[[], None] = lambda: None,
    ) -> None:
        """The thread calls `on_ready` once all processes are ready, and `on_end` when all have
        ended."""
        self.failure: Exception | None = None
        """Why the processes could not be kept running."""
        self._on_ready = on_ready
        self._on_end = on_end
        self._started: Future[None] = Future()
        self._stop = asyncio.Event()
        self._supervisor = Supervisor(
            plans, folder, warn, back_off_s_max, fork_modules=fork_modules
        )
        # Named factory: without one, the runner would set the calling thread's event loop.
        self._runner = asyncio.Runner(loop_factory=asyncio.new_event_loop)
        self._loop = self._runner.get_loop()
        self._thread = threading.Thread(target=self._run, name="local cluster", daemon=True)

    def start(self) -> None:
        """Start all processes, and return when they are ready. Raises LaunchFailed if they do not
        get ready: then none is left."""
        self._thread.start()
        try:
            self._started.result(START_WAIT_S_MAX)
        except BaseException:
            self.end()
            raise

    def end(self) -> None:
        """Stop all processes, and return when they have ended."""
        with suppress(RuntimeError):  # the loop is closed: the cluster ended by itself
            self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()

    def check(self) -> None:
        """Raise the error that ended all processes, if they could not be kept running."""
        if self.failure is not None:
            raise self.failure

    def statuses(self) -> dict[str, ProcessStatus]:
        """Return the status of each process, by name."""
        return self._supervisor.statuses()

    def _announce(self) -> None:
        for name, failure in self._supervisor.failures().items():
            self._started.set_exception(LaunchFailed(f"{name} can't be started: {failure}"))
            return
        self._on_ready()
        self._started.set_result(None)

    def _run(self) -> None:
        try:
            with self._runner as runner:
                runner.run(self._supervisor.run(self._announce, self._stop))
        except (DodonaError, OSError) as error:  # raised by `start`, or by the caller of `end`
            self.failure = error
        finally:
            self._on_end()
            if not self._started.done():
                self._started.set_exception(
                    self.failure or LaunchFailed("the cluster was stopped before it was ready")
                )
