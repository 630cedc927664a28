"""All tests, in three phases: those that share the machine side by side, then the others one by
one, and behind these, on what they leave of the cores, those that have processes for all cores.

Owns: which phase comes with which options of pytest, and the verdict of all. Which tests belong to
which phase is said by markers (see `conftest`). All phases run, whatever the first one comes to,
and all that failed is listed once more at the end. Words for pytest go to all phases: a phase that
they leave without tests has not failed, unless all are. Must not import: any product.
"""

import os
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final
from xml.etree import ElementTree

import pytest

WORKERS_PER_CORE: Final = 2
"""Most of a test's time goes by while it waits: for servers to start, to stop, to time out."""
WORKERS_MAX: Final = 8
"""Each has a cluster of its own now and then, of five processes."""

# Tests that share a cluster, or a module, stay together in one worker (see `conftest`). A worker
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
    "alone": ["-n", "0"],
    "pooled": ["-n", "0", "-o", "timeout=3600"],
}
BEHIND: Final = "pooled"
"""Runs beside the phase before it, at the lowest priority: no test there looks at a clock, and
Spark, or a test that waits, leaves cores to it. What it says is shown when it is over."""
LOWEST_PRIORITY: Final = 19
NO_BYTECODE: Final = "PYTHONDONTWRITEBYTECODE"
"""Not heeded: tests start hundreds of servers, each of which would compile all that it imports, and
would take three times as long to start."""
OK: Final = int(pytest.ExitCode.OK)
FAILED: Final = int(pytest.ExitCode.TESTS_FAILED)
NO_TESTS: Final = int(pytest.ExitCode.NO_TESTS_COLLECTED)
"""After anything else there is no sense in another phase: it was interrupted, or misunderstood."""


@dataclass(slots=True)
class Phase:
    """What one came to. `failures` are names of tests."""

    name: str
    status: int
    seconds: float
    test_count: int = 0
    failures: list[str] = field(default_factory=list)

    @property
    def line(self) -> str:
        minutes, seconds = divmod(round(self.seconds), 60)
        counts = f"{self.test_count} tests, {len(self.failures)} failed"
        return f"{self.name}: {counts}, {minutes} min {seconds} s (exit status {self.status})"


def main(words: Sequence[str]) -> int:
    """Returns the exit status: that of the first phase that failed."""
    phases: list[Phase] = []
    with TemporaryDirectory() as folder:
        for names in (["shared"], ["alone", BEHIND]):
            phases += run(names, words, Path(folder))
            if any(it.status not in (OK, FAILED, NO_TESTS) for it in phases):
                break
    print("\n".join(summary(phases)), flush=True)
    return verdict([phase.status for phase in phases])


def run(names: Sequence[str], words: Sequence[str], folder: Path) -> list[Phase]:
    """The first of these phases, whose output is shown as it comes, and the others behind it."""
    began = time.monotonic()
    with ExitStack() as stack:
        running = [stack.enter_context(started(name, words, folder)) for name in reversed(names)]
        running.reverse()
        phases = []
        for name, process in zip(names, running, strict=True):
            print(f"\nphase: {name}", flush=True)
            phases.append(Phase(name, end_of(process), time.monotonic() - began))
            print(said(name, folder), end="", flush=True)
            read_report(folder / f"{name}.xml", phases[-1])
    return phases


def started(name: str, words: Sequence[str], folder: Path) -> subprocess.Popen[bytes]:
    """One phase. What is behind another says what it has to say into a file."""
    environment = {it: os.environ[it] for it in os.environ if it != NO_BYTECODE}
    own = ["--phase", name, *PHASES[name], "-o", "junit_family=xunit1"]
    own.append(f"--junitxml={folder / name}.xml")
    command = [sys.executable, "-m", "pytest", *own, *words]
    if name != BEHIND:
        return subprocess.Popen(command, env=environment)
    command = ["nice", "-n", str(LOWEST_PRIORITY), *command]
    with (folder / f"{name}.txt").open("wb") as file:
        return subprocess.Popen(command, env=environment, stdout=file, stderr=subprocess.STDOUT)


def said(name: str, folder: Path) -> str:
    """What a phase said, unless it was shown as it came."""
    file = folder / f"{name}.txt"
    return file.read_text("utf-8", "replace") if file.exists() else ""


def end_of(running: subprocess.Popen[bytes]) -> int:
    """Its exit status. An interruption from the keyboard goes to both: it ends by itself, in order,
    with all the servers that its tests have started."""
    while True:
        with suppress(KeyboardInterrupt):
            return running.wait()


def read_report(report: Path, phase: Phase) -> None:
    """What pytest wrote of its tests, if it came to that."""
    if not report.exists():
        return
    for case in ElementTree.parse(report).iter("testcase"):
        phase.test_count += 1
        if case.find("failure") is not None or case.find("error") is not None:
            phase.failures.append(name_of(case))


def name_of(case: ElementTree.Element) -> str:
    """As one gives it to pytest: of a file, the classes in it and a function."""
    file = case.get("file", "")
    module = file.removesuffix(".py").replace("/", ".")
    classes = case.get("classname", "").removeprefix(module).strip(".")
    return "::".join(it for it in (file, *classes.split("."), case.get("name", "")) if it)


def summary(phases: Sequence[Phase]) -> list[str]:
    """For the end of a long output."""
    lines = ["", *(phase.line for phase in phases)]
    lines += [f"FAILED {name} ({phase.name})" for phase in phases for name in phase.failures]
    return lines


def verdict(statuses: Sequence[int]) -> int:
    """Of all phases: nothing to do is a failure only if there was nothing in any."""
    failed = [it for it in statuses if it not in (OK, NO_TESTS)]
    if failed:
        return failed[0]
    return OK if OK in statuses else NO_TESTS


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
