"""What runs beside a server ends with it, or ends it; and its own end is bounded."""

import asyncio
import logging
import os

import pytest

from dodona_server import beside, process
from dodona_server.beside import running_beside
from suite.waiting import until

pytestmark = pytest.mark.anyio


@pytest.fixture
def stopped(monkeypatch: pytest.MonkeyPatch) -> list[BaseException]:
    """What the process would have ended with."""
    errors: list[BaseException] = []
    monkeypatch.setattr(beside, "stop_process", errors.append)
    return errors


async def last() -> None:
    await asyncio.sleep(3600)


async def fail() -> None:
    raise OSError("the disk is full")


async def leave() -> None:
    pass


async def test_a_server_cancels_its_background_tasks_at_the_end_without_an_error(
    stopped: list[BaseException],
) -> None:
    async with running_beside(last(), last()):
        await asyncio.sleep(0)
    assert stopped == []


async def test_the_process_stops_when_a_background_task_fails_or_ends(
    stopped: list[BaseException],
) -> None:
    async with running_beside(fail(), last(), leave()):
        await until(lambda: len(stopped) == 2)
        assert [str(it) for it in stopped] == ["the disk is full", "leave has ended"]


async def test_an_error_of_the_server_itself_is_raised_to_its_caller(
    stopped: list[BaseException],
) -> None:
    with pytest.raises(ValueError, match="its own"):
        async with running_beside(last()):
            raise ValueError("its own")
    assert stopped == []


# ---- the end of what lies on a disk


async def test_the_process_exits_if_closing_takes_too_long(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    statuses: list[int] = []
    monkeypatch.setattr(os, "_exit", statuses.append)
    monkeypatch.setattr(logging, "shutdown", lambda: None)
    await process.close_in_time(leave())
    assert statuses == []
    await process.close_in_time(last(), 0.01)
    assert statuses == [process.EXIT_STATUS_NOT_CLOSED] != [0]
    assert [it.fields for it in caplog.records] == [{"event": "not_closed"}]  # type: ignore[attr-defined]


async def test_a_stop_that_fails_is_no_stop_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    errors: list[BaseException] = []
    monkeypatch.setattr(process, "stop_process", errors.append)
    await process.close_in_time(fail())
    assert [str(it) for it in errors] == ["the disk is full"]
