"""How a watch of etcd learns that its member still lives."""

import asyncio
from collections.abc import Awaitable
from contextlib import aclosing
from typing import Any, cast

import grpc
import pytest
from aetcd import rpc

from dodona_replication.shell.etcd_member import CallFailed, EtcdMember
from dodona_replication.shell.etcd_options import EtcdOptions
from dodona_replication.shell.etcd_watch import events_of

OPTIONS = EtcdOptions(["etcd-0"], "c1", progress_ms=1, silence_ms_max=3)
KEY = OPTIONS.key("cell-1")
EVENT = rpc.Event(kv=rpc.KeyValue(key=KEY, value=b"it", mod_revision=7))


class ScriptedMember:
    """A member whose one stream answers requests by a script, and itself as a call of gRPC."""

    endpoint = OPTIONS.members[0]

    def __init__(self, script: list[Any], ignored_count: int = 0) -> None:
        self._script = script
        self._ignored_count = ignored_count
        self._answers: asyncio.Queue[Any] = asyncio.Queue()
        self.is_cancelled = False
        self.heard: list[Any] = []

    async def watch(self) -> "ScriptedMember":
        return self

    async def guarded(self, waiting: Awaitable[Any]) -> Any:
        return await waiting

    def hear(self, answer: Any) -> Any:
        self.heard.append(answer)
        return answer

    async def write(self, request: Any) -> None:
        if self._ignored_count > 0 and request.HasField("progress_request"):
            self._ignored_count -= 1
        elif self._script:
            self._answers.put_nowait(self._script.pop(0))

    async def read(self) -> Any:
        return await self._answers.get()

    def cancel(self) -> None:
        self.is_cancelled = True


def watched(member: ScriptedMember) -> list[Any]:
    async def watch() -> None:
        async with aclosing(events_of(cast(EtcdMember, member), KEY, 7, OPTIONS)) as events:
            async for it in events:
                found.append(it)  # noqa: PERF401 - those before the error count, too

    found: list[Any] = []
    with pytest.raises(CallFailed) as caught:
        asyncio.run(watch())
    assert member.is_cancelled
    return [*found, str(caught.value)]


def test_a_watch_that_gets_signs_of_life_waits_for_events() -> None:
    silence = [rpc.WatchResponse(created=True), *(rpc.WatchResponse() for _ in range(20))]
    member = ScriptedMember([*silence, rpc.WatchResponse(events=[EVENT]), grpc.aio.EOF])
    event, end = watched(member)
    assert event == EVENT
    assert end.endswith("etcd ended the watch")
    assert len(member.heard) == 22, "also those without events"


def test_a_sign_of_life_may_be_missing_once() -> None:
    member = ScriptedMember([rpc.WatchResponse(created=True), grpc.aio.EOF], ignored_count=1)
    assert watched(member)[0].endswith("etcd ended the watch")


def test_a_watch_without_a_sign_of_life_ends() -> None:
    assert watched(ScriptedMember([rpc.WatchResponse(created=True)])) == [
        "http://etcd-0:2379: the watch was silent for 3 ms"
    ]


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (rpc.WatchResponse(canceled=True, compact_revision=9), "compacted at 9"),
        (rpc.WatchResponse(canceled=True, cancel_reason="no leader"), "no leader"),
    ],
    ids=["compacted", "cancelled"],
)
def test_a_watch_that_etcd_cancels_ends_with_the_reason(answer: Any, reason: str) -> None:
    member = ScriptedMember([rpc.WatchResponse(created=True), answer])
    assert reason in watched(member)[0]
    assert len(member.heard) == 1, "a member without a leader is no sign of life of etcd"
