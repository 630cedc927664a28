"""The blocking client: `connect`, `open`, and the class `Client`.

Owns: the public names and arguments of the blocking API, except two groups. The calls for whole
tables are in `dodona.catalog`, and reads in `reads`, `changes` and `local_copy`.
Each method passes one protocol of the session to its driver, which runs it. Any number of threads
may use one client. Only one thread at a time may use a transaction.
"""

# Generated from aio.py by python -m twins: change that, and run it.

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from types import TracebackType
from typing import Any, Self, TypeVar

from dodona._core.loads.ticket import WRITE_OWNER, Published, WriteMode
from dodona._core.protocol import steps
from dodona._core.protocol.context import DEFAULT_ACKNOWLEDGEMENT, Acknowledgement
from dodona._core.protocol.retry import RERUN_DEADLINE_MS
from dodona._core.reading.holding import LEASE_MS, Hold
from dodona._core.session import Session
from dodona._core.writing.conditions import requirement_of
from dodona._core.writing.early_locks import Locked, waiting_of
from dodona._core.writing.lease import Lease, check_leases
from dodona._core.writing.outcomes import Outcome
from dodona._core.writing.reads import check_isolation
from dodona._core.writing.transaction import TransactionBuffer
from dodona._io.bounds import Driver, Run, Until, within
from dodona._io.opening import connected, opened
from dodona._io.pinger import Pinger, close_all
from dodona._io.running import check_function, finished
from dodona._io.sessions import CONNECT_TIMEOUT_MS, FolderPath
from dodona.catalog import MasterTransaction as MasterTransaction
from dodona.changes import Changes as Changes
from dodona.leases import Leases
from dodona.loads import Loads
from dodona.local_copy import Follower
from dodona.local_copy import LocalCopy as LocalCopy
from dodona.snapshot import Snapshot as Snapshot
from dodona.transaction import Transaction as Transaction
from dodona_wire.errors import DodonaError
from dodona_wire.net.urls import hide_password
from dodona_wire.types import (
    Atomicity,
    CellId,
    Durability,
    Isolation,
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
    isolation: Isolation | None = None,
    refresh: bool | None = None,
) -> "Client":
    """Connect to the cluster whose master is at `url`, such as `http://127.0.0.1:8500`.

    - `timeout_ms`: how long to wait for the first answer of the master, in ms.
    - `acknowledgement`: when a commit in several cells returns. `"decided"` waits until the
      coordinator has decided. `"prepared"` waits only until all cells have prepared, which is one
      round trip less. After that, the outcome can only be a commit.
    - `call_timeout_ms`: the time limit of each later call that has no `timeout_ms` of its own, in
      ms. By default there is no limit, and calls wait about 10 to 20 s for a silent server.
    - `isolation`: the isolation of transactions, as in `Client.begin`, for tables that have no
      such setting.
    - `refresh`: whether `commit` may send a transaction again under a later timestamp, if it met a
      change of rows that it has not read. Then its program need not run again. What others have
      locked before that timestamp is not in its way. By default this is so for transactions that
      begin as serializable. `True` is for all transactions, and `False` for none.

    A call that reaches its time limit raises Unavailable, or CommitOutcomeUnknown if it has sent a
    commit. The attributes of the error name the server that did not answer: `cell` or `server`, and
    `address`.

    Raises Unavailable, InvalidRequest."""
    return connected(Client, url, timeout_ms, acknowledgement, call_timeout_ms, isolation, refresh)


def open(
    path: FolderPath,
    *,
    acknowledgement: Acknowledgement = DEFAULT_ACKNOWLEDGEMENT,
    call_timeout_ms: int | None = None,
    isolation: Isolation | None = None,
    refresh: bool | None = None,
) -> "Client":
    """Open a database in this process, with its data in the folder `path`.

    It has the API of a cluster and needs no server. `open` creates the folder if it does not exist.
    Only one client at a time may have the folder open.

    - `acknowledgement`: as in `connect`, so that one program can use both. It has no effect,
      because the database has one cell.
    - `call_timeout_ms`: as in `connect`. It limits how long a call waits for other threads, and for
      rows that other threads hold. It does not interrupt a sync of the disk.
    - `isolation`, `refresh`: as in `connect`.

    Raises FolderInUse, DataCorrupted, and InvalidRequest (also if the server extra is not
    installed)."""
    return opened(Client, path, acknowledgement, call_timeout_ms, isolation, refresh)


class Client(Follower):
    """A connection to a cluster, or an open embedded database. Create it with `dodona.connect`
    or `dodona.open`.

    The `timeout_ms` of a call limits the time of this call, in ms. `call_timeout_ms` of
    `dodona.connect` limits each call that has no `timeout_ms`. Some calls return an object: a
    transaction, a snapshot, a load, or an iterator of changes. Then the limit also holds for each
    call of this object that has no limit of its own. For an iterator of changes, it holds for each
    page."""

    def __init__(
        self,
        driver: Driver,
        session: Session,
        place: str,
        call_timeout_ms: int | None = None,
    ) -> None:
        pinger = Pinger(driver.run, session.pings)
        super().__init__(driver, pinger, session.catalog, call_timeout_ms)
        self._session = session
        self._holder = Pinger(driver.run, session.holds)
        self._keeper = Pinger(driver.run, session.leases)
        self.loads = Loads(self._run, session, self._keeper)
        """The bulk loads."""
        self.leases = Leases(self._run, session)
        """The named leases."""
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
        """Close the client and all its connections. Calls in progress fail. Later calls raise
        InvalidRequest."""
        close_all(self._driver, self._pinger, self._holder, self._keeper)

    # ---- timestamps

    def generate_timestamp(self, *, timeout_ms: int | None = None) -> Timestamp:
        """Return a fresh timestamp of the oracle. It is larger than every timestamp that any client
        had before. Raises Unavailable."""
        return self._run(self._session.generate_timestamp(), timeout_ms)

    # ---- snapshots

    def hold_snapshot(
        self,
        paths: Iterable[str],
        timestamp: Timestamp | None = None,
        lease_ms: int = LEASE_MS,
        reader: ReaderId | None = None,
        *,
        timeout_ms: int | None = None,
    ) -> Snapshot:
        """Hold a snapshot of these tables until the end of the `with` block.

        Until then, the cells keep every version that the snapshot shows, however long the block
        takes.

        - `paths`: the tables.
        - `timestamp`: the timestamp of the snapshot. The default is a fresh one.
        - `lease_ms`: how long the cells keep the snapshot without a renewal, in ms. At most an
          hour. The client renews the lease in the background.
        - `reader`: the `reader` of another process's snapshot, to share it. Pass its timestamp and
          its tables, too.

        Returns the `Snapshot`. Raises SnapshotTooOld if some of the versions are gone already,
        TableNotFound, TableNotMounted, InvalidRequest, Overloaded (1,000 readers in a cell),
        Unavailable."""
        hold = partial(self._session.hold_snapshot, paths, timestamp, lease_ms, reader)
        return self._begin_hold(hold, timeout_ms)

    def _begin_hold(
        self, begin: Callable[[], steps.Protocol[Hold]], timeout_ms: int | None
    ) -> Snapshot:
        run = within(self._run, timeout_ms)
        hold = run(begin())
        self._holder.watch(hold)
        return Snapshot(run, self._session, hold)

    # ---- writes

    def insert_rows(
        self,
        path: str,
        rows: Iterable[Row],
        update: bool = False,
        aggregate: bool = False,
        durability: Durability = "sync",
        *,
        if_absent: bool = False,
        if_version: Timestamp | None = None,
        expect: Mapping[str, Any] | None = None,
        timeout_ms: int | None = None,
    ) -> Timestamp | None:
        """Insert rows in a transaction of their own. Returns its commit timestamp, or None without
        rows.

        - `rows`, `update`, `aggregate`: as in `Transaction.insert_rows`.
        - `durability`: `"async"` is for tables with atomicity `"none"` only.
        - `if_absent`, `if_version`, `expect`: as in `Transaction.insert_rows`, for tables with
          atomicity `"full"` only.

        The transaction has the atomicity of the table, and reads nothing. If all rows are in one
        cell, earlier commits of other transactions are no conflict, and the call waits for locked
        rows. If the rows are in several cells, it is an ordinary transaction. Raises the errors of
        `Transaction.insert_rows` and `Transaction.commit`."""
        write, required = self._session.write_rows, requirement_of(if_absent, if_version, expect)
        return self._run(write(path, rows, update, durability, aggregate, required), timeout_ms)

    def delete_rows(
        self,
        path: str,
        keys: Iterable[Row],
        durability: Durability = "sync",
        *,
        if_version: Timestamp | None = None,
        expect: Mapping[str, Any] | None = None,
        timeout_ms: int | None = None,
    ) -> Timestamp | None:
        """Delete rows by key in a transaction of their own. Returns its commit timestamp, or None
        without keys. Otherwise as `insert_rows`."""
        erase, required = self._session.erase_rows, requirement_of(False, if_version, expect)
        return self._run(erase(path, keys, durability, required), timeout_ms)

    def write(
        self,
        path: str,
        data: Any,
        mode: WriteMode = "upsert",
        *,
        timeout_ms: int | None = None,
    ) -> Published:
        """Write all rows of a data frame, or of other data, at one commit timestamp, or none.

        - `data`: a data frame of pandas or polars, a `pyarrow.Table`, a record batch, or an
          iterable of these. Also a list of dicts, a dict of columns, and any object with
          `__arrow_c_stream__`. A named index of pandas is a column. In a dict of columns, all
          series of pandas have equal indexes.
        - `mode`: `"upsert"` writes whole rows: absent columns become null. `"insert"` does the
          same, but a key that exists is an error. `"update"` sets the given columns of rows that
          must exist. `"delete"` takes the key columns only. `"replace"` does what `"upsert"` does,
          and removes all other rows of the table.
        - `timeout_ms`: limits the whole call.

        Rows of up to 10,000 and 8 MiB are one transaction. More rows, and the other modes, are one
        bulk load. The write reads nothing, so changes by others are no conflict: the write comes
        after them.

        All rows are checked before the first request. No key may come twice. The attributes of the
        error name `column` and `row_index`, which counts from 0. A `pyarrow.RecordBatchReader`, an
        iterator, and a stream of another library may be longer than memory: they are checked as
        they are sent.

        A table with atomicity `"none"` takes the modes `"upsert"` and `"delete"`. Its rows become
        visible as they arrive. The attributes of an error say how much was written, as in
        `write_arrow`.

        Returns the commit timestamp and the number of rows. Raises SchemaViolation, DuplicateKey,
        RowNotFound, InvalidRequest, TableNotFound, TableNotMounted, LimitExceeded, Overloaded,
        Unavailable. Raises CommitOutcomeUnknown, which names the transaction, or the load."""
        limit_ms = self._bound_ms(timeout_ms)
        run = self._run if limit_ms is None else Until(self._run, limit_ms)
        done = run(self._session.write(path, data, mode))
        if isinstance(done, Published):
            return done
        loads = Loads(run, self._session, self._keeper)
        load = loads.begin(
            [path], mode=done.mode, overwrites=True, erased=done.erased, owner=WRITE_OWNER
        )
        with load:
            load.write(path, done.data)
            return load.publish()

    def write_arrow(
        self,
        path: str,
        data: Any,
        durability: Durability = "sync",
        stamp: Timestamp | None = None,
        *,
        timeout_ms: int | None = None,
    ) -> int:
        """Write Arrow data to a table with atomicity `"none"`. Returns the number of rows in the
        data.

        - `data`: as in `write`. If several rows have one key, the last one wins. Missing columns
          become null.
        - `durability`: `"async"` returns before the rows are on disk.
        - `stamp`: the timestamp of the rows. The default is the clock of this client.

        Raises InvalidRequest, SchemaViolation (with the `row_index` of a bad value),
        TableNotMounted, Overloaded, Unavailable. The attributes of the error say how much was
        written. The first `row_count` rows are written. For the part after them, `applied`,
        `not_applied` and `unknown` list the tablets."""
        return self._run(self._session.write_arrow(path, data, durability, stamp), timeout_ms)

    # ---- transactions

    def begin(
        self,
        atomicity: Atomicity = "full",
        durability: Durability = "sync",
        read_own_writes: bool = False,
        *,
        prerequisites: Sequence[Lease] = (),
        locks: Mapping[str, Iterable[Row]] | None = None,
        wait_ms: int | None = None,
        nowait: bool = False,
        skip_locked: int | None = None,
        isolation: Isolation | None = None,
        timestamp: Timestamp | None = None,
        timeout_ms: int | None = None,
    ) -> "Transaction":
        """Begin a transaction. It may live for at most 60 s.

        In a `with` block, it commits at the end of the block, or aborts on an exception.

        - `atomicity`: must be the atomicity of the tables that it writes.
        - `durability`: `"async"` is for atomicity `"none"` only.
        - `read_own_writes`: reads of the transaction see its own writes.
        - `prerequisites`: leases of `Client.leases`. The commit raises PrerequisiteFailed
          unless each of them still has this owner and this epoch.
        - `locks`: the keys of rows to lock before the transaction begins, as a dict from paths to
          lists of keys. The rows need not exist. The transaction then sees their newest versions,
          and no other transaction changes them before it ends. The locks last for 10 s.
        - `wait_ms`: how long to wait in line for these rows, 10 s by default, and 30 s at most.
        - `nowait`: do not wait.
        - `skip_locked`: lock at most so many of the rows, those that are free now.
          `Transaction.locked_rows` has them.
        - `isolation`: with `"serializable"`, the commit of a transaction that writes raises
          TransactionConflict if another transaction has changed what it read. With `"snapshot"`,
          only writes conflict. Without it, each table has the isolation of its settings, else that
          of the client, else `"snapshot"`. Tables with atomicity `"none"` have none.
        - `timestamp`: read as of this timestamp, such as one that `generate_timestamp` gave
          before. The transaction writes and locks nothing, and may live for longer.

        Raises Unavailable, InvalidRequest, TableNotFound. With `locks`, raises RowBlocked, which
        names a row and its owner, and TableNotMounted."""
        limit_ms = self._bound_ms(timeout_ms)
        waiting = waiting_of(locks is not None, wait_ms, nowait, skip_locked, limit_ms)
        begin = partial(
            self._session.begin,
            atomicity,
            durability,
            read_own_writes,
            prerequisites,
            locks,
            waiting,
            isolation=isolation,
            timestamp=timestamp,
            is_repeatable=True,
        )
        return self._begin_rows(begin, timeout_ms)

    def _begin_rows(
        self,
        begin: Callable[[list[Locked]], steps.Protocol[TransactionBuffer]],
        timeout_ms: int | None,
    ) -> Transaction:
        run = within(self._run, timeout_ms)
        buffer = self._begun(run, begin)
        return Transaction(run, self._session, buffer, self._bound_ms(timeout_ms))

    def _begun(
        self, run: Run, begin: Callable[[list[Locked]], steps.Protocol[TransactionBuffer]]
    ) -> TransactionBuffer:
        """Begin a transaction. If the caller is interrupted, release the locks that were asked
        for."""
        asked: list[Locked] = []
        try:
            return run(begin(asked))
        except BaseException:
            if asked:
                self._run(self._session.give_up(asked), None)
            raise

    def run_in_transaction(
        self,
        function: "Callable[[Transaction], Result]",
        attempts_max: int | None = None,
        deadline_ms: int = RERUN_DEADLINE_MS,
        *,
        prerequisites: Sequence[Lease] = (),
        isolation: Isolation | None = None,
        timeout_ms: int | None = None,
    ) -> Result:
        """Run `function(transaction)` and commit, again until the commit succeeds. Returns the
        function's result.

        The function runs again only after an error that a new transaction can avoid
        (`is_retryable`). After an unknown outcome, it runs again only if the transaction is known
        not to be committed.

        From the third conflict on, the call first locks the rows that the function wrote or locked
        in the attempts before. So it waits in line, and does not lose again and again. These are
        also rows that a serializable transaction looked up.

        - `attempts_max`: the largest number of attempts. The default is no limit.
        - `deadline_ms`: no attempt begins later than this many ms after the call.
        - `prerequisites`, `isolation`: as in `begin`.
        - `timeout_ms`: limits all calls of all attempts together, also the calls of the function.
          It does not interrupt other work of the function.

        After the last attempt, the call raises the last error."""
        session = self._session
        timeout_ms = self._bound_ms(timeout_ms)
        run = self._run if timeout_ms is None else Until(self._run, timeout_ms)
        rerun = session.rerun(attempts_max, deadline_ms, timeout_ms)
        check_function(function)
        leases = check_leases(prerequisites) if prerequisites else ()
        check_isolation(isolation)
        begin = partial(session.begin_attempt, rerun, leases, isolation)
        while True:
            transaction, results = None, []
            try:
                begun = self._begun(run, begin)
                transaction = Transaction(run, session, begun, self._call_timeout_ms)
                with transaction:
                    results.append(finished(function(transaction)))
                return results[0]
            except DodonaError as error:
                buffer = None if transaction is None else transaction._buffer
                is_committed = run(session.after_failure(rerun, buffer, error))
                if is_committed and results:
                    return results[0]
                if is_committed:  # the function itself committed, and then did not return
                    raise

    def outcome(
        self,
        transaction: TransactionId,
        coordinator: CellId | None = None,
        settle: bool = False,
        *,
        timeout_ms: int | None = None,
    ) -> Outcome:
        """Return the outcome of a transaction of any client: committed, aborted or pending.

        - `coordinator`: the cell that decides the transaction. It is an attribute of
          CommitOutcomeUnknown. A wrong cell gives a wrong answer. Without it, the client asks all
          cells. Then the answer is `pending` while a cell can't be reached, unless another cell
          knows the outcome.
        - `settle`: decide the transaction now. If it is not committed yet, it never will be.
          Without `settle`, the call changes nothing.

        Cells remember an outcome for 60 s from the start of the transaction, and for 15 s more.
        After that, the answer may be `unknown`. Raises Unavailable, and InvalidRequest (also for
        `settle` if no cell knows the transaction)."""
        return self._run(self._session.outcome(transaction, coordinator, settle), timeout_ms)
