"""One mutant, what became of it, and the form of a known one. Must not import: any core."""

from dataclasses import dataclass
from typing import Literal, NamedTuple

Fate = Literal["killed", "survived"]


@dataclass(frozen=True, slots=True)
class Mutant:
    """One change. `diff` is what it removes and adds, without context."""

    module: str
    line: int
    operator: str
    diff: tuple[str, ...]
    fate: Fate


class Equivalent(NamedTuple):
    """`before` becomes `after`, both without their indentation."""

    module: str
    before: str
    after: str
    reason: str
