"""SmallBank: six short transactions over the checking and savings accounts of customers.

Owns: the transactions after Alomari and others ("The cost of serializability on platforms that use
snapshot isolation", 2008), with SendPayment, which later benchmarks added. Also owns the money: at
any snapshot the accounts hold what the transactions committed by then paid in and out. Amounts are
cents. Under snapshot isolation, WriteCheck may decide by a savings account that another transaction
changes meanwhile. So it may charge no penalty where it would have in a serial order. That is write
skew, which is legal, and a run counts it. Write skew creates and loses no money.
"""

from collections.abc import Mapping, Sequence
from random import Random
from typing import Any, Final

from dodona._core.protocol.steps import Protocol
from dodona_loadtest.checkers.attribution import attribute
from dodona_loadtest.checkers.timestamps import Committed
from dodona_loadtest.checkers.violation import Violation
from dodona_loadtest.histories.history import History, Version
from dodona_loadtest.histories.recorder import Attempt, Recorder
from dodona_loadtest.histories.shape import Row, TableShape
from dodona_loadtest.scenarios.parameters import Parameters
from dodona_loadtest.scenarios.scenario import (
    ROWS_PER_PART,
    Operation,
    Scenario,
    even_pivots,
    first_keys,
    give_up_on_error,
)
from dodona_wire.rows.schema import Column

CENTS_MIN: Final = 10_000
CENTS_MAX: Final = 50_000
"""The money of each account at first."""
AMOUNT_MAX: Final = 10_000
PENALTY: Final = 1
SHARES: Final = {
    "Balance": 0.15,
    "DepositChecking": 0.15,
    "TransactSavings": 0.15,
    "Amalgamate": 0.15,
    "WriteCheck": 0.15,
    "SendPayment": 0.25,
}
AUDIT_SHARE: Final = 0.02


class SmallBank(Scenario):
    """Customers 0 to n-1, each with a name, a savings and a checking account."""

    name = "smallbank"
    summary = "SmallBank: six short transactions over customers' two accounts"

    def __init__(self, random: Random, parameters: Parameters) -> None:
        super().__init__(random, parameters)
        self.customer_count = parameters.rows
        tablets = parameters.tablets
        self.customers = TableShape(
            "//smallbank/customers",
            (Column("name", "utf8", sort_order="ascending"), Column("id", "int64")),
            ((), *((name_of(key[0]),) for key in even_pivots(parameters.rows, tablets)[1:])),
        )
        self.savings, self.checking = (
            TableShape(
                f"//smallbank/{kind}",
                (
                    Column("id", "int64", sort_order="ascending"),
                    Column("balance", "int64"),
                    Column("writer", "utf8"),
                ),
                even_pivots(parameters.rows, tablets),
            )
            for kind in ("savings", "checking")
        )
        self._paid: dict[str, int] = {}
        """By the name of a transaction: the money that it pays in, negative if it pays out."""
        self._audits: list[tuple[int, int]] = []
        """Timestamps, and all the money at each."""
        self._checks: dict[str, tuple[int, int, int]] = {}
        """For each WriteCheck: the customer, the amount, and the money of the checking account."""

    @property
    def tables(self) -> list[TableShape]:
        return [self.checking, self.savings, self.customers]

    @property
    def operations(self) -> Mapping[str, tuple[float, Operation]]:
        bodies: dict[str, Operation] = {
            "Balance": self._balance,
            "DepositChecking": self._deposit_checking,
            "TransactSavings": self._transact_savings,
            "Amalgamate": self._amalgamate,
            "WriteCheck": self._write_check,
            "SendPayment": self._send_payment,
        }
        shares = {name: (share * (1 - AUDIT_SHARE), bodies[name]) for name, share in SHARES.items()}
        return shares | {"audit": (AUDIT_SHARE, self.audit)}

    # ---- before and after

    def set_up(self, db: Recorder) -> Protocol[bool]:
        while self._filled < self.customer_count:
            end = min(self.customer_count, self._filled + ROWS_PER_PART)
            attempt = yield from db.begin()
            if not (
                yield from give_up_on_error(attempt, self._open(db, attempt, self._filled, end))
            ):
                return False
            self._filled = end
        return True

    def _open(self, db: Recorder, attempt: Attempt, first: int, end: int) -> Protocol[bool]:
        """Open accounts, unless an attempt with an unknown outcome has already opened them."""
        ids = range(first, end)
        before = 0
        for table in (self.savings, self.checking):
            rows = yield from attempt.lookup(table, [{"id": it} for it in ids])
            before += sum(row["balance"] for row in rows if row is not None)
        paid = 0
        for number in ids:
            name = {"name": name_of(number), "id": number}
            if before == 0:
                yield from attempt.insert(self.customers, name)
                for table in (self.savings, self.checking):
                    amount = db.random.randint(CENTS_MIN, CENTS_MAX)
                    paid += amount
                    yield from self._put(db, attempt, table, number, amount)
        self._paid[attempt.record.name] = paid
        return before == 0

    def touch(self, db: Recorder) -> Protocol[bool]:
        attempt = yield from db.begin()
        return (yield from give_up_on_error(attempt, self._rewrite(db, attempt)))

    def _rewrite(self, db: Recorder, attempt: Attempt) -> Protocol[bool]:
        for table in (self.savings, self.checking):
            ids = first_keys(table)
            balances = yield from self._read(attempt, table, ids)
            for number, balance in zip(ids, balances, strict=True):
                yield from self._put(db, attempt, table, number, balance)
        return True

    def audit(self, db: Recorder) -> Protocol[None]:
        """Add up all the money, at a snapshot."""
        attempt = yield from db.begin_reading()
        yield from give_up_on_error(attempt, self._add_up(attempt))

    def _add_up(self, attempt: Attempt) -> Protocol[bool]:
        total = 0
        for table in (self.savings, self.checking):
            total += sum(row["balance"] for row in (yield from attempt.scan(table)))
        self._audits.append((attempt.record.start, total))
        return False

    def check_versions(self, history: History, dump: Sequence[Version]) -> list[Violation]:
        """Check that each audit found the money that had been paid in by then. Count write skew."""
        committed = sorted(attribute(history.transactions, dump).committed, key=lambda it: it[1])
        payments = [(at, self._paid.get(t.name, 0)) for t, at in committed]
        violations, place, total = [], 0, 0
        for timestamp, found in sorted(self._audits):
            while place < len(payments) and payments[place][0] <= timestamp:
                total += payments[place][1]
                place += 1
            if found != total:
                text = f"at {timestamp} the accounts have {found} cents, {total} were paid in"
                violations.append(Violation("INVARIANT", text))
        self.count("write skews, which are legal", self._count_skews(committed, dump))
        return violations

    def _count_skews(self, committed: Committed, dump: Sequence[Version]) -> int:
        """Count the WriteChecks that decided otherwise than they would have at their commit."""
        states: dict[int, list[tuple[int, int]]] = {}
        customer_of = {self.savings.row_key({"id": it}): it for it in range(self.customer_count)}
        for version in sorted(dump, key=lambda it: it.timestamp):
            if version.row in customer_of:
                balance = dict(version.columns or ()).get("balance") or 0
                states.setdefault(customer_of[version.row], []).append((version.timestamp, balance))
        skews = 0
        for t, commit in committed:
            if t.name not in self._checks:
                continue
            customer, amount, checking = self._checks[t.name]
            saved = [balance for at, balance in states.get(customer, ()) if at < commit]
            is_short = bool(saved) and saved[-1] + checking < amount
            skews += is_short != (-self._paid[t.name] > amount)
        return skews

    # ---- the six transactions

    def draw_key(self, random: Random) -> dict[str, Any]:
        return {"id": self._draw(random, 1)[0]}

    def _draw(self, random: Random, count: int) -> list[int]:
        """Draw customers: all of them from the hotspot, or all from anywhere."""
        share, hot = self.parameters.hotspot_share, self.parameters.hotspot_accounts
        is_hot = random.random() < share
        among = min(hot, self.customer_count) if is_hot else self.customer_count
        return random.sample(range(among), min(count, among))

    def _find(self, db: Recorder, attempt: Attempt, count: int) -> Protocol[list[int]]:
        """Find customers by their names."""
        ids = self._draw(db.random, count)
        rows = yield from attempt.lookup(self.customers, [{"name": name_of(it)} for it in ids])
        if [row and row["id"] for row in rows] != ids:
            self.flag(f"at {attempt.record.start} customers {ids} were found as {rows}")
        return ids

    def _read(self, attempt: Attempt, table: TableShape, ids: Sequence[int]) -> Protocol[list[int]]:
        """Read balances."""
        rows = yield from attempt.lookup(table, [{"id": number} for number in ids])
        if any(row is None for row in rows):
            self.flag(f"at {attempt.record.start} some of {ids} have no row in {table.path}")
        return [0 if row is None else row["balance"] for row in rows]

    def _put(
        self, db: Recorder, attempt: Attempt, table: TableShape, number: int, balance: int
    ) -> Protocol[None]:
        row: Row = {"id": number, "balance": balance, "writer": db.unique_value()}
        yield from attempt.insert(table, row)

    def _balance(self, db: Recorder) -> Protocol[None]:
        attempt = yield from db.begin_reading()
        yield from give_up_on_error(attempt, self._read_both(db, attempt))

    def _read_both(self, db: Recorder, attempt: Attempt) -> Protocol[bool]:
        ids = yield from self._find(db, attempt, 1)
        yield from self._read(attempt, self.savings, ids)
        yield from self._read(attempt, self.checking, ids)
        return False

    def _deposit_checking(self, db: Recorder) -> Protocol[None]:
        attempt = yield from db.begin()
        yield from give_up_on_error(attempt, self._deposit(db, attempt))

    def _deposit(self, db: Recorder, attempt: Attempt) -> Protocol[bool]:
        (number,) = yield from self._find(db, attempt, 1)
        (checking,) = yield from self._read(attempt, self.checking, [number])
        amount = self._paid[attempt.record.name] = db.random.randint(1, AMOUNT_MAX)
        yield from self._put(db, attempt, self.checking, number, checking + amount)
        return True

    def _transact_savings(self, db: Recorder) -> Protocol[None]:
        attempt = yield from db.begin()
        yield from give_up_on_error(attempt, self._transact(db, attempt))

    def _transact(self, db: Recorder, attempt: Attempt) -> Protocol[bool]:
        """Pay into savings or out of them, but not below nothing."""
        (number,) = yield from self._find(db, attempt, 1)
        (savings,) = yield from self._read(attempt, self.savings, [number])
        amount = db.random.randint(-AMOUNT_MAX, AMOUNT_MAX)
        if savings + amount < 0:
            db.doing += ", declined"
            return False
        self._paid[attempt.record.name] = amount
        yield from self._put(db, attempt, self.savings, number, savings + amount)
        return True

    def _amalgamate(self, db: Recorder) -> Protocol[None]:
        attempt = yield from db.begin()
        yield from give_up_on_error(attempt, self._move_all(db, attempt))

    def _move_all(self, db: Recorder, attempt: Attempt) -> Protocol[bool]:
        """Move all of one customer's money into the checking account of another."""
        giver, taker = yield from self._find(db, attempt, 2)
        (savings,) = yield from self._read(attempt, self.savings, [giver])
        balances = yield from self._read(attempt, self.checking, [giver, taker])
        yield from self._put(db, attempt, self.savings, giver, 0)
        yield from self._put(db, attempt, self.checking, giver, 0)
        moved = savings + balances[0]
        yield from self._put(db, attempt, self.checking, taker, balances[1] + moved)
        return True

    def _write_check(self, db: Recorder) -> Protocol[None]:
        attempt = yield from db.begin()
        yield from give_up_on_error(attempt, self._write(db, attempt))

    def _write(self, db: Recorder, attempt: Attempt) -> Protocol[bool]:
        """Pay out of checking, with a penalty if both accounts together have less."""
        (number,) = yield from self._find(db, attempt, 1)
        (savings,) = yield from self._read(attempt, self.savings, [number])
        (checking,) = yield from self._read(attempt, self.checking, [number])
        amount = db.random.randint(1, AMOUNT_MAX)
        paid = amount + PENALTY if savings + checking < amount else amount
        self._paid[attempt.record.name] = -paid
        self._checks[attempt.record.name] = number, amount, checking
        yield from self._put(db, attempt, self.checking, number, checking - paid)
        return True

    def _send_payment(self, db: Recorder) -> Protocol[None]:
        attempt = yield from db.begin()
        yield from give_up_on_error(attempt, self._send(db, attempt))

    def _send(self, db: Recorder, attempt: Attempt) -> Protocol[bool]:
        """Pay from one checking account to another, if it has that much."""
        giver, taker = yield from self._find(db, attempt, 2)
        balances = yield from self._read(attempt, self.checking, [giver, taker])
        amount = db.random.randint(1, AMOUNT_MAX)
        if balances[0] < amount:
            db.doing += ", declined"
            return False
        yield from self._put(db, attempt, self.checking, giver, balances[0] - amount)
        yield from self._put(db, attempt, self.checking, taker, balances[1] + amount)
        return True


def name_of(number: int) -> str:
    """Return the name of a customer."""
    return f"customer{number:08}"
