"""The rules of prerequisites keep their promises in every state, and each planted bug is found."""

import subprocess
import sys
from typing import Final

import pytest

from prerequisite_model import planted
from prerequisite_model.cases import CASES
from prerequisite_model.model import PrerequisiteModel
from prerequisite_model.planted import BUGS, PlantedBug
from prerequisite_model.rules import Rules
from prerequisite_model.state import COMMITTED, Case
from replication_model.explorer import explore

LONG: Final = ("a takeover in two cells, crashes=1",)


def case_of(case: Case) -> object:
    marks = [pytest.mark.slow("looks at 123,474 states")] if case.title in LONG else []
    return pytest.param(case, id=case.title, marks=marks)


@pytest.mark.parametrize("case", [case_of(it) for it in CASES])
def test_the_rules_keep_their_promises_in_each_state(case: Case) -> None:
    found = explore(PrerequisiteModel(case))
    assert (found.violation, found.trace) == (None, ())
    assert found.is_complete


@pytest.mark.parametrize("bug", BUGS, ids=lambda it: it.title)
def test_a_planted_bug_is_found(bug: PlantedBug) -> None:
    found = explore(bug.make())
    assert found.violation is not None, "the search sees nothing"
    assert found.violation.startswith(bug.promise)
    assert explore(PrerequisiteModel(bug.case)).violation is None


def test_each_bug_of_the_rules_is_planted() -> None:
    kinds = {it for it in vars(planted).values() if isinstance(it, type) and issubclass(it, Rules)}
    assert {bug.rules for bug in BUGS} == kinds - {Rules}


@pytest.mark.parametrize(
    "case", [it for it in CASES[:-1] if not it.in_chunks], ids=lambda it: it.title
)
def test_each_transaction_can_commit(case: Case) -> None:
    """A search in which nothing commits would keep all promises."""
    model = PrerequisiteModel(case)
    for at in range(len(case.txns)):
        assert explore(_Until(model, at)).violation is not None, at


class _Until:
    """The same model, which calls the commit of a transaction a violation."""

    def __init__(self, model: PrerequisiteModel, at: int) -> None:
        self.title, self.first, self.steps = model.title, model.first, model.steps
        self.pack, self.unpack = model.pack, model.unpack
        self._at = at

    def violation(self, state: object) -> str | None:
        cells = state.lives[self._at].cells  # type: ignore[attr-defined]
        return "committed" if any(it.phase == COMMITTED for it in cells) else None


@pytest.mark.slow("searches all configurations")
def test_the_command_searches_and_finds() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "prerequisite_model"],
        capture_output=True,
        text=True,
        check=True,
        timeout=600,
    )
    assert done.stdout.count("planted: ") == len(BUGS)
