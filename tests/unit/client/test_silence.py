"""What a client does with a server that is dead: wait briefly, try once more, and name it."""

import asyncio
from typing import Final

import pytest

from dodona._core.protocol.retry import RETRY_DEAD_MS, Patience
from dodona.errors import CommitOutcomeUnknown, Unavailable
from dodona.types import Timestamp
from dodona_wire.messages.base import Failure
from dodona_wire.messages.data import Aborted, AskOutcome, Committed, Decide, Prepared
from dodona_wire.messages.families import Reply
from dodona_wire.net import peer as peer_module
from dodona_wire.net.peer import Peer
from dodona_wire.net.rpc_urls import rpc_url
from dodona_wire.net.silence import DEAD_AFTER_SECONDS, Silence
from suite.waiting import WAIT_S_MAX
from unit.client.protocols import Clock, finish
from unit.client.test_committing import CELLS, ID, one, prepared, two

WHERE: Final = {"cell": 1, "address": "http://b:1"}
NEVER_LEFT: Final = Failure("unavailable", "refused", {**WHERE, "is_sent": False})
UNANSWERED: Final = Failure("unavailable", "no answer", {**WHERE, "silent_ms": 10_000})


def test_a_server_that_is_silent_for_long_is_retried_only_briefly() -> None:
    clock = Clock()
    patience = Patience(clock.instant_us, lambda: 0.5, duration_ms=10_000, attempts_max=64)
    patience.note_silence(4_000)
    assert patience.remaining_ms == 6_000, "an outage is waited out for as long as one call is"
    patience.note_silence(60_000)
    assert patience.remaining_ms == RETRY_DEAD_MS
    assert patience.next_pause() is not None
    clock.now_us += RETRY_DEAD_MS * 1000
    assert patience.next_pause() is None


@pytest.mark.parametrize("reply", [NEVER_LEFT, UNANSWERED])
def test_the_error_of_a_commit_names_the_silent_cell_and_not_the_coordinator(
    reply: Reply,
) -> None:
    bench = two()
    bench.commit.answer(prepared(60), reply)
    with pytest.raises(Unavailable) as caught:
        finish(bench.commit, lambda target, body: Aborted(ID))
    assert caught.value.attributes.items() >= WHERE.items()
    assert bench.state == "aborted"


def test_a_proof_goes_to_all_where_the_coordinator_may_be_silent() -> None:
    bench = two()
    bench.commit.answer(NEVER_LEFT, prepared(60))
    proof = Decide(ID, CELLS, None, is_proved=True)
    with pytest.raises(Unavailable):
        assert bench.commit.posted() == ((0, proof), (1, proof))


def test_an_unknown_outcome_names_the_silent_participant_with_its_address() -> None:
    """Whose outcome is unknown because of a silent participant is told so."""
    bench = two()
    bench.session.routing.addresses[CELLS[1]] = "http://b:1"
    undecided = Failure("unavailable", "cell 1 does not answer", {"cell": 1, "silent_ms": 60_000})
    bench.commit.answer(prepared(60), Prepared(ID, Timestamp(61)))
    with pytest.raises(CommitOutcomeUnknown) as caught:
        finish(bench.commit, lambda target, body: undecided)
    assert caught.value.attributes["coordinator"] == 0
    assert caught.value.attributes.items() >= WHERE.items()


def test_a_refusal_for_want_of_a_timestamp_is_no_unknown_outcome() -> None:
    bench = one()
    refused = Failure("unavailable", "no timestamp", {"server": "oracle", "is_refused": True})
    error = bench.refuse(Unavailable, refused)
    assert error.attributes["server"] == "oracle"
    assert bench.state == "aborted"


def test_the_client_asks_for_the_outcome_of_a_commit_with_a_lost_answer() -> None:
    bench = one()
    bench.commit.answer(UNANSWERED)
    assert bench.commit.call == (0, AskOutcome(ID))
    bench.commit.answer(Committed(ID, Timestamp(70)))
    assert bench.commit.result == 70


# ---- a connection


class Unfriendly:
    """Listens and never answers, as a process that stands still."""

    def __init__(self) -> None:
        self.connections: list[asyncio.StreamWriter] = []

    async def __aenter__(self) -> str:
        self._server = await asyncio.start_server(self._take, "127.0.0.1", 0)
        host, port = self._server.sockets[0].getsockname()
        return f"{host}:{port}"

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for it in self.connections:
            it.close()

    async def _take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections.append(writer)


@pytest.mark.anyio
async def test_calls_to_a_dead_server_fail_after_a_short_wait(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whoever waited for the connection, or for an answer, would not be back today."""
    monkeypatch.setattr(peer_module, "CONNECT_TIMEOUT_SECONDS", 86_400.0)
    silence = Silence("cell 1 at b:1", WHERE)
    async with Unfriendly() as address:
        peer = Peer(rpc_url(address), timeout_ms=86_400_000, silence=silence)
        loop = asyncio.get_running_loop()
        silence.begin(loop.time() - DEAD_AFTER_SECONDS - 1)
        for _ in range(2):
            async with asyncio.timeout(WAIT_S_MAX):
                reply = await peer.call(AskOutcome(ID))
            assert isinstance(reply, Failure)
            assert reply.attributes["silent_ms"] >= DEAD_AFTER_SECONDS * 1000
            assert reply.attributes.items() >= {**WHERE, "is_sent": False}.items()
        await peer.close()
