"""Traces of a node's requests: a span for each request with a context, and the log's below it.

Owns: which spans a server makes. It begins no trace: a request without a context has no span, and
costs nothing. A flush makes many requests durable together. One span stands for the flush, below
the first of them that is traced. It links to the others. Each of these has a span of its own that
links to the flush. The module is imported only if traces are on. A core sees nothing of this:
contexts are removed before the core is called, and spans end when its answers leave.
"""

from collections.abc import Iterator
from typing import Any, Final

from opentelemetry.trace import Span, SpanKind

from dodona_server.flushes import Batch
from dodona_server.repliers import Replier
from dodona_wire.cores.effects import ReplyTo
from dodona_wire.messages.base import Failure
from dodona_wire.messages.codec import RequestEnvelope
from dodona_wire.messages.families import Reply
from dodona_wire.messages.traced import Traced
from dodona_wire.net.spans import LINKS_MAX, Spans, end_span
from dodona_wire.types import Now

CARRIED_MAX: Final = LINKS_MAX
"""The number of requests of one flush whose traces show the flush."""


class TracedReplier:
    """Stands before a connection for the requests of one frame. A request's span ends when the
    request is answered."""

    __slots__ = ("_inner", "_spans")

    def __init__(self, inner: Replier, spans: dict[int, Span]) -> None:
        self._inner = inner
        self._spans = spans

    def reply(self, request_id: int, body: Reply) -> None:
        span = self._spans.pop(request_id, None)
        if span is not None:
            kind = body.kind if type(body) is Failure else None
            end_span(span, kind, {"dodona.answer": type(body).__name__})
        self._inner.reply(request_id, body)

    def span_of(self, request_id: int) -> Span | None:
        """Return the span of a request that is not answered yet."""
        return self._spans.get(request_id)


class ServerTracing:
    """The tracing of one node."""

    def __init__(self, spans: Spans, server: str) -> None:
        """`server` is the first word of the names of its spans."""
        self._spans = spans
        self._server = server

    def open(
        self, replier: Replier, envelopes: list[RequestEnvelope]
    ) -> tuple[Replier, list[RequestEnvelope]]:
        """See `endpoint.FrameTracing`."""
        if not any(type(body) is Traced for _, body in envelopes):
            return replier, envelopes
        begun: dict[int, Span] = {}
        bare: list[RequestEnvelope] = []
        for request_id, body in envelopes:
            if type(body) is Traced:
                span = self._begin(body)
                if request_id:
                    begun[request_id] = span
                else:  # it gets no answer: its span says when it came
                    span.end()
                bare.append((request_id, body.body))
            else:
                bare.append((request_id, body))
        return TracedReplier(replier, begun), bare

    def _begin(self, traced: Traced) -> Span:
        method = type(traced.body).__name__
        attributes = {"rpc.system.name": "dodona", "rpc.method": method}
        name = f"{self._server} {method}"
        return self._spans.begin(name, SpanKind.SERVER, attributes, traced.context)

    def watch_flush(self, batch: Batch, began_us: int, now: Now) -> None:
        """Record the spans of a group that became durable. Its answers are about to leave."""
        carried = list(_carried(batch))
        if not carried:
            return
        ended_ns = now.unix_us * 1000
        began_ns = ended_ns - (now.instant_us - began_us) * 1000
        records = {"dodona.records": len(batch.records)}
        name = f"{self._server} log flush"
        first, *others = [span.get_span_context() for span in carried]
        flush = self._spans.record(name, first, began_ns, ended_ns, records, others)
        gathered_ns = ended_ns - (now.instant_us - batch.since_us) * 1000
        for span in carried[1:]:
            name, context = f"{self._server} log append", span.get_span_context()
            since_ns = max(gathered_ns, _began_ns(span))
            self._spans.record(name, context, since_ns, ended_ns, records, (flush,))


def _began_ns(span: Span) -> int:
    """Return when the span began, 0 for one that is not recorded."""
    return getattr(span, "start_time", None) or 0


def _carried(batch: Batch) -> Iterator[Span]:
    """Yield the spans of the traced requests that wait for this flush, `CARRIED_MAX` at most."""
    count = 0
    for effect in batch.effects:
        if type(effect) is not ReplyTo:
            continue
        replier, request_id = _route(effect.route)
        if type(replier) is TracedReplier:
            span = replier.span_of(request_id)
            if span is not None:
                yield span
                count += 1
                if count == CARRIED_MAX:
                    return


def _route(route: Any) -> tuple[Any, int]:
    replier, request_id = route
    return replier, request_id
