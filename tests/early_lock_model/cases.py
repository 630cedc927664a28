"""The configurations of the model.

Owns: which rows, cells and transactions a search has. Must not import: rules.
"""

from typing import Final

from early_lock_model.state import BLIND, NOWAIT, PLAIN, SKIP, WAIT, Case, Txn, rows_named

A, B, C = 1, 2, 4
ONE, ONE_OF_TWO, APART, THREE = (0,), (0, 0), (0, 1), (0, 0, 1)
"""The cells of rows a, b and c."""


def hot(count: int, *, crashes_max: int = 0, unmounts_max: int = 0, ends: bool = False) -> Case:
    """Owners of one row."""
    return Case(
        f"a hot row, {count} owners, crashes={crashes_max}, unmounts={unmounts_max}, ends={ends}",
        (Txn(WAIT, A, A),) * count,
        ONE,
        crashes_max,
        unmounts_max,
        leases_end=ends,
    )


def hot_and(kind: str, *, crashes_max: int = 0, ends: bool = False) -> Case:
    """An owner, and a writer that locks nothing early."""
    return Case(
        f"a hot row, an owner and a {kind} writer, crashes={crashes_max}, ends={ends}",
        (Txn(WAIT, A, A), Txn(kind, writes=A)),
        ONE,
        crashes_max,
        leases_end=ends,
    )


def sets() -> Case:
    """A set of two rows, and an owner of each."""
    return Case(
        "a set of two rows, and an owner of each",
        (Txn(WAIT, A | B, A | B), Txn(WAIT, A, A), Txn(WAIT, B, B)),
        ONE_OF_TWO,
    )


def pair(*, ends: bool = True) -> Case:
    """Two owners of the same set."""
    both = Txn(WAIT, A | B, A | B)
    title = f"two owners of the same set, ends={ends}"
    return Case(title, (both, both), ONE_OF_TWO, leases_end=ends)


def synced(*, writes: int, count: int = 2) -> Case:
    """Owners of a hot row whose appends become durable later. The last one writes other rows."""
    hot_one = Txn(WAIT, A, A, reads=A)
    return Case(
        f"a hot row, appends take time, {count} owners, the last writes {rows_named(writes)}",
        (*(hot_one,) * (count - 1), hot_one._replace(writes=writes)),
        APART,
        crashes_max=1,
        syncs=True,
    )


def read_beside() -> Case:
    """An owner whose appends become durable later, and a plain reader of the row."""
    return Case(
        "a hot row, appends take time, and a plain reader that writes elsewhere",
        (Txn(WAIT, A, A, reads=A), Txn(PLAIN, writes=B, reads=A)),
        APART,
        crashes_max=1,
        syncs=True,
    )


def endless() -> Case:
    """A set of two rows, and two writers that never stop."""
    return Case(
        "a set of two rows, and two plain writers that never stop",
        (Txn(WAIT, A | B, A | B), Txn(PLAIN, writes=A), Txn(PLAIN, writes=B)),
        ONE_OF_TWO,
        is_endless=True,
    )


def withdrawn() -> Case:
    """Overlapping sets, whose clients may stop waiting."""
    return Case(
        "overlapping sets, clients stop waiting",
        (Txn(WAIT, A, A), Txn(WAIT, A | B, A | B), Txn(WAIT, B, B)),
        ONE_OF_TWO,
        may_withdraw=True,
    )


def overtaking(kind: str) -> Case:
    """A set of two rows, a plain writer of one, and another writer of the other."""
    return Case(
        f"a set of two rows, a plain and a {kind} writer",
        (Txn(WAIT, A | B, A | B), Txn(PLAIN, writes=A), Txn(kind, writes=B)),
        ONE_OF_TWO,
    )


def apart(*, crashes_max: int = 0, ends: bool = False, recovers: bool = False) -> Case:
    """Two owners of the same rows in two cells."""
    both = Txn(WAIT, A | B, A | B)
    return Case(
        f"two cells, two owners, crashes={crashes_max}, ends={ends}, recovers={recovers}",
        (both, both),
        APART,
        crashes_max,
        leases_end=ends,
        recovers=recovers,
    )


def apart_and_plain(*, crashes_max: int = 0, ends: bool = False) -> Case:
    """An owner of rows in two cells, and a plain writer of them."""
    return Case(
        f"two cells, an owner and a plain writer, crashes={crashes_max}, ends={ends}",
        (Txn(WAIT, A | B, A | B), Txn(PLAIN, writes=A | B)),
        APART,
        crashes_max,
        leases_end=ends,
    )


def named(*, crashes_max: int = 0, ends: bool = False) -> Case:
    """Two owners lock a row that stands for something, and write other rows."""
    return Case(
        f"a row that is locked and not written, crashes={crashes_max}, ends={ends}",
        (Txn(WAIT, A, B), Txn(WAIT, A, C)),
        (0, 1, 1),
        crashes_max,
        leases_end=ends,
    )


def twice() -> Case:
    """Owners that lock twice, in opposite orders."""
    return Case(
        "two acquisitions each",
        (Txn(WAIT, A, A, more=B), Txn(WAIT, B, B, more=A)),
        ONE_OF_TWO,
    )


def never_waits() -> Case:
    """An owner that waits, and one that never does and asks the highest cell first."""
    both = Txn(WAIT, A | B, A | B)
    return Case(
        "two cells, an owner with nowait",
        (both, both._replace(kind=NOWAIT, descends=True)),
        APART,
    )


def skipping() -> Case:
    """An owner of one row, a set that waits for it, and an owner that takes what is free."""
    return Case(
        "a set that waits, and skip_locked",
        (Txn(WAIT, A, A), Txn(WAIT, A | B, A | B), Txn(SKIP, A | B)),
        ONE_OF_TWO,
    )


def skipping_apart(*, ends: bool = False) -> Case:
    """Two owners take rows that are free, in two cells."""
    return Case(
        f"two cells, two owners with skip_locked, ends={ends}",
        (Txn(SKIP, A | C, takes=1), Txn(SKIP, A | B | C, takes=2)),
        THREE,
        leases_end=ends,
    )


def required() -> Case:
    """An owner, and a transaction of two cells that has a condition on its row."""
    return Case(
        "a row that is locked early, and a condition on it",
        (Txn(WAIT, A, A | C), Txn(PLAIN, writes=C, requires=A)),
        THREE,
    )


def required_beside() -> Case:
    """As above, with a writer in one cell alone."""
    return Case(
        "a row that is locked early, a condition on it, and a blind writer",
        (Txn(WAIT, A, A), Txn(PLAIN, writes=C, requires=A), Txn(BLIND, writes=A)),
        THREE,
    )


CASES: Final = (
    hot(2),
    hot(3),
    hot(2, ends=True),
    hot(2, crashes_max=1, ends=True),
    hot(2, unmounts_max=1, ends=True),
    hot(3, ends=True),
    hot_and(PLAIN, crashes_max=1, ends=True),
    hot_and(BLIND, crashes_max=1, ends=True),
    sets(),
    pair(),
    synced(writes=A),
    synced(writes=B),
    read_beside(),
    withdrawn(),
    overtaking(PLAIN),
    overtaking(BLIND),
    apart(),
    apart(recovers=True, ends=True),
    apart(crashes_max=1),
    apart_and_plain(crashes_max=1),
    apart_and_plain(ends=True),
    named(),
    named(crashes_max=1),
    named(ends=True),
    twice(),
    never_waits(),
    skipping(),
    skipping_apart(),
    skipping_apart(ends=True),
    required(),
    required_beside(),
)
