"""Row 1: timestamps, each awaited by its own coroutine."""

from typing import Final

from dodona_loadtest.harness.row import Contender, Goal, Row
from dodona_loadtest.peers import dodona, etcd, postgres

ROW: Final = Row(
    name="timestamps",
    title="Timestamps, each awaited by its own coroutine: one client process, through a proxy",
    fairness=(
        "No peer is an oracle. nextval writes its log every 32 values, and callers above 64 share "
        "64 connections; an etcd put is durable each time, and its revision is the timestamp."
    ),
    contenders=(
        Contender("Dodona", dodona.serve_timestamps),
        Contender("PostgreSQL nextval", postgres.serve_sequence),
        Contender("etcd put", etcd.serve_revisions),
    ),
    callers=(1, 100, 1_000, 10_000),
    callers_quick=(1, 1_000),
    goals=(Goal(1, latency_ms_p50_max=0.3), Goal(1_000, rate_min=500_000)),
)
