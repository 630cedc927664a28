"""The work queue of the benchmark: each job exactly once, or its contender has no figures."""

import asyncio
from pathlib import Path
from random import Random
from typing import Any, cast

import pyarrow
import pytest

from dodona_loadtest.harness.errors import ContenderFailed
from dodona_loadtest.peers.dodona import open_cluster
from dodona_loadtest.peers.dodona_queue import (
    DONE,
    KEPT_JOBS,
    OFFERED_JOBS,
    QUEUE,
    Looker,
    QueueLoad,
)
from dodona_loadtest.peers.jobs import BATCH_JOBS, Jobs, rows_of


def _begun() -> tuple[Jobs, list[int]]:
    """Jobs that wait, and none done."""
    jobs = Jobs()
    return jobs, [job for batch in jobs.first_batches() for job in batch]


def test_the_next_batch_comes_when_a_batch_is_done() -> None:
    jobs, waiting = _begun()
    assert waiting == list(range(2 * BATCH_JOBS))
    batches = [jobs.finish(job) for job in waiting[:BATCH_JOBS]]
    assert batches == [None] * (BATCH_JOBS - 1) + [range(2 * BATCH_JOBS, 3 * BATCH_JOBS)]
    assert rows_of(range(7, 9))[1]["id"] == 8


def test_a_job_is_done_exactly_once_or_still_waits() -> None:
    jobs, waiting = _begun()
    for job in (3, 1, 2):
        jobs.finish(job)
    left = [job for job in waiting if job not in (1, 2, 3)]
    jobs.check([1, 2, 3], left)
    with pytest.raises(ContenderFailed, match="job 3 was acknowledged or is in the results"):
        jobs.check([1, 2], left)
    with pytest.raises(ContenderFailed, match="job 0 was acknowledged or is in the results"):
        jobs.check([0, 1, 2, 3], left[1:])
    with pytest.raises(ContenderFailed, match="job 2 was done, and still waits"):
        jobs.check([1, 2, 3], [2, *left])
    with pytest.raises(ContenderFailed, match="of 10000 jobs 3 were done, and 9996 wait"):
        jobs.check([1, 2, 3], left[1:])
    jobs.finish(1)
    with pytest.raises(ContenderFailed, match="job 1 was done twice"):
        jobs.check([1, 2, 3], left)


class _Keys:
    """The queue, as a worker reads its keys."""

    def __init__(self, ids: list[int]) -> None:
        self.ids = ids
        self.looks = 0

    async def read_arrow(
        self, path: str, lower: list[int], upper: list[int], columns: list[str]
    ) -> pyarrow.Table:
        assert (path, columns) == (QUEUE, ["id"])
        self.looks += 1
        return pyarrow.table({"id": [it for it in self.ids if lower[0] <= it < upper[0]]})


def test_a_worker_looks_once_for_many_jobs_and_passes_those_of_others() -> None:
    keys = _Keys(list(range(2 * BATCH_JOBS + 10, 3 * BATCH_JOBS)))
    looker = Looker(cast(Any, keys), Random(2013))

    async def live() -> int:
        offered = await looker.offer()
        assert [it["id"] for it in offered] == list(
            range(offered[0]["id"], offered[0]["id"] + OFFERED_JOBS)
        )
        looks, seen = keys.looks, 0
        while keys.looks == looks:
            offered = await looker.offer()
            looker.drop(offered, offered[1:2])  # another worker has the first one
            seen += 2
        return seen

    assert KEPT_JOBS <= asyncio.run(live()) <= KEPT_JOBS + 2


@pytest.mark.integration
def test_a_job_that_was_lost_on_the_way_is_noticed(open_folder: Path) -> None:
    async def live(url: str) -> None:
        load = QueueLoad(url)
        await load.open(2)
        try:
            await asyncio.gather(*(load.operation(caller)() for caller in range(2)))
            await load.check()
            await load._db.delete_rows(DONE, [{"id": load._jobs.finished[0]}])
            await load.check()
        finally:
            await load.close()

    with open_cluster(open_folder) as cluster, pytest.raises(ContenderFailed, match="not both"):
        asyncio.run(live(cluster.master_url))
