"""Compare the log of a replica with the log of the owner, by indexes and epochs only.

Owns: where two logs part, and which log a new owner takes. An index and an epoch name one entry for
ever, and a replica stores an entry only behind the one before it. So two logs that have one entry
in common have all before it in common, too.

Must not import: any shell.
"""

from collections.abc import Mapping

from dodona_replication.core.tail import Tail
from dodona_wire.messages.replicas import LogFenced, LogMisaligned


def tail_of(found: LogFenced | LogMisaligned) -> Tail:
    """Return what a replica says that it has."""
    first, starts, last = found.first_index, [], found.first_index - 1
    for epoch, last in found.last_indexes:
        starts.append((epoch, first))
        first = last + 1
    return Tail(found.first_index, found.epoch_before, starts, last)


def common_index(one: Tail, other: Tail) -> int | None:
    """Return the last index at which both logs have the same entry. 0 is the imagined entry before
    all. None if both are cut so that nothing tells."""
    ends = dict(one.last_indexes)
    candidates = {one.first_index - 1, other.first_index - 1}
    candidates |= {min(end, ends[epoch]) for epoch, end in other.last_indexes if epoch in ends}
    common = [it for it in candidates if _is_same_at(one, other, it)]
    return max(common, default=None)


def _is_same_at(one: Tail, other: Tail, index: int) -> bool:
    epoch = one.epoch_at(index)
    return epoch is not None and epoch == other.epoch_at(index)


def fullest(tails: Mapping[str, Tail]) -> str:
    """Return the replica whose log a new owner takes, among members of the set that it fenced. Each
    of them has all that was acknowledged. The highest last epoch, and then the longest log, leaves
    the fewest commits in doubt (R6)."""
    return max(sorted(tails), key=lambda it: (tails[it].last_epoch, tails[it].last_index))
