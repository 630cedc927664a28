"""Hold a transaction in one cell while it is alive there, and the locks that transactions have.

Owns: the states, the data of a transaction between its locks and its outcome, and the table of a
tablet's locks. A finished transaction is only an outcome (see `outcomes`). `participant` and
`coordinator` change the state, through their transition tables. `locks` has the rules of locks, and
`lock_set` their types.
Locks are held only while a transaction commits, in a table of their own. So rows without locks pay
nothing for them. The times of last changes are in the versions in memory. Locks without data leave
their times behind, until no transaction could conflict with them any more.
"""

import enum
from collections.abc import Mapping
from typing import Any, Final

from dodona_tablets.core.rows.version import bits_of
from dodona_tablets.core.tablet.lock_set import LockSet
from dodona_wire.messages.conditions import RowCondition
from dodona_wire.messages.data import TabletModifications
from dodona_wire.types import (
    NO_OWNER,
    NULL_TIMESTAMP,
    CellId,
    Key,
    LockType,
    TabletId,
    Timestamp,
    TransactionId,
)

NO_CONDITIONS: Final[Mapping[TabletId, tuple[RowCondition, ...]]] = {}
"""The conditions of nearly all transactions."""


class State(enum.Enum):
    """The state of a transaction. COMMITTED and REFUSED are also the two kinds of a finished
    transaction's outcome."""

    __hash__ = object.__hash__  # Enum's own is Python code: too slow for every commit

    NONE = "none"
    WAITING = "waiting"
    LOCKED = "locked"
    PREPARED = "prepared"
    COMMITTED = "committed"
    REFUSED = "refused"


class Transaction:
    """A transaction from the first message that named it here to its outcome. At the coordinator,
    it stays until the last acknowledgement. With one cell, `participants` has that cell only."""

    __slots__ = (
        "asked_at_us",
        "asked_routes",
        "commit_timestamp",
        "conditions",
        "held",
        "id",
        "is_given_up",
        "is_recovering",
        "modifications",
        "owner",
        "participants",
        "prepare_timestamp",
        "read_at",
        "retry_at_us",
        "routes",
        "since_us",
        "start",
        "state",
        "statuses",
        "unacknowledged",
        "waiters",
    )

    def __init__(
        self,
        transaction: TransactionId,
        start: Timestamp,
        participants: tuple[CellId, ...],
        modifications: tuple[TabletModifications, ...],
        since_us: int,
        routes: tuple[Any, ...] = (),
    ) -> None:
        self.id = transaction
        self.start = start
        """Commits after this timestamp are in the way of the transaction. It is the transaction's
        id. For a blind transaction it is the largest timestamp: that one begins when its locks are
        free."""
        self.read_at = start
        """When its rows were read, if it has reads. A new attempt of a transaction that was refused
        has a later start."""
        self.state = State.NONE
        self.participants = participants
        self.modifications = modifications
        self.conditions = NO_CONDITIONS
        """By tablet, what must hold for rows when the transaction takes its locks."""
        self.owner = NO_OWNER
        """The owner of the early locks that the transaction passes."""
        self.prepare_timestamp: Timestamp = NULL_TIMESTAMP
        self.commit_timestamp: Timestamp = NULL_TIMESTAMP
        self.held: list[tuple[LockTable, Key, Holder]] = []
        # Short lists are tuples: almost all stay empty, and an empty tuple costs nothing to make.
        self.routes = routes
        """The callers that asked for the commit or prepare, and get its answer."""
        self.asked_routes: tuple[Any, ...] = ()
        """The callers that asked the coordinator for the outcome before there was one."""
        self.asked_at_us = 0
        """When the first of these callers asked."""
        self.waiters: list[Any] = []
        """Reads and writers that wait for a change of this transaction, or waited until
        recently."""
        self.since_us = since_us
        self.retry_at_us = since_us
        self.is_recovering = False
        self.is_given_up = False
        """Whether its client has said that it reported no commit, and never will."""
        self.statuses: tuple[tuple[CellId, Timestamp], ...] = ()
        """The cells that have said, since recovery began, that they are prepared, with their
        timestamps."""
        self.unacknowledged: tuple[CellId, ...] = ()

    @property
    def is_waiting(self) -> bool:
        return self.state is State.WAITING

    @property
    def has_locks(self) -> bool:
        """Whether the transaction holds locks, so that its tablets count it as active."""
        return self.state is State.LOCKED or self.state is State.PREPARED

    @property
    def coordinator(self) -> CellId:
        return self.participants[0]


class Holder:
    """A transaction's locks on a row while it commits. Rows with the same locks may share it.

    `lock_type` is the type of a lock without data, which leaves its time behind at a commit. It is
    None for a write, which leaves a version instead.
    """

    __slots__ = ("lock_type", "locks", "transaction")

    def __init__(
        self, transaction: Transaction, locks: LockSet, lock_type: LockType | None = None
    ) -> None:
        self.transaction = transaction
        self.locks = locks
        self.lock_type = lock_type


class RowLocks:
    """The transactions that hold locks on one row, and the times when locks without data were last
    committed on it. The times are by type, then by group."""

    __slots__ = ("holders", "times")

    def __init__(self) -> None:
        self.holders: list[Holder] = []
        self.times: dict[LockType, dict[int, Timestamp]] | None = None

    def remember(self, lock_type: LockType, groups: int, timestamp: Timestamp) -> None:
        """Note that a lock without data was committed."""
        if self.times is None:
            self.times = {}
        times = self.times.setdefault(lock_type, {})
        for group in bits_of(groups):
            times[group] = max(times.get(group, timestamp), timestamp)

    def forget(self, needed: Timestamp) -> None:
        """Forget the times if all are at or below `needed`: no transaction can conflict with
        them."""
        if self.times is not None and all(max(it.values()) <= needed for it in self.times.values()):
            self.times = None

    @property
    def is_idle(self) -> bool:
        """Whether the row looks like one that was never locked."""
        return not self.holders and self.times is None


LockTable = dict[Key, RowLocks]
"""The locks of one tablet: the rows that are locked, or were read-locked recently."""
