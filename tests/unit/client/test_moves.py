"""A cell that another node took over: calls to the node of before end soon, and go there."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from picows import WSMsgType

from dodona._core.protocol.routing import Routing
from dodona._io import moves
from dodona._io.network import Network
from dodona_wire.messages.base import Failure
from dodona_wire.messages.catalog import CatalogRequest, Cell, Cluster, GetCluster
from dodona_wire.messages.codec import encode_frame
from dodona_wire.messages.data import AskOutcome, Committed, DataReply
from dodona_wire.messages.families import Reply
from dodona_wire.net.peer import Peer
from dodona_wire.types import CellId, Timestamp, TransactionId
from suite.waiting import WAIT_S_MAX
from unit.client.endpoint import Endpoint, serving

pytestmark = pytest.mark.anyio

CELL = CellId(3)
ASK = AskOutcome(TransactionId(1))
DONE = Committed(TransactionId(1), Timestamp(10))


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(moves, "LOOK_SECONDS", 0.01)
    monkeypatch.setattr(moves, "QUIET_SECONDS", 0.03)


class Master(Network):
    """A network whose master is a variable."""

    address = ""
    epoch = 1
    is_alive = True
    asked_count = 0

    async def _ask_master(self, request: CatalogRequest) -> Reply:
        assert isinstance(request, GetCluster)
        self.asked_count += 1
        cell = Cell(CELL, self.address, self.is_alive, tablet_count=1, epoch=self.epoch)
        return Cluster((), (cell,))


def silent(_: object) -> DataReply | None:
    return None


@asynccontextmanager
async def network_to(endpoint: Endpoint) -> AsyncIterator[Master]:
    routing = Routing()
    routing.addresses[CELL] = endpoint.address
    network = Master("http://127.0.0.1:1", routing)
    network.address = endpoint.address
    try:
        yield network
    finally:
        await network.close()


async def test_a_call_to_a_node_that_lost_the_cell_ends_and_the_next_one_goes_to_the_new_node() -> (
    None
):
    async with serving(silent) as old, serving(lambda _: DONE) as new, network_to(old) as network:
        async with asyncio.timeout(WAIT_S_MAX):
            call = network.call(CELL, ASK)
            while not old.bodies:
                await asyncio.sleep(0.01)
            network.address = new.address
            reply = await call
            assert isinstance(reply, Failure)
            assert reply.message == f"cell 3 moved from {old.address} to {new.address}"
            assert "is_sent" not in reply.attributes, "the old node may have done it"
            assert await network.call(CELL, ASK) == DONE


async def test_a_call_to_a_node_that_has_much_to_do_goes_on_waiting() -> None:
    async with serving(silent) as slow, network_to(slow) as network:
        call = network.call(CELL, ASK)
        async with asyncio.timeout(WAIT_S_MAX):
            while network.asked_count < 3:
                await asyncio.sleep(0.01)
        assert not call.done()
        (transport,) = slow.transports
        transport.send(WSMsgType.BINARY, encode_frame([(1, DONE)]))
        async with asyncio.timeout(WAIT_S_MAX):
            assert await call == DONE


async def test_a_cell_that_no_other_node_can_take_over_is_asked_about_once() -> None:
    """Otherwise slow nodes of a cluster without copies would keep the master busy, too."""
    async with serving(silent) as slow, network_to(slow) as network:
        network.epoch = 0
        call = network.call(CELL, ASK)
        async with asyncio.timeout(WAIT_S_MAX):
            while network.asked_count < 1:
                await asyncio.sleep(0.01)
        await asyncio.sleep(20 * moves.QUIET_SECONDS)
        assert network.asked_count == 1
        assert not call.done()


async def test_a_cell_that_the_master_has_not_heard_of_may_have_moved() -> None:
    """A master that has just started says that no cell is alive, and epoch 0 of each of them."""
    async with serving(silent) as old, serving(lambda _: DONE) as new, network_to(old) as network:
        network.epoch, network.is_alive, network.address = 0, False, ""
        call = network.call(CELL, ASK)
        async with asyncio.timeout(WAIT_S_MAX):
            while network.asked_count < 2:
                await asyncio.sleep(0.01)
            assert not call.done()
            network.epoch, network.is_alive, network.address = 2, True, new.address
            assert isinstance(await call, Failure)
            assert await network.call(CELL, ASK) == DONE


async def test_a_cluster_that_gets_copies_later_is_asked_about_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(moves, "FIXED_SECONDS", 0.05)
    async with serving(silent) as old, serving(lambda _: DONE) as new, network_to(old) as network:
        network.epoch = 0
        call = network.call(CELL, ASK)
        async with asyncio.timeout(WAIT_S_MAX):
            while network.asked_count < 1:
                await asyncio.sleep(0.01)
            network.epoch, network.address = 1, new.address
            assert isinstance(await call, Failure)
            assert await network.call(CELL, ASK) == DONE


async def test_a_connection_is_quiet_only_while_a_call_waits() -> None:
    async with serving(silent) as node:
        peer = Peer(node.url)
        now = asyncio.get_running_loop().time()
        assert (peer.is_waiting, peer.quiet_s(now + 1_000)) == (False, 0.0)
        call = peer.call(ASK)
        assert peer.is_waiting
        assert peer.quiet_s(now + 1_000) > 900
        async with asyncio.timeout(WAIT_S_MAX):
            while not node.bodies:
                await asyncio.sleep(0.01)
        (transport,) = node.transports
        transport.send(WSMsgType.BINARY, encode_frame([(1, DONE)]))
        async with asyncio.timeout(WAIT_S_MAX):
            assert await call == DONE
        assert (peer.is_waiting, peer.quiet_s(now + 1_000)) == (False, 0.0)
        await peer.close()
