"""Which flushes a runtime's loop makes by itself, and that the law holds for those, too."""

import asyncio
import threading
from collections.abc import Sequence
from typing import Any

import pytest

from dodona.types import Now
from dodona_server.flushes import (
    INLINE_BYTES_MAX,
    INLINE_PAUSE_US,
    INLINE_RECORDS_MAX,
    PAUSE_RATIO,
    RuntimeLimits,
)
from dodona_server.runtime import LATE_US_MIN, Runtime
from dodona_wire.cores.effects import Append, Effect, ReplyAtOnce
from dodona_wire.messages.data import GenerateTimestamps
from unit.oracle.scripted import Listener, ScriptedCore, answer, append_and_reply

pytestmark = pytest.mark.anyio
LIMIT_US = 1_000
BRIEF_US = 300


class Disk:
    """A log on a clock of its own: notes who makes each flush, and what was answered by then."""

    def __init__(self, listener: Listener) -> None:
        self.instant_us = 0
        self.lasts_us = BRIEF_US
        self.is_inline: list[bool] = []
        self.answered_before: list[int] = []
        self.stalled_us: list[int] = []
        self.reason: OSError | None = None
        self.runtime: Runtime
        self._listener = listener

    def clock(self) -> Now:
        return Now(self.instant_us, self.instant_us)

    def append(self, records: Sequence[Any]) -> None:
        self.is_inline.append(threading.current_thread() is threading.main_thread())
        self.answered_before.append(len(self._listener.got))
        self.instant_us += self.lasts_us
        self.stalled_us.append(self.runtime.stalled_us())
        if self.reason is not None:
            raise self.reason


class Bench:
    """A runtime on such a log."""

    def __init__(self, plan: Any = append_and_reply, limit_us: int = LIMIT_US) -> None:
        self.listener = Listener()
        self.disk = Disk(self.listener)
        self.failures: list[BaseException] = []
        self.runtime = Runtime(
            ScriptedCore(plan),
            self.disk,
            limits=RuntimeLimits(inline_flush_us_max=limit_us),
            clock=self.disk.clock,
            stop=self.failures.append,
        )
        self.disk.runtime = self.runtime
        self.runtime.start()

    async def write(self, count: int = 1, size_bytes: int = 10) -> None:
        """A frame of so many requests, and their answers."""
        wanted = len(self.listener.got) + count
        frame: Any = [(number + 1, GenerateTimestamps(1)) for number in range(count)]
        self.runtime.handle_frame(self.listener, frame, size_bytes)
        await self.listener.wait_for(wanted)


async def test_the_loop_makes_a_short_flush_that_a_caller_waits_for() -> None:
    bench = Bench()
    await bench.write()
    await bench.write(INLINE_RECORDS_MAX)
    assert bench.disk.is_inline == [True, True]
    assert bench.disk.answered_before == [0, 1]
    assert bench.disk.stalled_us == [BRIEF_US, BRIEF_US]
    assert bench.runtime.statistics().flush_duration_us_max == BRIEF_US
    bench.disk.instant_us += 1
    assert bench.runtime.stalled_us() == 0
    await bench.runtime.close()


async def test_without_a_limit_the_thread_makes_them() -> None:
    bench = Bench(limit_us=0)
    await bench.write()
    assert bench.disk.is_inline == [False]
    assert bench.disk.stalled_us == [0]
    await bench.runtime.close()


async def test_many_records_are_the_threads() -> None:
    bench = Bench()
    await bench.write(INLINE_RECORDS_MAX + 1)
    await bench.write()
    assert bench.disk.is_inline == [False, True]
    await bench.runtime.close()


async def test_the_thread_makes_a_flush_that_no_caller_waits_for() -> None:
    def plan(route: Any, count: int, now: Now) -> list[Effect]:
        return [Append(count), ReplyAtOnce(route, answer(count))]

    bench = Bench(plan)
    await bench.write()
    await bench.runtime.finish()
    assert bench.disk.is_inline == [False]
    await bench.runtime.close()


@pytest.mark.parametrize("cause", ["slow", "long"])
async def test_after_a_slow_flush_or_a_long_frame_they_are_the_threads_for_a_while(
    cause: str,
) -> None:
    bench = Bench()
    if cause == "slow":
        bench.disk.lasts_us = LIMIT_US + 1
        await bench.write()
        bench.disk.lasts_us = BRIEF_US
        began_us = bench.disk.instant_us
    else:
        await bench.write(size_bytes=INLINE_BYTES_MAX)
        assert bench.disk.is_inline.pop()
        began_us = bench.disk.instant_us
        await bench.write(size_bytes=INLINE_BYTES_MAX + 1)
        assert not bench.disk.is_inline.pop()
        bench.disk.is_inline.append(True)
    await bench.write()
    bench.disk.instant_us = began_us + INLINE_PAUSE_US - 1
    await bench.write()
    bench.disk.instant_us = began_us + INLINE_PAUSE_US
    await bench.write()
    assert bench.disk.is_inline == [True, False, False, True]
    await bench.runtime.close()


async def test_the_slower_one_was_the_longer_they_are_the_threads() -> None:
    bench = Bench()
    bench.disk.lasts_us = INLINE_PAUSE_US
    await bench.write()
    bench.disk.lasts_us = 0
    until_us = bench.disk.instant_us + PAUSE_RATIO * INLINE_PAUSE_US
    await bench.write(size_bytes=INLINE_BYTES_MAX + 1)  # whose own pause is over before
    for instant_us in (until_us - 1, until_us):
        bench.disk.instant_us = instant_us
        await bench.write()
    assert bench.disk.is_inline == [True, False, False, True]
    await bench.runtime.close()


async def test_the_runtime_reports_a_disk_that_does_not_answer() -> None:
    bench = Bench(limit_us=0)
    bench.disk.lasts_us = 0
    bench.runtime.handle((bench.listener, 1), GenerateTimestamps(1))
    bench.disk.instant_us = LATE_US_MIN
    assert bench.runtime.why_late() is None
    bench.disk.instant_us += 1000
    assert bench.runtime.why_late() == "the disk has not answered for 2001 ms"
    await bench.listener.wait_for(1)
    assert bench.runtime.why_late() is None
    await bench.runtime.close()


async def test_the_answers_of_a_thread_flush_are_sent_before_the_next_inline_flush() -> None:
    """The first answers leave before the loop stands still for the second flush."""
    bench = Bench()
    bench.disk.lasts_us = LIMIT_US + 1
    await bench.write()
    bench.disk.lasts_us = BRIEF_US
    bench.runtime.handle((bench.listener, 2), GenerateTimestamps(1))
    while len(bench.disk.is_inline) < 2:  # the thread has made it, and the loop does not know yet
        await asyncio.sleep(0)
    bench.disk.instant_us += INLINE_PAUSE_US
    bench.runtime.handle((bench.listener, 3), GenerateTimestamps(1))
    await bench.listener.wait_for(3)
    assert bench.disk.is_inline == [True, False, True]
    assert bench.disk.answered_before == [0, 1, 2]
    await bench.runtime.close()


async def test_a_failed_flush_stops_the_runtime_and_sends_no_answer() -> None:
    bench = Bench()
    bench.disk.reason = OSError("the disk is gone")
    bench.runtime.handle((bench.listener, 1), GenerateTimestamps(1))
    while not bench.failures:
        await asyncio.sleep(0)
    assert bench.failures == [bench.disk.reason]
    assert bench.runtime.failure is bench.disk.reason
    assert bench.listener.got == []
    with pytest.raises(RuntimeError, match="unexpected error"):
        bench.runtime.handle((bench.listener, 2), GenerateTimestamps(1))
    assert len(bench.disk.is_inline) == 1
