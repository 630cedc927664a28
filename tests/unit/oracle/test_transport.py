"""A proxy's way to the master: what becomes of each answer."""

import asyncio
import logging
from collections.abc import Callable
from typing import Any

import pytest

from dodona.types import Timestamp
from dodona_oracle.core.proxy import ProxyCore
from dodona_oracle.shell import transport
from dodona_oracle.shell.settings import ProxySettings
from dodona_oracle.shell.transport import MasterLink, Registration
from dodona_server.master_peer import MasterPeer
from dodona_server.runtime import Runtime
from dodona_server.settings import parse_settings
from dodona_wire.cores.effects import AskMaster
from dodona_wire.messages.base import Failure
from dodona_wire.messages.catalog import Done
from dodona_wire.messages.data import GenerateTimestamps, TimestampRange
from dodona_wire.messages.families import Reply
from dodona_wire.net.cluster_key import ClusterKey
from suite.waiting import until

pytestmark = pytest.mark.anyio


class FakePeer:
    """Stands in for the connection to the master: the test answers."""

    def __init__(self, url: str, *, timeout_ms: int) -> None:
        self.url = url
        self.calls: list[tuple[Any, Callable[[Reply], None]]] = []

    def ask(self, body: Any, then: Callable[[Reply], None]) -> None:
        self.calls.append((body, then))

    async def close(self) -> None: ...


@pytest.fixture
def peers(monkeypatch: pytest.MonkeyPatch) -> list[FakePeer]:
    made: list[FakePeer] = []

    def make(url: str, *, timeout_ms: int, key: ClusterKey | None) -> FakePeer:
        made.append(FakePeer(url, timeout_ms=timeout_ms))
        return made[-1]

    monkeypatch.setattr(transport, "MasterPeer", make)
    return made


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (Failure("unavailable", "connection lost"), "unavailable"),
        (TimestampRange(Timestamp(5), 2), "unavailable"),  # not as many as were asked for
    ],
)
async def test_an_answer_other_than_the_requested_range_fails_the_batch(
    peers: list[FakePeer], answer: Reply, kind: str
) -> None:
    core = ProxyCore()
    links: list[MasterLink] = []

    def ask(effect: AskMaster) -> None:
        links[0].ask(effect)

    runtime = Runtime(core, None, {AskMaster: ask})
    options = ["--master-url", "http://127.0.0.1:1", "--answer-ms-max", "1000"]
    link = MasterLink(core, runtime, parse_settings(ProxySettings, "proxy", options))
    links.append(link)
    assert peers[0].url == "http://127.0.0.1:1"
    runtime.start()
    asking = asyncio.create_task(runtime.ask(GenerateTimestamps(1)))
    await asyncio.sleep(0)
    peers[0].calls[0][1](answer)
    reply = await asking
    assert isinstance(reply, Failure)
    assert reply.kind == kind
    asking = asyncio.create_task(runtime.ask(GenerateTimestamps(3)))
    await asyncio.sleep(0)
    assert peers[0].calls[1][0] == GenerateTimestamps(3)
    peers[0].calls[1][1](TimestampRange(Timestamp(9), 3))
    assert await asking == TimestampRange(Timestamp(9), 3)
    await link.close()
    await runtime.close()


async def test_a_failed_registration_reports_the_reason_and_continues() -> None:
    settings: ProxySettings = parse_settings(
        ProxySettings, "proxy", ["--master-url", "http://127.0.0.1:1", "--register-ms", "1"]
    )
    registration = Registration(settings)
    assert registration.reason == "not registered with the master yet"
    master = MasterPeer(settings.master_url, timeout_ms=1000, key=None)
    running = asyncio.create_task(registration.run(master))
    await until(lambda: "can't be reached" in str(registration.reason))
    await asyncio.sleep(0.02)  # an end that comes later is not seen
    assert not running.done()
    running.cancel()
    await asyncio.wait([running])
    await master.close()


async def test_a_password_in_the_master_s_url_is_in_no_line(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG)
    url = "http://somebody:the-secret-key@127.0.0.1:1/base"
    registration = Registration(parse_settings(ProxySettings, "proxy", ["--master-url", url]))
    master = MasterPeer(url, timeout_ms=1000, key=None)
    running = asyncio.create_task(registration.run(master))
    await until(lambda: "can't be reached" in str(registration.reason))
    running.cancel()
    await asyncio.wait([running])
    await master.close()

    class Willing(FakePeer):
        async def tell(self, body: Any) -> Reply:
            return Done()

    willing: Any = Willing(url, timeout_ms=1000)
    running = asyncio.create_task(registration.run(willing))
    await until(lambda: "registered with http://127.0.0.1:1/base" in caplog.text)
    running.cancel()
    await asyncio.wait([running])
    assert "not registered" in caplog.text
    assert "secret" not in caplog.text
