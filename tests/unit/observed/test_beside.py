"""What runs beside a server ends with it, or ends it."""

import asyncio

import pytest

from dodona._io import beside
from dodona._io.beside import running_beside

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


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


async def test_at_the_end_it_is_cancelled_and_that_is_no_surprise(
    stopped: list[BaseException],
) -> None:
    async with running_beside(last(), last()):
        await asyncio.sleep(0)
    assert stopped == []


async def test_the_process_does_not_go_on_without_it(stopped: list[BaseException]) -> None:
    async with running_beside(fail(), last(), leave()):
        await asyncio.sleep(0.01)
        assert [str(it) for it in stopped] == ["the disk is full", "leave has ended"]


async def test_what_the_server_met_itself_goes_on(stopped: list[BaseException]) -> None:
    with pytest.raises(ValueError, match="its own"):
        async with running_beside(last()):
            raise ValueError("its own")
    assert stopped == []
