"""The report of a study: its figures, Dodona's in terms of each peer's, and its bounds."""

from collections.abc import Sequence
from itertools import groupby
from typing import Final

from dodona_loadtest.harness.durability import durability_note
from dodona_loadtest.harness.section import Section, ratio, spread
from dodona_loadtest.harness.study import Bound, Finding, StudyResult

COLUMNS: Final = ("measured", "system", "figure", "unit", "rounds", "Dodona's")
TEXT_COLUMNS: Final = frozenset({"measured", "system", "unit"})


def study_section(result: StudyResult) -> Section:
    """Return the study's part of the report."""
    study = result.study
    groups = [list(found) for _, found in groupby(result.findings, lambda it: it.measure.name)]
    cells = [[_cells(result, finding) for finding in group] for group in groups]
    return Section(study.title, study.fairness, COLUMNS, TEXT_COLUMNS, cells, _notes(result))


def _cells(result: StudyResult, finding: Finding) -> list[str]:
    dodona = result.find(result.study.performers[0].name, finding.measure.name)
    is_peer = dodona is not None and dodona is not finding
    return [
        finding.measure.name,
        finding.contender,
        number(finding.value),
        finding.measure.unit,
        _rounds(finding),
        ratio(dodona.value, finding.value) if dodona and is_peer else "",
    ]


def _rounds(finding: Finding) -> str:
    """Return how the figure comes from the rounds, and how far apart they were."""
    count = len(finding.values)
    if finding.measure.is_worst_told:
        return f"worst of {count}"
    if count == 1:
        return "only one"
    apart = spread(finding.values, finding.value)
    return f"mean of 2, {apart}" if count == 2 else apart


def number(value: float) -> str:
    """Return three digits that count, or all digits of a larger number."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def _notes(result: StudyResult) -> list[str]:
    """Return bounds, versions, contenders that left the study, and failed operations."""
    notes = [note for bound in result.study.bounds for note in _bound_notes(result, bound)]
    if result.versions:
        notes.append(durability_note((name, result.study.durability) for name in result.versions))
    notes += [f"{name}: {version}" for name, version in result.versions.items()]
    notes += [f"{name} was not measured: {why}" for name, why in result.dropped.items()]
    return notes + [
        f"{name}, {what}: {count:,} operations failed"
        for name, failures in result.failures.items()
        for what, count in failures.items()
    ]


def _bound_notes(result: StudyResult, bound: Bound) -> Sequence[str]:
    """Return nothing if one of the figures is missing."""
    ours = result.find(result.study.performers[0].name, bound.measure)
    if ours is None:
        return []
    value, unit = ours.value, f" {ours.measure.unit}"
    if bound.times is not None:
        theirs = result.find(*bound.times)
        if theirs is None or not theirs.value:
            return []
        value, unit = value / theirs.value, f"× {_of(bound, theirs)}"
    limits = []
    if bound.at_least is not None:
        limits.append((f"at least {bound.at_least:,.10g}", value >= bound.at_least))
    if bound.at_most is not None:
        limits.append((f"at most {bound.at_most:,.10g}", value <= bound.at_most))
    return [
        f"goal, {bound.measure}: {text}{unit}: {'met' if is_met else 'missed'} ({number(value)})"
        for text, is_met in limits
    ]


def _of(bound: Bound, theirs: Finding) -> str:
    """Return what the bound is a multiple of: the same measure of a peer, or another one."""
    is_same_measure = theirs.measure.name == bound.measure
    return theirs.contender if is_same_measure else f'"{theirs.measure.name}"'
