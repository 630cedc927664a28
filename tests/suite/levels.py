"""Levels: which tests run when. `check` while one writes, `test` for every change, `all` before a
release.

Owns: the meaning of the markers that decide it, and how many examples a property gets.

- A test that starts processes, measures, needs all cores, or computes for long (`slow`) is in
  `all`. It is in `test`, too, if it is marked `part`: it shows one part, or one way in.
- A test that is marked `rest` is in `all` only, even if it, or its module, is marked `part`.
- All others are in `test`; those of them that lie in `tests/unit` are in `check`.

These markers give a reason. Without a level, as with a bare `pytest`, everything runs.
"""

import re
from collections.abc import Collection, Iterable, Iterator
from itertools import islice
from typing import Any, Final, Literal, Protocol, TypeVar, get_args

import pytest

Value = TypeVar("Value")
Level = Literal["check", "test", "all"]
LEVELS: Final[tuple[Level, ...]] = get_args(Level)

COSTLY: Final = ("integration", "spark", "alone", "pooled", "slow")
"""Markers of tests that are in `all` only, unless they are marked `part`."""
REAL: Final = ("integration", "spark")
"""Markers of tests with real processes."""
PHASES: Final = ("pooled", "alone", "spark")
"""Markers of tests that have a phase of that name. All others share one."""
MODULE_MARKERS: Final = re.compile(r"^pytestmark = (?:\[.*?^\]|[^\n]*)", re.DOTALL | re.MULTILINE)
"""What a file says of all its tests."""
CHECK_FOLDERS: Final = ("tests/unit/", "tests/test_")
EXAMPLES_RATIO: Final = 5
"""`all` tries so many times as many examples as the others."""
EXAMPLES_MIN: Final = 10

_chosen: Level = "all"


class Marked(Protocol):
    """Of a test: its name, and its markers."""

    @property
    def nodeid(self) -> str: ...

    def iter_markers(self) -> Iterator[pytest.Mark]: ...


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


def some(cases: Iterable[Value], *, one_in: int) -> Iterator[Value]:
    """Of the many cases that one test tries: `all` tries all, the others one in so many."""
    return islice(cases, 0, None, 1 if _chosen == "all" else one_in)


def sample(values: Iterable[Any], *, one_in: int, why: str) -> list[Any]:
    """Of the parameters of a test that is in `all` only: one in so many is in `test`, too."""
    return [
        pytest.param(value, marks=pytest.mark.part(why)) if at % one_in == 0 else value
        for at, value in enumerate(values)
    ]


def has(item: Marked, names: Collection[str]) -> bool:
    return any(it.name in names for it in item.iter_markers())


def phases_of(level: Level) -> tuple[str, ...]:
    """Those that can have tests of a level: `check` has none that need the machine alone."""
    return ("shared",) if level == "check" else ("shared", *PHASES)


def phase_of(item: Marked) -> str:
    """In which phase a test runs."""
    return next((it.name for it in item.iter_markers() if it.name in PHASES), "shared")


def may_have(text: str, phase: str) -> bool:
    """Whether a file with this text may have tests of a phase. Those that need the machine in a way
    of their own are marked in the file itself."""
    return phase not in PHASES or f"mark.{phase}" in text


def may_be_in(text: str, level: Level) -> bool:
    """Whether a file with this text may have tests of a level. Those that a marker of the whole
    file leaves to `all` are made a part in the file itself."""
    if level == "all":
        return True
    found = MODULE_MARKERS.search(text)
    if found is None or not any(f"mark.{it}" in found[0] for it in COSTLY):
        return True
    return level == "test" and ("mark.part(" in text or "sample(" in text)


def is_in(item: Marked, level: Level) -> bool:
    """Whether a test is part of this level."""
    if level == "all":
        return True
    names = {it.name for it in item.iter_markers()}
    if "rest" in names:
        return False
    is_costly = not names.isdisjoint(COSTLY)
    if level == "test":
        return not is_costly or "part" in names
    return not is_costly and item.nodeid.startswith(CHECK_FOLDERS)
