"""Define the row locks that there are, and which of them conflict.

Owns:
- the types of locks, and the kinds that they belong to;
- the one table of conflicts between kinds;
- `LockSet`, the locks of one transaction on one row.

All other modules pass a `LockSet` on, and ask it. A new type of lock is a new line of `TYPES`. A
new kind is a new field of `LockSet` and a new line of `KINDS`. Pure: knows neither transactions nor
tablets.
"""

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Final, NamedTuple

from dodona_wire.messages.data import TabletModifications
from dodona_wire.rows.schema import TableSchema
from dodona_wire.types import Key, LockType, SpecialWrites

EXCLUSIVE: Final = 0
SHARED_WRITE: Final = 1
SHARED: Final = 2
"""The kinds of locks: places in a `LockSet`. Types of one kind conflict in the same way."""
CACHED_MAX: Final = 1_024
"""The most sets of writes that are kept to be used again. Almost all writes have one of a few."""


class Meeting(NamedTuple):
    """How another transaction was met: the name under which this is counted, and the verb of the
    message."""

    name: str
    verb: str


class Kind(NamedTuple):
    """What holds for a kind of lock."""

    conflicts: tuple[int, ...]
    """The kinds that another transaction must not have in the same lock groups."""
    locked: Meeting
    """A committed lock without data was met."""
    held: Meeting
    """A transaction that commits was met."""


class Type(NamedTuple):
    """What holds for a type of lock."""

    kind: int
    leaves_time: bool
    """Whether a committed lock without data still conflicts with transactions that began before
    the commit."""


KINDS: Final = (
    Kind(
        (EXCLUSIVE, SHARED_WRITE, SHARED),
        Meeting("locked", "locked"),
        Meeting("write_held", "locked for a write"),
    ),
    Kind(
        (EXCLUSIVE, SHARED),
        Meeting("shared_locked", "locked in shared mode"),
        Meeting("shared_write_held", "locked for a shared write"),
    ),
    Kind(
        (EXCLUSIVE, SHARED_WRITE),
        Meeting("read_locked", "read-locked"),
        Meeting("read_held", "locked for reading"),
    ),
)
"""By kind. A conflict holds in both directions."""
WRITTEN: Final = Meeting("written", "written")
WRITTEN_SHARED: Final = Meeting("shared_written", "written in shared mode")
"""A version was met that a write of the kind EXCLUSIVE or SHARED_WRITE made."""
TYPES: Final[dict[LockType, Type]] = {
    "exclusive": Type(EXCLUSIVE, leaves_time=True),
    "shared_write": Type(SHARED_WRITE, leaves_time=True),
    "shared_weak": Type(SHARED, leaves_time=False),
    "shared_strong": Type(SHARED, leaves_time=True),
}


Watched = Sequence[int]
"""For each kind of lock that another transaction has: the lock groups in which it is in the way."""


class LockSet(NamedTuple):
    """The locks of one transaction on one row: for each kind, a mask of lock groups."""

    exclusive: int = 0
    shared_write: int = 0
    shared: int = 0

    @property
    def groups(self) -> int:
        """The lock groups of all kinds together."""
        return self.exclusive | self.shared_write | self.shared

    @property
    def blocking_reads(self) -> int:
        """The lock groups that a commit may change, so that reads must wait."""
        return self.exclusive | self.shared_write

    def watched(self, schema: TableSchema) -> Watched:
        """Return what is in the way of these locks."""
        masks = [0] * len(KINDS)
        for kind, mask in enumerate(self):
            if mask:
                checked = schema.check_mask(mask)
                for other in KINDS[kind].conflicts:
                    masks[other] |= checked
        return masks

    def overlap(self, watched: Watched) -> tuple[int, int] | None:
        """Return the first kind of these locks that is in the way of another transaction, and the
        lock groups. Return None if nothing is."""
        for kind, mask in enumerate(self):
            if mask and mask & watched[kind]:
                return kind, mask & watched[kind]
        return None


@lru_cache(CACHED_MAX)
def write_locks(groups: int, shared_groups: int) -> LockSet:
    """Return what a write of these lock groups takes. It takes `shared_groups` by `shared_write`,
    the other ones exclusively."""
    return LockSet(groups & ~shared_groups, shared_groups)


def shared_groups_of(special: SpecialWrites, key: Key) -> int:
    """Return the lock groups that the write of this key takes by `shared_write`."""
    return special[key][1] if key in special else 0


@lru_cache(CACHED_MAX)
def lock_locks(groups: int, lock_type: LockType) -> LockSet:
    """Return what a lock without data takes."""
    kind = TYPES[lock_type].kind
    return LockSet(*[groups if it == kind else 0 for it in range(len(KINDS))])


def locks_of(schema: TableSchema, part: TabletModifications) -> Iterator[tuple[Key, LockSet]]:
    """Yield each row that a transaction locks, and its locks there. A row may come twice."""
    for key, mask, _ in schema.plain_writes(part.writes):
        together = 0 if part.special is None else shared_groups_of(part.special, key)
        yield key, write_locks(schema.lock_mask(mask), together)
    for lock in part.locks:
        yield lock.key, lock_locks(lock.lock_mask, lock.lock_type)
