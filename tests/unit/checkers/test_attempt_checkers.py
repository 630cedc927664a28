"""The checkers on transactions that were sent again after a refusal, and what is recorded of them.

T has read row A at 3, was refused, and was sent again at 6. It writes row C.
"""

from collections import Counter
from random import Random
from typing import Any, cast

import pytest

from dodona._core.protocol.steps import Calls, Protocol
from dodona._core.session import Session
from dodona._core.writing.transaction import TransactionBuffer
from dodona.types import CellId, Timestamp, TransactionId
from dodona_loadtest.histories.history import Conflict, History, Lock, Read, Transaction, Write
from dodona_loadtest.histories.recorder import Attempt, Recorder
from dodona_tablets.core.node import NodeCore
from dodona_wire.messages.data import CommitOne, GenerateTimestamps, Prepare
from simulator.simulation import Simulation
from unit.checkers.script import A, C, Script, value

CELL = CellId(0)


@pytest.fixture
def script() -> Script:
    return Script()


def refused(script: Script, *, is_serializable: bool = True) -> Transaction:
    t = script.begin(3, "again")
    t.is_serializable = is_serializable
    t.reads = [Read(A, None)]
    return t


def test_a_write_is_checked_from_the_new_start(script: Script) -> None:
    t = refused(script)
    script.write(4, 5, Write(C, value(1)), session="other")
    t.again = [6]
    script.finish(t, 7, Write(C, value(2)))
    assert script.check() == []
    t.again = []
    assert script.promises() == {"NOCONFLICT"}


def test_a_change_after_the_new_start_is_a_conflict(script: Script) -> None:
    t = refused(script)
    t.again = [6]
    script.write(8, 9, Write(C, value(1)), session="other")
    script.finish(t, 10, Write(C, value(2)))
    assert script.promises() == {"NOCONFLICT"}


@pytest.mark.parametrize("is_serializable", [True, False])
def test_reads_are_checked_from_the_first_start(script: Script, *, is_serializable: bool) -> None:
    """Also with snapshot isolation: the program must have run as if it began at 6."""
    t = refused(script, is_serializable=is_serializable)
    script.write(4, 5, Write(A, value(1)), session="other")
    t.again = [6]
    script.finish(t, 7, Write(C, value(2)))
    assert script.promises() == {"VALID"}


def test_it_commits_above_its_new_start(script: Script) -> None:
    t = refused(script)
    t.again = [6]
    script.finish(t, 5, Write(C, value(2)))
    assert script.promises() == {"ORDER"}


def test_a_new_start_belongs_to_one_transaction(script: Script) -> None:
    t = refused(script)
    t.again = [6]
    script.finish(t, 7, Write(C, value(2)))
    script.read(6)
    assert script.promises() == {"UNIQUE", "MONOTONIC"}


@pytest.mark.parametrize(("winner", "is_real"), [(3, True), (6, False)])
def test_a_refusal_may_name_the_first_attempt_only(
    script: Script, winner: int, *, is_real: bool
) -> None:
    t = refused(script)
    t.again = [6]
    script.finish(t, None, Write(C, value(2)), status="fail")
    t.conflict = Conflict((C,), winner, None)
    assert script.promises() == (set() if is_real else {"FALSE-CONFLICT"})


def test_a_refusal_may_name_a_new_attempt_of_another(script: Script) -> None:
    t = refused(script)
    t.again = [6]
    loser = script.begin(4, "loser")
    script.finish(t, 7, Write(C, value(2)))
    script.finish(loser, None, locks=(Lock(C, True, is_exclusive=True),), status="fail")
    loser.conflict = Conflict((C,), 6, None)
    assert script.check() == []


# What is recorded


class Sender:
    """A session whose commit sends these."""

    def __init__(self, *steps: Calls) -> None:
        self._steps = steps

    def commit(self, _: TransactionBuffer) -> Protocol[Timestamp]:
        yield from self._steps
        return Timestamp(100)


def recorded(*steps: Calls) -> Transaction:
    history, instants = History(), iter(range(1_000))
    recorder = Recorder(cast("Session", Sender(*steps)), "s", history, Random(0), lambda: 0)
    record = history.begin("s", next(instants))
    record.start = 3
    committing = Attempt(recorder, cast("Any", object()), record).commit()
    assert len(list(committing)) == len(steps)
    return record


def sent(name: int, *, is_one: bool) -> Calls:
    cells = (CELL, CellId(1))
    transaction = TransactionId(name)
    body = CommitOne(transaction, (), False) if is_one else Prepare(transaction, cells, ())
    return Calls(((CELL, body),))


@pytest.mark.parametrize("is_one", [True, False])
def test_each_new_attempt_is_recorded_once(*, is_one: bool) -> None:
    asked = Calls(((CELL, GenerateTimestamps(1)),))
    names = [sent(3, is_one=is_one), asked, *(sent(it, is_one=is_one) for it in (6, 6, 9))]
    record = recorded(*names)
    assert record.again == [6, 9]
    assert record.written_from == 9
    assert recorded(sent(3, is_one=is_one)).again == []


# What the workload contains


@pytest.mark.slow("many seeds")
def test_the_workload_of_duties_contains_new_attempts() -> None:
    counts: Counter[str] = Counter()
    for seed in range(20):
        run = Simulation(seed, 6, "serializable_write_skew", NodeCore)
        assert run.run().violations == []
        counts.update(t.status for t in run.history.transactions if t.again)
    assert counts["ok"] > 10, counts
