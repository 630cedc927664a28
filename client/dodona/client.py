"""The blocking client: `connect`, `open`, and what they give.

Owns: the public names and arguments of the blocking API, but for those of tables as a whole, which
are in `dodona.catalog`; `dodona.aio` is its twin, name by name.
Every method is one line over a protocol of the session, which its driver runs. A client may be used
by any number of threads, a transaction by one at a time.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, Self, TypeVar

from dodona._core.protocol.context import DEFAULT_ACKNOWLEDGEMENT, Acknowledgement
from dodona._core.protocol.retry import RERUN_DEADLINE_MS
from dodona._core.reading.holding import LEASE_MS
from dodona._core.reading.rows import Rows
from dodona._core.reading.versions import VersionedRow
from dodona._core.session import Session
from dodona._core.writing.outcomes import Outcome
from dodona._io.bounds import Until, check_call_timeout, within
from dodona._io.pinger import Pinger
from dodona._io.running import answer, check_function, finished
from dodona._io.sessions import (
    CONNECT_TIMEOUT_MS,
    FolderPath,
    check_folder,
    load_embedded,
    new_session,
)
from dodona.catalog import Driver
from dodona.changes import ChangeReader
from dodona.loads import Loads
from dodona.snapshot import Snapshot
from dodona.transaction import Transaction as Transaction
from dodona_wire.errors import DodonaError
from dodona_wire.net.urls import hide_password
from dodona_wire.types import (
    NULL_TIMESTAMP,
    SYNC_LAST_COMMITTED,
    Atomicity,
    CellId,
    Durability,
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
    call_timeout_ms: int | None = None,
) -> "Client":
    """A client of the cluster whose master is at `url`, such as http://127.0.0.1:8500.

    Waits up to `timeout_ms` for the master to answer. `acknowledgement` says what a commit in
    several cells waits for: the coordinator's decision, or with `"prepared"` only for every cell's
    word, a round trip less; once all have given it nothing but a commit can come of it.

    `call_timeout_ms` bounds the time of each later call that is given no `timeout_ms` of its own.
    A call whose time is up raises Unavailable, or CommitOutcomeUnknown if it had sent a commit. The
    error's attributes name the server that did not answer: `cell` or `server`, and `address`.
    Without a bound, calls wait for silent servers for about 10 to 20 s. Raises Unavailable,
    InvalidRequest.
    """
    from dodona._io.making_drivers import blocking_driver

    session = new_session(acknowledgement)
    check_call_timeout(call_timeout_ms)
    client = Client(blocking_driver(url, session.routing), session, url, call_timeout_ms)
    try:
        client._driver.run(session.catalog.get_cluster(timeout_ms), timeout_ms)
    except BaseException:
        client.close()
        raise
    return client


def open(
    path: FolderPath,
    *,
    acknowledgement: Acknowledgement = DEFAULT_ACKNOWLEDGEMENT,
    call_timeout_ms: int | None = None,
) -> "Client":
    """A database in this process, kept in the folder `path`, which is made if it is not there. No
    server; same API.

    One client at a time may have it open. It has one cell, so that `acknowledgement` changes
    nothing but which programs also run with `connect`. `call_timeout_ms` is as in `connect`: it
    bounds waits for other threads and for rows that they hold, and cuts no sync of the disk short.
    Raises FolderInUse, DataCorrupted; InvalidRequest, also if the server extra is not installed.
    """
    folder, session = check_folder(path), new_session(acknowledgement)
    check_call_timeout(call_timeout_ms)
    made: list[Any] = []
    try:
        driver = load_embedded().open_blocking(folder, session.routing, made)
        return Client(driver, session, folder, call_timeout_ms)
    except BaseException:  # an interrupt too: what nobody has is not left open
        for driver in made:
            driver.begin_closing()
        raise


class Client(ChangeReader):
    """A cluster, or an embedded database. Make it with `dodona.connect` or `dodona.open`.

    `timeout_ms` of a call bounds its time, as `call_timeout_ms` of `dodona.connect` does for all
    calls. What a call gives has that bound too, for each of its calls that is given none: a
    transaction, a snapshot, a load, an iterator of changes for each page."""

    def __init__(
        self, driver: Driver, session: Session, place: str, call_timeout_ms: int | None = None
    ) -> None:
        pinger = Pinger(driver.run, session.pings)
        super().__init__(driver, pinger, session.catalog, call_timeout_ms)
        self._session = session
        self._holder = Pinger(driver.run, session.holds)
        self._keeper = Pinger(driver.run, session.leases)
        self.loads = Loads(self._run, session, self._keeper)
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

    def generate_timestamp(self, *, timeout_ms: int | None = None) -> Timestamp:
        """A fresh timestamp of the oracle: larger than any that anybody had before. Raises
        Unavailable."""
        return self._run(self._session.generate_timestamp(), timeout_ms)

    # ---- reads

    def lookup_rows(
        self,
        path: str,
        keys: Iterable[Row],
        columns: Sequence[str] | None = None,
        keep_missing: bool = False,
        timestamp: Timestamp = SYNC_LAST_COMMITTED,
        retention_timestamp: Timestamp = NULL_TIMESTAMP,
        *,
        timeout_ms: int | None = None,
    ) -> list[dict[str, Any]]:
        """The rows of these keys, in their order, as dicts of the `columns` named, or of all.

        A key is a dict of all key columns (None is null). Missing rows are left out, or None
        with `keep_missing`. Without a timestamp each row is the newest; for one snapshot of several
        rows give a timestamp, or read in a transaction. What was written or deleted before
        `retention_timestamp` (included in what is seen; 0 for none), here and below, is as if it
        had never been.

        Raises InvalidRequest, SchemaViolation, LimitExceeded (1,000,000 keys), TableNotFound,
        TableNotMounted, SnapshotTooOld, RowBlocked, Unavailable, and so do the other reads.
        """
        lookup = self._session.lookup_rows
        read = lookup(path, keys, columns, keep_missing, timestamp, retention_timestamp)
        return self._run(read, timeout_ms)

    def lookup_versions(
        self,
        path: str,
        keys: Iterable[Row],
        columns: Sequence[str] | None = None,
        keep_missing: bool = False,
        timestamp: Timestamp = SYNC_LAST_COMMITTED,
        since: Timestamp = NULL_TIMESTAMP,
        below: Timestamp | None = None,
        limit: int | None = None,
        *,
        timeout_ms: int | None = None,
    ) -> list[VersionedRow]:
        """The histories of these rows up to a timestamp: all that was written and deleted, newest
        first, as far as settings keep it. Otherwise as `lookup_rows`. Reads versions of since <
        timestamp < below, at most `limit` of each row; the next are below its `more_below`."""
        lookup = self._session.lookup_versions
        return self._run(
            lookup(path, keys, columns, keep_missing, timestamp, since, below, limit), timeout_ms
        )

    def select(
        self,
        path: str,
        lower: Sequence[Any] | None = None,
        upper: Sequence[Any] | None = None,
        columns: Sequence[str] | None = None,
        timestamp: Timestamp = SYNC_LAST_COMMITTED,
        retention_timestamp: Timestamp = NULL_TIMESTAMP,
        *,
        timeout_ms: int | None = None,
    ) -> Rows:
        """The rows of lower ≤ key < upper, in key order, at one snapshot: a fresh one without a
        timestamp. The ends are lists of leading key column values; None is no end. Of tables of
        atomicity none the newest is read, which is no snapshot. Raises as `lookup_rows`."""
        select = self._session.select
        return self._run(
            select(path, lower, upper, columns, timestamp, retention_timestamp), timeout_ms
        )

    def read_arrow(
        self,
        path: str,
        lower: Sequence[Any] | None = None,
        upper: Sequence[Any] | None = None,
        columns: Sequence[str] | None = None,
        timestamp: Timestamp = SYNC_LAST_COMMITTED,
        retention_timestamp: Timestamp = NULL_TIMESTAMP,
        *,
        timeout_ms: int | None = None,
    ) -> Any:
        """As `select`, as a `pyarrow.Table`. Columns of type any hold MessagePack. Its own
        `to_pandas` makes floats of integers beside nulls: give it a `types_mapper`, or use
        `select(...)`'s."""
        read = self._session.read_arrow
        return self._run(
            read(path, lower, upper, columns, timestamp, retention_timestamp), timeout_ms
        )

    def hold_snapshot(
        self,
        paths: Iterable[str],
        timestamp: Timestamp | None = None,
        lease_ms: int = LEASE_MS,
        reader: ReaderId | None = None,
        *,
        timeout_ms: int | None = None,
    ) -> Snapshot:
        """Keep what these tables show at a timestamp, a fresh one unless given, until the end of
        the `with` block: old versions that are seen there stay meanwhile, however long it takes.
        Without renewals, `lease_ms`, an hour at most. With another's `reader`, and its timestamp
        and tables, this is the other's snapshot. Raises SnapshotTooOld if some have gone already;
        TableNotFound, TableNotMounted, InvalidRequest, Overloaded (1,000 readers of a cell),
        Unavailable."""
        hold = self._run(
            self._session.hold_snapshot(paths, timestamp, lease_ms, reader), timeout_ms
        )
        self._holder.watch(hold)
        return Snapshot(within(self._run, timeout_ms), self._session, hold)

    def query(
        self,
        sql: str,
        timestamp: Timestamp = SYNC_LAST_COMMITTED,
        retention_timestamp: Timestamp = NULL_TIMESTAMP,
        *,
        timeout_ms: int | None = None,
    ) -> Any:
        """Run one SELECT of DuckDB's SQL over tables named as `[//path]` → a `pyarrow.Table`.

        All tables are read at one timestamp, a fresh one if none is given; non-atomic tables then
        at their newest. Versions older than `retention_timestamp` are not seen. Only the columns
        that the query needs are read, and where it compares leading key columns with constants,
        only that range of keys.

        Columns of type string are BLOBs there: compare them with encode('text'), or with 'text' if
        it is ASCII; decode(column) is text. Columns of type any are JSON text, with {"$base64":
        "/w=="} for bytes and {"$double": "NaN"}, as in REST and in files. Names differ by more than
        upper and lower case: the second of two that do not is called name_1.

        Times are of UTC, dates of the Gregorian calendar: the time zone of the process changes no
        answer; `at time zone` gives another's. To make a frame of the result without making floats
        of integers beside nulls, give `to_pandas` a `types_mapper`.

        The query sees no files, network, extensions or variables. Raises InvalidRequest with
        DuckDB's message, or without the sql extra; TableNotFound, LimitExceeded
        (`SessionLimits.query`), and what `select` raises.
        """
        begin = self._session.prepare_query(sql, timestamp, retention_timestamp)
        return answer(self._run, self._session, begin, None, self._bound_ms(timeout_ms))

    # ---- writes

    def insert_rows(
        self,
        path: str,
        rows: Iterable[Row],
        update: bool = False,
        aggregate: bool = False,
        durability: Durability = "sync",
        *,
        timeout_ms: int | None = None,
    ) -> Timestamp | None:
        """Insert in a transaction of its own, of the table's atomicity. → its commit timestamp,
        None for no rows. `durability="async"` is for tables of atomicity none.

        It reads nothing: what others committed meanwhile is no conflict, and locked rows are waited
        for, if all rows are in one cell (in several it is an ordinary transaction). See
        `Transaction.insert_rows` and `Transaction.commit`."""
        write = self._session.write_rows
        return self._run(write(path, rows, update, durability, aggregate), timeout_ms)

    def delete_rows(
        self,
        path: str,
        keys: Iterable[Row],
        durability: Durability = "sync",
        *,
        timeout_ms: int | None = None,
    ) -> Timestamp | None:
        """As `insert_rows`, but delete. → the commit timestamp, None for no keys."""
        return self._run(self._session.erase_rows(path, keys, durability), timeout_ms)

    def write_arrow(
        self,
        path: str,
        data: Any,
        durability: Durability = "sync",
        stamp: Timestamp | None = None,
        *,
        timeout_ms: int | None = None,
    ) -> int:
        """Write a `pyarrow.Table`, a record batch, or an iterable of these, to a table of
        atomicity none. → how many rows were given. Of rows with one key the last is written. Absent
        columns become null. `stamp` is the rows' timestamp: this client's clock unless given.
        Raises InvalidRequest, SchemaViolation (with the `row_index` of a key), TableNotMounted,
        Overloaded, Unavailable; attributes say what had been written: the first `row_count` rows,
        and of the part behind them the tablets `applied`, `not_applied`, `unknown`."""
        return self._run(self._session.write_arrow(path, data, durability, stamp), timeout_ms)

    # ---- transactions

    def begin(
        self,
        atomicity: Atomicity = "full",
        durability: Durability = "sync",
        read_own_writes: bool = False,
        *,
        timeout_ms: int | None = None,
    ) -> "Transaction":
        """Begin a transaction, which lives at most 60 s. Used in a `with` block it commits at the
        end, or aborts on an exception. `durability="async"` goes with atomicity none only. Raises
        Unavailable, InvalidRequest."""
        begin = self._session.begin(atomicity, durability, read_own_writes)
        run = within(self._run, timeout_ms)
        return Transaction(run, self._session, run(begin), self._bound_ms(timeout_ms))

    def run_in_transaction(
        self,
        function: "Callable[[Transaction], Result]",
        attempts_max: int | None = None,
        deadline_ms: int = RERUN_DEADLINE_MS,
        *,
        timeout_ms: int | None = None,
    ) -> Result:
        """Run `function(transaction)` and commit, again and again until that succeeds, and return
        what the function returned. It is run again only after errors that are gone with a new
        transaction (`is_retryable`); after an unknown outcome, only once it is known not to have
        been committed. No attempt begins after `deadline_ms`, and with `attempts_max` there are at
        most so many; then the last error is raised. `timeout_ms` bounds all calls of the
        transactions together, those of the function included; what else the function does is not
        cut short."""
        session = self._session
        timeout_ms = self._bound_ms(timeout_ms)
        run = self._run if timeout_ms is None else Until(self._run, timeout_ms)
        rerun = session.rerun(attempts_max, deadline_ms, timeout_ms)
        check_function(function)
        while True:
            transaction, results = None, []
            try:
                begun = run(session.begin())
                with Transaction(run, session, begun, self._call_timeout_ms) as transaction:
                    results.append(finished(function(transaction)))
                return results[0]
            except DodonaError as error:
                buffer = None if transaction is None else transaction._buffer
                is_committed = run(session.after_failure(rerun, buffer, error))
                if is_committed and results:
                    return results[0]
                if is_committed:  # by the function itself, which then did not return
                    raise

    def outcome(
        self,
        transaction: TransactionId,
        coordinator: CellId | None = None,
        settle: bool = False,
        *,
        timeout_ms: int | None = None,
    ) -> Outcome:
        """What became of a transaction, of this client or of any other: committed, aborted, or
        pending. Looking changes nothing. With `settle` it is decided now: what was not committed by
        now never will be.

        `coordinator` is who decides it, and is among the attributes of CommitOutcomeUnknown; a
        wrong one answers wrongly. Without one all cells are asked: the answer is `pending` as long
        as one of them can't be reached, unless another knows. The answer is right for 60 s from the
        transaction's start, and some; then it may be `unknown`. Raises Unavailable, InvalidRequest
        (also if it is to be settled, and no cell has heard of it)."""
        return self._run(self._session.outcome(transaction, coordinator, settle), timeout_ms)
