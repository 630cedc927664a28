"""Replies that a peer hands out by turns: who goes on while others still wait for theirs."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from dodona.types import Key, Revision, TabletId, Timestamp, TransactionId
from dodona_wire.messages.data import AskOutcome, Committed, DataReply, Lookup, LookupReply
from dodona_wire.net import peer as peer_module
from dodona_wire.net.peer import Peer
from unit.client.endpoint import Endpoint, serving

pytestmark = pytest.mark.anyio


def echo(body: object) -> DataReply | None:
    """Commits are told by their numbers; of rows there are none."""
    if isinstance(body, AskOutcome):
        return Committed(body.transaction, Timestamp(body.transaction * 10))
    assert isinstance(body, Lookup)
    return LookupReply((None,))


def ask(number: int = 1) -> AskOutcome:
    return AskOutcome(TransactionId(number))


def lookup(number: int) -> Lookup:
    return Lookup(TabletId(1), Revision(1), Timestamp(number), (Key(b"k"),), 1)


@asynccontextmanager
async def connected(endpoint: Endpoint) -> AsyncIterator[Peer]:
    peer = Peer(endpoint.url)
    try:
        yield peer
    finally:
        await peer.close()


async def test_the_first_callers_go_on_before_the_last_have_their_replies() -> None:
    turn = peer_module.REPLIES_PER_TURN
    woken: list[int] = []

    async def caller(peer: Peer, number: int) -> None:
        await peer.call(ask(number))
        woken.append(number)
        assert isinstance(await peer.call(ask(1_000 + number)), Committed)

    async with serving(echo) as endpoint, connected(endpoint) as peer:
        await peer.call(ask())
        endpoint.frame_sizes.clear()
        async with asyncio.TaskGroup() as callers:
            for number in range(3 * turn):
                callers.create_task(caller(peer, number))
        assert woken == list(range(3 * turn))
        assert endpoint.frame_sizes == [3 * turn, turn, turn, turn]


async def test_replies_received_before_a_close_reach_their_callers() -> None:
    count = 3 * peer_module.REPLIES_PER_TURN
    async with serving(echo) as endpoint, connected(endpoint) as peer:
        calls = [peer.call(ask(number)) for number in range(1, count)]
        await calls[0]  # the first turn: the others wait for theirs
        assert not calls[-1].done()
        await peer.close()
        assert all(isinstance(call.result(), Committed) for call in calls)


@pytest.mark.parametrize(("count", "frames"), [(3, [3]), (6, [4, 2]), (16, [8, 8]), (17, [9, 8])])
async def test_a_peer_delivers_row_replies_to_the_waiting_callers_in_two_halves(
    count: int, frames: list[int]
) -> None:
    async def caller(peer: Peer, number: int) -> None:
        for _ in range(2):
            assert isinstance(await peer.call(lookup(number)), LookupReply)

    async with serving(echo) as endpoint, connected(endpoint) as peer:
        await peer.call(ask())
        endpoint.frame_sizes.clear()
        async with asyncio.TaskGroup() as callers:
            for number in range(count):
                callers.create_task(caller(peer, number))
        assert endpoint.frame_sizes == [count, *frames]


async def test_commits_that_come_together_stay_together() -> None:
    async with serving(echo) as endpoint, connected(endpoint) as peer:

        async def caller(number: int) -> None:
            for _ in range(3):
                assert isinstance(await peer.call(ask(number)), Committed)

        await peer.call(ask())
        endpoint.frame_sizes.clear()
        async with asyncio.TaskGroup() as callers:
            for number in range(peer_module.REPLIES_PER_TURN):
                callers.create_task(caller(number))
        assert endpoint.frame_sizes == [peer_module.REPLIES_PER_TURN] * 3
