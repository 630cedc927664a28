"""Looks for a planted bug: seed after seed from 0 on, until one shows it.

Owns: what counts as caught. A bug counts only where the code without it is clean: by the same seed
and options, or the same test. Must not import: any chapter.
"""

import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from dodona._core.protocol.context import Acknowledgement
from negative.bug import CheckedBug, PlantedBug
from simulator.faults import Options
from simulator.simulation import Result, simulate


@dataclass(frozen=True, slots=True)
class Catch:
    """What caught it, after so many seeds, and what was said first."""

    seed_count: int
    by: str
    text: str


def hunt(bug: PlantedBug, acknowledgement: Acknowledgement | None = None) -> Catch | None:
    """None if no seed shows it. Each seed draws its acknowledgement, unless one is given."""
    for seed in range(bug.seeds_max):
        found = catch(bug, seed, acknowledgement)
        if found is not None:
            return found
    return None


def catch(
    bug: PlantedBug, seed: int, acknowledgement: Acknowledgement | None = None
) -> Catch | None:
    """One seed of `hunt`."""
    with _planted(bug):
        result = _simulate(bug, seed, acknowledgement)
    found = [it for it in result.violations if it.promise in bug.promises]
    if not found:
        return None
    clean = _simulate(bug, seed, acknowledgement)
    assert not clean.violations, f"without the bug, seed {seed}: {clean.violations[0]}"
    return Catch(seed + 1, found[0].promise, found[0].text)


def check(bug: CheckedBug) -> Catch | None:
    """None if its test passes. Raises what planting does, where there is nothing to plant it in."""
    with _planted(bug):
        failure = _failure_of(bug)
    if failure is None:
        return None
    _run(bug)
    return Catch(1, bug.caught_by, _first_line(failure))


def _failure_of(bug: CheckedBug) -> BaseException | None:
    try:
        _run(bug)
    except (Exception, pytest.fail.Exception) as failure:  # noqa: BLE001 - so a test fails
        return failure
    return None


def _first_line(failure: BaseException) -> str:
    """What it says, or else the line that fails."""
    text = str(failure).partition("\n")[0]
    return text or traceback.extract_tb(failure.__traceback__)[-1].line or ""


def _run(bug: CheckedBug) -> None:
    with TemporaryDirectory() as folder:
        bug.check(Path(folder))


@contextmanager
def _planted(bug: PlantedBug | CheckedBug) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        bug.plant(patch)
        yield


def _simulate(bug: PlantedBug, seed: int, acknowledgement: Acknowledgement | None) -> Result:
    def alter(options: Options) -> Options:
        altered = bug.where.alter(options)
        if acknowledgement is None:
            return altered
        return replace(altered, acknowledgement=acknowledgement)

    return simulate(seed, bug.where.seconds, bug.where.workload, alter=alter)
