"""Read how the rows of a table changed between two timestamps, as versions. Pure.

Owns: the position of such a scan, what users see of a version, and the counts of versions by time.
The position is a key and a timestamp within the row, so tablets may move or be divided between two
pages.
One page is read at a time, and this module keeps none. pyarrow is imported on first use.
"""

from collections.abc import Sequence
from typing import Any, ClassVar, Final

from msgspec.structs import replace

from dodona._core.protocol.altered import error_of_change
from dodona._core.protocol.arguments import check_number
from dodona._core.protocol.attempts import may_read_again, unless_stale
from dodona._core.protocol.context import Context, expect
from dodona._core.protocol.fan_out import Job, fan_out
from dodona._core.protocol.routing import TableRoute
from dodona._core.protocol.steps import Protocol
from dodona._core.reading.reading import Projection, range_of
from dodona_wire.errors import InvalidRequest, MetadataChanged
from dodona_wire.messages.base import Failure
from dodona_wire.messages.catalog import Tablet
from dodona_wire.messages.data import ArrowPage, CountVersions, ScanVersions
from dodona_wire.messages.families import Reply
from dodona_wire.rows.schema import TableSchema
from dodona_wire.types import (
    DELETE_MASK,
    KEY_MIN,
    MAX_TIMESTAMP,
    MIN_TIMESTAMP,
    NULL_TIMESTAMP,
    Revision,
    TabletId,
    Timestamp,
)

TIMESTAMP: Final = "$timestamp"
CHANGE_TYPE: Final = "$change_type"
COLUMNS: Final = "$columns"
AGGREGATED: Final = "$aggregated"
WRITE, UPDATE, DELETE = "write", "update", "delete"
CHANGE_TYPES: Final = (WRITE, UPDATE, DELETE)
"""The kinds of versions. A write sets all value columns. An update sets some of them, or has
changes of aggregates. A deletion sets none."""
_MASK: Final = "$mask"
_DELTA: Final = "$delta"
_COUNT: Final = "$count"

Bound = Sequence[Any] | None


def read_until(context: Context, since: int, timestamp: int | None) -> Protocol[Timestamp]:
    """Return the last timestamp of the changes: a fresh one for None. Raises InvalidRequest."""
    check_number(since, "since", NULL_TIMESTAMP, MAX_TIMESTAMP)
    if timestamp is None:
        timestamp = yield from context.generate_timestamp()
    check_number(timestamp, "timestamp", MIN_TIMESTAMP, MAX_TIMESTAMP)
    if since > timestamp:
        raise InvalidRequest(
            "`since` is above `timestamp`. Pass a lower `since`.",
            since=since,
            timestamp=timestamp,
        )
    return Timestamp(timestamp)


# ---- page by page


class ChangePages:
    """One scan of changes. Call `next` for each page until `is_over`."""

    def __init__(
        self,
        context: Context,
        path: str,
        since: Timestamp,
        timestamp: Timestamp,
        ends: tuple[Bound, Bound],
        columns: Sequence[str] | None,
    ) -> None:
        self.timestamp = timestamp
        self.is_over = False
        self._context = context
        self._path = path
        self._since = since
        self._ends = ends
        self._columns = columns
        self._begun: tuple[TableRoute, Projection] | None = None
        self._lower = self._upper = KEY_MIN
        self._lower_timestamp = NULL_TIMESTAMP
        self._is_under_way = False

    def next(self) -> Protocol[Any]:
        """Return the next page, a `pyarrow.Table` which may have no rows. Raises the errors of
        other reads, and SnapshotTooOld if some of the changes may have been removed."""
        return unless_stale(self._context, self._path, self._next)

    def _next(self) -> Protocol[Any]:
        assert not self.is_over, "a scan that is over has no next page"
        route = yield from self._context.route(self._path)
        projection = self._begin(route)
        if self._lower >= self._upper:
            self.is_over = True
            return changes_schema(projection).empty_table()
        job = _PageJob(
            ScanVersions(
                TabletId(0),  # the job sets it
                Revision(0),
                self._since,
                self.timestamp,
                self._lower,
                self._upper,
                projection.wire_mask,
                self._context.limits.rows_per_page_max,
                self._lower_timestamp,
            )
        )
        try:
            yield from fan_out(self._context, [(route, job)])
        except MetadataChanged:
            if not self._is_under_way:
                self._begun = None  # no page was returned yet: use the new schema
            raise
        self._is_under_way = True
        page = job.page
        assert job.resume > self._lower or page.resume_timestamp, "a scan must move on"
        self._lower, self._lower_timestamp = job.resume, page.resume_timestamp
        self.is_over = self._lower >= self._upper
        return changes_of(projection, projection.table(page.batch))

    def _begin(self, route: TableRoute) -> Projection:
        """Return the columns that the scan reads, which are the same for all pages. Raises
        MetadataChanged if that is no longer possible."""
        if self._begun is None:
            self._lower, self._upper = range_of(route.schema, *self._ends)
            self._begun = route, Projection(route.schema, self._columns)
        known, projection = self._begun
        error = error_of_change(known, route, "this read")
        if error is not None:
            raise error
        return projection


class _PageJob:
    """The first page of a range of keys."""

    is_write: ClassVar[bool] = False

    def __init__(self, question: ScanVersions) -> None:
        """Make a job for the tablet that has the first key."""
        self._question = question
        self._upper = question.upper
        self.resume = question.lower
        self.page: ArrowPage

    def divide(self, route: TableRoute) -> list[tuple[Tablet, "_PageJob"]]:
        (tablet, _, self._upper), *_ = route.parts_of(self._question.lower, self._question.upper)
        return [(tablet, self)]

    def request(self, tablet: Tablet) -> ScanVersions:
        return replace(
            self._question, tablet=tablet.tablet, revision=tablet.revision, upper=self._upper
        )

    def accept(self, reply: Reply) -> None:
        self.page = expect(reply, ArrowPage)
        self.resume = self._upper if self.page.resume is None else self.page.resume

    def refuse(self, failure: Failure) -> bool:
        return may_read_again(failure)


# ---- what users see of a version


def changes_of(projection: Projection, table: Any) -> Any:
    """Return a page of versions as a `pyarrow.Table`: the wanted columns, and for each version:

    - `$timestamp`, uint64: the timestamp of its commit.
    - `$change_type`, text: "write" sets all value columns, "delete" deletes the row, "update" sets
      some of them, or changes aggregates.
    - `$columns`, list of text: which of the wanted columns it sets, if it does not set all columns
      of the table. It is null for a write and for a deletion.
    - `$aggregated`, list of text, only if a wanted column is an aggregate: the columns whose value
      is a change. It is null if there are none.

    There are few masks and many versions, so each mask is decoded once.
    """
    import pyarrow
    import pyarrow.compute

    schema, wanted = projection.schema, projection.mask
    texts = pyarrow.list_(pyarrow.utf8())
    masks, places = _distinct(schema, table.column(_MASK))
    kinds = pyarrow.array([_kind_of(schema, it) for it in masks], pyarrow.int8()).take(places)
    names = [_names(schema, it & wanted) if 0 < it < schema.full_mask else None for it in masks]
    marks = {COLUMNS: pyarrow.array(names, texts).take(places)}
    if _DELTA in table.schema.names:
        deltas, places = _distinct(schema, table.column(_DELTA))
        has_changes = pyarrow.array([it != 0 for it in deltas], pyarrow.bool_()).take(places)
        update = pyarrow.scalar(CHANGE_TYPES.index(UPDATE), pyarrow.int8())
        kinds = pyarrow.compute.if_else(has_changes, update, kinds)
        if schema.aggregate_mask & wanted:
            names = [_names(schema, it & wanted) or None for it in deltas]
            marks[AGGREGATED] = pyarrow.array(names, texts).take(places)
    kind_names = pyarrow.array(CHANGE_TYPES, pyarrow.utf8())
    columns = {name: table.column(name) for name in (*projection.names, TIMESTAMP)}
    columns[CHANGE_TYPE] = pyarrow.DictionaryArray.from_arrays(kinds, kind_names)
    arrow_schema = changes_schema(projection)
    return pyarrow.table(columns | marks, schema=arrow_schema)


def changes_schema(projection: Projection) -> Any:
    """Return the `pyarrow.Schema` of the tables that `changes_of` returns."""
    import pyarrow

    from dodona_wire.rows.arrow import arrow_type

    texts = pyarrow.list_(pyarrow.utf8())
    fields = [
        pyarrow.field(it.name, arrow_type(it), nullable=not (it.required and it.sort_order))
        for it in projection.columns
    ]
    fields.append(pyarrow.field(TIMESTAMP, pyarrow.uint64(), nullable=False))
    kinds = pyarrow.dictionary(pyarrow.int8(), pyarrow.utf8())
    fields.append(pyarrow.field(CHANGE_TYPE, kinds, nullable=False))
    fields.append(pyarrow.field(COLUMNS, texts))
    if projection.schema.aggregate_mask & projection.mask:
        fields.append(pyarrow.field(AGGREGATED, texts))
    return pyarrow.schema(fields)


def _distinct(schema: TableSchema, masks: Any) -> tuple[list[int], Any]:
    """Return the masks of a column, each once, and for each row the index of its mask."""
    encoded = masks.combine_chunks().dictionary_encode()
    return [schema.plain_mask(it) for it in encoded.dictionary.to_pylist()], encoded.indices


def _kind_of(schema: TableSchema, mask: int) -> int:
    if mask == DELETE_MASK:
        return CHANGE_TYPES.index(DELETE)
    return CHANGE_TYPES.index(WRITE if mask == schema.full_mask else UPDATE)


def _names(schema: TableSchema, mask: int) -> list[str]:
    return [column.name for column in schema.columns_of(mask)]


# ---- counts of versions


def count_changes(
    context: Context, path: str, since: Timestamp, timestamp: Timestamp, ends: tuple[Bound, Bound]
) -> Protocol[list[tuple[Timestamp, int]]]:
    """Return how many versions there are, in steps of time."""
    from dodona_wire.rows.arrow import table_of

    route = yield from context.route(path)
    lower, upper = range_of(route.schema, *ends)
    found: list[Any] = []
    question = CountVersions(TabletId(0), Revision(0), since, timestamp, lower, upper)
    yield from fan_out(context, [(route, _CountJob(question, found))])
    counts: dict[int, int] = {}
    for page in found:
        steps = table_of(page.batch)
        stamps = steps.column(TIMESTAMP).to_pylist()
        for at, count in zip(stamps, steps.column(_COUNT).to_pylist(), strict=True):
            counts[at] = counts.get(at, 0) + count
    return [(Timestamp(at), counts[at]) for at in sorted(counts)]


class _CountJob:
    """A range of keys in which the versions are still to be counted."""

    is_write: ClassVar[bool] = False

    def __init__(self, question: CountVersions, found: list[Any]) -> None:
        self._question = question
        self._found = found

    def divide(self, route: TableRoute) -> list[tuple[Tablet, Job]]:
        return [
            (tablet, _CountJob(replace(self._question, lower=lower, upper=upper), self._found))
            for tablet, lower, upper in route.parts_of(self._question.lower, self._question.upper)
        ]

    def request(self, tablet: Tablet) -> CountVersions:
        return replace(self._question, tablet=tablet.tablet, revision=tablet.revision)

    def accept(self, reply: Reply) -> "_CountJob | None":
        page = expect(reply, ArrowPage)
        self._found.append(page)
        if page.resume is None:
            return None
        assert page.resume > self._question.lower, "a count must move on"
        return _CountJob(replace(self._question, lower=page.resume), self._found)

    def refuse(self, failure: Failure) -> bool:
        return may_read_again(failure)
