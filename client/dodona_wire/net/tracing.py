"""Decide whether this process makes traces, and through which provider. Free when off.

Owns: this one decision, made where a client connects or a server starts. A server traces if its
`trace_url` is set. A client traces if `DODONA_TRACE_URL` is set, or if its program has set up
OpenTelemetry. Both trace if the environment names a collector in OpenTelemetry's own words
(`OTEL_EXPORTER_OTLP_ENDPOINT`, or `OTEL_EXPORTER_OTLP_TRACES_ENDPOINT`). `OTEL_SDK_DISABLED` and
`OTEL_TRACES_EXPORTER=none` switch tracing off again. OpenTelemetry is not imported before that. A
process that traces uses other classes. So a process that does not trace has no branch for traces,
except one a frame in a server.
"""

import functools
import logging
import os
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from dodona_wire.errors import InvalidRequest

if TYPE_CHECKING:
    from dodona_wire.net.spans import Spans

URL: Final = "DODONA_TRACE_URL"
RATIO: Final = "DODONA_TRACE_RATIO"
_ENDPOINTS: Final = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
_MISSING: Final = "tracing needs more packages: install dodona[tracing]"

_logger: Final = logging.getLogger("dodona.tracing")


def exported_spans(
    server: str, url: str | None, ratio: float | None, attributes: Mapping[str, int]
) -> "Spans | None":
    """Return the spans of a process that exports them, else None. Raises InvalidRequest."""
    return _make(server, url, ratio, attributes) if _is_wanted(url) else None


def client_spans() -> "Spans | None":
    """Return the spans of a client whose program traces, else None. Raises InvalidRequest."""
    trace = sys.modules.get("opentelemetry.trace")
    if trace is not None and _has_provider(trace):
        return _make("client", None, None, {}, is_program_s=True)
    url, ratio = os.environ.get(URL), os.environ.get(RATIO)
    if not _is_wanted(url):
        return None
    try:
        share = None if ratio is None else _number(ratio)
        return _shared(os.getpid(), url, share, *map(os.environ.get, _ENDPOINTS))
    except InvalidRequest as error:
        if url is not None:
            raise
        _logger.warning("%s (the environment switches tracing on)", error.message)
        return None


@functools.cache
def _shared(
    process_id: int, url: str | None, ratio: float | None, *endpoints: str | None
) -> "Spans":
    """Return one object for all clients of a process with the same settings, since each has a
    thread until the end. A forked child has its own, because a connection can't be shared."""
    del process_id, endpoints
    return _make("client", url, ratio, {})


def _is_wanted(url: str | None) -> bool:
    environment = os.environ
    is_off = environment.get("OTEL_SDK_DISABLED", "").lower() == "true"
    if is_off or environment.get("OTEL_TRACES_EXPORTER", "otlp") != "otlp":
        return False
    return bool(url) or any(environment.get(name) for name in _ENDPOINTS)


def _has_provider(trace: Any) -> bool:
    """Return whether the program has set a provider that makes spans."""
    provider = trace.get_tracer_provider()
    return not isinstance(provider, trace.ProxyTracerProvider | trace.NoOpTracerProvider)


def _number(ratio: str) -> float:
    try:
        number = float(ratio)
    except ValueError:
        number = -1.0
    if not 0 <= number <= 1:
        raise InvalidRequest(f"{RATIO} must be a number from 0 to 1, not {ratio[:20]!r}")
    return number


def _make(
    server: str,
    url: str | None,
    ratio: float | None,
    attributes: Mapping[str, int],
    *,
    is_program_s: bool = False,
) -> "Spans":
    try:
        from dodona_wire.net.spans import Spans
    except ImportError as error:
        raise InvalidRequest(_MISSING) from error
    if is_program_s:
        return Spans.of_program()
    return Spans.exported(server, url, ratio, attributes)
