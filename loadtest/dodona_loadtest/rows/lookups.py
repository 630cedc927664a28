"""Lookups at a snapshot: of one key a call, and of a hundred."""

from typing import Final

from dodona_loadtest.harness.durability import READS
from dodona_loadtest.harness.row import Contender, Goal, Row
from dodona_loadtest.peers import dodona_rows, postgres_rows

FAIRNESS: Final = (
    "Random keys of 100,000 rows that are in memory; every key is there. Dodona reads at one "
    "timestamp for all calls, PostgreSQL takes a snapshot for each statement; both give rows as "
    "Python objects."
)

ROW: Final = Row(
    name="lookups",
    title="Lookups of one key at a snapshot: one node, one client process",
    fairness=FAIRNESS,
    contenders=(
        Contender("Dodona", dodona_rows.serve_lookups, READS),
        Contender("PostgreSQL select", postgres_rows.serve_lookups, READS),
    ),
    callers=(1, 16, 64),
    callers_quick=(64,),
    goals=(Goal(64, rate_min=60_000),),
)

WIDE_ROW: Final = Row(
    name="wide-lookups",
    title="Lookups of 100 keys at a snapshot: one node, one client process",
    fairness=f"{FAIRNESS} What is counted are calls: a hundred keys each.",
    contenders=(
        Contender("Dodona", dodona_rows.serve_wide_lookups, READS),
        Contender("PostgreSQL select", postgres_rows.serve_wide_lookups, READS),
    ),
    callers=(1, 16),
    callers_quick=(16,),
    goals=(Goal(16, rate_min=4_000),),
)
