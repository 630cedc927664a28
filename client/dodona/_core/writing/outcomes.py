"""Find the outcome of a transaction: ask one cell, or all of them. Pure.

Owns: `Outcome`, and the meaning of the cells' answers (rule 16 of
`docs/explanation/commit-protocol.md`).
A question that only looks changes nothing. With `settle`, the coordinator decides now. Only the
word of the coordinator, or of all cells together, proves an abort. A cell that does not answer
never leads to one.
"""

from collections.abc import Iterable
from typing import Final, Literal

import msgspec

from dodona._core.protocol.context import Context, error_of
from dodona._core.protocol.retry import has_time
from dodona._core.protocol.steps import Calls, Protocol
from dodona._core.writing.committing import ASK_AGAIN_KINDS, ask_until_answered
from dodona_wire.errors import InvalidRequest, Unavailable
from dodona_wire.messages.base import Failure
from dodona_wire.messages.catalog import Cluster, GetCluster
from dodona_wire.messages.data import (
    Aborted,
    AskOutcome,
    Committed,
    OutcomeUnknown,
    PeekOutcome,
    Undecided,
)
from dodona_wire.messages.families import Reply
from dodona_wire.types import CellId, Timestamp, TransactionId


class Outcome(msgspec.Struct, frozen=True, gc=False):
    """The outcome of a transaction. `timestamp` is the commit timestamp, or None if it is not
    committed. `pending`: nothing final is known yet, and it may still be committed. `unknown`: it
    is so old that its outcome was forgotten."""

    state: Literal["committed", "aborted", "pending", "unknown"]
    timestamp: Timestamp | None = None

    @property
    def is_final(self) -> bool:
        """Whether the outcome will never change."""
        return self.state in ("committed", "aborted")


ABORTED: Final = Outcome("aborted")
PENDING: Final = Outcome("pending")
UNKNOWN: Final = Outcome("unknown")


def find_outcome(
    context: Context, transaction: TransactionId, coordinator: CellId | None, *, settle: bool
) -> Protocol[Outcome]:
    """Return the outcome. Raises Unavailable. Raises InvalidRequest if it must be settled and no
    cell knows the coordinator."""
    if coordinator is not None:
        return (yield from _ask_coordinator(context, transaction, coordinator, settle=settle))
    answers = yield from _ask_everywhere(context, transaction)
    judged = _judge(answers)
    if not isinstance(judged, Outcome):
        try:
            return (yield from _ask_coordinator(context, transaction, judged, settle=settle))
        except Unavailable:
            if settle:
                raise
            return PENDING
    if settle and judged is PENDING:
        raise _unsettled(transaction, answers)
    return judged


def _ask_coordinator(
    context: Context, transaction: TransactionId, cell: CellId, *, settle: bool
) -> Protocol[Outcome]:
    question = AskOutcome(transaction) if settle else PeekOutcome(transaction)
    reply = yield from ask_until_answered(context, cell, question)
    if type(reply) is Undecided and reply.coordinator not in (None, cell):
        assert reply.coordinator is not None
        reply = yield from ask_until_answered(context, reply.coordinator, question)
    if isinstance(reply, Failure):
        raise error_of(reply)
    return outcome_of(reply)


def outcome_of(reply: Reply) -> Outcome:
    """Return the meaning of a coordinator's answer. Raises Unavailable if it is no answer."""
    if isinstance(reply, Committed):
        return Outcome("committed", reply.timestamp)
    if isinstance(reply, Aborted):
        return ABORTED
    if isinstance(reply, Undecided):
        return PENDING
    if isinstance(reply, OutcomeUnknown):
        return UNKNOWN
    raise Unavailable(f"A cell answered a request for an outcome with {type(reply).__name__}.")


# ---- all cells


def _ask_everywhere(context: Context, transaction: TransactionId) -> Protocol[list[Reply]]:
    """Return the answer of each cell of the cluster, or the failure to get it after about ten
    seconds. At least one cell has answered. The client asks the oracle first. So a cell that is not
    in the master's list admits no transaction that began before."""
    now = yield from context.generate_timestamp()
    if transaction > now:
        text = "The oracle has not issued this timestamp yet, so no transaction has this id."
        raise InvalidRequest(text, transaction=transaction)
    patience = context.patience()
    cluster = yield from context.ask_master_patiently(GetCluster(), Cluster, patience)
    context.routing.learn_cells(cluster)
    answers: dict[CellId, Reply] = {}
    left = [it.cell for it in cluster.cells]
    while left:
        for start in range(0, len(left), context.limits.requests_in_flight_max):
            some = left[start : start + context.limits.requests_in_flight_max]
            replies = yield Calls(tuple([(cell, PeekOutcome(transaction)) for cell in some]))
            answers.update(zip(some, replies, strict=True))
        left = [cell for cell in left if _is_silent(answers[cell])]
        if not left or _judge(answers.values()) is not PENDING:
            break
        if not (yield from has_time(patience)):
            break
        yield from context.find_cells()
    if len(left) == len(cluster.cells):
        raise Unavailable(
            "No cell of the cluster could answer. Repeat the call.", transaction=transaction
        )
    return list(answers.values())


def _is_silent(reply: Reply) -> bool:
    """Return whether to ask the cell again. Raises an error that another question would not
    solve."""
    if not isinstance(reply, Failure):
        return False
    if reply.kind not in ASK_AGAIN_KINDS:
        raise error_of(reply)
    return True


def _judge(answers: Iterable[Reply]) -> Outcome | CellId:
    """Return the meaning of all answers together, or the coordinator to ask if a cell names it. The
    outcome is aborted only if every cell says that it will never be committed there."""
    known = list(answers)
    for reply in known:
        if isinstance(reply, Committed):
            return outcome_of(reply)
    for reply in known:
        if isinstance(reply, Undecided) and reply.coordinator is not None:
            return reply.coordinator
    if any(isinstance(reply, Failure) for reply in known):
        return PENDING
    if any(isinstance(reply, OutcomeUnknown) for reply in known):
        return UNKNOWN
    return ABORTED if all(isinstance(reply, Aborted) for reply in known) else PENDING


def _unsettled(transaction: TransactionId, answers: Iterable[Reply]) -> Exception:
    for reply in answers:
        if isinstance(reply, Failure):
            return error_of(reply)
    text = "No cell knows this transaction. To settle it, pass its coordinator."
    return InvalidRequest(text, transaction=transaction)
