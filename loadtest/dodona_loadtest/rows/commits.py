"""Row 2: atomic durable commits of one row, on one node."""

from typing import Final

from dodona_loadtest.harness.row import Contender, Goal, Row
from dodona_loadtest.peers import dodona, etcd, postgres

ROW: Final = Row(
    name="commits",
    title="Atomic durable commits of one row: one node, one client process",
    fairness=(
        "All synced to disk before the answer. Dodona's is a whole transaction with a start and a "
        "commit timestamp from the oracle; PostgreSQL's a prepared upsert that commits by itself, "
        "a connection for each caller; etcd's a put."
    ),
    contenders=(
        Contender("Dodona", dodona.serve_commits),
        Contender("PostgreSQL upsert", postgres.serve_upserts),
        Contender("etcd put", etcd.serve_puts),
    ),
    callers=(1, 16, 64),
    callers_quick=(1, 64),
    goals=(Goal(1, latency_ms_p50_max=1.0), Goal(64, rate_min=15_000)),
)
