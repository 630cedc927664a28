"""Timestamps for many callers: shared requests, monotonic answers, proxies that fail."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import pytest

from dodona._core.messages import DataReply, Failure, GenerateTimestamps, TimestampRange
from dodona._io import oracle as oracle_module
from dodona._io.oracle import OracleClient
from dodona.errors import DataCorrupted, InvalidRequest, Overloaded, Unavailable
from dodona.types import Timestamp
from unit.client.endpoint import Endpoint, Timestamps, serving

pytestmark = pytest.mark.anyio


@asynccontextmanager
async def asking(*endpoints: Endpoint, timeout_ms: int = 10_000) -> AsyncIterator[OracleClient]:
    client = OracleClient([it.address for it in endpoints], timeout_ms=timeout_ms)
    try:
        yield client
    finally:
        await client.close()


async def test_callers_of_one_iteration_share_a_request() -> None:
    timestamps = Timestamps()
    async with serving(timestamps) as endpoint, asking(endpoint) as oracle:
        got = await asyncio.gather(*[oracle.generate() for _ in range(1_000)])
        assert got == list(range(1_000, 2_000))
        assert timestamps.counts == [1_000]


async def test_those_who_come_while_a_request_is_away_share_the_next() -> None:
    timestamps = Timestamps()
    async with serving(timestamps) as endpoint, asking(endpoint) as oracle:
        await oracle.generate()
        first = oracle.generate()
        await asyncio.sleep(0)
        later = [oracle.generate() for _ in range(5)]
        got = [await first, *[await it for it in later]]
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


async def test_a_caller_that_goes_away_costs_the_others_nothing() -> None:
    async with serving(Timestamps(10)) as endpoint, asking(endpoint) as oracle:
        futures = [oracle.generate() for _ in range(3)]
        futures[1].cancel()
        assert [await futures[0], await futures[2]] == [10, 12]


async def test_waiting_callers_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(oracle_module, "WAITERS_MAX", 3)
    async with serving(Timestamps()) as endpoint, asking(endpoint) as oracle:
        futures = [oracle.generate() for _ in range(4)]
        with pytest.raises(Overloaded):
            await futures[3]
        await asyncio.gather(*futures[:3])
        await oracle.generate()


# ---- proxies that fail


async def test_the_next_proxy_takes_over() -> None:
    async with (
        serving(Timestamps(10)) as first,
        serving(Timestamps(500)) as second,
        asking(first, second) as oracle,
    ):
        assert await oracle.generate() == 10
        first.stop()
        await asyncio.sleep(0.02)
        assert await oracle.generate() == 500
        assert await oracle.generate() == 501


async def test_a_proxy_that_dies_with_a_request_loses_no_caller() -> None:
    def silent(body: object) -> DataReply | None:
        return None

    async with (
        serving(silent) as first,
        serving(Timestamps(500)) as second,
        asking(first, second) as oracle,
    ):
        futures = [oracle.generate() for _ in range(3)]
        while not first.frame_sizes:
            await asyncio.sleep(0.001)
        first.drop_all()
        assert await asyncio.gather(*futures) == [500, 501, 502]


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


async def test_a_proxy_without_its_master_is_left_for_another() -> None:
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


async def test_nobody_answers_and_every_caller_hears_of_it() -> None:
    endpoint = Endpoint(Timestamps())
    await endpoint.start()
    endpoint.stop()
    async with asking(endpoint, timeout_ms=300) as oracle:
        loop = asyncio.get_running_loop()
        began = loop.time()
        futures = [oracle.generate() for _ in range(3)]
        outcomes = await asyncio.gather(*futures, return_exceptions=True)
        assert [type(it) for it in outcomes] == [Unavailable] * 3
        assert 0.25 < loop.time() - began < 3
        await endpoint.start()
        await asyncio.sleep(0.6)  # the longest back-off of a connection
        assert await oracle.generate() == 1_000
    endpoint.stop()


async def test_new_proxies_are_discovered_when_the_known_ones_are_gone() -> None:
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


async def test_closing_fails_those_who_wait() -> None:
    def silent(body: object) -> DataReply | None:
        return None

    async with serving(silent) as endpoint:
        oracle = OracleClient([endpoint.address])
        futures = [oracle.generate() for _ in range(2)]
        while not endpoint.frame_sizes:
            await asyncio.sleep(0.001)
        futures.append(oracle.generate())
        await oracle.close()
        outcomes = await asyncio.gather(*futures, return_exceptions=True)
        assert [type(it) for it in outcomes] == [Unavailable] * 3
        with pytest.raises(Unavailable):
            await oracle.generate()
