"""Divide one operation among tablets, and repeat it where a tablet moved. Pure.

Owns: the waves of requests (limited in size), and how the unfinished part is divided again by newer
routes. The job says what may be repeated: reads always, writes only if the first attempt certainly
had no effect.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, ClassVar, Protocol

from dodona._core.protocol.altered import error_of_change, error_of_columns
from dodona._core.protocol.attempts import Again, repeated
from dodona._core.protocol.context import Context, not_mounted
from dodona._core.protocol.retry import Patience
from dodona._core.protocol.routing import TableRoute, is_served
from dodona._core.protocol.steps import Calls
from dodona._core.protocol.steps import Protocol as Steps
from dodona_wire.errors import DodonaError, Overloaded, TransactionAborted
from dodona_wire.messages.base import Failure
from dodona_wire.messages.catalog import Tablet
from dodona_wire.messages.data import DataRequest
from dodona_wire.messages.families import Reply


class Job(Protocol):
    """Work to do in one table, or in a part of a table."""

    is_write: ClassVar[bool]

    def divide(self, route: TableRoute) -> Sequence[tuple[Tablet, "Job"]]:
        """Return parts of the job by tablet, in key order."""
        ...

    def request(self, tablet: Tablet) -> DataRequest:
        """Return the request for the tablet of this job."""
        ...

    def accept(self, reply: Reply) -> "Job | None":
        """Keep a reply that is no failure. Return the job that is left, or None."""
        ...

    def refuse(self, failure: Failure) -> bool:
        """Note a failure. Return whether the job may be repeated."""
        ...


TabletPart = tuple[TableRoute, Tablet, Job]


def fan_out(
    context: Context,
    jobs: Iterable[tuple[TableRoute, Job]],
    *,
    is_bulk: bool = False,
    meanwhile: Callable[[], None] | None = None,
    moved: Callable[[TableRoute], None] | None = None,
) -> Steps[None]:
    """Do the jobs, each for a table with the schema of its route. Raises the first error that
    retries do not solve. With `is_bulk`, retries wait longer for a full cell. `meanwhile` may be
    called in each wave, while the cells work: see `Calls`. `moved` is called with each route that
    replaces a stale one, before a job is sent by it."""
    return repeated(context, _FanOut(context, jobs, is_bulk, meanwhile, moved).attempt)


class _FanOut:
    """The part of the jobs that is not done yet."""

    __slots__ = ("_context", "_is_bulk", "_left", "_meanwhile", "_moved")

    def __init__(
        self,
        context: Context,
        jobs: Iterable[tuple[TableRoute, Job]],
        is_bulk: bool,
        meanwhile: Callable[[], None] | None,
        moved: Callable[[TableRoute], None] | None,
    ) -> None:
        self._context = context
        self._is_bulk = is_bulk
        self._meanwhile = meanwhile
        self._moved = moved
        self._left: Sequence[tuple[TableRoute, Tablet | None, Job]] = [
            (route, None, job) for route, job in jobs
        ]
        """The tablet is None if the job is not divided yet."""

    def attempt(self, patience: Patience | None) -> Steps[Again | None]:
        """Do what is left, wave by wave, until one fails."""
        context = self._context
        parts = yield from self._divided(patience)
        while parts:
            wave = parts[: context.limits.requests_in_flight_max]
            for route, tablet, job in wave:
                if not is_served(tablet, is_write=job.is_write):
                    error = not_mounted(route, tablet, is_write=job.is_write)
                    return self._failed(parts, [route], error)
            requests: list[tuple[Any, DataRequest]] = [
                (tablet.cell, job.request(tablet)) for _, tablet, job in wave
            ]
            replies = yield Calls(tuple(requests), meanwhile=self._meanwhile)
            undone, stale, failure = _judge(context, wave, replies)
            parts = [*undone, *parts[len(wave) :]]
            if failure is not None:
                return self._failed(parts, stale, failure)
        return None

    def _failed(
        self, parts: list[TabletPart], stale: list[TableRoute], error: DodonaError
    ) -> Again:
        self._left = parts
        is_write = any(job.is_write for _, _, job in parts)
        return Again(error, stale, is_write, self._is_bulk and isinstance(error, Overloaded))

    def _divided(self, patience: Patience | None) -> Steps[list[TabletPart]]:
        """Return what is left, divided by routes that are not stale."""
        parts: list[TabletPart] = []
        for route, tablet, job in self._left:
            if tablet is not None and not route.is_stale:
                parts.append((route, tablet, job))
                continue
            if route.is_stale:
                route = yield from self._fresh(route, job, patience)
            for its_tablet, part in job.divide(route):
                parts.append((route, its_tablet, part))
        return parts

    def _fresh(self, route: TableRoute, job: Job, patience: Patience | None) -> Steps[TableRoute]:
        """Return the route that replaces a stale one. If a write finds another schema there, raises
        TransactionAborted, since it can run again, or MetadataChanged if it is bulk data. If a read
        finds another schema or table, raises MetadataChanged."""
        current = yield from self._context.route(route.path, patience)
        compare = error_of_columns if job.is_write else error_of_change
        error = compare(route, current, "this call")
        if error is not None and job.is_write and not self._is_bulk:
            raise TransactionAborted(error.message, **error.attributes)
        if error is not None:
            raise error
        if self._moved is not None:
            self._moved(current)
        return current


def _judge(
    context: Context, wave: list[TabletPart], replies: list[Reply]
) -> tuple[list[TabletPart], list[TableRoute], DodonaError | None]:
    """Return the unfinished parts, the routes that seem stale, and the error that says so. Raises
    the first error after which a job must not be repeated."""
    undone: list[TabletPart] = []
    stale: dict[str, TableRoute] = {}
    error: DodonaError | None = None
    final: DodonaError | None = None
    for (route, tablet, job), reply in zip(wave, replies, strict=True):
        if isinstance(reply, Failure):
            error = context.error_of(reply)
            if not job.refuse(reply):
                final = final or error
            if reply.kind != "overloaded":  # a busy cell has not moved
                stale[route.path] = route
            undone.append((route, tablet, job))
        else:
            rest = job.accept(reply)
            if rest is not None:
                undone.append((route, tablet, rest))
    if final is not None:
        raise final
    return undone, list(stale.values()), error
