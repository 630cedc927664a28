"""The background pings of both clients: they come, they follow the transactions, and they end."""

import asyncio
import queue
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from dodona._core.catalog import master_transaction
from dodona._core.catalog.master_transaction import Lease
from dodona._core.protocol.steps import Calls, Protocol
from dodona._core.session import Session
from dodona._core.writing.transaction import TransactionState
from dodona._io.aio_pinger import AsyncPinger
from dodona._io.pinger import Pinger
from dodona._io.sessions import new_session
from dodona.types import TreeTransactionId
from dodona_wire.messages.base import Failure
from dodona_wire.messages.catalog import Done
from dodona_wire.messages.families import Reply
from dodona_wire.messages.tree import PingTreeTransaction, TreeTransaction
from suite.waiting import WAIT_S_MAX, until

SOON_MS = 30
"""A time-out, so that pings come every 10 ms."""
LATE_MS = 24 * 3_600_000
"""A time-out whose pings come so late that nobody is to wait for them."""


class Master:
    """Runs protocols that do nothing but ping, and keeps whom they pinged."""

    def __init__(self) -> None:
        self.pinged: queue.SimpleQueue[int] = queue.SimpleQueue()
        self.reply: Reply = Done()

    def run(self, protocol: Protocol[Any]) -> None:
        try:
            step = next(protocol)
            assert isinstance(step, Calls)
            for _, body in step.requests:
                assert isinstance(body, PingTreeTransaction)
                self.pinged.put(body.transaction)
            protocol.send([self.reply] * len(step.requests))
        except StopIteration:
            return

    async def run_async(self, protocol: Protocol[Any]) -> None:
        self.run(protocol)

    def next_pinged(self) -> int:
        return self.pinged.get(timeout=WAIT_S_MAX)


def lease(session: Session, number: int, timeout_ms: int) -> Lease:
    begun = TreeTransaction(TreeTransactionId(number), timeout_ms)
    return Lease(begun, None, session._context.instant_us())


def start_waiting(pinger: Pinger[Lease], session: Session) -> Lease:
    """Have it wait for a ping that is a long way off. → the lease, which must be held."""
    asked = threading.Event()
    wait_ms = session.pings.wait_ms

    def ask() -> int | None:
        asked.set()  # with the lock, which the pinger lets go of only to wait
        return wait_ms()

    session.pings.wait_ms = ask  # type: ignore[method-assign]
    late = lease(session, 1, LATE_MS)
    pinger.watch(late)
    assert asked.wait(WAIT_S_MAX)
    return late


others: set[threading.Thread] = set()
"""That were there before the test: clients of other tests may have a thread of that name."""


@pytest.fixture(autouse=True)
def _ping_as_late_as_can_be(monkeypatch: pytest.MonkeyPatch) -> None:
    """There is a longest time between two pings, and nobody is to wait for that."""
    monkeypatch.setattr(master_transaction, "PING_PERIOD_MS_MAX", LATE_MS)


@pytest.fixture(autouse=True)
def _know_others() -> Iterator[None]:
    others.update(threading.enumerate())
    yield
    others.clear()


def pinger_threads() -> list[threading.Thread]:
    return [it for it in threading.enumerate() if it.name == "dodona-pinger" and it not in others]


@pytest.fixture
def master() -> Master:
    return Master()


@pytest.fixture
def session() -> Session:
    return new_session()


@pytest.fixture
def pinger(master: Master, session: Session) -> Iterator[Pinger[Lease]]:
    pinger = Pinger(master.run, session.pings)
    yield pinger
    pinger.close()
    assert pinger_threads() == []


def test_close_waits_for_a_pinger_thread_that_is_about_to_end(
    pinger: Pinger[Lease], session: Session
) -> None:
    """It may have said so, and not be gone yet."""
    has_ended = threading.Event()
    it = lease(session, 1, SOON_MS)
    it.state = TransactionState.COMMITTED
    do_all = pinger._do_all

    def slowly() -> None:
        do_all()
        has_ended.set()
        time.sleep(0.2)

    pinger._do_all = slowly  # type: ignore[method-assign]
    pinger.watch(it)
    assert has_ended.wait(WAIT_S_MAX)
    pinger.close()
    assert pinger_threads() == []


def test_there_is_no_thread_before_there_is_a_transaction(pinger: Pinger[Lease]) -> None:
    assert pinger_threads() == []


def test_one_thread_pings_all_again_and_again(
    pinger: Pinger[Lease], master: Master, session: Session
) -> None:
    held = [lease(session, it, SOON_MS) for it in (1, 2)]
    for it in held:
        pinger.watch(it)
    pinged = [master.next_pinged() for _ in range(6)]
    assert {*pinged} == {1, 2}
    assert len(pinger_threads()) == 1


def test_a_sooner_ping_is_not_held_up_by_a_later_one(
    pinger: Pinger[Lease], master: Master, session: Session
) -> None:
    late = start_waiting(pinger, session)
    soon = lease(session, 2, SOON_MS)
    pinger.watch(soon)
    assert master.next_pinged() == 2
    assert late.is_open


def test_the_thread_ends_with_the_last_transaction_and_begins_with_the_next(
    pinger: Pinger[Lease], master: Master, session: Session
) -> None:
    for number in (1, 2):
        it = lease(session, number, SOON_MS)
        pinger.watch(it)
        while master.next_pinged() != number:
            pass
        it.state = TransactionState.COMMITTED
        for thread in pinger_threads():
            thread.join(WAIT_S_MAX)
        assert pinger_threads() == []


def test_a_forgotten_transaction_is_pinged_no_more(
    pinger: Pinger[Lease], master: Master, session: Session
) -> None:
    it = lease(session, 1, SOON_MS)
    pinger.watch(it)
    master.next_pinged()
    del it
    for thread in pinger_threads():
        thread.join(WAIT_S_MAX)
    assert pinger_threads() == []


def test_an_expired_transaction_is_noticed(
    pinger: Pinger[Lease], master: Master, session: Session
) -> None:
    master.reply = Failure("transaction_not_found", "it has expired")
    it = lease(session, 1, SOON_MS)
    pinger.watch(it)
    for thread in pinger_threads():
        thread.join(WAIT_S_MAX)
    assert it.is_lost


def test_closing_does_not_wait_for_the_next_ping(pinger: Pinger[Lease], session: Session) -> None:
    late = start_waiting(pinger, session)
    began = time.monotonic()
    pinger.close()
    assert time.monotonic() - began < WAIT_S_MAX
    assert pinger_threads() == []
    assert late.is_open


# ---- the asyncio pinger


@pytest.mark.anyio
async def test_the_task_pings_follows_and_ends(master: Master, session: Session) -> None:
    pinger = AsyncPinger(master.run_async, session.pings)
    await pinger.close()  # nothing has begun
    for number in (1, 2):
        late, soon = lease(session, 10, LATE_MS), lease(session, number, SOON_MS)
        pinger.watch(late)
        await asyncio.sleep(0)  # it waits for the late one already
        pinger.watch(soon)
        task = pinger._task
        assert task is not None
        await until(lambda: not master.pinged.empty())
        assert master.next_pinged() == number
        soon.state = late.state = TransactionState.ABORTED
        await asyncio.wait_for(task, WAIT_S_MAX)
        while not master.pinged.empty():
            master.next_pinged()
    it = lease(session, 3, LATE_MS)
    pinger.watch(it)
    task = pinger._task
    assert task is not None
    await pinger.close()
    assert task.cancelled()


@pytest.mark.anyio
async def test_the_task_notices_an_expired_transaction(master: Master, session: Session) -> None:
    master.reply = Failure("transaction_not_found", "it has expired")
    pinger = AsyncPinger(master.run_async, session.pings)
    it = lease(session, 1, SOON_MS)
    pinger.watch(it)
    assert pinger._task is not None
    await asyncio.wait_for(pinger._task, WAIT_S_MAX)
    assert it.is_lost
