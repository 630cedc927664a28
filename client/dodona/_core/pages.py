"""A table page by page: all that a held snapshot has of it, or its first rows. Pure.

Owns: the place of such a scan. It is a key, so that tablets may move or be cut between two pages;
one page is asked for at a time, and kept by nobody here.
"""

from collections.abc import Sequence
from typing import Any, ClassVar, NamedTuple

from dodona._core.arrow import arrow_schema, table_of
from dodona._core.context import Context, expect
from dodona._core.fan_out import fan_out, may_read_again
from dodona._core.holding import Hold
from dodona._core.messages import ArrowPage, Failure, Reply, Scan, ScanArrow, ScanPage, Tablet
from dodona._core.own_writes import overlay_range
from dodona._core.reading import Projection, ReadAt, ScanQuestion, checked_route, range_of
from dodona._core.routing import TableRoute
from dodona._core.rows import Rows
from dodona._core.steps import Protocol
from dodona.errors import Unavailable
from dodona.types import KEY_MIN, SYNC_LAST_COMMITTED, Key


class Pages:
    """One scan. Ask for the `next` page until it `is_over`."""

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
        self._begun: tuple[Projection, ScanQuestion] | None = None
        self._lower = self._upper = KEY_MIN
        self.is_over = False

    def next(self) -> Protocol[Any]:
        """→ a `pyarrow.Table`, of no rows perhaps. Raises what `read_arrow` does, and
        SnapshotTooOld if the snapshot was not held without a break."""
        return self._context.unless_stale(self._path, self._next)

    def _next(self) -> Protocol[Any]:
        assert not self.is_over, "a scan that is over has no next page"
        context = self._context
        self._hold.check(context.instant_us())
        route = yield from context.route(self._path)
        projection, question = self._begin(route)
        found = arrow_schema(route.schema, projection.mask).empty_table()
        if self._lower < self._upper:
            job = _PageJob(question, self._lower, self._upper)
            yield from fan_out(context, [(route, job)])
            assert job.resume > self._lower, "a scan must move on"
            self._lower, found = job.resume, table_of(job.page.batch)
        self._hold.check(context.instant_us())
        self.is_over = self._lower >= self._upper
        return found.select(list(projection.names))

    def _begin(self, route: TableRoute) -> tuple[Projection, ScanQuestion]:
        """What is asked for; the same for all pages. Raises Unavailable if it can't be any more."""
        if self._begun is None:
            self._lower, self._upper = range_of(route.schema, *self._ends)
            projection = Projection(route.schema, self._columns)
            is_newest = self._hold.is_fresh and route.atomicity == "none"
            at = ReadAt(SYNC_LAST_COMMITTED if is_newest else self._hold.timestamp)
            limit = self._context.limits.rows_per_page_max
            question = ScanQuestion(projection.wire_mask, at, limit, ArrowPage)
            self._begun = projection, question
        elif route.schema != self._begun[0].schema:
            raise Unavailable("the table's schema changed meanwhile", table=self._path)
        return self._begun


class FirstRows(NamedTuple):
    """The first rows of a range; `next` is the key behind them, None if there is none."""

    rows: Rows
    next: tuple[Any, ...] | None


def first_rows(
    context: Context,
    path: str,
    count: int,
    lower: Sequence[Any] | None,
    upper: Sequence[Any] | None,
    columns: Sequence[str] | None,
    at: ReadAt,
) -> Protocol[FirstRows]:
    """At most `count` rows of lower ≤ key < upper, and no more read than needed for that."""
    schema = (yield from checked_route(context, path, at)).schema
    projection = Projection(schema, columns)
    begin, end = range_of(schema, lower, upper)
    # One more row shows that there are more; each own deletion may take one away.
    wanted_count = count + 1 + (0 if at.own is None else len(at.own.writes))
    rows: list[tuple[Key, tuple[Any, ...]]] = []
    first = begin
    while first < end and len(rows) < wanted_count:
        limit = min(context.limits.rows_per_page_max, wanted_count - len(rows))
        job = _PageJob(ScanQuestion(projection.wire_mask, at, limit, ScanPage), first, end)
        route = yield from checked_route(context, path, at)
        if route.schema != schema:
            raise Unavailable("the table's schema changed meanwhile", table=path)
        yield from fan_out(context, [(route, job)])
        assert job.resume > first, "a scan must move on"
        rows += zip(job.page.keys, job.page.rows, strict=True)
        first = job.resume
    if at.own is not None:
        rows = list(overlay_range(at.own, projection.mask, begin, first, rows))
    behind = schema.decode_key(rows[count][0]) if len(rows) > count else None
    shown = [projection.row(key, values) for key, values in rows[:count]]
    return FirstRows(Rows(projection.columns, shown), behind)


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
