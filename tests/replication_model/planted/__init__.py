"""Planted bugs of the model: each breaks one rule, and a search must find each.

Owns: the list of all. `BUGS` has them in the order of their rules.
"""

from typing import Final

from replication_model.planted import epochs, leases, others, sets
from replication_model.planted.bug import PlantedBug


def _place(bug: PlantedBug) -> tuple[str, int]:
    return bug.rule[0], int(bug.rule[1:])


BUGS: Final[tuple[PlantedBug, ...]] = tuple(
    sorted([*epochs.BUGS, *sets.BUGS, *leases.BUGS, *others.BUGS], key=_place)
)
