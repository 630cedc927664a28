"""Commit of atomic transactions: the client's part of `docs/explanation/commit-protocol.md`. Pure.

Owns: what the client says to whom, and what it may report. Rule numbers are the protocol's:
- aborted only on a refusal, or if a participant certainly never got its prepare (rules 13, 17);
- committed only if a cell said so (rules 11, 16, 18);
- neither, while nobody who knows has answered: `CommitOutcomeUnknown` (rules 12, 17).
A time-out is not a refusal. It only makes the client ask.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

from dodona._core.buffer import TableBuffer
from dodona._core.context import (
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
    PeekOutcome,
    Prepare,
    Prepared,
    Reply,
    TabletModifications,
)
from dodona._core.mischief import Point
from dodona._core.parts import modifications_of, publications_of
from dodona._core.retry import Patience
from dodona._core.routing import TableRoute, is_served
from dodona._core.steps import Calls, Post, Protocol
from dodona._core.transaction import TransactionBuffer, check_schema
from dodona.errors import (
    CommitOutcomeUnknown,
    DodonaError,
    InvalidRequest,
    Overloaded,
    SnapshotTooOld,
    TableNotMounted,
    TabletMoved,
    TransactionAborted,
    TransactionConflict,
    Unavailable,
)
from dodona.types import Atomicity, CellId, Timestamp, TransactionId, Write

ASK_AGAIN_KINDS = frozenset({"unavailable", "overloaded"})
BEGIN_ANEW_KINDS: Final = frozenset(
    it.kind
    for it in (SnapshotTooOld, TabletMoved, TransactionAborted, TransactionConflict, Unavailable)
)

LOST: Final = Failure("unavailable", "the answer was lost")

Groups = dict[CellId, list[TabletModifications]]


class Answered(NamedTuple):
    """A blind commit to one cell that was sent already, and what came back."""

    route: TableRoute
    writes: list[Write]
    cell: CellId
    request: CommitOne
    reply: Reply


def commit_atomic(
    context: Context, transaction: TransactionBuffer, answered: Answered | None = None
) -> Protocol[Timestamp]:
    """Commit what is buffered; it is not empty. → the commit timestamp. The first attempt may have
    been `answered` before.

    Raises what the cells refused with, TransactionAborted, or CommitOutcomeUnknown.
    """
    patience: Patience | None = None
    while True:
        if answered is None:
            routes = yield from routes_of(context, transaction, patience)
        else:
            routes = [answered.route]
        try:
            done = yield from _attempt(context, transaction, routes, answered)
        except (TableNotMounted, Unavailable, CommitOutcomeUnknown):
            _forget(routes)  # a tablet is frozen or gone, or its cell is somewhere else by now
            raise
        if not isinstance(done, DodonaError):
            return done
        answered = None
        patience = patience or context.patience()
        yield from context.recover_route(routes, done, patience, is_write=True)


def _attempt(
    context: Context,
    transaction: TransactionBuffer,
    routes: list[TableRoute],
    answered: Answered | None,
) -> Protocol[Timestamp | DodonaError]:
    """→ an error only where nothing came of it, and it may be tried again."""
    if answered is not None:
        transaction.id, transaction.coordinator = answered.request.transaction, answered.cell
        return (yield from _end(context, transaction, _judge(context, *answered[2:])))
    try:
        groups = _group(context, transaction, routes)
    except TableNotMounted as error:
        return error
    transaction.coordinator = next(iter(groups))
    if transaction.is_blind:
        yield from _name(context, transaction, cell_count=len(groups))
    assert transaction.id is not None
    sending: Protocol[Timestamp | DodonaError]
    if len(groups) == 1:
        sending = _commit_one(context, transaction, groups)
    else:
        sending = _commit_many(context, transaction.id, groups, routes)
    return (yield from _end(context, transaction, sending))


def _end(
    context: Context,
    transaction: TransactionBuffer,
    attempt: Protocol[Timestamp | DodonaError],
) -> Protocol[Timestamp | DodonaError]:
    """What an attempt came to. If nothing came of it and nothing will, a blind transaction takes
    another id for the next one: it has read nothing that could be too old by then."""
    try:
        return (yield from attempt)
    except DodonaError as error:
        if not transaction.is_blind or error.kind not in BEGIN_ANEW_KINDS:
            raise
        if error.kind != TransactionConflict.kind:
            context.drop_reserve()  # the others may be from before that cell began, too
        transaction.id = None
        return error


# ---- who gets what


def routes_of(
    context: Context, transaction: TransactionBuffer, patience: Patience | None
) -> Protocol[list[TableRoute]]:
    """The routes of all tables that the transaction writes, in the buffer's order. Raises
    InvalidRequest if a table's atomicity is not the transaction's, TransactionAborted if its schema
    changed."""
    routes = []
    for path, buffer in transaction.tables.items():
        if context.may_misbehave and context.mischief(Point.FORGET_ROUTE_OF_COMMIT):
            context.routing.forget(path)
        route = context.routing.find(path)
        if route is None:
            route = yield from context.route(path, patience)
        elif route.atomicity != transaction.atomicity:  # it may be another table by now
            route = yield from context.fresh_route(path, patience)
        check_table(route, buffer, transaction.atomicity)
        routes.append(route)
    for path in transaction.publications:
        route = yield from context.route(path, patience)
        routes.append(route)
    return routes


def check_table(route: TableRoute, buffer: TableBuffer, atomicity: Atomicity) -> None:
    """That the rows were made for this table, and may be written in this mode."""
    check_mode(route, atomicity)
    check_schema(route.path, buffer, route.schema)


def check_mode(route: TableRoute, atomicity: Atomicity) -> None:
    """Raises InvalidRequest if the table is not written in this mode."""
    if route.atomicity != atomicity:
        text = f'Invalid atomicity mode: "{atomicity}" instead of "{route.atomicity}"'
        raise InvalidRequest(text, table=route.path)


def _group(context: Context, transaction: TransactionBuffer, routes: list[TableRoute]) -> Groups:
    """Rows by tablet, tablets by cell, the coordinator's first. Raises TableNotMounted."""
    groups: Groups = {}
    count = len(transaction.tables)
    parts = list(map(modifications_of, routes[:count], transaction.tables.values()))
    parts += map(publications_of, routes[count:], transaction.publications.values())
    for route, modified in zip(routes, parts, strict=True):
        for tablet, part in modified:
            if not is_served(tablet, is_write=True):
                raise not_mounted(route, tablet, is_write=True)
            assert tablet.cell is not None
            groups.setdefault(tablet.cell, []).append(part)
    if len(groups) == 1:
        return groups
    is_last_first = context.mischief(Point.PREFER_LAST_COORDINATOR)
    return {cell: groups[cell] for cell in sorted(groups, reverse=is_last_first)}


def _name(context: Context, transaction: TransactionBuffer, cell_count: int) -> Protocol[None]:
    """Give a blind transaction its id (rule 20), and keep it while a cell may still have a copy of
    the request: under two ids it could be committed twice. Several cells need an order among
    those who wait there: a start timestamp."""
    if cell_count > 1:
        transaction.id = TransactionId((yield from context.generate_timestamp()))
    elif transaction.id is None:
        if context.may_misbehave and context.mischief(Point.DROP_RESERVE):
            context.drop_reserve()
        transaction.id = context.take_reserved_id() or (yield from context.reserve_ids())


# ---- one cell


def _commit_one(
    context: Context, transaction: TransactionBuffer, groups: Groups
) -> Protocol[Timestamp | DodonaError]:
    """→ an error only where the cell recorded nothing, so that it may be sent again."""
    assert transaction.id is not None
    ((cell, modifications),) = groups.items()
    request = CommitOne(transaction.id, tuple(modifications), transaction.is_blind)
    (reply,) = yield Calls(((cell, request),))
    return (yield from _judge(context, cell, request, reply))


def _judge(
    context: Context, cell: CellId, request: CommitOne, reply: Reply
) -> Protocol[Timestamp | DodonaError]:
    """What the cell's answer means; it is asked again where that says nothing."""
    if context.may_misbehave:
        if type(reply) is Committed and context.mischief(Point.REPEAT_COMMIT):
            yield Post(((cell, request),))
        if context.mischief(Point.LOSE_COMMIT_ANSWER):
            reply = LOST
    if type(reply) is Committed:
        return reply.timestamp
    if type(reply) is Failure:
        if reply.kind == TabletMoved.kind or was_never_sent(reply):
            return error_of(reply)
        if reply.kind != "unavailable":
            raise error_of(reply)
    question = AskOutcome(request.transaction)
    return (yield from _settle(context, request.transaction, cell, question))


def _forget(routes: list[TableRoute]) -> None:
    for route in routes:
        route.is_stale = True


# ---- several cells


def _commit_many(
    context: Context, transaction: TransactionId, groups: Groups, routes: list[TableRoute]
) -> Protocol[Timestamp]:
    cells = tuple(groups)
    coordinator = cells[0]
    replies = yield from _prepare(context, transaction, groups)
    prepared = [reply.timestamp for reply in replies if type(reply) is Prepared]
    if len(prepared) == len(cells):
        decision = Decide(transaction, cells, max(prepared))  # rule 2
        if context.mischief(Point.REPEAT_DECISION):
            yield Post(((coordinator, decision),))
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
        _forget(routes)  # whoever is silent may be somewhere else by now
        return (yield from _settle(context, transaction, coordinator, abort))
    if isinstance(refusal, TabletMoved | Overloaded):  # the cell recorded nothing, so that a late
        try:  # copy could still be prepared, until the coordinator has said that it is aborted
            return (yield from _settle(context, transaction, coordinator, abort))
        except TransactionAborted:
            raise refusal from None
    yield Post(((coordinator, abort),))  # rule 17: so that the others let go
    raise refusal


def _prepare(context: Context, transaction: TransactionId, groups: Groups) -> Protocol[list[Reply]]:
    """The answers of all participants, or up to the first refusal."""
    cells = tuple(groups)
    prepares = tuple([(cell, Prepare(transaction, cells, tuple(groups[cell]))) for cell in cells])
    if context.mischief(Point.PREPARE_IN_TURN):
        replies: list[Reply] = []
        for prepare in prepares:
            replies += yield Calls((prepare,))
    else:
        replies = yield Calls(prepares, is_over_at_refusal=True)
    if context.mischief(Point.LOSE_PREPARED):
        replies = [*replies[:-1], LOST]
    return replies


def _refusal(transaction: TransactionId, replies: Sequence[Reply]) -> DodonaError | None:
    """The error to report at once, if these replies prove that the transaction is aborted."""
    never_sent: DodonaError | None = None
    for reply in replies:
        if type(reply) is Aborted:
            return _aborted(transaction)
        if type(reply) is Failure:
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
    context: Context, cell: CellId, question: AskOutcome | PeekOutcome | Decide
) -> Protocol[Reply]:
    """The answer, or the last failure to get one after about ten seconds."""
    patience = context.patience()
    while True:
        (reply,) = yield Calls(((cell, question),))
        if context.mischief(Point.LOSE_SETTLEMENT):
            reply = LOST
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
