"""Read a table page by page: all rows in a held snapshot, or the first rows. Pure.

Owns: the position of such a scan. It is a key, so tablets may move or be divided between two pages.
One page is read at a time, and this module keeps none.
"""

from collections.abc import Sequence
from typing import Any, ClassVar, NamedTuple

from dodona._core.protocol.altered import error_of_change
from dodona._core.protocol.attempts import may_read_again, unless_stale
from dodona._core.protocol.context import Context, expect
from dodona._core.protocol.fan_out import fan_out
from dodona._core.protocol.routing import TableRoute
from dodona._core.protocol.steps import Protocol
from dodona._core.reading.holding import Hold
from dodona._core.reading.own_writes import overlay_range
from dodona._core.reading.reading import (
    Projection,
    ReadAt,
    ScanQuestion,
    check_atomicity,
    checked_route,
    range_of,
)
from dodona._core.reading.rows import Rows
from dodona_wire.errors import MetadataChanged
from dodona_wire.messages.base import Failure
from dodona_wire.messages.catalog import Tablet
from dodona_wire.messages.data import ArrowPage, Scan, ScanArrow, ScanPage
from dodona_wire.messages.families import Reply
from dodona_wire.rows.keys import successor
from dodona_wire.rows.sizes import write_bytes
from dodona_wire.types import KEY_MIN, SYNC_LAST_COMMITTED, Key

_KeyedRow = tuple[Key, tuple[Any, ...]]


class Pages:
    """One scan of a table in a held snapshot. Call `next` for each page until `is_over`."""

    def __init__(
        self,
        context: Context,
        hold: Hold,
        path: str,
        lower: Sequence[Any] | None,
        upper: Sequence[Any] | None,
        columns: Sequence[str] | None,
    ) -> None:
        self._context = context
        self._hold = hold
        self._path = path
        self._ends = lower, upper
        self._columns = columns
        self._begun: tuple[TableRoute, Projection, ScanQuestion] | None = None
        self._lower = self._upper = KEY_MIN
        self._is_under_way = False
        self.is_over = False

    def next(self) -> Protocol[Any]:
        """Return the next page, a `pyarrow.Table` which may have no rows. Raises the errors of
        `read_arrow`, and SnapshotTooOld if the snapshot was not held without a gap."""
        return unless_stale(self._context, self._path, self._next)

    def _next(self) -> Protocol[Any]:
        assert not self.is_over, "a scan that is over has no next page"
        self._hold.check(self._context.instant_us())
        try:
            return (yield from self._read())
        except MetadataChanged:
            if not self._is_under_way:
                self._begun = None  # no page was returned yet: use the new table
            raise

    def _read(self) -> Protocol[Any]:
        from dodona_wire.rows.arrow import arrow_schema

        context = self._context
        route = yield from context.route(self._path)
        self._hold.check_table(route)
        projection, question = self._begin(route)
        found = arrow_schema(route.schema, projection.mask).empty_table()
        if self._lower < self._upper:
            job = _PageJob(question, self._lower, self._upper)
            yield from fan_out(context, [(route, job)])
            assert job.resume > self._lower, "a scan must move on"
            self._is_under_way = True
            self._lower, found = job.resume, projection.table(job.page.batch)
        self._hold.check(context.instant_us())
        self.is_over = self._lower >= self._upper
        return found.select(list(projection.names))

    def _begin(self, route: TableRoute) -> tuple[Projection, ScanQuestion]:
        """Return what the scan asks for, which is the same for all pages. Raises MetadataChanged if
        that is no longer possible."""
        if self._begun is None:
            self._lower, self._upper = range_of(route.schema, *self._ends)
            projection = Projection(route.schema, self._columns)
            is_newest = self._hold.is_fresh and route.atomicity == "none"
            at = ReadAt(SYNC_LAST_COMMITTED if is_newest else self._hold.timestamp)
            limit = self._context.limits.rows_per_page_max
            question = ScanQuestion(projection.wire_mask, at, limit, ArrowPage)
            self._begun = route, projection, question
        known, projection, question = self._begun
        error = error_of_change(known, route, "this read")
        if error is not None:
            raise error
        check_atomicity(route, None, question.at)
        return projection, question


class FirstRows(NamedTuple):
    """The first rows of a range. `next` is the key after them, or None if there are no more
    rows."""

    rows: Rows
    next: tuple[Any, ...] | None


def first_rows(
    context: Context,
    path: str,
    count: int,
    bytes_max: int,
    lower: Sequence[Any] | None,
    upper: Sequence[Any] | None,
    columns: Sequence[str] | None,
    at: ReadAt,
) -> Protocol[FirstRows]:
    """Return at most `count` rows of lower ≤ key < upper, with about `bytes_max` bytes together,
    but at least one row. Read no more than needed for that."""
    route = yield from checked_route(context, path, at)
    projection = Projection(route.schema, columns)
    scan = _FirstScan(context, route, at, projection, range_of(route.schema, lower, upper))
    wanted_bytes = bytes_max
    try:
        while True:
            yield from scan.read(count, wanted_bytes)
            rows = scan.shown()
            shown_count = _count_fitting(rows, count, bytes_max)
            if shown_count < len(rows) or scan.is_over:
                break
            wanted_bytes += bytes_max  # own writes made the rows smaller
        if shown_count < len(rows):
            scan.end_behind(rows[shown_count][0])
    finally:
        scan.note()
    behind = route.schema.decode_key(rows[shown_count][0]) if shown_count < len(rows) else None
    row_of = projection.quick_row()
    shown = [row_of(key, values) for key, values in rows[:shown_count]]
    return FirstRows(Rows(projection.columns, shown), behind)


def _count_fitting(rows: Sequence[_KeyedRow], count: int, bytes_max: int) -> int:
    size_bytes = 0
    for place, (key, values) in enumerate(rows[:count]):
        size_bytes += write_bytes((key, 0, values))
        if size_bytes > bytes_max and place:
            return place
    return min(count, len(rows))


class _FirstScan:
    """The rows from the start of a range to a position that moves on."""

    def __init__(
        self,
        context: Context,
        route: TableRoute,
        at: ReadAt,
        projection: Projection,
        keys: tuple[Key, Key],
    ) -> None:
        self._context = context
        self._route = route
        self._at = at
        self._projection = projection
        self._begin, self._end = keys
        self._place = self._begin
        self._own_count = 0 if at.own is None else len(at.own.writes)
        self._rows: list[_KeyedRow] = []
        self._size_bytes = 0
        self._noted: Key | None = None

    @property
    def is_over(self) -> bool:
        return self._place >= self._end

    def read(self, count: int, bytes_max: int) -> Protocol[None]:
        """Read about `count` rows or `bytes_max` bytes from the start on, and one row more, to know
        if there are more. Each own deletion may remove one row."""
        rows = self._rows
        wanted_count, least_count = (it + 1 + self._own_count for it in (count, 1))
        while not self.is_over and len(rows) < wanted_count:
            if self._size_bytes > bytes_max and len(rows) >= least_count:
                return
            yield from self._read_page(wanted_count - len(rows))

    def shown(self) -> Sequence[_KeyedRow]:
        """Return the rows that were read, with own writes on top."""
        if self._at.own is None:
            return self._rows
        mask = self._projection.mask
        return overlay_range(self._at.own, mask, self._begin, self._place, self._rows)

    def end_behind(self, key: Key) -> None:
        """Note that the caller learns no more than that there is a row with this key, and those
        before it."""
        self._noted = successor(key)

    def note(self) -> None:
        """Record what was read, if the transaction does so."""
        if self._at.reads is not None:
            read = self._begin, self._noted or self._place
            self._at.reads.note_ranges(self._route, [read], self._projection.mask)

    def _follow(self, route: TableRoute) -> None:
        """Record the read by this route, which says the isolation of the table now."""
        self._route = route

    def _read_page(self, count: int) -> Protocol[None]:
        context, at = self._context, self._at
        limit = min(context.limits.rows_per_page_max, count)
        question = ScanQuestion(self._projection.wire_mask, at, limit, ScanPage)
        job = _PageJob(question, self._place, self._end)
        route = yield from checked_route(context, self._route.path, at)
        check_atomicity(self._route, route, at)
        error = error_of_change(self._route, route, "this read")
        if error is not None:
            raise error
        self._follow(route)
        yield from fan_out(context, [(route, job)], moved=self._follow)
        assert job.resume > self._place, "a scan must move on"
        page = list(zip(job.page.keys, job.page.rows, strict=True))
        self._rows += page
        self._size_bytes += sum(write_bytes((key, 0, values)) for key, values in page)
        self._place = job.resume


class _PageJob:
    """The first page of a range of keys."""

    is_write: ClassVar[bool] = False

    def __init__(self, question: ScanQuestion, lower: Key, upper: Key) -> None:
        self._question = question
        self._lower = lower
        self._upper = upper
        self._tablet_upper = upper
        self.resume = lower
        self.page: Any = None

    def divide(self, route: TableRoute) -> list[tuple[Tablet, "_PageJob"]]:
        (tablet, _, self._tablet_upper), *_ = route.parts_of(self._lower, self._upper)
        return [(tablet, self)]

    def request(self, tablet: Tablet) -> Scan | ScanArrow:
        return self._question.request(tablet, self._lower, self._tablet_upper)

    def accept(self, reply: Reply) -> None:
        self.page = page = expect(reply, self._question.kind)
        self.resume = self._tablet_upper if page.resume is None else page.resume

    def refuse(self, failure: Failure) -> bool:
        return may_read_again(failure)
