"""Keep the versions of one row as a chain, newest first, and compute what a read sees.

Owns: the shape of a version, the order of a chain, and what a read at a timestamp sees in each
column.
Invariant: timestamps fall strictly along a chain. Chains never change: a new version is a new head,
and code that holds an older head still sees the same versions. So other threads may read a chain.
The garbage collector has little to do, since it does not track a version of numbers and texts.
Knows nothing of locks, tablets or chunks.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

from dodona_wire.rows.aggregates import combine
from dodona_wire.rows.schema import Column
from dodona_wire.types import DELETE_MASK, Timestamp

Values = tuple[Any, ...]
STEPS_MAX: Final = 128
"""The most steps of a walk along a chain whose end is not in sight. See `hot_rows` for longer
chains."""
ALL_VERSIONS: Final = 1 << 62
"""More versions than any row has: no limit."""
PlainVersion = tuple[Timestamp, int, Values, "Version | None"]
"""The timestamp, the mask of the columns that the version sets, their values in column order, and
the next older version. Mask 0 deletes the row."""
MarkedVersion = tuple[Timestamp, int, Values, "Version | None", int, int]
"""A plain version with two more masks. The first has the columns whose value is a change of an
aggregate. The second has the lock groups that `shared_write` took."""
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
    """Make a version, with marks only if it has any."""
    if delta_mask or shared_groups:
        return timestamp, mask, values, older, delta_mask, shared_groups
    return timestamp, mask, values, older


def history(newest: Version | None) -> Iterator[Version]:
    """Yield all versions of a chain, newest first."""
    while newest is not None:
        yield newest
        newest = newest[3]


def linked(version: Version, older: Version | None) -> Version:
    """Return the same change of the row, on top of another version."""
    if len(version) == 4:
        return version[0], version[1], version[2], older
    return version[0], version[1], version[2], older, version[4], version[5]


def chain_of(newest_first: Iterable[Version]) -> Version | None:
    """Link versions, which come newest first, into one chain."""
    chain: Version | None = None
    for version in reversed(list(newest_first)):
        chain = linked(version, chain)
    return chain


def add(newest: Version | None, version: Version) -> Version:
    """Return the chain with one more version. Writers of different lock groups, and those that
    share one, may commit out of timestamp order. Two versions with one timestamp come only from
    clients that lied about it. Then both changes become one version."""
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
    """Join two chains of one row into one."""
    for version in history(newest):
        known = add(known, version)
    return known


def _united(first: Version, second: Version) -> Version:
    """Join two changes at one timestamp. The values of the second win, and a write wins over a
    deletion."""
    values = {bit: (value_of(it, bit), it) for it in (first, second) for bit in bits_of(it[1])}
    bits = sorted(values)
    deltas = sum(1 << bit for bit in bits if delta_mask_of(values[bit][1]) >> bit & 1)
    shared = shared_groups_of(first) | shared_groups_of(second)
    mask = sum(1 << bit for bit in bits)
    return version_of(first[0], mask, tuple([values[bit][0] for bit in bits]), None, deltas, shared)


def versions_between(
    newest: Version | None, since: Timestamp, at: Timestamp, count_max: int
) -> list[Version]:
    """Return the newest versions of a chain with `since < timestamp ≤ at`, `count_max` at most."""
    found: list[Version] = []
    while newest is not None and newest[0] > since and len(found) < count_max:
        if newest[0] <= at:
            found.append(newest)
        newest = newest[3]
    return found


def versions_until(
    newest: Version | None, at: Timestamp, wanted: int, count_max: int | None = None
) -> list[Version]:
    """Return the versions of a chain at or below a timestamp, newest first. The last one is the
    first below which no version matters for the wanted columns. Raises LongHistory if they are more
    than `count_max`, or than STEPS_MAX by default."""
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
    """Return whether no older version matters for the wanted columns."""
    mask = version[1]
    return not mask or (mask & wanted == wanted and not delta_mask_of(version) & wanted)


def values_at(
    newest: Version | None, timestamp: Timestamp, wanted: int, full: int
) -> Values | None:
    """Return the values of the wanted columns as of a timestamp, or None if the row is not there
    then.

    Each column has its newest value at or below `timestamp` that is newer than the newest deletion
    there. A column without such a value is null. For tables without aggregates. Raises LongHistory.
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
    """Do the same as `values_at(newest_at)`, with aggregates, as if nothing older than `oldest_at`
    existed.

    Changes of an aggregate are folded into the newest plain value before them, or alone if there is
    none. `columns` are all value columns. Raises LongHistory after `steps_max` steps, or STEPS_MAX
    by default.
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
    """Fold a value, which is the last one, and the changes after it. Return null if there is
    nothing."""
    value = None
    for change in reversed(newest_first):
        value = combine(column, value, change)
    return value


def value_of(version: Version, bit: int) -> Any:
    """Return the value of a column that the version sets."""
    return version[2][(version[1] & ((1 << bit) - 1)).bit_count()]


def delta_mask_of(version: Version) -> int:
    """Return the mask of the values that are changes of an aggregate."""
    return 0 if len(version) == 4 else version[4]


def shared_groups_of(version: Version) -> int:
    """Return the mask of the lock groups that the version's writer took by `shared_write`."""
    return 0 if len(version) == 4 else version[5]


def bits_of(mask: int) -> Iterator[int]:
    """Yield the set bits of a mask, lowest first."""
    while mask:
        lowest = mask & -mask
        yield lowest.bit_length() - 1
        mask ^= lowest
