"""Traces of a server: its spans, and what looks at the frames and flushes of a node.

Imports nothing of OpenTelemetry unless the server traces (see `tracing`).
"""

from typing import TYPE_CHECKING

from dodona_server.logs import add_context
from dodona_wire.net.tracing import exported_spans

if TYPE_CHECKING:
    from dodona_server.traced_server import ServerTracing
    from dodona_wire.net.spans import Spans


def server_spans(
    server: str, url: str | None, ratio: float | None, **attributes: int
) -> "Spans | None":
    """Of a server that traces, else None: then lines of its log name the span that they are written
    in. Raises InvalidRequest if it can't."""
    spans = exported_spans(server, url, ratio, attributes)
    if spans is not None:
        from dodona_wire.net.spans import current_ids

        add_context(current_ids)
    return spans


def server_tracing(spans: "Spans", server: str) -> "ServerTracing":
    """What looks at the frames and flushes of a node."""
    from dodona_server.traced_server import ServerTracing

    return ServerTracing(spans, server)
