"""The rules of early locks keep their promises in every state, and each planted bug is found."""

import subprocess
import sys
from collections.abc import Callable, Hashable, Iterator
from typing import Final

import pytest

from early_lock_model import planted
from early_lock_model.cases import (
    CASES,
    apart,
    endless,
    hot,
    hot_and,
    named,
    overtaking,
    pair,
    sets,
    skipping,
    twice,
)
from early_lock_model.endings import starved, unsettled
from early_lock_model.model import EarlyLockModel
from early_lock_model.planted import BUGS, PlantedBug
from early_lock_model.rules import Rules
from early_lock_model.state import BLIND, DONE, FAILED, OWNERS, PLAIN, Case, State
from replication_model.explorer import explore
from replication_model.step import Step
from suite.levels import share

SMALL: Final = [it for it in CASES if not (it.leases_end or it.crashes_max)]


def title_of(it: Case | PlantedBug) -> str:
    return it.title


@pytest.mark.parametrize("case", share(CASES, one_in=2), ids=title_of)
def test_the_rules_keep_their_promises_in_each_state(case: Case) -> None:
    found = explore(EarlyLockModel(case))
    assert (found.violation, found.trace) == (None, ())
    assert found.is_complete


@pytest.mark.parametrize("bug", BUGS, ids=title_of)
def test_a_planted_bug_is_found(bug: PlantedBug) -> None:
    found = explore(bug.make())
    assert found.violation is not None, "the search sees nothing"
    assert found.violation.startswith(bug.promise)


def test_each_bug_is_searched_in_a_configuration_without_one() -> None:
    searched = {*CASES, *[bug.case for bug in BUGS]}
    for case in searched - {*CASES}:
        assert explore(EarlyLockModel(case)).violation is None, case.title


def test_each_bug_of_the_rules_is_planted() -> None:
    kinds = {it for it in vars(planted).values() if isinstance(it, type) and issubclass(it, Rules)}
    assert {bug.rules for bug in BUGS} == kinds - {Rules}


# ---- all comes to an end


def settling_of(case: Case) -> object:
    marks = [] if case in SMALL[::2] else [pytest.mark.slow("follows each state to its end")]
    return pytest.param(case, id=case.title, marks=marks)


@pytest.mark.parametrize("case", [settling_of(it) for it in CASES])
def test_each_state_is_followed_by_a_quiet_one(case: Case) -> None:
    """All messages arrive, all clients are dead, or one owner is dead and its leases end."""
    assert unsettled(EarlyLockModel(case)) is None


def test_a_state_without_an_end_is_noticed() -> None:
    found = unsettled(EarlyLockModel(apart(), planted.AnyOrder()))
    assert found == "all messages arrive, and T0 owns rows in cell 0 for ever"


def test_a_request_does_not_starve() -> None:
    """Two writers begin anew again and again. The set of both rows is still granted."""
    model = EarlyLockModel(endless())
    assert explore(model).is_complete
    assert starved(model, 0) is None


def test_a_request_starves_if_its_rows_stay_open() -> None:
    found = starved(EarlyLockModel(endless(), planted.Open()), 0)
    assert found is not None
    around = found.trace[-found.round_length :]
    assert {"T1 has its commit locks in cell 0", "T2 has its commit locks in cell 0"} <= {*around}
    assert "cell 0 queues T0 for rows ab" in found.trace


# ---- the searches see something


class _Until:
    """The same model, which calls a phase of a client a violation."""

    def __init__(self, case: Case, at: int, phase: str) -> None:
        self._model = EarlyLockModel(case)
        self.title = case.title
        self.first: Callable[[], State] = self._model.first
        self.steps: Callable[[State], Iterator[Step[State]]] = self._model.steps
        self.pack: Callable[[State], Hashable] = self._model.pack
        self.unpack: Callable[[State], State] = self._model.unpack
        self._at, self._phase = at, phase

    def violation(self, state: State) -> str | None:
        return self._phase if state.clients[self._at].phase == self._phase else None


@pytest.mark.parametrize("case", [it for it in CASES if it != twice()], ids=title_of)
def test_each_transaction_can_commit(case: Case) -> None:
    """A search in which nothing commits would keep all promises."""
    for at in range(len(case.txns)):
        assert explore(_Until(case, at, DONE)).violation == DONE, at


@pytest.mark.parametrize(
    "case",
    [hot(2), hot(3), sets(), pair(ends=False), apart(), named(), overtaking(BLIND)],
    ids=title_of,
)
def test_an_owner_always_commits_without_accidents(case: Case) -> None:
    for at, txn in enumerate(case.txns):
        if txn.kind in OWNERS:
            assert explore(_Until(case, at, FAILED)).violation is None, at


@pytest.mark.parametrize(
    ("case", "at"),
    [(twice(), 0), (hot_and(PLAIN), 1), (hot(2, ends=True), 0), (skipping(), 2)],
    ids=str,
)
def test_a_transaction_can_fail(case: Case, at: int) -> None:
    """A second acquisition, a plain writer, an owner whose lease ends, and one that finds no row
    free."""
    assert explore(_Until(case, at, FAILED)).violation == FAILED


@pytest.mark.slow("searches all configurations")
def test_the_command_searches_and_finds() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "early_lock_model"],
        capture_output=True,
        text=True,
        check=True,
        timeout=600,
    )
    assert done.stdout.count("planted: ") == len(BUGS) + 1
