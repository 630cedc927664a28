"""The short way of writes: rows of one tablet whose place is known, in a transaction of their own.
Pure.

Owns: what is plain enough for it, and the one request. Nearly all writes without a transaction are
that, and then a buffer, a division among tablets and a loop over attempts have nothing to do.
Invariant: it only knows success. Whatever else comes back, the long way goes on from there, with
the same rows under the same id, or begins anew where nothing can have come of it.
"""

from collections.abc import Iterable
from typing import Any

from dodona._core.protocol.context import Context, error_of, was_never_sent
from dodona._core.protocol.limits import TransactionLimits
from dodona._core.protocol.routing import TableRoute, is_served
from dodona._core.protocol.steps import Calls, Protocol
from dodona._core.writing.committing import Answered
from dodona._core.writing.writing import Account
from dodona_wire.cores.fault_points import FaultPoint
from dodona_wire.messages.base import Failure
from dodona_wire.messages.catalog import Tablet
from dodona_wire.messages.data import (
    CommitOne,
    Committed,
    TabletModifications,
    WriteNonAtomic,
    Written,
)
from dodona_wire.rows.row_code import RowCode
from dodona_wire.types import (
    CellId,
    Durability,
    Timestamp,
    WireWrite,
    Write,
    timestamp_from_unix_us,
)


def write_on_fast_path(
    context: Context, path: str, rows: Iterable[Any], update: bool, durability: Durability
) -> Protocol[Timestamp | Answered | None]:
    """→ the timestamp that the rows have, the answer that the long way has to judge, or None: then
    nothing has happened, and the long way knows what to do. Raises what the long way raises for a
    reply that was lost, in a table without atomicity."""
    route = context.routing.find(path)
    if route is None or type(rows) is not list or type(update) is not bool:
        return None
    writes = _plain_writes(route.schema.code, context.limits.transaction, rows)
    if writes is None:
        return None
    tablet = _tablet_of(route, writes)
    if tablet is None or tablet.cell is None:
        return None
    if context.injects_faults and context.fault_at(FaultPoint.WRITE_THE_LONG_WAY):
        return None
    packed = route.schema.pack_writes(writes)
    if route.atomicity == "none":
        return (yield from _write(context, tablet.cell, tablet, packed, durability))
    transaction = context.take_reserved_id() if durability == "sync" else None
    if transaction is None:
        return None
    modifications = TabletModifications(tablet.tablet, tablet.revision, packed)
    request = CommitOne(transaction, (modifications,), True)
    (reply,) = yield Calls(((tablet.cell, request),))
    if type(reply) is Committed and not context.injects_faults:
        return reply.timestamp
    return Answered(route, writes, tablet.cell, request, reply)


def _plain_writes(code: RowCode, limits: TransactionLimits, rows: list[Any]) -> list[Write] | None:
    """None if there is one that is not plain, or might be too much: that is for the long way."""
    if len(rows) > limits.rows_max or len(rows) * code.bytes_max > limits.bytes_max:
        return None
    writes = [*map(code.write_of, rows)]
    return None if None in writes else writes  # type: ignore[return-value]


def _tablet_of(route: TableRoute, writes: list[Write]) -> Tablet | None:
    """Which takes all of them, each key once."""
    if len(writes) == 1:
        tablet = route.tablet_of(writes[0][0])
    else:
        keys = {write[0] for write in writes}
        if not 0 < len(keys) == len(writes):
            return None
        tablet = route.tablet_of(min(keys))
        if tablet is not route.tablet_of(max(keys)):
            return None
    return tablet if is_served(tablet, is_write=True) else None


def _write(
    context: Context,
    cell: CellId,
    tablet: Tablet,
    writes: tuple[WireWrite, ...],
    durability: Durability,
) -> Protocol[Timestamp | None]:
    """Into a table without atomicity. → the largest timestamp that a row got."""
    if durability not in ("sync", "async"):
        return None
    stamp, is_durable = timestamp_from_unix_us(context.unix_us()), durability == "sync"
    request = WriteNonAtomic(tablet.tablet, tablet.revision, stamp, is_durable, writes, None)
    (reply,) = yield Calls(((cell, request),))
    if type(reply) is Written:
        return reply.timestamp
    if type(reply) is Failure and reply.kind == "unavailable" and not was_never_sent(reply):
        account = Account()
        account.lose(tablet.tablet)
        error = error_of(reply)
        error.attributes.update(account.attributes())
        raise error
    return None
