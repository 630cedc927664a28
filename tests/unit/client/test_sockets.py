"""Connections that are given up before a server has answered: none stays open."""

import asyncio

import pytest

from dodona_wire.messages.base import Failure
from dodona_wire.messages.data import AskOutcome
from dodona_wire.net import peer as peer_module
from dodona_wire.net.peer import Peer
from dodona_wire.net.sockets import connected_socket
from dodona_wire.types import TransactionId
from suite.waiting import WAIT_S_MAX

pytestmark = pytest.mark.anyio


async def test_a_peer_that_closes_while_a_server_does_not_answer_leaves_no_connection_open(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A server that stands still takes the connection, and says nothing."""
    monkeypatch.setattr(peer_module, "CONNECT_TIMEOUT_SECONDS", 10 * WAIT_S_MAX)
    ends: asyncio.Queue[bytes] = asyncio.Queue()
    asked = asyncio.Event()

    async def take(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        asked.set()
        ends.put_nowait(await reader.read())
        writer.close()

    async with await asyncio.start_server(take, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        peer = Peer(f"ws://127.0.0.1:{port}/rpc")
        call = peer.call(AskOutcome(TransactionId(1)))
        async with asyncio.timeout(WAIT_S_MAX):
            await asked.wait()
            await peer.close()
            reply = await call
            assert isinstance(reply, Failure)
            assert "closed" in reply.message
            assert await ends.get() == b""


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
async def test_a_server_is_found_by_its_address_and_by_its_name(host: str) -> None:
    async with await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0) as it:
        port = it.sockets[0].getsockname()[1]
        with await connected_socket(host, port) as opened:
            assert opened.getpeername() == ("127.0.0.1", port)


async def test_a_port_at_which_nothing_listens_is_refused() -> None:
    async with await asyncio.start_server(lambda _, __: None, "127.0.0.1", 0) as it:
        port = it.sockets[0].getsockname()[1]
    with pytest.raises(ConnectionRefusedError, match=str(port)):
        await connected_socket("127.0.0.1", port)
