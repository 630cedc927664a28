"""A transaction as one cell knows it while it is alive there.

Owns: the states, and what belongs to a transaction between its locks and its outcome. A finished
transaction is only an outcome (see `outcomes`). Who changes the state: `participant` and
`coordinator`, through their transition tables.
"""

import enum
from typing import TYPE_CHECKING, Any

from dodona_wire.messages.data import TabletModifications
from dodona_wire.types import NULL_TIMESTAMP, CellId, Key, Timestamp, TransactionId

if TYPE_CHECKING:
    from dodona_tablets.core.tablet.locks import Holder, LockTable
    from dodona_tablets.core.tablet.tablet import Tablet


class State(enum.Enum):
    """COMMITTED and REFUSED are also the two kinds of a finished transaction's outcome."""

    __hash__ = object.__hash__  # Enum's own is Python code: too slow for every commit

    NONE = "none"
    WAITING = "waiting"
    LOCKED = "locked"
    PREPARED = "prepared"
    COMMITTED = "committed"
    REFUSED = "refused"


class Transaction:
    """Alive from the first message that named it here to its outcome (and, at the coordinator,
    to the last acknowledgement). One cell alone: `participants` has that cell only."""

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
        """What was committed after it stands in its way. Its id, or for one that is blind the
        largest timestamp: it begins when its locks are free."""
        self.state = State.NONE
        self.participants = participants
        self.modifications = modifications
        self.prepare_timestamp: Timestamp = NULL_TIMESTAMP
        self.commit_timestamp: Timestamp = NULL_TIMESTAMP
        self.tablets: tuple[Tablet, ...] = ()
        self.held: list[tuple[LockTable, Key, Holder]] = []
        # Where only a few can come it is a tuple: almost all stay empty, and cost nothing to make.
        self.routes = routes
        """Who asked for the commit or prepare and gets its answer."""
        self.asked_routes: tuple[Any, ...] = ()
        """Who asked the coordinator for the outcome before there was one."""
        self.asked_at_us = 0
        """When the first of them asked."""
        self.waiters: list[Any] = []
        """Reads and writers that wait for this transaction to move on, or did until lately."""
        self.since_us = since_us
        self.retry_at_us = since_us
        self.is_recovering = False
        self.is_given_up = False
        """Its client has said that it has reported no commit, and never will."""
        self.statuses: tuple[tuple[CellId, Timestamp], ...] = ()
        """Who said that it is prepared, since recovery began."""
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
