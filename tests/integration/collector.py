"""A collector of traces on loopback: takes OTLP over HTTP, and keeps the spans."""

import threading
from collections import Counter
from collections.abc import Iterable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, NamedTuple, Self

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from suite.waiting import wait_until


class Seen(NamedTuple):
    """One span, as it was sent."""

    service: str
    name: str
    trace: str
    span: str
    parent: str
    links: tuple[str, ...]
    attributes: dict[str, Any]


class Collector:
    """Listens within a `with` block."""

    def __init__(self) -> None:
        self._spans: list[Seen] = []
        self._lock = threading.Lock()
        self.statuses: list[int] = []
        """What the next exports are answered with, if not with 200."""
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                status = collector.statuses.pop(0) if collector.statuses else 200
                if status == 200:
                    collector._take(self.path, body)
                self.send_response(status)
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, *_: object) -> None:
                """Say nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def wait_for(self, trace: str, names: Iterable[str]) -> list[Seen]:
        """The spans of a trace, once all these are among them, each as often as it is named:
        every process sends its own when it likes."""
        wanted = Counter(names)

        def missing() -> "Counter[str]":
            return wanted - Counter(it.name for it in self.of(trace))

        wait_until(lambda: not missing(), lambda: (missing(), self.of(trace)))
        return self.of(trace)

    def of(self, trace: str) -> list[Seen]:
        """The spans of a trace that have come."""
        with self._lock:
            return [it for it in self._spans if it.trace == trace]

    def _take(self, path: str, body: bytes) -> None:
        assert path == "/v1/traces"
        with self._lock:
            for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
                service = _values(resource.resource.attributes)["service.name"]
                for scope in resource.scope_spans:
                    self._spans += [_seen(service, span) for span in scope.spans]


def _seen(service: str, span: Any) -> Seen:
    return Seen(
        service,
        span.name,
        span.trace_id.hex(),
        span.span_id.hex(),
        span.parent_span_id.hex(),
        tuple(link.span_id.hex() for link in span.links),
        _values(span.attributes),
    )


def _values(attributes: Iterable[Any]) -> dict[str, Any]:
    return {it.key: getattr(it.value, it.value.WhichOneof("value")) for it in attributes}
