"""`make test` in small: all phases run, and the end of the output says what failed in either."""

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from xml.etree.ElementTree import Element

import pytest

import suite
from suite import __main__ as command
from suite import again, levels, phases
from suite.phases import (
    BROKEN,
    FAILED,
    LOWEST_PRIORITY,
    OK,
    Phase,
    Running,
    come_to,
    run_phases,
    verdict,
)
from suite.reports import Case
from suite.waiting import wait_until

pytestmark = [pytest.mark.integration, pytest.mark.part("a run of tests in phases")]

TESTS = Path(suite.__file__).parent.parent
MARKERS = (*levels.PHASES, "integration", "slow", "part")
ONE_WORKER = ("-n", "1")
"""Of a project with one phase. Each takes longer to start than the tests of a project run."""
TWO_WORKERS = ("-n", "2")
AS_ALWAYS: tuple[str, ...] = ()
SETTINGS = f"""
[tool.pytest.ini_options]
addopts = ["--import-mode=importlib", "--strict-markers"]
markers = {list(MARKERS)}
"""
SOME = """
import os
import sys
import pytest

pytestmark = pytest.mark.{mark}

class TestSome:
    def test_{mark}_passes(self):
        assert ("PYTEST_XDIST_WORKER" in os.environ) is {has_company}
        assert not sys.dont_write_bytecode

@pytest.mark.parametrize("it", ["a.b"])
def test_{mark}_fails(it):
    assert it == ""
"""

SHARED = """
import os
import pathlib
import pytest

@pytest.fixture(scope="session")
def cluster():
    yield os.environ["PYTEST_XDIST_WORKER"]
    pathlib.Path("cluster-ended").touch()

@pytest.mark.parametrize("it", range(3))
def test_shared(cluster, it):
    with pathlib.Path("shared-in").open("a") as file:
        print(cluster, file=file)
    assert it < 2
"""

LATER = """
import pathlib

def test_later():
    assert pathlib.Path("cluster-ended").exists()
"""

CRASH = """
import os
import signal

def test_crash():
    os.kill(os.getpid(), signal.SIGSEGV)

def test_passes_afterwards():
    pass
"""

STOP = """
import os
import signal
import time

def test_stop():
    try:
        os.killpg(0, signal.SIGINT)
        time.sleep(60)
    finally:
        time.sleep(0.5)
        open("ended", "w").close()
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """It has only tests that share the machine, and so one phase."""
    folder = tmp_path / "tests"
    folder.mkdir()
    (tmp_path / "pyproject.toml").write_text(SETTINGS)
    shutil.copy(TESTS / "conftest.py", folder)
    add_module(tmp_path, "usefixtures")
    fake_java(tmp_path)
    return tmp_path


@pytest.fixture
def whole_project(project: Path) -> Path:
    """It has tests of all phases."""
    for mark in levels.PHASES:
        add_module(project, mark)
    return project


def add_module(project: Path, mark: str) -> None:
    """It has one test that passes and one that fails."""
    text = SOME.format(mark=mark, has_company=mark == "usefixtures")
    (project / "tests" / f"test_{mark}.py").write_text(text)


def fake_java(home: Path) -> Path:
    """A program that only says a version, so that what is shown here does not need Java."""
    program = home / "bin" / "java"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\necho 'openjdk version \"17.0.1\"' >&2\n")
    program.chmod(0o755)
    return program


def run_module(project: Path, module: str, *words: str) -> subprocess.CompletedProcess[str]:
    environment = {it: os.environ[it] for it in os.environ if not it.startswith("PYTEST_")}
    environment["PYTHONDONTWRITEBYTECODE"] = "1"
    environment["JAVA_HOME"] = str(project)
    environment["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"  # loading those takes longer than the tests
    return subprocess.run(
        (sys.executable, "-m", module, "-p", "no:cacheprovider", *words),
        cwd=project,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        start_new_session=True,
    )


def run(
    project: Path, *words: str, level: str = "all", workers: Sequence[str] = ONE_WORKER
) -> tuple[int, list[str]]:
    """→ the exit status, and the lines about phases and failures at the end."""
    status, lines = run_whole(project, *words, level=level, workers=workers)
    return status, lines[:-1]


def run_whole(
    project: Path, *words: str, level: str = "all", workers: Sequence[str] = ONE_WORKER
) -> tuple[int, list[str]]:
    """The same, with the very last line."""
    own = ("suite", "--level", level, "-p", "xdist", *workers)
    done = run_module(project, *own, *words)
    assert "phase: shared\n" in done.stdout, done.stdout + done.stderr
    lines = done.stdout.splitlines()
    first = [at for at, line in enumerate(lines) if line.startswith("shared: ")][-1]
    return done.returncode, lines[first:]


def test_all_phases_run_and_the_end_of_the_output_lists_all_failures(whole_project: Path) -> None:
    status, lines = run(whole_project, workers=AS_ALWAYS)
    assert status == 1
    for name, line in zip(("shared", "spark", "alone", "pooled"), lines[:4], strict=True):
        assert line.startswith(f"{name}: 2 tests, 1 failed, ")
    assert lines[4:] == [
        "FAILED tests/test_usefixtures.py::test_usefixtures_fails[a.b] (shared)",
        "FAILED tests/test_spark.py::test_spark_fails[a.b] (spark)",
        "FAILED tests/test_alone.py::test_alone_fails[a.b] (alone)",
        "FAILED tests/test_pooled.py::test_pooled_fails[a.b] (pooled)",
    ]


def test_without_java_tests_of_spark_are_skipped_and_the_last_line_says_so(project: Path) -> None:
    (project / "bin" / "java").unlink()
    add_module(project, "spark")
    words = ("-k", "spark or usefixtures_passes")
    status, lines = run_whole(project, *words, workers=AS_ALWAYS)
    assert status == 0
    (skipped,) = [it for it in lines if it.startswith("SKIPPED")]
    assert skipped.startswith("SKIPPED 2 tests: Spark needs Java 17 or newer, and ")
    assert f"there is no {project}/bin/java (JAVA_HOME): install openjdk-17" in skipped
    assert lines[-1].startswith("3 tests, 2 of them SKIPPED, in ")


@pytest.mark.rest("a run in phases takes long, and others show how one ends")
def test_the_reason_why_a_whole_module_is_skipped_is_said(project: Path) -> None:
    text = "import pytest\npytest.importorskip('no_such', reason=\"Helm's wheel: for 'Linux'\")\n"
    (project / "tests" / "test_absent.py").write_text(text)
    _, lines = run_whole(project, "-k", "usefixtures_passes or absent")
    assert "SKIPPED 1 test: Helm's wheel: for 'Linux'" in lines


def test_a_name_that_differs_between_workers_is_refused_by_name(project: Path) -> None:
    text = "import pytest\n@pytest.mark.parametrize('it', [1], ids=[str(object())])\n"
    (project / "tests" / "test_named.py").write_text(f"{text}def test_named(it): ...\n")
    done = run_module(project, "pytest", "tests")
    assert done.returncode == pytest.ExitCode.USAGE_ERROR
    assert "differs from process to process" in done.stderr
    assert "test_named.py::test_named" in done.stderr


def test_what_failed_before_the_first_test_has_a_kind() -> None:
    assert Case("gw0", "shared", 0.0, "no", False, Element("testcase")).kind == "gw0"


def test_a_level_without_a_phase_does_not_start_it(
    whole_project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[str] = []

    def planted(names: list[str], *_: object) -> list[Phase]:
        started.extend(names)
        return []

    monkeypatch.setattr(phases, "_run_together", planted)
    monkeypatch.chdir(whole_project)
    run_phases("check", [], whole_project)
    assert started == ["shared"]
    (whole_project / "tests" / "test_spark.py").unlink()
    run_phases("test", [], whole_project)
    assert started == ["shared", "shared", "alone", "pooled"]


def priority_of(pid: int) -> int:
    return os.getpriority(os.PRIO_PROCESS, pid)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may raise a priority")
def test_hurry_gives_a_background_program_the_normal_priority(tmp_path: Path) -> None:
    end, child = tmp_path / "end", tmp_path / "child"
    loop = f"while [ ! -e {end} ]; do sleep 0.05; done"
    words = ["sh", "-c", f"({loop}) & echo $! > {child}; wait"]
    with Running(words, tmp_path / "output") as running:
        try:
            wait_until(lambda: child.exists() and child.read_text().endswith("\n"))
            pids = (running.pid, int(child.read_text()))
            assert {priority_of(it) for it in pids} == {LOWEST_PRIORITY}
            running.hurry()
            assert {priority_of(it) for it in pids} == {priority_of(0)}
        finally:
            end.touch()


def test_tests_that_share_a_cluster_run_in_one_worker(project: Path) -> None:
    folder = project / "tests" / "integration"
    folder.mkdir()
    for name in ("a", "b", "c"):
        (folder / f"test_shared_{name}.py").write_text(SHARED)
    _, lines = run(project, "-k", "shared or usefixtures", workers=TWO_WORKERS)
    assert len((project / "shared-in").read_text().split()) == 9
    assert len(set((project / "shared-in").read_text().split())) == 1
    assert "FAILED tests/integration/test_shared_b.py::test_shared[2] (shared)" in lines


def test_a_cluster_ends_after_the_last_test_of_its_group(project: Path) -> None:
    (project / "tests" / "integration").mkdir()
    (project / "tests" / "integration" / "test_shared.py").write_text(SHARED)
    (project / "tests" / "test_later.py").write_text(LATER)
    _, lines = run(project, "-k", "later or shared")
    assert lines[0].startswith("shared: 4 tests, 1 failed, ")


@pytest.mark.rest("a run in phases takes long, and others show how one ends")
def test_a_phase_without_tests_is_no_failure_unless_all_are(project: Path) -> None:
    add_module(project, "alone")
    status, lines = run(project, "-k", "alone_passes", workers=AS_ALWAYS)
    assert status == 0
    assert [line.partition(" failed")[0] for line in lines] == [
        "shared: 0 tests, 0",
        "alone: 1 tests, 0",
    ]
    assert verdict([5, 0]) == verdict([0, 5]) == verdict([0, 0]) == 0
    assert verdict([5, 5]) == 5
    assert verdict([1, 0]) == verdict([0, 1]) == verdict([1, 5]) == 1


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        (pytest.ExitCode.INTERRUPTED, ["shared", "spark"]),
        (FAILED, ["shared", "spark", "alone", "pooled"]),
    ],
)
def test_an_interrupted_phase_ends_the_run_and_a_failed_one_does_not(
    status: int,
    expected: list[str],
    whole_project: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[str] = []

    def planted(names: list[str], words: object, folder: object) -> list[Phase]:
        asked.extend(names)
        return [Phase(name, status, 61.0) for name in names]

    monkeypatch.setattr(phases, "_run_together", planted)
    monkeypatch.chdir(whole_project)
    assert command.main([]) == status
    assert asked == expected
    assert "shared: 0 tests, 0 failed, 1 min 1 s" in capsys.readouterr().out


def test_a_crashed_worker_is_reported_and_ends_its_phase(project: Path) -> None:
    """It has done a module before, which another worker would be given once more."""
    (project / "tests" / "test_crash.py").write_text(CRASH)
    status, lines = run(project, "-k", "crash or passes", workers=TWO_WORKERS)
    assert status == 1
    assert lines[0].startswith("shared: ")
    assert lines[0].endswith(f"(exit status {FAILED})"), "and so the other phases run"
    assert lines[1:] == ["FAILED tests/test_crash.py::test_crash (shared)"]


def test_an_interruption_from_the_keyboard_ends_all_in_order(project: Path) -> None:
    """All processes of the terminal get it."""
    (project / "tests" / "test_stop.py").write_text(STOP)
    add_module(project, "alone")
    status, lines = run(project, "-k", "stop", workers=("-n", "0"))
    assert status == pytest.ExitCode.INTERRUPTED
    assert (project / "ended").exists()
    assert [it.endswith(f"(exit status {status})") for it in lines] == [True], "no other phase"


def test_a_phase_that_ends_without_a_report_is_listed_with_its_exit_status() -> None:
    assert command.summary([Phase("alone", -9, 1.0)], [])[-1:] == [
        "alone: 0 tests, 0 failed, 0 min 1 s (exit status -9)"
    ]


def test_a_phase_with_a_truncated_report_has_failed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As on a full disk."""
    (tmp_path / "alone.xml").write_text("<testsuites><testsuite>")
    assert come_to("alone", OK, 1.0, tmp_path).status == BROKEN
    assert come_to("alone", -9, 1.0, tmp_path).status == -9
    said = capsys.readouterr().out
    assert "the report of the phase alone is cut off (no element found: " in said
    assert f" GiB are free on the disk of {tmp_path}\n" in said


def test_a_test_with_a_truncated_second_report_has_not_passed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(command: list[str]) -> Running:
        (tmp_path / "again.xml").write_text("")
        return Running([sys.executable, "-c", ""])

    monkeypatch.setattr(again, "Running", full)
    case = Case("tests/test_a.py::test_a", "shared", 1.0, "why", True, Element("testcase"))
    phase = Phase("shared", FAILED, 1.0, [case])
    again.run_again([phase], tmp_path)
    assert (phase.status, case.is_unsteady) == (FAILED, False)
