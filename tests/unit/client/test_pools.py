"""Pools of threads, and what is done where there can be none any more."""

import _thread
import asyncio
import concurrent.futures.thread
import gc
import sys
import threading
import weakref
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

import pytest

from dodona.errors import Unavailable
from dodona_wire.net import threads
from dodona_wire.net.pools import Pool, asked
from suite.waiting import WAIT_S_MAX

pytestmark = pytest.mark.anyio


def no_more_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """As once the main thread has ended."""
    monkeypatch.setattr(concurrent.futures.thread, "_shutdown", True)


def no_import(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a program that has not imported it by then."""

    class Refusing:
        @staticmethod
        def find_spec(name: str, *_: object) -> None:
            if name == "concurrent.futures.thread":
                raise RuntimeError("can't register atexit after shutdown")

    monkeypatch.delitem(sys.modules, "concurrent.futures.thread")
    monkeypatch.delattr(concurrent.futures, "thread")
    monkeypatch.setattr(sys, "meta_path", [Refusing, *sys.meta_path])


def fail() -> int:
    raise ZeroDivisionError


async def test_work_is_done_in_threads() -> None:
    pool = Pool(2, "some-name")
    names: list[str] = []
    pool.submit(lambda name: names.append(threading.current_thread().name + name), "!")
    assert (await pool.ask(lambda: threading.current_thread().name)).startswith("some-name")
    with pytest.raises(ZeroDivisionError):
        await pool.ask(fail)
    pool.close(wait=True)
    assert [it[-1] for it in names] == ["!"]


@pytest.mark.parametrize("end", [no_more_work, no_import])
async def test_work_is_done_here_where_there_are_none(
    end: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        end(patch)
        pool, done = Pool(1, "none"), list[threading.Thread]()
        pool.submit(lambda it: it.append(threading.current_thread()), done)
        done.append(await pool.ask(threading.current_thread))
        assert done == [threading.current_thread()] * 2
        with pytest.raises(ZeroDivisionError):
            await pool.ask(fail)
        pool.close(wait=True)


async def test_work_that_the_event_loop_executor_refuses_runs_in_the_calling_thread() -> None:
    await asyncio.get_running_loop().shutdown_default_executor()
    assert await asked(threading.current_thread) is threading.current_thread()


async def test_a_closed_pool_takes_none() -> None:
    pool = Pool(1, "closed")
    pool.close(wait=False)
    for give in (pool.submit, pool.ask):
        with pytest.raises(RuntimeError, match="closed"):
            give(fail)


async def test_work_that_finds_no_thread_is_done_once_or_never(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Python has put it into its queue by then."""

    def refuse(_: object) -> None:
        raise RuntimeError("can't start new thread")

    pool, done = Pool(1, "scarce"), list[str]()
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        with pytest.raises(Unavailable, match="can't start new thread"):
            pool.submit(done.append, "refused")
        with pytest.raises(Unavailable, match="can't start new thread"):
            pool.ask(lambda: done.append("refused, too"))
    pool.submit(done.append, "done")
    await pool.ask(lambda: None)
    pool.close(wait=True)
    assert done == ["done"]


async def test_a_pool_does_not_run_work_cancelled_before_its_start() -> None:
    pool, done, may_end = Pool(1, "busy"), list[str](), threading.Event()
    pool.submit(may_end.wait, 60)
    asked_for = pool.ask(lambda: done.append("never"))
    asked_for.cancel()
    await asyncio.sleep(0)  # it is passed on by the loop
    may_end.set()
    await pool.ask(lambda: None)
    pool.close(wait=True)
    assert done == []


async def test_a_thread_that_is_not_done_yet_keeps_nothing_alive(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It has told the loop, and stands still before it takes leave of its work."""
    loop, pool = asyncio.get_running_loop(), Pool(1, "slow")
    is_awaited, may_go_on = threading.Event(), threading.Event()
    tell = loop.call_soon_threadsafe

    def stand_still(*arguments: Any) -> object:
        handle = tell(*arguments)
        assert threading.current_thread() is not threading.main_thread()
        may_go_on.wait(WAIT_S_MAX)
        return handle

    def fail_with(thing: Thing) -> None:
        is_awaited.wait(WAIT_S_MAX)
        raise ZeroDivisionError(id(thing))

    async def lose_thing() -> weakref.ref[Thing]:
        thing = Thing()
        loop.call_soon(is_awaited.set)
        with suppress(ZeroDivisionError):
            await pool.ask(partial(fail_with, thing))
        return weakref.ref(thing)

    monkeypatch.setattr(loop, "call_soon_threadsafe", stand_still)
    gc.disable()
    try:
        known = await lose_thing()
        await asyncio.sleep(0)  # the loop has what it awaited for as long as it does not go on
        assert not may_go_on.is_set()
        assert known() is None
    finally:
        gc.enable()
        may_go_on.set()
        pool.close(wait=True)


class Thing:
    """What may be let go of."""


@pytest.mark.parametrize("begin", [threads.begin_thread, threads.begin_thread_soon])
async def test_a_thread_that_can_not_begin_is_an_error(
    begin: Callable[[Callable[[], None], str], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its caller waited for it, for ever."""

    def refuse(*_: object) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(_thread, "start_new_thread", refuse)
    with pytest.raises(Unavailable, match="can't start new thread"):
        begin(fail_quietly, "none")


async def test_begin_thread_raises_an_error_if_a_thread_fails_to_start(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    begun = threading.Event()

    class Thread:
        def __init__(self, **_: object) -> None: ...

        def start(self) -> None:
            raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading, "Thread", Thread)
    with pytest.raises(Unavailable, match="can't start new thread"):
        threads.begin_thread(fail_quietly, "none")
    threads.begin_thread_soon(begun.set, "soon")
    assert begun.wait(60)


def fail_quietly() -> None: ...
