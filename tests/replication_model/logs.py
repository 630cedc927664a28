"""Logs of the model: tuples of whole numbers.

Owns: what an entry is, when two logs agree, and when a log has all that is acknowledged. An entry
is named by its index and its epoch, as in the protocol. Must not import: anything else of the
model.
"""

from functools import cache
from typing import Final

Log = tuple[int, ...]

CUT: Final = 0
"""In the place of an entry before the checkpoint."""
HOLE: Final = -1
"""In the place of an entry that a broken replica never got. It passes for an entry."""
EPOCH_BITS: Final = 8
SECOND: Final = 1 << 7
"""Marks the entries of a second process in one epoch. Only planted bugs make such processes."""


def opening_record(epoch: int, is_second: bool) -> int:
    """Return the first entry of an epoch. The entry after it is one higher, and so on."""
    return epoch << EPOCH_BITS | (SECOND if is_second else 0)


def epoch_of(entry: int) -> int:
    return entry >> EPOCH_BITS


def cut_count(log: Log) -> int:
    return log.count(CUT)


@cache
def agreed_count(stored: Log, log: Log) -> int:
    """Return how many entries a replica shares with the owner, by what the two can tell: the last
    index at which both have an entry of one epoch. Of a log without its checkpoint, all."""
    if stored and stored[-1] == CUT:
        return len(stored) if log[: len(stored)] == stored else 0
    for at in range(min(len(stored), len(log)) - 1, -1, -1):
        mine, theirs = stored[at], log[at]
        if mine != CUT != theirs and epoch_of(mine) == epoch_of(theirs):
            return at + 1
    return 0


@cache
def has_all(log: Log, acknowledged: Log) -> bool:
    """Whether a log has every acknowledged entry, itself or in its checkpoint."""
    if log[: len(acknowledged)] == acknowledged:
        return True
    kept = log[cut_count(log) :]
    if len(log) < len(acknowledged) or not kept or HOLE in kept:
        return False
    pairs = zip(log, acknowledged, strict=False)
    return all(mine in (CUT, theirs) for mine, theirs in pairs)


def show(log: Log) -> str:
    """Return a log for people: `o2` is the opening record of epoch 2, `2a` its first write, `.` a
    cut entry, `?` a hole. A second process in an epoch has a quotation mark."""
    return f"[{' '.join(map(_show_entry, log))}]"


def _show_entry(entry: int) -> str:
    if entry <= CUT:
        return "." if entry == CUT else "?"
    number = entry & (SECOND - 1)
    name = f"{epoch_of(entry)}{chr(96 + number)}" if number else f"o{epoch_of(entry)}"
    return name + ("'" if entry & SECOND else "")
