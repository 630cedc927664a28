"""When a flush of a distant log starts: callers that come back are waited for, others are not."""

import asyncio
from typing import Any, NamedTuple, cast

import pytest

from dodona_server.gathering import DOUBLINGS_MAX, GATHER_S_MAX, Gatherer, GatherRule
from dodona_server.runtime import Runtime
from dodona_wire.messages.data import GenerateTimestamps
from suite.waiting import until
from unit.oracle.scripted import Elsewhere, Listener, ScriptedCore, ids, read_or_write, settle


def test_a_flush_is_whole_with_as_many_answers_as_there_were_callers() -> None:
    rule = GatherRule()
    assert not rule.is_whole(1), "nothing is known of the callers"
    rule.note_flush(7)
    assert [count for count in range(10) if rule.is_whole(count)] == [7, 8, 9]


def test_of_many_callers_the_last_ones_are_not_waited_for() -> None:
    rule = GatherRule()
    rule.note_flush(64)
    assert rule.is_whole(56)
    assert not rule.is_whole(55)


def skipped(rule: GatherRule) -> int:
    """Return how many flushes do not wait until one does."""
    count = 0
    while not rule.may_wait():
        count += 1
    return count


def test_waits_in_vain_become_rare_and_one_that_helps_brings_them_back() -> None:
    rule = GatherRule()
    assert skipped(rule) == 1, "the first flush knows nothing"
    found = []
    for _ in range(DOUBLINGS_MAX + 2):
        rule.note_wait(is_vain=True)
        found.append(skipped(rule))
    assert found == [1, 3, 7, 15, 31, 63, 127, 127, 127]
    rule.note_wait(is_vain=False)
    assert skipped(rule) == 0


class Turns:
    """An event loop whose turns and timers the test makes."""

    def __init__(self) -> None:
        self._soon: list[tuple[Any, ...]] = []
        self._later: list[tuple[Any, ...]] = []

    def call_soon(self, *call: Any) -> None:
        self._soon.append(call)

    def call_later(self, delay_s: float, *call: Any) -> "Timer":
        assert delay_s == GATHER_S_MAX
        self._later.append(call)
        return Timer(self._later, call)

    def turn(self) -> None:
        calls, self._soon = self._soon, []
        for method, *arguments in calls:
            method(*arguments)

    def fire(self) -> None:
        calls, self._later = self._later, []
        for method, *arguments in calls:
            method(*arguments)


class Timer(NamedTuple):
    timers: list[tuple[Any, ...]]
    call: tuple[Any, ...]

    def cancel(self) -> None:
        if self.call in self.timers:
            self.timers.remove(self.call)


class Gathering:
    """A gatherer that knows of two callers. It has not waited yet."""

    def __init__(self) -> None:
        self.turns = Turns()
        self.wake_count = 0
        self.gatherer = Gatherer(cast("asyncio.AbstractEventLoop", self.turns), self._wake)
        self.gatherer.rule.note_flush(2)

    def _wake(self) -> None:
        self.wake_count += 1

    def is_ready(self, answer_count: int, *, has_records: bool = True) -> bool:
        return self.gatherer.is_ready(answer_count, has_records=has_records)

    def look(self) -> None:
        """Make the turns in which the event loop looks at its sockets once more."""
        self.turns.turn()
        self.turns.turn()


def test_a_flush_that_does_not_wait_starts_after_a_look_at_the_sockets() -> None:
    gathering = Gathering()
    assert not gathering.is_ready(1)
    gathering.turns.turn()
    assert gathering.wake_count == 0
    gathering.turns.turn()
    assert gathering.wake_count == 1
    assert gathering.is_ready(1)


def test_a_flush_waits_for_the_rest_but_not_for_ever() -> None:
    gathering = Gathering()
    gathering.gatherer.rule.note_wait(is_vain=False)
    assert not gathering.is_ready(1)
    gathering.look()
    assert not gathering.is_ready(1), "a look at the sockets does not end this wait"
    gathering.turns.fire()
    assert gathering.wake_count == 1
    assert gathering.is_ready(1)


def test_a_flush_that_is_whole_starts_within_its_wait() -> None:
    """Neither a look at the sockets nor a timer of a flush before starts a later one."""
    gathering = Gathering()
    assert not gathering.is_ready(1)
    assert gathering.is_ready(2)
    assert not gathering.is_ready(1)
    gathering.look()
    assert not gathering.is_ready(1)
    assert gathering.is_ready(2)
    assert not gathering.is_ready(1)
    gathering.turns.fire()
    assert gathering.wake_count == 1, "of three waits the last one"


def test_a_flush_without_records_waits_for_none() -> None:
    gathering = Gathering()
    gathering.gatherer.rule.note_wait(is_vain=False)
    assert not gathering.is_ready(1, has_records=False)
    gathering.look()
    assert gathering.wake_count == 1
    assert gathering.is_ready(1, has_records=False)


async def flushing() -> tuple[Elsewhere, Listener, Runtime]:
    """Return a runtime that flushes for one caller, while another one waits behind it."""
    log, listener = Elsewhere(), Listener()
    runtime = Runtime(ScriptedCore(read_or_write), log)
    runtime.start()
    runtime.handle((listener, 1), GenerateTimestamps(11))
    await settle()
    runtime.handle((listener, 2), GenerateTimestamps(12))
    return log, listener, runtime


@pytest.mark.anyio
async def test_callers_that_come_back_share_one_flush() -> None:
    """Without the wait, two halves of them would alternate."""
    log, listener, runtime = await flushing()
    assert log.batches == [[11]]
    log.report(None)  # one caller has its answer, and another one waits
    runtime.handle((listener, 3), GenerateTimestamps(13))
    assert log.batches == [[11], [12, 13]], "the group was whole within this call"
    log.report(None)
    assert ids(listener) == [1, 2, 3]
    await runtime.close()


@pytest.mark.anyio
async def test_a_caller_that_stays_alone_is_flushed_after_a_moment() -> None:
    log, listener, runtime = await flushing()
    log.report(None)
    await until(lambda: log.batches == [[11], [12]])
    log.report(None)
    runtime.handle((listener, 3), GenerateTimestamps(13))
    assert log.batches == [[11], [12], [13]], "a single caller waits for no other"
    log.report(None)
    assert ids(listener) == [1, 2, 3]
    await runtime.close()
