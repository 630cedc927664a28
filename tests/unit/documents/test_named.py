"""What pages name is there: tests, faults of the simulator, errors and their codes."""

import re
from typing import Final

import pytest

from documents.blocks import DOCS, ROOT, pages
from dodona.errors import ERRORS_BY_KIND

FAILURES: Final = DOCS / "explanation" / "failure-modes.md"
TEST_PATH: Final = re.compile(r"`(tests/[\w/]+(?:\.py)?)`")
ERROR: Final = re.compile(r"`([A-Z]\w+)` \((\d+)\)")
CODES: Final = {it.__name__: it("").code for it in ERRORS_BY_KIND.values()}


def rows_of(text: str) -> list[list[str]]:
    """The cells of all rows of all tables, without heads."""
    tables = re.findall(r"^\|.*\n\|[ |:-]*\n((?:\|.*\n)+)", text, re.MULTILINE)
    lines = [line for table in tables for line in table.splitlines()]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]


def faults() -> set[str]:
    """What the summary of the last long run says that went wrong."""
    return {cells[0] for cells in rows_of((DOCS / "explanation" / "reliability.md").read_text())}


@pytest.mark.parametrize("page", pages())
def test_the_tests_that_a_page_names_are_there(page: str) -> None:
    named = TEST_PATH.findall((ROOT / page).read_text("utf-8"))
    assert [it for it in named if not (ROOT / it).exists()] == []


def test_the_failures_page_lists_the_correct_error_codes() -> None:
    said = ERROR.findall(FAILURES.read_text("utf-8"))
    assert len(said) > 40
    assert {name: int(code) for name, code in said} == {name: CODES[name] for name, _ in said}


def test_a_failure_is_shown_by_a_test_or_by_a_fault_of_the_simulator() -> None:
    shown = [cells[3] for cells in rows_of(FAILURES.read_text("utf-8")) if len(cells) == 4]
    assert len(shown) > 35
    assert [it for it in shown if not re.search(r"/test_\w+\.py[#)]", it)] == []
    named = {fault for it in shown for fault in re.findall(r"`([^`]+)`", it)}
    assert len(named) > 15
    assert sorted(named - faults()) == []


def test_the_faults_of_the_network_are_the_simulator_s() -> None:
    text = FAILURES.read_text("utf-8").split("## The network")[1].split("\n## ")[0]
    named = set(re.findall(r"`([a-z_]+ [a-z]+)`", text))
    assert len(named) >= 8
    assert sorted(named - faults()) == []


def test_rows_of_returns_the_table_rows_below_headers() -> None:
    text = "| a | b |\n|---|--:|\n| `c` | d |\n| e | |\nnone\n| f |\n| --- |\n| g |\n"
    assert rows_of(text) == [["`c`", "d"], ["e", ""], ["g"]]
