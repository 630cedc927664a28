"""Run transactions over REST: the gateway holds them for callers that can't.

Owns: these operations, each a few lines over a held transaction, and the roles that they need.
"""

from functools import partial
from typing import Final

from fastapi import Response

from dodona._core.writing.lease import Lease
from dodona.aio import AsyncTransaction
from dodona_gateway.core import answers, requests
from dodona_gateway.core.answers import Buffered, Done, Outcome, Written
from dodona_gateway.core.content import TYPES, VALUE_FORMS
from dodona_gateway.core.query_work import Encoded
from dodona_gateway.shell.rest.rows import selected
from dodona_gateway.shell.routes import Call, route
from dodona_gateway.shell.transactions import EarlyLocks, buffer_of


async def begin_transaction(call: Call, asked: requests.BeginTransaction) -> answers.Begun:
    """Begin a transaction on rows. Its writes stay in the gateway until the commit."""
    call.principal.check_somewhere("read")
    for it in asked.prerequisites:
        call.principal.check("write", it.table)  # the commit locks its row
    for path in asked.locks or ():
        call.principal.check("write", path)
    leases = [Lease(it.table, it.name, it.owner, it.epoch) for it in asked.prerequisites]
    its_id, begun = await call.service.transactions.begin(
        call.owner,
        asked.atomicity,
        asked.durability,
        asked.read_own_writes,
        asked.lease_ms,
        asked.timeout_ms,
        leases,
        await _early_locks(call, asked),
        asked.isolation,
        asked.timestamp,
    )
    gateway = call.service.settings.address
    locked = {
        path: [it for it in await call.shown(path, keys) if it is not None]
        for path, keys in begun.locked_rows.items()
    }
    return answers.Begun(its_id, begun.start_timestamp, asked.lease_ms, gateway, locked)


async def _early_locks(call: Call, asked: requests.BeginTransaction) -> EarlyLocks:
    """Return the rows to lock with the values that the client takes."""
    rows = None
    if asked.locks is not None:
        rows = {path: await call.given(path, keys) for path, keys in asked.locks.items()}
    return EarlyLocks(rows, asked.wait_ms, asked.nowait, asked.skip_locked)


async def insert_rows_in_transaction(call: Call, asked: requests.InsertInTransaction) -> Buffered:
    """Insert rows, at the transaction's commit."""
    call.principal.check("write", asked.table)
    async with call.service.transactions.use(call.transaction, call.owner) as tx:
        await tx.insert_rows(
            asked.table,
            await call.given(asked.table, asked.rows),
            asked.update,
            asked.aggregate,
            asked.lock_type,
            if_absent=asked.if_absent,
            if_version=asked.if_version,
            expect=await call.given_values(asked.table, asked.expect),
            timeout_ms=asked.timeout_ms,
        )
        return _buffered(tx)


async def delete_rows_in_transaction(call: Call, asked: requests.DeleteInTransaction) -> Buffered:
    """Delete rows by key, at the transaction's commit."""
    call.principal.check("write", asked.table)
    async with call.service.transactions.use(call.transaction, call.owner) as tx:
        keys = await call.given(asked.table, asked.keys)
        await tx.delete_rows(
            asked.table,
            keys,
            if_version=asked.if_version,
            expect=await call.given_values(asked.table, asked.expect),
            timeout_ms=asked.timeout_ms,
        )
        return _buffered(tx)


async def lock_rows_in_transaction(call: Call, asked: requests.LockRows) -> Buffered:
    """Lock rows, at the transaction's commit."""
    call.principal.check("write", asked.table)
    async with call.service.transactions.use(call.transaction, call.owner) as tx:
        keys = await call.given(asked.table, asked.keys)
        await tx.lock_rows(
            asked.table, keys, asked.locks, asked.lock_type, timeout_ms=asked.timeout_ms
        )
        return _buffered(tx)


async def lookup_rows_in_transaction(
    call: Call, asked: requests.LookupInTransaction
) -> answers.FoundRows:
    """Return the rows of these keys, as of the transaction's start."""
    call.principal.check("read", asked.table)
    async with call.service.transactions.use(call.transaction, call.owner) as tx:
        buffer = buffer_of(tx)
        lookup = call.service.session.lookup_rows(
            asked.table,
            await call.given(asked.table, asked.keys),
            asked.columns,
            asked.keep_missing,
            buffer.read_timestamp(),
            transaction=buffer,
        )
        rows = await call.service.look_up(lookup, asked.timeout_ms)
    return answers.FoundRows(await call.shown(asked.table, rows))


async def lookup_versions_in_transaction(
    call: Call, asked: requests.LookupVersionsInTransaction
) -> answers.FoundVersions:
    """Return all versions of the rows of these keys until the transaction's start."""
    call.principal.check("read", asked.table)
    async with call.service.transactions.use(call.transaction, call.owner) as tx:
        buffer = buffer_of(tx)
        lookup = call.service.session.lookup_versions(
            asked.table,
            await call.given(asked.table, asked.keys),
            asked.columns,
            asked.keep_missing,
            buffer.read_timestamp(),
            asked.since,
            asked.below,
            asked.limit,
            transaction=buffer,
        )
        rows = await call.service.look_up(lookup, asked.timeout_ms)
    return answers.FoundVersions(await call.shown_versions(asked.table, rows))


async def select_rows_in_transaction(call: Call, asked: requests.SelectInTransaction) -> Response:
    """Return the first rows of a range of keys, as of the transaction's start."""
    call.principal.check("read", asked.table)
    async with call.service.transactions.use(call.transaction, call.owner) as tx:
        buffer = buffer_of(tx)
        lower, upper = await call.given_bounds(asked.table, asked.lower, asked.upper)
        read = partial(
            call.service.session.first_rows,
            lower=lower,
            upper=upper,
            columns=asked.columns,
            transaction=buffer,
        )
        return await selected(call, asked, read, buffer.read_timestamp())


async def query_rows_in_transaction(call: Call, asked: requests.QueryInTransaction) -> Response:
    """Return the result of an SQL query, over tables as of the transaction's start."""
    service = call.service
    async with service.transactions.use(call.transaction, call.owner) as tx:
        content = await service.query(
            call.principal,
            asked.sql,
            Encoded(call.form),
            tx,
            parameters=asked.parameters,
            timeout_ms=asked.timeout_ms,
        )
    return Response(content, media_type=TYPES[call.form])


async def ping_transaction(call: Call, asked: requests.Nothing) -> Done:
    """Renew a transaction's lease. Any other call in the transaction renews it too."""
    call.service.transactions.ping(call.transaction, call.owner)
    return Done()


async def commit_transaction(call: Call, asked: requests.CommitTransaction) -> Written:
    """Commit a transaction. The call may be repeated and gets the same answer, also if the first
    answer was lost."""
    commit = call.service.transactions.commit
    return Written(await commit(call.transaction, call.owner, timeout_ms=asked.timeout_ms))


async def abort_transaction(call: Call, asked: requests.Nothing) -> Done:
    """Abort a transaction with all its writes. The call may be repeated."""
    await call.service.transactions.abort(call.transaction, call.owner)
    return Done()


async def get_transaction(call: Call, asked: requests.FindOutcome) -> Outcome:
    """Return the outcome of a transaction, of any gateway. Without settle the call changes nothing.
    With settle it decides the transaction now: if it is not committed by then, it never will be."""
    call.principal.check_somewhere("write" if asked.settle else "read")
    find = call.service.transactions.outcome
    return await find(
        call.transaction, call.owner, settle=asked.settle, timeout_ms=asked.timeout_ms
    )


def _buffered(transaction: AsyncTransaction) -> Buffered:
    buffer = buffer_of(transaction)
    return Buffered(buffer.row_count, buffer.size_bytes)


_ONE: Final = "/v1/transactions/{transaction}"

ROUTES: Final = (
    route("POST", "/v1/transactions", begin_transaction, "read", status=201),
    route("GET", _ONE, get_transaction, "read"),
    route("POST", f"{_ONE}/insert", insert_rows_in_transaction, "write"),
    route("POST", f"{_ONE}/delete", delete_rows_in_transaction, "write"),
    route("POST", f"{_ONE}/lock", lock_rows_in_transaction, "write"),
    route("POST", f"{_ONE}/lookup", lookup_rows_in_transaction, "read"),
    route("POST", f"{_ONE}/versions", lookup_versions_in_transaction, "read"),
    route(
        "POST",
        f"{_ONE}/select",
        select_rows_in_transaction,
        "read",
        answer=answers.SelectedRows,
    ),
    route(
        "POST",
        f"{_ONE}/query",
        query_rows_in_transaction,
        "read",
        gives=(*VALUE_FORMS, "arrow"),
        answer=answers.QueryResult,
    ),
    route("POST", f"{_ONE}/ping", ping_transaction, "read"),
    route("POST", f"{_ONE}/commit", commit_transaction, "read"),
    route("POST", f"{_ONE}/abort", abort_transaction, "read"),
)
