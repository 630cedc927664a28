"""Commit atomic transactions: the client's part of `docs/explanation/commit-protocol.md`. Pure.

Owns: which messages the client sends, and which outcome it may report. Rule numbers are those of
the protocol:
- aborted: only after a refusal, or if a participant certainly never got its prepare (rules 13, 17);
- committed: only if a cell said so (rules 11, 16, 18);
- `CommitOutcomeUnknown`: if no cell that knows the outcome has answered (rules 12, 17).

A timeout is not a refusal. After a timeout, the client asks for the outcome.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Final, NamedTuple

from dodona._core.protocol.attempts import Again, mark_stale, repeated
from dodona._core.protocol.context import (
    NAMING_ATTRIBUTES,
    Context,
    is_recorded,
    not_mounted,
    was_never_sent,
)
from dodona._core.protocol.retry import Patience, has_time
from dodona._core.protocol.routing import TableRoute, is_served
from dodona._core.protocol.steps import Calls, Post, Protocol
from dodona._core.writing.buffer import TableBuffer
from dodona._core.writing.parts import (
    Terms,
    conditions_of,
    modifications_of,
    publications_of,
    under,
    with_reads,
)
from dodona._core.writing.reads import TableReads
from dodona._core.writing.refreshing import may_refresh
from dodona._core.writing.transaction import TransactionBuffer, check_schema
from dodona_wire.cores.fault_points import FaultPoint
from dodona_wire.errors import (
    CommitOutcomeUnknown,
    DiskFull,
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
from dodona_wire.messages.base import Failure
from dodona_wire.messages.catalog import Tablet
from dodona_wire.messages.data import (
    Aborted,
    AskOutcome,
    CommitOne,
    Committed,
    Decide,
    PeekOutcome,
    Prepare,
    Prepared,
    TabletModifications,
)
from dodona_wire.messages.families import Reply, Request
from dodona_wire.shown import named
from dodona_wire.types import NULL_TIMESTAMP, Atomicity, CellId, Timestamp, TransactionId, Write

ASK_AGAIN_KINDS = frozenset({"unavailable", "overloaded"})
BEGIN_ANEW_KINDS: Final = frozenset(
    it.kind
    for it in (SnapshotTooOld, TabletMoved, TransactionAborted, TransactionConflict, Unavailable)
)

LOST: Final = Failure("unavailable", "the answer was lost")

Groups = dict[CellId, list[TabletModifications]]
Modified = list[tuple[Tablet, TabletModifications]]
"""The modifications of one table, by tablet."""


class Answered(NamedTuple):
    """A blind commit that was already sent to one cell, and the reply."""

    route: TableRoute
    writes: list[Write]
    cell: CellId
    request: CommitOne
    reply: Reply


def commit_atomic(
    context: Context, transaction: TransactionBuffer, answered: Answered | None = None
) -> Protocol[Timestamp]:
    """Commit a buffer that is not empty. Return the commit timestamp. `answered` is a first attempt
    that was already sent.
    Raises the refusals of the cells, TransactionAborted, or CommitOutcomeUnknown.
    """
    return repeated(context, partial(_attempt, context, transaction, answered))


def _attempt(
    context: Context,
    transaction: TransactionBuffer,
    answered: Answered | None,
    patience: Patience | None,
) -> Protocol[Timestamp | Again]:
    """Make one attempt. It may be repeated if it had no effect and never will."""
    if patience is not None:
        answered = None  # that was the first attempt
    if answered is None:
        routes = yield from routes_of(context, transaction, patience)
    else:
        routes = [answered.route]
    try:
        if answered is None:
            groups = _group(context, transaction, routes)
            if isinstance(groups, Again):
                return groups
            transaction.coordinator = next(iter(groups))
            if transaction.is_blind:
                yield from _name(context, transaction, cell_count=len(groups))
            elif transaction.is_refused:
                transaction.begin_again((yield from context.generate_timestamp()))
            sending = _sending(context, transaction, groups, routes)
        else:
            transaction.id, transaction.coordinator = answered.request.transaction, answered.cell
            sending = _judge(context, transaction.id, *answered[2:])
        done = yield from _end(context, transaction, sending)
    except (TableNotMounted, Unavailable, CommitOutcomeUnknown):
        mark_stale(routes)  # a tablet is frozen or gone, or its cell has moved
        raise
    if not isinstance(done, DodonaError):
        return done
    to_blame = () if isinstance(done, TransactionConflict) else routes
    return Again(done, to_blame, is_write=True)


def _sending(
    context: Context, transaction: TransactionBuffer, groups: Groups, routes: list[TableRoute]
) -> Protocol[Timestamp | DodonaError]:
    assert transaction.id is not None
    since = transaction.start_timestamp if transaction.is_again else None
    conditions = conditions_of(routes, transaction.tables.values())
    terms = Terms(conditions, transaction.locked.owner, since or NULL_TIMESTAMP)
    if len(groups) == 1:
        return _commit_one(context, transaction, groups, terms)
    return _commit_many(context, transaction.id, groups, routes, terms)


def _end(
    context: Context,
    transaction: TransactionBuffer,
    attempt: Protocol[Timestamp | DodonaError],
) -> Protocol[Timestamp | DodonaError]:
    """Return the result of an attempt. If the attempt has no effect and never will, the transaction
    gets a new id for the next attempt. A blind one has read nothing that could be too old by then.
    What another one has read is validated again."""
    try:
        return (yield from attempt)
    except DodonaError as error:
        if not transaction.is_blind:
            if not may_refresh(transaction, error):
                raise
            transaction.is_refused = True
            return error
        if error.kind not in BEGIN_ANEW_KINDS:
            raise
        if error.kind != TransactionConflict.kind:
            context.drop_reserve()  # other ids may be older than the cell's start, too
        transaction.id = None
        return error


# ---- routes and parts


def routes_of(
    context: Context, transaction: TransactionBuffer, patience: Patience | None
) -> Protocol[list[TableRoute]]:
    """Return the routes of all tables that the transaction writes, in the order of the buffer, and
    then of those that it has only read. Raises InvalidRequest if the atomicity of a table is not
    that of the transaction. Raises TransactionAborted if the schema of a table changed."""
    routes = []
    for path, buffer in transaction.tables.items():
        if context.injects_faults and context.fault_at(FaultPoint.FORGET_ROUTE_OF_COMMIT):
            context.routing.forget(path)
        route = yield from _route_of(context, path, transaction.atomicity, patience)
        check_table(route, buffer, transaction.atomicity)
        routes.append(route)
    for path in transaction.publications:
        route = yield from context.route(path, patience)
        routes.append(route)
    if validated := transaction.validated:
        routes += yield from _routes_of_reads(context, validated, routes, patience)
    return routes


def _routes_of_reads(
    context: Context,
    validated: Mapping[str, TableReads],
    known: list[TableRoute],
    patience: Patience | None,
) -> Protocol[list[TableRoute]]:
    """Return the routes of the tables that were only read. Check that all that were read are the
    same tables as then. Raises TransactionAborted, InvalidRequest."""
    routes = {route.path: route for route in known}
    added: list[TableRoute] = []
    for path, reads in validated.items():
        route = routes.get(path)
        if route is None:
            route = yield from _route_of(context, path, "full", patience)
            check_mode(route, "full")
            added.append(route)
        reads.check(route)
    return added


def _route_of(
    context: Context, path: str, atomicity: Atomicity, patience: Patience | None
) -> Protocol[TableRoute]:
    route = context.routing.find(path)
    if route is None:
        return (yield from context.route(path, patience))
    if route.atomicity != atomicity:  # it may be another table by now
        return (yield from context.fresh_route(path, patience))
    return route


def check_table(route: TableRoute, buffer: TableBuffer, atomicity: Atomicity) -> None:
    """Check that the rows were made for this table, and that it takes writes in this mode."""
    check_mode(route, atomicity)
    check_schema(route.path, buffer, route.schema)


def check_mode(route: TableRoute, atomicity: Atomicity) -> None:
    """Check that the table takes writes in this mode. Raises InvalidRequest."""
    if route.atomicity != atomicity:
        text = f'Invalid atomicity mode: "{named(atomicity)}" instead of "{route.atomicity}"'
        raise InvalidRequest(text, table=route.path)


def _group(
    context: Context, transaction: TransactionBuffer, routes: list[TableRoute]
) -> Groups | Again:
    """Group rows by tablet, and tablets by cell, with the coordinator first. Return the failure if
    no cell serves a tablet. A tablet that was only read may be frozen."""
    groups: Groups = {}
    count = len(transaction.tables)
    parts = list(map(modifications_of, routes[:count], transaction.tables.values()))
    parts += map(publications_of, routes[count:], transaction.publications.values())
    if validated := transaction.validated:
        if context.injects_faults and context.fault_at(FaultPoint.CONDENSE_READS):
            assert transaction.reads is not None
            transaction.reads.condense(1)
        parts = _with_reads(routes, parts, transaction, validated)
    for route, modified in zip(routes, parts, strict=True):
        for tablet, part in modified:
            is_write = not part.only_reads
            if not is_served(tablet, is_write=is_write):
                error = not_mounted(route, tablet, is_write=is_write)
                return Again(error, routes, is_write=is_write)
            assert tablet.cell is not None
            groups.setdefault(tablet.cell, []).append(part)
    if len(groups) == 1:
        return groups
    is_last_first = context.fault_at(FaultPoint.PREFER_LAST_COORDINATOR)
    return {cell: groups[cell] for cell in sorted(groups, reverse=is_last_first)}


def _with_reads(
    routes: list[TableRoute],
    parts: list[Modified],
    transaction: TransactionBuffer,
    validated: Mapping[str, TableReads],
) -> list[Modified]:
    """Return the modifications of each table, with what was read of it. Those that were only read
    come last, and have no modifications yet. Writes of a new attempt protect no reads, since they
    are checked from its own id on."""
    made: list[Modified] = []
    for at, route in enumerate(routes):
        modified = parts[at] if at < len(parts) else []
        table = validated.get(route.path)
        if table is not None:
            own = None if transaction.is_again else transaction.tables.get(route.path)
            modified = with_reads(route, modified, table, own)
        made.append(modified)
    return made


def _name(context: Context, transaction: TransactionBuffer, cell_count: int) -> Protocol[None]:
    """Give a blind transaction its id (rule 20). It keeps the id while a cell may still have a copy
    of the request: under two ids, it could be committed twice. With several cells, the transactions
    that wait there need an order, so the id is a start timestamp."""
    if cell_count > 1:
        transaction.id = TransactionId((yield from context.generate_timestamp()))
    elif transaction.id is None:
        if context.injects_faults and context.fault_at(FaultPoint.DROP_RESERVE):
            context.drop_reserve()
        transaction.id = context.take_reserved_id() or (yield from context.reserve_ids())


# ---- one cell


def _commit_one(
    context: Context, transaction: TransactionBuffer, groups: Groups, terms: Terms
) -> Protocol[Timestamp | DodonaError]:
    """Commit in one cell. Return an error only if the cell recorded nothing, so that the request
    may be sent again."""
    assert transaction.id is not None
    ((cell, modifications),) = groups.items()
    bare = CommitOne(transaction.id, tuple(modifications), transaction.is_blind)
    request = under(terms, bare)
    (reply,) = yield Calls(((cell, request),))
    return (yield from _judge(context, transaction.id, cell, request, reply))


def _judge(
    context: Context, transaction: TransactionId, cell: CellId, request: Request, reply: Reply
) -> Protocol[Timestamp | DodonaError]:
    """Return the meaning of the cell's reply. If the reply does not say it, ask the cell for the
    outcome."""
    if context.injects_faults:
        if type(reply) is Committed and context.fault_at(FaultPoint.REPEAT_COMMIT):
            yield Post(((cell, request),))
        if context.fault_at(FaultPoint.LOSE_COMMIT_ANSWER):
            reply = LOST
    if type(reply) is Committed:
        return reply.timestamp
    if type(reply) is Failure:
        if reply.kind == TabletMoved.kind or was_never_sent(reply):
            return context.error_of(reply)
        if is_recorded(reply):
            raise context.error_of(reply)
    question = AskOutcome(transaction)
    try:
        return (yield from _settle(context, transaction, cell, question))
    except TransactionAborted:
        if isinstance(reply, Failure) and reply.attributes.get("cause") == DiskFull.kind:
            raise context.error_of(reply) from None
        raise


# ---- several cells


def _commit_many(
    context: Context,
    transaction: TransactionId,
    groups: Groups,
    routes: list[TableRoute],
    terms: Terms,
) -> Protocol[Timestamp]:
    cells = tuple(groups)
    coordinator = cells[0]
    replies = yield from _prepare(context, transaction, groups, terms)
    prepared = [reply.timestamp for reply in replies if type(reply) is Prepared]
    if len(prepared) == len(cells):
        decision = Decide(transaction, cells, max(prepared))  # rule 2
        if context.fault_at(FaultPoint.REPEAT_DECISION):
            yield Post(((coordinator, decision),))
        if context.acknowledgement == "prepared":  # rule 18
            yield Post(((coordinator, decision),))
            return max(prepared)
        return (yield from _settle(context, transaction, coordinator, decision))
    for reply in replies:
        if type(reply) is Committed:  # rule 11: decided before this answer was made
            return reply.timestamp
    refusal, is_proof = _refusal(context, transaction, replies)
    if refusal is None:
        mark_stale(routes)  # a silent cell may have moved
        refusal = _silence(context, transaction, replies)
    if not is_proof:
        # A late copy could be prepared until the coordinator says that the transaction is aborted.
        abort = Decide(transaction, cells, None)
        try:
            return (yield from _settle(context, transaction, coordinator, abort))
        except TransactionAborted:
            raise refusal from None
    yield _let_go(transaction, cells, replies)
    raise refusal


def _prepare(
    context: Context,
    transaction: TransactionId,
    groups: Groups,
    terms: Terms,
) -> Protocol[list[Reply]]:
    """Ask all participants to prepare. Return their answers, or those up to the first refusal."""
    cells = tuple(groups)
    bare = [(cell, Prepare(transaction, cells, tuple(groups[cell]))) for cell in cells]
    prepares = tuple([(cell, under(terms, it)) for cell, it in bare])
    if context.fault_at(FaultPoint.PREPARE_IN_TURN):
        replies: list[Reply] = []
        for prepare in prepares:
            replies += yield Calls((prepare,))
    else:
        replies = yield Calls(prepares, is_over_at_refusal=True)
    if context.fault_at(FaultPoint.LOSE_PREPARED):
        replies = [*replies[:-1], LOST]
    return replies


def _refusal(
    context: Context, transaction: TransactionId, replies: Sequence[Reply]
) -> tuple[DodonaError | None, bool]:
    """Return the error to report if there is no commit, and whether the replies prove that there is
    none. The proof is a participant that is not prepared and never will be."""
    never_sent: DodonaError | None = None
    for reply in replies:
        if type(reply) is Aborted:
            return _aborted(transaction), True
        if type(reply) is Failure:
            if is_recorded(reply):
                error = context.error_of(reply)
                return error, not isinstance(error, TabletMoved | Overloaded)
            if was_never_sent(reply):  # no other process will send it, so it can't be prepared
                never_sent = context.error_of(reply)
    return never_sent, never_sent is not None


def _silence(context: Context, transaction: TransactionId, replies: Sequence[Reply]) -> DodonaError:
    """Return the error of a transaction that was aborted because a cell did not answer in time. If
    the cell is known, the error names it."""
    for reply in replies:
        if type(reply) is Failure and reply.attributes.keys() & {*NAMING_ATTRIBUTES}:
            return context.error_of(reply)
    return _aborted(transaction)


def _let_go(
    transaction: TransactionId, cells: tuple[CellId, ...], replies: Sequence[Reply]
) -> Post:
    """Return the message to the coordinator that the transaction is aborted, so that all cells
    release its locks (rule 17). If the coordinator may be the silent cell, the message goes to all
    cells, and they accept the client's word."""
    abort = Decide(transaction, cells, None, is_proved=True)
    first = replies[0]
    is_reached = type(first) is not Failure or not {"address", "is_sent"} & first.attributes.keys()
    return Post(tuple([(cell, abort) for cell in (cells[:1] if is_reached else cells)]))


# ---- ask until a cell answers


def _settle(
    context: Context, transaction: TransactionId, cell: CellId, question: AskOutcome | Decide
) -> Protocol[Timestamp]:
    """Send the question or the decision until a cell answers. Both are safe to repeat. Return the
    commit timestamp. Raises TransactionAborted, CommitOutcomeUnknown."""
    reply = yield from ask_until_answered(context, cell, question)
    if type(reply) is Committed:
        return reply.timestamp
    if type(reply) is Aborted:
        raise _aborted(transaction)
    reason = "the cell has forgotten the outcome"
    where: dict[str, Any] = {}
    if isinstance(reply, Failure):
        error = context.error_of(reply)
        reason, where = error.message, error.attributes
    named = {it: where[it] for it in NAMING_ATTRIBUTES if it in where}
    raise CommitOutcomeUnknown(
        f"The outcome of transaction {transaction} is unknown. Ask for the outcome "
        f"before you retry. Reason: {reason}",
        transaction=transaction,
        coordinator=cell,
        **named,
    )


def ask_until_answered(
    context: Context, cell: CellId, question: AskOutcome | PeekOutcome | Decide
) -> Protocol[Reply]:
    """Return the answer, or after about ten seconds the last failure to get one."""
    patience = context.patience()
    while True:
        (reply,) = yield Calls(((cell, question),))
        if context.fault_at(FaultPoint.LOSE_SETTLEMENT):
            reply = LOST
        if type(reply) is not Failure or reply.kind not in ASK_AGAIN_KINDS:
            return reply
        if not (yield from has_time(patience, reply)):
            return reply
        yield from context.find_cells()


def _aborted(transaction: TransactionId) -> TransactionAborted:
    return TransactionAborted(
        "the transaction was aborted before it was complete", transaction=transaction
    )
