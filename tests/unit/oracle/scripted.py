"""A core, a log and a replier that do what a test says, for the tests of the runtime."""

import asyncio
import threading
from collections.abc import Callable, Sequence
from typing import Any

from dodona.types import CellId, Now, Timestamp, TransactionId
from dodona_server.log_thread import DistantLog, Report
from dodona_wire.cores.effects import (
    Append,
    Effect,
    ReplyTo,
)
from dodona_wire.messages.cells import Acknowledge
from dodona_wire.messages.data import GenerateTimestamps, TimestampRange
from suite.waiting import WAIT_S_MAX, until

ACKNOWLEDGE = Acknowledge(CellId(1), TransactionId(2))
REQUEST = GenerateTimestamps(1)


def answer(number: int) -> TimestampRange:
    return TimestampRange(Timestamp(number), 1)


class ScriptedCore:
    """Does what each test says: `plan` maps a request's count to the effects it has."""

    def __init__(self, plan: Callable[[Any, int, Now], list[Effect]] | None = None) -> None:
        self.plan = plan or (lambda route, count, now: [ReplyTo(route, answer(count))])
        self.effects: list[Effect] = []
        self.deadline_us: int | None = None
        self.tick_count = 0
        self.durable: list[Any] = []
        self.cell_messages: list[Any] = []

    def handle(self, route: Any, body: Any, now: Now) -> None:
        self.effects += self.plan(route, body.count, now)

    def handle_durable(self, record: Any, now: Now) -> None:
        self.durable.append(record)

    def handle_cell_message(self, body: Any, now: Now) -> None:
        self.cell_messages.append(body)

    def tick(self, now: Now) -> None:
        self.tick_count += 1
        self.deadline_us = None

    def next_deadline(self) -> int | None:
        return self.deadline_us

    def take_effects(self) -> list[Effect]:
        effects, self.effects = self.effects, []
        return effects


class GatedLog:
    """A disk whose writes last until the test lets them through."""

    def __init__(self) -> None:
        self.flushes: list[list[Any]] = []
        self.begun = threading.Semaphore(0)
        self.gate = threading.Semaphore(0)

    def append(self, records: Sequence[Any]) -> None:
        self.begun.release()
        assert self.gate.acquire(timeout=WAIT_S_MAX)
        self.flushes.append(list(records))

    async def wait_until_begun(self) -> None:
        assert await asyncio.to_thread(self.begun.acquire, True, WAIT_S_MAX)


class Elsewhere(DistantLog):
    """A log that becomes durable, and proves its ownership, when the test says so."""

    def __init__(self) -> None:
        self.is_owner = True
        self.batches: list[list[Any]] = []
        self.why: str | None = None
        self.report: Report

    async def join(self) -> None: ...

    async def leave(self) -> None: ...

    def begin(self, report: Report) -> None:
        self.report = report

    def append(self, records: Sequence[Any]) -> None:
        self.batches.append([*records])

    def may_answer(self, now: Now) -> bool:
        return self.is_owner

    def shortage(self, now: Now) -> str | None:
        return self.why


class Listener:
    """A replier that remembers."""

    def __init__(self) -> None:
        self.got: list[tuple[int, Any]] = []

    def reply(self, request_id: int, body: Any) -> None:
        self.got.append((request_id, body))

    async def wait_for(self, count: int) -> None:
        await until(lambda: len(self.got) >= count)


def append_and_reply(route: Any, count: int, now: Now) -> list[Effect]:
    return [Append(count), ReplyTo(route, answer(count))]


async def settle() -> None:
    """Let everything that could happen without the log happen."""
    for _ in range(10):
        await asyncio.sleep(0)


def read_or_write(route: Any, count: int, now: Now) -> list[Effect]:
    """Requests for 10 and more write, others only read."""
    reply: Effect = ReplyTo(route, answer(count))
    return [reply] if count < 10 else [Append(count), reply]


def ids(listener: Listener) -> list[int]:
    return [request_id for request_id, _ in listener.got]
