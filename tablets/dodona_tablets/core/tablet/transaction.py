"""Hold a transaction in one cell while it is alive there.

Owns: the states, and the data of a transaction between its locks and its outcome. A finished
transaction is only an outcome (see `outcomes`). `participant` and `coordinator` change the state,
through their transition tables.
"""

import enum
from typing import TYPE_CHECKING, Any

from dodona_wire.messages.data import TabletModifications
from dodona_wire.types import NULL_TIMESTAMP, CellId, Key, Timestamp, TransactionId

if TYPE_CHECKING:
    from dodona_tablets.core.tablet.locks import Holder, LockTable
    from dodona_tablets.core.tablet.tablet import Tablet


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
        "held",
        "id",
        "is_given_up",
        "is_recovering",
        "modifications",
        "participants",
        "prepare_timestamp",
        "retry_at_us",
        "routes",
        "since_us",
        "start",
        "state",
        "statuses",
        "tablets",
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
        self.state = State.NONE
        self.participants = participants
        self.modifications = modifications
        self.prepare_timestamp: Timestamp = NULL_TIMESTAMP
        self.commit_timestamp: Timestamp = NULL_TIMESTAMP
        self.tablets: tuple[Tablet, ...] = ()
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
    def is_one_cell(self) -> bool:
        return len(self.participants) == 1

    @property
    def is_waiting(self) -> bool:
        return self.state is State.WAITING

    @property
    def coordinator(self) -> CellId:
        return self.participants[0]
