"""Both acknowledgements and the node's page about transactions, over real processes."""

from typing import Literal

import httpx
import pytest

import dodona
import dodona.aio
from dodona.types import CellId
from dodona_local.launcher import LocalCluster

pytestmark = pytest.mark.integration

COLUMNS = [
    {"name": "k", "type": "int64", "sort_order": "ascending"},
    {"name": "v", "type": "int64"},
]
ROWS = [{"k": 1, "v": 1}, {"k": 100, "v": 1}]


@pytest.mark.parametrize("acknowledgement", ["decided", "prepared"])
def test_a_commit_is_known_everywhere(
    cluster: LocalCluster, db: dodona.Client, acknowledgement: Literal["decided", "prepared"]
) -> None:
    path = f"//outcomes/{acknowledgement}"
    db.create_table(path, COLUMNS, pivot_keys=[[], [100]], mount=True)
    assert len({tablet.cell for tablet in db.get_table(path).tablets}) == 2
    with (
        dodona.connect(cluster.master_url, acknowledgement=acknowledgement) as writer,
        writer.begin() as tx,
    ):
        tx.insert_rows(path, ROWS)
    assert tx.id is not None
    assert list(db.select(path)) == ROWS  # which waits until both cells know
    outcome = db.outcome(tx.id)
    assert (outcome.state, outcome.timestamp) == ("committed", tx.commit_timestamp)
    for node in ("node 0", "node 1"):
        url = cluster.processes[node].url
        told = httpx.get(f"{url}/v1/transactions/{tx.id}").json()
        assert (told["state"], told["timestamp"]) == ("committed", tx.commit_timestamp)
        assert httpx.get(f"{url}/v1/transactions/none").status_code == 400


@pytest.mark.anyio
async def test_the_twin_looks_and_settles(cluster: LocalCluster, db: dodona.Client) -> None:
    tx = db.begin()
    assert tx.id is not None
    async with await dodona.aio.connect(cluster.master_url, acknowledgement="prepared") as twin:
        assert (await twin.outcome(tx.id)).state == "pending"
        assert (await twin.outcome(tx.id, CellId(0), settle=True)).state == "aborted"
