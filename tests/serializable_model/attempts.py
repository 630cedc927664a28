"""The configurations in which a transaction that was refused is sent again.

Owns: which transactions begin a new attempt, and beside which others. Must not import: rules.
"""

from typing import Final

from serializable_model.cases import (
    APART,
    BLIND_ONE,
    FULL,
    MOVED,
    PLAIN_TWO,
    READER,
    A,
    B,
    C,
    D,
    key,
    puts,
    serial,
)
from serializable_model.state import PLAIN, SECOND, Case, Range, Txn, Write

BOTH: Final = (0, 1)


def again(
    title: str,
    *txns: Txn,
    sent_again: tuple[int, ...] = (0,),
    crashes_max: int = 0,
    borders: tuple[int, ...] = APART,
    present: int = FULL,
) -> Case:
    """Return a case of these transactions, and of new attempts of some. With snapshot isolation,
    only the new attempt sends its reads."""
    firsts = [it._replace(reads=()) if it.kind == PLAIN else it for it in txns]
    attempts = [txns[at]._replace(again_of=at) for at in sent_again]
    return Case(
        f"sent again: {title}, crashes={crashes_max}",
        (*firsts, *attempts),
        4,
        borders,
        present,
        crashes_max,
        recovers=True,
    )


def plain(*reads: Range, writes: tuple[Write, ...] = ()) -> Txn:
    return Txn(PLAIN, reads, writes)


READS_A: Final = serial(key(A), writes=puts(C))
PLAIN_READS_A: Final = plain(key(A), writes=puts(C))
WRITES_C: Final = plain(writes=puts(C))
WRITES_BOTH: Final = plain(writes=puts(A, C))


def overtaken(*, crashes_max: int = 0) -> Case:
    """The row that it writes was changed, and the row that it read was not. So it can commit."""
    return again("only a write was overtaken", READS_A, WRITES_C, crashes_max=crashes_max)


def changed(*, crashes_max: int = 0) -> Case:
    """The row that it read was changed, too."""
    return again("a read has changed", READS_A, WRITES_BOTH, crashes_max=crashes_max)


def changed_plain(*, crashes_max: int = 0) -> Case:
    """As above, with snapshot isolation."""
    title = "a read has changed, snapshot isolation"
    return again(title, PLAIN_READS_A, WRITES_BOTH, crashes_max=crashes_max)


def prepared_apart(*, crashes_max: int = 0) -> Case:
    """The first attempt may be prepared in cell 0, with locks that the new one needs."""
    both = serial(key(A), writes=puts(A, C))
    return again("prepared in another cell", both, WRITES_C, crashes_max=crashes_max)


def counters() -> Case:
    """Both change a row that they have read."""
    one, two = serial(key(A), writes=puts(A, C)), serial(key(A), writes=puts(A))
    return again("two that change a row that they read", one, two, sent_again=BOTH)


def counters_plain() -> Case:
    """As above, with snapshot isolation."""
    one, two = plain(key(A), writes=puts(A, C)), plain(key(A), writes=puts(A))
    title = "two that change a row that they read, snapshot isolation"
    return again(title, one, two, sent_again=BOTH)


def skew_again(*sent_again: int) -> Case:
    one, two = serial(key(C), writes=puts(A)), serial(key(A), writes=puts(C))
    title = "write skew, " + " and ".join(f"T{at}" for at in sent_again)
    return again(title, one, two, sent_again=sent_again)


def crossed_plain() -> Case:
    """Each reads what the other one writes, and both write one more row."""
    one, two = plain(key(C), writes=puts(A, D)), plain(key(A), writes=puts(C, D))
    return again("write skew, snapshot isolation", one, two, sent_again=BOTH)


def writers() -> Case:
    """Both write in both cells, and have read nothing."""
    return again("two writers of the same rows", WRITES_BOTH, WRITES_BOTH, sent_again=BOTH)


def phantom_again(*sent_again: int) -> Case:
    both = Range(A, C)
    one, two = serial(both, writes=puts(A, C)), serial(both, writes=puts(B, C))
    title = "two inserts into a range, " + " and ".join(f"T{at}" for at in sent_again)
    return again(title, one, two, sent_again=sent_again, present=0)


def created_again() -> Case:
    """Another transaction creates the row through a group that was not read."""
    creates = plain(writes=puts(A, C, groups=SECOND))
    return again("a row is created", READS_A, creates, present=FULL - 1)


def blind_again() -> Case:
    return again("a blind writer", serial(key(A), writes=puts(A, C)), BLIND_ONE, crashes_max=1)


def reader_again() -> Case:
    return again("a reader looks on", READS_A, PLAIN_TWO, READER)


def resharded_again(*sent_again: int) -> Case:
    """The row moves that T0 reads and T1 writes. A new attempt goes to where it is."""
    one, two = serial(key(B), writes=puts(A)), serial(key(A), writes=puts(B))
    title = "a reshard, " + " and ".join(f"T{at}" for at in sent_again)
    return again(title, one, two, sent_again=sent_again, borders=MOVED)


AGAIN: Final = (
    overtaken(crashes_max=1),
    changed(),
    changed_plain(crashes_max=1),
    prepared_apart(crashes_max=1),
    counters(),
    counters_plain(),
    skew_again(0),
    crossed_plain(),
    phantom_again(0),
    blind_again(),
    resharded_again(0),
)
LARGE_AGAIN: Final = (
    changed(crashes_max=1),
    skew_again(0, 1),
    writers(),
    phantom_again(0, 1),
    created_again(),
    reader_again(),
    resharded_again(0, 1),
)
"""For the full level. They have the same promises."""
