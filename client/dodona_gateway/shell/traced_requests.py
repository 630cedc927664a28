"""A gateway's requests, traced: a span for each, which what it asks of the cluster is below.

Owns: what such a span says. A request that comes with a `traceparent` goes on with that trace; the
answer's header of this name says where to find the request. Imported only where traces are on.
"""

from typing import Final

from opentelemetry import context, trace
from opentelemetry.trace import Span, SpanKind

from dodona_wire.net.spans import Spans, end_span, traceparent

PATH_LENGTH_MAX: Final = 200


class RequestTracing:
    """Of one gateway."""

    def __init__(self, spans: Spans) -> None:
        self._spans = spans

    def begin(
        self, method: str, path: str, given: bytes | None, request_id: bytes
    ) -> "TracedRequest":
        """The running task is within the request's span until that ends."""
        attributes = {
            "http.request.method": method,
            "url.path": path[:PATH_LENGTH_MAX],
            "dodona.request_id": request_id.decode("latin-1"),
        }
        parent = "" if given is None else given.decode("latin-1")
        kind = SpanKind.SERVER
        return TracedRequest(self._spans.begin(f"gateway {method}", kind, attributes, parent))


class TracedRequest:
    """One request."""

    def __init__(self, span: Span) -> None:
        self._span = span
        self._token = context.attach(trace.set_span_in_context(span))

    @property
    def header(self) -> bytes:
        """Its `traceparent`."""
        return traceparent(self._span).encode()

    def end(self, status: int | None) -> None:
        """It was answered with this status, or not at all. To be called in the task that began."""
        context.detach(self._token)
        is_failed = status is None or status >= 500
        error = "no_answer" if status is None else str(status)
        attributes = {} if status is None else {"http.response.status_code": status}
        end_span(self._span, error if is_failed else None, attributes)
