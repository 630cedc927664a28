"""Keep a set of server processes running: start, watch, restart and stop them.

Owns: the processes.
Invariants: there is at most one process for each plan. A process that is not ready is never
reported ready. A process that can't be started never ends the others. There is one exception: if it
is essential and has never been ready, nothing works without it. After `Supervisor.run`, however it
ends, no process is left. Knows no server (see `launcher`).
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
from dodona_local.fork_server import LOST, Fork, ForkServer
from dodona_local.probe import is_ready
from dodona_local.reasons import SLOW_AFTER_S, TELL_AFTER_S, reason_of
from dodona_local.restart import BACK_OFF_S_MAX, START_AGAIN_S, START_FAILURES_MAX, RestartRules
from dodona_local.uncancelled import uncancelled
from dodona_wire.net.forks import close_kept, keep_from_forks

READY_WAIT_S_MAX: Final = 60.0
READY_POLL_S: Final = 0.05
STOP_WAIT_S_MAX: Final = 10.0

Report = Callable[[str], None]
"""Takes one sentence for the user."""
Process = asyncio.subprocess.Process | Fork


@dataclass(frozen=True, slots=True)
class Plan:
    """A process to run: `python -m module arguments`, which answers at `url` when it is ready."""

    name: str
    module: str
    arguments: tuple[str, ...]
    url: str
    is_essential: bool = False
    """Whether the others are of no use without this process."""
    ends_last: bool = False
    """Whether the others need this process until they have ended."""
    is_killed: bool = False
    """Whether a stop kills this process, which loses nothing. Otherwise it asks the process to
    stop."""
    ready_path: str = "/readyz"
    """The page that answers 200 when the process is ready."""

    def with_option(self, option: str, value: str) -> "Plan":
        """Return the plan with `--option value`, in place of any earlier value."""
        words = list(self.arguments)
        if option in words:
            words[words.index(option) + 1] = value
        else:
            words += [option, value]
        return replace(self, arguments=tuple(words))


@dataclass(frozen=True, slots=True)
class ProcessStatus:
    """The status of a process. `pid` is None while it is down."""

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
        start_again_s: float,
        fork_server: ForkServer | None = None,
    ) -> None:
        self.plan = plan
        self._fork_server = fork_server
        self.first_ready = asyncio.Event()
        self.settled = asyncio.Event()
        """Set when the process has been ready, or can't be started."""
        self.failure: str | None = None
        """Why the process can't be started; None after it has been ready."""
        self._folder = folder
        self._lifeline_fd = lifeline_fd
        self._report = report
        self._rules = RestartRules(back_off_s_max, start_again_s)
        self.status = ProcessStatus(plan.name, plan.url, None, 0, is_ready=False)

    async def run(self) -> None:
        """Keep the process running until cancelled, at a slow pace after too many failed starts.
        Raises LaunchFailed after these if the process is essential and has never been ready."""
        while True:
            process = await self._start()
            try:
                ready_s = await self._live(process)
            finally:
                await uncancelled(_terminate(process, is_killed=self.plan.is_killed))
                self._set_status(pid=None, is_ready=False)
            back_off_s = self._rules.note_end(ready_s)
            if self._rules.is_failing:
                if self.plan.is_essential and not self.first_ready.is_set():
                    raise self._given_up(process)
                self._tell_failure(process, back_off_s)
                self.settled.set()
            else:
                self._report(f"{self.plan.name} ended ({_cause(process)}): starting it again")
            await asyncio.sleep(back_off_s)

    async def _start(self) -> Process:
        plan = self.plan
        process: Process | None = None
        log_fd = self._folder.open_log(plan.name)
        try:
            if self._fork_server is not None:
                process = await self._fork_server.fork(plan.module, plan.arguments, log_fd)
            process = process or await self._spawn(log_fd)
        finally:
            os.close(log_fd)
        self._set_status(pid=process.pid, is_ready=False)
        return process

    async def _spawn(self, log_fd: int) -> Process:
        return await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "dodona_local.child", self.plan.module),
            *self.plan.arguments,
            stdin=self._lifeline_fd,
            stdout=log_fd,
            stderr=log_fd,
            pass_fds=(self._folder.lock_fd,),
            # Ctrl-C must reach only the supervisor, which stops all in order.
            start_new_session=True,
        )

    async def _live(self, process: Process) -> float | None:
        """Wait for the process to end. Return the seconds that it was ready, None if never."""
        if not await self._wait_until_ready(process):
            return None
        self._set_status(pid=process.pid, is_ready=True)
        if self.failure is not None:
            self._report(f"{self.plan.name} is ready again")
            self.failure = None
        self.first_ready.set()
        self.settled.set()
        loop = asyncio.get_running_loop()
        began = loop.time()
        await process.wait()
        return loop.time() - began

    async def _wait_until_ready(self, process: Process) -> bool:
        telling = asyncio.create_task(self._tell_reasons())
        try:
            async with asyncio.timeout(READY_WAIT_S_MAX):
                while process.returncode is None:
                    if await is_ready(self.plan.url, self.plan.ready_path):
                        return True
                    await asyncio.sleep(READY_POLL_S)
        except TimeoutError:
            name = self.plan.name
            reason = await reason_of(name, self.plan.url, self._folder)
            self._report(f"{name} was not ready within {READY_WAIT_S_MAX:g} s: {reason.text}")
        finally:
            telling.cancel()
        return False

    async def _tell_reasons(self) -> None:
        """Report why the process is not ready, for each new reason."""
        name, told = self.plan.name, ""
        slow_at = asyncio.get_running_loop().time() + SLOW_AFTER_S
        while True:
            await asyncio.sleep(TELL_AFTER_S)
            text, is_error = await reason_of(name, self.plan.url, self._folder)
            is_due = is_error or asyncio.get_running_loop().time() >= slow_at
            if is_due and text != told:
                told = text
                path = self._folder.log_path(name)
                self._report(f"{name} is not ready yet: {text} (see {path})")

    def _set_status(self, *, pid: int | None, is_ready: bool) -> None:
        is_new = pid is not None and pid != self.status.pid
        count = self.status.start_count + is_new
        self.status = ProcessStatus(self.plan.name, self.plan.url, pid, count, is_ready)

    def _tell_failure(self, process: Process, again_s: float) -> None:
        """Report a failure, once for each reason."""
        name = self.plan.name
        words = self._folder.log_tail(name, 1).strip() or _cause(process)
        if self._folder.is_disk_full():
            words = f"the disk of {self._folder.path} is full; its last line: {words}"
        if words != self.failure:
            self.failure = words
            self._report(
                f"{name} failed to start {START_FAILURES_MAX} times in a row ({_cause(process)}): "
                f"{words}; starting it again every {again_s:g} s, the others continue; see "
                f"{self._folder.log_path(name)}"
            )

    def _given_up(self, process: Process) -> LaunchFailed:
        name = self.plan.name
        return LaunchFailed(
            f"{name} failed to start {START_FAILURES_MAX} times in a row ({_cause(process)}); "
            f"the end of {self._folder.log_path(name)} says:\n{self._folder.log_tail(name)}"
        )


class Supervisor:
    """Runs several children together. If an essential one can't be started at first, all stop."""

    def __init__(
        self,
        plans: Sequence[Plan],
        folder: DataFolder,
        report: Report,
        back_off_s_max: float = BACK_OFF_S_MAX,
        start_again_s: float = START_AGAIN_S,
        *,
        fork_modules: Sequence[str] = (),
    ) -> None:
        """Make a supervisor. A process imports `fork_modules` once and is forked for each start.
        Without modules there is no such process."""
        assert plans
        # Children inherit the reading end, and the writing end stays here alone (see `child`).
        # Another copy in a fork would keep the servers of a killed supervisor running.
        self._lifeline_fds = os.pipe()
        for end in self._lifeline_fds:
            keep_from_forks(end)
        lifeline_fd = self._lifeline_fds[0]
        self._fork_server = ForkServer(folder, lifeline_fd, fork_modules) if fork_modules else None
        how = (folder, lifeline_fd, report, back_off_s_max, start_again_s, self._fork_server)
        self._children = [Child(plan, *how) for plan in plans]

    def statuses(self) -> dict[str, ProcessStatus]:
        return {child.plan.name: child.status for child in self._children}

    def failures(self) -> dict[str, str]:
        """Return the processes that can't be started now, each with the reason."""
        found = {it.plan.name: it.failure for it in self._children}
        return {name: failure for name, failure in found.items() if failure is not None}

    async def run(self, on_ready: Callable[[], None], stop: asyncio.Event) -> None:
        """Start all processes, and call `on_ready` once each is ready or can't be started (see
        `failures`). Keep them running until `stop` is set, then stop all.

        Raises LaunchFailed if an essential process can't be started.
        """
        forks = self._fork_server
        try:
            if forks is not None:
                await forks.open()
            failures = await self._live(on_ready, stop)
        finally:
            if forks is not None:
                await forks.close()
            for end in self._lifeline_fds:
                close_kept(end)
        for failure in failures:
            raise failure

    async def _live(self, on_ready: Callable[[], None], stop: asyncio.Event) -> list[BaseException]:
        """Run the children. Return the errors that ended them, once all processes have ended."""
        last = [asyncio.create_task(it.run()) for it in self._children if it.plan.ends_last]
        tasks = [asyncio.create_task(it.run()) for it in self._children if not it.plan.ends_last]
        tasks += [
            asyncio.create_task(_wait_for(stop)),
            asyncio.create_task(self._announce(on_ready)),
        ]
        if self._fork_server is not None:
            last.append(asyncio.create_task(self._fork_server.keep()))
        try:
            await asyncio.wait([*tasks, *last], return_when=asyncio.FIRST_COMPLETED)
        finally:
            failures = await _cancel_all(tasks)
            failures += await _cancel_all(last)
        return failures

    async def _announce(self, on_ready: Callable[[], None]) -> None:
        for child in self._children:
            await child.settled.wait()
        on_ready()
        await asyncio.Future()  # for ever: if this ended, the supervisor would end


async def _wait_for(event: asyncio.Event) -> None:
    await event.wait()


async def _cancel_all(tasks: Sequence[asyncio.Task[None]]) -> list[BaseException]:
    for task in tasks:
        task.cancel()
    ends = await asyncio.gather(*tasks, return_exceptions=True)
    cancelled = asyncio.CancelledError
    return [end for end in ends if end is not None and not isinstance(end, cancelled)]


async def _terminate(process: Process, *, is_killed: bool) -> None:
    """Ask the process to stop, wait `STOP_WAIT_S_MAX` seconds, then kill it. With `is_killed`, kill
    it immediately. Does nothing if it has ended."""
    if process.returncode is not None:
        return
    with suppress(ProcessLookupError):
        if not is_killed:
            process.terminate()
            with suppress(TimeoutError):
                async with asyncio.timeout(STOP_WAIT_S_MAX):
                    await process.wait()
                    return
        process.kill()
    await process.wait()


def _cause(process: Process) -> str:
    status = process.returncode
    if status == LOST:
        return "exit status unknown"
    if status is None or status >= 0:
        return f"exit status {status}"
    return f"signal {signal.Signals(-status).name}"
