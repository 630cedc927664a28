"""All planted bugs, by chapter, and those of the catalogue that can't be planted."""

from negative.bug import CheckedBug, Excuse, PlantedBug
from negative.planted import (
    again,
    blind,
    client,
    conditions,
    durability,
    early_locks,
    excused,
    further,
    gone,
    loads,
    objects,
    oracle,
    reads,
    recovery,
    retention,
    serializable,
    slow,
    stores,
)

CHAPTERS = (
    oracle,
    reads,
    recovery,
    client,
    durability,
    blind,
    gone,
    stores,
    slow,
    loads,
    retention,
    further,
    objects,
    conditions,
    early_locks,
    serializable,
    again,
)


def _order(bug: PlantedBug | CheckedBug) -> tuple[bool, int]:
    return bug.item is None, bug.item or 0


BUGS: tuple[PlantedBug | CheckedBug, ...] = tuple(
    sorted((bug for chapter in CHAPTERS for bug in chapter.BUGS), key=_order)
)
EXCUSES: tuple[Excuse, ...] = excused.EXCUSES
