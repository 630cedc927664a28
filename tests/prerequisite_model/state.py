"""The states of the model: rows with their versions, and transactions in their cells.

Owns: what a state is, and what a configuration is. Must not import: rules.
"""

from typing import Final, NamedTuple

ABSENT: Final = 0
"""The value of a row that has no version."""
NULL: Final = -1
"""The value of a lock group that no version of its row has written."""
NONE, LOCKED, PREPARED, COMMITTED, REFUSED = "none", "locked", "prepared", "committed", "refused"
"""What a cell knows of a transaction."""
UNDECIDED, COMMIT, ABORT = 0, -1, -2
"""What the coordinator decided: nothing, or not this. A commit is its timestamp, which is above
0."""
SILENT, OK, FAILED, UNMET = "", "committed", "aborted", "condition"
"""What the client reported. `UNMET` says that a condition does not hold."""
LATEST: Final = 99
"""The start of a blind transaction: it begins when its locks are free."""


class Place(NamedTuple):
    """A row, and one of its lock groups."""

    row: int
    group: int = 0


class Wish(NamedTuple):
    """A condition: the row has this value, or it is absent. With a group, that group of the row has
    the value, and the row is there."""

    row: int
    value: int
    group: int | None = None


class Txn(NamedTuple):
    """What one transaction does."""

    writes: tuple[tuple[Place, int], ...] = ()
    wishes: tuple[Wish, ...] = ()
    is_blind: bool = False
    after: int | None = None
    """It begins after the client of this transaction has reported a commit."""


class Case(NamedTuple):
    """A configuration."""

    title: str
    txns: tuple[Txn, ...]
    cell_of: tuple[int, ...]
    """The cell of each row."""
    first: tuple[int, ...]
    """The value of each row at the beginning."""
    crashes_max: int = 0
    in_chunks: bool = False
    """Whether the first versions are in chunks, and not in memory."""


class Version(NamedTuple):
    at: int
    place: Place
    value: int
    by: int


class There(NamedTuple):
    """A transaction in one cell."""

    phase: str = NONE
    p: int = 0
    is_checked: bool = False
    """For a bug: the conditions were checked in a step before the locks."""
    is_held: bool = True
    """Whether the rows of its conditions are locked."""
    is_unmet: bool = False
    """Whether it was refused because of a condition."""


class Life(NamedTuple):
    """A transaction in its client, and in its cells."""

    start: int = 0
    cells: tuple[There, ...] = ()
    decided: int = UNDECIDED
    reported: str = SILENT
    known: tuple[int, ...] = ()
    """For each row: the newest commit that any client had reported when this one began."""


class State(NamedTuple):
    clock: int
    versions: tuple[Version, ...]
    lives: tuple[Life, ...]
    fences: tuple[int, ...]
    crashes: int = 0

    def with_life(self, at: int, life: Life) -> "State":
        return self._replace(lives=(*self.lives[:at], life, *self.lives[at + 1 :]))

    def with_cell(self, at: int, cell: int, there: There) -> "State":
        life = self.lives[at]
        cells = (*life.cells[:cell], there, *life.cells[cell + 1 :])
        return self.with_life(at, life._replace(cells=cells))
