"""The rounds of a study: in each of them every contender runs the story, in turn.

All contenders run together, and each is idle except in its turn, as in `rounds`.
"""

from collections import defaultdict
from contextlib import ExitStack
from pathlib import Path

from dodona_loadtest.harness.errors import ContenderError
from dodona_loadtest.harness.rounds import Plan, Progress, drop, rest, rotated
from dodona_loadtest.harness.study import (
    Effort,
    Figures,
    Finding,
    Performance,
    Study,
    StudyResult,
)


def run_study(study: Study, plan: Plan, folder: Path, progress: Progress) -> StudyResult:
    """Start all contenders, run all rounds, stop everything. Contenders may leave the study."""
    result = StudyResult(study)
    figures: dict[str, list[Figures]] = defaultdict(list)
    with ExitStack() as stack:
        performances = _start_all(study, plan, folder, stack, result, progress)
        rounds = min(plan.rounds, study.rounds_max)
        for number in range(-1 if study.warms_up else 0, rounds):
            for name in rotated(list(performances), number):
                if name in result.dropped:
                    continue
                progress(f"{study.name}: round {number + 1} of {rounds}, {name}")
                rest()
                try:
                    found = performances[name].perform(number)
                except ContenderError as error:
                    drop(result, name, error)
                else:
                    if number >= 0:
                        figures[name].append(found)
                    else:
                        performances[name].failures.clear()
    result.findings = [it for it in _findings(study, figures) if it.contender not in result.dropped]
    result.failures = {name: dict(+it.failures) for name, it in performances.items()}
    return result


def _start_all(
    study: Study,
    plan: Plan,
    folder: Path,
    stack: ExitStack,
    result: StudyResult,
    progress: Progress,
) -> dict[str, Performance]:
    pinning = plan.pinning
    effort = Effort(plan.scale, plan.measure_s, pinning.client, pinning.embedded)
    performances = {}
    for index, performer in enumerate(study.performers):
        progress(f"{study.name}: starting {performer.name}")
        own_folder = folder / f"{study.name}-{index}"
        own_folder.mkdir(mode=0o755)
        try:
            performance = stack.enter_context(performer.start(own_folder, effort))
        except ContenderError as error:
            drop(result, performer.name, error)
            continue
        result.versions[performer.name] = performance.version
        performances[performer.name] = performance
    return performances


def _findings(study: Study, figures: dict[str, list[Figures]]) -> list[Finding]:
    known = {measure.name for measure in study.measures}
    strange = {name for rounds in figures.values() for of in rounds for name in of} - known
    assert not strange, f"{study.name} has no measures {sorted(strange)}"
    return [
        Finding(measure, performer.name, values)
        for measure in study.measures
        for performer in study.performers
        if (values := _values(measure.name, figures[performer.name]))
    ]


def _values(measure: str, rounds: list[Figures]) -> tuple[float, ...]:
    return tuple(figures[measure] for figures in rounds if measure in figures)
