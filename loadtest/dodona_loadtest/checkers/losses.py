"""Check which answers from memory (`durability=async`) a crash took back.

Owns: the check HOLE. A crash may take back the last answers of a cell, of no more than so many
milliseconds. These are the answers that left while the oldest record not yet durable was no older.
Must not import: any core.
"""

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from dodona_loadtest.checkers.violation import Violation
from dodona_loadtest.histories.history import Crash, StampedWrite


class Answered(NamedTuple):
    """An acknowledged row, and whether it is still there in the end."""

    write: StampedWrite
    is_there: bool


def check_losses(
    answered: Iterable[Answered], crashes: Iterable[Crash], loss_us_max: int
) -> list[Violation]:
    crashes = sorted(crashes, key=lambda crash: crash.at_us)
    by_cell: dict[int | None, list[Answered]] = {}
    for each in answered:
        by_cell.setdefault(each.write.cell, []).append(each)
    violations = []
    for cell, found in by_cell.items():
        instants = [crash.at_us for crash in crashes if crash.cell == cell]
        violations += _check_cell(cell, found, instants, loss_us_max)
    return violations


def _check_cell(
    cell: int | None, answered: Sequence[Answered], crashes: Sequence[int], loss_us_max: int
) -> list[Violation]:
    violations = []
    lost_at: dict[int, list[StampedWrite]] = {}
    for write in (it.write for it in answered if not it.is_there and not it.write.is_durable):
        first = bisect_left(crashes, write.asked_us)
        if first == len(crashes):
            text = f"{write.name} is gone from cell {cell}, which did not crash since"
            violations.append(Violation("HOLE", text))
        elif crashes[first] >= _answered_us(write):  # else one of several crashes took the row
            lost_at.setdefault(crashes[first], []).append(write)
    for at_us, lost in lost_at.items():
        problem = _problem(lost, [it.write for it in answered if it.is_there], at_us, loss_us_max)
        if problem:
            text = f"the crash of cell {cell} at {at_us} µs {problem}"
            violations.append(Violation("HOLE", text))
    return violations


def _problem(
    lost: Sequence[StampedWrite], kept: Sequence[StampedWrite], crash_us: int, loss_us_max: int
) -> str | None:
    first = min(lost, key=_answered_us)
    newest_us = max(write.asked_us for write in lost)
    if newest_us - _answered_us(first) > loss_us_max:
        return f"took back the answers from {_answered_us(first)} to {newest_us} µs"
    for write in kept:
        if write.asked_us > _answered_us(first) and _answered_us(write) < crash_us:
            return f"took back {first.name}, but not {write.name}, which came later"
    return None


def _answered_us(write: StampedWrite) -> int:
    assert write.answered_us is not None, "only of those that were told"
    return write.answered_us
