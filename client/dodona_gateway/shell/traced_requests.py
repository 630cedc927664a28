"""Trace a gateway's requests: a span for each, with the spans of its requests to the cluster below
it.

Owns: the content of such a span. A request with a `traceparent` goes on with that trace, and the
answer's header of this name names the request's span. This module is imported only if tracing is
on.
"""

from typing import Final

from opentelemetry import context, trace
from opentelemetry.trace import Span, SpanKind

from dodona_wire.net.spans import Spans, end_span, traceparent

PATH_LENGTH_MAX: Final = 200


class RequestTracing:
    """Makes the spans of one gateway's requests."""

    def __init__(self, spans: Spans) -> None:
        self._spans = spans

    def begin(
        self, method: str, path: str, given: bytes | None, request_id: bytes
    ) -> "TracedRequest":
        """Begin a span. The running task is within the span until the span ends."""
        attributes = {
            "http.request.method": method,
            "url.path": path[:PATH_LENGTH_MAX],
            "dodona.request_id": request_id.decode("latin-1"),
        }
        parent = "" if given is None else given.decode("latin-1")
        kind = SpanKind.SERVER
        return TracedRequest(self._spans.begin(f"gateway {method}", kind, attributes, parent))


class TracedRequest:
    """The span of one request."""

    def __init__(self, span: Span) -> None:
        self._span = span
        self._token = context.attach(trace.set_span_in_context(span))

    @property
    def header(self) -> bytes:
        """Return the span's `traceparent`."""
        return traceparent(self._span).encode()

    def end(self, status: int | None) -> None:
        """End the span: the request was answered with this status, or with None got no answer. Call
        this in the task that began the span."""
        context.detach(self._token)
        is_failed = status is None or status >= 500
        error = "no_answer" if status is None else str(status)
        attributes = {} if status is None else {"http.response.status_code": status}
        end_span(self._span, error if is_failed else None, attributes)
