"""The rules of serializable transactions keep their promises, and each planted bug is found."""

import subprocess
import sys
from collections.abc import Callable, Hashable, Iterator
from functools import partial

import pytest

from replication_model.explorer import explore
from replication_model.step import Step
from serializable_model import planted
from serializable_model.cases import (
    CASES,
    LARGE,
    PLAIN_ONE,
    groups,
    phantom,
    read_apart,
    resharded,
    seen_by_reader,
    skew,
)
from serializable_model.endings import unsettled
from serializable_model.model import SerializableModel
from serializable_model.planted import BUGS, PlantedBug
from serializable_model.promises import DEADLOCK
from serializable_model.rules import Rules
from serializable_model.state import ABORT, UNDECIDED, Case, State
from suite.levels import share


def title_of(it: Case | PlantedBug) -> str:
    return it.title


def _large(case: Case) -> object:
    return pytest.param(case, id=case.title, marks=pytest.mark.slow("looks at some 100,000 states"))


@pytest.mark.parametrize("case", [*share(CASES, one_in=2), *map(_large, LARGE)], ids=title_of)
def test_the_rules_keep_their_promises_in_each_state(case: Case) -> None:
    found = explore(SerializableModel(case))
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
        assert explore(SerializableModel(case)).violation is None, case.title


def test_each_bug_of_the_rules_is_planted() -> None:
    kinds = {it for it in vars(planted).values() if isinstance(it, type) and issubclass(it, Rules)}
    assert {bug.rules for bug in BUGS} == kinds - {Rules}


# ---- all comes to an end


class _Counted:
    """The same model without accidents, in which each step must lead further."""

    def __init__(self, case: Case, rules: Rules | None = None) -> None:
        self._model = SerializableModel(case, rules)
        self.title = case.title
        self.first: Callable[[], State] = self._model.first
        self.pack: Callable[[State], Hashable] = self._model.pack
        self.unpack: Callable[[State], State] = self._model.unpack

    def steps(self, state: State) -> Iterator[Step[State]]:
        """Accidents are steps, too. They need not lead further, and their number is bounded."""
        for step in self._model.progress(state):
            assert _progress_of(step.state) > _progress_of(state), step.text
            yield step
        yield from self._model.accidents(state)

    def violation(self, state: State) -> str | None:
        return None


def _progress_of(state: State) -> int:
    """Return how far all have come. It is bounded, so there is no round of steps."""
    phases = ("none", "locked", "prepared", "committed", "refused")
    records = sum(phases.index(it.phase) for pair in state.records for it in pair)
    clients = sum((it.start > 0) + (it.decided != UNDECIDED) for it in state.clients)
    return records + clients


@pytest.mark.parametrize(
    "case", [skew(crashes_max=1), read_apart(PLAIN_ONE, crashes_max=1)], ids=title_of
)
def test_no_step_leads_back(case: Case) -> None:
    """A state in which nothing goes on is a violation. So from each state, all becomes quiet."""
    assert explore(_Counted(case)).is_complete


@pytest.mark.parametrize(
    "case",
    share([skew(), read_apart(PLAIN_ONE, crashes_max=1), resharded()], one_in=3),
    ids=title_of,
)
def test_dead_clients_keep_nothing_for_ever(case: Case) -> None:
    assert unsettled(SerializableModel(case)) is None


def test_a_participant_that_does_not_ask_is_noticed() -> None:
    class Silent(Rules):
        asks_coordinator = False

    left = unsettled(SerializableModel(skew(), Silent()))
    assert left is not None
    assert left[:-11] == "clients 11 are dead, and DEADLOCK: T0 is prepared in cell"


def test_two_that_wait_for_each_other_are_noticed() -> None:
    found = explore(SerializableModel(skew(), planted.WaitsForLaterReader()))
    assert found.violation is not None
    assert found.violation.startswith(DEADLOCK)


# ---- the searches see something


class _Until:
    """The same model, which calls an outcome of a transaction a violation."""

    def __init__(self, case: Case, is_looked_for: Callable[[State], bool]) -> None:
        self._model = SerializableModel(case)
        self.title = case.title
        self.first: Callable[[], State] = self._model.first
        self.steps: Callable[[State], Iterator[Step[State]]] = self._model.steps
        self.pack: Callable[[State], Hashable] = self._model.pack
        self.unpack: Callable[[State], State] = self._model.unpack
        self._is_looked_for = is_looked_for

    def violation(self, state: State) -> str | None:
        return "found" if self._is_looked_for(state) else None


def _can_be(case: Case, is_looked_for: Callable[[State], bool]) -> bool:
    return explore(_Until(case, is_looked_for)).violation is not None


@pytest.mark.parametrize("case", CASES, ids=title_of)
def test_each_transaction_can_commit(case: Case) -> None:
    """A search in which nothing commits would keep all promises."""
    for at in range(len(case.txns)):
        assert _can_be(case, partial(_is_committed, at)), at


def _is_committed(at: int, state: State) -> bool:
    return state.clients[at].decided > UNDECIDED


@pytest.mark.parametrize("case", [skew(), phantom()], ids=title_of)
def test_one_of_two_that_skew_is_aborted(case: Case) -> None:
    assert _can_be(case, lambda it: it.clients[0].decided == ABORT)
    assert _can_be(case, lambda it: it.clients[1].decided == ABORT)


def test_a_writer_of_a_group_that_was_not_read_is_not_in_the_way() -> None:
    """The row is there, so the writer of another group does not create it."""

    def is_aborted(state: State) -> bool:
        return any(it.decided == ABORT for it in state.clients)

    assert not _can_be(groups(is_there=True), is_aborted)
    assert _can_be(groups(), is_aborted)


def test_a_writer_in_one_cell_waits_and_is_not_aborted_by_a_hold() -> None:
    case = read_apart(PLAIN_ONE)
    assert not _can_be(case, lambda it: it.clients[1].decided == ABORT)
    assert _can_be(case, lambda it: it.clients[0].decided == ABORT)


def test_a_transaction_that_only_reads_is_never_aborted() -> None:
    assert not _can_be(seen_by_reader(), lambda it: it.clients[2].decided == ABORT)


@pytest.mark.slow("searches all configurations")
def test_the_command_searches_and_finds() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "serializable_model"],
        capture_output=True,
        text=True,
        check=True,
        timeout=600,
    )
    assert done.stdout.count("planted: ") == len(BUGS)
