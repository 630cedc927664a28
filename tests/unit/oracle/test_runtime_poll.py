"""A runtime that keeps its loop awake for a lone commit: when it does, and that it stops."""

import asyncio
import os

import pytest

from dodona._core.codec import RequestEnvelope
from dodona._core.messages import GenerateTimestamps
from dodona._io import runtime as runtime_module
from dodona._io.runtime import Runtime, RuntimeLimits
from unit.oracle.scripted import GatedLog, Listener, ScriptedCore, append_and_reply

pytestmark = pytest.mark.anyio
POLL_US_MAX = 10_000
STEP_US = 1_100
LOOKS = 1 + 10


class Ticking:
    """A clock of 1.1 ms a look, in the place of `time`: counts the looks."""

    def __init__(self) -> None:
        self.looks = 0

    def perf_counter(self) -> float:
        self.looks += 1
        return self.looks * STEP_US / 1e6


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Ticking:
    ticking = Ticking()
    monkeypatch.setattr(runtime_module, "time", ticking)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1})
    return ticking


async def flush(
    record_count: int, poll_us_max: int = POLL_US_MAX, *, is_awake: bool = True
) -> None:
    """One flush of so many records, held on the disk while the loop turns a hundred times."""
    log, listener = GatedLog(), Listener()
    limits = RuntimeLimits(poll_us_max=poll_us_max)
    runtime = Runtime(ScriptedCore(append_and_reply), log, limits=limits)
    runtime.start()
    if is_awake:
        runtime.stay_awake()
    frame: list[RequestEnvelope] = [
        (number + 1, GenerateTimestamps(1)) for number in range(record_count)
    ]
    runtime.handle_frame(listener, frame, 10)
    await log.wait_until_begun()
    for _ in range(100):
        await asyncio.sleep(0)
    log.gate.release()
    await listener.wait_for(record_count)
    await runtime.close()


async def test_the_flush_of_a_lone_commit_prolongs_the_polling(clock: Ticking) -> None:
    await flush(1)
    assert clock.looks == 3 + LOOKS  # one loop iteration went by before the flush began


async def test_a_flush_in_company_does_not(clock: Ticking) -> None:
    await flush(2)
    assert clock.looks == LOOKS


async def test_nobody_polls_unasked(clock: Ticking) -> None:
    await flush(1, is_awake=False)
    assert clock.looks == 0


async def test_polling_can_be_turned_off(clock: Ticking) -> None:
    await flush(1, poll_us_max=0)
    assert clock.looks == 0


async def test_on_a_single_core_the_log_needs_it_more(
    clock: Ticking, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0})
    await flush(1)
    assert clock.looks == 0


async def test_a_further_step_prolongs_the_same_polling(clock: Ticking) -> None:
    runtime = Runtime(ScriptedCore(), None, limits=RuntimeLimits(poll_us_max=POLL_US_MAX))
    runtime.start()
    runtime.stay_awake()
    for _ in range(5):
        await asyncio.sleep(0)
    looks = clock.looks
    runtime.stay_awake()
    for _ in range(100):
        await asyncio.sleep(0)
    assert clock.looks == looks + LOOKS
    await runtime.close()
