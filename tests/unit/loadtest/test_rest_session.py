"""What a session over REST says for sure, and what it leaves unsure."""

from collections.abc import Iterable
from random import Random
from typing import Any, Final

import pytest

from dodona._core.writing.outcomes import Outcome
from dodona.errors import (
    CommitOutcomeUnknown,
    DodonaError,
    InvalidRequest,
    NodeNotFound,
    Overloaded,
    TransactionConflict,
    TransactionNotFound,
    Unavailable,
)
from dodona.schema import Column
from dodona.types import SYNC_LAST_COMMITTED, Timestamp, TransactionId
from dodona_loadtest.histories.history import History, Status
from dodona_loadtest.histories.recorder import Recorder
from dodona_loadtest.histories.rest_session import RestAnswer, RestCall, RestSession
from dodona_loadtest.histories.shape import TableShape
from dodona_loadtest.histories.stamped import write_stamped
from unit.loadtest.model_rows import exhaust

TABLE: Final = TableShape(
    "//t", (Column("id", "int64", sort_order="ascending"), Column("v", "utf8")), ((),), "none"
)
BEGUN: Final = RestAnswer(201, {"transaction": "t7", "start_timestamp": 7})
NOTHING: Final = RestAnswer(0, None)


def problem(error: type[DodonaError], **attributes: Any) -> RestAnswer:
    told = {"kind": error.kind, "detail": "so it is", "attributes": attributes}
    return RestAnswer(error.status, told)


class Gateway:
    """Answers in this order."""

    def __init__(self, answers: Iterable[RestAnswer]) -> None:
        self._answers = iter(answers)
        self.calls: list[RestCall] = []

    def __call__(self, call: RestCall) -> RestAnswer:
        self.calls.append(call)
        return next(self._answers)


def session_of(*answers: RestAnswer) -> tuple[RestSession, Gateway]:
    gateway = Gateway(answers)
    return RestSession(gateway, lambda: 0), gateway


def write(*answers: RestAnswer) -> Any:
    session, _ = session_of(*answers)
    return exhaust(session.write_rows("//t", [{"id": 1}], False, "sync"))


def commit(*answers: RestAnswer) -> tuple[Any, Gateway]:
    session, gateway = session_of(BEGUN, *answers)
    buffer = exhaust(session.begin())
    return exhaust(session.commit(buffer)), gateway


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (NOTHING, CommitOutcomeUnknown),
        (RestAnswer(502, None), CommitOutcomeUnknown),
        (problem(DodonaError), CommitOutcomeUnknown),  # whatever broke, it may have broken late
        (problem(CommitOutcomeUnknown, transaction="t7"), CommitOutcomeUnknown),
        (problem(Unavailable), Unavailable),
        (problem(Overloaded), Overloaded),
        (problem(NodeNotFound), NodeNotFound),
        (problem(TransactionConflict, key={"id": 1}), TransactionConflict),
    ],
)
def test_a_failed_write_over_rest_raises_the_error_that_matches_its_answer(
    answer: RestAnswer, error: type[DodonaError]
) -> None:
    with pytest.raises(error) as raised:
        write(answer)
    assert type(raised.value) is error
    assert "transaction" not in raised.value.attributes


def test_an_answered_write_returns_its_timestamp() -> None:
    assert write(RestAnswer(200, {"timestamp": 9})) == 9


def test_a_read_without_an_answer_may_be_repeated() -> None:
    session, _ = session_of(NOTHING)
    with pytest.raises(Unavailable):
        exhaust(session.lookup_rows("//t", [{"id": 1}], keep_missing=True, timestamp=Timestamp(5)))


def test_a_commit_without_an_answer_is_sent_again() -> None:
    timestamp, gateway = commit(NOTHING, RestAnswer(200, {"timestamp": 9}))
    assert timestamp == 9
    assert [call.path for call in gateway.calls[1:]] == ["/v1/transactions/t7/commit"] * 2
    assert gateway.calls[1].label == "/v1/transactions/{transaction}/commit"


@pytest.mark.parametrize(
    "second",
    [NOTHING, RestAnswer(503, None), problem(Overloaded), problem(TransactionNotFound)],
)
def test_only_an_abort_is_proof_that_an_unanswered_commit_failed(second: RestAnswer) -> None:
    for first in (NOTHING, problem(CommitOutcomeUnknown)):
        with pytest.raises(CommitOutcomeUnknown) as raised:
            commit(first, second)
        assert raised.value.attributes["transaction"] == 7
        with pytest.raises(TransactionConflict):
            commit(first, problem(TransactionConflict))


@pytest.mark.parametrize("error", [TransactionConflict, Overloaded, TransactionNotFound])
def test_an_immediately_refused_commit_is_not_sent_again(error: type[DodonaError]) -> None:
    with pytest.raises(error):
        commit(problem(error))


@pytest.mark.parametrize(
    ("state", "outcome"),
    [
        ({"state": "committed", "timestamp": 9}, Outcome("committed", Timestamp(9))),
        ({"state": "aborted"}, Outcome("aborted")),
        ({"state": "unknown"}, Outcome("unknown")),
        ({"state": "active"}, Outcome("pending")),
        ({"state": "committing"}, Outcome("pending")),
    ],
)
def test_a_session_can_ask_for_the_outcome_of_an_uncertain_commit(
    state: dict[str, Any], outcome: Outcome
) -> None:
    session, gateway = session_of(BEGUN, NOTHING, NOTHING, RestAnswer(200, state))
    buffer = exhaust(session.begin())
    with pytest.raises(CommitOutcomeUnknown):
        exhaust(session.commit(buffer))
    assert exhaust(session.outcome(TransactionId(7), settle=True)) == outcome
    assert gateway.calls[-1][:2] == ("GET", "/v1/transactions/t7?settle=true")


def test_reads_of_a_transaction_use_its_address_and_other_reads_name_a_timestamp() -> None:
    found = RestAnswer(200, {"rows": [None]})
    session, gateway = session_of(BEGUN, found, found)
    exhaust(session.begin())
    for timestamp in (7, 5):
        at = Timestamp(timestamp)
        exhaust(session.lookup_rows("//t", [{"id": 1}], keep_missing=True, timestamp=at))
    within, outside = gateway.calls[1:]
    assert within.path == "/v1/transactions/t7/lookup"
    assert (outside.path, (outside.body or {})["timestamp"]) == ("/v1/rows/lookup", 5)


def test_a_scan_continues_at_the_timestamp_of_its_first_page() -> None:
    pages = [
        RestAnswer(200, {"rows": [{"id": 1}], "next": [2], "timestamp": 9}),
        RestAnswer(200, {"rows": [{"id": 2}], "next": None, "timestamp": 9}),
    ]
    session, gateway = session_of(*pages)
    rows = exhaust(session.select("//t", [1], timestamp=SYNC_LAST_COMMITTED))
    assert rows == [{"id": 1}, {"id": 2}]
    second = gateway.calls[1].body or {}
    assert (second["lower"], second["upper"], second["timestamp"]) == ([2], None, 9)


# ---- rows without atomicity


@pytest.mark.parametrize(
    ("answer", "status"),
    [
        (RestAnswer(200, {"timestamp": 9}), "ok"),
        (NOTHING, "info"),
        (problem(InvalidRequest), "fail"),
        (problem(Unavailable), "info"),
        (problem(Unavailable, not_applied=[1, 2]), "fail"),
        (problem(Unavailable, applied=[1]), "ok"),
        (problem(Unavailable, unknown=[1]), "info"),
        (problem(Unavailable, applied=[1], not_applied=[2]), "info"),
    ],
)
def test_rows_are_sure_where_all_tablets_are(answer: RestAnswer, status: Status) -> None:
    session, _ = session_of(answer)
    db = Recorder(session, "s", History(), Random(1), lambda: 0)
    rows = [{"id": 1, "v": "x"}, {"id": 2, "v": "y"}]
    told = exhaust(write_stamped(db, TABLE, rows, is_durable=True))
    assert [it.status for it in told] == [status, status]
    assert (db.refusal is None) == (status == "ok")


# ---- refusals


@pytest.mark.parametrize(
    ("said", "is_judged"), [({"winner_timestamp": 5}, True), ({"winner": 5}, False), ({}, True)]
)
def test_a_conflict_that_names_only_the_id_of_the_winner_is_not_judged(
    said: dict[str, Any], is_judged: bool
) -> None:
    lost = problem(TransactionConflict, key={"id": 1}, **said)
    session, _ = session_of(BEGUN, RestAnswer(200, {}), lost)
    db = Recorder(session, "s", History(), Random(1), lambda: 0)
    attempt = exhaust(db.begin())
    exhaust(attempt.insert(TABLE, {"id": 1, "v": "x"}))
    assert not exhaust(attempt.commit())
    assert (attempt.record.conflict is not None) == is_judged
    assert db.refusal == "transaction_conflict"
