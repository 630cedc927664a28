"""Commit of atomic transactions: the client's part of `docs/commit-protocol.md`. Pure.

Owns: what the client says to whom, and what it may report. Rule numbers are the protocol's:
- aborted only on a refusal, or if a participant certainly never got its prepare (rules 13, 17);
- committed only if a cell said so (rules 11, 16, 18);
- neither, while nobody who knows has answered: `CommitOutcomeUnknown` (rules 12, 17).
A time-out is not a refusal. It only makes the client ask.
"""

from collections.abc import Sequence

from dodona._core.context import (
    STALE_ROUTE_KINDS,
    Context,
    error_of,
    not_mounted,
    was_never_sent,
)
from dodona._core.messages import (
    Aborted,
    AskOutcome,
    CommitOne,
    Committed,
    Decide,
    Failure,
    Prepare,
    Prepared,
    Reply,
    Tablet,
    TabletModifications,
)
from dodona._core.retry import Patience
from dodona._core.routing import TableRoute, is_served
from dodona._core.steps import Calls, Post, Protocol
from dodona._core.transaction import TableBuffer, TransactionBuffer
from dodona.errors import (
    CommitOutcomeUnknown,
    DodonaError,
    InvalidRequest,
    SchemaViolation,
    TableNotMounted,
    TabletMoved,
    TransactionAborted,
)
from dodona.types import Atomicity, CellId, TabletId, Timestamp, TransactionId, Write

ASK_AGAIN_KINDS = frozenset({"unavailable", "overloaded"})

Groups = dict[CellId, list[TabletModifications]]


def commit_atomic(context: Context, transaction: TransactionBuffer) -> Protocol[Timestamp]:
    """Commit what is buffered; it is not empty. → the commit timestamp.

    Raises what the cells refused with, TransactionAborted, or CommitOutcomeUnknown.
    """
    assert transaction.id is not None
    patience: Patience | None = None
    while True:
        routes = yield from routes_of(context, transaction, patience)
        stale: DodonaError
        try:
            groups = _group(transaction, routes)
        except TableNotMounted as error:
            stale = error
        else:
            transaction.coordinator = min(groups)
            if len(groups) > 1:
                return (yield from _commit_many(context, transaction.id, groups, routes))
            ((cell, modifications),) = groups.items()
            done = yield from _commit_one(context, transaction.id, cell, modifications)
            if not isinstance(done, Failure):
                return done
            stale = error_of(done)
        patience = patience or context.patience()
        yield from context.recover_route(routes, stale, patience)


# ---- who gets what


def routes_of(
    context: Context, transaction: TransactionBuffer, patience: Patience | None
) -> Protocol[list[TableRoute]]:
    """The routes of all tables that the transaction writes, in the buffer's order. Raises
    InvalidRequest if a table's atomicity is not the transaction's, or its schema changed."""
    routes = []
    for path, buffer in transaction.tables.items():
        route = context.routing.find(path)
        if route is None:
            route = yield from context.route(path, patience)
        check_table(route, buffer, transaction.atomicity)
        routes.append(route)
    return routes


def check_table(route: TableRoute, buffer: TableBuffer, atomicity: Atomicity) -> None:
    """That the rows were made for this table, and may be written in this mode."""
    if route.atomicity != atomicity:
        text = f'Invalid atomicity mode: "{atomicity}" instead of "{route.atomicity}"'
        raise InvalidRequest(text, table=route.path)
    if route.schema is not buffer.schema and route.schema != buffer.schema:
        raise SchemaViolation("the table's schema changed during the transaction", table=route.path)


def _group(transaction: TransactionBuffer, routes: list[TableRoute]) -> Groups:
    """Rows by tablet, tablets by cell. Raises TableNotMounted."""
    by_tablet: dict[TabletId, tuple[Tablet, list[Write]]] = {}
    for route, buffer in zip(routes, transaction.tables.values(), strict=True):
        tablet_of = route.tablet_of
        for key, write in buffer.writes.items():
            tablet = tablet_of(key)
            known = by_tablet.get(tablet.tablet)
            if known is not None:
                known[1].append(write)
            elif is_served(tablet):
                by_tablet[tablet.tablet] = (tablet, [write])
            else:
                raise not_mounted(route, tablet)
    groups: Groups = {}
    for tablet, writes in by_tablet.values():
        assert tablet.cell is not None
        part = TabletModifications(tablet.tablet, tablet.revision, tuple(writes))
        groups.setdefault(tablet.cell, []).append(part)
    return groups


# ---- one cell


def _commit_one(
    context: Context,
    transaction: TransactionId,
    cell: CellId,
    modifications: Sequence[TabletModifications],
) -> Protocol[Timestamp | Failure]:
    """→ a failure only where the cell recorded nothing, so that it may be sent again."""
    (reply,) = yield Calls(((cell, CommitOne(transaction, tuple(modifications))),))
    if type(reply) is Committed:
        return reply.timestamp
    if type(reply) is Failure:
        if reply.kind in STALE_ROUTE_KINDS or was_never_sent(reply):
            return reply
        if reply.kind != "unavailable":
            raise error_of(reply)
    return (yield from _settle(context, transaction, cell, AskOutcome(transaction)))


# ---- several cells


def _commit_many(
    context: Context, transaction: TransactionId, groups: Groups, routes: list[TableRoute]
) -> Protocol[Timestamp]:
    cells = tuple(sorted(groups))
    coordinator = cells[0]
    prepares = tuple([(cell, Prepare(transaction, cells, tuple(groups[cell]))) for cell in cells])
    replies = yield Calls(prepares, is_over_at_refusal=True)
    prepared = [reply.timestamp for reply in replies if type(reply) is Prepared]
    if len(prepared) == len(cells):
        decision = Decide(transaction, cells, max(prepared))  # rule 2
        if context.acknowledgement == "prepared":  # rule 18
            yield Post(((coordinator, decision),))
            return max(prepared)
        return (yield from _settle(context, transaction, coordinator, decision))
    for reply in replies:
        if type(reply) is Committed:  # rule 11: decided before this answer was made
            return reply.timestamp
    abort = Decide(transaction, cells, None)
    refusal = _refusal(transaction, replies)
    if refusal is None:
        return (yield from _settle(context, transaction, coordinator, abort))
    if isinstance(refusal, TabletMoved):
        for route in routes:
            route.is_stale = True
    yield Post(((coordinator, abort),))  # rule 17: so that the others let go
    raise refusal


def _refusal(transaction: TransactionId, replies: Sequence[Reply]) -> DodonaError | None:
    """The error to report at once, if these replies prove that the transaction is aborted."""
    never_sent: DodonaError | None = None
    for reply in replies:
        if type(reply) is Aborted:
            return _aborted(transaction)
        if type(reply) is Failure:
            if reply.kind in STALE_ROUTE_KINDS:
                return TabletMoved(reply.message, **reply.attributes)
            if reply.kind != "unavailable":
                return error_of(reply)
            if was_never_sent(reply):  # nobody else will ever send it: it can't be prepared
                never_sent = error_of(reply)
    return never_sent


# ---- asking until somebody answers


def _settle(
    context: Context, transaction: TransactionId, cell: CellId, question: AskOutcome | Decide
) -> Protocol[Timestamp]:
    """Put the question, or the decision, until it is answered: each is safe to repeat."""
    reply = yield from ask_until_answered(context, cell, question)
    if type(reply) is Committed:
        return reply.timestamp
    if type(reply) is Aborted:
        raise _aborted(transaction)
    reason = reply.message if isinstance(reply, Failure) else "it was forgotten"
    raise CommitOutcomeUnknown(
        f"whether transaction {transaction} was committed could not be found out: {reason}",
        transaction=transaction,
        coordinator=cell,
    )


def ask_until_answered(
    context: Context, cell: CellId, question: AskOutcome | Decide
) -> Protocol[Reply]:
    """The answer, or the last failure to get one after about ten seconds."""
    patience = context.patience()
    while True:
        (reply,) = yield Calls(((cell, question),))
        if type(reply) is not Failure or reply.kind not in ASK_AGAIN_KINDS:
            return reply
        pause = patience.next_pause()
        if pause is None:
            return reply
        yield pause
        yield from context.find_cells()


def _aborted(transaction: TransactionId) -> TransactionAborted:
    return TransactionAborted(
        "the transaction was aborted before it was complete", transaction=transaction
    )
