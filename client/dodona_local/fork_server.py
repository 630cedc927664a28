"""The supervisor's end of the fork server: a process that has imported the servers, and forks them.

Owns: that process, how it is told what a fork is to become, and how each fork's end is known.
Imports take nearly all of the time of a start, and here they are made once for all servers: also
for a master that was killed, without which nobody gets a timestamp. Invariants: a fork runs nothing
before its supervisor knows it; the end of the fork server ends no fork; leaving `close` leaves no
fork server behind. The other end is in `child`. Must not import the servers.
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
"""After one ended; it doubles while they end."""
FORK_WAIT_S_MAX: Final = 60.0
"""It imports first. Who waits longer is started without it."""
STATUS_WAIT_S_MAX: Final = 1.0
"""After the end of a fork, for the word of its status."""
LOST: Final = 255
"""The status of a fork whose fork server was not there to tell it."""
BYTES_MAX: Final = 1 << 16
GO: Final = b"g"


class Fork:
    """A process that the fork server made: what is used of `asyncio.subprocess.Process`."""

    def __init__(self, pid: int, pidfd: int, ended: "asyncio.Future[int]") -> None:
        """`ended` gets the status, if the fork server is there to tell it."""
        self.pid = pid
        self._pidfd = pidfd
        self._ended = ended
        keep_from_forks(pidfd)
        asyncio.get_running_loop().add_reader(pidfd, self._see_end)
        ended.add_done_callback(self._close)

    @property
    def returncode(self) -> int | None:
        """None while it runs, minus a signal's number, or `LOST`."""
        return self._ended.result() if self._ended.done() else None

    async def wait(self) -> int:
        return await asyncio.shield(self._ended)

    def terminate(self) -> None:
        """Raises ProcessLookupError if it has ended."""
        self._signal(signal.SIGTERM)

    def kill(self) -> None:
        """Raises ProcessLookupError if it has ended."""
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
    """Keeps one such process, and has it fork."""

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
        """Have it run again whenever it ends, until cancelled."""
        pause_s = AGAIN_S_MIN
        while True:
            if self._process is not None:
                await self._process.wait()
                self._let_go()
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, AGAIN_S_MAX)
            await self.open()

    async def open(self) -> None:
        """Start it, if the machine lets it. What is asked meanwhile waits until it has imported
        all."""
        with suppress(OSError):  # those who are started without it say what is wrong
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
        """End it. For when all forks have ended."""
        self._let_go()
        process, self._process = self._process, None
        if process is not None and process.returncode is None:
            with suppress(ProcessLookupError):
                process.kill()
            # Else the loop may close before it hears of the end.
            await uncancelled(_wait_for(process))

    async def fork(self, module: str, arguments: Sequence[str], log_fd: int) -> Fork | None:
        """Have it run `python -m module arguments` with this log. → None if it can't: it has not
        imported that, or is not there, or has no answer."""
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
            here.send(GO)  # if this is never sent, the fork ends
        except (OSError, EOFError, TimeoutError):
            self._ends.pop(number, None)
            return None
        finally:
            here.close()
            there.close()
        return made

    def _hear(self) -> None:
        """What the fork server says: which fork has ended, and how."""
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
        """Of the link, and so of the word of ends."""
        link, self._link = self._link, None
        if link is None:
            return
        asyncio.get_running_loop().remove_reader(link.fileno())
        close_kept(link.detach())
        self._ends.clear()


async def _introduced(link: socket.socket) -> tuple[int, int]:
    """A fork's number, and a descriptor of it. Raises EOFError if there is none, OSError."""
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
