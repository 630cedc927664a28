"""A process that has imported the servers already and waits to become one: a start without imports.

Owns: that process, and how it is told what to become. Imports take most of the time of a start, and
while the master is away nobody gets a timestamp. Invariants: at most one spare at a time; leaving
`keep`, whatever the reason, leaves no spare behind; a spare that is not ready is not taken.
The other end is in `child`. Must not import the servers.
"""

import asyncio
import json
import os
import socket
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from dodona_local.folder import DataFolder
from dodona_local.uncancelled import uncancelled

NAME: Final = "spare"
AGAIN_S: Final = 2.0
"""After one was taken or ended: the server that it became starts first."""
READY: Final = b"r"


class Spare:
    """Keeps one process at hand that has imported these modules."""

    def __init__(self, folder: DataFolder, lifeline_fd: int, modules: Sequence[str]) -> None:
        self._folder = folder
        self._lifeline_fd = lifeline_fd
        self._modules = tuple(modules)
        self._packages = {module.partition(".")[0] for module in modules}
        self._process: asyncio.subprocess.Process | None = None
        self._link: socket.socket | None = None
        self._taken = asyncio.Event()

    @property
    def is_ready(self) -> bool:
        """Whether there is one that can be taken."""
        link = self._link
        try:
            return link is not None and link.recv(1, socket.MSG_PEEK) == READY
        except OSError:  # it is importing
            return False

    async def keep(self) -> None:
        """Have one ready until cancelled."""
        try:
            while True:
                self._taken.clear()
                process = await self._start()
                ended = asyncio.create_task(process.wait())
                taken = asyncio.create_task(self._taken.wait())
                await asyncio.wait([ended, taken], return_when=asyncio.FIRST_COMPLETED)
                for waiting in (ended, taken):
                    waiting.cancel()
                await asyncio.sleep(AGAIN_S)
        finally:
            await self._end()

    def take(
        self, module: str, arguments: Sequence[str], log_fd: int
    ) -> asyncio.subprocess.Process | None:
        """Have it run `python -m module arguments` with this log. → None if there is none that is
        ready for it."""
        process, link = self._process, self._link
        if module not in self._packages or process is None or link is None:
            return None
        try:
            if not self.is_ready or process.returncode is not None:
                return None
            link.recv(1)  # a close with something unread would undo what was sent
            what = json.dumps([module, *arguments]).encode()
            socket.send_fds(link, [what], [log_fd])
        except OSError:  # it is not ready yet, or it has gone
            return None
        link.close()
        self._process = self._link = None
        self._taken.set()
        return process

    async def _start(self) -> asyncio.subprocess.Process:
        await self._end()
        here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        here.setblocking(False)
        log_fd = self._folder.open_log(NAME)
        try:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "dodona_local.child", "--spare", str(there.fileno())),
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
            os.close(log_fd)
        self._process, self._link = process, here
        return process

    async def _end(self) -> None:
        process, self._process = self._process, None
        if self._link is not None:
            self._link.close()
            self._link = None
        if process is not None and process.returncode is None:
            with suppress(ProcessLookupError):
                process.kill()
            # Else the loop may close before it hears of the end.
            await uncancelled(_wait_for(process))


async def _wait_for(process: asyncio.subprocess.Process) -> None:
    await process.wait()
