"""Each planted bug is found, with the shortest trace that the page names."""

import re
from typing import Final

import pytest

from replication_model.explorer import explore
from replication_model.planted import BUGS
from replication_model.planted.bug import PlantedBug
from replication_model.report import planted_row
from unit.replication_model.page import PAGE, planted_rows

WITHOUT_BUG: Final = {"R30", "R32", "T4"}
"""The page says why: the model has one cell, no restored document, and free clocks."""
QUICK_STATES_MAX: Final = 2_000
PAGE_COMMAND: Final = (
    "python -m replication_model --planted --markdown docs/explanation/replication.md"
)


def case_of(bug: PlantedBug) -> object:
    """In `make test`, too, if the page says that the search is short."""
    row = planted_rows().get(bug.title)
    is_quick = row is not None and int(row[3].replace(",", "")) <= QUICK_STATES_MAX
    marks = [] if is_quick else [pytest.mark.slow("looks at many states")]
    return pytest.param(bug, id=bug.name, marks=marks)


@pytest.mark.parametrize("bug", [case_of(it) for it in BUGS])
def test_a_planted_bug_is_found(bug: PlantedBug) -> None:
    found = explore(bug.make())
    assert found.violation is not None, "the search sees nothing"
    assert len(found.trace) == found.depth
    assert planted_rows()[bug.title] == planted_row(bug.rule, bug.title, found), PAGE_COMMAND


def test_each_rule_has_a_planted_bug_or_an_excuse() -> None:
    rules = re.findall(r"\*\*([RT]\d+)\.\*\*", PAGE.read_text("utf-8"))
    assert rules == [*(f"R{it}" for it in range(1, 33)), *(f"T{it}" for it in range(1, 5))]
    planted = {bug.rule for bug in BUGS}
    assert planted | WITHOUT_BUG == set(rules)
    assert not planted & WITHOUT_BUG


def test_the_page_lists_every_planted_bug() -> None:
    titles = [bug.title for bug in BUGS]
    assert len(set(titles)) == len(titles)
    assert [*planted_rows()] == titles, PAGE_COMMAND
