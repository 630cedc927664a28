"""Whether traces are made, and by whom; and what leaves the process."""

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult
from opentelemetry.trace import SpanKind

from dodona._core.protocol.routing import Routing
from dodona._io import making_drivers
from dodona._io.drivers import AsyncioDriver, BlockingDriver
from dodona._io.traced_client import TracedAsyncioDriver, TracedPeer
from dodona.errors import InvalidRequest
from dodona_server import logs
from dodona_server.tracing import server_spans
from dodona_tablets.shell.settings import NodeSettings
from dodona_wire.net import tracing
from dodona_wire.net.spans import Spans, current_ids

pytestmark = pytest.mark.anyio

CONTEXT = f"00-{'a' * 32}-{'b' * 16}-01"


# ---- off, unless asked for


@pytest.mark.integration
@pytest.mark.part("a program that traces")
@pytest.mark.parametrize(
    ("modules", "forbidden"),
    [
        ("dodona, dodona._io.making_drivers, dodona._io.drivers", "opentelemetry"),
        # FastAPI imports the interface, if it is there.
        ("dodona_oracle.shell.master, dodona_oracle.shell.proxy", "opentelemetry.sdk"),
        ("dodona_tablets.shell.service", "opentelemetry.sdk"),
        ("dodona_gateway.shell.gateway", "opentelemetry.sdk"),
    ],
)
def test_a_process_without_tracing_does_not_import_the_opentelemetry_sdk(
    modules: str, forbidden: str
) -> None:
    code = f"""
import sys, {modules}
from dodona._core.protocol.routing import Routing
from dodona._io.making_drivers import blocking_driver
from dodona_server.tracing import server_spans
from dodona._io.drivers import BlockingDriver
driver = blocking_driver("http://127.0.0.1:9", Routing())
assert type(driver) is BlockingDriver
assert server_spans("node", None, None) is None
driver.close()
print([name for name in sys.modules if name.startswith("{forbidden}")])
"""
    ended = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False
    )
    assert (ended.stdout, ended.stderr) == ("[]\n", "")


@pytest.fixture(autouse=True)
def afresh() -> Iterator[None]:
    """Nobody has traced before."""
    tracing._shared.cache_clear()
    yield
    tracing._shared.cache_clear()


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    """What would have been made, in a process that has set up nothing."""
    calls: list[tuple[Any, ...]] = []

    def make(*arguments: Any, is_program_s: bool = False) -> None:
        calls.append((*arguments, is_program_s))

    monkeypatch.setattr(tracing, "_make", make)
    for name in ("DODONA_TRACE_URL", "OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_SDK_DISABLED"):
        monkeypatch.delenv(name, raising=False)
    return calls


@pytest.mark.parametrize(
    ("environment", "is_made"),
    [
        ({}, False),
        ({"DODONA_TRACE_URL": "http://c:4318"}, True),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4318"}, True),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://c:4318"}, True),
        ({"DODONA_TRACE_URL": "http://c:4318", "OTEL_SDK_DISABLED": "TRUE"}, False),
        ({"DODONA_TRACE_URL": "http://c:4318", "OTEL_TRACES_EXPORTER": "none"}, False),
        ({"DODONA_TRACE_RATIO": "0.5"}, False),
    ],
)
def test_the_environment_decides_whether_traces_are_made(
    environment: dict[str, str],
    is_made: bool,
    made: list[tuple[Any, ...]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    tracing.client_spans()
    assert bool(made) is is_made
    made.clear()
    server_spans("node", environment.get("DODONA_TRACE_URL"), None, cell=3)
    assert bool(made) is is_made


def test_a_client_uses_the_tracer_provider_of_its_program(
    made: list[tuple[Any, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trace, "get_tracer_provider", TracerProvider)
    tracing.client_spans()
    assert made == [("client", None, None, {}, True)]
    assert isinstance(Spans.of_program(), Spans)


@pytest.mark.parametrize("ratio", ["2", "-1", "much", "nan"])
def test_a_ratio_is_checked(ratio: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DODONA_TRACE_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("DODONA_TRACE_RATIO", ratio)
    with pytest.raises(InvalidRequest, match="from 0 to 1"):
        tracing.client_spans()


def test_missing_packages_for_tracing_are_reported(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setitem(sys.modules, "dodona_wire.net.spans", None)
    with pytest.raises(InvalidRequest, match=r"dodona\[tracing\]"):
        server_spans("node", "http://127.0.0.1:9", None)
    monkeypatch.setenv("DODONA_TRACE_URL", "http://127.0.0.1:9")
    with pytest.raises(InvalidRequest, match=r"dodona\[tracing\]"):
        tracing.client_spans()
    monkeypatch.delenv("DODONA_TRACE_URL")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:9")
    assert tracing.client_spans() is None  # it was not Dodona that was asked
    assert "dodona[tracing]" in caplog.text


def test_the_help_of_the_trace_ratio_states_that_nodes_begin_no_trace() -> None:
    """What they do with a request that has none is in `test_tracing`."""
    text = NodeSettings.model_fields["trace_ratio"].description
    assert text is not None
    assert "A node traces only requests that come with a trace" in text


# ---- the exporter


class Failing(SpanExporter):
    def __init__(self) -> None:
        self.count = 0

    def export(self, spans: Any) -> SpanExportResult:
        self.count += 1
        raise OSError("the collector is gone")

    def shutdown(self) -> None: ...


@pytest.fixture
def contexts() -> Iterator[None]:
    kept = [*logs._contexts]
    yield
    logs._contexts[:] = kept


@pytest.mark.usefixtures("contexts")
async def test_a_failing_span_exporter_raises_no_error(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("OTEL_BSP_MAX_QUEUE_SIZE", "20")
    monkeypatch.setenv("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "10")
    exporter = Failing()
    spans = Spans.exported("node", None, 1.0, {"cell": 3}, exporter)
    for _ in range(1_000):
        spans.begin("x", SpanKind.SERVER, {}).end()
    await spans.close()
    assert exporter.count > 0


@pytest.mark.integration
@pytest.mark.part("a program that traces")
def test_a_program_ends_soon_if_its_trace_collector_does_not_answer() -> None:
    code = """
from opentelemetry.trace import SpanKind
from dodona_wire.net.tracing import client_spans
spans = client_spans()
for _ in range(0 if spans is None else 1_500):
    spans.begin("x", SpanKind.CLIENT, {}).end()
"""

    def seconds(**environment: str) -> float:
        began = time.monotonic()
        given = {**os.environ, **environment}
        subprocess.run([sys.executable, "-c", code], env=given, capture_output=True, check=True)
        return time.monotonic() - began

    usual = seconds(DODONA_TRACE_URL="")
    assert seconds(DODONA_TRACE_URL="http://127.0.0.1:9") < 3 * usual + 10


@pytest.mark.usefixtures("contexts")
async def test_tracing_adds_span_ids_to_the_log_lines_of_a_server() -> None:
    assert current_ids not in logs._contexts
    spans = server_spans("node", "http://127.0.0.1:9", None)
    assert spans is not None
    assert current_ids in logs._contexts
    await spans.close()


@pytest.mark.usefixtures("contexts")
async def test_a_share_of_traces_is_made() -> None:
    spans = Spans.exported("node", "http://127.0.0.1:9", 0.0, {})
    assert not spans.begin("x", SpanKind.SERVER, {}).is_recording()
    assert spans.begin("x", SpanKind.SERVER, {}, CONTEXT).is_recording()
    await spans.close()


def exporting_count() -> int:
    return sum(it.name == "OtelBatchSpanRecordProcessor" for it in threading.enumerate())


@pytest.mark.usefixtures("contexts")
async def test_clients_of_one_process_share_one_span_exporter(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("DODONA_TRACE_URL", "http://127.0.0.1:9")
    before = exporting_count()
    for _ in range(5):
        making_drivers.blocking_driver("http://127.0.0.1:9", Routing()).close()
        await making_drivers.asyncio_driver("http://127.0.0.1:9", Routing()).close()
    first = tracing.client_spans()
    assert first is not None
    assert exporting_count() - before == 1
    monkeypatch.setenv("DODONA_TRACE_RATIO", "0.5")
    other = tracing.client_spans()
    assert other is not None
    assert other is not first
    monkeypatch.setattr(os, "getpid", lambda: -1)
    child_s = tracing.client_spans()
    assert child_s is not None
    assert child_s is not other, "of a child that was forked"
    for spans in (first, other, child_s):
        await spans.close()
    assert exporting_count() == before


async def test_a_traced_driver_is_a_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    spans = Spans(TracerProvider(shutdown_on_exit=False), is_own=True)
    driver = making_drivers.asyncio_driver("http://127.0.0.1:9", Routing(), None, spans)
    assert isinstance(driver, TracedAsyncioDriver)
    assert driver.peer_type is TracedPeer
    await driver.close()
    monkeypatch.setattr(making_drivers, "client_spans", lambda: None)
    assert type(making_drivers.asyncio_driver("http://127.0.0.1:9", Routing())) is AsyncioDriver
    monkeypatch.setattr(making_drivers, "client_spans", lambda: spans)
    blocking = making_drivers.blocking_driver("http://127.0.0.1:9", Routing())
    assert isinstance(blocking, BlockingDriver)
    assert blocking.peer_type is TracedPeer
    blocking.close()
