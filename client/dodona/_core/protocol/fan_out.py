"""One operation divided among tablets, and repeated where a tablet moved. Pure.

Owns: waves of requests (bounded), and the loop that refreshes a stale route and divides anew only
what is still undone. What may be repeated is the job's to say: reads always, writes only where
nothing can have come of the first attempt.
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
    """What is to be done in one table, or a part of it."""

    is_write: ClassVar[bool]

    def divide(self, route: TableRoute) -> Sequence[tuple[Tablet, "Job"]]:
        """By tablet, in key order."""
        ...

    def request(self, tablet: Tablet) -> DataRequest:
        """What to ask of the tablet that this job was divided to."""
        ...

    def accept(self, reply: Reply) -> "Job | None":
        """Keep a reply that is no failure. → what is left to do."""
        ...

    def refuse(self, failure: Failure) -> bool:
        """Note a failure. → whether the job may be done again."""
        ...


TabletPart = tuple[TableRoute, Tablet, Job]


def may_read_again(failure: Failure) -> bool:
    return failure.kind in READ_AGAIN_KINDS


def may_write_again(failure: Failure) -> bool:
    """Only if the first attempt left nothing behind."""
    return failure.kind in WRITE_AGAIN_KINDS or was_never_sent(failure)


def fan_out(
    context: Context, jobs: Iterable[tuple[TableRoute, Job]], *, is_bulk: bool = False
) -> Steps[None]:
    """Do a job for each table, made for the schema of this route. Raises the first error that
    can't be waited out: bulk data waits longer for a cell that is full."""
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
    """The route as it is now. If what was made for its schema does not fit, or what was read was of
    another table: raises TransactionAborted where it is a transaction, which is run again, else
    MetadataChanged."""
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
    """→ what is left of the wave, the routes that seem stale, and the error that says so."""
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
            if reply.kind != "overloaded":  # a cell that is busy is where it was
                stale[route.path] = route
            undone.append((route, tablet, job))
        else:
            rest = job.accept(reply)
            if rest is not None:
                undone.append((route, tablet, rest))
    if final is not None:
        raise final
    return undone, list(stale.values()), error
