"""The caller every millisecond: no pause of the system may go unseen."""

import asyncio
import time

import pytest

from dodona_loadtest.harness import pinger
from dodona_loadtest.harness.errors import ContenderFailed
from dodona_loadtest.harness.load import AsyncOperation
from dodona_loadtest.harness.pinger import Pinger, Waits


def ping_for(seconds: float, operation: AsyncOperation) -> Waits:
    async def ping() -> Waits:
        it = Pinger(operation, (TimeoutError,))
        it.start()
        await asyncio.sleep(seconds)
        return await it.stop()

    return asyncio.run(ping())


def test_each_ping_during_a_pause_measures_the_rest_of_the_pause() -> None:
    gate = asyncio.Event()
    calls = 0

    async def pass_the_gate() -> None:
        nonlocal calls
        calls += 1
        if calls == 50:
            asyncio.get_running_loop().call_later(0.1, gate.set)
        if calls >= 50:
            await gate.wait()

    waits = ping_for(0.3, pass_the_gate)
    assert waits.count == calls > 200
    assert waits.ms_max >= 99
    # Others came meanwhile, each of which waited for what was left of the pause.
    assert waits.ms_p99 >= 60


def test_a_delay_of_the_pinger_itself_counts_as_a_pause() -> None:
    calls = 0

    async def block_once() -> None:
        nonlocal calls
        calls += 1
        if calls == 20:
            time.sleep(0.1)  # the pings that are due meanwhile leave late

    waits = ping_for(0.3, block_once)
    assert waits.count > 200
    assert waits.ms_p99 >= 60


def test_the_wait_for_an_expected_failure_is_measured_too() -> None:
    calls = 0

    async def fail_sometimes() -> None:
        nonlocal calls
        calls += 1
        if calls % 4 == 0:
            await asyncio.sleep(0.1)
            raise TimeoutError

    waits = ping_for(0.2, fail_sometimes)
    assert waits.failures == calls // 4 > 0
    assert waits.count == calls
    assert waits.ms_p99 >= 99


def test_an_unexpected_error_ends_the_pinger_and_is_raised() -> None:
    async def fail() -> None:
        raise OSError("disk")

    with pytest.raises(OSError, match="disk"):
        ping_for(0.05, fail)


def test_pings_without_an_answer_raise_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pinger, "ANSWER_S_MAX", 0.01)
    monkeypatch.setattr(pinger, "PINGS_WAITING_MAX", 3)

    async def hang() -> None:
        await asyncio.Event().wait()

    with pytest.raises(ContenderFailed, match="3 pings had no answer"):
        ping_for(0.05, hang)
