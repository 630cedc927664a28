"""Keeps a set of server processes running: starts, watches, restarts and stops them.

Owns: the processes. Invariants: at most one process a plan at any time; a process that is not
ready is never reported ready; leaving `Supervisor.run`, whatever the reason, leaves no process
behind. Knows nothing of what the servers are (see `launcher`).
"""

import asyncio
import os
import signal
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Final

from dodona_local.errors import LaunchFailed
from dodona_local.folder import DataFolder
from dodona_local.probe import is_ready
from dodona_local.restart import BACK_OFF_S_MAX, START_FAILURES_MAX, RestartRules

READY_WAIT_S_MAX: Final = 60.0
READY_POLL_S: Final = 0.05
STOP_WAIT_S_MAX: Final = 10.0

Report = Callable[[str], None]
"""Takes one sentence for the person who watches."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What to run: `python -m module arguments`, answering at `url` when ready."""

    name: str
    module: str
    arguments: tuple[str, ...]
    url: str

    def with_option(self, option: str, value: str) -> "Plan":
        """The same with `--option value`, in place of what it said before."""
        words = list(self.arguments)
        if option in words:
            words[words.index(option) + 1] = value
        else:
            words += [option, value]
        return replace(self, arguments=tuple(words))


@dataclass(frozen=True, slots=True)
class ProcessStatus:
    """A process as it is now. `pid` is None while it is down."""

    name: str
    url: str
    pid: int | None
    start_count: int
    is_ready: bool


class Child:
    """One plan, and the process that now carries it out."""

    def __init__(
        self,
        plan: Plan,
        folder: DataFolder,
        lifeline_fd: int,
        report: Report,
        back_off_s_max: float,
    ) -> None:
        self.plan = plan
        self.first_ready = asyncio.Event()
        self._folder = folder
        self._lifeline_fd = lifeline_fd
        self._report = report
        self._rules = RestartRules(back_off_s_max)
        self.status = ProcessStatus(plan.name, plan.url, None, 0, is_ready=False)

    async def run(self) -> None:
        """Keep it running until cancelled. Raises LaunchFailed after too many failed starts."""
        while True:
            process = await self._start()
            try:
                ready_s = await self._live(process)
            finally:
                await _terminate(process)
                self._set_status(pid=None, is_ready=False)
            back_off_s = self._rules.note_end(ready_s)
            if self._rules.has_given_up:
                raise self._given_up(process)
            self._report(f"{self.plan.name} ended ({_cause(process)}): starting it again")
            await asyncio.sleep(back_off_s)

    async def _start(self) -> asyncio.subprocess.Process:
        log_fd = self._folder.open_log(self.plan.name)
        try:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "dodona_local.child", self.plan.module),
                *self.plan.arguments,
                stdin=self._lifeline_fd,
                stdout=log_fd,
                stderr=log_fd,
                pass_fds=(self._folder.lock_fd,),
                start_new_session=True,  # Ctrl-C is for the supervisor, which stops all in order
            )
        finally:
            os.close(log_fd)
        self._set_status(pid=process.pid, is_ready=False)
        return process

    async def _live(self, process: asyncio.subprocess.Process) -> float | None:
        """Wait for the process to end. Returns the seconds that it was ready, None if never."""
        if not await self._wait_until_ready(process):
            return None
        self._set_status(pid=process.pid, is_ready=True)
        self.first_ready.set()
        loop = asyncio.get_running_loop()
        began = loop.time()
        await process.wait()
        return loop.time() - began

    async def _wait_until_ready(self, process: asyncio.subprocess.Process) -> bool:
        with suppress(TimeoutError):
            async with asyncio.timeout(READY_WAIT_S_MAX):
                while process.returncode is None:
                    if await is_ready(self.plan.url):
                        return True
                    await asyncio.sleep(READY_POLL_S)
        return False

    def _set_status(self, *, pid: int | None, is_ready: bool) -> None:
        is_new = pid is not None and pid != self.status.pid
        count = self.status.start_count + is_new
        self.status = ProcessStatus(self.plan.name, self.plan.url, pid, count, is_ready)

    def _given_up(self, process: asyncio.subprocess.Process) -> LaunchFailed:
        name = self.plan.name
        return LaunchFailed(
            f"{name} failed to start {START_FAILURES_MAX} times in a row ({_cause(process)}); "
            f"the end of {self._folder.log_path(name)} says:\n{self._folder.log_tail(name)}"
        )


class Supervisor:
    """Runs several children together: if one gives up, all stop."""

    def __init__(
        self,
        plans: Sequence[Plan],
        folder: DataFolder,
        report: Report,
        back_off_s_max: float = BACK_OFF_S_MAX,
    ) -> None:
        assert plans
        # Children inherit the reading end; the writing end stays here alone (see `child`).
        self._lifeline_fds = os.pipe()
        self._children = [
            Child(plan, folder, self._lifeline_fds[0], report, back_off_s_max) for plan in plans
        ]

    def statuses(self) -> dict[str, ProcessStatus]:
        return {child.plan.name: child.status for child in self._children}

    async def run(self, on_ready: Callable[[], None], stop: asyncio.Event) -> None:
        """Start all, call `on_ready` once all are, keep them up until `stop` is set, stop all.

        Raises LaunchFailed when one of them cannot be started.
        """
        lives = [asyncio.create_task(child.run()) for child in self._children]
        stopping = asyncio.create_task(_wait_for(stop))
        tasks = [*lives, stopping, asyncio.create_task(self._announce(on_ready))]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            failures = await _cancel_all(tasks)
            for end in self._lifeline_fds:
                os.close(end)
        for failure in failures:
            raise failure

    async def _announce(self, on_ready: Callable[[], None]) -> None:
        for child in self._children:
            await child.first_ready.wait()
        on_ready()
        await asyncio.Future()  # for ever: were it to end, the supervisor would


async def _wait_for(event: asyncio.Event) -> None:
    await event.wait()


async def _cancel_all(tasks: Sequence[asyncio.Task[None]]) -> list[BaseException]:
    for task in tasks:
        task.cancel()
    ends = await asyncio.gather(*tasks, return_exceptions=True)
    cancelled = asyncio.CancelledError
    return [end for end in ends if end is not None and not isinstance(end, cancelled)]


async def _terminate(process: asyncio.subprocess.Process) -> None:
    """Ask it to stop, wait, then insist. Does nothing to a process that has ended."""
    if process.returncode is not None:
        return
    with suppress(ProcessLookupError):
        process.terminate()
        with suppress(TimeoutError):
            async with asyncio.timeout(STOP_WAIT_S_MAX):
                await process.wait()
                return
        process.kill()
    await process.wait()


def _cause(process: asyncio.subprocess.Process) -> str:
    status = process.returncode
    if status is None or status >= 0:
        return f"exit status {status}"
    return f"signal {signal.Signals(-status).name}"
