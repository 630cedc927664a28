"""The mutants of one module: made by Cosmic Ray, each judged once, all kept in a file.

Owns: which mutants there are, and what became of each. A session is a database of Cosmic Ray's. Its
name has a hash of the module and of the tests that judge it: where one of them changes, what
survived is judged anew, and what was killed stays killed unless the module itself changed.
"""

import difflib
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Final

from cosmic_ray.commands import init
from cosmic_ray.exceptions import CosmicRayTestingException
from cosmic_ray.mutating import mutate_code
from cosmic_ray.plugins import get_operator
from cosmic_ray.util import read_python_source
from cosmic_ray.work_db import WorkDB, use_db
from cosmic_ray.work_item import (
    MutationSpec,
    TestOutcome,
    WorkerOutcome,
    WorkItem,
    WorkResult,
)

from mutation.bench import SURVIVED, Answer, Request
from mutation.equivalent import is_equivalent
from mutation.left_out import left_out_of
from mutation.mutant import Fate, Mutant
from mutation.plan import hash_of

Judge = Callable[[Iterable[Request]], Iterable[Answer]]
EXCEPTION: Final = "core/ExceptionReplacer"


class ModuleSession:
    """Of one module, in the copy of a checkout. Relative paths are the copy's: the process's
    working directory has to be there."""

    def __init__(self, folder: Path, module: str, tests: list[str]) -> None:
        self.module = module
        source = hash_of(Path(module))
        judges = hash_of(*map(Path, tests))
        stem = f"{module.replace('/', '-')}-{source}"
        self._path = folder / f"{stem}-{judges}.sqlite"
        self._earlier = [it for it in folder.glob(f"{stem}-*.sqlite") if it != self._path]

    def open(self) -> None:
        """Make the mutants, unless they are there. What earlier tests of the same module killed is
        taken over."""
        if not self._path.exists():
            self._make()
        self._leave_out()

    def _make(self) -> None:
        with use_db(self._path) as work:
            init([Path(self.module)], work, {})
            dead = self._killed_before()
            for item in work.work_items:
                spec = item.mutations[0]
                place = (spec.operator_name, spec.occurrence)
                if place in dead:
                    work.set_result(item.job_id, dead[place])
        for path in self._earlier:
            path.unlink()

    def _leave_out(self) -> None:
        """Also what was judged before it was to be left out."""
        left_out = left_out_of(read_python_source(Path(self.module)))
        with use_db(self._path) as work:
            for item in work.work_items:
                spec = item.mutations[0]
                if left_out.has(spec.operator_name, spec.start_pos):
                    work.set_result(item.job_id, WorkResult(WorkerOutcome.SKIPPED))

    def _killed_before(self) -> dict[tuple[str, int], WorkResult]:
        dead = {}
        for path in self._earlier:
            with use_db(path) as work:
                for item, result in work.completed_work_items:
                    if result.worker_outcome == WorkerOutcome.NORMAL and result.is_killed:
                        spec = item.mutations[0]
                        dead[spec.operator_name, spec.occurrence] = result
        return dead

    @property
    def left_count(self) -> int:
        with use_db(self._path) as work:
            return int(work.num_work_items - work.num_results)

    def run(self, judge: Judge, until: float, count_max: int, watch: Callable[[str], None]) -> int:
        """Have mutants judged until an instant of the monotonic clock, so many at most. → how
        many. Those that are known to be equivalent survive unseen."""
        done_count = 0
        with use_db(self._path, WorkDB.Mode.open) as work:
            pending = work.pending_work_items[:count_max]
            source = read_python_source(Path(self.module))
            mutants: dict[int, str] = {}
            requests = self._requests(pending, source, until, mutants)
            for answer in _without_equivalents(judge, requests, pending, source):
                item = pending[answer.number]
                result = _result_of(answer, source, mutants.pop(answer.number))
                work.set_result(item.job_id, result)
                done_count += 1
                mutant = _mutant_of(item, result)
                if mutant.fate == "survived" and not is_equivalent(mutant):
                    watch(f"survived: {mutant}")
        return done_count

    def _requests(
        self, items: list[WorkItem], source: str, until: float, mutants: dict[int, str]
    ) -> Iterator[Request]:
        """As long as there is time."""
        for number, item in enumerate(items):
            if time.monotonic() >= until:
                return
            mutants[number] = _mutated(source, item.mutations[0])
            yield Request(number, self.module, mutants[number])

    def mutants(self) -> Iterator[Mutant]:
        """Those that were judged."""
        with use_db(self._path) as work:
            completed = work.completed_work_items
        for item, result in completed:
            if result.worker_outcome != WorkerOutcome.SKIPPED:
                yield _mutant_of(item, result)


def _without_equivalents(
    judge: Judge, requests: Iterable[Request], items: list[WorkItem], source: str
) -> Iterator[Answer]:
    """Nobody judges them: that would take all tests."""
    known: list[Answer] = []

    def others() -> Iterator[Request]:
        for request in requests:
            answer = Answer(request.number, SURVIVED, "it is known to be equivalent")
            result = _result_of(answer, source, request.source)
            if is_equivalent(_mutant_of(items[request.number], result)):
                known.append(answer)
            else:
                yield request

    yield from judge(others())
    yield from known


def _mutated(source: str, spec: MutationSpec) -> str:
    """Return the text of a mutant. Cosmic Ray itself raises AttributeError at an exception with a
    dotted name that stands beside others."""
    if spec.operator_name != EXCEPTION:
        operator = get_operator(spec.operator_name)(**spec.operator_args)
        return str(mutate_code(source, operator, spec.occurrence))
    lines = source.splitlines(keepends=True)
    (row, first), (end_row, end) = spec.start_pos, spec.end_pos
    after = lines[end_row - 1][end:]
    lines[row - 1 : end_row] = [lines[row - 1][:first] + CosmicRayTestingException.__name__ + after]
    return "".join(lines)


def _result_of(answer: Answer, source: str, mutant: str) -> WorkResult:
    before, after = (text.splitlines(keepends=True) for text in (source, mutant))
    diff = "".join(difflib.unified_diff(before, after, n=0))
    fate = TestOutcome.SURVIVED if answer.fate == SURVIVED else TestOutcome.KILLED
    return WorkResult(WorkerOutcome.NORMAL, answer.why, fate, diff)


def _mutant_of(item: WorkItem, result: WorkResult) -> Mutant:
    spec = item.mutations[0]
    fate: Fate = "survived" if result.test_outcome == TestOutcome.SURVIVED else "killed"
    changed = _changed_lines(result.diff or "")
    return Mutant(spec.module_path.as_posix(), spec.start_pos[0], spec.operator_name, changed, fate)


def _changed_lines(diff: str) -> tuple[str, ...]:
    lines = [line for line in diff.splitlines() if line[:1] in "+-" and line.strip()]
    return tuple(f"{it[0]} {it[1:].strip()}" for it in lines if it[:3] not in ("---", "+++"))
