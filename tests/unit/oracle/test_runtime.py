"""The runtime's one law: nothing leaves before it is durable, and not too much may wait."""

import asyncio
from typing import Any

import pytest

from dodona.types import CellId, Now
from dodona_server.flushes import RuntimeLimits
from dodona_server.runtime import Runtime
from dodona_wire.cores.effects import (
    Append,
    AskTimestamps,
    Effect,
    ReplyAtOnce,
    ReplyTo,
    SendHeartbeat,
    SendToCell,
)
from dodona_wire.messages.catalog import Heartbeat
from dodona_wire.messages.data import GenerateTimestamps
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

HEARTBEAT = Heartbeat(CellId(0), "address", (), 1)


async def test_an_answer_is_sent_immediately_if_no_append_is_pending() -> None:
    listener = Listener()
    runtime = Runtime(ScriptedCore(), None)
    runtime.start()
    runtime.handle((listener, 7), REQUEST)
    assert listener.got == [(7, answer(1))]
    await runtime.close()


async def test_replies_and_messages_after_an_append_wait_until_the_append_is_durable() -> None:
    log, listener = GatedLog(), Listener()
    sent: list[Effect] = []

    def plan(route: Any, count: int, now: Now) -> list[Effect]:
        return [
            ReplyTo(route, answer(1)),
            Append("record"),
            ReplyTo(route, answer(2)),
            SendToCell(CellId(0), ACKNOWLEDGE),
            ReplyAtOnce(route, answer(3)),
            SendHeartbeat(HEARTBEAT),
            AskTimestamps("token"),
        ]

    kinds: tuple[type[Any], ...] = (SendToCell, SendHeartbeat, AskTimestamps)
    handlers = dict.fromkeys(kinds, sent.append)
    runtime = Runtime(ScriptedCore(plan), log, handlers)
    runtime.start()
    runtime.handle((listener, 1), REQUEST)
    await log.wait_until_begun()
    await settle()
    assert listener.got == [(1, answer(1)), (1, answer(3))]
    assert sent == [AskTimestamps("token")]
    log.gate.release()
    await listener.wait_for(3)
    assert listener.got[2] == (1, answer(2))
    lawful: list[Effect] = [SendToCell(CellId(0), ACKNOWLEDGE), SendHeartbeat(HEARTBEAT)]
    assert sent == [AskTimestamps("token"), *lawful]
    await runtime.close()


async def test_an_answer_without_a_record_waits_only_for_earlier_appends() -> None:
    """Behind the flush under way, but not behind the one that gathers after it."""
    log, listener = GatedLog(), Listener()

    def plan(route: Any, count: int, now: Now) -> list[Effect]:
        reply: Effect = ReplyTo(route, answer(count))
        return [reply] if count < 10 else [Append(count), reply]

    runtime = Runtime(ScriptedCore(plan), log)
    runtime.start()
    runtime.handle((listener, 1), GenerateTimestamps(10))
    await log.wait_until_begun()
    runtime.handle((listener, 2), GenerateTimestamps(1))  # waits for the first flush
    runtime.handle((listener, 3), GenerateTimestamps(11))  # gathers for the second
    runtime.handle((listener, 4), GenerateTimestamps(2))  # waits for the second
    await settle()
    assert listener.got == []
    log.gate.release()
    await listener.wait_for(2)
    await log.wait_until_begun()
    await settle()
    assert [request_id for request_id, _ in listener.got] == [1, 2]
    log.gate.release()
    await listener.wait_for(4)
    assert [request_id for request_id, _ in listener.got] == [1, 2, 3, 4]
    await runtime.close()


async def test_all_records_that_arrive_during_a_flush_form_the_next_flush() -> None:
    log, listener = GatedLog(), Listener()
    core = ScriptedCore(append_and_reply)
    runtime = Runtime(core, log)
    runtime.start()
    runtime.handle((listener, 1), GenerateTimestamps(1))
    await log.wait_until_begun()
    for number in range(2, 100):
        runtime.handle((listener, number), GenerateTimestamps(number))
    log.gate.release()
    log.gate.release()
    await listener.wait_for(99)
    assert log.flushes == [[1], list(range(2, 100))]
    assert core.durable == list(range(1, 100))
    assert [request_id for request_id, _ in listener.got] == list(range(1, 100))
    statistics = runtime.statistics()
    assert (statistics.flush_count, statistics.record_count) == (2, 99)
    assert (statistics.waiting_count, statistics.waiting_age_us) == (0, 0)
    await runtime.close()


async def test_requests_of_one_loop_iteration_share_the_first_flush() -> None:
    log, listener = GatedLog(), Listener()
    runtime = Runtime(ScriptedCore(append_and_reply), log)
    runtime.start()
    for number in range(1, 4):
        runtime.handle((listener, number), GenerateTimestamps(number))
    log.gate.release()
    await listener.wait_for(3)
    assert log.flushes == [[1, 2, 3]]
    await runtime.close()


async def test_the_core_learns_of_durability_before_the_answers_are_sent() -> None:
    log, listener = GatedLog(), Listener()
    core = ScriptedCore(append_and_reply)
    seen: list[list[Any]] = []
    listener.reply = lambda request_id, body: seen.append(list(core.durable))  # type: ignore[method-assign]
    runtime = Runtime(core, log)
    runtime.start()
    runtime.handle((listener, 1), GenerateTimestamps(5))
    log.gate.release()
    await runtime.close()
    assert seen == [[5]]


async def test_an_immediate_answer_waits_if_an_append_is_pending_for_too_long() -> None:
    """The loss bound: answers at once are held behind an append that is too old."""
    log, listener = GatedLog(), Listener()
    instant_us = 1_000_000

    def plan(route: Any, count: int, now: Now) -> list[Effect]:
        return [Append(count), ReplyAtOnce(route, answer(count))]

    runtime = Runtime(
        ScriptedCore(plan),
        log,
        limits=RuntimeLimits(at_once_age_ms_max=100),
        clock=lambda: Now(instant_us, 0),
    )
    runtime.start()
    runtime.handle((listener, 1), GenerateTimestamps(1))
    await log.wait_until_begun()
    instant_us += 100_000
    runtime.handle((listener, 2), GenerateTimestamps(2))
    assert [request_id for request_id, _ in listener.got] == [1, 2]
    instant_us += 1
    runtime.handle((listener, 3), GenerateTimestamps(3))
    await settle()
    assert [request_id for request_id, _ in listener.got] == [1, 2]
    assert runtime.statistics().waiting_age_us == 100_001
    log.gate.release()
    log.gate.release()
    await listener.wait_for(3)
    await runtime.close()


async def test_requests_above_the_limit_are_refused_as_overloaded_and_no_record_is_lost() -> None:
    log, listener = GatedLog(), Listener()
    core = ScriptedCore(append_and_reply)
    runtime = Runtime(core, log, limits=RuntimeLimits(waiting_count_max=30))
    runtime.start()
    for number in range(1, 100):
        runtime.handle((listener, number), GenerateTimestamps(number))
        await asyncio.sleep(0)
    refused = [request_id for request_id, body in listener.got]
    assert {body.kind for _, body in listener.got} == {"overloaded"}
    assert runtime.statistics().refused_count == len(refused) > 0
    assert runtime.statistics().waiting_count <= 33
    runtime.call(core.handle_cell_message, "an input of our own is never refused")
    assert core.cell_messages == ["an input of our own is never refused"]
    log.gate.release(2)
    await listener.wait_for(99)
    assert sorted(core.durable + refused) == list(range(1, 100))
    runtime.handle((listener, 100), GenerateTimestamps(100))
    log.gate.release()
    await listener.wait_for(100)
    assert listener.got[-1] == (100, answer(100))
    await runtime.close()


async def test_requests_above_the_limit_of_waiting_bytes_are_refused() -> None:
    log, listener = GatedLog(), Listener()
    runtime = Runtime(
        ScriptedCore(append_and_reply), log, limits=RuntimeLimits(waiting_bytes_max=1000)
    )
    runtime.start()
    runtime.handle_frame(listener, [(1, REQUEST)], 999)
    runtime.handle_frame(listener, [(2, REQUEST), (0, ACKNOWLEDGE)], 999)
    await log.wait_until_begun()
    runtime.handle_frame(listener, [(3, REQUEST), (0, ACKNOWLEDGE)], 10)
    assert [(request_id, body.kind) for request_id, body in listener.got] == [(3, "overloaded")]
    log.gate.release(2)
    await listener.wait_for(3)
    await runtime.close()


# ---- what surrounds an input


async def test_foresee_is_called_before_the_core_and_again_after_the_effects() -> None:
    seen: list[object] = []

    def plan(route: Any, count: int, now: Now) -> list[Effect]:
        seen.append(f"core {count}")
        return [AskTimestamps(count)]

    runtime = Runtime(
        ScriptedCore(plan),
        None,
        {AskTimestamps: seen.append},
        foresee=lambda envelopes: seen.append([request_id for request_id, _ in envelopes]),
    )
    runtime.start()
    runtime.handle_frame(Listener(), [(1, GenerateTimestamps(4)), (2, GenerateTimestamps(5))], 10)
    effects = [AskTimestamps(4), AskTimestamps(5)]
    assert seen == [[1, 2], "core 4", "core 5", *effects, []]
    seen.clear()
    runtime.handle((Listener(), 3), GenerateTimestamps(6))
    assert seen == ["core 6", AskTimestamps(6)]
    await runtime.close()


async def test_deferred_calls_run_after_all_effects_of_an_input() -> None:
    seen: list[object] = []

    class Gathering(Listener):
        def reply(self, request_id: int, body: Any) -> None:
            seen.append(request_id)
            runtime.call_afterwards(lambda: seen.append(f"after {request_id}"))

    runtime = Runtime(ScriptedCore(), None)
    runtime.start()
    runtime.handle_frame(Gathering(), [(1, REQUEST), (2, REQUEST)], 10)
    assert seen == [1, 2, "after 1", "after 2"]
    seen.clear()
    runtime.call_afterwards(lambda: seen.append("with no input: soon"))
    assert seen == []
    await asyncio.sleep(0)
    assert seen == ["with no input: soon"]
    await runtime.close()
