"""Phases: tests that share the machine side by side, and beside them those of Spark; then the
others one by one, and behind these, on what they leave of the cores, those that have processes for
all cores.

Owns: which phase gets which options of pytest, how its process runs, and what it came to. Which
tests belong to a phase is said by markers (see `levels`). A phase without tests has not failed,
unless all are. Must not import: any product.
"""

import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import pytest

from suite.levels import Level, may_have, phases_of
from suite.reports import BrokenReport, Case, read_cases

WORKERS_PER_CORE: Final = 2
"""Most of a test's time goes by while it waits: for servers to start, to stop, to time out."""
WORKERS_MAX: Final = 8
"""Each has a cluster of its own now and then, of five processes."""

# Tests that share a cluster, or a module, stay together in one worker (see `groups`). A worker
# that crashes ends the run: xdist 3.8 gives the next one what is done already, and waits forever
# (pytest-dev/pytest-xdist#1378).
PHASES: Final = {
    "shared": [
        "-n",
        str(min(len(os.sched_getaffinity(0)) * WORKERS_PER_CORE, WORKERS_MAX)),
        "--dist",
        "loadscope",
        "--no-loadscope-reorder",
        "--max-worker-restart=0",
    ],
    "spark": ["-n", "0"],
    "alone": ["-n", "0"],
    "pooled": ["-n", "0", "-o", "timeout=3600"],
}
TOGETHER: Final = (("shared", "spark"), ("alone", "pooled"))
"""Phases that run at once; what the first says is shown as it comes. (One process has all tests of
Spark: they share a session, of three Java processes, and no other test finds what these leave.)"""
BEHIND: Final = ("pooled",)
"""Those that get only what the first leaves of the cores, until it is over."""
LOWEST_PRIORITY: Final = 19
NO_BYTECODE: Final = "PYTHONDONTWRITEBYTECODE"
"""Not heeded: tests start hundreds of servers, each of which would compile all that it imports, and
would take three times as long to start."""
NOT_INHERITED: Final = (NO_BYTECODE, "MAKEFLAGS", "MFLAGS", "MAKELEVEL")
"""Neither are the options of a `make` that runs this."""
OK: Final = int(pytest.ExitCode.OK)
FAILED: Final = int(pytest.ExitCode.TESTS_FAILED)
NO_TESTS: Final = int(pytest.ExitCode.NO_TESTS_COLLECTED)
BROKEN: Final = int(pytest.ExitCode.INTERNAL_ERROR)
COMPLETE: Final = (OK, FAILED, NO_TESTS)
"""After anything else there is no sense in another phase: it was interrupted, or misunderstood."""


@dataclass(slots=True)
class Phase:
    """What one came to."""

    name: str
    status: int
    seconds: float
    cases: list[Case] = field(default_factory=list)

    @property
    def failures(self) -> list[Case]:
        return [it for it in self.cases if it.error is not None]

    @property
    def line(self) -> str:
        counts = f"{len(self.cases)} tests, {len(self.failures)} failed"
        return f"{self.name}: {counts}, {shown_s(self.seconds)} (exit status {self.status})"


def shown_s(seconds: float) -> str:
    """Seconds, for people."""
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s"


def run_phases(level: Level, words: Sequence[str], folder: Path) -> list[Phase]:
    """All phases of a level that a file may have tests for, whatever the first ones come to.
    `words` are for pytest and go to each."""
    phases: list[Phase] = []
    texts = [it.read_text("utf-8") for it in Path("tests").rglob("test_*.py")]
    possible = [it for it in phases_of(level) if any(may_have(text, it) for text in texts)]
    for together in TOGETHER:
        names = [it for it in together if it in possible]
        phases += _run_together(names, ["--level", level, *words], folder) if names else []
        if any(it.status not in COMPLETE for it in phases):
            break
    return phases


def _run_together(names: Sequence[str], words: Sequence[str], folder: Path) -> list[Phase]:
    """The first of these phases, whose output is shown as it comes, and the others beside it or
    behind it, with their output in a file until they are over."""
    began = time.monotonic()
    phases = []
    with ExitStack() as stack:
        running = [
            stack.enter_context(
                Running(
                    _command(it, words, folder),
                    _file(it, names, folder),
                    priority=LOWEST_PRIORITY if it in BEHIND else 0,
                )
            )
            for it in reversed(names)
        ]
        for name, process in zip(names, reversed(running), strict=True):
            print(f"\nphase: {name}", flush=True)
            if name in BEHIND:
                process.hurry()
            status = process.end()
            phases.append(come_to(name, status, time.monotonic() - began, folder))
    return phases


def come_to(name: str, status: int, seconds: float, folder: Path) -> Phase:
    """What a phase came to. Without a whole report nobody knows, whatever its status says."""
    try:
        return Phase(name, status, seconds, read_cases(folder / f"{name}.xml", name))
    except BrokenReport as error:
        print(f"\n{error}", flush=True)
        return Phase(name, BROKEN if status in COMPLETE else status, seconds)


def _command(name: str, words: Sequence[str], folder: Path) -> list[str]:
    own = ["--phase", name, *PHASES[name], "-o", "junit_family=xunit1"]
    return pytest_command(*own, f"--junitxml={folder / name}.xml", *words)


def pytest_command(*words: str) -> list[str]:
    """Of a process of its own."""
    return [sys.executable, "-m", "pytest", *words]


def _file(name: str, names: Sequence[str], folder: Path) -> Path | None:
    return None if name == names[0] else folder / f"{name}.txt"


class Running:
    """A program that runs: in front, or beside another one if its output goes into a file. Then
    it runs behind the other one, unless it has its own `priority`, as `nice` counts them."""

    def __init__(
        self, command: Sequence[str], file: Path | None = None, *, priority: int = LOWEST_PRIORITY
    ) -> None:
        self._file = file
        self._began = time.monotonic()
        if file is None:
            self._process = subprocess.Popen(command, env=environment())
            return
        with file.open("wb") as output:
            self._process = subprocess.Popen(
                ["nice", "-n", str(priority), *command],
                env=environment(),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    def hurry(self) -> None:
        """Nothing is in front of it any more. Where it may not be hurried, it takes longer beside
        other programs."""
        priority = os.getpriority(os.PRIO_PROCESS, 0)
        for task in _tasks_of(self.pid):
            with suppress(OSError):  # the system does not let everybody, and what runs may end
                os.setpriority(os.PRIO_PROCESS, task, priority)

    def __enter__(self) -> "Running":
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def end(self) -> int:
        """Wait for it, show what it has said, → its exit status. An interruption from the keyboard
        goes to all processes: each ends by itself, in order, with all the servers that its tests
        have started."""
        while True:
            with suppress(KeyboardInterrupt):
                status = self._process.wait()
                break
        if self._file is not None and self._file.exists():
            print(self._file.read_text("utf-8", "replace"), end="", flush=True)
            self._file.unlink()
        return status


def _tasks_of(pid: int) -> list[int]:
    """The threads of a process and of all that it has started."""
    tasks = []
    with suppress(OSError):  # it has ended
        for folder in Path(f"/proc/{pid}/task").iterdir():
            tasks.append(int(folder.name))
            for child in (folder / "children").read_text().split():
                tasks += _tasks_of(int(child))
    return tasks


def environment() -> Mapping[str, str]:
    """What the programs of a run inherit."""
    return {it: os.environ[it] for it in os.environ if it not in NOT_INHERITED}


def verdict(statuses: Sequence[int]) -> int:
    """Of all phases: nothing to do is a failure only if there was nothing in any."""
    failed = [it for it in statuses if it not in (OK, NO_TESTS)]
    if failed:
        return failed[0]
    return OK if OK in statuses else NO_TESTS
