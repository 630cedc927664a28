"""Increments of ten rows by many callers: what gets through."""

from typing import Final

from dodona_loadtest.harness.row import Contender, Goal, Row
from dodona_loadtest.peers import dodona_rows, postgres_rows

ROW: Final = Row(
    name="hot-rows",
    title="Increments of ten hot rows, each in a transaction that reads first: one client process",
    fairness=(
        "All synced to disk before the answer. Only increments that were committed count; those "
        "that failed since somebody was faster are named below the table, and their callers go on "
        "at once with another row. PostgreSQL is at REPEATABLE READ, which is snapshot isolation; "
        "a transaction that meets a changed row waits for its lock there, and is refused at commit "
        "here. The increments are added up at the end."
    ),
    contenders=(
        Contender("Dodona", dodona_rows.serve_hot_rows),
        Contender("PostgreSQL, REPEATABLE READ", postgres_rows.serve_hot_rows),
    ),
    callers=(1, 32),
    callers_quick=(32,),
    goals=(Goal(32, not_below="PostgreSQL, REPEATABLE READ"),),
)
