"""Define the metrics of a gateway, in a table.

Owns: the names of the metrics. A source is an attribute of the report that `gateway` makes for a
scrape, as `dodona_server.metrics` says.
"""

from typing import Final

from dodona_server.metrics import MICROSECONDS, Metric, server_metrics

GATEWAY_METRICS: Final[tuple[Metric, ...]] = (
    *server_metrics("gateway"),
    Metric(
        "requests",
        "counter",
        "Requests that ended, by class of route (rows, transactions, bulk, tables, nodes, "
        "tokens, query, ytsaurus, console, pages, other), method and status; the status is 0 if "
        "the caller had gone before there was an answer",
        "traffic.requests",
        ("route", "method", "status"),
    ),
    Metric(
        "request_seconds",
        "histogram",
        "How long requests took, from their headers to the end of the answer, by class of route",
        "traffic.durations_us",
        ("route",),
        per=MICROSECONDS,
    ),
    Metric("connections", "gauge", "Open connections", "connections"),
    Metric("requests_in_flight", "gauge", "Requests under way", "requests_in_flight"),
    Metric(
        "received_bytes",
        "counter",
        "Bytes of requests' bodies, by class of route",
        "traffic.received_bytes",
        ("route",),
    ),
    Metric(
        "sent_bytes",
        "counter",
        "Bytes of answers' bodies, by class of route",
        "traffic.sent_bytes",
        ("route",),
    ),
    Metric(
        "refusals",
        "counter",
        "Refusals by reason: the token is not good (unauthenticated), or does not allow the call "
        "(forbidden), or there were too many requests, bytes or connections (overloaded). Before "
        "there was a whole request: the bytes were no HTTP (garbled), or the headers were too "
        "slow (late) or too_long",
        "refusals",
        ("reason",),
    ),
    Metric(
        "transactions",
        "gauge",
        "Transactions that the gateway holds for callers",
        "transactions_held",
    ),
    Metric(
        "transactions_bytes", "gauge", "Size of the rows in held transactions", "transactions_bytes"
    ),
    Metric(
        "transactions_ended",
        "counter",
        "Held transactions that ended, by outcome: committed, failed (in their commit), aborted, "
        "or expired",
        "transactions_ended",
        ("outcome",),
    ),
    Metric(
        "work",
        "gauge",
        "Heavy work by kind (queries, streams) and state (running, waiting)",
        "work",
        ("kind", "state"),
    ),
)
