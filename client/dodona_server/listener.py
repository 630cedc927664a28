"""The port of a server, taken before its data are there, and the answers there until then.

Owns: the listening sockets, and the thread that answers until the server itself does. It says that
the process is alive (`/healthz`). To all other paths, also `/startupz` and `/readyz`, it says that
the process is starting. So a long replay is not taken for a process that hangs. A process that
stands by has started, and is ready to take over. It may have pages of its own. The sockets are
handed over open: a client that connects in between is not refused.

Invariants: the thread ends before the server begins. Its connections have limits of number, time
and bytes (see `thread_server`).
"""

import errno
import socket
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Final, Protocol, Self

from dodona_server.answers import AnswerLike, problem_answer, status_answer
from dodona_server.lifecycle import HEALTH, HEALTH_PATHS
from dodona_server.thread_server import Headers, ThreadServer
from dodona_wire.errors import DodonaError, InvalidRequest, Unavailable
from dodona_wire.messages.base import failure_of
from dodona_wire.net.callers import Header

BACKLOG: Final = 2048
_NOT_HERE: Final = (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT)
_starting: Final = Unavailable(
    "The server is starting, which takes longer if its log is long. Wait, then repeat the call."
)
_standing_by: Final = Unavailable(
    "This server stands by for others, and serves nothing now. Ask the master for the server that "
    "serves, then repeat the call there."
)

Refusal = Callable[[str, DodonaError], AnswerLike]
"""Returns the answer for a path, in the form that the clients of that path know."""


StandbyPages = Callable[[str, Header], AnswerLike | None]
"""Returns the page at a path for a request with these headers, or None if there is no such page.
The thread of the listener calls it."""


def problem(_: str, error: DodonaError) -> AnswerLike:
    """Return an error in the form that Dodona's own clients know."""
    return problem_answer(failure_of(error))


class Listening(Protocol):
    """The settings of a server that say where it listens."""

    @property
    def host(self) -> str: ...

    @property
    def port(self) -> int: ...

    @property
    def answer_headers(self) -> Headers: ...


class Listener:
    """Sockets that listen. Enter it before the recovery, and leave it at the end."""

    def __init__(
        self, host: str, port: int, refusal: Refusal = problem, *, headers: Headers = ()
    ) -> None:
        """Listen on the port. `headers` are in every answer. Raises InvalidRequest if it is not
        possible to listen."""
        self._sockets = _listen(host, port)
        self._headers = headers
        self._refusal = refusal
        self.standby_pages: StandbyPages | None = None
        """The pages of a process that waits to take over from another one. None: it does not."""
        self._wake, self._woken = socket.socketpair()
        self._has_ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="dodona-listener", daemon=True)

    @property
    def port(self) -> int:
        """The port on which it listens."""
        port: int = self._sockets[0].getsockname()[1]
        return port

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for listening in self.hand_over():
            listening.close()

    def hand_over(self) -> list[socket.socket]:
        """Stop answering, and return the sockets. A repeated call is harmless."""
        if self._thread.is_alive():
            self._has_ended.set()
            self._wake.send(b"x")
            self._thread.join()
            self._wake.close()
            self._woken.close()
        return self._sockets

    # In the thread

    def _run(self) -> None:
        server = ThreadServer(self._sockets, self._respond, self._headers)
        server.serve(self._has_ended.is_set, wake=self._woken)

    def _respond(self, path: str, header: Header) -> AnswerLike:
        pages = self.standby_pages
        if path == HEALTH or (pages is not None and path in HEALTH_PATHS):
            return status_answer("ok")
        if pages is None:
            return self._refusal(path, _starting)
        return pages(path, header) or self._refusal(path, _standing_by)


def listener_of(settings: Listening, refusal: Refusal = problem) -> Listener:
    """Return the listener of a server with these settings. Raises InvalidRequest."""
    return Listener(settings.host, settings.port, refusal, headers=settings.answer_headers)


def _listen(host: str, port: int) -> list[socket.socket]:
    """Listen on all addresses of that name that this machine has."""
    listening: list[socket.socket] = []
    reason: OSError | None = None
    try:
        for family, kind, protocol, _, address in socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        ):
            try:
                listening.append(_listener(socket.socket(family, kind, protocol), address))
            except OSError as error:
                reason = error
                if error.errno not in _NOT_HERE:
                    raise
    except OSError as error:
        for each in listening:
            each.close()
        raise _not_there(host, port, error) from error
    if not listening:
        raise _not_there(host, port, reason) from reason
    return listening


def _not_there(host: str, port: int, reason: OSError | None) -> InvalidRequest:
    said = "no such address" if reason is None else (reason.strerror or str(reason)).lower()
    return InvalidRequest(f"can't listen on {host}:{port}: {said}")


def _listener(made: socket.socket, address: object) -> socket.socket:
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if made.family == socket.AF_INET6:
            made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        made.bind(address)  # type: ignore[arg-type]  # as getaddrinfo gave it
        made.listen(BACKLOG)
        made.setblocking(False)
    except OSError:
        made.close()
        raise
    return made
