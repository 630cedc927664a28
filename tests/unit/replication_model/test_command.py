"""`python -m replication_model`: tables, traces, the page, the exit status."""

from pathlib import Path
from typing import Final

import pytest

from replication_model import __main__ as command
from replication_model import report
from replication_model.configurations import CONFIGURATIONS, Configuration
from replication_model.planted import BUGS
from replication_model.planted.bug import PlantedBug

QUICK: Final = "3 replicas, reads without a lease"
TRACE: Final = "a set gets smaller than copies_min"


def page_in(folder: Path) -> Path:
    page = folder / "page.md"
    sections = (report.CONFIGURATIONS_SECTION, report.PLANTED_SECTION)
    marks = (f"<!-- {it}: begin -->\n<!-- {it}: end -->\n" for it in sections)
    page.write_text("".join(marks))
    return page


def test_a_search_prints_a_table_and_writes_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = page_in(tmp_path)
    assert command.main(["--only", QUICK, "--markdown", str(page)]) == 0
    header, row = capsys.readouterr().out.splitlines()
    assert header.split() == ["configuration", "states", "steps", "depth", "seconds"]
    assert row.startswith(QUICK)
    assert [it[0] for it in report.rows_on(page, report.CONFIGURATIONS_SECTION)] == [QUICK]


def test_a_row_replaces_the_row_of_its_title(tmp_path: Path) -> None:
    page, section = page_in(tmp_path), report.CONFIGURATIONS_SECTION
    header, order = report.CONFIGURATIONS_HEADER, ["a", "b"]
    report.write_rows(page, section, header, [("b", "1", "2", "3", "4")], order)
    report.write_rows(page, section, header, [("c", "1", "1", "1", "1")], order)
    report.write_rows(page, section, header, [("a", "5", "6", "7", "8")], order)
    report.write_rows(page, section, header, [("b", "9", "2", "3", "4")], order)
    assert report.rows_on(page, section) == [("a", "5", "6", "7", "8"), ("b", "9", "2", "3", "4")]


def test_a_planted_bug_prints_its_trace(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["--planted", "--traces", "--only", TRACE]) == 0
    name, *trace = capsys.readouterr().out.partition("\n\n")[0].splitlines()
    assert name == f"R14: {TRACE}"
    assert [it.split()[0] for it in trace[:-1]] == [str(it) for it in range(1, len(trace))]
    assert "drops [o1] from the set" in trace[0]
    assert "too few copies" in trace[-1]


def test_walks_print_how_many_steps_they_took(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["--walks", "1", "--seed", "3"]) == 0
    assert capsys.readouterr().out == "walks: 1, steps: 400, first seed: 3: no violation\n"


def test_a_broken_promise_is_exit_status_1(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """And so is a planted bug that is not found."""
    design = next(it for it in CONFIGURATIONS if it.title == QUICK)
    bug = next(it for it in BUGS if it.title == TRACE)
    broken = Configuration("broken", "small", bug.make)
    monkeypatch.setattr(command, "CONFIGURATIONS", (broken,))
    assert command.main([]) == 1
    assert "too few copies" in capsys.readouterr().out
    monkeypatch.setattr(command, "BUGS", (PlantedBug("R1", "no bug", design.make),))
    assert command.main(["--planted"]) == 1
    assert "0 of 1 found" in capsys.readouterr().out
