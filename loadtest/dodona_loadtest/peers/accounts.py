"""SmallBank for the benchmark rows: which transactions there are, and what each of them does. Pure.

Owns: the arithmetic that both systems share, with the customers, shares and amounts of
`scenarios.smallbank`. Invariant: the accounts hold what was paid in, in acknowledged transactions.
No savings account is below zero.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from random import Random
from typing import Final

from dodona_loadtest.harness.errors import ContenderFailed
from dodona_loadtest.scenarios.smallbank import (
    AMOUNT_MAX,
    CENTS_MAX,
    CENTS_MIN,
    PENALTY,
    SHARES,
    name_of,
)

CUSTOMERS: Final = 1_000
HOT_CUSTOMERS: Final = 100
HOT_SHARE: Final = 0.9
KINDS: Final = tuple(SHARES)
PAIRED: Final = ("Amalgamate", "SendPayment")
OF_SAVINGS: Final = ("Balance", "TransactSavings", "Amalgamate", "WriteCheck")

Balances = Mapping[int, int]
"""Cents, by customer."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a transaction writes, and the money that it pays in: negative if it pays out."""

    savings: Balances
    checking: Balances
    paid: int = 0


@dataclass(frozen=True, slots=True)
class BankRequest:
    """A transaction that a caller asks for. Amounts are cents."""

    kind: str
    customers: tuple[int, ...]
    amount: int

    @property
    def names(self) -> list[str]:
        """The names of the customers, by which a transaction finds their ids."""
        return [name_of(it) for it in self.customers]

    @property
    def savings(self) -> list[int]:
        """The savings accounts that it reads."""
        return [self.customers[0]] if self.kind in OF_SAVINGS else []

    @property
    def checking(self) -> list[int]:
        """The checking accounts that it reads, in the order of their ids."""
        return [] if self.kind == "TransactSavings" else sorted(self.customers)

    @property
    def is_read_only(self) -> bool:
        return self.kind == "Balance"

    def outcome(self, savings: Balances, checking: Balances) -> Outcome:
        """Return what to write after these balances were read."""
        first, amount = self.customers[0], self.amount
        if self.kind == "DepositChecking":
            return Outcome({}, {first: checking[first] + amount}, amount)
        if self.kind == "TransactSavings":
            is_declined = savings[first] + amount < 0
            return NOTHING if is_declined else Outcome({first: savings[first] + amount}, {}, amount)
        if self.kind == "WriteCheck":
            paid = amount + PENALTY * (savings[first] + checking[first] < amount)
            return Outcome({}, {first: checking[first] - paid}, -paid)
        if self.kind == "Amalgamate":
            moved = savings[first] + checking[first]
            other = self.customers[1]
            return Outcome({first: 0}, {first: 0, other: checking[other] + moved})
        if self.kind == "SendPayment" and checking[first] >= amount:
            other = self.customers[1]
            return Outcome({}, {first: checking[first] - amount, other: checking[other] + amount})
        return NOTHING


NOTHING: Final = Outcome({}, {})


class Bank:
    """The requests of one run, and the money that the accounts must hold."""

    def __init__(self) -> None:
        random = self._random = Random(2013)
        accounts = range(CUSTOMERS)
        self.savings = {it: random.randint(CENTS_MIN, CENTS_MAX) for it in accounts}
        """What the accounts hold at first."""
        self.checking = {it: random.randint(CENTS_MIN, CENTS_MAX) for it in accounts}
        self._total = sum(self.savings.values()) + sum(self.checking.values())

    def draw(self) -> BankRequest:
        """Draw a request. All of its customers are of the hotspot, or all are from anywhere."""
        random = self._random
        (kind,) = random.choices(KINDS, list(SHARES.values()))
        among = HOT_CUSTOMERS if random.random() < HOT_SHARE else CUSTOMERS
        customers = random.sample(range(among), 2 if kind in PAIRED else 1)
        lowest = -AMOUNT_MAX if kind == "TransactSavings" else 1
        return BankRequest(kind, tuple(customers), random.randint(lowest, AMOUNT_MAX))

    def pay(self, cents: int) -> None:
        """Note what an acknowledged transaction has paid in."""
        self._total += cents

    def check(self, savings: Balances, checking: Balances) -> None:
        """Check all accounts. Raises ContenderFailed."""
        for name, accounts in (("savings", savings), ("checking", checking)):
            if accounts.keys() != self.savings.keys():
                raise ContenderFailed(f"{len(accounts)} of {CUSTOMERS} {name} accounts are there")
        found = sum(savings.values()) + sum(checking.values())
        if found != self._total:
            raise ContenderFailed(f"the accounts hold {found} cents, {self._total} were paid in")
        if min(savings.values()) < 0:
            raise ContenderFailed("a savings account is below zero")
