"""The configurations of the model.

Owns: which rows, cells and transactions a search has. Must not import: rules.
"""

from typing import Final

from serializable_model.state import BLIND, FIRST, PLAIN, SECOND, Case, Range, Txn, Write

A, B, C, D = 0, 1, 2, 3
APART: Final = (2,)
"""Rows a and b are in cell 0, rows c and d in cell 1."""
MOVED: Final = (2, 1)
"""As above. A reshard then moves row b to cell 1."""
FULL: Final = 0b1111


def key(row: int, groups: int = FIRST) -> Range:
    return Range(row, row + 1, groups)


def puts(*rows: int, groups: int = FIRST) -> tuple[Write, ...]:
    return tuple(Write(row, groups) for row in rows)


def serial(*reads: Range, writes: tuple[Write, ...] = (), condenses: bool = False) -> Txn:
    return Txn(reads=reads, writes=writes, condenses=condenses)


READER: Final = serial(Range(A, D + 1))
"""It only reads, and sends nothing at its end."""


def skew(*, crashes_max: int = 0) -> Case:
    """Each of two transactions reads in one cell what the other one writes there."""
    return Case(
        f"write skew over two cells, crashes={crashes_max}",
        (serial(key(C), writes=puts(A)), serial(key(A), writes=puts(C))),
        4,
        APART,
        FULL,
        crashes_max,
        recovers=crashes_max > 0,
    )


def skew_together(*, crashes_max: int = 0) -> Case:
    """As above, in one cell."""
    return Case(
        f"write skew in one cell, crashes={crashes_max}",
        (serial(key(B), writes=puts(A)), serial(key(A), writes=puts(B))),
        4,
        APART,
        FULL,
        crashes_max,
    )


def skew_and_reader() -> Case:
    """A transaction that only reads may show an order that the writers do not have."""
    return Case(
        "write skew over two cells, and a reader",
        (serial(key(C), writes=puts(A)), serial(key(A), writes=puts(C)), READER),
        4,
        APART,
        FULL,
    )


def ring() -> Case:
    """Each of three transactions reads what the next one writes."""
    return Case(
        "three in a ring, over two cells",
        (
            serial(key(A), writes=puts(B)),
            serial(key(B), writes=puts(C)),
            serial(key(C), writes=puts(A)),
        ),
        4,
        APART,
        FULL,
    )


def phantom(*, crashes_max: int = 0) -> Case:
    """Two transactions read the same absent rows, and each inserts one of them."""
    both = Range(A, C)
    return Case(
        f"two inserts into a range of absent rows, crashes={crashes_max}",
        (serial(both, writes=puts(A)), serial(both, writes=puts(B))),
        4,
        APART,
        0,
        crashes_max,
    )


def phantom_apart() -> Case:
    """A range over two cells. One transaction inserts in the first, the other in the second."""
    over = Range(A, D + 1)
    return Case(
        "two inserts into a range over two cells",
        (serial(over, writes=puts(B)), serial(over, writes=puts(D))),
        4,
        APART,
        1 << C,
    )


def read_apart(*others: Txn, crashes_max: int = 0) -> Case:
    """A transaction reads in cell 0, and writes in cell 1. Others write what it reads."""
    kinds = ", ".join(f"{it.kind} of {len(it.writes)}" for it in others)
    return Case(
        f"a read in another cell, writers: {kinds}, crashes={crashes_max}",
        (serial(key(A), writes=puts(C)), *others),
        4,
        APART,
        FULL,
        crashes_max,
        recovers=crashes_max > 0,
    )


PLAIN_ONE: Final = Txn(PLAIN, writes=puts(A))
PLAIN_TWO: Final = Txn(PLAIN, writes=puts(A, D))
BLIND_ONE: Final = Txn(BLIND, writes=puts(A))


def mixed() -> Case:
    return read_apart(PLAIN_TWO, BLIND_ONE)


def seen_by_reader() -> Case:
    return read_apart(PLAIN_TWO, READER)


def groups(*, is_there: bool = False, crashes_max: int = 0) -> Case:
    """A transaction reads one group of a row. Another one writes the other group."""
    return Case(
        f"a writer of another group, the row is there={is_there}, crashes={crashes_max}",
        (
            serial(key(A, FIRST), writes=puts(C)),
            Txn(PLAIN, writes=puts(A, D, groups=SECOND)),
        ),
        4,
        APART,
        FULL if is_there else FULL - 1,
        crashes_max,
        recovers=crashes_max > 0,
    )


def groups_and_deletion() -> Case:
    """As above, and a third transaction deletes the row."""
    return Case(
        "a row that is deleted, and created through another group",
        (
            serial(key(A, FIRST), writes=puts(C)),
            Txn(PLAIN, writes=(Write(A, is_delete=True),)),
            Txn(BLIND, writes=puts(A, groups=SECOND)),
        ),
        4,
        APART,
        FULL,
    )


def condensed() -> Case:
    """A transaction merges two ranges. Others write in the second one, and between both."""
    return Case(
        "ranges that are merged",
        (
            serial(key(A), key(C), writes=puts(D), condenses=True),
            Txn(PLAIN, writes=puts(C)),
            Txn(BLIND, writes=puts(B)),
        ),
        4,
        (3,),
        FULL,
    )


def upgraded() -> Case:
    """Two transactions change a row that both have read, and one has a second cell."""
    return Case(
        "two that change a row that they have read",
        (serial(key(A), writes=puts(A, C)), serial(key(A), writes=puts(A))),
        4,
        APART,
        FULL,
    )


def resharded() -> Case:
    """Two transactions read what the other one writes, and the row of one moves to cell 1."""
    return Case(
        "write skew, and a reshard",
        (serial(key(B), writes=puts(A)), serial(key(A), writes=puts(B))),
        4,
        MOVED,
        FULL,
    )


def resharded_reads() -> Case:
    """The row moves that one transaction only reads."""
    return Case(
        "a read in another cell, and a reshard",
        (serial(key(B), writes=puts(C)), Txn(PLAIN, writes=puts(B))),
        4,
        MOVED,
        FULL,
    )


def ring_apart() -> Case:
    """As the ring above, and each transaction reads and writes in different cells."""
    return Case(
        "three in a ring, each over two cells",
        (
            serial(key(A), writes=puts(C)),
            serial(key(C), writes=puts(B)),
            serial(key(B), writes=puts(D)),
        ),
        4,
        APART,
        FULL,
    )


def with_restart(case: Case) -> Case:
    return case._replace(title=f"{case.title}, with a restart", crashes_max=1)


def with_recovery(case: Case) -> Case:
    return case._replace(title=f"{case.title}, with recovery", recovers=True)


def skew_and_blind() -> Case:
    case = skew()
    return case._replace(title=f"{case.title}, a blind writer", txns=(*case.txns, BLIND_ONE))


CASES: Final = (
    skew(),
    skew(crashes_max=1),
    skew_together(crashes_max=1),
    skew_and_reader(),
    ring(),
    phantom(crashes_max=1),
    phantom_apart(),
    read_apart(PLAIN_ONE, crashes_max=1),
    read_apart(PLAIN_TWO, crashes_max=1),
    read_apart(BLIND_ONE, crashes_max=1),
    mixed(),
    seen_by_reader(),
    groups(crashes_max=1),
    groups(is_there=True),
    groups_and_deletion(),
    condensed(),
    upgraded(),
    resharded(),
    with_restart(with_recovery(resharded())),
    resharded_reads(),
)
LARGE: Final = (
    ring_apart(),
    with_restart(skew_and_blind()),
    with_restart(condensed()),
    with_restart(with_recovery(groups_and_deletion())),
    with_recovery(mixed()),
)
"""For the full level. They have the same promises."""
