"""Who has mutants judged: by a bench where functions can be swapped, on the disk otherwise.

Owns: the bench's process, what is asked of it at a time, and the file that a mutant replaces for a
while. Works in the copy of the checkout. Must not import: any core.
"""

import json
import shlex
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Final

from cosmic_ray.testing import run_tests
from cosmic_ray.work_item import TestOutcome

from mutation.bench import KILLED, NOT_SWAPPED, SECONDS_MIN, SLOWER, SURVIVED, Answer, Request

END_S_MAX: Final = 60


class BaselineFailed(Exception):
    """The tests fail without a mutant: they judge nothing."""


class Bench:
    """The process that judges mutants of one part of the product."""

    def __init__(self, command: list[str], log: Path, width: int) -> None:
        self._width = width
        with log.open("wb") as said:
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=said, text=True
            )
        try:
            failed = self._read().why
        except BaseException:
            self.close()
            raise
        if failed:
            self.close()
            raise BaselineFailed(f"these fail without a mutant:\n{failed}\n({log} says more)")

    def judge(self, requests: Iterable[Request]) -> Iterator[Answer]:
        """As they are judged, so many at a time as it has forks for, and one that waits."""
        asked_count = 0
        for it in requests:
            assert self._process.stdin is not None
            self._process.stdin.write(json.dumps(asdict(it)) + "\n")
            self._process.stdin.flush()
            asked_count += 1
            if asked_count > self._width:
                yield self._read()
                asked_count -= 1
        for _ in range(asked_count):
            yield self._read()

    def _read(self) -> Answer:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise BaselineFailed("the bench ended: its log says why")
        return Answer(**json.loads(line))

    def close(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        try:
            self._process.wait(END_S_MAX)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()


class OnDisk:
    """Judges one mutant at a time in a new process: `command` has the tests."""

    def __init__(self, command: list[str]) -> None:
        self._command = shlex.join(command)
        self._seconds_max: float | None = None

    def judge(self, request: Request) -> Answer:
        """Raises BaselineFailed if the tests fail without one, which is found out once."""
        if self._seconds_max is None:
            self._seconds_max = self._baseline()
        with _replaced(Path(request.module), request.source):
            outcome, output = run_tests(self._command, self._seconds_max)
        fate = SURVIVED if outcome == TestOutcome.SURVIVED else KILLED
        return Answer(request.number, fate, output)

    def _baseline(self) -> float:
        """→ the seconds that a mutant may take."""
        began = time.monotonic()
        words = shlex.split(self._command)
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        if done.returncode:
            tail = "\n".join((done.stdout + done.stderr).splitlines()[-20:])
            raise BaselineFailed(f"{self._command} fails without a mutant:\n{tail}")
        return max(SECONDS_MIN, SLOWER * (time.monotonic() - began))


@contextmanager
def _replaced(file: Path, source: str) -> Iterator[None]:
    original = file.read_bytes()
    file.write_text(source, "utf-8")
    try:
        yield
    finally:
        file.write_bytes(original)


def command_of(module: str, tests: list[str]) -> list[str]:
    return [sys.executable, "-m", "mutation.judge", module, *tests]


class Runner:
    """Judges mutants of one module."""

    def __init__(self, bench: Bench, on_disk: OnDisk) -> None:
        self._bench = bench
        self._on_disk = on_disk

    def judge(self, requests: Iterable[Request]) -> Iterator[Answer]:
        """Those that the bench can't judge come last: meanwhile no fork may read the file."""
        asked: dict[int, Request] = {}
        for answer in self._bench.judge(_noted(requests, asked)):
            if answer.fate != NOT_SWAPPED:
                del asked[answer.number]
                yield answer
        for request in asked.values():
            yield self._on_disk.judge(request)


def _noted(requests: Iterable[Request], asked: dict[int, Request]) -> Iterator[Request]:
    for it in requests:
        asked[it.number] = it
        yield it
