"""Make the spans of this process, and export them.

Owns: OpenTelemetry's provider, and the exporter with its queue. Spans wait in a bounded queue for a
thread that sends them by OTLP over HTTP. If the collector is slow or gone, the queue overflows and
spans are dropped. No caller waits for the collector. Import this only where traces are on: it needs
the extra `tracing`.
"""

import asyncio
import atexit
import os
import re
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib.metadata import version
from typing import Any, Final, Self
from urllib.parse import urlsplit

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.sampling import ParentBased, Sampler, TraceIdRatioBased
from opentelemetry.trace import (
    Link,
    NonRecordingSpan,
    Span,
    SpanContext,
    SpanKind,
    Status,
    StatusCode,
    TraceFlags,
)

TRACES_PATH: Final = "/v1/traces"
EXPORT_SECONDS_MAX: Final = 3.0
"""Seconds for one batch, with all retries, unless OTEL_EXPORTER_OTLP_TIMEOUT sets another time."""
CLOSE_POLL_SECONDS: Final = 0.02
CLOSE_SECONDS_MAX: Final = 3.0
LINKS_MAX: Final = 64
_TRACEPARENT: Final = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})")
_NO_PARENT: Final = Context()


class _Exporter(OTLPSpanExporter):
    """An exporter that does not delay the end of a process if the collector does not answer."""

    _has_failed = _is_closing = False

    def hurry(self) -> None:
        """Prepare for the end of the process: after a failure, drop unsent spans."""
        self._is_closing = True

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        if self._is_closing and self._has_failed:
            return SpanExportResult.FAILURE
        result = super().export(spans)
        self._has_failed = result is not SpanExportResult.SUCCESS
        return result


class Spans:
    """Makes spans. A call is cheap, and no method raises."""

    def __init__(self, provider: trace.TracerProvider, *, is_own: bool) -> None:
        """Use a provider. `is_own` says that no other code will end it."""
        self._provider = provider
        self._is_own = is_own
        self._tracer = provider.get_tracer("dodona", version("dodona"))

    @classmethod
    def of_program(cls) -> Self:
        """Return spans of the provider that the program has set."""
        return cls(trace.get_tracer_provider(), is_own=False)

    @classmethod
    def exported(
        cls,
        server: str,
        url: str | None,
        ratio: float | None,
        attributes: Mapping[str, int],
        exporter: SpanExporter | None = None,
    ) -> Self:
        """Return spans for a collector: at `url`, or where the environment says."""
        provider = TracerProvider(
            sampler=_sampler(ratio),
            resource=_resource(server, attributes),
            shutdown_on_exit=server == "client",  # servers end it themselves, in bounded time
        )
        if exporter is None:
            exporter = sender = _Exporter(endpoint=_endpoint(url), timeout=_timeout())
            atexit.register(sender.hurry)  # before the end of the provider, which registered first
        provider.add_span_processor(BatchSpanProcessor(exporter))
        return cls(provider, is_own=True)

    def begin(
        self,
        name: str,
        kind: SpanKind,
        attributes: Mapping[str, Any],
        parent: str | None = None,
    ) -> Span:
        """Begin a span below that of `parent`, a `traceparent`, or below the current span."""
        context = None if parent is None else parent_context(parent)
        return self._tracer.start_span(name, context, kind, attributes)

    def record(
        self,
        name: str,
        below: SpanContext,
        began_ns: int,
        ended_ns: int,
        attributes: Mapping[str, Any],
        links: Sequence[SpanContext] = (),
    ) -> SpanContext:
        """Record a span that is over already. Return its context."""
        context = trace.set_span_in_context(NonRecordingSpan(below), _NO_PARENT)
        shown = [Link(it) for it in links[:LINKS_MAX]]
        span = self._tracer.start_span(
            name, context, SpanKind.INTERNAL, attributes, shown, start_time=began_ns
        )
        span.end(ended_ns)
        return span.get_span_context()

    async def close(self) -> None:
        """Send the rest of the spans, for a bounded time."""
        if not self._is_own or not isinstance(self._provider, TracerProvider):
            return
        ending = threading.Thread(target=self._provider.shutdown, name="dodona-spans", daemon=True)
        ending.start()
        with suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_SECONDS_MAX):
                await _until_ended(ending)


async def _until_ended(thread: threading.Thread) -> None:
    while True:
        if not thread.is_alive():
            return
        await asyncio.sleep(CLOSE_POLL_SECONDS)


def end_span(span: Span, error: str | None, attributes: Mapping[str, Any]) -> None:
    """End a span. `error` is the kind of its error, if there was one."""
    span.set_attributes(attributes)
    if error is not None:
        span.set_attribute("error.type", error)
        span.set_status(Status(StatusCode.ERROR, error))
    span.end()


def traceparent(span: Span) -> str:
    """Return the value of W3C's header `traceparent` for calls below the span."""
    context = span.get_span_context()
    return f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"


def parent_context(header: str) -> Context:
    """Return the context in a header from elsewhere; an empty one if it is none."""
    found = _TRACEPARENT.fullmatch(header)
    if found is None or found[1] == "ff":
        return _NO_PARENT
    context = SpanContext(
        int(found[2], 16),
        int(found[3], 16),
        is_remote=True,
        trace_flags=TraceFlags(int(found[4], 16) & TraceFlags.SAMPLED),
    )
    if not context.is_valid:
        return _NO_PARENT
    return trace.set_span_in_context(NonRecordingSpan(context), _NO_PARENT)


def current_ids() -> Mapping[str, str]:
    """Return the ids of the current span, for a line of the log that is written within it."""
    context = trace.get_current_span().get_span_context()
    if not context.is_valid:
        return {}
    return {"trace_id": f"{context.trace_id:032x}", "span_id": f"{context.span_id:016x}"}


def _sampler(ratio: float | None) -> Sampler | None:
    """Return the sampler; None leaves it to the environment. A caller's trace decides first."""
    return None if ratio is None else ParentBased(TraceIdRatioBased(ratio))


def _resource(server: str, attributes: Mapping[str, int]) -> Resource:
    named = {"service.version": version("dodona")}
    is_named = "service.name" in os.environ.get("OTEL_RESOURCE_ATTRIBUTES", "")
    if not is_named and "OTEL_SERVICE_NAME" not in os.environ:
        named["service.name"] = f"dodona-{server}"
    return Resource.create({**named, **{f"dodona.{name}": it for name, it in attributes.items()}})


def _endpoint(url: str | None) -> str | None:
    if url is None or urlsplit(url).path not in ("", "/"):
        return url
    return url.rstrip("/") + TRACES_PATH


def _timeout() -> float | None:
    names = ("OTEL_EXPORTER_OTLP_TIMEOUT", "OTEL_EXPORTER_OTLP_TRACES_TIMEOUT")
    return None if any(name in os.environ for name in names) else EXPORT_SECONDS_MAX
