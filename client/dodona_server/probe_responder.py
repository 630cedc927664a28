"""Answers probes at a server's port while a disk that hangs blocks the server's event loop.

Owns: the thread that watches for this. No call interrupts a sync, so the loop cannot answer. The
thread answers new connections as `listener` does. It says that the process is alive (`/healthz`)
and has started (`/startupz`), and to all other paths that the disk does not answer. So an
orchestrator does not take a disk that hangs for a process that hangs. Open connections wait.

Invariants: the thread reads nothing of the core or the runtime but how long the loop has been
blocked. Its connections have limits of number, time and bytes (see `thread_server`).
"""

import socket
import threading
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Final, Self

from dodona_server.answers import AnswerLike, status_answer
from dodona_server.lifecycle import HEALTH, STARTUP
from dodona_server.listener import problem
from dodona_server.thread_server import Headers, ThreadServer
from dodona_wire.errors import Unavailable
from dodona_wire.net.callers import Header

STALLED_US_MIN: Final = 300_000
"""Before that, the loop itself answers."""
POLL_SECONDS: Final = 0.2


class ProbeResponder:
    """Answers for a server that listens on these sockets. `stalled_us` returns how long its loop
    has been blocked by now, 0 while the loop runs. Enter it while the server runs."""

    def __init__(
        self,
        sockets: Sequence[socket.socket],
        stalled_us: Callable[[], int],
        headers: Headers = (),
    ) -> None:
        """`headers` are in every answer."""
        self._sockets = sockets
        self._headers = headers
        self._stalled_us = stalled_us
        self._has_ended = threading.Event()
        self._thread = threading.Thread(
            target=self._run, name="dodona-probe-responder", daemon=True
        )

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._has_ended.set()
        self._thread.join()

    # In the thread

    def _run(self) -> None:
        while not self._has_ended.wait(POLL_SECONDS):
            if self._is_needed():
                self._serve()

    def _is_needed(self) -> bool:
        return self._stalled_us() >= STALLED_US_MIN and not self._has_ended.is_set()

    def _serve(self) -> None:
        server = ThreadServer(self._sockets, self._respond, self._headers)
        server.serve(lambda: not self._is_needed(), poll_s=POLL_SECONDS)

    def _respond(self, path: str, _: Header) -> AnswerLike:
        if path == HEALTH:
            return status_answer("ok")
        if path == STARTUP:
            return status_answer("started")
        duration_ms = self._stalled_us() // 1000
        return problem(path, Unavailable(f"the disk has not answered for {duration_ms} ms"))
