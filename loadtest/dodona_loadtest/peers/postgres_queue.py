"""PostgreSQL's workers of the work queue: SELECT FOR UPDATE SKIP LOCKED.

A worker needs four round trips for a job. The result and the removal of the job are one statement.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from dodona_loadtest.harness.load import AsyncOperation
from dodona_loadtest.harness.row import Running
from dodona_loadtest.peers.jobs import Jobs, rows_of
from dodona_loadtest.peers.postgres import ConnectionsLoad, server, version

CREATE: Final = (
    "CREATE TABLE queue (id bigint PRIMARY KEY, text text)",
    "CREATE TABLE done (id bigint PRIMARY KEY, text text)",
)
PUT: Final = "INSERT INTO queue (id, text) SELECT * FROM unnest($1::bigint[], $2::text[])"
TAKE: Final = "SELECT id, text FROM queue ORDER BY id LIMIT 1 FOR UPDATE SKIP LOCKED"
FINISH: Final = (
    "WITH job AS (DELETE FROM queue WHERE id = $1 RETURNING id, text) "
    "INSERT INTO done (id, text) SELECT id, text FROM job"
)


@contextmanager
def serve_work_queue(folder: Path) -> Iterator[Running]:
    """Take jobs out of a queue."""
    with server(folder) as served:
        yield Running(QueueLoad(served.port), version(), (served.pid,))


class QueueLoad(ConnectionsLoad):
    """BEGIN, a prepared SELECT FOR UPDATE SKIP LOCKED, a prepared DELETE and INSERT, COMMIT."""

    def __init__(self, port: int) -> None:
        super().__init__(port)
        self._jobs = Jobs()

    async def open(self, callers_max: int) -> None:
        await super().open(callers_max)
        for statement in CREATE:
            await self._connections[0].execute(statement)
        self._puts = await self.prepare(PUT)
        for batch in self._jobs.first_batches():
            await self._put(0, batch)
        await self._connections[0].execute("VACUUM ANALYZE queue")
        self._takes = await self.prepare(TAKE)
        self._finishes = await self.prepare(FINISH)

    async def _put(self, caller: int, batch: range) -> None:
        rows = rows_of(batch)
        await self._puts[caller].fetch([it["id"] for it in rows], [it["text"] for it in rows])

    def operation(self, caller: int) -> AsyncOperation:
        connection, jobs = self._connections[caller], self._jobs
        take, finish = self._takes[caller].fetchrow, self._finishes[caller].fetchval

        async def work() -> None:
            async with connection.transaction():
                job = await take()
                await finish(job["id"])
            batch = jobs.finish(job["id"])
            if batch is not None:
                await self._put(caller, batch)

        return work

    async def check(self) -> None:
        done, left = [
            [row["id"] for row in await self._connections[0].fetch(f"SELECT id FROM {name}")]
            for name in ("done", "queue")
        ]
        self._jobs.check(done, left)
