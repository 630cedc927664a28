"""Classes of durability: what an acknowledgement is worth, and which system is in which class.

Owns: the words. Systems of one class may be compared. The report names the classes if there are
several.
"""

from collections.abc import Iterable
from typing import Final

SYNCED: Final = "synced to disk before the answer"
SYNCED_AHEAD: Final = "what may be given out is synced ahead of it"
LATER: Final = "synced later: a crash takes the last moments"
READS: Final = "nothing is written"


def durability_note(named: Iterable[tuple[str, str]]) -> str:
    """Return a line for the report about contenders and their classes."""
    classes: dict[str, list[str]] = {}
    for name, durability in named:
        classes.setdefault(durability, []).append(name)
    if len(classes) == 1:
        (only,) = classes
        return f"durability: all {only}" if only == SYNCED else f"durability: {only}"
    said = (f"{', '.join(names)}: {durability}" for durability, names in classes.items())
    return f"durability: {'; '.join(said)}"
