"""Read all versions of a row that its tablet still keeps: versioned lookups. Pure.

Owns: the form of the results, how they are made of the answers of cells, and the pages of answers.
A row that is written all the time has more versions than fit into one answer. Source: the YTsaurus
document, "Versioned lookup".
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

import msgspec

from dodona._core.protocol.arguments import check_number
from dodona._core.protocol.attempts import may_read_again
from dodona._core.protocol.context import Context, expect
from dodona._core.protocol.fan_out import Job, fan_out
from dodona._core.protocol.routing import TableRoute
from dodona._core.protocol.steps import Protocol
from dodona._core.reading.reading import Projection, encode_keys, places_by_tablet
from dodona._core.writing.reads import CallReads
from dodona_wire.errors import InvalidRequest
from dodona_wire.messages.base import Failure
from dodona_wire.messages.catalog import Tablet
from dodona_wire.messages.data import LookupVersions, RowVersion, VersionedRows
from dodona_wire.messages.families import Reply
from dodona_wire.rows.values import own_copies
from dodona_wire.shown import shown
from dodona_wire.types import MAX_TIMESTAMP, NULL_TIMESTAMP, Key, Timestamp, WireMask


class VersionedValue(msgspec.Struct, frozen=True, repr_omit_defaults=True):
    """What one commit wrote to one column: a value, or with `aggregate` a change of the value."""

    timestamp: Timestamp
    """The timestamp of that commit."""
    value: Any
    aggregate: bool = False


class VersionedRow(msgspec.Struct, frozen=True):
    """The versions of one row, newest first. The timestamps are those of commits to the row, also
    with a choice of columns. Columns without a write are not in `values`."""

    key: dict[str, Any]
    """All key columns, by name."""
    write_timestamps: list[Timestamp]
    delete_timestamps: list[Timestamp]
    values: dict[str, list[VersionedValue]]
    """The values of each value column, by name."""
    more_below: Timestamp | None = None
    """Set if `limit` left out older versions: pass it as `below` to read them."""


class VersionRange(NamedTuple):
    """Which versions are wanted: since < timestamp < below, and at most `count_max` of the newest
    for each key. 0 means no limit."""

    since: Timestamp = NULL_TIMESTAMP
    below: Timestamp = NULL_TIMESTAMP
    count_max: int = 0


def version_range(since: int, below: int | None, limit: int | None) -> VersionRange:
    """Check and return the versions that a user wants. Raises InvalidRequest."""
    for name, bound in (("since", since), ("below", below)):
        is_timestamp = type(bound) is int and NULL_TIMESTAMP <= bound <= MAX_TIMESTAMP
        if bound is not None and not is_timestamp:
            raise InvalidRequest(f"{name} is a timestamp, not {shown(bound)}")
    if below == NULL_TIMESTAMP:
        raise InvalidRequest("below is a timestamp above 0, or None for no bound")
    if limit is not None:
        check_number(limit, "limit", 1)
    return VersionRange(Timestamp(since), Timestamp(below or NULL_TIMESTAMP), limit or 0)


def lookup_versions(
    context: Context,
    path: str,
    keys: Iterable[Mapping[str, Any]],
    columns: Sequence[str] | None,
    timestamp: Timestamp,
    asked: VersionRange,
    reads: CallReads | None = None,
) -> Protocol[list[VersionedRow | None]]:
    """Return the versions of these keys up to a timestamp, in the order of the keys, with None for
    a missing row."""
    route = yield from context.route(path)
    encoded = encode_keys(route, keys)
    projection = Projection(route.schema, columns)
    if reads is not None:
        reads.note_keys(route, encoded, 0)  # the times of writes are those of all groups
    question = _Question(projection.wire_mask, timestamp, asked)
    found = [_Found() for _ in encoded]
    limit = context.limits.keys_per_request_max
    job = _VersionsJob(encoded, range(len(encoded)), question, found, limit)
    moved = None if reads is None else reads.follow
    yield from fan_out(context, [(route, job)], moved=moved)
    return [
        _row(projection, key, its) if its.versions else None
        for key, its in zip(encoded, found, strict=True)
    ]


class _Question(NamedTuple):
    mask: WireMask
    timestamp: Timestamp
    range: VersionRange


class _Found:
    """The versions of one key that were found so far, newest first."""

    __slots__ = ("is_cut", "versions")

    def __init__(self) -> None:
        self.versions: list[RowVersion] = []
        self.is_cut = False
        """Whether there are older versions that were not asked for."""


class _VersionsJob:
    """Some keys whose versions are still to be read, as indexes in the caller's list. An earlier
    page may have some versions of the first key. If the number of versions is limited, that key is
    then asked for alone."""

    is_write: ClassVar[bool] = False
    __slots__ = ("_found", "_keys", "_limit", "_places", "_question")

    def __init__(
        self,
        keys: list[Key],
        places: Sequence[int],
        question: _Question,
        found: list[_Found],
        limit: int,
    ) -> None:
        self._keys = keys
        self._places = places
        self._question = question
        self._found = found
        self._limit = limit

    def divide(self, route: TableRoute) -> list[tuple[Tablet, Job]]:
        parts = places_by_tablet(route, self._keys, self._places, self._limit)
        return [(tablet, self._part(places)) for tablet, places in parts]

    def _part(self, places: Sequence[int]) -> "_VersionsJob":
        return _VersionsJob(self._keys, places, self._question, self._found, self._limit)

    def request(self, tablet: Tablet) -> LookupVersions:
        mask, timestamp, (since, below, count_max) = self._question
        known, places = self._found[self._places[0]].versions, self._places
        if known and count_max:
            places, count_max = places[:1], count_max - len(known)
        return LookupVersions(
            tablet.tablet,
            tablet.revision,
            timestamp,
            tuple([self._keys[place] for place in places]),
            mask,
            since,
            below,
            count_max,
            known[-1].timestamp if known else NULL_TIMESTAMP,
            is_paged=True,
        )

    def accept(self, reply: Reply) -> "_VersionsJob | None":
        page = expect(reply, VersionedRows)
        if not page.is_paged and any(self._question.range):
            raise InvalidRequest(
                "A cell runs an older version of Dodona, which does not support since, below and "
                "limit. Upgrade the nodes, or leave these arguments out."
            )
        assert page.rows, "a page of versions must move on"
        assert page.rows[-1] or not page.is_within, "a page of versions must move on"
        for place, versions in zip(self._places, page.rows, strict=False):
            self._found[place].versions += versions
        for at in page.cut:
            self._found[self._places[at]].is_cut = True
        rest = self._places[len(page.rows) - page.is_within :]
        return self._part(rest) if rest else None

    def refuse(self, failure: Failure) -> bool:
        return may_read_again(failure)


def _row(projection: Projection, key: Key, found: _Found) -> VersionedRow:
    schema, versions = projection.schema, found.versions
    values: dict[str, list[VersionedValue]] = {
        column.name: [] for column in schema.columns_of(projection.mask)
    }
    for version in versions:
        columns = schema.columns_of(schema.plain_mask(version.column_mask))
        deltas = {it.name for it in schema.columns_of(schema.plain_mask(version.delta_mask))}
        stored = own_copies(version.values)
        loaded = schema.load_values(schema.plain_mask(version.column_mask), stored)
        for column, value in zip(columns, loaded, strict=True):
            item = VersionedValue(version.timestamp, value, column.name in deltas)
            values[column.name].append(item)
    return VersionedRow(
        dict(zip(schema.key_names, schema.decode_key(key), strict=True)),
        [version.timestamp for version in versions if not version.is_delete],
        [version.timestamp for version in versions if version.is_delete],
        {name: items for name, items in values.items() if items},
        versions[-1].timestamp if found.is_cut else None,
    )
