"""One mutant, and what became of it. Must not import: any core."""

from dataclasses import dataclass
from typing import Literal

Fate = Literal["killed", "survived"]


@dataclass(frozen=True, slots=True)
class Mutant:
    """One change. `diff` is what it removes and adds, without context."""

    module: str
    line: int
    operator: str
    diff: tuple[str, ...]
    fate: Fate
