"""Row 5: atomic durable commits of two rows on two nodes."""

from typing import Final

from dodona_loadtest.harness.row import Contender, Goal, Row
from dodona_loadtest.peers import dodona, postgres

ROW: Final = Row(
    name="two-node-commits",
    title="Atomic durable commits of two rows on two nodes: one client process",
    fairness=(
        "Two-phase commit over two servers each. PostgreSQL is driven with the fewest round trips "
        "it allows, logs no decision, and readers may see half of a commit; Dodona logs its "
        "decision, and every reader sees all or nothing."
    ),
    contenders=(
        Contender("Dodona", dodona.serve_two_node_commits),
        Contender("two PostgreSQL, 2PC", postgres.serve_two_phase),
    ),
    callers=(1, 16, 64),
    callers_quick=(1, 64),
    goals=(Goal(64, rate_min=6_000, not_below="two PostgreSQL, 2PC", times=2),),
)
