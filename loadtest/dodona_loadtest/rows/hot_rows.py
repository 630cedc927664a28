"""Increments of ten rows, and of one, by many callers: how many succeed, and how late."""

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

ONE_ROW: Final = Row(
    name="one-row",
    title="Increments of one row, each run again for up to 10 s: one client process",
    fairness=(
        "All synced to disk before the answer; the time of an operation is that of all its "
        "attempts. Dodona calls `run_in_transaction`: an attempt that loses is followed by a pause "
        "and a new one. Those that gave up are named below the table, and their times are not in "
        "it. Embedded, there is no network. PostgreSQL is at READ COMMITTED and reads FOR UPDATE: "
        "all wait in line for the row's lock. The increments are added up at the end."
    ),
    contenders=(
        Contender("Dodona", dodona_rows.serve_one_row),
        Contender("Dodona, locked first", dodona_rows.serve_one_line),
        Contender("Dodona embedded", dodona_rows.open_one_row),
        Contender("PostgreSQL, FOR UPDATE", postgres_rows.serve_one_row),
    ),
    callers=(1, 64),
    callers_quick=(64,),
    goals=(Goal(64, not_below="PostgreSQL, FOR UPDATE", times=2),),
)

LINE_ROW: Final = Row(
    name="hot-lines",
    title="Increments of ten hot rows, by callers that wait in line: one client process",
    fairness=(
        "All synced to disk before the answer. Dodona locks the row before the transaction begins, "
        "or calls `run_in_transaction`, which does so after some conflicts. PostgreSQL is at READ "
        "COMMITTED and reads FOR UPDATE. Those that gave up are named below the table. The "
        "increments are added up at the end."
    ),
    contenders=(
        Contender("Dodona, locked first", dodona_rows.serve_hot_lines),
        Contender("Dodona, run again", dodona_rows.serve_hot_reruns),
        Contender("PostgreSQL, FOR UPDATE", postgres_rows.serve_hot_lines),
    ),
    callers=(32, 64),
    callers_quick=(32,),
    goals=(
        Goal(32, not_below="PostgreSQL, FOR UPDATE", times=3),
        Goal(64, not_below="PostgreSQL, FOR UPDATE", times=3),
    ),
)
