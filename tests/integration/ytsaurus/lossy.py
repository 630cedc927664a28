"""A proxy between a client and a gateway that loses replies: what was asked for has been done.

Owns: which replies are lost. Everything else passes as it is, the header `Host` too, so that the
gateway names the proxy where it names itself.
"""

import http.client
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit


class Lossy:
    """One proxy. `lose` says which replies are lost from now on; `asked` are the requests."""

    def __init__(self, target: str) -> None:
        self._target = urlsplit(target)
        self._lost: Counter[str] = Counter()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        self.asked: Counter[str] = Counter()
        self.when_lost: Callable[[], Any] = lambda: None
        """Called when a reply is lost, before the client knows."""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    def lose(self, command: str, count: int = 1) -> None:
        """The replies to the next `count` requests for this command."""
        self._lost[command] = count

    def serve(self) -> None:
        self._server.serve_forever(poll_interval=0.05)

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def forward(self, request: BaseHTTPRequestHandler) -> None:
        command = request.path.rpartition("/")[2]
        self.asked[command] += 1
        body = _body_of(request)
        headers = {k: v for k, v in request.headers.items() if k.lower() != "transfer-encoding"}
        headers["Content-Length"] = str(len(body))
        upstream = http.client.HTTPConnection(str(self._target.hostname), self._target.port)
        try:
            upstream.request(str(request.command), request.path, body, headers)
            answer = upstream.getresponse()
            content = answer.read()
        except OSError:
            request.close_connection = True  # there is nobody: no reply either
            return
        finally:
            upstream.close()
        if self._lost[command] > 0:
            self._lost[command] -= 1
            self.when_lost()
            request.close_connection = True
            return
        request.send_response_only(answer.status)
        for name, value in answer.getheaders():
            if name.lower() not in ("transfer-encoding", "content-length"):
                request.send_header(name, value)
        request.send_header("Content-Length", str(len(content)))
        with suppress(ConnectionError):  # the client has stopped waiting
            request.end_headers()
            request.wfile.write(content)

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        forward = self.forward

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def __getattr__(self, name: str) -> Any:
                """`do_GET` and the like."""
                if name.startswith("do_"):
                    return lambda: forward(self)
                raise AttributeError(name)

            def log_message(self, format: str, *args: Any) -> None:
                """Say nothing."""

        return Handler


def _body_of(request: BaseHTTPRequestHandler) -> bytes:
    if request.headers.get("transfer-encoding", "").lower() != "chunked":
        return request.rfile.read(int(request.headers.get("content-length", 0)))
    parts: list[bytes] = []
    while size := int(request.rfile.readline(), 16):
        parts.append(request.rfile.read(size))
        request.rfile.readline()
    request.rfile.readline()
    return b"".join(parts)


@contextmanager
def lossy_proxy(target: str) -> Iterator[Lossy]:
    """A proxy to a gateway for the length of the block."""
    proxy = Lossy(target)
    thread = threading.Thread(target=proxy.serve, daemon=True)
    thread.start()
    try:
        yield proxy
    finally:
        proxy.close()
        thread.join()
