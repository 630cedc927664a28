"""PostgreSQL's SERIALIZABLE transactions: SmallBank, and the read-modify-writes of YCSB F.

An operation has all its attempts, as Dodona's. After SQLSTATE 40001 or 40P01, a new attempt follows
without a pause: the row locks of the others make it wait. Both tables and queries are generous to
PostgreSQL. Half of each page is free, so that an update leaves the indexes unchanged. Reads use the
primary keys, so that transactions of different rows do not conflict. Two rows are read or written
in one statement, in the order of their ids, so that no transactions wait for each other in a
circle. What only reads is READ ONLY.
"""

import time
from abc import abstractmethod
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar

from dodona_loadtest.harness.errors import client_library
from dodona_loadtest.harness.load import AsyncOperation
from dodona_loadtest.harness.row import Running
from dodona_loadtest.peers.accounts import Balances, Bank, BankRequest, Outcome
from dodona_loadtest.peers.dodona_rows import RERUN_MS_MAX
from dodona_loadtest.peers.postgres import ConnectionsLoad, server, version
from dodona_loadtest.peers.records import FIELDS, Records
from dodona_loadtest.peers.shapes import check_sum
from dodona_loadtest.peers.skew import Meet, SkewCheck
from dodona_loadtest.scenarios.smallbank import name_of

CREATE_PLACES: Final = "CREATE TABLE places (id bigint PRIMARY KEY)"
FIND: Final = "SELECT id FROM customers WHERE name = ANY($1::text[])"
READ: Final = "SELECT id, balance FROM {} WHERE id = ANY($1::bigint[])"
WRITE: Final = (
    "UPDATE {0} SET balance = it.balance FROM unnest($1::bigint[], $2::bigint[]) "
    "AS it (id, balance) WHERE {0}.id = it.id"
)

Result = TypeVar("Result")


@contextmanager
def serve_bank(folder: Path) -> Iterator[Running]:
    """Run the transactions of SmallBank."""
    with server(folder) as served:
        yield Running(BankLoad(served.port), version(), (served.pid,))


@contextmanager
def serve_records(folder: Path) -> Iterator[Running]:
    """Change records, each in a transaction that reads it first."""
    with server(folder) as served:
        yield Running(RecordLoad(served.port), version(), (served.pid,))


class SerializableLoad(ConnectionsLoad):
    """A load of transactions. A test may give them another isolation, in asyncpg's words."""

    def __init__(self, port: int, isolation: str = "serializable") -> None:
        super().__init__(port)
        self._isolation = isolation
        self._skew = SkewCheck()

    def tolerated(self) -> tuple[type[Exception], ...]:
        asyncpg = client_library("asyncpg")
        return asyncpg.SerializationError, asyncpg.DeadlockDetectedError

    async def open(self, callers_max: int) -> None:
        await super().open(max(2, callers_max))  # the check has two callers
        self._retried = self.tolerated()
        await self._connections[0].execute(CREATE_PLACES)
        await self.fill()
        await self._connections[0].execute("VACUUM ANALYZE")
        await self.prepare_all()
        # These end the transactions that asyncpg's prepare leaves open.
        for connection in self._connections:
            await connection.execute("SET enable_seqscan = off")
            await connection.execute("SET plan_cache_mode = force_generic_plan")

    @abstractmethod
    async def fill(self) -> None:
        """Make the tables, with the rows that are there at first."""

    @abstractmethod
    async def prepare_all(self) -> None:
        """Prepare the statements of all callers."""

    async def run(
        self, caller: int, attempt: Callable[[], Awaitable[Result]], is_read_only: bool = False
    ) -> Result:
        """Run a function in a transaction, until it commits or gives up."""
        begin, give_up = (
            self._connections[caller].transaction,
            time.monotonic() + RERUN_MS_MAX / 1e3,
        )
        while True:
            try:
                async with begin(isolation=self._isolation, readonly=is_read_only):
                    return await attempt()
            except self._retried:
                if time.monotonic() > give_up:
                    raise

    async def check(self) -> None:
        await self._skew.run(self._take, self._taken)

    async def _take(self, caller: int, place: int, other: int, meet: Meet) -> None:
        connection = self._connections[caller]

        async def attempt() -> None:
            query = "SELECT id FROM places WHERE id = ANY($1::bigint[])"
            rows = await connection.fetch(query, [place, other])
            await meet()
            if not rows:
                await connection.execute("INSERT INTO places VALUES ($1)", place)

        await self.run(caller, attempt)

    async def _taken(self) -> list[int]:
        return [row["id"] for row in await self._connections[0].fetch("SELECT id FROM places")]


class BankLoad(SerializableLoad):
    """BEGIN, prepared SELECTs of the name, of savings and of checking, UPDATEs of both, COMMIT."""

    def __init__(self, port: int, isolation: str = "serializable") -> None:
        super().__init__(port, isolation)
        self._bank = Bank()

    async def prepare_all(self) -> None:
        statements = [
            FIND,
            *(it.format(name) for it in (READ, WRITE) for name in ("savings", "checking")),
        ]
        self._statements = list(zip(*[await self.prepare(it) for it in statements], strict=True))

    async def fill(self) -> None:
        first = self._connections[0]
        await first.execute("CREATE TABLE customers (name text PRIMARY KEY, id bigint)")
        names = [(name_of(it), it) for it in self._bank.savings]
        await first.executemany("INSERT INTO customers VALUES ($1, $2)", names)
        accounts = {"savings": self._bank.savings, "checking": self._bank.checking}
        for name, balances in accounts.items():
            columns = "(id bigint PRIMARY KEY, balance bigint) WITH (fillfactor = 50)"
            await first.execute(f"CREATE TABLE {name} {columns}")
            await first.executemany(f"INSERT INTO {name} VALUES ($1, $2)", [*balances.items()])

    def operation(self, caller: int) -> AsyncOperation:
        bank, statements = self._bank, self._statements[caller]

        async def transact() -> None:
            request = bank.draw()
            attempt = partial(_transact, statements, request)
            done = await self.run(caller, attempt, is_read_only=request.is_read_only)
            bank.pay(done.paid)

        return transact

    async def check(self) -> None:
        savings, checking = [
            dict(await self._connections[0].fetch(f"SELECT id, balance FROM {name}"))
            for name in ("savings", "checking")
        ]
        self._bank.check(savings, checking)
        await super().check()


async def _transact(statements: Sequence[Any], request: BankRequest) -> Outcome:
    """Do what a caller asks for, in one attempt."""
    find, read_savings, read_checking, write_savings, write_checking = statements
    found = await find.fetch(request.names)
    assert sorted(row["id"] for row in found) == sorted(request.customers)
    savings = dict(await read_savings.fetch(request.savings)) if request.savings else {}
    checking = dict(await read_checking.fetch(request.checking)) if request.checking else {}
    done = request.outcome(savings, checking)
    await _write(write_savings, done.savings)
    await _write(write_checking, done.checking)
    return done


async def _write(statement: Any, accounts: Balances) -> None:
    if accounts:
        ids = sorted(accounts)
        await statement.fetch(ids, [accounts[it] for it in ids])


class RecordLoad(SerializableLoad):
    """BEGIN, a prepared SELECT of a record, a prepared UPDATE of two columns, COMMIT."""

    async def prepare_all(self) -> None:
        self._reads = await self.prepare("SELECT * FROM usertable WHERE id = $1")
        self._writes = {
            name: await self.prepare(f"UPDATE usertable SET count = $2, {name} = $3 WHERE id = $1")
            for name in FIELDS
        }

    async def fill(self) -> None:
        self._records = Records()
        rows = list(self._records.first())
        columns = ", ".join(f"{name} text" for name in FIELDS)
        await self._connections[0].execute(
            f"CREATE TABLE usertable (id text PRIMARY KEY, count bigint, {columns}) "
            "WITH (fillfactor = 50)"
        )
        places = ", ".join(f"${place}" for place in range(1, 3 + len(FIELDS)))
        values = [tuple(row.values()) for row in rows]
        await self._connections[0].executemany(f"INSERT INTO usertable VALUES ({places})", values)

    def operation(self, caller: int) -> AsyncOperation:
        records, read = self._records, self._reads[caller].fetchrow
        writes = {name: statements[caller].fetchval for name, statements in self._writes.items()}

        async def change() -> None:
            key, field, value = records.draw()

            async def attempt() -> None:
                row = await read(key)
                await writes[field](key, row["count"] + 1, value)

            await self.run(caller, attempt)
            records.done_count += 1

        return change

    async def check(self) -> None:
        rows = await self._connections[0].fetch("SELECT count FROM usertable")
        check_sum([row["count"] for row in rows], self._records.done_count)
        await super().check()
