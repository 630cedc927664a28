"""All that a power cut may leave of a recording: at every operation, in ways that are drawn.

Owns: the kinds of images, and which are made at a cut. An image that is the same as an earlier one
with the same promises is made once. Must not import: anything that runs programs.
"""

from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass
from random import Random
from typing import Final, Literal

from disk_faults.disk import Disk, Drawn, Dropped, Fate, Kept
from disk_faults.images import Image
from disk_faults.operations import Marked, Operation

Kind = Literal["unsynced lost", "unsynced kept", "some kept, torn"]

DRAWS_PER_CUT: Final = 3


@dataclass(frozen=True, slots=True)
class Cut:
    """The power is cut while operation `at` is under way, after so many marks."""

    at: int
    kind: Kind
    draw: int
    mark_count: int
    image: Image

    def __str__(self) -> str:
        drawn = f", draw {self.draw}" if self.kind == "some kept, torn" else ""
        return f"cut at operation {self.at}, {self.kind}{drawn}"


def cuts_of(
    operations: Sequence[Operation],
    seed: int,
    places: Container[int] | None = None,
    draws: int = DRAWS_PER_CUT,
) -> Iterator[Cut]:
    """The images of a cut at every operation, and behind the last one, or at some places only. A
    place with its seed has the same each time."""
    disk = Disk()
    seen: set[int] = set()
    mark_count = 0
    for at, operation in enumerate([*operations, None]):
        if operation is not None:
            disk.issue(operation)
        if (places is None or at in places) and not isinstance(operation, Marked):
            for kind, draw, fate in _fates(seed, at, draws):
                image = disk.image(fate)
                print_of = hash((mark_count, image.fingerprint()))
                if print_of not in seen:
                    seen.add(print_of)
                    yield Cut(at, kind, draw, mark_count, image)
        if operation is not None:
            disk.finish(operation)
        mark_count += isinstance(operation, Marked)


def _fates(seed: int, at: int, draws: int) -> Iterator[tuple[Kind, int, Fate]]:
    yield "unsynced lost", 0, Dropped()
    yield "unsynced kept", 0, Kept()
    for draw in range(draws):
        yield "some kept, torn", draw, Drawn(Random(f"{seed}/{at}/{draw}"))
