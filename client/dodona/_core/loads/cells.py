"""A load in the cells: opened in all of them before anything is staged, and closed in all. Pure.

Owns: what is said to every cell of the cluster about a load, and what its answers come to. All
cells have it, since a tablet may be anywhere by the time that a batch comes.
"""

from collections.abc import Callable, Iterable
from typing import Final

from dodona._core.loads.ticket import LoadTicket
from dodona._core.protocol.context import Context, error_of, expect, wait_or_raise
from dodona._core.protocol.retry import Patience
from dodona._core.protocol.steps import Calls, Protocol
from dodona_wire.cores.fault_points import FaultPoint
from dodona_wire.errors import LoadEnded, Unavailable
from dodona_wire.messages.base import Failure
from dodona_wire.messages.catalog import Cluster, GetCluster
from dodona_wire.messages.data import (
    CloseLoad,
    DataRequest,
    LoadHeld,
    OpenLoad,
    PeekLoad,
    RenewLoad,
)
from dodona_wire.messages.families import Reply
from dodona_wire.types import CellId, LoadId, TabletId

ASK_AGAIN_KINDS: Final = frozenset({"unavailable", "overloaded"})


def open_everywhere(context: Context, ticket: LoadTicket) -> Protocol[None]:
    """Raises what a cell refuses with, or Unavailable if one can't be reached: its tablets could
    take nothing of the load."""
    tablets: dict[CellId, list[TabletId]] = {}
    for table in ticket.tables:
        route = yield from context.route(table.path)
        for tablet in route.tablets:
            if tablet.cell is not None:
                tablets.setdefault(tablet.cell, []).append(tablet.tablet)

    def request(cell: CellId) -> OpenLoad:
        held = tuple(tablets.get(cell, ())) if ticket.atomicity == "full" else ()
        return OpenLoad(ticket.load, ticket.atomicity, ticket.lease_ms, ticket.stamp, held)

    for reply in (yield from _ask_cells(context, request, context.patience())).values():
        expect(reply, LoadHeld)


def renew_everywhere(context: Context, load: LoadId) -> Protocol[None]:
    """One attempt, wherever it arrives. Raises LoadEnded if no cell has it open: one alone may have
    come to the cluster later than the load. Who joined a load may know the cells of its own tables
    alone: tablets may move to the others, so these are asked as well, if the master names them."""
    cells = list(context.routing.addresses) or (yield from _cells(context, context.patience()))
    replies = list((yield Calls(tuple([(cell, RenewLoad(load)) for cell in cells]))))
    yield from context.find_cells()
    others = [cell for cell in list(context.routing.addresses) if cell not in cells]
    if others:
        replies += yield Calls(tuple([(cell, RenewLoad(load)) for cell in others]))
    refusals = [reply for reply in replies if isinstance(reply, Failure)]
    if len(refusals) == len(replies) and all(it.kind == LoadEnded.kind for it in refusals):
        raise error_of(refusals[0])


def close_everywhere(context: Context, load: LoadId) -> Protocol[None]:
    """In the cells that can be reached; in the others its lease ends by itself."""
    if context.fault_at(FaultPoint.LEAVE_LOAD_OPEN):
        return
    try:
        yield from _ask_cells(context, lambda _: CloseLoad(load), None)
    except Unavailable:
        return


def is_alive(context: Context, load: LoadId) -> Protocol[bool | None]:
    """Whether some cell has it open; None if that can't be said, since one does not answer."""
    try:
        replies = yield from _ask_cells(context, lambda _: PeekLoad(load), None)
    except Unavailable:
        return None
    held = [reply for reply in replies.values() if isinstance(reply, LoadHeld)]
    if any(reply.lease_ms for reply in held):
        return True
    return False if len(held) == len(replies) else None


def _ask_cells(
    context: Context, request: Callable[[CellId], DataRequest], patience: Patience | None
) -> Protocol[dict[CellId, Reply]]:
    """Every cell's answer; with patience those are asked again that do not answer. Raises
    Unavailable."""
    left: Iterable[CellId] = yield from _cells(context, patience or context.patience())
    answers: dict[CellId, Reply] = {}
    while True:
        cells = list(left)
        at_once = context.limits.requests_in_flight_max
        for start in range(0, len(cells), at_once):
            some = cells[start : start + at_once]
            replies = yield Calls(tuple([(cell, request(cell)) for cell in some]))
            answers.update(zip(some, replies, strict=True))
        silent = {
            cell: reply
            for cell, reply in answers.items()
            if isinstance(reply, Failure) and reply.kind in ASK_AGAIN_KINDS
        }
        if not silent or patience is None:
            return answers
        yield from wait_or_raise(patience, error_of(next(iter(silent.values()))))
        yield from context.find_cells()
        left = silent


def _cells(context: Context, patience: Patience) -> Protocol[list[CellId]]:
    """All cells of the cluster. Raises Unavailable."""
    cluster = yield from context.ask_master_patiently(GetCluster(), Cluster, patience)
    context.routing.learn_cells(cluster)
    return [it.cell for it in cluster.cells]
