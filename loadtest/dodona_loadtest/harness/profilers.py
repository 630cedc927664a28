"""Run py-spy beside processes: one profiler for each, all together.

Owns: how py-spy is found and started, and the watch over all Python processes that descend from
this one. Those that start meanwhile are included. It ends no process but its own profilers. Their
output names files as their packages do.
"""

import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from dodona_loadtest.harness.errors import ContenderFailed, ContenderMissing
from dodona_loadtest.harness.servers import command_of, families
from dodona_loadtest.harness.stacks import process_name, without_machine

Form = Literal["raw", "flamegraph"]

POLL_S: Final = 0.1
WRITE_S_MAX: Final = 60.0
"""Seconds in which a profiler writes down what it saw."""
NOTHING: Final = b"No stack counts found"
"""What py-spy says instead of a flame graph of a process that did nothing."""
SLACK_S: Final = 1.0
"""Seconds in which py-spy attaches to a process."""


@dataclass(frozen=True, slots=True)
class Manner:
    """How to sample."""

    rate: int
    """Samples a second."""
    is_native: bool = False


class Profiler:
    """One py-spy, which samples one process."""

    def __init__(
        self, pid: int, manner: Manner, form: Form, folder: Path, seconds: float | None = None
    ) -> None:
        """Start to sample. It ends after `seconds`, if given, or at `stop`, or with the process."""
        self._path = folder / f"{pid}.{form}"
        command = [_py_spy(), "record", "--nonblocking", "--function", "--format", form]
        command += ["--rate", str(manner.rate), "--pid", str(pid), "--output", str(self._path)]
        command += ["--native"] if manner.is_native else []
        command += [] if seconds is None else ["--duration", f"{seconds:.0f}"]
        self._seconds = seconds or 0.0
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)

    def stop(self) -> None:
        """Make py-spy write down what it saw."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGINT)

    def read(self) -> str:
        """Return what py-spy saw; "" if the process did nothing. Raises ContenderFailed with
        py-spy's text."""
        try:
            said, _ = self._process.communicate(timeout=self._seconds + WRITE_S_MAX)
        except subprocess.TimeoutExpired:
            self._process.kill()
            said, _ = self._process.communicate()
        if NOTHING in said:
            return ""
        if self._process.returncode or not self._path.exists():
            raise ContenderFailed(f"py-spy: {said.decode(errors='replace')[-500:]}")
        return without_machine(self._path.read_text("utf-8"))


class Watch:
    """Samples this process and all its Python descendants, except `strangers`. Use as a context
    manager; `seen` and `duration_s` are there afterwards."""

    def __init__(
        self, manner: Manner, form: Form, folder: Path, strangers: Iterable[int] = ()
    ) -> None:
        self._manner = manner
        self._form: Form = form
        self._folder = folder
        self._profilers: dict[int, tuple[str, Profiler]] = {}
        self._strangers = set(strangers)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._keep_looking, name="watch")
        self.seen: dict[str, str] = {}
        """By the process's name, what its profiler wrote. A second one of the same name has a 2
        behind."""
        self.duration_s = 0.0

    def __enter__(self) -> "Watch":
        _py_spy()
        self._look_around()
        time.sleep(SLACK_S)
        self._thread.start()
        self._began_s = time.monotonic()
        return self

    def __exit__(self, *reasons: object) -> None:
        self.duration_s = time.monotonic() - self._began_s
        self._stop.set()
        self._thread.join()
        for _, profiler in self._profilers.values():
            profiler.stop()
        counts: dict[str, int] = {}
        for pid in sorted(self._profilers):
            name, profiler = self._profilers[pid]
            try:
                seen = profiler.read()
            except ContenderFailed:
                continue  # its process ended before py-spy saw anything
            count = counts[name] = counts.get(name, 0) + 1
            self.seen[name if count == 1 else f"{name} {count}"] = seen

    def _keep_looking(self) -> None:
        while not self._stop.wait(POLL_S):
            self._look_around()

    def _look_around(self) -> None:
        for pid in families([os.getpid()]):
            if pid in self._profilers or pid in self._strangers:
                continue
            words = command_of(pid)
            if "--fork" in words:  # it forks servers, or is about to become one
                continue
            is_own = pid == os.getpid()  # even if its name says otherwise
            if not is_own and not _is_python(words):
                if words[0]:  # else its program is about to start
                    self._strangers.add(pid)
                continue
            name = "story" if is_own else process_name(words)
            profiler = Profiler(pid, self._manner, self._form, self._folder)
            self._profilers[pid] = (name, profiler)


def _is_python(words: list[str]) -> bool:
    """Return whether this is the command of an interpreter that runs code of ours."""
    return "python" in Path(words[0]).name and "resource_tracker" not in " ".join(words)


def descendants() -> list[int]:
    """Return the descendants of this process, as they are now."""
    return families([os.getpid()])[1:]


def _py_spy() -> str:
    beside = Path(sys.executable).parent / "py-spy"
    found = str(beside) if beside.exists() else shutil.which("py-spy")
    if found is None:
        raise ContenderMissing("no py-spy: it comes with dodona-loadtest")
    return found
