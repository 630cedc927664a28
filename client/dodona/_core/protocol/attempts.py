"""Repeat what failed because the client knew too little: a stale route, or an altered table. Pure.

Owns: what happens between two attempts of one operation. The routes that may be stale are marked,
so that the next attempt asks the master for them. A pause follows, within the patience of the
operation. If none is left, or if the catalog says that no cell will serve the tablet, the failure
is final. A protocol gives an attempt, and the attempt says which failures had no effect.
"""

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, TypeVar

from dodona._core.protocol.context import Context, expect, not_mounted, was_never_sent
from dodona._core.protocol.retry import Patience, wait_or_raise
from dodona._core.protocol.routing import TableRoute, is_soon_served
from dodona._core.protocol.steps import MASTER, Calls, Protocol
from dodona_wire.errors import (
    DodonaError,
    InvalidRequest,
    MetadataChanged,
    TableNotMounted,
    Unavailable,
)
from dodona_wire.messages.base import Failure
from dodona_wire.messages.catalog import GetTable, Table

STALE_ROUTE_KINDS: Final = ("tablet_moved", "table_not_mounted")
READ_AGAIN_KINDS: Final = frozenset({*STALE_ROUTE_KINDS, "unavailable", "overloaded"})
WRITE_AGAIN_KINDS: Final = frozenset({*STALE_ROUTE_KINDS, "overloaded"})

Result = TypeVar("Result")


class Again(NamedTuple):
    """A failure after which another attempt may follow, because this one had no effect."""

    error: DodonaError
    """The error to raise if no attempt is left."""
    routes: Sequence[TableRoute] = ()
    """The routes that may have caused the failure."""
    is_write: bool = False
    is_full: bool = False
    """Whether cells are full of bulk data. Then the client waits longer."""


Attempt = Callable[[Patience | None], Protocol[Result | Again]]
"""Makes one attempt. The argument limits its questions to the master. None: the time does not count
yet, since no attempt has failed."""


def may_read_again(failure: Failure) -> bool:
    return failure.kind in READ_AGAIN_KINDS


def may_write_again(failure: Failure) -> bool:
    """Return whether a write may be repeated: only if the first attempt certainly had no effect."""
    return failure.kind in WRITE_AGAIN_KINDS or was_never_sent(failure)


def repeated(
    context: Context, attempt: Attempt[Result], patience: Patience | None = None
) -> Protocol[Result]:
    """Return the result of the first attempt that does not fail. Raises the error of the last one,
    and what an attempt raises. Without `patience`, the time begins at the first failure."""
    patience_with_full: Patience | None = None
    bounds = patience
    while True:
        done = yield from attempt(bounds)
        if not isinstance(done, Again):
            return done
        if done.is_full:
            bounds = patience_with_full = patience_with_full or context.patience_with_full()
        else:
            bounds = patience = patience or context.patience()
        yield from _recover(context, done, bounds)


def _recover(context: Context, failed: Again, patience: Patience) -> Protocol[None]:
    """Mark the routes as stale and pause. Raises the error if no attempt is left. After the pause,
    raises TableNotMounted if the catalog does not serve the tablet of the error, and will not
    soon."""
    mark_stale(failed.routes)
    yield from wait_or_raise(patience, failed.error)
    if not isinstance(failed.error, TableNotMounted):
        return
    for route in failed.routes:
        fresh = yield from context.route(route.path, patience)
        for tablet in fresh.tablets:
            is_it = tablet.tablet == failed.error.attributes.get("tablet")
            if is_it and not is_soon_served(tablet, is_write=failed.is_write):
                raise not_mounted(fresh, tablet, is_write=failed.is_write)


def mark_stale(routes: Sequence[TableRoute]) -> None:
    """Let the next call that needs one of these routes ask the master for it."""
    for route in routes:
        route.mark_stale()


# ---- after a refusal under a schema that may be old


def unless_stale(
    context: Context, path: str, attempt: Callable[[], Protocol[Result]]
) -> Protocol[Result]:
    """Run an attempt that needs the table's schema and has no effect if it is refused. If a cached
    schema was used, a refusal is not final. Other clients may have altered or replaced the table,
    and no cell has reported that yet."""
    known = context.routing.find(path)
    try:
        return (yield from attempt())
    except InvalidRequest as error:
        if known is None:
            raise
        yield from _other_route(context, known, error)
    except MetadataChanged:  # a read has returned nothing yet, so it begins again
        pass
    return (yield from attempt())


def with_route(
    context: Context, path: str, function: Callable[[TableRoute], Result]
) -> Protocol[Result]:
    """Return the result of a function that sends nothing and needs the table's schema. A refusal
    under a cached schema is not final, as above."""
    route = context.routing.find(path) or (yield from context.route(path))
    while True:
        try:
            return function(route)
        except InvalidRequest as error:
            route = yield from _other_route(context, route, error)


def _other_route(
    context: Context, known: TableRoute, error: InvalidRequest
) -> Protocol[TableRoute]:
    """Return the table's route if its schema or atomicity has changed. Raises `error` if neither
    has changed, or if the master does not answer. `error` is the refusal under the known route."""
    (reply,) = yield Calls(((MASTER, GetTable(known.path)),))
    if isinstance(reply, Failure) and reply.kind == Unavailable.kind:
        raise error
    fresh = context.routing.learn(expect(reply, Table))
    if fresh.schema == known.schema and fresh.atomicity == known.atomicity:
        raise error
    return fresh
