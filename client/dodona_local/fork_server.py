"""Control the fork server: a process that has imported the servers, and forks them.

Owns: that process, how it learns what a fork must run, and how the end of each fork is known.
Imports take nearly the whole time of a start. The fork server imports once for all servers, also
for a master that restarts after a crash. Without a master, no client gets a timestamp.
Invariants: a fork runs nothing before its supervisor knows it. The end of the fork server ends no
fork. After `close` no fork server is left. The other end is in `child`.
Must not import: the servers.
"""

import asyncio
import json
import os
import signal
import socket
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from dodona_local.folder import DataFolder
from dodona_local.uncancelled import uncancelled
from dodona_wire.net.forks import close_kept, keep_from_forks

NAME: Final = "fork-server"
AGAIN_S_MIN: Final = 2.0
AGAIN_S_MAX: Final = 60.0
"""The pause in seconds before a fork server starts again. It doubles while fork servers end."""
FORK_WAIT_S_MAX: Final = 60.0
"""The longest wait for a fork in seconds: the fork server imports first. After that the server
starts without it."""
STATUS_WAIT_S_MAX: Final = 1.0
"""The wait after the end of a fork for its exit status, in seconds."""
LOST: Final = 255
"""The status of a fork whose fork server ended before it reported the status."""
BYTES_MAX: Final = 1 << 16
GO: Final = b"g"


class Fork:
    """A process that the fork server made. It has the used part of `asyncio.subprocess.Process`."""

    def __init__(self, pid: int, pidfd: int, ended: "asyncio.Future[int]") -> None:
        """Watch a fork. `ended` gets its status, if the fork server reports it."""
        self.pid = pid
        self._pidfd = pidfd
        self._ended = ended
        keep_from_forks(pidfd)
        asyncio.get_running_loop().add_reader(pidfd, self._see_end)
        ended.add_done_callback(self._close)

    @property
    def returncode(self) -> int | None:
        """Return the exit status: None while the process runs, minus a signal's number, or
        `LOST`."""
        return self._ended.result() if self._ended.done() else None

    async def wait(self) -> int:
        return await asyncio.shield(self._ended)

    def terminate(self) -> None:
        """Send SIGTERM. Raises ProcessLookupError if the process has ended."""
        self._signal(signal.SIGTERM)

    def kill(self) -> None:
        """Send SIGKILL. Raises ProcessLookupError if the process has ended."""
        self._signal(signal.SIGKILL)

    def _signal(self, number: signal.Signals) -> None:
        if self._ended.done():
            raise ProcessLookupError
        signal.pidfd_send_signal(self._pidfd, number)

    def _see_end(self) -> None:
        loop = asyncio.get_running_loop()
        loop.remove_reader(self._pidfd)
        loop.call_later(STATUS_WAIT_S_MAX, self._lose)

    def _lose(self) -> None:
        if not self._ended.done():
            self._ended.set_result(LOST)

    def _close(self, _: object) -> None:
        asyncio.get_running_loop().remove_reader(self._pidfd)
        close_kept(self._pidfd)


class ForkServer:
    """Keeps one fork server running, and asks it for forks."""

    def __init__(self, folder: DataFolder, lifeline_fd: int, modules: Sequence[str]) -> None:
        self._folder = folder
        self._lifeline_fd = lifeline_fd
        self._modules = tuple(modules)
        self._packages = {module.partition(".")[0] for module in modules}
        self._process: asyncio.subprocess.Process | None = None
        self._link: socket.socket | None = None
        self._count = 0
        self._ends: dict[int, asyncio.Future[int]] = {}

    async def keep(self) -> None:
        """Start the fork server again when it ends, until cancelled."""
        pause_s = AGAIN_S_MIN
        while True:
            if self._process is not None:
                await self._process.wait()
                self._let_go()
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, AGAIN_S_MAX)
            await self.open()

    async def open(self) -> None:
        """Start the fork server, if the system allows it. Requests wait until it has imported all
        modules."""
        with suppress(OSError):  # servers that start without it report the error
            await self._open()

    async def _open(self) -> None:
        here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        log_fd = -1
        try:
            log_fd = self._folder.open_log(NAME)
            self._process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "dodona_local.child", "--fork", str(there.fileno())),
                *self._modules,
                stdin=self._lifeline_fd,
                stdout=log_fd,
                stderr=log_fd,
                pass_fds=(self._folder.lock_fd, there.fileno()),
                start_new_session=True,
            )
        except BaseException:
            here.close()
            raise
        finally:
            there.close()
            if log_fd >= 0:
                os.close(log_fd)
        here.setblocking(False)
        keep_from_forks(here.fileno())
        self._link = here
        asyncio.get_running_loop().add_reader(here.fileno(), self._hear)

    async def close(self) -> None:
        """End the fork server. Call this when all forks have ended."""
        process, self._process = self._process, None
        is_running = process is not None and process.returncode is None
        if process is not None and is_running:
            # Before the link closes: without it the fork server ends. `kill` would take the exit
            # status of an ended process, and the loop would complain that the process is unknown.
            with suppress(ProcessLookupError):
                process.kill()
        self._let_go()
        if process is not None and is_running:
            # Otherwise the loop may close before it learns of the end.
            await uncancelled(_wait_for(process))

    async def fork(self, module: str, arguments: Sequence[str], log_fd: int) -> Fork | None:
        """Make a fork that runs `python -m module arguments` with this log. Return None if that
        fails: the fork server lacks the module, does not run, or does not answer."""
        link = self._link
        if link is None or module not in self._packages:
            return None
        self._count += 1
        number = self._count
        here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        here.setblocking(False)
        ended = self._ends[number] = asyncio.get_running_loop().create_future()
        try:
            what = json.dumps([number, [module, *arguments]]).encode()
            socket.send_fds(link, [what], [log_fd, there.fileno()])
            there.close()
            async with asyncio.timeout(FORK_WAIT_S_MAX):
                pid, pidfd = await _introduced(here)
            made = Fork(pid, pidfd, ended)
            here.send(GO)  # without this message the fork ends
        except (OSError, EOFError, TimeoutError):
            self._ends.pop(number, None)
            return None
        finally:
            here.close()
            there.close()
        return made

    def _hear(self) -> None:
        """Read a message of the fork server: a fork has ended, with this status."""
        assert self._link is not None
        try:
            said = self._link.recv(BYTES_MAX)
        except BlockingIOError:
            return
        except OSError:
            said = b""
        if not said:
            self._let_go()
            return
        number, status = json.loads(said)
        ended = self._ends.pop(number, None)
        if ended is not None and not ended.done():
            ended.set_result(os.waitstatus_to_exitcode(status))

    def _let_go(self) -> None:
        """Close the link. The fork server's reports of ends are lost."""
        link, self._link = self._link, None
        if link is None:
            return
        asyncio.get_running_loop().remove_reader(link.fileno())
        close_kept(link.detach())
        self._ends.clear()


async def _introduced(link: socket.socket) -> tuple[int, int]:
    """Return a fork's process id and its descriptor. Raises EOFError if there is no fork,
    OSError."""
    loop = asyncio.get_running_loop()
    while True:
        try:
            said, fds, _, _ = socket.recv_fds(link, BYTES_MAX, 1, socket.MSG_CMSG_CLOEXEC)
        except BlockingIOError:
            told = asyncio.Event()
            loop.add_reader(link.fileno(), told.set)
            try:
                await told.wait()
            finally:
                loop.remove_reader(link.fileno())
            continue
        if not said:
            raise EOFError
        return int(said), fds[0]


async def _wait_for(process: asyncio.subprocess.Process) -> None:
    await process.wait()
