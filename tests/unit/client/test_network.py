"""Calls to the master, as the network sends them: what certainly never left says so."""

import httpx
import pytest

from dodona._core.protocol.routing import Routing
from dodona._core.protocol.steps import MASTER
from dodona._io.network import Network
from dodona_wire.messages.base import Failure
from dodona_wire.messages.catalog import GetCluster

pytestmark = pytest.mark.anyio

NO_LOOKUP = RuntimeError("cannot schedule new futures after shutdown")


@pytest.mark.parametrize(
    ("error", "is_sent"),
    [
        (httpx.ConnectError("refused"), False),
        (httpx.ConnectTimeout(""), False),
        (NO_LOOKUP, False),
        (httpx.ReadTimeout(""), True),
        (httpx.RemoteProtocolError("closed"), True),
        (RuntimeError("closed"), True),
    ],
)
async def test_a_failed_call_to_the_master_reports_whether_the_call_was_sent(
    monkeypatch: pytest.MonkeyPatch, error: Exception, is_sent: bool
) -> None:
    """Names are not looked up any more once the main thread has ended."""
    network = Network("http://127.0.0.1:1", Routing())

    async def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr(network, "_request", fail)
    reply = await network.call(MASTER, GetCluster())
    assert isinstance(reply, Failure)
    assert reply.attributes.get("is_sent", True) is is_sent
    await network.close()
