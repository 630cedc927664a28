"""Serve the REST page that says what this cell knows of a transaction.

Owns: the path, the JSON, and the answer to a bad id: `application/problem+json`. The page asks the
core through the runtime, like any client, and changes nothing.
"""

from typing import Final

import msgspec
from fastapi import FastAPI, Response

from dodona_server.pages import problem_response
from dodona_server.runtime import Runtime
from dodona_wire.errors import InvalidRequest
from dodona_wire.messages.base import Failure
from dodona_wire.messages.data import Aborted, Committed, OutcomeUnknown, PeekOutcome, Undecided
from dodona_wire.messages.families import Reply
from dodona_wire.messages.rest import JSON_TYPE
from dodona_wire.types import MAX_TIMESTAMP, CellId, Timestamp, TransactionId

TIMEOUT_MS: Final = 5_000
DIGITS_MAX: Final = len(str(MAX_TIMESTAMP))
STATES: Final[dict[type[Reply], str]] = {
    Committed: "committed",
    Aborted: "aborted",
    Undecided: "pending",
    OutcomeUnknown: "unknown",
}


class TransactionPage(msgspec.Struct, frozen=True):
    """What this cell knows of a transaction. `coordinator` is the cell that decides a `pending`
    one, if that is known here."""

    transaction: TransactionId
    state: str
    timestamp: Timestamp | None
    coordinator: CellId | None


def add_outcome_page(pages: FastAPI, runtime: Runtime) -> None:
    """Add the page."""

    @pages.get("/v1/transactions/{transaction:path}", operation_id="peek_outcome")
    async def peek_outcome(transaction: str) -> Response:
        """Return what this cell knows of a transaction. The question changes nothing. `aborted`
        says that the transaction will never be committed in this cell. That is true of the whole
        transaction if this cell is its coordinator. A transaction that is not over is `pending`, a
        forgotten one `unknown`."""
        number = int(transaction) if _is_number(transaction) else 0
        if not 0 < number <= MAX_TIMESTAMP:
            text = f"a transaction's id is a number from 1 to {MAX_TIMESTAMP}"
            return problem_response(Failure(InvalidRequest.kind, text))
        asked = TransactionId(number)
        reply = await runtime.ask(PeekOutcome(asked), TIMEOUT_MS)
        if isinstance(reply, Failure):
            return problem_response(reply)
        at = reply.timestamp if isinstance(reply, Committed) else None
        coordinator = reply.coordinator if isinstance(reply, Undecided) else None
        page = TransactionPage(asked, STATES[type(reply)], at, coordinator)
        return Response(msgspec.json.encode(page), media_type=JSON_TYPE)


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= DIGITS_MAX
