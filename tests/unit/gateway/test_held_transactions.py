"""Transactions as a gateway holds them, over an embedded database and over a pretended cluster."""

import asyncio
import gc
import weakref
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

import dodona.aio
from dodona.aio import AsyncClient, AsyncTransaction
from dodona.errors import (
    CommitOutcomeUnknown,
    InvalidRequest,
    Overloaded,
    TransactionAborted,
    TransactionClosed,
    TransactionConflict,
    TransactionNotFound,
    WrongGateway,
)
from dodona_gateway.core.answers import Outcome
from dodona_gateway.core.holdings import HoldingLimits
from dodona_gateway.core.transaction_id import parse_held_id
from dodona_gateway.shell import transactions
from dodona_gateway.shell.transactions import Transactions
from dodona_wire.messages.data import CommitOne, Committed, PeekOutcome, Undecided
from suite.waiting import until
from unit.client.cluster import HANG, PATH, SCHEMA, FakeCluster, account, running_cluster

pytestmark = pytest.mark.anyio
GATEWAY = 5
ANN, BOB = "ann", "bob"
LEASE_MS = 60_000


@pytest.fixture
async def db(tmp_path: Path) -> AsyncIterator[AsyncClient]:
    async with await dodona.aio.open(str(tmp_path / "data")) as client:
        await client.create_table(PATH, SCHEMA, mount=True)
        yield client


@pytest.fixture(scope="module")
def pretended() -> Iterator[FakeCluster]:
    with running_cluster() as cluster:
        yield cluster


@asynccontextmanager
async def client_of(cluster: FakeCluster) -> AsyncIterator[AsyncClient]:
    for store in (cluster.tables, cluster.rows, cluster.outcomes):
        store.clear()
    cluster.cell_answers = lambda body: None
    async with await dodona.aio.connect(cluster.url) as client:
        await client.create_table(PATH, SCHEMA)
        yield client


def held_by(client: AsyncClient, gateway: int = GATEWAY, **limits: int) -> Transactions:
    return Transactions(client, gateway, HoldingLimits(**limits))


async def begin(held: Transactions, owner: str = ANN, lease_ms: int = LEASE_MS) -> str:
    text, _ = await held.begin(owner, "full", "sync", False, lease_ms)
    return text


async def write(held: Transactions, text: str, *ids: int, balance: int = 1) -> None:
    async with held.use(text, ANN) as tx:
        await tx.insert_rows(PATH, [account(it, balance) for it in ids])


async def test_rows_of_a_held_transaction_are_visible_only_after_the_commit(
    db: AsyncClient,
) -> None:
    held = held_by(db)
    text, begun = await held.begin(ANN, "full", "sync", False, LEASE_MS)
    assert parse_held_id(text).name == begun.start_timestamp
    assert parse_held_id(text).gateway == GATEWAY
    await write(held, text, 1, 2)
    assert await db.select(PATH) == []
    assert held.size_bytes > 0
    assert await held.outcome(text, ANN, settle=False) == Outcome("active")
    at = await held.commit(text, ANN)
    assert at is not None
    assert await db.select(PATH) == [account(1, 1), account(2, 1)]
    assert await held.commit(text, ANN) == at
    assert await held.outcome(text, ANN, settle=False) == Outcome("committed", at)
    assert (held.open_count, held.size_bytes) == (0, 0)
    with pytest.raises(TransactionClosed, match="is committed"):
        await held.abort(text, ANN)
    with pytest.raises(TransactionClosed, match="is committed"):
        await write(held, text, 3)


async def test_nothing_to_commit_is_committed_at_no_time(db: AsyncClient) -> None:
    held = held_by(db)
    text = await begin(held)
    assert await held.commit(text, ANN) is None
    assert await held.commit(text, ANN) is None
    assert await held.outcome(text, ANN, settle=False) == Outcome("committed", None)


async def test_a_gateway_also_holds_a_transaction_without_atomicity(db: AsyncClient) -> None:
    await db.create_table("//loose", SCHEMA, atomicity="none", mount=True)
    held = held_by(db)
    text, begun = await held.begin(ANN, "none", "async", False, LEASE_MS)
    assert begun.start_timestamp is None
    assert parse_held_id(text).atomicity == "none"
    async with held.use(text, ANN) as tx:
        await tx.insert_rows("//loose", [account(1)])
    await held.commit(text, ANN)
    assert await db.select("//loose") == [account(1)]
    elsewhere = held_by(db, GATEWAY + 1)
    for settle in (False, True):
        with pytest.raises(WrongGateway):
            await elsewhere.outcome(text, ANN, settle=settle)


async def test_every_retry_of_a_conflicted_commit_reports_the_conflict(db: AsyncClient) -> None:
    held = held_by(db)
    first, second = await begin(held), await begin(held)
    await write(held, first, 1)
    await write(held, second, 1)
    at = await held.commit(first, ANN)
    for _ in range(2):
        with pytest.raises(TransactionConflict) as lost:
            await held.commit(second, ANN)
        assert lost.value.attributes["transaction"] == second
        assert lost.value.attributes["winner_timestamp"] == at
    assert await held.outcome(second, ANN, settle=False) == Outcome("aborted")
    await held.abort(second, ANN)
    assert (held.open_count, held.size_bytes) == (0, 0)


async def test_the_memory_of_an_end_keeps_no_rows(db: AsyncClient) -> None:
    held = held_by(db)
    first, second = await begin(held), await begin(held)
    await write(held, first, 1)
    await write(held, second, 1)
    async with held.use(second, ANN) as tx:
        buffer = weakref.ref(tx)
    del tx
    await held.commit(first, ANN)
    with pytest.raises(TransactionConflict):
        await held.commit(second, ANN)

    def is_let_go() -> bool:
        gc.collect()
        return buffer() is None

    await until(is_let_go, pause_s=0.01)  # the loop, too, has to let go of the answer


async def test_another_principal_cannot_use_a_held_transaction(db: AsyncClient) -> None:
    held = held_by(db)
    text = await begin(held)
    await write(held, text, 1)
    with pytest.raises(TransactionNotFound):
        held.ping(text, BOB)
    with pytest.raises(TransactionNotFound):
        await held.commit(text, BOB)
    with pytest.raises(TransactionNotFound):
        await held.abort(text, BOB)
    with pytest.raises(TransactionNotFound):
        async with held.use(text, BOB):
            pass
    held.ping(text, ANN)
    await held.commit(text, ANN)


async def test_an_abort_drops_the_rows_and_may_be_repeated(db: AsyncClient) -> None:
    held = held_by(db)
    text = await begin(held)
    await write(held, text, 1)
    await held.abort(text, ANN)
    await held.abort(text, ANN)
    assert (held.open_count, held.size_bytes) == (0, 0)
    with pytest.raises(TransactionAborted, match="aborted by its owner"):
        await held.commit(text, ANN)
    with pytest.raises(TransactionClosed, match="is aborted"):
        held.ping(text, ANN)
    assert await held.outcome(text, ANN, settle=False) == Outcome("aborted")
    assert await db.select(PATH) == []


async def test_an_expired_lease_ends_only_transactions_that_are_not_in_use(
    db: AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_us = 0
    monkeypatch.setattr(transactions, "_now_us", lambda: now_us)
    held = held_by(db)
    task = asyncio.create_task(held.run())
    short, kept = await begin(held, lease_ms=50), await begin(held, lease_ms=600)
    await write(held, short, 1)
    async with held.use(kept, ANN):  # a long call
        now_us += 1_000_000
        await until(lambda: held.open_count < 2)
        assert held.open_count == 1
    held.ping(kept, ANN)
    with pytest.raises(TransactionNotFound, match="lease of 50 ms expired"):
        held.ping(short, ANN)
    with pytest.raises(TransactionNotFound, match="lease of 50 ms expired"):
        await held.commit(short, ANN)
    assert held.size_bytes == 0
    now_us += 1_200_000
    await until(lambda: held.open_count == 0)
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


async def test_calls_at_one_transaction_take_turns_and_the_commit_is_last(db: AsyncClient) -> None:
    held = held_by(db)
    text = await begin(held)
    order: list[str] = []
    may_go_on = asyncio.Event()

    async def call(name: str) -> None:
        async with held.use(text, ANN) as tx:
            order.append(name)
            await may_go_on.wait()
            await tx.insert_rows(PATH, [account(len(order))])

    calls = [asyncio.create_task(call(name)) for name in ("first", "second")]
    await asyncio.sleep(0)
    commit = asyncio.create_task(held.commit(text, ANN))
    await asyncio.sleep(0)
    assert await held.outcome(text, ANN, settle=False) == Outcome("committing")
    with pytest.raises(TransactionClosed, match="is being committed"):
        async with held.use(text, ANN):
            pass
    with pytest.raises(TransactionClosed, match="is being committed"):
        await held.abort(text, ANN)
    assert order == ["first"]
    may_go_on.set()
    await asyncio.gather(*calls, commit)
    assert order == ["first", "second"]
    assert await db.select(PATH) == [account(1), account(2)]


async def test_a_commit_goes_on_when_its_caller_has_gone(db: AsyncClient) -> None:
    held = held_by(db)
    text = await begin(held)
    await write(held, text, 1)
    calling = asyncio.create_task(held.commit(text, ANN))
    await asyncio.sleep(0)
    calling.cancel()
    with pytest.raises(asyncio.CancelledError):
        await calling
    at = await held.commit(text, ANN)
    assert await held.outcome(text, ANN, settle=False) == Outcome("committed", at)
    assert await db.select(PATH) == [account(1, 1)]


async def test_a_failed_commit_without_a_caller_logs_nothing(
    db: AsyncClient, caplog: pytest.LogCaptureFixture
) -> None:
    held = held_by(db)
    first, second = await begin(held), await begin(held)
    await write(held, first, 1)
    await write(held, second, 1)
    await held.commit(first, ANN)
    calling = asyncio.create_task(held.commit(second, ANN))
    await asyncio.sleep(0)
    calling.cancel()
    with pytest.raises(asyncio.CancelledError):
        await calling
    await until(lambda: not held.open_count)
    del calling
    gc.collect()
    assert caplog.records == []
    with pytest.raises(TransactionConflict):
        await held.commit(second, ANN)


async def test_concurrent_begins_do_not_exceed_the_limit_of_held_transactions(
    db: AsyncClient,
) -> None:
    held = held_by(db, open_count_max=5, open_per_owner_max=3)
    begun = await asyncio.gather(*[begin(held) for _ in range(20)], return_exceptions=True)
    assert sum(isinstance(it, str) for it in begun) == 3
    assert all(isinstance(it, str | Overloaded) for it in begun)
    assert held.open_count == 3
    with pytest.raises(InvalidRequest, match="lease_ms"):
        await begin(held, lease_ms=0)


async def test_bytes_of_all_transactions_together_are_bounded(db: AsyncClient) -> None:
    held = held_by(db, bytes_max=100)
    text = await begin(held)
    await write(held, text, *range(20))
    other = await begin(held)
    for full in (text, other):
        with pytest.raises(Overloaded, match="100 bytes of rows"):
            await write(held, full, 100)
    await held.commit(text, ANN)
    await write(held, other, 100)


async def test_refused_rows_leave_the_held_transaction_unchanged(db: AsyncClient) -> None:
    held = held_by(db)
    text = await begin(held)
    await write(held, text, 1)
    size_bytes = held.size_bytes
    with pytest.raises(InvalidRequest):
        async with held.use(text, ANN) as tx:
            await tx.insert_rows(PATH, [account(2), {"id": "x"}])
    assert held.size_bytes == size_bytes
    await held.commit(text, ANN)
    assert await db.select(PATH) == [account(1, 1)]


# ---- another gateway, and answers that were lost


async def test_another_gateway_answers_a_commit_from_the_outcomes_in_the_cells(
    pretended: FakeCluster,
) -> None:
    async with client_of(pretended) as client:
        here, elsewhere = held_by(client), held_by(client, GATEWAY + 1)
        restarted = held_by(client)
        committed, lost = await begin(here), await begin(here)
        await write(here, committed, 1)
        at = await here.commit(committed, ANN)
        pretended.cell_answers = peeked(pretended)
        for held in (elsewhere, restarted):
            assert await held.commit(committed, ANN) == at
            assert await held.outcome(committed, ANN, settle=False) == Outcome("committed", at)
            with pytest.raises(TransactionNotFound) as refused:
                await held.commit(lost, ANN)
            assert isinstance(refused.value, WrongGateway) is (held is elsewhere)
            assert await held.outcome(lost, ANN, settle=False) == Outcome("pending")
            for call in (held.abort(lost, ANN), write(held, lost, 2)):
                with pytest.raises(TransactionNotFound):
                    await call


def peeked(cluster: FakeCluster) -> Any:
    """Cells that tell what they know without deciding anything."""

    def answers(body: Any) -> Any:
        if not isinstance(body, PeekOutcome):
            return None
        known = cluster.outcomes.get(body.transaction)
        if known is not None:
            return Committed(body.transaction, known)
        return Undecided(body.transaction, None)

    return answers


async def test_a_repeated_commit_settles_an_unknown_outcome(
    pretended: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with client_of(pretended) as client:
        held = held_by(client)
        for is_committed in (True, False):
            text = await begin(held)
            await write(held, text, 1)
            lose_the_next_answer(monkeypatch, is_committed=is_committed)
            with pytest.raises(CommitOutcomeUnknown) as unknown:
                await held.commit(text, ANN)
            assert unknown.value.attributes["transaction"] == text
            if is_committed:
                at = await held.commit(text, ANN)
                assert at is not None
                assert await held.outcome(text, ANN, settle=False) == Outcome("committed", at)
            else:
                with pytest.raises(TransactionAborted, match="was not committed"):
                    await held.commit(text, ANN)
                assert await held.outcome(text, ANN, settle=True) == Outcome("aborted")


def lose_the_next_answer(monkeypatch: pytest.MonkeyPatch, *, is_committed: bool) -> None:
    commit = AsyncTransaction.commit

    async def commit_and_lose(transaction: AsyncTransaction, **_: object) -> None:
        monkeypatch.setattr(AsyncTransaction, "commit", commit)
        if is_committed:
            await commit(transaction)
        raise CommitOutcomeUnknown("the answer was lost", coordinator=0)

    monkeypatch.setattr(AsyncTransaction, "commit", commit_and_lose)


async def test_a_failure_within_a_commit_leaves_an_unknown_end_and_no_stuck_lease(
    pretended: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with client_of(pretended) as client:
        held = held_by(client)
        text = await begin(held, lease_ms=1)
        await write(held, text, 1)

        async def fail(transaction: AsyncTransaction, **_: object) -> None:
            transaction._buffer.start_commit(0)
            raise ZeroDivisionError

        monkeypatch.setattr(AsyncTransaction, "commit", fail)
        with pytest.raises(ZeroDivisionError):
            await held.commit(text, ANN)
        assert held.open_count == 0
        pretended.cell_answers = peeked(pretended)
        assert await held.outcome(text, ANN, settle=False) == Outcome("pending")


async def test_repeated_commits_wait_for_the_first_commit_that_hangs(
    pretended: FakeCluster,
) -> None:
    async with client_of(pretended) as client:
        held = held_by(client)
        text = await begin(held)
        await write(held, text, 1)
        commits: list[CommitOne] = []

        def answers(body: Any) -> Any:
            if isinstance(body, CommitOne):
                commits.append(body)
                if len(commits) == 1:
                    return HANG
            return None

        pretended.cell_answers = answers
        waiting = [asyncio.create_task(held.commit(text, ANN)) for _ in range(3)]
        await until(lambda: commits)
        for cell in pretended.cells:
            pretended.call_soon(cell.drop_all)
        first, *rest = await asyncio.gather(*waiting, return_exceptions=True)
        assert all(type(it) is type(first) for it in rest)
        assert len(commits) == 1 or not isinstance(first, Exception)
