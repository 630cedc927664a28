"""What a held snapshot has of a table, page by page: for more rows than memory has. Pure.

Owns: the place of such a scan. It is a key, so that tablets may move or be cut between two pages;
one page is asked for at a time, and kept by nobody here.
"""

from collections.abc import Sequence
from typing import Any, ClassVar

from dodona._core.arrow import arrow_schema, table_of
from dodona._core.context import Context, expect
from dodona._core.fan_out import fan_out, may_read_again
from dodona._core.holding import Hold
from dodona._core.messages import ArrowPage, Failure, Reply, Scan, ScanArrow, Tablet
from dodona._core.reading import Projection, ReadAt, ScanQuestion, range_of
from dodona._core.routing import TableRoute
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
            self._lower, found = job.resume, table_of(job.batch)
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


class _PageJob:
    """The first page of a range of keys."""

    is_write: ClassVar[bool] = False

    def __init__(self, question: ScanQuestion, lower: Key, upper: Key) -> None:
        self._question = question
        self._lower = lower
        self._upper = upper
        self._tablet_upper = upper
        self.resume = lower
        self.batch = b""

    def divide(self, route: TableRoute) -> list[tuple[Tablet, "_PageJob"]]:
        (tablet, _, self._tablet_upper), *_ = route.parts_of(self._lower, self._upper)
        return [(tablet, self)]

    def request(self, tablet: Tablet) -> Scan | ScanArrow:
        return self._question.request(tablet, self._lower, self._tablet_upper)

    def accept(self, reply: Reply) -> None:
        page = expect(reply, ArrowPage)
        self.batch = page.batch
        self.resume = self._tablet_upper if page.resume is None else page.resume

    def refuse(self, failure: Failure) -> bool:
        return may_read_again(failure)
