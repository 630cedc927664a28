"""Traces: off unless asked for, what a client's and a node's spans say, and how contexts travel."""

import asyncio
import json
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, Sampler
from opentelemetry.trace import SpanKind

from dodona._core.protocol.spans import traced_as
from dodona._core.protocol.steps import ORACLE, Calls, Post, Protocol
from dodona._io.traced_client import TracedPeer, traced
from dodona.errors import TransactionConflict
from dodona.types import (
    SYNC_LAST_COMMITTED,
    Key,
    Now,
    Revision,
    TabletId,
    Timestamp,
    TransactionId,
)
from dodona_gateway.shell.traced_requests import RequestTracing
from dodona_oracle.core.master import MasterCore
from dodona_server import logs
from dodona_server.endpoint import Endpoint
from dodona_server.flushes import Batch
from dodona_server.logs import JsonLines
from dodona_server.runtime import Runtime
from dodona_server.traced_server import ServerTracing, TracedReplier
from dodona_wire.cores.effects import ReplyTo
from dodona_wire.messages.base import Failure
from dodona_wire.messages.data import (
    AskOutcome,
    CommitOne,
    Committed,
    GenerateTimestamps,
    Lookup,
    Prepare,
    TabletModifications,
    TimestampRange,
    WriteArrow,
)
from dodona_wire.messages.families import Reply
from dodona_wire.messages.traced import Traced
from dodona_wire.net.spans import LINKS_MAX, Spans, current_ids, parent_context, traceparent
from unit.client.endpoint import serving
from unit.gateway.exchange import Exchange, edge_of
from unit.oracle.test_endpoint import EchoCore, listening

pytestmark = pytest.mark.anyio

CONTEXT = f"00-{'a' * 32}-{'b' * 16}-01"
TABLET = TabletId(1), Revision(1)
PART = TabletModifications(*TABLET, ((Key(b"k"), 0, ()), (Key(b"l"), 0, ())))
COMMIT = CommitOne(TransactionId(5), (PART,))
DONE = Committed(TransactionId(5), Timestamp(6))


class Watched:
    """Spans that stay here."""

    def __init__(self, sampler: Sampler | None = None) -> None:
        self._exporter = InMemorySpanExporter()
        provider = TracerProvider(sampler, shutdown_on_exit=False)
        provider.add_span_processor(SimpleSpanProcessor(self._exporter))
        self.spans = Spans(provider, is_own=True)

    @property
    def ended(self) -> tuple[ReadableSpan, ...]:
        return self._exporter.get_finished_spans()


def attributes(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})


# ---- a client's spans


def driven(protocol: Protocol[Any], *replies: list[Reply]) -> tuple[list[Any], Any]:
    """→ the steps of a protocol that is given these replies, and its result."""
    steps = [next(protocol)]
    try:
        for reply in replies:
            step = protocol.send(reply)
            steps.append(step)
    except StopIteration as stop:
        return steps, stop.value
    return steps, None


@traced_as("commit")
def commit() -> Protocol[int]:
    (stamp,) = yield Calls(((ORACLE, GenerateTimestamps(1)),))
    replies = yield Calls(((3, COMMIT),))
    yield Post(((3, COMMIT),))
    return len([stamp, *replies])


def test_a_commit_span_has_its_attributes_and_its_requests_carry_its_context() -> None:
    watched = Watched()
    steps, result = driven(traced(commit(), watched.spans), [DONE], [DONE], [])
    (span,) = watched.ended
    context = f"00-{span.context.trace_id:032x}-{span.context.span_id:016x}"
    context += f"-{span.context.trace_flags:02x}"
    assert result == 2
    kinds, requests = zip(*[(type(it), it.requests) for it in steps], strict=True)
    assert kinds == (Calls, Calls, Post)
    traced_one = ((3, Traced(context, COMMIT)),)
    assert requests == (((ORACLE, GenerateTimestamps(1)),), traced_one, traced_one)
    assert (span.name, span.kind) == ("dodona commit", SpanKind.CLIENT)
    assert attributes(span) == {
        "db.system.name": "dodona",
        "dodona.protocol": "one_cell",
        "dodona.cells": (3,),
        "dodona.rows": 2,
        "dodona.outcome": "done",
    }


def test_the_span_of_a_two_phase_commit_names_its_protocol_and_cells() -> None:
    @traced_as("commit")
    def commit() -> Protocol[None]:
        cells = tuple(map(TransactionId, (1, 2)))
        prepare = Prepare(TransactionId(5), cells, (PART,))  # type: ignore[arg-type]
        yield Calls(((1, prepare), (2, prepare)), is_over_at_refusal=True)

    watched = Watched()
    (step,), _ = driven(traced(commit(), watched.spans), [DONE, DONE])
    assert step.is_over_at_refusal
    found = attributes(watched.ended[0])
    assert (found["dodona.protocol"], found["dodona.cells"]) == ("two_phase", (1, 2))


def test_an_error_is_recorded_in_its_span_and_raised() -> None:
    @traced_as("commit")
    def commit() -> Protocol[None]:
        yield Calls(((3, COMMIT),))
        raise TransactionConflict("lost")

    watched = Watched()
    with pytest.raises(TransactionConflict):
        driven(traced(commit(), watched.spans), [DONE])
    (span,) = watched.ended
    assert attributes(span)["error.type"] == "transaction_conflict"
    assert not span.status.is_ok


def test_a_cancelled_commit_ends_its_span_and_its_protocol() -> None:
    ended: list[str] = []

    @traced_as("commit")
    def commit() -> Protocol[None]:
        try:
            yield Calls(((3, COMMIT),))
        finally:
            ended.append("protocol")

    watched = Watched()
    protocol = traced(commit(), watched.spans)
    next(protocol)
    protocol.close()
    assert ended == ["protocol"]
    assert attributes(watched.ended[0])["dodona.outcome"] == "given_up"


def test_an_unsampled_call_sends_no_context_and_an_unnamed_call_has_no_span() -> None:
    def ping() -> Protocol[None]:
        yield Calls(((3, COMMIT),))

    silent, watched = Watched(ALWAYS_OFF), Watched()
    (_, step, _), _ = driven(traced(commit(), silent.spans), [DONE], [DONE], [])
    assert step == Calls(((3, COMMIT),))
    (step,), _ = driven(traced(ping(), watched.spans), [DONE])
    assert step == Calls(((3, COMMIT),))
    assert silent.ended == watched.ended == ()


def test_spans_are_below_the_caller_s() -> None:
    watched = Watched()
    above = watched.spans.begin("above", SpanKind.INTERNAL, {})
    with trace.use_span(above, end_on_exit=True):
        driven(traced(commit(), watched.spans), [DONE], [DONE], [])
    below, _ = watched.ended
    assert below.parent is not None
    assert below.parent.span_id == above.get_span_context().span_id


# ---- contexts on the wire


@pytest.mark.parametrize(
    "header",
    [
        "",
        "nonsense",
        CONTEXT[:-1],
        CONTEXT + "0",
        "ff" + CONTEXT[2:],
        CONTEXT.replace("a", "0"),
        CONTEXT.replace("b", "0"),
        CONTEXT.upper(),
        "\n" + CONTEXT,
        CONTEXT + "\n",
    ],
)
def test_an_invalid_trace_context_begins_a_new_trace(header: str) -> None:
    watched = Watched()
    watched.spans.begin("x", SpanKind.SERVER, {}, header).end()
    assert watched.ended[0].parent is None
    assert trace.get_current_span(parent_context(header)) is trace.INVALID_SPAN


def test_a_trace_context_sets_the_trace_and_the_sampling_of_a_span() -> None:
    watched = Watched()
    span = watched.spans.begin("x", SpanKind.SERVER, {}, CONTEXT)
    assert traceparent(span).startswith(CONTEXT[:36])
    assert span.is_recording()
    assert not watched.spans.begin("x", SpanKind.SERVER, {}, CONTEXT[:-1] + "0").is_recording()


async def test_a_server_that_does_not_take_contexts_is_sent_none() -> None:
    def answer(body: object) -> Committed:
        return DONE

    async with serving(answer) as server:
        peer = TracedPeer(server.url)
        question = AskOutcome(TransactionId(1))
        assert await peer.call(Traced(CONTEXT, question)) == DONE  # type: ignore[arg-type]
        bulk = WriteArrow(*TABLET, Timestamp(1), True, b"")
        calls = [peer.call(Traced(CONTEXT, bulk)) for _ in range(2)]  # type: ignore[arg-type]
        await asyncio.gather(*calls)
        assert server.bodies == [question, bulk, bulk]
        assert server.frame_sizes == [1, 1, 1]  # bulk has frames of its own
        await peer.close()


@asynccontextmanager
async def node(watched: Watched | None) -> AsyncIterator[tuple[str, Runtime]]:
    """A server whose core answers timestamps only."""
    made = None if watched is None else ServerTracing(watched.spans, "node")
    runtime = Runtime(EchoCore(), None)
    runtime.start()
    async with listening(Endpoint(runtime, tracing=made)) as port:
        yield f"ws://127.0.0.1:{port}/rpc?version=1", runtime
    await runtime.close()


async def test_a_server_that_takes_contexts_has_spans_for_these_alone() -> None:
    watched = Watched()
    async with node(watched) as (url, _):
        peer = TracedPeer(url)
        asked = GenerateTimestamps(5)
        peer.post(Traced(CONTEXT, asked))  # type: ignore[arg-type]
        replies = await asyncio.gather(
            peer.call(asked),
            peer.call(Traced(CONTEXT, asked)),  # type: ignore[arg-type]
        )
        assert replies[0] == replies[1]
        await peer.close()
    one_way, answered = watched.ended
    assert one_way.name == answered.name == "node GenerateTimestamps"
    assert answered.parent is not None
    assert f"{answered.parent.span_id:016x}" == CONTEXT[36:52]
    assert attributes(answered)["dodona.answer"] == "TimestampRange"


async def test_a_trace_context_does_not_harm_a_server_without_tracing() -> None:
    """Nobody sends it one, but whoever does gets an answer from the core, which knows none."""
    async with node(None) as (url, _):
        peer = TracedPeer(url)
        assert await peer.call(GenerateTimestamps(1)) == TimestampRange(Timestamp(1), 1)
        assert not peer._is_taken
        await peer.close()
    core = MasterCore.recover([], Now(0, 1_700_000_000_000_000))
    core.take_effects()
    traced_one: Any = Traced(CONTEXT, GenerateTimestamps(1))
    core.handle("route", traced_one, Now(0, 1_700_000_000_000_000))
    (effect,) = core.take_effects()
    assert isinstance(effect, ReplyTo)
    assert isinstance(effect.body, Failure)
    assert effect.body.kind == "invalid_request"


# ---- a node's log


class Answers:
    def __init__(self) -> None:
        self.replies: list[tuple[int, Reply]] = []

    def reply(self, request_id: int, body: Reply) -> None:
        self.replies.append((request_id, body))


def flushed(watched: Watched, count: int) -> Answers:
    """A frame of so many traced commits and one that is not, in one flush."""
    made, answers = ServerTracing(watched.spans, "node"), Answers()
    envelopes: list[Any] = [(place, Traced(CONTEXT, COMMIT)) for place in range(1, count + 1)]
    replier, bare = made.open(answers, [*envelopes, (count + 1, COMMIT)])
    assert bare == [(place, COMMIT) for place in range(1, count + 2)]
    batch = Batch(1_000)  # gathers for 1 ms, and then is written for 3
    batch.records = [None] * (count + 1)
    batch.effects = [ReplyTo((replier, it), DONE) for it, _ in bare]
    made.watch_flush(batch, 2_000, Now(5_000, 1_700_000_000_000_000))
    for effect in batch.effects:
        assert isinstance(effect, ReplyTo)
        effect.route[0].reply(effect.route[1], effect.body)
    return answers


def test_the_span_of_a_log_flush_is_linked_to_the_spans_of_its_requests() -> None:
    watched = Watched()
    answers = flushed(watched, 3)
    assert answers.replies == [(place, DONE) for place in range(1, 5)]
    flush, *appends = watched.ended[:3]
    requests = watched.ended[3:]
    ids = [it.context.span_id for it in requests]
    assert [it.name for it in requests] == ["node CommitOne"] * 3
    assert (flush.name, flush.parent and flush.parent.span_id) == ("node log flush", ids[0])
    assert [link.context.span_id for link in flush.links] == ids[1:]
    assert [it.parent and it.parent.span_id for it in appends] == ids[1:]
    assert all(it.links[0].context == flush.context for it in appends)
    assert attributes(flush) == {"dodona.records": 4}
    assert flush.start_time is not None
    assert flush.end_time is not None
    assert flush.end_time - flush.start_time == 3_000_000
    assert flush.end_time == 1_700_000_000_000_000_000


@pytest.mark.parametrize(("came_us", "waited_us"), [(0, 4_000), (1_500, 3_500), (4_000, 1_000)])
def test_an_append_span_begins_at_the_later_of_group_start_and_request_arrival(
    came_us: int, waited_us: int
) -> None:
    """Not from when the flush began: it had waited for that, too."""
    watched = Watched()
    made = ServerTracing(watched.spans, "node")
    replier, bare = made.open(Answers(), [(it, Traced(CONTEXT, COMMIT)) for it in (1, 2)])
    began_ns = 1_700_000_000_000_000_000
    assert isinstance(replier, TracedReplier)
    replier.span_of(2)._start_time = began_ns + came_us * 1000  # type: ignore[union-attr]
    batch = Batch(1_000)
    batch.effects = [ReplyTo((replier, it), DONE) for it, _ in bare]
    made.watch_flush(batch, 2_000, Now(5_000, began_ns // 1000 + 5_000))
    flush, append = watched.ended
    assert (flush.name, append.name) == ("node log flush", "node log append")
    assert took_us(flush) == 3_000
    assert took_us(append) == waited_us


def took_us(span: ReadableSpan) -> int:
    assert span.start_time is not None
    assert span.end_time is not None
    return (span.end_time - span.start_time) // 1000


def test_links_are_bounded() -> None:
    watched = Watched()
    flushed(watched, LINKS_MAX + 10)
    spans = [it for it in watched.ended if "log" in it.name]
    assert len(spans) == LINKS_MAX
    assert len(spans[0].links) == LINKS_MAX - 1


def test_a_frame_without_traced_requests_passes_unchanged() -> None:
    watched, answers = Watched(), Answers()
    bare: list[Any] = [(1, COMMIT), (2, lookup())]
    replier, envelopes = ServerTracing(watched.spans, "node").open(answers, bare)
    assert replier is answers
    assert envelopes is bare
    assert flushed(watched, 0).replies == [(1, DONE)]
    assert watched.ended == ()


def test_the_span_of_a_refused_request_has_its_error() -> None:
    watched, answers = Watched(), Answers()
    made = ServerTracing(watched.spans, "node")
    replier, _ = made.open(answers, [(7, Traced(CONTEXT, lookup()))])
    replier.reply(7, Failure("row_blocked", "x"))
    replier.reply(8, DONE)
    assert attributes(watched.ended[0])["error.type"] == "row_blocked"
    assert len(answers.replies) == 2


def lookup() -> Lookup:
    return Lookup(*TABLET, SYNC_LAST_COMMITTED, (Key(b"k"),), 1)


# ---- a gateway's requests


async def test_a_request_and_its_log_lines_continue_the_trace_of_the_caller() -> None:
    watched = Watched()
    lines: list[str] = []

    class Kept(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            lines.append(self.format(record))

    async def fail(scope: Any, receive: Any, send: Any) -> None:
        raise ValueError("the insides")

    handler, logger = Kept(), logging.getLogger("dodona.gateway")
    handler.setFormatter(JsonLines("gateway"))
    edge = edge_of(fail)
    edge._tracing = RequestTracing(watched.spans)
    contexts = [*logs._contexts]
    logs.add_context(current_ids)
    logger.addHandler(handler)
    try:
        header = (b"traceparent", CONTEXT.encode())
        exchange = await Exchange().go(edge, "/v1/x", (b"authorization", b"Bearer good"), header)
    finally:
        logger.removeHandler(handler)
        await Exchange().go(edge, "/readyz")
        logs._contexts[:] = contexts
    (span,) = watched.ended
    assert exchange.headers["traceparent"] == f"{CONTEXT[:36]}{span.context.span_id:016x}-01"
    assert {json.loads(line)["trace_id"] for line in lines} == {CONTEXT[3:35]}
    assert attributes(span)["http.response.status_code"] == 500
    assert attributes(span)["dodona.request_id"] == exchange.headers["x-request-id"]
    assert not span.status.is_ok
    assert current_ids() == {}, "the span is over"
