"""Rows without atomicity that are acknowledged from memory: one a call, and a hundred."""

from typing import Final

from dodona_loadtest.harness.durability import LATER
from dodona_loadtest.harness.row import Contender, Goal, Row
from dodona_loadtest.peers import dodona_rows, postgres_rows

FAIRNESS: Final = (
    "Nobody waits for the disk: Dodona's rows have atomicity none and durability async, PostgreSQL "
    "has synchronous_commit off. A crash takes the last moments of either."
)

ROW: Final = Row(
    name="async-writes",
    title="Rows acknowledged from memory, one a call: one node, one client process",
    fairness=FAIRNESS,
    contenders=(
        Contender("Dodona", dodona_rows.serve_async_writes, LATER),
        Contender("PostgreSQL upsert", postgres_rows.serve_async_writes, LATER),
    ),
    callers=(1, 16, 64),
    callers_quick=(64,),
    goals=(Goal(64, rate_min=40_000),),
)

BATCHES_ROW: Final = Row(
    name="async-batches",
    title="Rows acknowledged from memory, 100 a call: one node, one client process",
    fairness=f"{FAIRNESS} What is counted are calls: a hundred rows each.",
    contenders=(
        Contender("Dodona", dodona_rows.serve_async_batches, LATER),
        Contender("PostgreSQL upsert", postgres_rows.serve_async_batches, LATER),
    ),
    callers=(1, 16),
    callers_quick=(16,),
    goals=(Goal(16, rate_min=2_000),),
)
