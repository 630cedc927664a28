"""Announcement over the connection of timestamps: to masters that take it there, and to others."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from dodona.types import NO_CLUSTER, CellId, Now
from dodona_oracle.core.master import MasterCore
from dodona_oracle.shell.store import MasterStore
from dodona_server import master_peer
from dodona_server.endpoint import Endpoint
from dodona_server.master_peer import MasterPeer
from dodona_server.process import read_clock
from dodona_server.runtime import Runtime
from dodona_wire.messages import rest
from dodona_wire.messages.base import Failure
from dodona_wire.messages.catalog import Assignment, Done, Heartbeat, RegisterProxy
from dodona_wire.messages.data import GenerateTimestamps, TimestampRange
from dodona_wire.net.cluster_key import ClusterKey
from unit.oracle.test_endpoint import listening

pytestmark = pytest.mark.anyio

BEAT = Heartbeat(CellId(0), "127.0.0.1:2", (), 1)


class WatchfulMaster(MasterCore):
    """Writes down what it is asked."""

    asked: list[type]

    def handle(self, route: Any, body: Any, now: Now) -> None:
        self.asked.append(type(body))
        super().handle(route, body, now)


@asynccontextmanager
async def master(
    folder: Path, *, takes_announcements: bool
) -> AsyncIterator[tuple[WatchfulMaster, MasterPeer]]:
    store = MasterStore.open(folder)
    core = WatchfulMaster.recover(store.items(), read_clock())
    core.asked = []
    runtime = Runtime(core, store)
    runtime.start()
    endpoint = Endpoint(runtime, takes_announcements=takes_announcements)
    async with listening(endpoint) as port:
        peer = MasterPeer(f"http://127.0.0.1:{port}", timeout_ms=10_000, key=None)
        yield core, peer
        await peer.close()
    await runtime.close()
    store.close()


async def test_announcements_use_the_timestamp_connection_if_the_master_takes_them(
    tmp_path: Path,
) -> None:
    async with master(tmp_path, takes_announcements=True) as (core, peer):
        reply = await peer.tell(BEAT)
        assert isinstance(reply, Assignment)
        assert (reply.sequence, reply.addresses) == (1, {CellId(0): "127.0.0.1:2"})
        assert reply.cluster != NO_CLUSTER
        assert await peer.tell(RegisterProxy("127.0.0.1:3")) == Done()
        assert core.asked == [Heartbeat, RegisterProxy]


async def test_a_master_that_takes_no_announcements_receives_none_on_the_connection(
    tmp_path: Path,
) -> None:
    """An older one would end the connection, with all that others asked on it."""
    async with master(tmp_path, takes_announcements=False) as (core, peer):
        replies = await asyncio.gather(
            peer.call(GenerateTimestamps(1)), peer.call(BEAT), peer.call(GenerateTimestamps(2))
        )
        assert [type(it) for it in replies] == [TimestampRange, Failure, TimestampRange]
        assert isinstance(await peer.call(RegisterProxy("127.0.0.1:3")), Failure)
        assert core.asked == [GenerateTimestamps, GenerateTimestamps]


async def test_announcements_use_rest_until_the_master_is_unreachable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who comes back may be of a newer release."""
    said: list[str | None] = ["a", "b", None, "c"]
    made: list[str] = []

    def answer(request: httpx.Request) -> httpx.Response:
        reason = said.pop(0)
        if reason is None:
            raise httpx.ConnectError("nobody there", request=request)
        problem = rest.problem_of(Failure("invalid_request", reason))
        return httpx.Response(problem.status, content=rest.encode_problem(problem))

    def make_http(url: str, key: ClusterKey | None) -> httpx.AsyncClient:
        made.append(url)
        return httpx.AsyncClient(base_url=url, transport=httpx.MockTransport(answer))

    monkeypatch.setattr(master_peer, "_make_http", make_http)
    async with master(tmp_path, takes_announcements=False) as (core, peer):
        replies = [await peer.tell(BEAT) for _ in range(4)]
        messages = [it.message for it in replies if isinstance(it, Failure)]
        away = "the master can't be reached: ConnectError('nobody there')"
        assert messages == ["a", "b", away, "c"]
        assert (len(made), core.asked) == (2, [])
