"""Bugs of transactions that read nothing: they begin when their locks are free."""

from typing import Any

import pytest

from dodona._core.protocol.reserve import Reserve
from dodona.schema import TableSchema
from dodona.types import MAX_TIMESTAMP, Key, Timestamp, TransactionId
from dodona_tablets.core.commit.participant import Participant
from dodona_tablets.core.rows.version import Version, chain_of, history
from dodona_tablets.core.tablet.lock_set import LockSet
from dodona_tablets.core.tablet.locks import check_locks, check_versions
from dodona_tablets.core.tablet.transaction import RowLocks, Transaction
from negative.bug import PlantedBug, Where

BLIND = Where("blind")


def never_wait(patch: pytest.MonkeyPatch) -> None:
    def check(
        locks: RowLocks, key: Key, schema: TableSchema, start: Timestamp, wanted: LockSet
    ) -> Transaction | None:
        return None if start == MAX_TIMESTAMP else check_locks(locks, key, schema, start, wanted)

    patch.setattr("dodona_tablets.core.commit.taking.check_locks", check)


def stand_in_nobodys_way(patch: pytest.MonkeyPatch) -> None:
    is_blind: dict[int, bool] = {}
    commit = Participant.handle_timestamp

    def handle(participant: Participant, transaction: TransactionId, at: Timestamp) -> None:
        alive = participant._cell.transactions.get(transaction)
        is_blind[at] = alive is not None and alive.start == MAX_TIMESTAMP
        commit(participant, transaction, at)

    def check(newest: Version | None, *asked: Any) -> None:
        seen = [version for version in history(newest) if not is_blind.get(version[0])]
        check_versions(chain_of(seen), *asked)

    patch.setattr(Participant, "handle_timestamp", handle)
    patch.setattr("dodona_tablets.core.commit.taking.check_versions", check)


class Repeating(Reserve):
    """Hands out every name twice."""

    last: TransactionId | None = None

    def take(self, instant_us: int) -> TransactionId | None:
        taken, self.last = self.last, None
        if taken is None:
            taken = self.last = super().take(instant_us)
        return taken


def name_twice(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("dodona._core.protocol.context.Reserve", Repeating)


def commit_at_the_name(patch: pytest.MonkeyPatch) -> None:
    """The name was issued long before: it is not the time of the commit."""
    commit = Participant.handle_timestamp

    def handle(participant: Participant, transaction: TransactionId, at: Timestamp) -> None:
        alive = participant._cell.transactions.get(transaction)
        is_blind = alive is not None and alive.start == MAX_TIMESTAMP
        commit(participant, transaction, Timestamp(transaction + 1) if is_blind else at)

    patch.setattr(Participant, "handle_timestamp", handle)


def rename_after_silence(patch: pytest.MonkeyPatch) -> None:
    """Silence does not say that nothing came of it."""
    patch.setattr("dodona._core.writing.committing.was_never_sent", lambda _: True)


BUGS = (
    PlantedBug(
        None,
        "a blind write does not wait for the transaction that holds its row",
        never_wait,
        ("NOCONFLICT",),
        BLIND,
    ),
    PlantedBug(
        None,
        "a committed blind write conflicts with no other transaction",
        stand_in_nobodys_way,
        ("NOCONFLICT",),
        BLIND,
    ),
    PlantedBug(
        None,
        "ids of blind writes are given out twice",
        name_twice,
        ("UNIQUE", "DURABILITY"),
        BLIND,
    ),
    PlantedBug(
        None,
        "a blind write commits at its id",
        commit_at_the_name,
        ("MONOTONIC",),
        BLIND,
    ),
    PlantedBug(
        None,
        "a blind write is sent again under another id after silence",
        rename_after_silence,
        ("GHOST",),
        BLIND,
    ),
)
