"""How long a page is waited for: not for ever, and not once nobody looks."""

import asyncio
from typing import Any

import pytest

from dodona.errors import InvalidRequest, RequestTimedOut, Unavailable
from dodona_gateway.shell.console import patience
from dodona_gateway.shell.console.patience import in_time, unless_gone

pytestmark = pytest.mark.anyio


class Caller:
    """As much of a request as is listened to, once its body was read."""

    def __init__(self) -> None:
        self.has_gone = asyncio.Event()
        self._told = 0

    async def receive(self) -> dict[str, Any]:
        self._told += 1
        if self._told == 1:
            return {"type": "http.request", "body": b"", "more_body": False}
        await self.has_gone.wait()
        return {"type": "http.disconnect"}


async def test_what_takes_too_long_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    assert await in_time(asyncio.sleep(0, 5)) == 5
    monkeypatch.setattr(patience, "ANSWER_S", 0.01)
    async with asyncio.timeout(10):
        with pytest.raises(Unavailable, match="does not answer"):
            await in_time(asyncio.Event().wait())


async def test_work_is_cancelled_when_its_caller_disconnects() -> None:
    caller: Any = Caller()
    ended: list[str] = []

    async def work() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            await asyncio.sleep(0)
            ended.append("cancelled")
            raise

    waiting = asyncio.create_task(unless_gone(caller, work()))
    await asyncio.sleep(0.01)
    assert not waiting.done()
    caller.has_gone.set()
    with pytest.raises(RequestTimedOut):
        await waiting
    assert ended == ["cancelled"]


async def test_a_deadline_ends_work_and_a_result_or_an_error_reaches_the_caller() -> None:
    caller: Any = Caller()
    ended: list[str] = []
    tasks = asyncio.all_tasks()

    async def work() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("over")

    async def fail() -> None:
        raise InvalidRequest("no such column")

    assert await unless_gone(caller, asyncio.sleep(0, 7)) == 7
    with pytest.raises(InvalidRequest, match="no such column"):
        await unless_gone(caller, fail())
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await unless_gone(caller, work())
    assert ended == ["over"]
    assert asyncio.all_tasks() == tasks, "nobody listens any more"
