"""Decide which versions of a row may go: the rules of retention, as one pure function.

Owns: which versions of a row stay below the retained timestamp. A read at or above that timestamp
sees the same before and after. The exception is expired versions, if the table's owner lets even
the newest version expire (`min_data_versions=0`). This module knows no tablets and no clock.
Timestamps are arguments, so that replay gets the same versions.
Source: the YTsaurus document, "Row cleanup".
"""

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple

from dodona_tablets.core.rows.version import Version, bits_of, delta_mask_of, version_of
from dodona_wire.rows.aggregates import combine
from dodona_wire.rows.schema import Column
from dodona_wire.types import DELETE_MASK, MAX_TIMESTAMP, NULL_TIMESTAMP, TableSettings, Timestamp

STEP_VERSIONS_MAX: Final = 500
"""The most versions that one step looks at. A row with frequent writes may have a million."""
COUNTED_VERSIONS_MAX: Final = 10_000
"""The most younger versions that are counted. With a higher `max_data_versions`, more versions than
that setting may stay."""

_ALL_COLUMNS: Final = -1


class Terms(NamedTuple):
    """What may go: all versions older than `retained`, except those that the settings keep. A
    version older than `expired` has outlived `max_data_ttl`.

    The caller has all versions below `major`, of every row. From `major` on, other stores may have
    more versions of the same rows, older and younger ones. `major` is the timestamp of the oldest
    version in those stores. It is `MAX_TIMESTAMP` if there are none.
    """

    retained: Timestamp
    expired: Timestamp
    settings: TableSettings
    major: Timestamp = MAX_TIMESTAMP

    def kept_for(self, oldest: Timestamp | None) -> "Terms":
        """Return terms under which readers at `oldest` and later lose no version, not even an
        expired one. `oldest` is None if there are no readers."""
        if oldest is None:
            return self
        return Terms(min(self.retained, oldest), NULL_TIMESTAMP, self.settings, self.major)


def retire(versions: list[Version], terms: Terms, columns: Sequence[Column]) -> bool:
    """Remove, in place, what the terms do not keep: one step, from the oldest version on.

    Changes of aggregates become plain values, and old shared locks are forgotten. Returns whether
    anything changed. `columns` are all value columns.
    """
    return _retire(versions, STEP_VERSIONS_MAX, terms, columns)


def retire_all(versions: list[Version], terms: Terms, columns: Sequence[Column]) -> bool:
    """Do the same as `retire` in one step. The number of the row's versions bounds its time.

    A store has only a part of a row, and stores may be compacted in any order. A reader at or above
    `retained` still sees the same before and after. Below both `retained` and `major`, the history
    of a row is complete, and the rules hold as they are. For `major` ≤ timestamp < `retained`,
    these rules hold:

    - A value goes only if a younger plain value of its column, or a younger deletion, is here and
      below `retained`. Every reader then sees the younger one, even if more versions lie between
      the two elsewhere. The newest value stays even if it has expired. It may hide values elsewhere
      that have not expired.
    - A change of an aggregate stays a change, since the value that it changes may be elsewhere. If
      that value is here, it stays too.
    - The newest deletion stays, since the versions that it deletes may be elsewhere.

    Versions elsewhere are not counted. So more versions may stay than necessary.
    """
    return _retire(versions, len(versions), terms, columns)


def _retire(
    versions: list[Version], count_max: int, terms: Terms, columns: Sequence[Column]
) -> bool:
    end = bisect_left(versions, terms.retained, key=_timestamp_of)
    old = versions[: min(end, count_max)]
    if not old or (len(old) == 1 and _may_stay(old[0], terms)):
        return False
    values = [dict(zip(bits_of(it[1]), it[2], strict=True)) for it in old]
    known = bisect_left(old, terms.major, key=_timestamp_of)
    _fold_changes(old[:known], values[:known], columns)
    _drop_values(old, values, versions, terms, columns)
    left = _left_of(old, values, terms)
    if left == old:
        return False
    versions[: len(old)] = left
    return True


def _timestamp_of(version: Version) -> Timestamp:
    return version[0]


def _may_stay(only: Version, terms: Terms) -> bool:
    is_plain_write = len(only) == 4 and only[1] != DELETE_MASK
    oldest_kept = min(terms.expired, terms.major)
    return is_plain_write and (terms.settings.min_data_versions > 0 or only[0] >= oldest_kept)


def _fold_changes(
    old: list[Version], values: list[dict[int, Any]], columns: Sequence[Column]
) -> None:
    """Fold each run of changes, with the value below them, into one value at the newest of them.

    No transaction can commit below any more. So changes without a value below become a value, too.
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
    """Remove values, column by column, newest first. The first `min_data_versions` stay. More stay
    while, with the younger ones, they are at most `max_data_versions`, and none has expired.
    Deletions count in every column.

    A value that no plain value hides stays until it has expired, since readers at the retained
    timestamp see it. If there are younger versions, such a value of an aggregate stays even longer:
    the younger versions may be changes of that value.
    """
    least, most = terms.settings.min_data_versions, terms.settings.max_data_versions
    younger, seen, hidden = _Counts(), _Counts(), 0
    if most > least:
        for version in versions[len(old) : len(old) + COUNTED_VERSIONS_MAX]:
            younger.add(version[1])
    has_younger = len(old) < len(versions) or terms.major < MAX_TIMESTAMP
    for version, given in zip(reversed(old), reversed(values), strict=True):
        is_fresh = version[0] >= terms.expired
        is_known = version[0] < terms.major
        mask = mask_of(given)
        plain = mask if is_known else mask & ~delta_mask_of(version)
        for bit in list(given):
            place = seen.of(bit)
            may_be_base = has_younger and columns[bit].aggregate
            is_needed = not hidden >> bit & 1 and (is_fresh or not is_known or may_be_base)
            is_allowed = is_fresh and place + younger.of(bit) < most
            if not (place < least or is_needed or is_allowed):
                del given[bit]
        if mask or version[1] == DELETE_MASK:
            seen.add(mask)
        hidden |= _ALL_COLUMNS if version[1] == DELETE_MASK else plain


def _left_of(old: list[Version], values: list[dict[int, Any]], terms: Terms) -> list[Version]:
    """Return the versions that these values leave. A deletion stays only if an older version stays,
    or may be elsewhere."""
    left: list[Version] = []
    newest_deletion = next((it for it in reversed(old) if it[1] == DELETE_MASK), None)
    for version, kept in zip(old, values, strict=True):
        is_known = version[0] < terms.major
        if version[1] == DELETE_MASK:
            if left or (version is newest_deletion and not is_known):
                left.append(version)
        elif len(version) == 4 and len(kept) == len(version[2]):
            left.append(version)
        elif kept:
            left.append(_version_of(version, kept, is_known))
    return left


def _version_of(version: Version, kept: dict[int, Any], is_known: bool) -> Version:
    mask = mask_of(kept)
    changes = 0 if is_known else delta_mask_of(version) & mask
    return version_of(version[0], mask, tuple(kept.values()), None, changes)


def mask_of(bits: Iterable[int]) -> int:
    """Return the mask that has these bits set."""
    return sum(1 << bit for bit in bits)


class _Counts:
    """The number of versions of each column. A deletion counts for all columns."""

    def __init__(self) -> None:
        self._deletions = 0
        self._values: dict[int, int] = {}

    def add(self, mask: int) -> None:
        self._deletions += mask == DELETE_MASK
        for bit in bits_of(mask):
            self._values[bit] = self._values.get(bit, 0) + 1

    def of(self, bit: int) -> int:
        return self._deletions + self._values.get(bit, 0)
