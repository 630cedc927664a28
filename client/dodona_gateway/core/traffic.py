"""Count a gateway's traffic, once for each request. Pure.

Owns: the classes of routes, and the counts. All labels have few values: a value that a caller
invents (a path, a method) becomes "other".
"""

from typing import Final

import msgspec

from dodona_wire.cores.counting import DURATIONS_US, Histogram, Tally

OTHER: Final = "other"
ROUTE_BY_PREFIX: Final = {
    "/v1/rows/": "rows",
    "/v1/transactions": "transactions",
    "/v1/leases": "transactions",
    "/v1/bulk/": "bulk",
    "/v1/query": "query",
    "/v1/table": "tables",
    "/v1/timestamps": "tables",
    "/v1/cluster": "tables",
    "/v1/node": "nodes",
    "/v1/directories": "nodes",
    "/v1/token": "tokens",
    "/api": "ytsaurus",
    "/auth/": "ytsaurus",
    "/hosts": "ytsaurus",
    "/console": "console",
    "/healthz": "pages",
    "/readyz": "pages",
    "/startupz": "pages",
    "/metrics": "pages",
    "/openapi.json": "pages",
    "/version": "pages",
    "/ping": "pages",
}
ROUTES: Final = (*dict.fromkeys(ROUTE_BY_PREFIX.values()), OTHER)
METHODS: Final = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
NO_ANSWER: Final = 0
"""The status of a request whose caller had closed the connection."""
REASON_BY_STATUS: Final = {401: "unauthenticated", 403: "forbidden", 429: "overloaded"}


class TrafficStatistics(msgspec.Struct, frozen=True):
    """The counts since the start, by class of route; of requests also by method and status."""

    requests: dict[str, dict[str, dict[int, int]]]
    durations_us: dict[str, Histogram]
    received_bytes: dict[str, int]
    sent_bytes: dict[str, int]
    refusals: dict[str, int]


def route_of(path: str) -> str:
    """Return the class of a path."""
    for prefix, route in ROUTE_BY_PREFIX.items():
        if path.startswith(prefix):
            return route
    return OTHER


class Traffic:
    """The traffic of one gateway."""

    def __init__(self) -> None:
        self._requests: dict[str, dict[str, dict[int, int]]] = {}
        self._durations_us = {route: Tally(DURATIONS_US) for route in ROUTES}
        self._received_bytes = dict.fromkeys(ROUTES, 0)
        self._sent_bytes = dict.fromkeys(ROUTES, 0)
        self._refusals = dict.fromkeys(REASON_BY_STATUS.values(), 0)

    def note(
        self,
        path: str,
        method: str,
        status: int,
        duration_us: int,
        received_bytes: int,
        sent_bytes: int,
    ) -> None:
        """Count a request that has ended."""
        route = route_of(path)
        by_method = self._requests.setdefault(route, {})
        by_status = by_method.setdefault(method if method in METHODS else OTHER, {})
        by_status[status] = by_status.get(status, 0) + 1
        self._durations_us[route].add(duration_us)
        self._received_bytes[route] += received_bytes
        self._sent_bytes[route] += sent_bytes
        reason = REASON_BY_STATUS.get(status)
        if reason is not None:
            self._refusals[reason] += 1

    def statistics(self) -> TrafficStatistics:
        """Return the counts as of now."""
        return TrafficStatistics(
            requests={
                route: {method: dict(by_status) for method, by_status in by_method.items()}
                for route, by_method in self._requests.items()
            },
            durations_us={route: tally.read() for route, tally in self._durations_us.items()},
            received_bytes=dict(self._received_bytes),
            sent_bytes=dict(self._sent_bytes),
            refusals=dict(self._refusals),
        )
