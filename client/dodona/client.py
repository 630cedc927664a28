"""The blocking client: `connect`, `open`, and what they give.

Owns: the public names and arguments of the blocking API, but for those of tables as a whole, which
are in `dodona.catalog`; `dodona.aio` is its twin, name by name.
Every method is one line over a protocol of the session, which its driver runs. A client may be used
by any number of threads, a transaction by one at a time.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, Self, TypeVar

from dodona._core.context import DEFAULT_ACKNOWLEDGEMENT, Acknowledgement
from dodona._core.holding import LEASE_MS
from dodona._core.outcomes import Outcome
from dodona._core.retry import RERUN_ATTEMPTS_MAX, RERUN_DEADLINE_MS
from dodona._core.rows import Rows
from dodona._core.session import Session
from dodona._core.transaction import TransactionBuffer, TransactionState
from dodona._core.versions import VersionedRow
from dodona._io.pinger import Pinger
from dodona._io.running import answer, finished
from dodona._io.sessions import (
    CONNECT_TIMEOUT_MS,
    FolderPath,
    check_folder,
    hide_password,
    load_embedded,
    new_session,
)
from dodona.catalog import Driver
from dodona.changes import ChangeReader
from dodona.errors import DodonaError, InvalidRequest
from dodona.loads import Loads
from dodona.snapshot import Snapshot
from dodona.types import (
    NULL_TIMESTAMP,
    SYNC_LAST_COMMITTED,
    Atomicity,
    CellId,
    Durability,
    LockType,
    ReaderId,
    Timestamp,
    TransactionId,
)

Result = TypeVar("Result")
Row = Mapping[str, Any]


def connect(
    url: str,
    *,
    timeout_ms: int = CONNECT_TIMEOUT_MS,
    acknowledgement: Acknowledgement = DEFAULT_ACKNOWLEDGEMENT,
) -> "Client":
    """A client of the cluster whose master is at `url`, such as http://127.0.0.1:8500.

    Waits up to `timeout_ms` for the master to answer. `acknowledgement` says what a commit in
    several cells waits for: the coordinator's decision, or with `"prepared"` only for every cell's
    word, a round trip less; once all have given it nothing but a commit can come of it.
    ("Transactions in several cells") Raises Unavailable, InvalidRequest.
    """
    from dodona._io.tracing import blocking_driver

    session = new_session(acknowledgement)
    client = Client(blocking_driver(url, session.routing), session, url)
    try:
        client._run(session.catalog.get_cluster(timeout_ms))
    except BaseException:
        client.close()
        raise
    return client


def open(
    path: FolderPath, *, acknowledgement: Acknowledgement = DEFAULT_ACKNOWLEDGEMENT
) -> "Client":
    """A database in this process, kept in the folder `path`, which is made if it is not there. No
    server; same API.

    One client at a time may have it open. It has one cell, so that `acknowledgement` changes
    nothing but which programs also run with `connect`. Raises FolderInUse, DataCorrupted;
    InvalidRequest, also if the server extra is not installed.
    """
    folder, session = check_folder(path), new_session(acknowledgement)
    return Client(load_embedded().open_blocking(folder, session.routing), session, folder)


class Client(ChangeReader):
    """A cluster, or an embedded database. Make it with `dodona.connect` or `dodona.open`."""

    def __init__(self, driver: Driver, session: Session, place: str) -> None:
        super().__init__(driver, Pinger(driver.run, session.pings), session.catalog)
        self._session = session
        self._holder = Pinger(driver.run, session.holds)
        self._keeper = Pinger(driver.run, session.leases)
        self.loads = Loads(driver.run, session, self._keeper)
        """Bulk loads."""
        self._place = place

    def __repr__(self) -> str:
        return f"<dodona.Client {hide_password(self._place)}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Let go of all connections. Calls under way fail, later ones raise InvalidRequest."""
        self._driver.close()
        self._pinger.close()
        self._holder.close()
        self._keeper.close()

    # ---- timestamps

    def generate_timestamp(self) -> Timestamp:
        """A fresh timestamp of the oracle: larger than any that anybody had before. Raises
        Unavailable. ("Timestamps")"""
        return self._run(self._session.generate_timestamp())

    # ---- reads

    def lookup_rows(
        self,
        path: str,
        keys: Iterable[Row],
        columns: Sequence[str] | None = None,
        keep_missing: bool = False,
        timestamp: Timestamp = SYNC_LAST_COMMITTED,
        retention_timestamp: Timestamp = NULL_TIMESTAMP,
    ) -> list[dict[str, Any]]:
        """The rows of these keys, in their order, as dicts of the `columns` named, or of all.

        A key is a dict of key columns; absent ones are null. Missing rows are left out, or None
        with `keep_missing`. Without a timestamp each row is the newest; for one snapshot of several
        rows give a timestamp, or read in a transaction. What was written or deleted before
        `retention_timestamp` (included in what is seen; 0 for none), here and below, is as if it
        had never been.

        Raises InvalidRequest, SchemaViolation, LimitExceeded (1,000,000 keys), TableNotFound,
        TableNotMounted, SnapshotTooOld, RowBlocked, Unavailable, and so do the other reads.
        """
        lookup = self._session.lookup_rows
        read = lookup(path, keys, columns, keep_missing, timestamp, retention_timestamp)
        return self._run(read)

    def lookup_versions(
        self,
        path: str,
        keys: Iterable[Row],
        columns: Sequence[str] | None = None,
        keep_missing: bool = False,
        timestamp: Timestamp = SYNC_LAST_COMMITTED,
    ) -> list[VersionedRow]:
        """The histories of these rows up to a timestamp: all that was written and deleted, newest
        first, as far as the table's settings keep it. Otherwise as `lookup_rows`."""
        lookup = self._session.lookup_versions
        return self._run(lookup(path, keys, columns, keep_missing, timestamp))

    def select(
        self,
        path: str,
        lower: Sequence[Any] | None = None,
        upper: Sequence[Any] | None = None,
        columns: Sequence[str] | None = None,
        timestamp: Timestamp = SYNC_LAST_COMMITTED,
        retention_timestamp: Timestamp = NULL_TIMESTAMP,
    ) -> Rows:
        """The rows of lower ≤ key < upper, in key order, at one snapshot: a fresh one without a
        timestamp. The ends are lists of leading key column values; None is no end. Of tables of
        atomicity none the newest is read, which is no snapshot. Raises as `lookup_rows`."""
        select = self._session.select
        return self._run(select(path, lower, upper, columns, timestamp, retention_timestamp))

    def read_arrow(
        self,
        path: str,
        lower: Sequence[Any] | None = None,
        upper: Sequence[Any] | None = None,
        columns: Sequence[str] | None = None,
        timestamp: Timestamp = SYNC_LAST_COMMITTED,
        retention_timestamp: Timestamp = NULL_TIMESTAMP,
    ) -> Any:
        """As `select`, as a `pyarrow.Table`. Columns of type any hold MessagePack."""
        read = self._session.read_arrow
        return self._run(read(path, lower, upper, columns, timestamp, retention_timestamp))

    def hold_snapshot(
        self,
        paths: Iterable[str],
        timestamp: Timestamp | None = None,
        lease_ms: int = LEASE_MS,
        reader: ReaderId | None = None,
    ) -> Snapshot:
        """Keep what these tables show at a timestamp, a fresh one unless given, until the end of
        the `with` block: old versions that are seen there stay meanwhile, however long it takes.
        Without renewals, `lease_ms`, an hour at most. With another's `reader`, and its timestamp
        and tables, this is the other's snapshot. Raises SnapshotTooOld if some have gone already;
        TableNotFound, TableNotMounted, InvalidRequest, Overloaded (1,000 readers of a cell),
        Unavailable. ("Long reads")"""
        hold = self._run(self._session.hold_snapshot(paths, timestamp, lease_ms, reader))
        self._holder.watch(hold)
        return Snapshot(self._run, self._session, hold)

    def query(
        self,
        sql: str,
        timestamp: Timestamp = SYNC_LAST_COMMITTED,
        retention_timestamp: Timestamp = NULL_TIMESTAMP,
    ) -> Any:
        """Run one SELECT of DuckDB's SQL over tables named as `[//path]` → a `pyarrow.Table`.

        All tables are read at one timestamp, a fresh one if none is given; non-atomic tables then
        at their newest. Versions older than `retention_timestamp` are not seen. Only the columns
        that the query needs are read, and where it compares leading key columns with constants,
        only that range of keys.

        Columns of type string are BLOBs there: they compare with 'text' of ASCII as with
        encode('text') of any, and decode(column) makes text of them. Columns of type any are JSON
        text. Names are the same in upper and in lower case: the second of two columns that differ
        in nothing else is called name_1.

        The query sees nothing else: no files, network, extensions or variables. Raises
        InvalidRequest with DuckDB's message, or without the sql extra; TableNotFound,
        LimitExceeded (`SessionLimits.query`), and what `select` raises.
        """
        begin = self._session.prepare_query(sql, timestamp, retention_timestamp)
        return answer(self._run, self._session, begin)

    # ---- writes

    def insert_rows(
        self,
        path: str,
        rows: Iterable[Row],
        update: bool = False,
        aggregate: bool = False,
        durability: Durability = "sync",
    ) -> Timestamp | None:
        """Insert in a transaction of its own, of the table's atomicity. → its commit timestamp,
        None for no rows. `durability="async"` is for tables of atomicity none. ("Writing rows")

        It reads nothing: what others committed meanwhile is no conflict, and rows that are locked
        are waited for, as long as all rows are in one cell. (In several cells it is an ordinary
        transaction.) See `Transaction.insert_rows` and `Transaction.commit`.
        """
        write = self._session.write_rows
        return self._run(write(path, rows, update, durability, aggregate))

    def delete_rows(
        self, path: str, keys: Iterable[Row], durability: Durability = "sync"
    ) -> Timestamp | None:
        """Delete in a transaction of its own, of the table's atomicity. → its commit timestamp,
        None for no keys. Otherwise as `insert_rows`."""
        return self._run(self._session.erase_rows(path, keys, durability))

    def write_arrow(
        self,
        path: str,
        data: Any,
        durability: Durability = "sync",
        stamp: Timestamp | None = None,
    ) -> int:
        """Write a `pyarrow.Table`, a record batch, or an iterable of these, to a table of
        atomicity none. → how many rows were given. Of rows with one key the last is written. Absent
        columns become null. `stamp` is the rows' timestamp: this client's clock unless given.
        Raises InvalidRequest, SchemaViolation (with the `row_index` of a key), TableNotMounted,
        Overloaded, Unavailable; attributes say what had been written: the first `row_count` rows,
        and of the part behind them the tablets `applied`, `not_applied`, `unknown`.
        ("Non-atomic transactions")"""
        return self._run(self._session.write_arrow(path, data, durability, stamp))

    # ---- transactions

    def begin(
        self,
        atomicity: Atomicity = "full",
        durability: Durability = "sync",
        read_own_writes: bool = False,
    ) -> "Transaction":
        """Begin a transaction, which lives at most 60 s. Used in a `with` block it commits at the
        end, or aborts on an exception. `durability="async"` goes with atomicity none only. Raises
        Unavailable, InvalidRequest. ("Creating a transaction")"""
        begin = self._session.begin
        return Transaction(self, self._run(begin(atomicity, durability, read_own_writes)))

    def run_in_transaction(
        self,
        function: "Callable[[Transaction], Result]",
        attempts_max: int = RERUN_ATTEMPTS_MAX,
        deadline_ms: int = RERUN_DEADLINE_MS,
    ) -> Result:
        """Run `function(transaction)` and commit, again and again until that succeeds, and return
        what the function returned. It is run again only after errors that are gone with a new
        transaction (`is_retryable`); after an unknown outcome, only once it is known not to have
        been committed. At most `attempts_max` times, and no attempt begins after `deadline_ms`:
        then the last error is raised."""
        session = self._session
        rerun = session.rerun(attempts_max, deadline_ms)
        if not callable(function):
            raise InvalidRequest(f"function is called, which {function!r} can't be")
        while True:
            transaction, results = None, []
            try:
                with self.begin() as transaction:
                    results.append(finished(function(transaction)))
                return results[0]
            except DodonaError as error:
                buffer = None if transaction is None else transaction._buffer
                is_committed = self._run(session.after_failure(rerun, buffer, error))
                if is_committed and results:
                    return results[0]
                if is_committed:  # by the function itself, which then did not return
                    raise

    def outcome(
        self,
        transaction: TransactionId,
        coordinator: CellId | None = None,
        settle: bool = False,
    ) -> Outcome:
        """What became of a transaction, of this client or of any other: committed, aborted, or
        pending. Looking changes nothing. With `settle` it is decided now: what was not committed by
        now never will be.

        `coordinator` is who decides it, and is among the attributes of CommitOutcomeUnknown; a
        wrong one answers wrongly. Without one all cells are asked: the answer is `pending` as long
        as one of them can't be reached, unless another knows. The answer is right for 60 s from the
        transaction's start, and some; then it may be `unknown`. Raises Unavailable, InvalidRequest
        (also if it is to be settled, and no cell has heard of it)."""
        return self._run(self._session.outcome(transaction, coordinator, settle))


class Transaction:
    """One transaction on rows (a *tablet* transaction), of `Client.begin`. Reads see the state at
    its start. Its own writes stay in this process until it commits; reads see them only if it was
    begun with `read_own_writes`. For one thread at a time."""

    def __init__(self, client: Client, buffer: TransactionBuffer) -> None:
        self._run = client._run
        self._session = client._session
        self._buffer = buffer

    @property
    def id(self) -> TransactionId | None:
        """Names the transaction; None for a non-atomic one."""
        return self._buffer.id

    @property
    def start_timestamp(self) -> Timestamp | None:
        """The snapshot that it reads; None for a non-atomic one, which reads the newest."""
        return self._buffer.start_timestamp

    @property
    def commit_timestamp(self) -> Timestamp | None:
        """None until it is committed, and if it wrote nothing. For a non-atomic one, the largest
        timestamp that a row got."""
        return self._buffer.commit_timestamp

    @property
    def state(self) -> TransactionState:
        """Active, committing (also after CommitOutcomeUnknown), committed or aborted."""
        return self._buffer.state

    def __repr__(self) -> str:
        return self._buffer.describe("dodona.Transaction")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._buffer.is_active:
            if error is None:
                self.commit()
            else:
                self.abort()

    def lookup_rows(
        self,
        path: str,
        keys: Iterable[Row],
        columns: Sequence[str] | None = None,
        keep_missing: bool = False,
    ) -> list[dict[str, Any]]:
        """As `Client.lookup_rows`, at the transaction's start."""
        at, lookup = self._buffer.read_timestamp(), self._session.lookup_rows
        return self._run(lookup(path, keys, columns, keep_missing, at, transaction=self._buffer))

    def lookup_versions(
        self,
        path: str,
        keys: Iterable[Row],
        columns: Sequence[str] | None = None,
        keep_missing: bool = False,
    ) -> list[VersionedRow]:
        """As `Client.lookup_versions`, up to the transaction's start. Its own writes have no
        timestamp yet and are never among them."""
        at, lookup = self._buffer.read_timestamp(), self._session.lookup_versions
        return self._run(lookup(path, keys, columns, keep_missing, at))

    def select(
        self,
        path: str,
        lower: Sequence[Any] | None = None,
        upper: Sequence[Any] | None = None,
        columns: Sequence[str] | None = None,
    ) -> Rows:
        """As `Client.select`, at the transaction's start."""
        at = self._buffer.read_timestamp()
        select = self._session.select
        return self._run(select(path, lower, upper, columns, at, transaction=self._buffer))

    def read_arrow(
        self,
        path: str,
        lower: Sequence[Any] | None = None,
        upper: Sequence[Any] | None = None,
        columns: Sequence[str] | None = None,
    ) -> Any:
        """As `Client.read_arrow`, at the transaction's start."""
        at = self._buffer.read_timestamp()
        read = self._session.read_arrow
        return self._run(read(path, lower, upper, columns, at, transaction=self._buffer))

    def query(self, sql: str) -> Any:
        """As `Client.query`, at the transaction's start."""
        begin = self._session.prepare_query(sql, self._buffer.read_timestamp())
        return answer(self._run, self._session, begin, self._buffer)

    def insert_rows(
        self,
        path: str,
        rows: Iterable[Row],
        update: bool = False,
        aggregate: bool = False,
        lock_type: LockType = "exclusive",
    ) -> None:
        """Buffer rows: dicts of all key columns (absent ones are null) and at least one other.

        Columns that a row lacks become null, or stay as they are with `update`; required ones must
        be there. With `aggregate`, values of aggregate columns are changes (null is none) instead
        of new values. `lock_type="shared_write"` lets others who say so write the row at the same
        time: the table must allow it, which is checked at commit. All rows are taken or none.
        Raises SchemaViolation, LimitExceeded (100,000 rows, 32 MiB), InvalidRequest, TableNotFound,
        TransactionClosed. ("Writing rows")"""
        insert = self._session.insert_rows
        self._run(insert(self._buffer, path, rows, update, aggregate, lock_type))

    def delete_rows(self, path: str, keys: Iterable[Row]) -> None:
        """Buffer deletions of rows by their keys, which take the main lock; a key that no row has
        is no error. Raises as `insert_rows`."""
        self._run(self._session.delete_rows(self._buffer, path, keys))

    def lock_rows(
        self,
        path: str,
        keys: Iterable[Row],
        locks: Sequence[str] | None = None,
        lock_type: LockType = "shared_strong",
    ) -> None:
        """Buffer locks of rows, whether or not they are there, for the commit to take: the main
        lock, or the lock groups named. With `shared_weak` the commit fails if another transaction
        wrote the row since this one began; with `shared_strong` so do others that began before it
        and write the row later; `exclusive` and `shared_write` do as writing would. Conflicts show
        at commit. Raises InvalidRequest, LimitExceeded, TransactionClosed."""
        lock = self._session.lock_rows
        self._run(lock(self._buffer, path, keys, locks, lock_type))

    def commit(self) -> Timestamp | None:
        """→ the commit timestamp; None if nothing was written. Raises TransactionConflict,
        CommitOutcomeUnknown (then ask `Client.outcome`), and others: nothing was committed."""
        return self._run(self._session.commit(self._buffer))

    def abort(self) -> None:
        """Drop what is buffered. Raises TransactionClosed once it is committed."""
        self._buffer.abort()
