"""The decisions of the rules, one method each. A planted bug gets one of them wrong.

Owns: what a cell locks, whom a transaction waits for, and what a condition is checked against. Must
not import: the model.
"""

from collections.abc import Sequence

from prerequisite_model.state import ABSENT, NULL, PREPARED, There, Txn, Version, Wish


class Rules:
    """The rules as they are designed."""

    checks_in_one_step = True
    """Conditions are checked in the step that takes the locks."""
    checks_repeats = False
    """A repeated request is checked again. It must get the first answer."""
    waits_for_prepared = True
    """A condition waits for a writer that is prepared below the start."""
    keeps_over_restart = True
    """The log has the locks of conditions, so that a restart takes them again."""
    keeps_until_outcome = True
    """Locks of conditions are kept while a transaction is prepared."""
    asks_cells = True
    """Conditions travel to the cells. Otherwise the client looks at them at its snapshot."""
    looks_into_chunks = True
    waits_for_creators = True
    """A condition on a row that is absent waits for writers of all groups: each creates the row."""

    def locked_groups(self, txn: Txn, wish: Wish, group_count: int) -> set[int]:
        """The presence of a row belongs to all of its lock groups, and a value to its own."""
        return set(range(group_count)) if wish.group is None else {wish.group}

    def seen(
        self, versions: Sequence[Version], start: int, wish: Wish, first_is_away: bool
    ) -> Version | None:
        """Return the version that the condition is checked against: the newest one."""
        found = [it for it in versions if it.place.row == wish.row]
        if first_is_away and not self.looks_into_chunks:
            found = [it for it in found if it.by >= 0]
        newest = max(found, default=None)
        if wish.group is None or newest is None:
            return newest
        written = [it for it in found if it.place.group == wish.group]
        return max(written, default=newest._replace(value=NULL))

    def holds(self, wish: Wish, seen: Version | None) -> bool:
        return wish.value == (ABSENT if seen is None else seen.value)

    def may_pass(self, other: There, start: int) -> bool:
        """Return whether a condition looks past a writer of its row."""
        is_before = other.phase == PREPARED and other.p < start
        return is_before and not self.waits_for_prepared
