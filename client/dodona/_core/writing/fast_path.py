"""The fast path of writes: rows of one tablet with a known route, in their own transaction. Pure.

Owns: which writes it takes, and its one request. Nearly all writes without a transaction are of
this kind. They need no buffer, no division among tablets and no loop of attempts.
Invariant: it handles only success. After any other reply, the general path continues, with the same
rows under the same id. If the request certainly had no effect, the general path begins again.
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
    """Return the timestamp of the rows, or the reply for the general path to judge, or None. After
    None nothing has changed, and the general path can begin. For a table without atomicity, a lost
    reply raises the same error as in the general path."""
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
    """Return the writes, or None if one of the rows is not plain or if they might be too many."""
    if len(rows) > limits.rows_max or len(rows) * code.bytes_max > limits.bytes_max:
        return None
    writes = [*map(code.write_of, rows)]
    return None if None in writes else writes  # type: ignore[return-value]


def _tablet_of(route: TableRoute, writes: list[Write]) -> Tablet | None:
    """Return the tablet that takes all of the writes, or None. A key that is there twice also gives
    None."""
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
    """Write to a table without atomicity. Return the largest timestamp of a row, or None as
    above."""
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
