"""`python -m mutation.bench PART FORKS MEMORY`: judges mutants of one part of the product.

Imports the tests of the part once. Then each mutant is judged in a fork of its own: functions there
get the mutant's code, and the tests that reach them run until one fails; after them short runs of
the simulator that reach them. Requests and answers are lines of JSON (see `Request`, `Answer`). The
first answer, to nobody, has the checks that fail without a mutant. Owns: forks, their number and
their time. Must not import any core before the tests do.
"""

import json
import os
import select
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from types import CodeType
from typing import Final, NoReturn

import pytest

from mutation.judge import OPTIONS, holds
from mutation.plan import SEEDS, hash_of, judges_of_part, modules_of
from mutation.reach import Record, record, remember, remembered
from mutation.swapping import Place, caches_of, changed_functions, clear, swap

SECONDS_MIN: Final = 60
SLOWER: Final = 6
"""A mutant may take so many times what its checks take without one: else it counts as killed."""
TICK_S: Final = 1.0
"""How often late forks are looked for."""
KILLED, SURVIVED, NOT_SWAPPED = "killed", "survived", "not swapped"


@dataclass(frozen=True, slots=True)
class Request:
    """The whole text of a mutated module."""

    number: int
    module: str
    source: str


@dataclass(frozen=True, slots=True)
class Answer:
    """`number` is the request's. `fate` is NOT_SWAPPED where only a new process can tell."""

    number: int
    fate: str
    why: str


@dataclass(frozen=True, slots=True)
class Check:
    """A test, or a run of the simulator."""

    name: str
    source: str
    """A hash of the file that it is in: its record is good as long as that is the same."""
    run: Callable[[], bool]


@dataclass(frozen=True, slots=True)
class Child:
    """A fork that judges one mutant."""

    number: int
    process: int
    pipe: int
    until: float


class Bench:
    """A plugin of pytest, whose place it takes once the tests are collected."""

    def __init__(self, part: str, forks_max: int, memory: Path, answers: int) -> None:
        self._part = part
        self._forks_max = forks_max
        self._answers = os.fdopen(answers, "w")
        self._memory = memory
        self._has_failed = False
        self._checks: list[Check] = []
        self._records: list[Record] = []

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        self._checks = [*self._tests(session.items), *_runs(self._part)]
        known = self._remembered()
        self._record([it for it in self._checks if it not in known])
        known = self._remembered()
        failed = [it.name for it in self._checks if it not in known]
        self._records = [known[it] for it in self._checks if it in known]
        self._answer(Answer(-1, "baseline", "\n".join(failed)))
        if not failed:
            self._serve()
        return True

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._has_failed |= report.failed

    def _tests(self, items: Sequence[pytest.Item]) -> Iterator[Check]:
        for item in items:
            yield Check(item.nodeid, hash_of(item.path), partial(self._passes, item))

    def _passes(self, item: pytest.Item) -> bool:
        """With what it needs set up and torn down, fixtures of modules too."""
        self._has_failed = False
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=None)
        return not self._has_failed

    def _remembered(self) -> dict[Check, Record]:
        """What checks of today came to, of those that passed."""
        checks = {(it.name, it.source): it for it in self._checks}
        records = remembered(self._memory)
        found = {checks[place]: it for it in records if (place := it.place) in checks}
        return {check: it for check, it in found.items() if it.is_passed}

    def _record(self, checks: Sequence[Check]) -> None:
        """In forks, which leave this process as it was. Each takes its share, and writes down what
        it has at once."""
        files = {str(Path(it).resolve()) for it in modules_of(Path(), self._part)}
        caches = caches_of(files)
        forks = []
        for first in range(min(self._forks_max, len(checks))):
            pid = os.fork()
            if pid == 0:
                for it in checks[first :: self._forks_max]:
                    clear(caches)
                    remember(self._memory, record(it.name, it.source, it.run, files))
                os._exit(0)
            forks.append(pid)
        ends = [os.waitpid(it, 0)[1] for it in forks]
        if any(ends):
            raise SystemExit("the tests end their process without a mutant")

    def _answer(self, answer: Answer) -> None:
        self._answers.write(json.dumps(asdict(answer)) + "\n")
        self._answers.flush()

    def _serve(self) -> None:
        """Until nobody asks any more, and all are answered."""
        asked = os.fdopen(os.dup(0), "rb", buffering=0)
        children: list[Child] = []
        unread, is_over = b"", False
        while children or not is_over:
            watched = [it.pipe for it in children]
            if not is_over and len(children) < self._forks_max:
                watched.append(asked.fileno())
            ready, _, _ = select.select(watched, [], [], TICK_S)
            children = [it for it in children if not self._is_judged(it, it.pipe in ready)]
            if asked.fileno() in ready:
                chunk = asked.read(1 << 16)
                is_over = not chunk
                unread += chunk
            while b"\n" in unread and len(children) < self._forks_max:
                line, _, unread = unread.partition(b"\n")
                child = self._forked(Request(**json.loads(line)))
                children += [child] if child else []

    def _forked(self, request: Request) -> Child | None:
        """Nothing where the answer needs none."""
        file = str(Path(request.module).resolve())
        changed = _changed(Path(file), request.source)
        if changed is None:
            self._answer(Answer(request.number, NOT_SWAPPED, ""))
            return None
        if not changed:
            self._answer(Answer(request.number, SURVIVED, "it compiles to the same"))
            return None
        numbers = self._reaching(file, set(changed))
        seconds = sum(self._records[it].seconds for it in numbers)
        reader, writer = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.setpgid(0, 0)
            swap(file, changed)
            self._judge([self._checks[it] for it in numbers], writer)
        os.setpgid(pid, pid)  # both do: whoever comes first
        os.close(writer)
        until = time.monotonic() + max(SECONDS_MIN, SLOWER * seconds)
        return Child(request.number, pid, reader, until)

    def _reaching(self, file: str, places: set[Place]) -> list[int]:
        """Checks that reach one of them, quick ones first."""
        found = [
            number
            for number, it in enumerate(self._records)
            if not places.isdisjoint(it.reached.get(file, ()))
        ]
        return sorted(found, key=lambda it: self._records[it].seconds)

    def _judge(self, checks: Sequence[Check], pipe: int) -> NoReturn:
        why = b"its process ended"
        try:
            why = next((it.name.encode() for it in checks if not it.run()), b"")
        except BaseException as error:  # noqa: BLE001 - a mutant raises anything
            why = repr(error).encode()
        finally:
            os.write(pipe, why[:1000] or SURVIVED.encode())
            os._exit(0)

    def _is_judged(self, child: Child, is_ready: bool) -> bool:
        is_late = time.monotonic() > child.until
        if not is_ready and not is_late:
            return False
        why = "it took too long" if not is_ready else os.read(child.pipe, 4096).decode()
        os.close(child.pipe)
        os.killpg(child.process, signal.SIGKILL)
        os.waitpid(child.process, 0)
        fate = SURVIVED if why == SURVIVED else KILLED
        self._answer(Answer(child.number, fate, why or "its process ended"))
        return True


def _runs(part: str) -> Iterator[Check]:
    for seed in SEEDS[part]:
        yield Check(str(seed), "", partial(holds, seed))


def _changed(file: Path, source: str) -> dict[Place, CodeType] | None:
    """None also where the mutant is no program at all: a new process says why."""
    try:
        after = compile(source, str(file), "exec", dont_inherit=True)
    except SyntaxError:
        return None
    before = compile(file.read_text("utf-8"), str(file), "exec", dont_inherit=True)
    return changed_functions(before, after)


def main(arguments: Sequence[str]) -> int:
    """Answers go where the standard output went; what tests print goes to the standard error."""
    part, forks_max, memory = arguments
    answers = os.dup(1)
    os.dup2(2, 1)
    bench = Bench(part, int(forks_max), Path(memory), answers)
    options = [it for it in OPTIONS if it != "-x"]
    return int(
        pytest.main([*options, "--capture=no", *judges_of_part(Path(), part)], plugins=[bench])
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
