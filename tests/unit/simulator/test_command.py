"""`python -m simulator`: one seed or many, and what it says of those that fail."""

import os
import re
import signal
import subprocess
import sys
from contextlib import suppress
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from dodona_loadtest.checkers.violation import Violation
from simulator.__main__ import main
from simulator.batch import run_batch
from simulator.runner import Work
from simulator.shrinking import Shrunk
from simulator.simulation import Result
from simulator.summary import Summary
from simulator.thinning import Thinning

BEGIN, END = "<!-- simulation: begin -->", "<!-- simulation: end -->"

THINNED = Thinning(keep=(2,), until_s=1)


@pytest.mark.slow("many seeds, in processes")
def test_many_seeds_without_a_violation(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--seeds", "3:6", "--seconds", "2", "--jobs", "2"]) == 0
    said = capsys.readouterr().out
    assert re.search(r"seeds +3 of 2 s under faults", said)
    assert said.count(" of 3 seeds, ") == 1, "a line now and then, and not for each seed"
    assert said.splitlines()[-1] == "no violation"


def test_a_terminal_shows_a_bar_and_no_such_lines() -> None:
    console = Console(file=StringIO(), force_terminal=True, width=100)
    assert run_batch(range(3, 5), Work(1), 1, console, None, "") == 0
    assert isinstance(console.file, StringIO)
    said = console.file.getvalue()
    assert "2/2" in said
    assert " of 2 seeds, " not in said


def test_the_summary_of_many_seeds_goes_into_a_document(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"before\n{BEGIN}{END}\n", "utf-8")
    words = ["--seeds", "3:4", "--seconds", "1", "--markdown", str(page)]
    assert main(words) == 0
    assert f"`python -m simulator {' '.join(words)}`" in page.read_text("utf-8")
    assert str(page) in capsys.readouterr().out


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Seed 4 fails; workers are processes of their own, so it is planted behind them."""
    failed = Result(4, "bank", 2, [Violation("EXT", "read [1]")], "digest")
    shrunk = Shrunk(
        Result(4, "bank", 2, failed.violations, "digest", thinning=THINNED),
        ["at 0.500 s: crash cell-1 for 0.8 s"],
        run_count=12,
        is_minimal=True,
    )
    add = Summary.add

    def add_failing(summary: Summary, result: Result, *arguments: object) -> None:
        if result.seed == 4:
            result.violations.extend(failed.violations)
        add(summary, result, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(Summary, "add", add_failing)
    monkeypatch.setattr("simulator.batch.shrink_seed", lambda _: shrunk)
    monkeypatch.setattr("simulator.__main__.shrink_seed", lambda _: shrunk)


@pytest.mark.slow("many seeds")
@pytest.mark.usefixtures("failing")
def test_a_seed_that_fails_is_shrunk_and_both_commands_are_printed(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["--seeds", "3:6", "--seconds", "2", "--workload", "bank"]) == 1
    lines = capsys.readouterr().out.splitlines()
    replay = "python -m simulator 4 --workload bank --seconds 2"
    assert f"replay: {replay}" in lines
    assert f"shrinking {replay}" in lines
    how = "shrunk in 12 runs (nothing more can be left out)"
    assert lines[-3:] == [
        f"{how}: {replay} {THINNED.arguments}",
        "  at 0.500 s: crash cell-1 for 0.8 s",
        "EXT: read [1]",
    ]


def test_one_seed_is_run_with_less_going_wrong(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["3", "--seconds", "4", "--keep", "none", "--until", "1", "--sessions", "2"]
    assert main([*words, "--without", "moves_rate"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert not any("crash" in line.split("faults: ")[-1] for line in lines if "faults: " in line)
    assert lines[-1] == "no violation"


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        ("", "either one SEED or --seeds"),
        ("3 --seeds 1:2", "either one SEED or --seeds"),
        ("3 --seconds 0", "--seconds must be positive"),
        ("3 --seconds 5 --until 6", "--until must not be above"),
        ("3 --sessions 0", "--sessions must be positive"),
        ("3 --keep 100000", "this run has faults 0 to"),
        ("3 --keep x", "invalid parse_keep value"),
        ("3 --without colour", "could be calmed is called colour"),
        ("--seeds 5:5", "END must be above FIRST"),
        ("--seeds 5", "invalid _seeds value"),
        ("--seeds 1:2 --jobs 0", "--jobs must be positive"),
        ("--seeds 1:2 --keep 1", "are for one SEED"),
        ("--seeds 1:2 --shrink", "are for one SEED"),
        ("--seeds 1:2 --markdown README.md", "has no place for it"),
    ],
)
def test_nonsense_is_refused_before_anything_runs(
    words: str, complaint: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(Path(__file__).resolve().parents[3])
    with pytest.raises(SystemExit) as stop:
        main(words.split())
    assert stop.value.code == 2
    assert complaint in capsys.readouterr().err


def test_an_interrupted_run_reports_that_it_was_interrupted() -> None:
    """As from a keyboard: the command and all its workers get the signal."""
    paths = os.pathsep.join(path for path in sys.path if path)
    running = subprocess.Popen(
        [sys.executable, "-m", "simulator", "--seeds", "0:100000", "--seconds", "1"],
        env=os.environ | {"PYTHONPATH": paths},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    assert running.stdout is not None
    with running, running.stdout:
        try:
            assert "1 of 100000 seeds" in running.stdout.readline()
            os.killpg(running.pid, signal.SIGINT)
            said = running.stdout.read()
        finally:  # or else whatever else it says first would be waited out, with all its seeds
            with suppress(ProcessLookupError):
                os.killpg(running.pid, signal.SIGKILL)
    assert running.returncode == 130, said
    assert re.search(r"ended early +it was interrupted", said)
    assert "Traceback" not in said
