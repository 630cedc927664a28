"""Traces of a server: its spans, and the observer of a node's frames and flushes.

Imports nothing of OpenTelemetry unless the server traces (see `dodona_wire.net.tracing`).
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
    """Return the spans of a server that traces, else None. If it traces, each line of its log names
    the span in which it was written. Raises InvalidRequest if it cannot trace."""
    spans = exported_spans(server, url, ratio, attributes)
    if spans is not None:
        from dodona_wire.net.spans import current_ids

        add_context(current_ids)
    return spans


def server_tracing(spans: "Spans", server: str) -> "ServerTracing":
    """Return the observer of a node's frames and flushes."""
    from dodona_server.traced_server import ServerTracing

    return ServerTracing(spans, server)
