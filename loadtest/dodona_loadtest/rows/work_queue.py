"""Jobs that many workers take out of one table, each exactly once."""

from typing import Final

from dodona_loadtest.harness.row import Contender, Goal, Row
from dodona_loadtest.peers import dodona_queue, postgres_queue

ROW: Final = Row(
    name="work-queue",
    title="Jobs of one table, taken out by workers: one client process",
    fairness=(
        "All synced to disk before the answer. A worker takes one job, writes a result, and "
        "deletes the job, in one transaction. 5,000 to 10,000 jobs wait. Dodona's worker reads "
        "keys of jobs, works through a hundred of them, and locks each before its transaction "
        "begins (`skip_locked=1`). With a query for each job, it looks as the guide does, and "
        "reads the whole queue each time. PostgreSQL is at READ COMMITTED, and reads FOR UPDATE "
        "SKIP LOCKED. At the end, each job was done exactly once, or still waits."
    ),
    contenders=(
        Contender("Dodona", dodona_queue.serve_work_queue),
        Contender("Dodona, a query for each job", dodona_queue.serve_queried_queue),
        Contender("PostgreSQL, SKIP LOCKED", postgres_queue.serve_work_queue),
    ),
    callers=(1, 32),
    callers_quick=(32,),
    goals=(Goal(32, not_below="PostgreSQL, SKIP LOCKED", times=2),),
)
