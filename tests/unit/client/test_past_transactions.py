"""A transaction that reads at a timestamp of its caller's choice, without servers."""

from pathlib import Path

import pytest

import dodona.aio
from conformance.tables import PLAIN
from dodona.errors import InvalidRequest
from dodona.types import Timestamp
from unit.client.protocols import Play
from unit.client.serializable import Bench

LONG_US = 3_600_000_000


def test_no_server_takes_part_in_its_beginning_and_its_end() -> None:
    bench = Bench()
    tx = Play(bench.clock, bench.session.begin(timestamp=Timestamp(5))).result
    assert (tx.start_timestamp, tx.id, tx.reads) == (5, None, None)
    assert Play(bench.clock, bench.session.commit(tx)).result is None
    assert tx.is_committed
    assert bench.session._outcomes == {}


def test_it_may_live_for_longer_than_a_writer() -> None:
    bench = Bench()
    tx = Play(bench.clock, bench.session.begin(timestamp=Timestamp(5))).result
    bench.clock.now_us += LONG_US
    assert tx.read_timestamp() == 5
    assert Play(bench.clock, bench.session.commit(tx)).result is None


@pytest.mark.anyio
async def test_asyncio_has_such_transactions(tmp_path: Path) -> None:
    async with await dodona.aio.open(tmp_path / "db") as db:
        await db.create_table("//t", PLAIN, mount=True)
        at = await db.generate_timestamp()
        await db.insert_rows("//t", [{"k": 1, "v": 1}])
        async with db.begin(timestamp=at) as tx:
            assert list(await tx.select("//t")) == []
            with pytest.raises(InvalidRequest, match="only reads"):
                await tx.insert_rows("//t", [{"k": 1, "v": 1}])
        assert tx.state.value == "committed"
