"""Run transactions and return timestamps, in YTsaurus's commands.

Owns: these commands, and which of a gateway's transactions an id names. Tablet transactions are the
same as those of REST. Master transactions live in the master, and the gateway knows only their
owners. Ids have YTsaurus's form; the gateway defines their content.
"""

from typing import Any, Final

from dodona._core.catalog.tree import MasterTransactionSession, TreeSession
from dodona_wire.errors import (
    CommitOutcomeUnknown,
    DodonaError,
    InvalidRequest,
    TransactionAborted,
    TransactionNotFound,
    Unavailable,
)
from dodona_wire.messages.tree import TreeTransaction
from dodona_wire.types import Timestamp
from dodona_ytsaurus.commands.commands import Value, YtCall, command
from dodona_ytsaurus.commands.master_transactions import Owned
from dodona_ytsaurus.terms.errors import RETRIED, yt_error
from dodona_ytsaurus.yson import Uint64

NO_ID: Final = ("", "0-0-0-0")
MASTER_TIMEOUT_MS: Final = 15_000


def transaction_of(call: YtCall) -> str | None:
    """Return the id of the transaction that a command is in, None for none."""
    text = call.parameters.optional_text("transaction_id")
    return None if text is None or text in NO_ID else text


def tablet_transaction(call: YtCall) -> str | None:
    """Return the same as `transaction_of`, for a command on rows. Raises InvalidRequest for a
    master transaction."""
    text = transaction_of(call)
    if text is not None and is_master(text):
        raise InvalidRequest(
            "Dynamic table commands can not be performed under master transaction",
            transaction=text,
        )
    return text


def tree_seen(call: YtCall) -> TreeSession:
    """Return the tree as the command's transaction sees it. A tablet transaction sees the same tree
    as a call without a transaction. Raises TransactionNotFound."""
    text = transaction_of(call)
    if text is None or not is_master(text):
        return call.catalog
    return master_session(call, text)


def tree_changed(call: YtCall) -> TreeSession:
    """Return the same as `tree_seen`, for a command that changes the tree. Raises InvalidRequest
    for a tablet transaction, which could not take the change back."""
    text = transaction_of(call)
    if text is not None and not is_master(text):
        raise InvalidRequest(
            "A tablet transaction changes rows, not nodes. Start a master transaction.",
            transaction=text,
        )
    return tree_seen(call)


async def start_transaction(call: YtCall) -> Value:
    parameters = call.parameters
    kind, timeout_ms = parameters.text("type", "master"), parameters.number("timeout")
    if kind == "master":
        return Value({"transaction_id": await _start_master(call, timeout_ms)})
    if kind != "tablet":
        raise InvalidRequest(
            f"The type of a transaction must be master or tablet, not {kind[:40]!r}."
        )
    if transaction_of(call) is not None:
        raise InvalidRequest("Tablet transaction cannot have a parent")
    call.principal.check_somewhere("read")
    atomicity, durability = modes_of(call)
    begun = await call.gateway.begin(call.owner, atomicity, durability, timeout_ms)
    return Value({"transaction_id": begun})


async def _start_master(call: YtCall, timeout_ms: int | None) -> str:
    call.principal.check_somewhere("admin")
    title = call.parameters.map("attributes").get("title", "")
    outer = tree_changed(call)
    timeout_ms = MASTER_TIMEOUT_MS if timeout_ms is None else timeout_ms
    begun = await call.run(outer.begin(timeout_ms, title if isinstance(title, str) else ""))
    return call.service.master_transactions.add(call.owner, begun.lease.id, begun.lease.timeout_ms)


async def ping_transaction(call: YtCall) -> None:
    text = call.parameters.text("transaction_id")
    if is_master(text):
        await call.run(master_session(call, text).ping())
    else:
        call.gateway.transactions.ping(text, call.owner)


async def commit_transaction(call: YtCall) -> Value:
    """Commit a transaction. The client repeats this command after some errors: a repeat asks for
    the outcome, and commits nothing twice. So an unknown outcome is reported as such an error, and
    a transaction that was not committed as an error that is not repeated."""
    text = call.parameters.text("transaction_id")
    try:
        timestamp = await _commit(call, text)
    except CommitOutcomeUnknown as error:
        words = "The outcome of the commit is not known yet. Repeat the commit."
        raise Unavailable(words, transaction=text) from error
    except Unavailable as error:
        if yt_error(error).code in RETRIED and await _is_over(call, text):
            words = f"The transaction was not committed: {error.message}"
            raise TransactionAborted(words, transaction=text) from error
        raise
    return Value({} if timestamp is None else {"primary_commit_timestamp": Uint64(timestamp)})


async def _is_over(call: YtCall, text: str) -> bool:
    """Return whether a transaction can't be committed any more."""
    if is_master(text):
        return False
    try:
        outcome = await call.gateway.transactions.outcome(text, call.owner, settle=False)
    except DodonaError:
        return False
    return outcome.state == "aborted"


async def _commit(call: YtCall, text: str) -> Timestamp | None:
    if is_master(text):
        await call.run(master_session(call, text).commit())
        call.service.master_transactions.drop(text)
        return None
    is_again = call.parameters.flag("retry")
    return await call.gateway.transactions.commit(text, call.owner, is_repeatable=is_again)


async def abort_transaction(call: YtCall) -> None:
    text = call.parameters.text("transaction_id")
    if is_master(text):
        await call.run(master_session(call, text).abort())
        call.service.master_transactions.drop(text)
    else:
        await call.gateway.transactions.abort(text, call.owner)


async def generate_timestamp(call: YtCall) -> Value:
    call.principal.check_somewhere("read")
    return Value({"timestamp": Uint64(await call.client.generate_timestamp())})


def modes_of(call: YtCall) -> tuple[Any, Any]:
    """Return atomicity and durability: full and sync by default. The client checks the values."""
    parameters = call.parameters
    return parameters.text("atomicity", "full"), parameters.text("durability", "sync")


def is_master(text: str) -> bool:
    """Return whether an id has the form of a master transaction's."""
    words = text.split("-")
    return len(words) == 4 and words[2].endswith("0001")


def owned_master(call: YtCall, text: str) -> Owned:
    """Return a master transaction of the caller. Raises TransactionNotFound."""
    found = call.service.master_transactions.find(text, call.owner)
    if found is None:
        raise TransactionNotFound("No such transaction", transaction=text[:100])
    return found


def master_session(call: YtCall, text: str) -> MasterTransactionSession:
    """Return the tree under a master transaction of the caller. Raises TransactionNotFound."""
    found = owned_master(call, text)
    return call.catalog.resume(TreeTransaction(found.id, found.timeout_ms))


COMMANDS: Final = (
    command(start_transaction, "read", is_volatile=True),
    command(ping_transaction, "read", is_volatile=True),
    command(commit_transaction, "read", is_volatile=True),
    command(abort_transaction, "read", is_volatile=True),
    command(generate_timestamp, "read"),
)
