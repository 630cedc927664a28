"""The open master transactions. Pure.

Owns: which transaction is nested in which, and their leases. A transaction has ended if no client
pinged it within its timeout. Leases are kept in memory: after a restart of the master each begins
anew.
"""

from collections.abc import Iterable
from itertools import islice
from typing import Final

import msgspec

from dodona_oracle.core.records import StoredTransaction
from dodona_wire.errors import InvalidRequest, LimitExceeded, TransactionClosed, TransactionNotFound
from dodona_wire.types import NO_TREE_TRANSACTION, Now, Revision, TreeTransactionId

TRANSACTIONS_MAX: Final = 1_000
NESTING_MAX: Final = 16
TIMEOUT_MS_MIN: Final = 1_000
TIMEOUT_MS_MAX: Final = 3_600_000
TITLE_LENGTH_MAX: Final = 1024
COMMITTED_MAX: Final = 10_000
"""How many of the last commits are remembered, so that a client can repeat each of them. They are
remembered over a restart of the master."""


class OpenTransaction(msgspec.Struct, frozen=True):
    """An open transaction, for people."""

    transaction: TreeTransactionId
    parent: TreeTransactionId
    """The transaction that it is nested in, or none."""
    title: str
    timeout_ms: int
    expires_ms: int
    """From now, if no client pings it."""


class Transactions:
    """The open transactions by id, with their leases."""

    def __init__(
        self,
        stored: Iterable[StoredTransaction],
        commits: Iterable[tuple[Revision, TreeTransactionId]],
        now: Now,
    ) -> None:
        self._alive: dict[TreeTransactionId, StoredTransaction] = {}
        self._deadlines_us: dict[TreeTransactionId, int] = {}
        self._nested: dict[TreeTransactionId, dict[TreeTransactionId, None]] = {}
        self._committed = {transaction: revision for revision, transaction in commits}
        # No lease ends before this. (The lease that ended here may have been renewed since.)
        self._deadline_us: int | None = None
        for transaction in stored:
            self.add(transaction, now)

    @property
    def count(self) -> int:
        """How many are open."""
        return len(self._alive)

    def open_at(self, now: Now) -> list[OpenTransaction]:
        """Return all open transactions, oldest first."""
        return [
            OpenTransaction(
                it.transaction,
                it.parent,
                it.title,
                it.timeout_ms,
                max(self._deadlines_us[it.transaction] - now.instant_us, 0) // 1000,
            )
            for it in self._alive.values()
        ]

    def is_alive(self, transaction: TreeTransactionId) -> bool:
        """Return whether the transaction is open."""
        return transaction in self._alive

    def get(self, transaction: TreeTransactionId) -> StoredTransaction:
        """Return an open transaction. Raises TransactionNotFound."""
        found = self._alive.get(transaction)
        if found is None:
            raise TransactionNotFound(
                f"There is no master transaction {transaction}. It has ended, or it may have "
                "expired since it was not pinged in time. Begin a new one.",
                transaction=transaction,
            )
        return found

    def kin(self, transaction: TreeTransactionId) -> tuple[TreeTransactionId, ...]:
        """Return the transaction and its parents, the innermost first. Raises
        TransactionNotFound."""
        found = []
        while transaction != NO_TREE_TRANSACTION:
            found.append(transaction)
            transaction = self.get(transaction).parent
        return tuple(found)

    def with_nested(self, transaction: TreeTransactionId) -> list[TreeTransactionId]:
        """Return the transaction and all nested in it, each after those nested in it."""
        found = [
            inner
            for nested in self._nested.get(transaction, {})
            for inner in self.with_nested(nested)
        ]
        return [*found, transaction]

    def check_new(self, parent: TreeTransactionId, timeout_ms: int, title: str) -> None:
        """Raise InvalidRequest, LimitExceeded or TransactionNotFound if such a transaction may not
        begin."""
        if not TIMEOUT_MS_MIN <= timeout_ms <= TIMEOUT_MS_MAX:
            raise InvalidRequest(
                f"The timeout of a master transaction is {TIMEOUT_MS_MIN} to {TIMEOUT_MS_MAX} ms.",
                timeout_ms=timeout_ms,
            )
        if len(title) > TITLE_LENGTH_MAX:
            text = f"A title has at most {TITLE_LENGTH_MAX} characters."
            raise LimitExceeded(text, length=len(title))
        if len(self.kin(parent)) >= NESTING_MAX:
            text = f"Master transactions can be nested at most {NESTING_MAX} deep."
            raise LimitExceeded(text, parent=parent)
        if len(self._alive) >= TRANSACTIONS_MAX:
            raise LimitExceeded(
                f"At most {TRANSACTIONS_MAX} master transactions can be open at a time."
            )

    def add(self, transaction: StoredTransaction, now: Now) -> None:
        """Add a transaction that begins (checked before), or that continues after a restart."""
        self._alive[transaction.transaction] = transaction
        self._nested.setdefault(transaction.parent, {})[transaction.transaction] = None
        self._renew(transaction, now)

    def ping(self, transaction: TreeTransactionId, now: Now) -> None:
        """Renew its lease and those of its parents. Raises TransactionNotFound."""
        for each in self.kin(transaction):
            self._renew(self._alive[each], now)

    def end(self, transaction: TreeTransactionId) -> None:
        """Remove a transaction that has ended, and has none nested in it."""
        ended = self._alive.pop(transaction)
        del self._deadlines_us[transaction]
        assert not self._nested.get(transaction), "a transaction ends after those inside it"
        siblings = self._nested[ended.parent]
        del siblings[transaction]
        if not siblings:
            del self._nested[ended.parent]

    def remember(self, transaction: TreeTransactionId, revision: Revision) -> list[Revision]:
        """Note a commit. Return the revisions of the commits that are forgotten for it."""
        self._committed[transaction] = revision
        surplus = len(self._committed) - COMMITTED_MAX
        return [self._committed.pop(it) for it in list(islice(self._committed, max(0, surplus)))]

    def was_committed(self, transaction: TreeTransactionId) -> bool:
        """Return whether it is one of the last committed transactions."""
        return transaction in self._committed

    def check_not_committed(self, transaction: TreeTransactionId) -> None:
        """Raise TransactionClosed if the transaction was committed."""
        if transaction in self._committed:
            text = f"Master transaction {transaction} was committed before."
            raise TransactionClosed(text, transaction=transaction)

    def next_deadline(self) -> int | None:
        """Return the instant, in microseconds, at which a lease may end."""
        return self._deadline_us

    def expired(self, now: Now) -> list[TreeTransactionId]:
        """Return the transactions whose leases have ended."""
        if self._deadline_us is None or now.instant_us < self._deadline_us:
            return []
        ended = [it for it, end_us in self._deadlines_us.items() if end_us <= now.instant_us]
        going_on = [end_us for end_us in self._deadlines_us.values() if end_us > now.instant_us]
        self._deadline_us = min(going_on, default=None)
        return ended

    def _renew(self, transaction: StoredTransaction, now: Now) -> None:
        end_us = now.instant_us + transaction.timeout_ms * 1000
        self._deadlines_us[transaction.transaction] = end_us
        self._deadline_us = end_us if self._deadline_us is None else min(self._deadline_us, end_us)
