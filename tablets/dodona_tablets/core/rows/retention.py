"""Which versions of a row may go: the rules of retention, as one pure function.

Owns: what is left of a row's versions below the retained timestamp. Whoever reads at or above it
sees the same before and after, except for what has expired where the table's owner lets even the
newest version expire (`min_data_versions=0`). Knows no tablets and no time: timestamps are
arguments, so that replay comes to the same versions.
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
"""So many versions one step looks at: a row that is written all the time may have a million."""
COUNTED_VERSIONS_MAX: Final = 10_000
"""So many younger versions are counted; whoever sets `max_data_versions` higher may keep more."""

_ALL_COLUMNS: Final = -1


class Terms(NamedTuple):
    """What may go: of what is older than `retained`, all but what the settings keep. What is older
    than `expired` has outlived `max_data_ttl`.

    All versions below `major` are at hand, of every row. What is younger may have others beside
    it, older ones and younger ones, in stores that nobody looks at now: `major` is the timestamp
    of their oldest version, or `MAX_TIMESTAMP` if there are none.
    """

    retained: Timestamp
    expired: Timestamp
    settings: TableSettings
    major: Timestamp = MAX_TIMESTAMP

    def kept_for(self, oldest: Timestamp | None) -> "Terms":
        """The same, but that readers at `oldest` and later see nothing go: not even what expires.
        None if there are none."""
        if oldest is None:
            return self
        return Terms(min(self.retained, oldest), NULL_TIMESTAMP, self.settings, self.major)


def retire(versions: list[Version], terms: Terms, columns: Sequence[Column]) -> bool:
    """Take away, in place, what the terms do not keep: one step, from the oldest version on.

    Changes of aggregates become plain values, and the locks of long ago are forgotten. Returns
    whether anything changed. `columns` are all value columns.
    """
    return _retire(versions, STEP_VERSIONS_MAX, terms, columns)


def retire_all(versions: list[Version], terms: Terms, columns: Sequence[Column]) -> bool:
    """As `retire`, but all in one step, whose time the row's versions bound.

    A store knows part of a row only, but stores that are compacted in any order show a reader at
    or above `retained` the same before and after. Below both `retained` and `major` a row's history
    is whole, and the rules hold as they are. Above, where `major` ≤ timestamp < `retained`:

    - A value goes only if a younger plain value of its column, or a younger deletion, is here and
      below `retained`: that hides it from every reader, whatever lies between them elsewhere. The
      newest stays even if it has expired: it may hide what lies elsewhere and has not.
    - A change of an aggregate stays a change, since what it changes may lie elsewhere; and if that
      is here it stays too.
    - Of deletions the newest stays, since what it deletes may lie elsewhere.

    The counts of versions leave out those elsewhere, so that more may stay than has to.
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

    What no plain value hides stays until it has expired, since readers at the retained timestamp
    see it; and if there are younger versions an aggregate's stays, since they may be changes of it.
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
    """The versions that these values leave. A deletion is there for what is older."""
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
    """The mask that has these bits set."""
    return sum(1 << bit for bit in bits)


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
