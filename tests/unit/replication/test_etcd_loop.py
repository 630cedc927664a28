"""Calls of many event loops run in one, which stays open."""

import asyncio
import os
import threading
from collections.abc import AsyncGenerator
from contextlib import aclosing

import pytest

from dodona_replication.shell import etcd_loop
from dodona_replication.shell.etcd_loop import in_etcd_loop, streamed
from suite.waiting import WAIT_S_MAX, until


async def running_loop() -> asyncio.AbstractEventLoop:
    return asyncio.get_running_loop()


def test_calls_of_all_event_loops_run_in_the_same_one() -> None:
    """The loops of the callers are closed. An answer for a closed loop stops gRPC for ever."""
    found = [asyncio.run(in_etcd_loop(running_loop())) for _ in range(3)]
    assert len(set(found)) == 1
    assert found[0].is_running()


def test_a_call_raises_what_its_coroutine_raises() -> None:
    async def fail() -> None:
        raise KeyError("away")

    with pytest.raises(KeyError, match="away"):
        asyncio.run(in_etcd_loop(fail()))


def test_a_call_that_is_cancelled_ends_there() -> None:
    ended: list[str] = []

    async def wait() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("call")

    async def cancel() -> None:
        call = asyncio.create_task(in_etcd_loop(wait()))
        await asyncio.sleep(0)
        await in_etcd_loop(running_loop())  # the call has begun
        call.cancel()
        await until(lambda: ended == ["call"])

    asyncio.run(cancel())


def test_a_stream_yields_the_newest_element_and_ends() -> None:
    async def count() -> AsyncGenerator[int]:
        for number in range(5):
            yield number

    async def read() -> list[int]:
        stream = streamed(count)
        first = await anext(stream)
        await in_etcd_loop(running_loop())
        await asyncio.sleep(0)
        return [first, *[it async for it in stream]]

    found = asyncio.run(read())
    assert found == sorted(set(found))
    assert found[-1] == 4


def test_a_slow_caller_of_a_stream_gets_only_the_newest_element() -> None:
    async def read() -> None:
        go, made = asyncio.Event(), asyncio.Event()

        async def make() -> AsyncGenerator[int]:
            yield 0
            here.call_soon_threadsafe(made.set)
            while not go.is_set():
                await asyncio.sleep(0.001)
            yield 1
            yield 2
            here.call_soon_threadsafe(made.set)
            await asyncio.Event().wait()

        here = asyncio.get_running_loop()
        async with aclosing(streamed(make)) as stream:
            assert await anext(stream) == 0
            await made.wait()
            made.clear()
            go.set()
            await made.wait()
            assert await anext(stream) == 2

    asyncio.run(read())


def test_a_stream_raises_what_its_source_raises_after_its_elements() -> None:
    async def fail() -> AsyncGenerator[int]:
        yield 1
        raise KeyError("removed")

    async def read() -> None:
        stream = streamed(fail)
        assert await anext(stream) == 1
        with pytest.raises(KeyError, match="removed"):
            await anext(stream)

    asyncio.run(read())


def test_a_stream_that_is_closed_ends_its_source() -> None:
    ended: list[str] = []

    async def wait() -> AsyncGenerator[int]:
        try:
            yield 1
            await asyncio.Event().wait()
        finally:
            ended.append("source")

    async def close() -> None:
        async with aclosing(streamed(wait)) as stream:
            assert await anext(stream) == 1
        await until(lambda: ended == ["source"])

    asyncio.run(close())


def test_a_stream_whose_caller_is_gone_ends_and_later_calls_run() -> None:
    ended = threading.Event()

    async def wait() -> AsyncGenerator[int]:
        try:
            yield 1
            await asyncio.Event().wait()
        finally:
            ended.set()

    async def leave() -> None:
        assert await anext(streamed(wait)) == 1

    asyncio.run(leave())
    assert ended.wait(WAIT_S_MAX)
    assert asyncio.run(in_etcd_loop(running_loop())).is_running()


def test_without_a_thread_each_call_fails_until_there_is_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(etcd_loop, "_thread", etcd_loop._Thread())
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", fail)
        for _ in range(2):
            with pytest.raises(RuntimeError, match="can't start new thread"):
                asyncio.run(in_etcd_loop(running_loop()))
    assert asyncio.run(in_etcd_loop(running_loop())).is_running()


def test_a_fork_of_a_process_that_has_asked_etcd_fails_instead_of_waiting() -> None:
    asyncio.run(in_etcd_loop(running_loop()))
    child = os.fork()
    if not child:
        try:
            asyncio.run(in_etcd_loop(running_loop()))
        except RuntimeError as error:
            os._exit("is a fork" not in str(error))
        os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
