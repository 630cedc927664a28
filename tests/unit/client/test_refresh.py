"""A new attempt of a refused transaction: when it is made, and what it has in it."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import dodona
from conformance.tables import PLAIN
from dodona._core.protocol.steps import Pause
from dodona.errors import (
    CommitOutcomeUnknown,
    ConcurrentTransaction,
    TransactionConflict,
    Unavailable,
)
from dodona.types import Timestamp, TransactionId
from dodona_wire.messages.base import Failure
from dodona_wire.messages.data import (
    CommitOne,
    Committed,
    Decide,
    GenerateTimestamps,
    Prepare,
    Prepared,
    TimestampRange,
    ValidatedCommit,
    bare_commit,
)
from unit.client.protocols import PATH, Play, table, tablet
from unit.client.serializable import OTHER, START, Bench, single

LATER = 60


def changed(number: int, **others: Any) -> Failure:
    """The refusal of a transaction whose row another one has written."""
    attributes = {"key": {"id": number}, "table": PATH, "lock": "main", "winner_timestamp": 55}
    return Failure("transaction_conflict", "row was written", {**attributes, **others})


def refused(bench: Bench, failure: Failure) -> "Play[Any]":
    commit = bench.commit()
    commit.answer(*[failure for _ in commit.calls])
    return commit


def refuse_again(commit: "Play[Any]") -> None:
    """Refuse 100 attempts: more than there are."""
    for _ in range(100):
        again(commit)
        commit.answer(changed(1))


def lose_answers(commit: "Play[Any]") -> None:
    """Let all servers be silent, until the client gives up."""
    for _ in range(1_000):
        if isinstance(commit.step, Pause):
            commit.wait()
        else:
            commit.answer(*[Failure("unavailable", "silent") for _ in commit.calls])


def again(commit: "Play[Any]") -> Any:
    """The request of the new attempt, after the pause and the oracle's answer."""
    commit.wait()
    assert isinstance(commit.call[1], GenerateTimestamps)
    commit.answer(TimestampRange(Timestamp(LATER), 1))
    return commit.calls[0][1]


@pytest.mark.parametrize("isolation", ["snapshot", "serializable", None])
def test_a_write_of_a_row_that_was_not_read_is_sent_again(isolation: Any) -> None:
    bench = Bench()
    bench.session._context.refreshes = None if isolation == "serializable" else True
    bench.tx = bench.begin(isolation=isolation)
    bench.look_up(5)
    bench.write(1)
    commit = refused(bench, changed(1))
    request = again(commit)
    assert isinstance(request, ValidatedCommit)
    assert request.since == START
    bare = bare_commit(request)
    assert isinstance(bare, CommitOne)
    assert bare.transaction == LATER
    assert bare.modifications[0].reads == (single(5),)
    commit.answer(Committed(TransactionId(LATER), Timestamp(61)))
    assert commit.result == 61
    assert (bench.tx.id, bench.tx.start_timestamp) == (LATER, START)
    assert bench.session._outcomes.keys() == {LATER}


def test_a_row_that_was_read_and_written_is_validated_again() -> None:
    bench = Bench()
    bench.look_up(1)
    bench.write(1, 2)
    first = bench.commit()
    assert isinstance(first.call[1], CommitOne), "the write protects what was read"
    first.answer(changed(2))
    bare: Any = bare_commit(again(first))
    assert bare.modifications[0].reads == (single(1),)


def test_what_was_read_stays_a_conflict() -> None:
    for is_range in (False, True):
        bench = Bench()
        if is_range:
            bench.select([0], [3])
        else:
            bench.look_up(1)
        bench.write(1)
        with pytest.raises(TransactionConflict):
            refused(bench, changed(1))
        assert bench.tx.id == START


@pytest.mark.parametrize(
    "failure",
    [
        changed(1, range=[[0], [9]]),
        changed(1, table="//gone"),
        changed(1, key={"id": "text"}),
        changed(1, key=None),
        Failure("transaction_conflict", "held", {"key": {"id": 1}, "table": PATH, "winner": 3}),
        Failure("concurrent_append", "load", changed(1).attributes),
        Failure("prerequisite_failed", "no", changed(1).attributes),
    ],
)
def test_other_refusals_are_final(failure: Failure) -> None:
    bench = Bench()
    bench.write(1)
    with pytest.raises(Exception):  # noqa: B017, PT011 - each is of its own kind
        refused(bench, failure)


def test_a_program_that_knows_the_id_is_not_sent_again() -> None:
    bench = Bench()
    bench.write(1)
    bench.tx.is_id_known = True
    with pytest.raises(TransactionConflict):
        refused(bench, changed(1))


@pytest.mark.parametrize(
    ("isolation", "refreshes"), [("snapshot", None), (None, None), ("serializable", False)]
)
def test_snapshot_transactions_need_it_turned_on_and_a_client_can_turn_it_off(
    isolation: Any, refreshes: Any
) -> None:
    bench = Bench()
    bench.session._context.refreshes = refreshes
    bench.tx = bench.begin(isolation=isolation)
    bench.look_up(5)
    bench.write(1)
    with pytest.raises(TransactionConflict):
        refused(bench, changed(1))


def test_attempts_have_an_end_and_the_first_id() -> None:
    bench = Bench()
    bench.write(1)
    commit = refused(bench, changed(1))
    with pytest.raises(TransactionConflict):
        refuse_again(commit)
    assert bench.tx.is_aborted
    assert bench.tx.id == START


def test_in_several_cells_all_of_them_get_the_new_attempt() -> None:
    tables = table((tablet(10, 0, None),)), table((tablet(11, 1, None),), path=OTHER)
    bench = Bench(*tables)
    bench.look_up(5, path=OTHER)
    bench.write(1)
    commit = bench.commit()
    commit.answer(changed(1), Prepared(TransactionId(START), Timestamp(52)))
    ((_, body),) = commit.posted()
    assert isinstance(body, Decide), "the other cell lets the first attempt go"
    again(commit)
    requests: list[Any] = [bare_commit(it) for _, it in commit.calls]
    assert [(type(it), it.transaction) for it in requests] == [(Prepare, LATER)] * 2
    assert requests[1].modifications[0].reads == (single(5),)


def test_a_lost_answer_names_the_new_attempt() -> None:
    """The program asks for the outcome of what the error names. The first attempt is refused."""
    bench = Bench()
    bench.write(1)
    commit = refused(bench, changed(1))
    again(commit)
    with pytest.raises(CommitOutcomeUnknown) as caught:
        lose_answers(commit)
    assert caught.value.attributes["transaction"] == LATER
    assert bench.tx.is_committing
    assert (bench.tx.id, bench.tx.start_timestamp) == (LATER, START)


def test_an_oracle_that_does_not_answer_leaves_the_refused_attempt() -> None:
    bench = Bench()
    bench.write(1)
    commit = refused(bench, changed(1))
    commit.wait()
    with pytest.raises(Unavailable):
        lose_answers(commit)
    assert bench.tx.is_aborted
    assert bench.tx.id == START


def test_a_row_that_was_locked_without_data_is_not_sent_again() -> None:
    """The lock promises a refusal, if another transaction has written the row."""
    bench = Bench()
    bench.write(2)
    lock = bench.session.lock_rows(bench.tx, PATH, [{"id": 1}], None, "shared_weak")
    bench.run(lock)
    with pytest.raises(TransactionConflict):
        refused(bench, changed(1))


def test_a_read_that_cannot_be_checked_is_not_sent_again() -> None:
    plain = table(path="//plain", atomicity="none")
    bench = Bench(table(), table(path=OTHER), plain)
    bench.look_up(5, path="//plain")
    bench.write(1)
    with pytest.raises(TransactionConflict):
        refused(bench, changed(1))


def test_an_attempt_that_meets_an_earlier_one_is_sent_again() -> None:
    bench = Bench()
    bench.write(1)
    commit = refused(bench, changed(1))
    again(commit)
    held = {"key": {"id": 1}, "table": PATH, "winner": START}
    commit.answer(Failure("transaction_conflict", "row is held", held))
    commit.wait()
    commit.answer(TimestampRange(Timestamp(LATER + 9), 1))
    bare: Any = bare_commit(commit.calls[0][1])
    assert bare.transaction == LATER + 9
    assert bench.tx.former == (START, LATER)


def test_between_two_attempts_the_transaction_has_the_id_that_was_refused() -> None:
    """An interrupt may come there. Then the outcome of this id says that nothing is committed."""
    bench = Bench()
    bench.write(1)
    commit = refused(bench, changed(1))
    assert (bench.tx.id, bench.tx.is_committing) == (START, True)
    commit.give_up()
    assert bench.session._outcomes.keys() == {START}


@pytest.mark.parametrize("look", [repr, lambda tx: tx.id, lambda tx: tx.start_timestamp])
def test_who_has_seen_the_id_has_it_for_good(tmp_path: Path, look: Any) -> None:
    with dodona.open(tmp_path / "db", isolation="serializable") as db:
        db.create_table("//t", PLAIN, mount=True)
        seen, unseen = db.begin(), db.begin()
        look(seen)
        for tx in (seen, unseen):
            tx.insert_rows("//t", [{"k": 1, "v": 1}])
        db.insert_rows("//t", [{"k": 1, "v": 2}])
        unseen.commit()
        with pytest.raises(TransactionConflict):
            seen.commit()


class Overtaken:
    """A database in which something happens once, before the first commit that publishes rows, or
    that changes the state of a load."""

    def __init__(self, db: dodona.Client, *, publishes: bool) -> None:
        self._run = db._run
        self._publishes = publishes
        self.happens: list[Callable[[], object]] = []

    def run(self, protocol: Any, timeout_ms: int | None = None) -> Any:
        return self._run(self._watched(protocol), timeout_ms)

    def _watched(self, protocol: Any) -> Any:
        replies: Any = None
        while True:
            try:
                step = protocol.send(replies)
            except StopIteration as stop:
                return stop.value
            if self.happens and any(map(self._is_it, getattr(step, "requests", ()))):
                self.happens.pop()()
            replies = yield step

    def _is_it(self, sent: Any) -> bool:
        body = bare_commit(sent[1])
        if not isinstance(body, CommitOne):
            return False
        return any(it.publication is not None for it in body.modifications) == self._publishes


@pytest.mark.parametrize("options", [{"isolation": "serializable"}, {"refresh": True}])
def test_a_version_of_an_application_is_published_once(
    tmp_path: Path, options: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The transaction that publishes reads outside of its buffer, so it is never sent again."""
    with dodona.open(tmp_path / "db", **options) as db:
        db.create_table("//t", PLAIN, mount=True)
        first, second = (db.loads.begin(["//t"], application="app", version=1) for _ in range(2))
        first.write("//t", [{"k": 1, "v": 1}])
        second.write("//t", [{"k": 2, "v": 1}])
        overtaken = Overtaken(db, publishes=True)
        overtaken.happens.append(second.publish)
        monkeypatch.setattr(first, "_run", overtaken.run)
        with pytest.raises(ConcurrentTransaction):
            first.publish()
        assert [it["k"] for it in db.select("//t")] == [2]


@pytest.mark.parametrize("options", [{"isolation": "serializable"}, {"refresh": True}])
def test_a_load_that_was_published_meanwhile_is_not_aborted(
    tmp_path: Path, options: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    with dodona.open(tmp_path / "db", **options) as db:
        db.create_table("//t", PLAIN, mount=True)
        load = db.loads.begin(["//t"])
        load.write("//t", [{"k": 1, "v": 1}])
        overtaken = Overtaken(db, publishes=False)
        overtaken.happens.append(load.publish)
        loads = db.loads
        monkeypatch.setattr(loads, "_run", overtaken.run)
        assert isinstance(loads.abort(load.id), dodona.Published)
        assert [it["k"] for it in db.select("//t")] == [1]
