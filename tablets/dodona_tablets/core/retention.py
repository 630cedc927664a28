"""Which versions of a row may go: the rules of retention, as one pure function.

Owns: what is left of a row's versions below the retained timestamp. Whoever reads at or above it
sees the same before and after, except for what has expired where the table's owner lets even the
newest version expire (`min_data_versions=0`). Knows no tablets and no time: timestamps are
arguments, so that replay comes to the same versions.
Source: the YTsaurus document, "Row cleanup".
"""

from bisect import bisect_left
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from dodona._core.aggregates import combine
from dodona.schema import Column
from dodona.types import DELETE_MASK, TableSettings, Timestamp
from dodona_tablets.core.version import Version, bits_of, delta_mask_of

STEP_VERSIONS_MAX: Final = 500
"""So many versions one step looks at: a row that is written all the time may have a million."""
COUNTED_VERSIONS_MAX: Final = 10_000
"""So many younger versions are counted; whoever sets `max_data_versions` higher may keep more."""


class Terms(NamedTuple):
    """What may go: of what is older than `retained`, all but what the settings keep. What is older
    than `expired` has outlived `max_data_ttl`."""

    retained: Timestamp
    expired: Timestamp
    settings: TableSettings


def retire(versions: list[Version], terms: Terms, columns: Sequence[Column]) -> bool:
    """Take away, in place, what the terms do not keep: one step, from the oldest version on.

    Changes of aggregates become plain values, and the locks of long ago are forgotten. Returns
    whether anything changed. `columns` are all value columns.
    """
    end = bisect_left(versions, terms.retained, key=lambda version: version[0])
    old = versions[: min(end, STEP_VERSIONS_MAX)]
    if not old or (len(old) == 1 and _may_stay(old[0], terms)):
        return False
    values = [dict(zip(bits_of(it[1]), it[2], strict=True)) for it in old]
    _fold_changes(old, values, columns)
    _drop_values(old, values, versions, terms, columns)
    left: list[Version] = []
    for version, kept in zip(old, values, strict=True):
        if version[1] == DELETE_MASK:
            if left:  # a deletion is there for what is older
                left.append(version)
        elif len(version) == 4 and len(kept) == len(version[2]):
            left.append(version)
        elif kept:
            left.append((version[0], sum(1 << bit for bit in kept), tuple(kept.values()), None))
    if left == old:
        return False
    versions[: len(old)] = left
    return True


def _may_stay(only: Version, terms: Terms) -> bool:
    is_plain_write = len(only) == 4 and only[1] != DELETE_MASK
    return is_plain_write and (terms.settings.min_data_versions > 0 or only[0] >= terms.expired)


def _fold_changes(
    old: list[Version], values: list[dict[int, Any]], columns: Sequence[Column]
) -> None:
    """Make each run of changes, and the value that they build on, one value at the newest of them.

    Nothing can be committed below any more, so that changes of nothing are a value too.
    """
    newest: dict[int, dict[int, Any]] = {}
    for version, given in zip(old, values, strict=True):
        if version[1] == DELETE_MASK:
            newest.clear()
        for bit in bits_of(delta_mask_of(version)):
            if bit in newest:
                given[bit] = combine(columns[bit], newest[bit].pop(bit), given[bit])
        newest.update(dict.fromkeys(given, given))


def _drop_values(
    old: list[Version],
    values: list[dict[int, Any]],
    versions: list[Version],
    terms: Terms,
    columns: Sequence[Column],
) -> None:
    """Per column, newest first: `min_data_versions` stay, then so many that with the younger ones
    there are `max_data_versions` and none has expired. Deletions count in every column.

    The newest stays until it has expired, since readers at the retained timestamp see it; and if
    there are younger versions an aggregate's stays, since they may be changes of it.
    """
    least, most = terms.settings.min_data_versions, terms.settings.max_data_versions
    younger, seen = _Counts(), _Counts()
    if most > least:
        for version in versions[len(old) : len(old) + min(most, COUNTED_VERSIONS_MAX)]:
            younger.add(version[1])
    has_younger = len(old) < len(versions)
    for version, given in zip(reversed(old), reversed(values), strict=True):
        is_fresh = version[0] >= terms.expired
        mask = sum(1 << bit for bit in given)
        for bit in list(given):
            place = seen.of(bit)
            is_needed = place == 0 and (is_fresh or (has_younger and columns[bit].aggregate))
            is_allowed = is_fresh and place + younger.of(bit) < most
            if not (place < least or is_needed or is_allowed):
                del given[bit]
        if mask or version[1] == DELETE_MASK:
            seen.add(mask)


class _Counts:
    """How many versions of each column there are. Deletions count for all."""

    def __init__(self) -> None:
        self._deletions = 0
        self._values: dict[int, int] = {}

    def add(self, mask: int) -> None:
        self._deletions += mask == DELETE_MASK
        for bit in bits_of(mask):
            self._values[bit] = self._values.get(bit, 0) + 1

    def of(self, bit: int) -> int:
        return self._deletions + self._values.get(bit, 0)
