"""Calls that are bounded in time: they end as if the servers were silent, and never spin."""

import asyncio
import inspect
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import dodona
import dodona.aio
from dodona._core.catalog.master_transaction import RowsRefused
from dodona._core.protocol import deadline
from dodona._core.protocol.context import error_of
from dodona._core.protocol.deadline import bounded
from dodona._core.protocol.steps import MASTER, Calls, Post, Protocol, Target
from dodona.errors import CommitOutcomeUnknown, InvalidRequest, Unavailable
from dodona.types import CellId, Timestamp, TransactionId
from dodona_wire.messages.base import Failure
from dodona_wire.messages.catalog import Cell, Cluster, GetCluster, GetTable
from dodona_wire.messages.data import (
    Committed,
    Decide,
    GenerateTimestamps,
    PeekOutcome,
    Prepare,
    Prepared,
    TimestampRange,
    Undecided,
)
from dodona_wire.messages.families import Reply, Request
from unit.client.protocols import (
    NEVER_SENT,
    PATH,
    PIVOT,
    Clock,
    Play,
    begin_master,
    finish,
    new_session,
    table,
    with_rows,
)

TIMEOUT_MS = 300
SILENT = Failure("unavailable", "no answer from cell 1", {"cell": 1, "address": "node1"})


def timed(step: object) -> int | None:
    assert isinstance(step, Calls)
    return step.timeout_ms


def lookup(clock: Clock) -> Play[Any]:
    session = new_session(clock, table())
    read = session.lookup_rows(PATH, [{"id": 1}])
    return Play(clock, bounded(read, TIMEOUT_MS, clock.instant_us))


def go_on(clock: Clock, it: Play[Any], *, answer: Failure = NEVER_SENT) -> None:
    """Each request takes 50 ms and fails. Bounded, so that an endless loop is noticed."""
    for _ in range(200):
        if isinstance(it.step, Calls):
            clock.now_us += 50_000
            it.answer(*[answer] * len(it.calls))
        else:
            it.wait()


def test_a_read_is_asked_for_as_long_as_there_is_time() -> None:
    clock = Clock()
    it = lookup(clock)
    assert timed(it.step) == TIMEOUT_MS
    began_us = clock.now_us
    with pytest.raises(Unavailable):
        go_on(clock, it)
    assert clock.now_us - began_us <= (TIMEOUT_MS + 50) * 1000


def test_the_first_silent_server_is_named_however_the_call_ends() -> None:
    """Often the last step was a pause, or a request that was not sent any more."""
    clock = Clock()
    it = lookup(clock)
    it.answer(SILENT)
    with pytest.raises(Unavailable) as caught:
        go_on(clock, it)
    assert caught.value.attributes["cell"] == 1
    assert caught.value.attributes["address"] == "node1"


MASTER_LATE = Failure("unavailable", "no answer from the master in 4 ms", {"server": "master"})


@pytest.mark.parametrize(
    ("wait_ms", "then_ms", "named"),
    [(290, 10, "cell"), (10, 290, "server")],
    ids=["the first took the time", "the second took it"],
)
def test_a_server_that_had_little_time_is_not_blamed_for_another(
    wait_ms: int, then_ms: int, named: str
) -> None:
    """A node was gone, and the master, asked where else the cell is, had 4 ms to answer."""
    clock = Clock()
    it = Play(clock, bounded(ask(1, MASTER), TIMEOUT_MS, clock.instant_us))
    clock.now_us += wait_ms * 1000
    it.answer(SILENT)
    assert timed(it.step) == then_ms
    clock.now_us += then_ms * 1000
    with pytest.raises(Unavailable) as caught:
        it.answer(MASTER_LATE)
    assert {"cell", "server"} & caught.value.attributes.keys() == {named}
    assert (SILENT.message in caught.value.message) == (named == "cell")


def test_a_server_that_answered_since_is_not_blamed() -> None:
    clock = Clock()
    it = Play(clock, bounded(ask(1, 1, MASTER), TIMEOUT_MS, clock.instant_us))
    clock.now_us += 200_000
    it.answer(SILENT)
    clock.now_us += 50_000
    it.answer(Committed(TransactionId(1), Timestamp(2)))
    clock.now_us += 50_000
    with pytest.raises(Unavailable) as caught:
        it.answer(MASTER_LATE)
    assert caught.value.attributes == MASTER_LATE.attributes


@pytest.mark.parametrize(
    ("left_ms", "is_named"), [(4, False), (100, True)], ids=["hardly any time", "enough time"]
)
def test_a_server_that_has_answered_is_not_blamed_for_the_last_instant(
    left_ms: int, is_named: bool
) -> None:
    """The master was asked again and again what a silent cell has done, and had 4 ms in the end."""
    clock = Clock()
    it = Play(clock, bounded(ask(MASTER, MASTER), TIMEOUT_MS, clock.instant_us))
    clock.now_us += (TIMEOUT_MS - left_ms) * 1000
    it.answer(Committed(TransactionId(1), Timestamp(2)))
    assert timed(it.step) == left_ms
    clock.now_us += left_ms * 1000
    with pytest.raises(Unavailable) as caught:
        it.answer(MASTER_LATE)
    assert ("server" in caught.value.attributes) == is_named
    assert ("timeout_ms" in caught.value.attributes) != is_named


def test_a_timeout_is_stated_once_whatever_is_asked_after_it() -> None:
    clock = Clock()
    it = Play(clock, bounded(ask(MASTER, MASTER, 1), TIMEOUT_MS, clock.instant_us))
    clock.now_us += (TIMEOUT_MS - 4) * 1000
    it.answer(Committed(TransactionId(1), Timestamp(2)))
    clock.now_us += 4_000
    with pytest.raises(Unavailable) as caught:
        it.answer(MASTER_LATE)
    assert caught.value.message.count("timeout") == 1


def test_the_error_of_a_timeout_reports_whether_the_call_was_sent() -> None:
    """A commit that never left is not in doubt."""
    for told in ({}, {"is_sent": False}):
        clock = Clock()
        it = Play(clock, bounded(ask(1, 2), TIMEOUT_MS, clock.instant_us))
        clock.now_us += 290_000
        it.answer(SILENT)
        clock.now_us += 10_000
        with pytest.raises(Unavailable) as caught:
            it.answer(Failure("unavailable", "no answer from cell 2", {"cell": 2, **told}))
        assert caught.value.attributes["cell"] == 1
        assert caught.value.attributes.get("is_sent") == told.get("is_sent")


def ask(*targets: Target) -> Protocol[None]:
    """One after the other, whatever the others answer; as the last one does, so it ends."""
    for target in targets:
        (reply,) = yield Calls(((target, GetTable(PATH)),))
    assert isinstance(reply, Failure)
    raise error_of(reply)


def outcome_of_all(clock: Clock) -> Protocol[Any]:
    """All cells are asked, of which one is silent."""
    return new_session(clock).outcome(TransactionId(50), None, False)


def master_commit(clock: Clock) -> Protocol[Any]:
    return begin_master(clock, new_session(clock).catalog).commit()


@pytest.mark.parametrize("make", [outcome_of_all, master_commit])
def test_a_call_whose_time_is_over_asks_nobody_again(
    make: Callable[[Clock], Protocol[Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would ask again and again without a pause, until its attempts are used up."""
    refused: list[Calls] = []
    refuse = deadline._Deadline._refuse

    def counted(it: deadline._Deadline, step: Calls) -> Protocol[list[Reply]]:
        refused.append(step)
        return refuse(it, step)

    def answer(target: Target, body: Request) -> Reply:
        clock.now_us += 20_000
        match body:
            case GenerateTimestamps():
                return TimestampRange(Timestamp(1_000), body.count)
            case GetCluster():
                cells = [Cell(CellId(at), f"node{at}", True, 1) for at in range(2)]
                return Cluster((), tuple(cells))
            case PeekOutcome() if target == 0:
                return Undecided(body.transaction)
        return SILENT

    monkeypatch.setattr(deadline._Deadline, "_refuse", counted)
    clock = Clock()
    it = Play(clock, bounded(make(clock), TIMEOUT_MS, clock.instant_us))
    with suppress(Unavailable, CommitOutcomeUnknown):
        finish(it, answer)
    assert clock.now_us > TIMEOUT_MS * 1000
    assert len(refused) <= 1


def test_a_commit_that_was_sent_is_unknown_and_one_that_was_not_is_aborted() -> None:
    never = Failure("unavailable", "refused", {**SILENT.attributes, "is_sent": False})
    for reply, error in ((SILENT, CommitOutcomeUnknown), (never, Unavailable)):
        clock = Clock()
        session = new_session(clock, table())
        transaction = with_rows(clock, session, 1)
        it = Play(clock, bounded(session.commit(transaction), TIMEOUT_MS, clock.instant_us))
        clock.now_us += TIMEOUT_MS * 1000
        with pytest.raises((CommitOutcomeUnknown, Unavailable)) as caught:
            it.answer(reply)
        assert type(caught.value) is error
        assert caught.value.attributes["cell"] == 1
        assert caught.value.attributes["address"] == "node1"


def test_a_decision_is_sent_even_if_no_time_is_left_to_await_its_answer() -> None:
    """Cells hold locks until they hear of it."""
    clock = Clock()
    session = new_session(clock, table())
    transaction = with_rows(clock, session, 1, PIVOT)
    it = Play(clock, bounded(session.commit(transaction), TIMEOUT_MS, clock.instant_us))
    assert [type(body) for _, body in it.calls] == [Prepare, Prepare]
    assert transaction.id is not None
    clock.now_us += TIMEOUT_MS * 1000
    it.answer(Prepared(transaction.id, Timestamp(5)), SILENT)
    assert isinstance(it.step, Post)
    ((cell, body),) = it.step.requests
    assert (cell, type(body)) == (0, Decide)
    with pytest.raises(CommitOutcomeUnknown) as caught:
        it.posted()
    assert caught.value.attributes["address"] == "node1"


# ---- every call takes a bound

FACES = [
    dodona.Client,
    dodona.Transaction,
    dodona.MasterTransaction,
    dodona.Snapshot,
    dodona.Loads,
    dodona.Load,
]
WAIT_FOR_NOBODY = {
    "Client.close",
    "Transaction.abort",
    "Snapshot.check",
    "Loads.join",
}


def calls_of(kind: type) -> list[tuple[str, Callable[..., Any]]]:
    members = inspect.getmembers(kind, inspect.isfunction)
    named = [(f"{kind.__name__}.{name}", it) for name, it in members if not name.startswith("_")]
    refused = {f"MasterTransaction.{name}" for name in vars(RowsRefused)}
    return [(name, it) for name, it in named if name not in WAIT_FOR_NOBODY | refused]


@pytest.mark.parametrize("kind", FACES)
def test_every_call_takes_a_bound(kind: type) -> None:
    for name, method in calls_of(kind):
        parameters = inspect.signature(method).parameters
        is_lease = "begin" in name and "title" in parameters  # its `timeout_ms` is the lease
        bound = parameters["call_timeout_ms" if is_lease else "timeout_ms"]
        assert bound.default is None, name


# ---- embedded

SCHEMA = [
    {"name": "id", "type": "int64", "sort_order": "ascending"},
    {"name": "v", "type": "int64"},
]


@pytest.fixture
def db(tmp_path: Path) -> Any:
    with dodona.open(tmp_path / "data") as client:
        client.create_table("//t", SCHEMA, mount=True)
        yield client


@pytest.mark.parametrize("timeout_ms", [0, -1, "1", 1.5, True, 1 << 40])
def test_a_bound_is_a_number_of_milliseconds(
    db: dodona.Client, tmp_path: Path, timeout_ms: Any
) -> None:
    calls: list[Callable[[], Any]] = [
        lambda: db.lookup_rows("//t", [{"id": 1}], timeout_ms=timeout_ms),
        lambda: db.begin(timeout_ms=timeout_ms),
        lambda: db.query("select 1", timeout_ms=timeout_ms),
        lambda: db.run_in_transaction(lambda _: None, timeout_ms=timeout_ms),
        lambda: db.begin_master(call_timeout_ms=timeout_ms),
        lambda: dodona.open(tmp_path / "other", call_timeout_ms=timeout_ms),
        lambda: dodona.connect("http://127.0.0.1:9", call_timeout_ms=timeout_ms),
    ]
    for call in calls:
        with pytest.raises(InvalidRequest, match="timeout_ms"):
            call()
    assert not (tmp_path / "other").exists()


def test_an_embedded_database_takes_the_same_programs(db: dodona.Client) -> None:
    with db.begin(timeout_ms=60_000) as transaction:
        transaction.insert_rows("//t", [{"id": 1, "v": 2}])
    assert db.lookup_rows("//t", [{"id": 1}], timeout_ms=60_000) == [{"id": 1, "v": 2}]
    assert db.query("select v from [//t]", timeout_ms=60_000).to_pylist() == [{"v": 2}]
    db.run_in_transaction(lambda it: it.delete_rows("//t", [{"id": 1}]), timeout_ms=60_000)
    assert db.lookup_rows("//t", [{"id": 1}]) == []


def test_an_embedded_call_waits_for_other_threads_only_until_its_timeout(db: dodona.Client) -> None:
    """Another thread has the cores, as in a long flush or a long scan."""
    combiner: Any = db._driver._combiner  # type: ignore[attr-defined]
    began, done = threading.Event(), threading.Event()
    serve = combiner._cores.serve

    def slowly(asked: Any) -> None:
        if not began.is_set():
            began.set()
            done.wait(10)
        serve(asked)

    combiner._cores.serve = slowly
    other = threading.Thread(target=lambda: db.lookup_rows("//t", [{"id": 1}]))
    other.start()
    try:
        assert began.wait(10)
        for call, error in (
            (lambda: db.lookup_rows("//t", [{"id": 1}], timeout_ms=100), Unavailable),
            (lambda: db.insert_rows("//t", [{"id": 1, "v": 1}], timeout_ms=100), None),
        ):
            at = time.monotonic()
            with pytest.raises(
                error or (Unavailable, CommitOutcomeUnknown), match="no answer from the database"
            ):
                call()
            assert time.monotonic() - at < 2
    finally:
        done.set()
        other.join()
    db.insert_rows("//t", [{"id": 1, "v": 3}], timeout_ms=60_000)
    assert db.lookup_rows("//t", [{"id": 1}]) == [{"id": 1, "v": 3}]


ENDLESS = "select sum(a.i ^ b.i) from range(10000000) a(i), range(10000000) b(i)"


def test_a_query_ends_at_its_timeout(db: dodona.Client) -> None:
    db.query("select 1")  # imports take a while
    began = time.monotonic()
    with pytest.raises(Unavailable, match="not computed in the 300 ms"):
        db.query(ENDLESS, timeout_ms=300)
    assert time.monotonic() - began < 5


def test_a_query_of_the_asyncio_client_ends_at_its_timeout(tmp_path: Path) -> None:
    async def attempt() -> float:
        async with await dodona.aio.open(tmp_path / "data", call_timeout_ms=60_000) as client:
            await client.query("select 1")
            began = time.monotonic()
            with pytest.raises(Unavailable, match="not computed in the 300 ms"):
                await client.query(ENDLESS, timeout_ms=300)
            return time.monotonic() - began

    assert asyncio.run(attempt()) < 5
