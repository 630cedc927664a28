"""The runtime from start to end: inputs, ticks, closing, and surprises that must end it."""

import asyncio
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

import pytest

from dodona.types import Now
from dodona_server.flushes import RuntimeLimits
from dodona_server.process import EXIT_STATUS_SURPRISE, read_clock
from dodona_server.runtime import Runtime
from dodona_wire.cores.effects import (
    AskTimestamps,
    Effect,
    ReplyTo,
)
from dodona_wire.messages.base import Failure
from dodona_wire.messages.data import GenerateTimestamps
from suite.waiting import until
from unit.oracle.scripted import (
    ACKNOWLEDGE,
    REQUEST,
    GatedLog,
    Listener,
    ScriptedCore,
    answer,
    append_and_reply,
    settle,
)

pytestmark = pytest.mark.anyio


async def test_a_frame_is_one_drive_of_the_core() -> None:
    listener, core = Listener(), ScriptedCore()
    instants: list[Now] = []

    def plan(route: Any, count: int, now: Now) -> list[Effect]:
        instants.append(now)
        return [ReplyTo(route, answer(count))]

    core.plan = plan
    runtime = Runtime(core, None)
    runtime.start()
    runtime.handle_frame(
        listener, [(1, GenerateTimestamps(1)), (0, ACKNOWLEDGE), (2, GenerateTimestamps(2))], 99
    )
    assert listener.got == [(1, answer(1)), (2, answer(2))]
    assert core.cell_messages == [ACKNOWLEDGE]
    assert instants[0] is instants[1]
    await runtime.close()


async def test_a_cell_message_to_a_server_without_a_cell_is_refused() -> None:
    class NoCell(ScriptedCore):
        handle_cell_message = None  # type: ignore[assignment]

    listener = Listener()
    runtime = Runtime(NoCell(), None)
    runtime.start()
    runtime.handle_frame(listener, [(0, ACKNOWLEDGE), (4, ACKNOWLEDGE)], 99)
    ((request_id, body),) = listener.got
    assert (request_id, body.kind) == (4, "invalid_request")
    await runtime.close()


async def test_an_input_that_a_handler_adds_waits_for_the_current_effects() -> None:
    """As in one process that holds two cores: the answer comes while the question is asked."""
    listener, core = Listener(), ScriptedCore()
    order: list[int] = []

    def plan(route: Any, count: int, now: Now) -> list[Effect]:
        return [AskTimestamps(route), ReplyTo(route, answer(1))]

    def answered(token: Any, now: Now) -> None:
        order.append(len(listener.got))
        core.effects.append(ReplyTo(token, answer(2)))

    core.plan = plan
    runtime = Runtime(
        core, None, {AskTimestamps: lambda effect: runtime.call(answered, effect.token)}
    )
    runtime.start()
    runtime.handle((listener, 1), REQUEST)
    assert listener.got == [(1, answer(1)), (1, answer(2))]
    assert order == [1]
    await runtime.close()


async def test_call_each_handles_several_inputs_together() -> None:
    listener, core = Listener(), ScriptedCore()
    runtime = Runtime(core, None)
    runtime.start()

    def stamped(route: Any, number: int, now: Now) -> None:
        core.effects.append(ReplyTo(route, answer(number)))

    runtime.call_each(stamped, [((listener, 1), 10), ((listener, 2), 20)])
    assert listener.got == [(1, answer(10)), (2, answer(20))]
    await runtime.close()


async def test_asking_within_the_process_gets_the_answer() -> None:
    runtime = Runtime(ScriptedCore(), None)
    runtime.start()
    assert await runtime.ask(GenerateTimestamps(3)) == answer(3)
    await runtime.close()


async def test_asking_has_an_end() -> None:
    runtime = Runtime(ScriptedCore(lambda route, count, now: []), None)
    runtime.start()
    reply = await runtime.ask(REQUEST, timeout_ms=10)
    assert isinstance(reply, Failure)
    assert reply.kind == "unavailable"
    await runtime.close()


async def test_the_runtime_ticks_the_core_at_the_deadline_and_not_before() -> None:
    core, ticks = ScriptedCore(), list[int]()
    tick = core.tick

    def note(now: Now) -> None:
        ticks.append(now.instant_us)
        tick(now)

    core.tick = note  # type: ignore[method-assign]
    core.deadline_us = due_us = read_clock().instant_us + 30_000
    runtime = Runtime(core, None)
    runtime.start()
    runtime.handle((Listener(), 1), REQUEST)
    await until(lambda: core.tick_count)
    assert core.tick_count == 1
    assert ticks[0] >= due_us
    core.deadline_us = read_clock().instant_us + 3_600_000_000
    runtime.handle((Listener(), 2), REQUEST)
    core.deadline_us = read_clock().instant_us + 1000  # an earlier deadline goes first
    runtime.handle((Listener(), 3), REQUEST)
    await until(lambda: core.tick_count > 1)
    await runtime.close()


async def test_the_core_is_kept_posted_after_each_flush_and_before_each_tick() -> None:
    log, listener, core = GatedLog(), Listener(), ScriptedCore(append_and_reply)
    events: list[str] = []
    core.handle_durable = lambda record, now: events.append("durable")  # type: ignore[method-assign]
    listener.reply = lambda request_id, body: events.append("answer")  # type: ignore[method-assign]

    def tick(now: Now) -> None:
        events.append("tick")
        core.deadline_us = None

    core.tick = tick  # type: ignore[method-assign]
    runtime = Runtime(core, log, keep_posted=lambda now: events.append("posted"))
    runtime.start()
    runtime.handle((listener, 1), REQUEST)
    log.gate.release()
    await until(lambda: "answer" in events)
    assert events == ["posted", "durable", "answer"]
    events.clear()
    core.deadline_us = 0
    runtime.call(lambda now: None)
    await until(lambda: events)
    assert events == ["posted", "tick"]
    await runtime.close()


async def test_a_core_that_is_always_due_does_not_starve_the_rest() -> None:
    core = ScriptedCore()
    core.tick = lambda now: setattr(core, "tick_count", core.tick_count + 1)  # type: ignore[method-assign]
    core.deadline_us = 0
    runtime = Runtime(core, None)
    loop = asyncio.get_running_loop()
    began = loop.time()
    runtime.start()
    await asyncio.sleep(0.05)
    assert 0 < core.tick_count <= 10 + (loop.time() - began) * 1000
    await runtime.close()


async def test_close_lets_the_log_finish_and_refuses_new_requests() -> None:
    log, listener = GatedLog(), Listener()
    runtime = Runtime(ScriptedCore(append_and_reply), log)
    runtime.start()
    runtime.handle((listener, 1), GenerateTimestamps(1))
    await log.wait_until_begun()
    runtime.handle((listener, 2), GenerateTimestamps(2))
    closing = asyncio.create_task(runtime.close())
    await settle()
    runtime.handle((listener, 3), GenerateTimestamps(3))
    assert [(request_id, body.kind) for request_id, body in listener.got] == [(3, "unavailable")]
    log.gate.release(2)
    await closing
    assert log.flushes == [[1], [2]]
    assert [request_id for request_id, _ in listener.got] == [3, 1, 2]


async def test_calls_from_threads_after_the_close_are_ignored() -> None:
    """A thread may still be at work: what the core would say to its result, nobody would write."""
    heard: list[Now] = []
    runtime = Runtime(ScriptedCore(), GatedLog())
    runtime.start()
    runtime.call_from_thread(heard.append)
    await settle()
    assert len(heard) == 1
    await runtime.close()
    runtime.call_from_thread(heard.append)
    await settle()
    assert len(heard) == 1


async def test_closing_has_an_end() -> None:
    log = GatedLog()
    runtime = Runtime(ScriptedCore(append_and_reply), log, limits=RuntimeLimits(close_ms_max=20))
    runtime.start()
    runtime.handle((Listener(), 1), REQUEST)
    await log.wait_until_begun()
    with pytest.raises(TimeoutError):
        await runtime.close()
    log.gate.release()
    await asyncio.sleep(0.05)


# Surprises


@pytest.mark.parametrize(
    "surprise", [AssertionError("invariant"), KeyError("bug"), MemoryError(), SystemExit(0)]
)
async def test_an_unexpected_error_in_the_core_stops_the_runtime_permanently(
    surprise: BaseException,
) -> None:
    stopped: list[BaseException] = []
    listener = Listener()

    def plan(route: Any, count: int, now: Now) -> list[Effect]:
        raise surprise

    runtime = Runtime(ScriptedCore(plan), None, stop=stopped.append)
    runtime.start()
    runtime.handle((listener, 1), REQUEST)
    assert stopped == [surprise]
    assert listener.got == []
    with pytest.raises(RuntimeError, match="unexpected error"):
        runtime.handle((listener, 2), REQUEST)
    assert len(stopped) == 1


async def test_a_failed_log_stops_the_runtime_and_waiting_callers_get_no_answer() -> None:
    class FailingLog:
        def append(self, records: Sequence[Any]) -> None:
            raise OSError(5, "Input/output error")

    stopped: list[BaseException] = []
    listener = Listener()
    core = ScriptedCore(append_and_reply)
    runtime = Runtime(core, FailingLog(), stop=stopped.append)
    runtime.start()
    runtime.handle((listener, 1), REQUEST)
    await until(lambda: stopped)
    assert isinstance(stopped[0], OSError)
    await settle()
    assert listener.got == []
    assert core.durable == []


async def test_an_effect_without_a_handler_stops_the_runtime() -> None:
    stopped: list[BaseException] = []
    core = ScriptedCore(lambda route, count, now: [AskTimestamps("token")])
    runtime = Runtime(core, None, stop=stopped.append)
    runtime.start()
    runtime.handle((Listener(), 1), REQUEST)
    assert isinstance(stopped[0], KeyError)


async def test_an_append_without_a_log_is_a_surprise() -> None:
    stopped: list[BaseException] = []
    runtime = Runtime(ScriptedCore(append_and_reply), None, stop=stopped.append)
    runtime.start()
    runtime.handle((Listener(), 1), REQUEST)
    assert isinstance(stopped[0], AssertionError)


SURPRISED_PROCESS = """
import asyncio, sys
from dodona_wire.cores.effects import Append
from dodona_wire.messages.data import GenerateTimestamps
from dodona_server.runtime import Runtime

class Core:
    def handle(self, route, body, now):
        assert sys.argv[1] != "core", "a broken invariant"
        self.effects = [Append("record")]
    def tick(self, now): pass
    def next_deadline(self): return None
    effects = []
    def take_effects(self):
        effects, self.effects = self.effects, []
        return effects

class Log:
    def append(self, records):
        raise OSError(28, "No space left on device")

async def main():
    runtime = Runtime(Core(), Log())
    runtime.start()
    try:
        await runtime.ask(GenerateTimestamps(1), timeout_ms=5000)
    finally:
        print("survived")

asyncio.run(main())
"""


@pytest.mark.parametrize(
    ("where", "words"), [("core", "a broken invariant"), ("log", "No space left on device")]
)
def test_an_unexpected_error_ends_the_process_immediately_with_the_reason(
    where: str, words: str
) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", SURPRISED_PROCESS, where],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert ended.returncode == EXIT_STATUS_SURPRISE
    assert words in ended.stderr
    assert "survived" not in ended.stdout


def test_a_runtime_does_not_run_without_assertions() -> None:
    script = "from dodona_server.runtime import Runtime; Runtime(None, None)"
    ended = subprocess.run(
        [sys.executable, "-O", "-c", script],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert ended.returncode == 1
    assert "python -O" in ended.stderr
