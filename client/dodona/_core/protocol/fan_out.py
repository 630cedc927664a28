"""Divide one operation among tablets, and repeat it where a tablet moved. Pure.

Owns: the waves of requests (limited in size), and the loop that refreshes a stale route and divides
the unfinished part again. The job says what may be repeated: reads always, writes only if the first
attempt certainly had no effect.
"""

from collections.abc import Iterable, Sequence
from typing import Any, ClassVar, Final, Protocol

from dodona._core.protocol.altered import error_of_change, error_of_columns
from dodona._core.protocol.context import STALE_ROUTE_KINDS, Context, not_mounted, was_never_sent
from dodona._core.protocol.retry import Patience
from dodona._core.protocol.routing import TableRoute, is_served
from dodona._core.protocol.steps import Calls
from dodona._core.protocol.steps import Protocol as Steps
from dodona_wire.errors import DodonaError, Overloaded, TransactionAborted
from dodona_wire.messages.base import Failure
from dodona_wire.messages.catalog import Tablet
from dodona_wire.messages.data import DataRequest
from dodona_wire.messages.families import Reply

READ_AGAIN_KINDS: Final = frozenset({*STALE_ROUTE_KINDS, "unavailable", "overloaded"})
WRITE_AGAIN_KINDS: Final = frozenset({*STALE_ROUTE_KINDS, "overloaded"})


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


def may_read_again(failure: Failure) -> bool:
    return failure.kind in READ_AGAIN_KINDS


def may_write_again(failure: Failure) -> bool:
    """Return whether a write may be repeated: only if the first attempt certainly had no effect."""
    return failure.kind in WRITE_AGAIN_KINDS or was_never_sent(failure)


def fan_out(
    context: Context, jobs: Iterable[tuple[TableRoute, Job]], *, is_bulk: bool = False
) -> Steps[None]:
    """Do the jobs, each for a table with the schema of its route. Raises the first error that
    retries do not solve. With `is_bulk`, retries wait longer for a full cell."""
    parts: list[TabletPart] = []
    for route, job in jobs:
        fresh = yield from _fresh(context, route, job, None, is_bulk=is_bulk)
        parts += _divide(fresh, job)
    patience: Patience | None = None
    patience_with_full: Patience | None = None
    while parts:
        wave = parts[: context.limits.requests_in_flight_max]
        undone, stale, error = yield from _do_wave(context, wave)
        parts = [*undone, *parts[len(wave) :]]
        if error is not None:
            is_write = any(job.is_write for _, _, job in parts)
            if is_bulk and isinstance(error, Overloaded):
                patience_with_full = patience_with_full or context.patience_with_full()
                bounds = patience_with_full
            else:
                bounds = patience = patience or context.patience()
            yield from context.recover_route(stale, error, bounds, is_write=is_write)
            parts = yield from _divide_again(context, parts, bounds, is_bulk=is_bulk)


def _fresh(
    context: Context, route: TableRoute, job: Job, patience: Patience | None, *, is_bulk: bool
) -> Steps[TableRoute]:
    """Return the current route. If a write finds another schema there, raises TransactionAborted,
    since it can run again, or MetadataChanged if it is bulk data. If a read finds another schema
    or table, raises MetadataChanged."""
    if not route.is_stale:
        return route
    current = yield from context.route(route.path, patience)
    compare = error_of_columns if job.is_write else error_of_change
    error = compare(route, current, "this call")
    if error is not None and job.is_write and not is_bulk:
        raise TransactionAborted(error.message, **error.attributes)
    if error is not None:
        raise error
    return current


def _divide(route: TableRoute, job: Job) -> list[TabletPart]:
    return [(route, tablet, part) for tablet, part in job.divide(route)]


def _divide_again(
    context: Context, parts: list[TabletPart], patience: Patience, *, is_bulk: bool
) -> Steps[list[TabletPart]]:
    fresh: list[TabletPart] = []
    for route, tablet, job in parts:
        if not route.is_stale:
            fresh.append((route, tablet, job))
            continue
        current = yield from _fresh(context, route, job, patience, is_bulk=is_bulk)
        fresh += _divide(current, job)
    return fresh


def _do_wave(
    context: Context, wave: list[TabletPart]
) -> Steps[tuple[list[TabletPart], list[TableRoute], DodonaError | None]]:
    """Return the unfinished parts, the routes that seem stale, and the error that says so."""
    for route, tablet, job in wave:
        if not is_served(tablet, is_write=job.is_write):
            return wave, [route], not_mounted(route, tablet, is_write=job.is_write)
    requests: list[tuple[Any, DataRequest]] = [(it.cell, job.request(it)) for _, it, job in wave]
    replies = yield Calls(tuple(requests))
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
