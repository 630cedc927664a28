"""Tests that fail beside others and pass by themselves: who is run again, and what is said."""

from pathlib import Path
from xml.etree import ElementTree

import pytest

from suite.levels import share
from unit.suite.test_phases import ONE_WORKER, project, run, run_module

__all__ = ["project"]

pytestmark = [pytest.mark.integration, pytest.mark.part("a run of tests that have failed")]

ONCE = """
import pathlib
import pytest

def fail_once(name):
    file = pathlib.Path(name)
    if not file.exists():
        file.touch()
        raise AssertionError("not ready\\nand more")

@pytest.mark.integration
{mark}
def test_real_unsteady():
    fail_once("real")

def test_computing_unsteady():
    {other}
"""
PART = '@pytest.mark.part("a door")'


@pytest.fixture
def unsteady(project: Path) -> Path:
    text = ONCE.format(mark=PART, other="pass")
    (project / "tests" / "test_once.py").write_text(text)
    return project


def test_a_real_test_that_passes_by_itself_is_listed_and_fails_nothing(unsteady: Path) -> None:
    status, lines = run(unsteady, "-k", "unsteady", level="test")
    assert status == 0
    assert lines[-1] == (
        "UNSTEADY tests/test_once.py::test_real_unsteady (shared): AssertionError: not ready"
    )
    report = ElementTree.parse(unsteady / "test-results" / "junit.xml")
    assert [it.get("failures") for it in report.iter("testsuite")] == ["0"]
    flaky = [it.get("message", "") for it in report.iter("flakyFailure")]
    assert [it.splitlines()[0] for it in flaky] == ["AssertionError: not ready"]


def test_an_unsteady_test_fails_the_level_all(unsteady: Path) -> None:
    status, lines = run(unsteady, "-k", "unsteady", level="all")
    assert status == 1
    assert lines[-1].startswith("UNSTEADY tests/test_once.py::test_real_unsteady (shared)")


def test_a_test_that_only_computes_is_never_run_again(project: Path) -> None:
    text = ONCE.format(mark="", other='fail_once("other")')
    (project / "tests" / "test_once.py").write_text(text)
    status, lines = run(project, "-k", "computing_unsteady", level="test")
    assert status == 1
    assert lines[-1] == "FAILED tests/test_once.py::test_computing_unsteady (shared)"


@pytest.mark.parametrize(
    "start",
    share(
        [
            "import subprocess; subprocess.run(['true'])",
            "import os; os.waitpid(os.fork() or os._exit(0), 0)",
            "import multiprocessing as it; it.get_context('fork').Process(target=id).start()",
        ],
        one_in=3,
    ),
)
def test_a_test_that_starts_a_process_counts_as_real_in_any_folder(
    project: Path, start: str
) -> None:
    text = ONCE.format(mark="", other=f'{start}; fail_once("other")')
    (project / "tests" / "test_once.py").write_text(text)
    status, lines = run(project, "-k", "computing_unsteady", level="test")
    assert status == 0
    assert lines[-1].startswith("UNSTEADY tests/test_once.py::test_computing_unsteady (shared)")


def test_a_real_test_that_fails_again_has_failed(project: Path) -> None:
    text = "import pytest\n\n@pytest.mark.integration\n@pytest.mark.part('it')\ndef test_real():\n"
    (project / "tests" / "test_real.py").write_text(text + "    assert False\n")
    status, lines = run(project, "-k", "test_real", level="test")
    assert status == 1
    assert lines[-1] == "FAILED tests/test_real.py::test_real (shared)"


def test_a_failed_command_beside_the_tests_fails_the_run(project: Path) -> None:
    status, lines = run(project, "-k", "usefixtures_passes", "--beside", "false", level="test")
    assert status == 1
    assert lines[-1] == "FAILED false"
    status, _ = run(project, "-k", "usefixtures_passes", "--beside", "true", level="test")
    assert status == 0


@pytest.mark.rest("many runs take long, and others show what one says")
def test_the_output_lists_the_slowest_tests_and_the_minutes_of_each_kind(project: Path) -> None:
    (project / "tests" / "unit").mkdir()
    (project / "tests" / "unit" / "test_some.py").write_text("def test_some():\n    pass\n")
    done = run_module(project, "suite", "-p", "xdist", *ONE_WORKER, "-k", "test_some")
    kind, slow = "time of the tests of each kind:\n", "slowest tests:\n"
    assert done.stdout.partition(kind)[2].splitlines()[0].endswith(" min       1 tests  unit")
    told = done.stdout.partition(slow)[2].splitlines()[0]
    assert told.endswith(" s  tests/unit/test_some.py::test_some")


@pytest.mark.rest("many runs take long, and others show what one says")
def test_steady_counts_the_failures_of_many_runs(unsteady: Path) -> None:
    words = ("--times", "2", "--busy", "1", "-k", "real_unsteady")
    done = run_module(unsteady, "suite.steady", *words)
    assert done.returncode == 1
    assert done.stdout.splitlines()[-2:] == [
        "1 of 2 failed: tests/test_once.py::test_real_unsteady: AssertionError: not ready",
        "1 tests failed at least once in 2 runs",
    ]
    assert run_module(unsteady, "suite.steady", *words).returncode == 0
