"""Make the driver of a client. If traces are on, the driver makes a span for each call.

The program or the environment sets this (see `tracing`). Only then are parts of OpenTelemetry
loaded.
"""

from typing import TYPE_CHECKING

from dodona._core.protocol.routing import Routing
from dodona_wire.net.cluster_key import ClusterKey
from dodona_wire.net.tracing import client_spans

if TYPE_CHECKING:
    from dodona._io.drivers import AsyncioDriver, BlockingDriver
    from dodona_wire.net.spans import Spans


def blocking_driver(url: str, routing: Routing) -> "BlockingDriver":
    """Return a driver for a blocking client. Raises InvalidRequest."""
    from dodona._io.drivers import BlockingDriver

    spans = client_spans()
    if spans is None:
        return BlockingDriver(url, routing)
    from dodona._io.traced_client import TracedBlockingDriver

    return TracedBlockingDriver(url, routing, spans)


def asyncio_driver(
    url: str, routing: Routing, key: ClusterKey | None = None, spans: "Spans | None" = None
) -> "AsyncioDriver":
    """Return a driver for an asyncio client. A server passes its own `spans`. Raises
    InvalidRequest."""
    from dodona._io.drivers import AsyncioDriver

    spans = spans or client_spans()
    if spans is None:
        return AsyncioDriver(url, routing, key)
    from dodona._io.traced_client import TracedAsyncioDriver

    return TracedAsyncioDriver(url, routing, key, spans)
