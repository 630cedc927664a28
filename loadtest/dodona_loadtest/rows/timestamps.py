"""Row 1: timestamps, each awaited by its own coroutine."""

from typing import Final

from dodona_loadtest.harness.durability import SYNCED_AHEAD
from dodona_loadtest.harness.row import Contender, Goal, Row
from dodona_loadtest.peers import dodona, etcd, postgres, redis

ROW: Final = Row(
    name="timestamps",
    title="Timestamps, each awaited by its own coroutine: one client process, through a proxy",
    fairness=(
        "No peer is an oracle. Dodona's client makes one request of all its callers that wait just "
        "then, since any part of a range will do; with the peers each value takes a round trip of "
        "its own. nextval writes its log every 32 values, and callers above 64 share 64 "
        "connections; an etcd put is durable each time, and its revision is the timestamp; Redis's "
        "INCR is in its append-only file, which is synced always, over 64 connections."
    ),
    contenders=(
        Contender("Dodona", dodona.serve_timestamps, SYNCED_AHEAD),
        Contender("PostgreSQL nextval", postgres.serve_sequence, SYNCED_AHEAD),
        Contender("etcd put", etcd.serve_revisions),
        Contender("Redis INCR", redis.serve_increments),
    ),
    callers=(1, 100, 1_000, 10_000),
    callers_quick=(1, 1_000),
    goals=(Goal(1, latency_ms_p50_max=0.2), Goal(1_000, rate_min=800_000)),
)
