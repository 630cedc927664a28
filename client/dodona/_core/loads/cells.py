"""Open a load in all cells before rows are staged, and close it in all cells at its end. Pure.

Owns: the requests about a load to every cell of the cluster, and what the answers mean together.
All cells have the load, since a tablet may be in any cell when a batch arrives.
"""

from collections.abc import Callable, Iterable
from typing import Final

from dodona._core.loads.ticket import LoadTicket
from dodona._core.protocol.context import Context, error_of, expect
from dodona._core.protocol.retry import Patience, wait_or_raise
from dodona._core.protocol.steps import Calls, Protocol
from dodona_wire.cores.fault_points import FaultPoint
from dodona_wire.errors import LoadEnded, Unavailable
from dodona_wire.messages.base import Failure
from dodona_wire.messages.catalog import Cluster, GetCluster
from dodona_wire.messages.data import DataRequest
from dodona_wire.messages.families import Reply
from dodona_wire.messages.loads import CloseLoad, LoadHeld, OpenLoad, PeekLoad, RenewLoad
from dodona_wire.types import CellId, LoadId, TabletId

ASK_AGAIN_KINDS: Final = frozenset({"unavailable", "overloaded"})


def open_everywhere(context: Context, ticket: LoadTicket) -> Protocol[None]:
    """Open the load in all cells. Raises the refusal of a cell, or Unavailable if a cell does not
    answer: its tablets could take no rows of the load."""
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
    """Renew the load once in all cells that can be reached. Raises LoadEnded if no cell has it
    open. (One cell without it may have joined the cluster after the load began.)
    A process that joined a load may know only the cells of its own tables. Tablets may move to
    other cells. So these get the request too, if the master names them."""
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
    """Close the load in all cells that can be reached. In the others its lease ends."""
    if context.fault_at(FaultPoint.LEAVE_LOAD_OPEN):
        return
    try:
        yield from _ask_cells(context, lambda _: CloseLoad(load), None)
    except Unavailable:
        return


def is_alive(context: Context, load: LoadId) -> Protocol[bool | None]:
    """Return whether a cell has the load open. None: a cell does not answer, so this is unknown."""
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
    """Return the answer of every cell. With `patience`, cells that do not answer are asked again.
    Raises Unavailable."""
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
    """Return all cells of the cluster. Raises Unavailable."""
    cluster = yield from context.ask_master_patiently(GetCluster(), Cluster, patience)
    context.routing.learn_cells(cluster)
    return [it.cell for it in cluster.cells]
