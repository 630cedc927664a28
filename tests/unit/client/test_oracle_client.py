"""Timestamps for many callers: shared requests, monotonic answers, proxies that fail."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import pytest

from dodona._io import oracle as oracle_module
from dodona._io.oracle import OracleClient
from dodona.errors import DataCorrupted, InvalidRequest, Overloaded, Unavailable
from dodona.types import Timestamp
from dodona_wire.messages.base import Failure
from dodona_wire.messages.data import DataReply, GenerateTimestamps, TimestampRange
from suite.waiting import WAIT_S_MAX, until
from unit.client.endpoint import Endpoint, Timestamps, serving

pytestmark = pytest.mark.anyio


@asynccontextmanager
async def asking(*endpoints: Endpoint, timeout_ms: int = 10_000) -> AsyncIterator[OracleClient]:
    client = OracleClient([it.address for it in endpoints], timeout_ms=timeout_ms)
    try:
        yield client
    finally:
        await client.close()


async def iterations(count: int) -> None:
    """Of the event loop."""
    for _ in range(count):
        await asyncio.sleep(0)


async def test_callers_of_one_iteration_share_a_request() -> None:
    timestamps = Timestamps()
    async with serving(timestamps) as endpoint, asking(endpoint) as oracle:
        got = await asyncio.gather(*[oracle.generate() for _ in range(1_000)])
        assert got == list(range(1_000, 2_000))
        assert timestamps.counts == [1_000]


async def test_callers_that_arrive_during_a_timestamp_request_share_the_next_one() -> None:
    timestamps = Timestamps()
    async with serving(timestamps) as endpoint, asking(endpoint) as oracle:
        await oracle.generate()
        first = asyncio.create_task(oracle.generate())
        await iterations(2)
        got = await asyncio.gather(first, *[oracle.generate() for _ in range(5)])
        assert got == sorted(got)
        assert timestamps.counts == [1, 1, 5]


async def test_a_later_question_gets_a_larger_timestamp() -> None:
    async def caller(oracle: OracleClient) -> list[int]:
        return [await oracle.generate() for _ in range(50)]

    async with serving(Timestamps()) as endpoint, asking(endpoint) as oracle:
        got = await asyncio.gather(*[caller(oracle) for _ in range(20)])
        assert all(it == sorted(it) for it in got)
        assert len({timestamp for it in got for timestamp in it}) == 1_000


async def test_ranges_and_singles_do_not_overlap() -> None:
    async with serving(Timestamps(10)) as endpoint, asking(endpoint) as oracle:
        futures = [oracle.generate(), oracle.generate_range(5), oracle.generate()]
        assert await asyncio.gather(*futures) == [10, 11, 16]


@pytest.mark.parametrize("count", [0, -1, 1_000_001])
async def test_a_count_out_of_bounds_is_refused_here(count: int) -> None:
    async with serving(Timestamps()) as endpoint, asking(endpoint) as oracle:
        with pytest.raises(InvalidRequest, match="1 to 1000000"):
            await oracle.generate_range(count)
        assert endpoint.bodies == []


@pytest.mark.parametrize("gone", [[1], [0], [2], [0, 2], [0, 1, 2]])
async def test_cancelled_callers_end_immediately_and_do_not_affect_other_callers(
    gone: list[int],
) -> None:
    timestamps, is_held = Timestamps(10), True

    def hesitant(body: object) -> DataReply | None:
        return None if is_held else timestamps(body)

    async with serving(hesitant) as endpoint, asking(endpoint) as oracle:
        callers = [asyncio.create_task(oracle.generate()) for _ in range(3)]
        await until(lambda: endpoint.frame_sizes)
        for place in gone:
            callers[place].cancel()
        await iterations(2)
        assert [it.cancelled() for it in callers] == [place in gone for place in range(3)]
        is_held = False
        endpoint.drop_all()
        left = [place for place in range(3) if place not in gone]
        assert [await callers[place] for place in left] == [10 + place for place in left]


async def test_a_caller_that_goes_away_before_the_request_leaves() -> None:
    async with serving(Timestamps(10)) as endpoint, asking(endpoint) as oracle:
        callers = [asyncio.create_task(oracle.generate()) for _ in range(3)]
        await iterations(1)
        callers[1].cancel()
        assert [await callers[0], await callers[2]] == [10, 12]
        assert callers[1].cancelled()


async def test_a_caller_that_gives_up_waits_no_longer() -> None:
    def silent(body: object) -> DataReply | None:
        return None

    async with serving(silent) as endpoint, asking(endpoint) as oracle:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(oracle.generate(), 0.01)


async def test_waiting_groups_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(oracle_module, "GROUP_COUNT_MAX", 2)
    monkeypatch.setattr(oracle_module, "GROUPS_MAX", 3)
    async with serving(Timestamps()) as endpoint, asking(endpoint) as oracle:
        asked = [asyncio.create_task(oracle.generate()) for _ in range(7)]
        with pytest.raises(Overloaded):
            await asked[6]
        assert await asyncio.gather(*asked[:6]) == list(range(1_000, 1_006))
        await oracle.generate()


async def test_a_new_request_leaves_while_other_callers_still_work() -> None:
    timestamps = Timestamps()

    async def caller(oracle: OracleClient) -> None:
        await oracle.generate()
        await oracle.generate()

    async with serving(timestamps) as endpoint, asking(endpoint) as oracle:
        await asyncio.gather(*[caller(oracle) for _ in range(512)])
        assert timestamps.counts[:2] == [512, 256]
        assert sum(timestamps.counts) == 1_024


# ---- proxies that fail


async def test_the_next_proxy_takes_over() -> None:
    async with (
        serving(Timestamps(10)) as first,
        serving(Timestamps(500)) as second,
        asking(first, second) as oracle,
    ):
        assert await oracle.generate() == 10
        first.stop()
        await until(lambda: not oracle._peers[first.address]._transport)
        assert await oracle.generate() == 500
        assert await oracle.generate() == 501


async def test_all_callers_get_timestamps_after_a_proxy_dies_with_their_request() -> None:
    def silent(body: object) -> DataReply | None:
        return None

    async with (
        serving(silent) as first,
        serving(Timestamps(500)) as second,
        asking(first, second) as oracle,
    ):
        callers = [asyncio.create_task(oracle.generate()) for _ in range(3)]
        await until(lambda: first.frame_sizes)
        first.drop_all()
        assert await asyncio.gather(*callers) == [500, 501, 502]


async def test_a_proxy_that_gives_another_number_is_not_believed() -> None:
    def generous(body: object) -> DataReply | None:
        return TimestampRange(Timestamp(10), 7)

    async with (
        serving(generous) as first,
        serving(Timestamps(500)) as second,
        asking(first, second) as oracle,
    ):
        assert await oracle.generate() == 500


async def test_an_oracle_that_goes_back_is_not_believed() -> None:
    answers = [Timestamp(10), Timestamp(10), Timestamp(11)]

    def forgetful(body: object) -> DataReply | None:
        return TimestampRange(answers.pop(0), 1)

    async with serving(forgetful) as endpoint, asking(endpoint) as oracle:
        assert await oracle.generate() == 10
        with pytest.raises(DataCorrupted, match="gone back"):
            await oracle.generate()
        assert await oracle.generate() == 11


async def test_the_oracle_client_leaves_a_proxy_that_cannot_reach_the_master() -> None:
    def orphan(body: object) -> DataReply | None:
        return Failure("unavailable", "the master does not answer")

    async with (
        serving(orphan) as first,
        serving(Timestamps(500)) as second,
        asking(first, second) as oracle,
    ):
        assert await oracle.generate() == 500


async def test_a_refusal_is_for_the_caller() -> None:
    def refuse(body: object) -> DataReply | None:
        assert isinstance(body, GenerateTimestamps)
        return Failure("invalid_request", "no")

    async with serving(refuse) as endpoint, asking(endpoint) as oracle:
        with pytest.raises(InvalidRequest):
            await oracle.generate()


async def generated(oracle: OracleClient) -> Timestamp | None:
    """None while nobody answers."""
    try:
        return await oracle.generate()
    except Unavailable:
        return None


async def test_each_caller_waits_for_a_timestamp_until_its_own_timeout() -> None:
    endpoint = Endpoint(Timestamps())
    await endpoint.start()
    endpoint.stop()
    async with (
        asking(endpoint, timeout_ms=300) as oracle,
        asking(endpoint, timeout_ms=86_400_000) as patient,
    ):
        loop = asyncio.get_running_loop()
        began = loop.time()
        waiting = asyncio.create_task(patient.generate())
        futures = [oracle.generate() for _ in range(3)]
        outcomes = await asyncio.gather(*futures, return_exceptions=True)
        assert [type(it) for it in outcomes] == [Unavailable] * 3
        assert loop.time() - began > 0.25
        assert not waiting.done(), "each waits for as long as it was told"
        await endpoint.start()
        assert await waiting == 1_000
        async with asyncio.timeout(WAIT_S_MAX):
            while (timestamp := await generated(oracle)) is None:
                await asyncio.sleep(0.01)
        assert timestamp > 1_000
    endpoint.stop()


async def test_the_oracle_client_discovers_new_proxies_when_the_known_ones_fail() -> None:
    gone = Endpoint(Timestamps())
    await gone.start()
    gone.stop()
    async with serving(Timestamps(500)) as found:
        asked = 0

        async def discover() -> Sequence[str]:
            nonlocal asked
            asked += 1
            if asked == 1:
                raise Unavailable("the master is away too")
            return [] if asked == 2 else [found.address]

        oracle = OracleClient([gone.address], discover=discover)
        assert await oracle.generate() == 500
        assert oracle.addresses == (found.address,)
        assert asked == 3
        await oracle.close()


async def test_a_master_that_hangs_takes_no_more_than_a_batch_s_time() -> None:
    """Who asks it for proxies would wait for as long as it likes."""
    searches = 0

    async def discover() -> Sequence[str]:
        nonlocal searches
        searches += 1
        await asyncio.Event().wait()
        raise AssertionError

    def refuse(body: object) -> DataReply:
        return Failure("unavailable", "its master does not answer")

    async with serving(refuse) as endpoint:
        oracle = OracleClient([endpoint.address], discover=discover, timeout_ms=200)
        try:
            for _ in range(2):
                async with asyncio.timeout(WAIT_S_MAX):
                    with pytest.raises(Unavailable, match="its master does not answer"):
                        await oracle.generate()
        finally:
            await oracle.close()
    assert searches == 2


async def test_closing_the_oracle_client_fails_the_waiting_callers() -> None:
    def silent(body: object) -> DataReply | None:
        return None

    async with serving(silent) as endpoint:
        oracle = OracleClient([endpoint.address])
        callers = [asyncio.create_task(oracle.generate()) for _ in range(2)]
        await until(lambda: endpoint.frame_sizes)
        callers.append(asyncio.create_task(oracle.generate()))
        await iterations(1)
        await oracle.close()
        outcomes = await asyncio.gather(*callers, return_exceptions=True)
        assert [type(it) for it in outcomes] == [Unavailable] * 3
        with pytest.raises(Unavailable):
            await oracle.generate()
