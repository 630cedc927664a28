"""The configurations of the model.

Owns: which rows, cells and transactions a search has. Must not import: rules.
"""

from typing import Final

from prerequisite_model.state import ABSENT, NULL, Case, Place, Txn, Wish

ROW, LEASE = 0, 1
A, B = Place(ROW, 0), Place(ROW, 1)
EPOCH = Place(LEASE)
OURS, THEIRS = 1, 2


def insert_once(*, is_blind: bool, crashes_max: int = 0, in_chunks: bool = False) -> Case:
    """Two transactions insert one row, each if it is absent, in different lock groups."""
    return Case(
        f"two inserts of one row, blind={is_blind}, crashes={crashes_max}, chunks={in_chunks}",
        (
            Txn(((A, 1),), (Wish(ROW, ABSENT),), is_blind),
            Txn(((B, 2),), (Wish(ROW, ABSENT),), is_blind),
        ),
        (0,),
        (5,) if in_chunks else (ABSENT,),
        crashes_max,
        in_chunks,
    )


def created_beside() -> Case:
    """A transaction inserts a row if it is absent. Another one writes a second group of it."""
    return Case(
        "an insert beside a writer of another group",
        (Txn(((A, 1),), (Wish(ROW, ABSENT),)), Txn(((B, 2),))),
        (0,),
        (ABSENT,),
    )


def repeated() -> Case:
    """One insert of an absent row, whose request may come twice."""
    return Case("one insert", (Txn(((A, 1),), (Wish(ROW, ABSENT),)),), (0,), (ABSENT,))


def fenced(*, cells: int, crashes_max: int = 0) -> Case:
    """A writer under a lease, and another one that takes the lease over and then writes."""
    return Case(
        f"a writer under a lease, {cells} cells, crashes={crashes_max}",
        (
            Txn(((A, 1),), (Wish(LEASE, OURS),)),
            Txn(((EPOCH, THEIRS),), (Wish(LEASE, OURS),), is_blind=True),
            Txn(((A, 2),), (Wish(LEASE, THEIRS),), after=1),
        ),
        (0, cells - 1),
        (ABSENT, OURS),
        crashes_max,
    )


def taken_in_two_cells(*, crashes_max: int = 0) -> Case:
    """The lease is taken over by a transaction of two cells. Its client then begins another one."""
    return Case(
        f"a takeover in two cells, crashes={crashes_max}",
        (
            Txn(((EPOCH, THEIRS), (A, 3)), (Wish(LEASE, OURS),)),
            Txn(((B, 2),), (Wish(LEASE, THEIRS),), after=0),
            Txn(((B, 1),), (Wish(LEASE, OURS),)),
        ),
        (0, 1),
        (ABSENT, OURS),
        crashes_max,
    )


def created_in_two_cells() -> Case:
    """A transaction of two cells creates a row. Its client then begins another one, which requires
    that a lock group of this row is null."""
    return Case(
        "a row that is created in two cells",
        (
            Txn(((B, 3), (EPOCH, THEIRS))),
            Txn(((A, 1),), (Wish(ROW, NULL, group=0),), after=0),
        ),
        (0, 1),
        (ABSENT, OURS),
    )


CASES: Final = (
    repeated(),
    insert_once(is_blind=False),
    created_beside(),
    insert_once(is_blind=True),
    insert_once(is_blind=False, crashes_max=1),
    insert_once(is_blind=True, in_chunks=True),
    fenced(cells=1),
    fenced(cells=1, crashes_max=1),
    fenced(cells=2),
    fenced(cells=2, crashes_max=1),
    taken_in_two_cells(),
    taken_in_two_cells(crashes_max=1),
    created_in_two_cells(),
)
