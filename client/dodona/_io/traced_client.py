"""Trace the calls of a client: one span for each, around the protocol that carries out the call.

Owns: the attributes of the spans, and how their context travels with requests to cells. Protocols
declare their spans, see `_core.protocol.spans`. A protocol stays unchanged. It runs inside another
protocol, which looks at its steps. Imported only if tracing is on.
"""

from collections.abc import Sequence
from typing import Any, TypeVar

from msgspec.structs import replace
from opentelemetry.trace import SpanKind
from picows import WSTransport

from dodona._core.protocol.routing import Routing
from dodona._core.protocol.spans import span_of
from dodona._core.protocol.steps import Calls, Post, Protocol, Step, Target
from dodona._io.drivers import AsyncioDriver, BlockingDriver
from dodona_wire.errors import DodonaError
from dodona_wire.messages.cells import CellMessage
from dodona_wire.messages.codec import TRACES_HEADER
from dodona_wire.messages.data import (
    CommitOne,
    Lookup,
    LookupVersions,
    Prepare,
    WriteArrow,
    WriteNonAtomic,
    bare_commit,
)
from dodona_wire.messages.families import RpcRequest
from dodona_wire.messages.traced import Traced
from dodona_wire.net.cluster_key import ClusterKey
from dodona_wire.net.peer import Envelope, Peer
from dodona_wire.net.spans import Spans, end_span, traceparent

Result = TypeVar("Result")


def traced(protocol: Protocol[Result], spans: Spans) -> Protocol[Result]:
    """Return the protocol within the span that it declares. Without one, return it as it is."""
    name = span_of(protocol)
    return protocol if name is None else _within_span(protocol, spans, name)


def _within_span(protocol: Protocol[Result], spans: Spans, name: str) -> Protocol[Result]:
    span = spans.begin(f"dodona {name}", SpanKind.CLIENT, {"db.system.name": "dodona"})
    if not span.get_span_context().trace_flags.sampled:
        return (yield from protocol)
    account, context = _Account(), traceparent(span)
    error: str | None = "given_up"
    replies: Any = None
    try:
        while True:
            step = protocol.send(replies)
            account.note(step)
            replies = yield _with_context(step, context)
    except StopIteration as stop:
        error = None
        result: Result = stop.value
        return result
    except DodonaError as refused:
        error = refused.kind
        raise
    finally:
        protocol.close()
        end_span(span, error, account.attributes(error or "done"))


class _Account:
    """Collects what a protocol does, for its span."""

    def __init__(self) -> None:
        self._protocol: str | None = None
        self._cells: dict[Target, None] = {}
        self._row_count = 0

    def note(self, step: Step) -> None:
        if type(step) is not Calls:
            return
        for target, body in step.requests:
            if target >= 0:
                self._cells[target] = None
                self._note_request(body)

    def _note_request(self, body: object) -> None:
        body = bare_commit(body)
        if isinstance(body, CommitOne):
            self._protocol = "blind" if body.is_blind else "one_cell"
            self._row_count += sum(len(part.writes) for part in body.modifications)
        elif isinstance(body, Prepare):
            self._protocol = "two_phase"
            self._row_count += sum(len(part.writes) for part in body.modifications)
        elif isinstance(body, WriteNonAtomic):
            self._protocol = "non_atomic"
            self._row_count += len(body.writes)
        elif isinstance(body, Lookup | LookupVersions):
            self._row_count += len(body.keys)

    def attributes(self, outcome: str) -> dict[str, Any]:
        """Return the attributes of the span. `rows` counts the rows that were asked for or written,
        also those that were sent again."""
        found: dict[str, Any] = {"dodona.outcome": outcome, "dodona.cells": [*self._cells]}
        if self._protocol is not None:
            found["dodona.protocol"] = self._protocol
        if self._row_count:
            found["dodona.rows"] = self._row_count
        return found


def _with_context(step: Step, context: str) -> Step:
    """Add the context of the span to requests to cells. Requests to the oracle have none, because
    one answer serves many callers."""
    if type(step) is Calls:
        return replace(step, requests=_wrapped(step.requests, context))
    return Post(_wrapped(step.requests, context)) if type(step) is Post else step


def _wrapped(requests: Sequence[tuple[Target, Any]], context: str) -> tuple[Any, ...]:
    return tuple(
        [(target, Traced(context, body) if target >= 0 else body) for target, body in requests]
    )


class TracedPeer(Peer):
    """A connection that sends contexts if the server accepts them."""

    _is_taken = False

    def _opened(self, transport: WSTransport) -> None:
        self._is_taken = TRACES_HEADER in transport.response.headers
        super()._opened(transport)

    def _register(self, body: RpcRequest, waiter: Any) -> bool:
        if isinstance(body, Traced) and type(body.body) is WriteArrow:
            self._is_bulk_outgoing = True
        return super()._register(body, waiter)

    def _send(self, transport: WSTransport, envelopes: list[Envelope]) -> None:
        if not self._is_taken:
            envelopes = [(request_id, _bare(body)) for request_id, body in envelopes]
        super()._send(transport, envelopes)


def _bare(body: Any) -> RpcRequest | CellMessage:
    bare: RpcRequest | CellMessage = body.body if type(body) is Traced else body
    return bare


class TracedAsyncioDriver(AsyncioDriver):
    """An AsyncioDriver with spans."""

    peer_type = TracedPeer

    def __init__(
        self, master_url: str, routing: Routing, key: ClusterKey | None, spans: Spans
    ) -> None:
        super().__init__(master_url, routing, key)
        self._spans = spans

    async def run(self, protocol: Protocol[Result], timeout_ms: int | None = None) -> Result:
        return await super().run(traced(protocol, self._spans), timeout_ms)


class TracedBlockingDriver(BlockingDriver):
    """A BlockingDriver with spans."""

    peer_type = TracedPeer

    def __init__(self, master_url: str, routing: Routing, spans: Spans) -> None:
        super().__init__(master_url, routing)
        self._spans = spans

    def run(self, protocol: Protocol[Result], timeout_ms: int | None = None) -> Result:
        return super().run(traced(protocol, self._spans), timeout_ms)
