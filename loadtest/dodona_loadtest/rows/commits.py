"""Rows 2 to 4: atomic durable commits of one row, on one node."""

from typing import Final

from dodona_loadtest.harness.row import Contender, Goal, Row
from dodona_loadtest.peers import dodona, etcd, postgres, redis

FAIRNESS: Final = (
    "All synced to disk before the answer. Dodona's is insert_rows without a transaction: an "
    "atomic one of its own, with a commit timestamp from the oracle; PostgreSQL's a prepared "
    "upsert that commits by itself, a connection for each caller; etcd's a put, Redis's "
    "a SET with its append-only file synced always, a connection for each caller."
)
PEERS: Final = (
    Contender("PostgreSQL upsert", postgres.serve_upserts),
    Contender("etcd put", etcd.serve_puts),
    Contender("Redis SET", redis.serve_sets),
)

ROW: Final = Row(
    name="commits",
    title="Atomic durable commits of one row: one node, one client process",
    fairness=FAIRNESS,
    contenders=(Contender("Dodona", dodona.serve_commits), *PEERS),
    callers=(1, 16, 64),
    callers_quick=(1, 64),
    goals=(
        Goal(1, latency_ms_p50_max=1.0),
        Goal(64, rate_min=25_000, not_below="PostgreSQL upsert", times=1.5),
    ),
)

ONE_CORE_ROW: Final = Row(
    name="commits-one-core",
    title="Atomic durable commits of one row by one caller: every process on one core",
    fairness=f"{FAIRNESS} On one core no message waits for another core to wake.",
    contenders=(Contender("Dodona", dodona.serve_commits), *PEERS),
    callers=(1,),
    callers_quick=(1,),
    goals=(Goal(1, latency_ms_p50_max=1.0),),
    pinning="shared",
)

TRANSACTIONS_ROW: Final = Row(
    name="transactions",
    title="The same commits in three calls, from begin to commit: one node, one client process",
    fairness=(
        "Dodona asks the oracle for a snapshot at begin and buffers the row until commit; "
        "PostgreSQL takes a round trip for each of BEGIN, the prepared upsert and COMMIT."
    ),
    contenders=(
        Contender("Dodona", dodona.serve_transactions),
        Contender("PostgreSQL", postgres.serve_transactions),
    ),
    callers=(1, 16, 64),
    callers_quick=(64,),
)
