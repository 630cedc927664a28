"""What the storage studies do to a cluster, once each and small: the figures are not looked at."""

import asyncio
import time
from urllib.parse import urlsplit

import pytest

from dodona_loadtest.harness.errors import ContenderFailed
from dodona_loadtest.harness.sample_rows import SampleRows
from dodona_loadtest.peers.dodona_storage import DodonaWorker, check_in_memory
from dodona_local.launcher import LocalCluster

pytestmark = pytest.mark.integration

PATH = "//bench/small"
THERE, NEW = SampleRows(300, first=0, step=2), SampleRows(200, first=1, step=2)


def test_every_step_of_the_stories_works(cluster: LocalCluster) -> None:
    asyncio.run(_live(cluster))


async def _live(cluster: LocalCluster) -> None:
    worker = DodonaWorker(cluster.master_url)
    await worker.open()
    try:
        await worker.create(PATH)
        check_in_memory(cluster, PATH)
        assert (await worker.write_bulk(PATH, THERE)).duration_s > 0
        await worker.write_rows(PATH, NEW, padding_bytes=100)
        await worker.flush(PATH)
        with pytest.raises(ContenderFailed, match=f"{PATH} was to stay in memory"):
            check_in_memory(cluster, PATH)
        assert await worker.scan(PATH, SampleRows(400), 100, 0.0) > 0
        assert (await worker.look_up(PATH, SampleRows(400), 10, 0.05)).operations > 0
        for atomicity in ("full", "none"):
            await worker.set_atomicity(PATH, atomicity)
            assert (await worker.rewrite(PATH, SampleRows(400), 5, 2, 0.05)).operations > 0
        for kind in ("lookup", "commit"):
            await worker.start_pinging(kind, PATH, SampleRows(400))
            await asyncio.sleep(0.05)
            assert (await worker.stop_pinging()).count > 0
        await _check_awaiting(worker, cluster)
        with pytest.raises(ContenderFailed, match="a range of 100 rows had 75"):
            await worker.scan(PATH, SampleRows(101, first=350), 100, 0.0)
    finally:
        await worker.remove(PATH)
        await worker.close()


async def _check_awaiting(worker: DodonaWorker, cluster: LocalCluster) -> None:
    began = time.monotonic()
    answered = await worker.await_read(PATH, THERE.last)
    master = urlsplit(cluster.master_url)
    serves, stamped = await worker.await_timestamp(master.hostname or "", master.port or 0)
    assert began < answered <= serves <= stamped
    with pytest.raises(ContenderFailed, match="isn't there"):
        await worker.await_read(PATH, THERE.last + 1)
