"""The end of the fork server: it is killed while it runs, so that asyncio learns of its end."""

import asyncio
import socket
from pathlib import Path

from dodona_local.folder import DataFolder
from dodona_local.fork_server import ForkServer


class Process:
    """As asyncio's. It notes whether the link was still open when it was killed."""

    def __init__(self, there: socket.socket) -> None:
        self._there = there
        self.returncode: int | None = None
        self.had_link: bool | None = None

    def kill(self) -> None:
        try:
            self._there.recv(1)
            self.had_link = False
        except BlockingIOError:
            self.had_link = True
        self.returncode = -9

    async def wait(self) -> int:
        assert self.returncode is not None
        return self.returncode


def test_the_fork_server_is_killed_before_its_link_closes(tmp_path: Path) -> None:
    """Without its link it ends. `subprocess` would take its exit status in `kill`, asyncio would
    find no such child, and `dodona demo` would print "Unknown child process"."""

    async def close() -> Process:
        here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        there.setblocking(False)
        process = Process(there)
        server = ForkServer(folder, -1, [])
        server._link = here
        server._process = process  # type: ignore[assignment]
        await server.close()
        assert there.recv(1) == b"", "the link is closed in the end"
        there.close()
        return process

    folder = DataFolder(tmp_path / "data")
    try:
        assert asyncio.run(close()).had_link is True
    finally:
        folder.close()
