"""A log between its take-over and the event loop that serves."""

import asyncio
import threading

import pytest

from dodona_tablets.shell.log_keeper import LogKeeper
from suite.waiting import WAIT_S_MAX


class Log:
    """A log that was taken over: it lives in a loop, and leaves it."""

    def __init__(self) -> None:
        self.beats = 0
        self.left = threading.Event()
        self.begun = threading.Event()

    async def prepare(self) -> str:
        self.beating = asyncio.create_task(self._beat())
        return "made"

    async def wait(self) -> str:
        self.begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            await self.leave()
        return "never"

    async def fail(self) -> str:
        raise KeyError("lost")

    async def leave(self) -> None:
        self.left.set()

    async def _beat(self) -> None:
        while True:
            self.beats += 1
            await asyncio.sleep(0)


def test_a_log_lives_on_until_it_is_left_to_another_loop() -> None:
    log = Log()
    keeper = LogKeeper(log.prepare, log.leave)
    assert keeper.start() == "made"
    seen = log.beats
    deadline = threading.Event()
    while log.beats <= seen + 1:
        deadline.wait(0.001)
    assert not log.left.is_set()
    keeper.end()
    assert log.left.is_set()
    ended = log.beats
    deadline.wait(0.01)
    assert log.beats == ended


def test_what_a_take_over_raises_ends_the_thread() -> None:
    log = Log()
    before = {*threading.enumerate()}
    with pytest.raises(KeyError, match="lost"):
        LogKeeper(log.fail, log.leave).start()
    assert {*threading.enumerate()} <= before, "those of other tests may end meanwhile"


def test_a_signal_during_a_take_over_leaves_the_log_before_it_goes_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The folder is unlocked next: nothing may write there any more."""
    log = Log()
    keeper = LogKeeper(log.wait, log.leave)

    def interrupted() -> str:
        assert log.begun.wait(WAIT_S_MAX)
        raise KeyboardInterrupt

    monkeypatch.setattr(keeper._made, "result", interrupted)
    before = {*threading.enumerate()}
    with pytest.raises(KeyboardInterrupt):
        keeper.start()
    assert log.left.is_set()
    assert {*threading.enumerate()} <= before, "those of other tests may end meanwhile"
