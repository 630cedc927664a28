"""Dodona's serializable transactions: SmallBank, and the read-modify-writes of YCSB F.

An operation is a call of `run_in_transaction`, with all its attempts. One that runs out of time has
failed. Each load checks at the end what its transactions must keep, and that write skew is refused.
"""

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final

from dodona.aio import AsyncTransaction
from dodona_loadtest.harness.load import AsyncOperation
from dodona_loadtest.harness.row import Running
from dodona_loadtest.peers.accounts import Bank, BankRequest, Outcome
from dodona_loadtest.peers.dodona import open_cluster, pids_of, version
from dodona_loadtest.peers.dodona_rows import RERUN_MS_MAX, ClusterLoad
from dodona_loadtest.peers.records import FIELDS, Records
from dodona_loadtest.peers.shapes import check_sum
from dodona_loadtest.peers.skew import Meet, SkewCheck
from dodona_loadtest.scenarios.smallbank import name_of
from dodona_wire.errors import RowBlocked, TransactionConflict
from dodona_wire.types import Isolation

CUSTOMERS: Final = "//bench/customers"
SAVINGS: Final = "//bench/savings"
CHECKING: Final = "//bench/checking"
RECORDS: Final = "//bench/usertable"
PLACES: Final = "//bench/places"
ID: Final = {"name": "id", "type": "int64", "sort_order": "ascending"}
ACCOUNT: Final[list[dict[str, Any]]] = [ID, {"name": "balance", "type": "int64"}]
SCHEMAS: Final[dict[str, list[dict[str, Any]]]] = {
    CUSTOMERS: [
        {"name": "name", "type": "utf8", "sort_order": "ascending"},
        {"name": "id", "type": "int64"},
    ],
    SAVINGS: ACCOUNT,
    CHECKING: ACCOUNT,
    RECORDS: [
        {"name": "id", "type": "utf8", "sort_order": "ascending"},
        {"name": "count", "type": "int64"},
        *({"name": name, "type": "utf8"} for name in FIELDS),
    ],
    PLACES: [ID, {"name": "is_taken", "type": "boolean"}],
}


@contextmanager
def serve_bank(folder: Path) -> Iterator[Running]:
    """Run the transactions of SmallBank."""
    with open_cluster(folder) as cluster:
        yield Running(BankLoad(cluster.master_url), version(), pids_of(cluster))


@contextmanager
def serve_records(folder: Path) -> Iterator[Running]:
    """Change records, each in a transaction that reads it first."""
    with open_cluster(folder) as cluster:
        yield Running(RecordLoad(cluster.master_url), version(), pids_of(cluster))


class SerializableLoad(ClusterLoad):
    """A load of transactions. A test may give them another isolation."""

    tables: tuple[str, ...]

    def __init__(self, url: str, isolation: Isolation = "serializable") -> None:
        super().__init__(url)
        self._isolation = isolation
        self._skew = SkewCheck()

    def tolerated(self) -> tuple[type[Exception], ...]:
        return TransactionConflict, RowBlocked

    async def open(self, callers_max: int) -> None:
        await super().open(callers_max)
        for path in (*self.tables, PLACES):
            await self._db.create_table(path, schema=SCHEMAS[path], mount=True)
        await self.fill()

    @abstractmethod
    async def fill(self) -> None:
        """Write the rows that are there at first."""

    async def run(self, attempt: Any) -> Any:
        """Run a function in a transaction, until it commits or gives up."""
        return await self._db.run_in_transaction(
            attempt, deadline_ms=RERUN_MS_MAX, isolation=self._isolation
        )

    async def check(self) -> None:
        await self._skew.run(self._take, self._taken)

    async def _take(self, caller: int, place: int, other: int, meet: Meet) -> None:
        del caller  # they share one client

        async def attempt(tx: AsyncTransaction) -> None:
            rows = await tx.lookup_rows(PLACES, [{"id": place}, {"id": other}])
            await meet()
            if not rows:
                await tx.insert_rows(PLACES, [{"id": place, "is_taken": True}])

        await self.run(attempt)

    async def _taken(self) -> list[int]:
        return [row["id"] for row in await self._db.select(PLACES)]


class BankLoad(SerializableLoad):
    """lookup_rows of the customers' names, of savings and of checking, insert_rows of both."""

    tables = (CUSTOMERS, SAVINGS, CHECKING)

    def __init__(self, url: str, isolation: Isolation = "serializable") -> None:
        super().__init__(url, isolation)
        self._bank = Bank()

    async def fill(self) -> None:
        names = [{"name": name_of(it), "id": it} for it in self._bank.savings]
        await self._db.insert_rows(CUSTOMERS, names)
        for path, accounts in ((SAVINGS, self._bank.savings), (CHECKING, self._bank.checking)):
            rows = [{"id": it, "balance": cents} for it, cents in accounts.items()]
            await self._db.insert_rows(path, rows)

    def operation(self, caller: int) -> AsyncOperation:
        bank = self._bank

        async def transact() -> None:
            done = await self.run(partial(_transact, request=bank.draw()))
            bank.pay(done.paid)

        return transact

    async def check(self) -> None:
        savings, checking = [
            {row["id"]: row["balance"] for row in await self._db.select(path)}
            for path in (SAVINGS, CHECKING)
        ]
        self._bank.check(savings, checking)
        await super().check()


async def _transact(tx: AsyncTransaction, request: BankRequest) -> Outcome:
    """Do what a caller asks for, in one attempt."""
    found = await tx.lookup_rows(CUSTOMERS, [{"name": it} for it in request.names])
    assert [row["id"] for row in found] == [*request.customers]
    savings = await _balances(tx, SAVINGS, request.savings)
    checking = await _balances(tx, CHECKING, request.checking)
    done = request.outcome(savings, checking)
    for path, accounts in ((SAVINGS, done.savings), (CHECKING, done.checking)):
        if accounts:
            rows = [{"id": it, "balance": cents} for it, cents in accounts.items()]
            await tx.insert_rows(path, rows)
    return done


async def _balances(tx: AsyncTransaction, path: str, ids: Sequence[int]) -> dict[int, int]:
    if not ids:
        return {}
    rows = await tx.lookup_rows(path, [{"id": it} for it in ids])
    return {row["id"]: row["balance"] for row in rows}


class RecordLoad(SerializableLoad):
    """lookup_rows of a record, insert_rows of one field and of the counter."""

    tables = (RECORDS,)

    async def fill(self) -> None:
        self._records = Records()
        await self._db.insert_rows(RECORDS, list(self._records.first()))

    def operation(self, caller: int) -> AsyncOperation:
        records = self._records

        async def change() -> None:
            key, field, value = records.draw()

            async def attempt(tx: AsyncTransaction) -> None:
                (row,) = await tx.lookup_rows(RECORDS, [{"id": key}])
                changed = {"id": key, "count": row["count"] + 1, field: value}
                await tx.insert_rows(RECORDS, [changed], update=True)

            await self.run(attempt)
            records.done_count += 1

        return change

    async def check(self) -> None:
        rows = await self._db.select(RECORDS, columns=["count"])
        check_sum([row["count"] for row in rows], self._records.done_count)
        await super().check()
