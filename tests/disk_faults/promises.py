"""What a disk must hold of a story, by the marks of those who lived it.

Owns: the marks of a life, and what they promise. Must not import: the tracer, or disks.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from disk_faults.stores import Mark, Wrong


@dataclass(frozen=True, slots=True)
class Promises:
    """What a disk must hold of a story, and may hold: for each group in order the life that wrote
    it. Of these groups the first `must` are promised. No two lives write quite the same."""

    lives: tuple[int, ...]
    must: int

    @classmethod
    def of(cls, marks: Sequence[bytes]) -> "Promises":
        lives: list[int] = []
        must = 0
        for mark in marks:
            word, *numbers = mark.split()
            count = int(numbers[0])
            if word == b"found":  # what a process has read it relies on, and goes on from there
                if not must <= count <= len(lives):
                    raise Wrong(f"a process found {count} groups, not {must} to {len(lives)}")
                del lives[count:]
                must = count
            elif word == b"write":
                lives[count - 1 :] = [int(numbers[1])]
            else:
                assert word == b"durable", mark
                must = count
        return cls(tuple(lives), must)

    def check(self, found: Sequence[int] | None) -> None:
        """These lives' groups were found, whole; or None, something else. Raises Wrong."""
        if found is None:
            raise Wrong(f"what was found are no whole groups ({self.must} are promised)")
        if len(found) < self.must:
            raise Wrong(f"found {len(found)} groups, but {self.must} are promised")
        if tuple(found) != self.lives[: len(found)]:
            raise Wrong(f"found groups of {found}, but written were those of {self.lives}")


def live(
    append: Callable[[Any], None], group_of: Callable[[int, int], Any], numbers: range, mark: Mark
) -> None:
    """Go on with a story by these groups."""
    life = time.monotonic_ns()
    mark(b"found %d" % (numbers.start - 1))
    for number in numbers:
        mark(b"write %d %d" % (number, life))
        append(group_of(number, life))
        mark(b"durable %d" % number)
