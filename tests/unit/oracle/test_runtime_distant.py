"""A runtime whose log is elsewhere: without proof that it owns the log, nothing leaves."""

from typing import Any

import pytest

from dodona.types import Now
from dodona_server.runtime import Runtime
from dodona_wire.cores.effects import AskTimestamps, Effect, ReplyAtOnce, ReplyTo
from dodona_wire.messages.base import Failure
from dodona_wire.messages.data import GenerateTimestamps
from unit.oracle.scripted import (
    REQUEST,
    Elsewhere,
    Listener,
    ScriptedCore,
    answer,
    ids,
    read_or_write,
    settle,
)

pytestmark = pytest.mark.anyio


async def test_an_owner_answers_immediately_what_no_append_is_before() -> None:
    log, listener = Elsewhere(), Listener()
    runtime = Runtime(ScriptedCore(read_or_write), log)
    runtime.start()
    runtime.handle((listener, 1), GenerateTimestamps(1))
    assert ids(listener) == [1]
    runtime.handle((listener, 2), GenerateTimestamps(10))
    await settle()
    assert log.batches == [[10]]
    assert ids(listener) == [1]
    log.report(None)
    assert ids(listener) == [1, 2]
    await runtime.close()


async def test_without_proof_an_answer_waits_for_a_batch_without_records() -> None:
    """Early answers wait, too."""
    log, listener = Elsewhere(), Listener()
    asked: list[Effect] = []

    def plan(route: Any, count: int, now: Now) -> list[Effect]:
        return [ReplyAtOnce(route, answer(1)), ReplyTo(route, answer(2)), AskTimestamps("token")]

    runtime = Runtime(ScriptedCore(plan), log, {AskTimestamps: asked.append})
    runtime.start()
    log.is_owner = False
    runtime.handle((listener, 1), REQUEST)
    await settle()
    assert log.batches == [[]]
    assert listener.got == []
    assert asked == [AskTimestamps("token")]
    log.report(None)
    assert listener.got == [(1, answer(1)), (1, answer(2))]
    statistics = runtime.statistics()
    assert (statistics.flush_count, statistics.waiting_count) == (0, 0)
    await runtime.close()


async def test_a_flush_under_way_proves_nothing_for_later_requests() -> None:
    """Another process may have taken the log over after the replicas had stored that batch."""
    log, listener = Elsewhere(), Listener()
    runtime = Runtime(ScriptedCore(read_or_write), log)
    runtime.start()
    runtime.handle((listener, 1), GenerateTimestamps(10))
    await settle()
    runtime.handle((listener, 2), GenerateTimestamps(1))  # with proof: it waits for the flush
    log.is_owner = False
    runtime.handle((listener, 3), GenerateTimestamps(2))
    log.report(None)
    await settle()
    assert ids(listener) == [1, 2]
    assert log.batches == [[10], []]
    log.report(None)
    assert ids(listener) == [1, 2, 3]
    await runtime.close()


async def test_records_that_come_while_an_answer_waits_join_its_batch() -> None:
    log, listener = Elsewhere(), Listener()
    log.is_owner = False
    runtime = Runtime(ScriptedCore(read_or_write), log)
    runtime.start()
    runtime.handle((listener, 1), GenerateTimestamps(1))
    runtime.handle((listener, 2), GenerateTimestamps(10))
    await settle()
    assert log.batches == [[10]]
    log.report(None)
    assert ids(listener) == [1, 2]
    await runtime.close()


async def test_requests_are_refused_while_the_log_has_too_few_copies() -> None:
    log, listener = Elsewhere(), Listener()
    runtime = Runtime(ScriptedCore(read_or_write), log)
    runtime.start()
    runtime.handle((listener, 1), GenerateTimestamps(10))
    await settle()
    log.why = "the log has 2 copies and needs 2, but nothing comes from b"
    runtime.handle((listener, 2), GenerateTimestamps(10))
    text = "The log has 2 copies and needs 2, but nothing comes from b. Wait, then repeat the call."
    assert listener.got == [(2, Failure("unavailable", text, {"is_sent": False}))]
    assert runtime.why_late() == log.why
    log.why = None
    log.report(None)
    assert ids(listener) == [2, 1]
    await runtime.close()


async def test_a_lost_log_ends_the_process() -> None:
    log, listener = Elsewhere(), Listener()
    ends: list[BaseException] = []
    runtime = Runtime(ScriptedCore(read_or_write), log, stop=ends.append)
    runtime.start()
    runtime.handle((listener, 1), GenerateTimestamps(10))
    await settle()
    error = RuntimeError("another process took the log over")
    log.report(error)
    assert ends == [error]
    assert listener.got == []
