"""An S3 for tests, on loopback: moto's, behind a gate that loses answers and ignores conditions.

Owns: the server, its bucket, and what the gate does to the next requests.
"""

import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final
from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

import httpx

BUCKET: Final = "chunks"
ENVIRONMENT: Final = {
    "AWS_ACCESS_KEY_ID": "test",
    "AWS_SECRET_ACCESS_KEY": "a secret of the tests",
    "AWS_REGION": "us-east-1",
}

AS_ASKED: Final = 0
SLOW_S: Final = 2.0

Fault = Callable[["S3", WSGIEnvironment], int | None]
"""What happens to a request. It returns the status of an answer in the place of the server's, or
`AS_ASKED`."""


def as_asked(_: "S3", environ: WSGIEnvironment) -> int:
    """Do what is asked."""
    return AS_ASKED


def slowly(_: "S3", environ: WSGIEnvironment) -> int:
    """Do what is asked after a pause of `SLOW_S`."""
    time.sleep(SLOW_S)
    return AS_ASKED


def busy(_: "S3", environ: WSGIEnvironment) -> int:
    """Refuse a request without doing it."""
    return 503


def answer_lost(s3: "S3", environ: WSGIEnvironment) -> None:
    """Do what is asked, and end the connection without an answer."""
    s3.apply(environ)
    _end_connection(environ)


def request_lost(_: "S3", environ: WSGIEnvironment) -> None:
    """End the connection without doing what is asked."""
    _end_connection(environ)


class S3:
    """The gate before the server."""

    def __init__(self, server: WSGIApplication) -> None:
        self._server = server
        self.url = ""
        self.faults: deque[Fault] = deque()
        """What happens to the next requests."""
        self.ignores_conditions = False
        self.requests: list[str] = []

    def __call__(self, environ: WSGIEnvironment, start: StartResponse) -> Any:
        self.requests.append(f"{environ['REQUEST_METHOD']} {environ['PATH_INFO']}")
        if self.ignores_conditions:
            environ.pop("HTTP_IF_NONE_MATCH", None)
        if not self.faults:
            return self._server(environ, start)
        status = self.faults.popleft()(self, environ)
        if status == AS_ASKED:
            return self._server(environ, start)
        start(f"{status or 500} A fault", [("content-length", "0")])
        return [b""]

    def apply(self, environ: WSGIEnvironment) -> None:
        for _ in self._server(environ, lambda *_: lambda _: None):
            pass


def _end_connection(environ: WSGIEnvironment) -> None:
    connection: socket.socket = environ["werkzeug.socket"]
    connection.shutdown(socket.SHUT_RDWR)


@contextmanager
def s3_server() -> Iterator[S3]:
    """Run the server with an empty bucket."""
    from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
    from werkzeug.serving import make_server

    gate = S3(DomainDispatcherApplication(create_backend_app))
    server = make_server("127.0.0.1", 0, gate, threaded=True)
    thread = threading.Thread(target=server.serve_forever, name="s3", daemon=True)
    thread.start()
    gate.url = f"http://127.0.0.1:{server.server_port}"
    try:
        httpx.put(f"{gate.url}/{BUCKET}").raise_for_status()
        gate.requests.clear()
        yield gate
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
