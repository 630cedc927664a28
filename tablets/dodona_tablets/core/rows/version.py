"""The versions of one row: a chain, newest first, and what a read sees of it.

Owns: the shape of a version, the order of a chain, and what a read at a timestamp sees, per column.
Invariant: timestamps fall strictly along a chain. Nothing here is ever changed: a new version is a
new head, and whoever holds an older head keeps what he saw. So other threads may read a chain, and
the collector has little to do: a version of numbers and texts is not tracked by it.
Knows nothing of locks, tablets or chunks.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

from dodona_wire.rows.aggregates import combine
from dodona_wire.rows.schema import Column
from dodona_wire.types import DELETE_MASK, Timestamp

Values = tuple[Any, ...]
STEPS_MAX: Final = 128
"""Of a walk along a chain of which the end is not in sight. See `hot_rows` for longer ones."""
ALL_VERSIONS: Final = 1 << 62
"""More than any row has."""
PlainVersion = tuple[Timestamp, int, Values, "Version | None"]
"""Timestamp, mask of the columns that it sets (0: it deletes the row), their values in column
order, and the next older version."""
MarkedVersion = tuple[Timestamp, int, Values, "Version | None", int, int]
"""As a plain one, then the mask of columns whose value is a change of an aggregate, and the mask of
lock groups that were taken by shared_write."""
Version = PlainVersion | MarkedVersion


class LongHistory(Exception):
    """A row has so many versions that a read must not walk along all of them."""


def version_of(
    timestamp: Timestamp,
    mask: int,
    values: Values,
    older: Version | None = None,
    delta_mask: int = 0,
    shared_groups: int = 0,
) -> Version:
    """A version, with marks only where there are any."""
    if delta_mask or shared_groups:
        return timestamp, mask, values, older, delta_mask, shared_groups
    return timestamp, mask, values, older


def history(newest: Version | None) -> Iterator[Version]:
    """All versions of a chain, newest first."""
    while newest is not None:
        yield newest
        newest = newest[3]


def linked(version: Version, older: Version | None) -> Version:
    """The same change of the row, on top of another."""
    if len(version) == 4:
        return version[0], version[1], version[2], older
    return version[0], version[1], version[2], older, version[4], version[5]


def chain_of(newest_first: Iterable[Version]) -> Version | None:
    """Versions in falling order as one chain."""
    chain: Version | None = None
    for version in reversed(list(newest_first)):
        chain = linked(version, chain)
    return chain


def add(newest: Version | None, version: Version) -> Version:
    """The chain with one more version. Writers of different lock groups, and those that share one,
    may commit out of timestamp order; at the same timestamp only those do whose clients lied about
    it, and then both changes are one."""
    above: list[Version] = []
    while newest is not None and newest[0] > version[0]:
        above.append(newest)
        newest = newest[3]
    if newest is not None and newest[0] == version[0]:
        version = _united(newest, version)
        newest = newest[3]
    chain = linked(version, newest)
    for other in reversed(above):
        chain = linked(other, chain)
    return chain


def united(known: Version, newest: Version) -> Version:
    """Two chains of one row as one."""
    for version in history(newest):
        known = add(known, version)
    return known


def _united(first: Version, second: Version) -> Version:
    """Two changes at one timestamp: the second's values win, and a write wins over a deletion."""
    values = {bit: (value_of(it, bit), it) for it in (first, second) for bit in bits_of(it[1])}
    bits = sorted(values)
    deltas = sum(1 << bit for bit in bits if delta_mask_of(values[bit][1]) >> bit & 1)
    shared = shared_groups_of(first) | shared_groups_of(second)
    mask = sum(1 << bit for bit in bits)
    return version_of(first[0], mask, tuple([values[bit][0] for bit in bits]), None, deltas, shared)


def versions_between(
    newest: Version | None, since: Timestamp, at: Timestamp, count_max: int
) -> list[Version]:
    """Of a chain the newest versions of since < timestamp ≤ at, so many at most."""
    found: list[Version] = []
    while newest is not None and newest[0] > since and len(found) < count_max:
        if newest[0] <= at:
            found.append(newest)
        newest = newest[3]
    return found


def versions_until(
    newest: Version | None, at: Timestamp, wanted: int, count_max: int | None = None
) -> list[Version]:
    """Of a chain the versions at or below a timestamp, newest first, up to the first behind which
    nothing says anything of the wanted columns. Raises LongHistory if those are more."""
    found: list[Version] = []
    if count_max is None:
        count_max = STEPS_MAX
    while newest is not None:
        if len(found) == count_max:
            raise LongHistory
        if newest[0] <= at:
            found.append(newest)
            if is_last(newest, wanted):
                break
        newest = newest[3]
    return found


def is_last(version: Version, wanted: int) -> bool:
    """Whether nothing older says anything of the wanted columns."""
    mask = version[1]
    return not mask or (mask & wanted == wanted and not delta_mask_of(version) & wanted)


def values_at(
    newest: Version | None, timestamp: Timestamp, wanted: int, full: int
) -> Values | None:
    """The values of the wanted columns as of a timestamp, None if the row is not there then.

    Per column the newest value at or below `timestamp` that is newer than the newest deletion
    there; a column without one is null. For tables without aggregates. Raises LongHistory.
    """
    if newest is not None and newest[0] > timestamp:
        newest = _newest_at(newest, timestamp)
    if newest is None or newest[1] == DELETE_MASK:
        return None
    return newest[2] if newest[1] == wanted else _merged(newest, wanted, full)


def _newest_at(newest: Version | None, timestamp: Timestamp) -> Version | None:
    steps_left = STEPS_MAX
    while newest is not None and newest[0] > timestamp:
        newest = newest[3]
        steps_left -= 1
        if not steps_left:
            raise LongHistory
    return newest


def _merged(newest: Version | None, wanted: int, full: int) -> Values:
    found: dict[int, Any] = {}
    remaining, steps_left = wanted, STEPS_MAX
    while newest is not None and newest[1] != DELETE_MASK and remaining:
        steps_left -= 1
        if not steps_left:
            raise LongHistory
        mask = newest[1]
        for bit in bits_of(mask & remaining):
            found[bit] = newest[2][(mask & ((1 << bit) - 1)).bit_count()]
        remaining &= ~mask
        newest = newest[3]
    return tuple([found.get(bit) for bit in bits_of(wanted & full)])


def values_between(
    newest: Version | None,
    oldest_at: Timestamp,
    newest_at: Timestamp,
    wanted: int,
    columns: Sequence[Column],
    steps_max: int | None = None,
) -> Values | None:
    """As `values_at(newest_at)`, with aggregates, as if nothing older than `oldest_at` had been.

    Changes of an aggregate are folded into the newest plain value before them, or alone.
    `columns` are all value columns. Raises LongHistory after so many steps.
    """
    changes: dict[int, list[Any]] = {bit: [] for bit in bits_of(wanted)}
    remaining = wanted
    is_there = False
    steps_left = STEPS_MAX if steps_max is None else steps_max
    for version in history(newest):
        steps_left -= 1
        if steps_left < 0:
            raise LongHistory
        if version[0] > newest_at:
            continue
        mask = version[1]
        if mask == DELETE_MASK or version[0] < oldest_at:
            break
        is_there = True
        for bit in bits_of(mask & remaining):
            changes[bit].append(value_of(version, bit))
        remaining &= ~mask | delta_mask_of(version)
        if not remaining:
            break
    if not is_there:
        return None
    return tuple([fold(columns[bit], changes[bit]) for bit in changes])


def fold(column: Column, newest_first: Sequence[Any]) -> Any:
    """What a value (the last one) and the changes after it come to; null if there is nothing."""
    value = None
    for change in reversed(newest_first):
        value = combine(column, value, change)
    return value


def value_of(version: Version, bit: int) -> Any:
    """The value of a column that the version sets."""
    return version[2][(version[1] & ((1 << bit) - 1)).bit_count()]


def delta_mask_of(version: Version) -> int:
    """Which of its values are changes of an aggregate."""
    return 0 if len(version) == 4 else version[4]


def shared_groups_of(version: Version) -> int:
    """Which lock groups its writer had together with others."""
    return 0 if len(version) == 4 else version[5]


def bits_of(mask: int) -> Iterator[int]:
    """The set bits of a mask, lowest first."""
    while mask:
        lowest = mask & -mask
        yield lowest.bit_length() - 1
        mask ^= lowest
