"""Bank: transfers between accounts in the tablets of several cells; the total never changes.

Owns: the accounts. They are opened (overwrite: all lock groups) and closed (delete: the main lock).
They are credited and annotated side by side (updates: a lock group each). Also owns the auditors,
who add up whole snapshots, new and old, and look at the newest state.
"""

from collections.abc import Mapping
from random import Random
from typing import Any, Final

from dodona._core.protocol.steps import Protocol
from dodona_loadtest.histories.recorder import Attempt, Recorder
from dodona_loadtest.histories.shape import TableShape
from dodona_loadtest.workloads.workload import Workload
from dodona_wire.errors import DodonaError
from dodona_wire.rows.schema import Column

BALANCE_AT_START: Final = 100
ACCOUNTS_PER_TABLET: Final = 4


class Bank(Workload):
    """Accounts 0 to n-1 in a few tablets. A closed account has no row, and no money."""

    name = "bank"

    def __init__(self, random: Random) -> None:
        super().__init__(random)
        self.tablet_count = random.choice((2, 4, 6))
        self.account_count = ACCOUNTS_PER_TABLET * self.tablet_count
        self.hot_rate = random.choice((0.0, 0.3, 0.7))
        pivots = [(ACCOUNTS_PER_TABLET * index,) for index in range(1, self.tablet_count)]
        self.table = TableShape(
            "//bank/accounts",
            (
                Column("id", "int64", sort_order="ascending"),
                Column("balance", "int64", lock="money"),
                Column("writer", "utf8", lock="money"),
                Column("memo", "utf8", lock="memo"),
            ),
            ((), *pivots),
        )

    @property
    def total(self) -> int:
        return BALANCE_AT_START * self.account_count

    def set_up(self, db: Recorder) -> Protocol[bool]:
        attempt = yield from db.begin()
        for account in range(self.account_count):
            yield from attempt.insert(self.table, self._row(db, account, BALANCE_AT_START))
        return (yield from attempt.commit())

    def transact(self, db: Recorder) -> Protocol[None]:
        body = self._transfer if db.random.random() < 0.85 else self._annotate
        attempt = yield from db.begin()
        try:
            is_changed = yield from body(db, attempt)
        except DodonaError as error:
            attempt.give_up(error)
            raise
        if is_changed:
            yield from attempt.commit()
        else:
            attempt.end()

    def draw_key(self, random: Random) -> dict[str, Any]:
        return {"id": random.randrange(self.account_count)}

    def problem(self, rows: list[dict[str, Any]]) -> str | None:
        total = sum(self._balance(row) for row in rows)
        return None if total == self.total else f"the total is {total}, not {self.total}"

    def touch(self, db: Recorder) -> Protocol[bool]:
        attempt = yield from db.begin()
        accounts = [ACCOUNTS_PER_TABLET * index for index in range(self.tablet_count)]
        rows = yield from attempt.lookup(self.table, [{"id": account} for account in accounts])
        for account, row in zip(accounts, rows, strict=True):
            yield from attempt.insert(self.table, self._row(db, account, self._balance(row)))
        return (yield from attempt.commit())

    def _row(self, db: Recorder, account: int, balance: int) -> dict[str, Any]:
        return {"id": account, "balance": balance, "writer": db.unique_value()}

    def _balance(self, row: Mapping[str, Any] | None) -> int:
        """Return the money of an account, 0 if it is closed. An open one has a balance."""
        if row is None:
            return 0
        if row["balance"] is None:
            self.flag(f"account {row['id']} is there, but has no balance")
        return row["balance"] or 0

    def _draw_accounts(self, random: Random, count: int) -> list[int]:
        """Draw accounts. In some runs, two accounts in each of two tablets are hot."""
        if random.random() < self.hot_rate:
            return random.sample((1, 2, ACCOUNTS_PER_TABLET, ACCOUNTS_PER_TABLET + 1), count)
        return random.sample(range(self.account_count), count)

    def _transfer(self, db: Recorder, attempt: Attempt) -> Protocol[bool]:
        accounts = self._draw_accounts(db.random, 2 if db.random.random() < 0.8 else 3)
        keys = [{"id": account} for account in accounts]
        rows = yield from attempt.lookup(self.table, keys)
        balances = [self._balance(row) for row in rows]
        amount = db.random.randint(1, 30)
        if balances[0] < amount:
            amount = balances[0]
        if amount == 0:
            return False
        is_closing = balances[0] == amount or db.random.random() < 0.05
        if is_closing:
            amount = balances[0]
            yield from attempt.delete(self.table, keys[0])
        else:
            yield from self._put(db, attempt, accounts[0], balances[0] - amount, rows[0])
        shares = [amount] if len(accounts) == 2 else [amount // 2, amount - amount // 2]
        for index, share in enumerate(shares, 1):
            balance = balances[index] + share
            yield from self._put(db, attempt, accounts[index], balance, rows[index])
        return True

    def _put(
        self,
        db: Recorder,
        attempt: Attempt,
        account: int,
        balance: int,
        old: Mapping[str, Any] | None,
    ) -> Protocol[None]:
        """Write an account. An open one keeps its memo (update); a new one has none."""
        row = self._row(db, account, balance)
        is_update = old is not None or db.random.random() < 0.3
        yield from attempt.insert(self.table, row, is_update=is_update)

    def _annotate(self, db: Recorder, attempt: Attempt) -> Protocol[bool]:
        """Write another lock group of rows that transfers may be writing."""
        accounts = self._draw_accounts(db.random, 2)
        rows = yield from attempt.lookup(self.table, [{"id": account} for account in accounts])
        is_changed = False
        for account, row in zip(accounts, rows, strict=True):
            if row is not None:
                memo = {"id": account, "memo": db.unique_value()}
                yield from attempt.insert(self.table, memo, is_update=True)
                is_changed = True
        return is_changed
