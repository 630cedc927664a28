"""Write to tables of `atomicity=none`: no start timestamp, no locks, no second phase. Pure.

Owns: the timestamps from this client's clock, and which rows go to which tablet. Also the account
of which tablets have their rows after a failure. A write whose reply was lost is not repeated here.
It may have been applied, and a later repetition could overwrite a newer write of another client.
"""

from collections.abc import Collection, Mapping
from typing import ClassVar, Final

from dodona._core.protocol.attempts import may_write_again
from dodona._core.protocol.context import Context, expect, was_never_sent
from dodona._core.protocol.fan_out import Job, fan_out
from dodona._core.protocol.routing import TableRoute
from dodona._core.protocol.steps import Protocol
from dodona._core.writing.buffer import Special
from dodona._core.writing.committing import routes_of
from dodona._core.writing.parts import group_by_tablet, pack_special
from dodona._core.writing.transaction import TransactionBuffer
from dodona_wire.errors import DodonaError
from dodona_wire.messages.base import Failure
from dodona_wire.messages.catalog import Tablet
from dodona_wire.messages.data import WriteNonAtomic, Written
from dodona_wire.messages.families import Reply
from dodona_wire.rows.schema import TableSchema
from dodona_wire.types import (
    NULL_TIMESTAMP,
    Key,
    SpecialWrites,
    TabletId,
    Timestamp,
    WireWrite,
    Write,
    timestamp_from_unix_us,
)

NO_TABLET: Final = TabletId(-1)


def commit_non_atomic(context: Context, transaction: TransactionBuffer) -> Protocol[Timestamp]:
    """Write a buffer that is not empty. Return the largest timestamp that a row got.

    The attributes of an error say for each tablet what happened to its rows. `applied`: they are
    there, with the wanted durability. `unknown`: the reply was lost. Or `not_applied`.
    """
    routes = yield from routes_of(context, transaction, None)
    stamp = timestamp_from_unix_us(context.unix_us())
    account = Account()
    is_durable = transaction.durability == "sync"
    jobs = [
        (route, _WriteJob(buffer.writes.values(), buffer.special, stamp, is_durable, account))
        for route, buffer in zip(routes, transaction.tables.values(), strict=True)
    ]
    try:
        yield from fan_out(context, jobs)
    except DodonaError as error:
        error.attributes.update(account.attributes())
        raise
    return account.timestamp


class Account:
    """What happened to the rows, by tablet."""

    __slots__ = ("_states", "timestamp")

    def __init__(self) -> None:
        self.timestamp: Timestamp = NULL_TIMESTAMP
        self._states: dict[TabletId, str] = {}

    def expect(self, tablet: TabletId) -> None:
        self._states.setdefault(tablet, "not_applied")

    def apply(self, tablet: TabletId, written: Written) -> None:
        if self._states.get(tablet) != "unknown":
            self._states[tablet] = "applied"
        self.timestamp = max(self.timestamp, written.timestamp)

    def lose(self, tablet: TabletId) -> None:
        self._states[tablet] = "unknown"

    def attributes(self) -> dict[str, list[TabletId]]:
        """Return the tablets in each state, as attributes of an error."""
        return {state: self._tablets(state) for state in ("applied", "unknown", "not_applied")}

    def _tablets(self, wanted: str) -> list[TabletId]:
        return [tablet for tablet, state in self._states.items() if state == wanted]


class _WriteJob:
    """The rows of one table, or of one of its tablets."""

    is_write: ClassVar[bool] = True
    __slots__ = ("_account", "_is_durable", "_packed", "_special", "_stamp", "_tablet", "_writes")

    def __init__(
        self,
        writes: Collection[Write],
        special: Mapping[Key, Special],
        stamp: Timestamp,
        is_durable: bool,
        account: Account,
        tablet: TabletId = NO_TABLET,
        packed: tuple[tuple[WireWrite, ...], SpecialWrites | None] = ((), None),
    ) -> None:
        self._writes = writes
        self._special = special
        self._packed = packed
        self._stamp = stamp
        self._is_durable = is_durable
        self._account = account
        self._tablet = tablet

    def divide(self, route: TableRoute) -> list[tuple[Tablet, Job]]:
        return [
            (tablet, self._part(route.schema, tablet.tablet, writes))
            for tablet, writes in group_by_tablet(route, self._writes)
        ]

    def _part(self, schema: TableSchema, tablet: TabletId, writes: list[Write]) -> "_WriteJob":
        self._account.expect(tablet)
        packed = schema.pack_writes(writes), pack_special(schema, self._special, writes)
        return _WriteJob(
            writes, self._special, self._stamp, self._is_durable, self._account, tablet, packed
        )

    def request(self, tablet: Tablet) -> WriteNonAtomic:
        writes, special = self._packed
        return WriteNonAtomic(
            tablet.tablet, tablet.revision, self._stamp, self._is_durable, writes, special
        )

    def accept(self, reply: Reply) -> None:
        self._account.apply(self._tablet, expect(reply, Written))

    def refuse(self, failure: Failure) -> bool:
        if failure.kind == "unavailable" and not was_never_sent(failure):
            self._account.lose(self._tablet)
        return may_write_again(failure)
