"""Levels: which tests run when. `check` while one writes, `test` for every change, `all` before a
release.

Owns: the meaning of the markers that decide it, and how many examples a property gets.

- A test that starts processes, measures, needs all cores, or computes for long (`slow`) is in
  `all`. It is in `test`, too, if it is marked `part`: it shows one part, or one way in.
- A test that is marked `rest` is in `all` only, even if it, or its module, is marked `part`.
- All others are in `test`; those of them that lie in `tests/unit` are in `check`.

These markers give a reason. Without a level, as with a bare `pytest`, everything runs.
"""

from collections.abc import Iterable
from typing import Any, Final, Literal, Protocol, get_args

import pytest

Level = Literal["check", "test", "all"]
LEVELS: Final[tuple[Level, ...]] = get_args(Level)

COSTLY: Final = ("integration", "spark", "alone", "pooled", "slow")
"""Markers of tests that are in `all` only, unless they are marked `part`."""
REAL: Final = ("integration", "spark")
"""Markers of tests with real processes."""
PHASES: Final = {"pooled": "pooled", "alone": "alone", "spark": "alone"}
"""Markers, and the phase of a test that has one. A Spark session is three Java processes with
workers of their own."""
CHECK_FOLDERS: Final = ("tests/unit/", "tests/test_")
EXAMPLES_RATIO: Final = 5
"""`all` tries so many times as many examples as the others."""
EXAMPLES_MIN: Final = 10

_chosen: Level = "all"


class Marked(Protocol):
    """Of a test: its name, and a look at its markers."""

    @property
    def nodeid(self) -> str: ...

    def get_closest_marker(self, name: str) -> object | None: ...


def choose(level: Level | None) -> None:
    """Before the first test is imported: how many examples `examples` gives."""
    global _chosen  # noqa: PLW0603 - one run, one level
    _chosen = level or "all"


def examples(count: int) -> int:
    """How many examples a property tries that tries `count` of them in `all`."""
    return count if _chosen == "all" else min(count, max(EXAMPLES_MIN, count // EXAMPLES_RATIO))


def share(values: Iterable[Any], *, one_in: int) -> list[Any]:
    """Of a test's parameters: `test` has one in so many, `all` has all."""
    why = pytest.mark.rest(f"one in {one_in} shows the kind")
    return [
        value if at % one_in == 0 else pytest.param(value, marks=why)
        for at, value in enumerate(values)
    ]


def sample(values: Iterable[Any], *, one_in: int, why: str) -> list[Any]:
    """Of the parameters of a test that is in `all` only: one in so many is in `test`, too."""
    return [
        pytest.param(value, marks=pytest.mark.part(why)) if at % one_in == 0 else value
        for at, value in enumerate(values)
    ]


def has(item: Marked, names: tuple[str, ...]) -> bool:
    return any(item.get_closest_marker(it) for it in names)


def phases_of(level: Level) -> tuple[str, ...]:
    """Those that can have tests of a level: `check` has none that need the machine alone."""
    return ("shared",) if level == "check" else ("shared", *dict.fromkeys(PHASES.values()))


def phase_of(item: Marked) -> str:
    """In which phase a test runs."""
    return next((PHASES[it] for it in PHASES if has(item, (it,))), "shared")


def may_have(text: str, phase: str) -> bool:
    """Whether a file with this text may have tests of a phase. Those that need the machine in a way
    of their own are marked in the file itself."""
    names = [name for name, its in PHASES.items() if its == phase]
    return not names or any(f"mark.{name}" in text for name in names)


def is_in(item: Marked, level: Level) -> bool:
    """Whether a test is part of this level."""
    if level == "all":
        return True
    if has(item, ("rest",)):
        return False
    is_costly = has(item, COSTLY)
    if level == "test":
        return not is_costly or has(item, ("part",))
    return not is_costly and item.nodeid.startswith(CHECK_FOLDERS)
