"""Dodona's workers of the work queue: early locks that skip the jobs of other workers.

The pattern is that of the guide "Build a work queue". A worker looks for jobs, and locks one that
is free before its transaction begins. It writes the result and deletes the job in one commit. The
guide looks with a query, which reads the whole queue. `Looker` reads a range of keys, and works
through a hundred of the jobs that it has seen.
"""

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any, Final

import dodona.aio
from dodona_loadtest.harness.load import AsyncOperation
from dodona_loadtest.harness.row import Running
from dodona_loadtest.peers.dodona import open_cluster, pids_of, version
from dodona_loadtest.peers.dodona_rows import ClusterLoad
from dodona_loadtest.peers.jobs import BATCH_JOBS, Jobs, rows_of
from dodona_wire.errors import DodonaError

QUEUE: Final = "//bench/queue"
DONE: Final = "//bench/done"
SCHEMA: Final[list[dict[str, Any]]] = [
    {"name": "id", "type": "int64", "sort_order": "ascending"},
    {"name": "text", "type": "utf8"},
]
NEXT: Final = f"select id from [{QUEUE}] order by id limit 100"
KEPT_JOBS: Final = 100
"""Jobs that a worker has in mind after one look."""
OFFERED_JOBS: Final = 5
"""Jobs of which a worker locks the first free one."""

Keys = list[dict[str, int]]


@contextmanager
def serve_work_queue(folder: Path) -> Iterator[Running]:
    """Take jobs out of a queue, with one look for many jobs."""
    with open_cluster(folder) as cluster:
        yield Running(QueueLoad(cluster.master_url), version(), pids_of(cluster))


@contextmanager
def serve_queried_queue(folder: Path) -> Iterator[Running]:
    """Take jobs out of a queue, with a query for each job."""
    with open_cluster(folder) as cluster:
        yield Running(QueriedQueueLoad(cluster.master_url), version(), pids_of(cluster))


class QueueLoad(ClusterLoad):
    """begin with a lock on one free job, lookup_rows, insert_rows, delete_rows, commit."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self._jobs = Jobs()
        self._lookers: dict[int, Looker] = {}
        """By caller: a worker keeps what it has seen from one measurement to the next."""

    async def open(self, callers_max: int) -> None:
        await super().open(callers_max)
        for path in (QUEUE, DONE):
            await self._db.create_table(path, schema=SCHEMA, mount=True)
        for batch in self._jobs.first_batches():
            await self._db.insert_rows(QUEUE, rows_of(batch))

    def operation(self, caller: int) -> AsyncOperation:
        looker = self._lookers.setdefault(caller, Looker(self._db, Random(caller)))
        return self._worker(looker.offer, looker.drop)

    async def check(self) -> None:
        done, left = [
            (await self._db.read_arrow(path, columns=["id"]))["id"].to_pylist()
            for path in (DONE, QUEUE)
        ]
        self._jobs.check(done, left)

    def _worker(
        self, offer: Callable[[], Awaitable[Keys]], drop: Callable[[Keys, Keys], None]
    ) -> AsyncOperation:
        """Return a worker. `offer` finds jobs that may be free. `drop` gets these jobs, and the job
        of them that the worker has locked."""

        async def work() -> None:
            while True:
                offered = await offer()
                try:
                    job = await self._do_one(offered, drop)
                except DodonaError as error:
                    if not error.is_retryable:
                        raise
                else:
                    if job is not None:
                        break
            batch = self._jobs.finish(job)
            if batch is not None:
                await self._db.insert_rows(QUEUE, rows_of(batch))

        return work

    async def _do_one(self, offered: Keys, drop: Callable[[Keys, Keys], None]) -> int | None:
        """Do the first free job. Return None if there is none, or another worker has done it."""
        async with self._db.begin(locks={QUEUE: offered}, skip_locked=1) as tx:
            locked = tx.locked_rows[QUEUE]
            drop(offered, locked)
            jobs = await tx.lookup_rows(QUEUE, locked) if locked else []
            if jobs:
                await tx.insert_rows(DONE, jobs)
                await tx.delete_rows(QUEUE, locked)
        return jobs[0]["id"] if jobs else None


class QueriedQueueLoad(QueueLoad):
    """The guide's worker: a query for each job, and a lock on the first free one of a hundred."""

    def operation(self, caller: int) -> AsyncOperation:
        async def offer() -> Keys:
            found: Keys = (await self._db.query(NEXT)).to_pylist()
            return found

        return self._worker(offer, lambda offered, locked: None)


class Looker:
    """A worker that reads the keys of the next jobs, and works through some of them. It begins at a
    place of its own, so that workers seldom meet."""

    def __init__(self, db: dodona.aio.AsyncClient, random: Random) -> None:
        self._db = db
        self._random = random
        self._low = 0
        """Below this key, all jobs were done."""
        self._kept: Keys = []

    async def offer(self) -> Keys:
        """Return jobs that were there at the last look, oldest first."""
        if not self._kept:
            await self._look()
        return self._kept[:OFFERED_JOBS]

    def drop(self, offered: Keys, locked: Keys) -> None:
        """Forget the locked job, and the jobs before it, which other workers have."""
        passed = offered.index(locked[0]) + 1 if locked else len(offered)
        del self._kept[:passed]

    async def _look(self) -> None:
        while True:
            ends = [self._low], [self._low + BATCH_JOBS]
            found = (await self._db.read_arrow(QUEUE, *ends, columns=["id"])).to_pylist()
            if found:
                break
            self._low += BATCH_JOBS  # more than a batch of jobs always waits
        self._low = found[0]["id"]
        place = self._random.randrange(max(1, len(found) - KEPT_JOBS))
        self._kept = found[place : place + KEPT_JOBS]
