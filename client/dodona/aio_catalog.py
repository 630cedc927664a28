"""Tables, the tree and master transactions in the asyncio API.

Owns: the public names and arguments of these calls.
Each method passes one protocol of its session to the driver. The session is under a master
transaction, or under none.
"""

# `python -m twins` makes catalog.py of this module.

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from types import TracebackType
from typing import Any, Self, TypeVar

from dodona._core.catalog.catalog import MOUNT_TIMEOUT_MS, CatalogSession
from dodona._core.catalog.master_transaction import TIMEOUT_MS, Lease, RowsRefused
from dodona._core.catalog.tables import TableInfo
from dodona._core.catalog.tree import MasterTransactionSession, Names, TreeSession
from dodona._core.protocol import steps
from dodona._core.protocol.process_bound import MAKE_ONE_THERE, ProcessBound
from dodona._core.writing.transaction import TransactionState
from dodona._io.aio_pinger import AsyncPinger
from dodona._io.aio_writes import TreeWrites, begun_at_calls
from dodona._io.beginning import Beginning
from dodona._io.bounds import AsyncDriver as AsyncDriver
from dodona._io.bounds import async_within
from dodona._io.callers import warn_about
from dodona_wire.errors import DodonaError
from dodona_wire.messages.attribute_names import names_set
from dodona_wire.messages.catalog import Cluster
from dodona_wire.messages.tree import LockMode
from dodona_wire.rows.schema import Column, TableSchema
from dodona_wire.types import Atomicity, TreeTransactionId

Result = TypeVar("Result")


class AsyncTree(ProcessBound):
    """The calls that a client and a master transaction have in common.

    A master transaction sees its own changes immediately. Other callers see them after its commit.
    On a client, each call is a change of its own.

    A path is `//name/name`. `//name/@attribute` is an attribute of the node at `//name`. A name has
    at most 256 characters: letters, digits, `_`, `.` and `-`. The names `.` and `..` are not
    allowed."""

    _catalog: TreeSession

    # asyncio only
    _writes: TreeWrites | None = None
    """The changes of a master transaction that have begun. None on a client."""
    # end

    def __init__(
        self,
        driver: AsyncDriver,
        pinger: AsyncPinger[Lease],
        catalog: TreeSession,
        call_timeout_ms: int | None,
    ) -> None:
        self._run = async_within(driver.run, call_timeout_ms, "call_timeout_ms")
        self._call_timeout_ms = call_timeout_ms
        self._driver = driver
        self._pinger = pinger
        self._catalog = catalog

    async def create_table(
        self,
        path: str,
        schema: Iterable[Column | Mapping[str, Any]] | TableSchema | None = None,
        atomicity: Atomicity = "full",
        pivot_keys: Sequence[Sequence[Any]] | None = None,
        tablet_count: int | None = None,
        mount: bool = False,
        attributes: Mapping[str, Any] | None = None,
        *,
        like: Any = None,
        keys: Sequence[str] | None = None,
        if_not_exists: bool = False,
        timeout_ms: int | None = None,
    ) -> None:
        """Create a sorted table, and the directories above it.

        - `schema`: a list of columns, as `Column` objects or as dicts of their fields.
        - `pivot_keys`: the first key of each tablet, as a list of leading key column values. The
          keys rise in the order of the table, and the first one is empty. By default, the table has
          one tablet.
        - `tablet_count`: the number of tablets that divide all values of the first key column
          evenly.
        - `mount`: also mount the table. Not allowed in a master transaction. If the mount fails,
          the table still exists.
        - `attributes`: settings (see `TableSettings`), and attributes of your own. A misspelled
          setting is an error. A YTsaurus setting that has no effect here causes a `DodonaWarning`.
        - `like`: in place of `schema`, data as in `AsyncClient.write`, or a `pyarrow.Schema`. The
          table gets a column of the fitting type for each column. No rows are written.
        - `keys`: with `like`, the names of the key columns, which come first, in this order. All
          are ascending: pass `schema` for a descending one.
        - `if_not_exists`: a table at the path is no error if it has this schema and this atomicity.
          Otherwise TableExists lists the `differences`. Other arguments are not compared.

        Raises NodeExists, SchemaViolation, InvalidRequest, LimitExceeded, NodeLocked,
        Unavailable."""
        warn_about(attributes or ())
        create = self._catalog.create_table
        settings = (atomicity, pivot_keys, tablet_count, mount, attributes)
        await self._run(create(path, schema, *settings, like, keys, if_not_exists), timeout_ms)

    async def remove_table(self, path: str, *, timeout_ms: int | None = None) -> None:
        """Remove a table and all its rows. The table may be mounted. Raises TableNotFound,
        NodeLocked."""
        await self._run(self._catalog.remove_table(path), timeout_ms)

    async def get_table(self, path: str, *, timeout_ms: int | None = None) -> TableInfo:
        """Return the schema, atomicity, settings and tablets of a table, as the master knows them
        now. Raises TableNotFound."""
        return await self._run_read(self._catalog.get_table(path), timeout_ms)

    async def create_directory(
        self,
        path: str,
        attributes: Mapping[str, Any] | None = None,
        recursive: bool = False,
        ignore_existing: bool = False,
        *,
        timeout_ms: int | None = None,
    ) -> None:
        """Create a directory. With `recursive`, also create the directories above it. With
        `ignore_existing`, a directory that exists is no error. Raises NodeExists, NodeNotFound,
        InvalidRequest, NodeLocked."""
        warn_about(attributes or ())
        create = self._catalog.create_directory
        await self._run(create(path, attributes, recursive, ignore_existing), timeout_ms)

    async def remove(
        self,
        path: str,
        recursive: bool = False,
        force: bool = False,
        *,
        timeout_ms: int | None = None,
    ) -> None:
        """Remove a table, a directory or an attribute. A table may be mounted. A directory must be
        empty, unless `recursive` is true. Raises NodeNotFound (unless `force` is true),
        InvalidRequest, NodeLocked."""
        await self._run(self._catalog.remove(path, recursive, force), timeout_ms)

    async def move(
        self,
        source: str,
        destination: str,
        recursive: bool = False,
        *,
        timeout_ms: int | None = None,
    ) -> None:
        """Move a table or a directory to a path that does not exist yet. With `recursive`, also
        create the directories above that path. The tables must be unmounted. Raises NodeNotFound,
        NodeExists, InvalidTabletState, NodeLocked."""
        await self._run(self._catalog.move(source, destination, recursive), timeout_ms)

    async def copy(
        self,
        source: str,
        destination: str,
        recursive: bool = False,
        *,
        timeout_ms: int | None = None,
    ) -> None:
        """Copy a table or a directory. A copy of a table has the rows, settings and attributes of
        the table, and is unmounted. The rows are those of now, or in a master transaction, those at
        its commit. Otherwise as `move`."""
        await self._run(self._catalog.copy(source, destination, recursive), timeout_ms)

    async def list(self, path: str, *, timeout_ms: int | None = None) -> Names:
        """Return the names in a directory, sorted. For `//name/@`, return the names of all
        attributes. Raises NodeNotFound, and InvalidRequest for a table."""
        return await self._run_read(self._catalog.list(path), timeout_ms)

    async def exists(self, path: str, *, timeout_ms: int | None = None) -> bool:
        """Return whether the table, the directory or the attribute exists."""
        return await self._run_read(self._catalog.exists(path), timeout_ms)

    async def get(self, path: str, *, timeout_ms: int | None = None) -> Any:
        """Return the value of an attribute. For `//name/@`, return all attributes as a dict. For a
        directory, return its content as nested dicts, in which tables are None. Raises
        NodeNotFound."""
        return await self._run_read(self._catalog.get(path), timeout_ms)

    async def set(self, path: str, value: Any, *, timeout_ms: int | None = None) -> None:
        """Set an attribute to a JSON value. For `//name/@`, set all your own attributes to those in
        a dict. The settings of a table are attributes, too (see `TableSettings`). None stands for
        the default of a setting. Raises NodeNotFound, InvalidRequest, InvalidTabletState,
        NodeLocked."""
        await self._run(self._catalog.set(path, value), timeout_ms)
        warn_about(names_set(path, value))

    # asyncio only
    async def _run_read(self, read: steps.Protocol[Result], timeout_ms: int | None) -> Result:
        return await self._run(read, timeout_ms)

    # end
    async def _begin(
        self, timeout_ms: int, title: str, call_timeout_ms: int | None
    ) -> "AsyncMasterTransaction":
        limit_ms = self._bound_ms(call_timeout_ms)
        begun = await self._run_read(self._catalog.begin(timeout_ms, title), limit_ms)
        self._pinger.watch(begun.lease)
        return AsyncMasterTransaction(self, begun, limit_ms)

    def _bound_ms(self, timeout_ms: int | None) -> int | None:
        """Return the time limit of a call that has this `timeout_ms`, in ms. None is no limit."""
        return self._call_timeout_ms if timeout_ms is None else timeout_ms


class AsyncCatalog(AsyncTree):
    """The calls that exist only outside of master transactions, such as mounting a table.

    Some calls take a range of tablets. `first_tablet_index` and `last_tablet_index` count from 0,
    and both ends are included. By default, the range begins with the first tablet and ends with the
    last one. `timeout_ms` is how long to wait for the tablets: the client's `call_timeout_ms` by
    default, or 30 s. After that, the call raises Unavailable, and the change continues. A change
    that is done already, or in progress, is no error. While a master transaction has a lock on the
    table, all these calls raise NodeLocked."""

    _instead = MAKE_ONE_THERE

    _catalog: CatalogSession

    def _mounting_ms(self, timeout_ms: int | None) -> int:
        """Return how long a call that has this `timeout_ms` waits for tablets, in ms."""
        limit_ms = self._bound_ms(timeout_ms)
        return MOUNT_TIMEOUT_MS if limit_ms is None else limit_ms

    async def mount_table(
        self,
        path: str,
        freeze: bool = False,
        first_tablet_index: int | None = None,
        last_tablet_index: int | None = None,
        timeout_ms: int | None = None,
    ) -> None:
        """Mount a table: let cells serve it, and wait until they do.

        - `freeze`: serve reads only.
        - `first_tablet_index`, `last_tablet_index`: the range of tablets, from 0, both included.
          The default is all tablets.
        - `timeout_ms`: how long to wait, in ms. The default is the client's `call_timeout_ms`, or
          30 s. After that, the mount continues.

        Raises TableNotFound, InvalidTabletState, NodeLocked, Unavailable (its attributes list the
        tablets that are not served yet)."""
        first, last = first_tablet_index, last_tablet_index
        limit_ms = self._mounting_ms(timeout_ms)
        change = self._catalog.mount_table(path, freeze, first, last, limit_ms)
        await self._run(change, limit_ms)

    async def unmount_table(
        self,
        path: str,
        first_tablet_index: int | None = None,
        last_tablet_index: int | None = None,
        timeout_ms: int | None = None,
    ) -> None:
        """Unmount a table, and wait until no cell serves it. The call waits for the transactions
        that are committing in the table. Otherwise as `mount_table`."""
        first, last = first_tablet_index, last_tablet_index
        limit_ms = self._mounting_ms(timeout_ms)
        change = self._catalog.unmount_table(path, first, last, limit_ms)
        await self._run(change, limit_ms)

    async def freeze_table(
        self,
        path: str,
        first_tablet_index: int | None = None,
        last_tablet_index: int | None = None,
        timeout_ms: int | None = None,
    ) -> None:
        """Freeze a mounted table, and wait until it refuses writes. Otherwise as `mount_table`."""
        first, last = first_tablet_index, last_tablet_index
        limit_ms = self._mounting_ms(timeout_ms)
        change = self._catalog.freeze_table(path, first, last, limit_ms)
        await self._run(change, limit_ms)

    async def unfreeze_table(
        self,
        path: str,
        first_tablet_index: int | None = None,
        last_tablet_index: int | None = None,
        timeout_ms: int | None = None,
    ) -> None:
        """Let a frozen table accept writes, and wait until it does. Otherwise as `mount_table`."""
        first, last = first_tablet_index, last_tablet_index
        limit_ms = self._mounting_ms(timeout_ms)
        change = self._catalog.unfreeze_table(path, first, last, limit_ms)
        await self._run(change, limit_ms)

    async def remount_table(
        self,
        path: str,
        first_tablet_index: int | None = None,
        last_tablet_index: int | None = None,
        timeout_ms: int | None = None,
    ) -> None:
        """Apply the current settings of a table to its mounted tablets. They take effect shortly
        after the call. The arguments are as in `mount_table`. Raises TableNotFound,
        InvalidTabletState, NodeLocked, Unavailable."""
        first, last = first_tablet_index, last_tablet_index
        limit_ms = self._mounting_ms(timeout_ms)
        change = self._catalog.remount_table(path, first, last, limit_ms)
        await self._run(change, limit_ms)

    async def reshard_table(
        self,
        path: str,
        pivot_keys: Sequence[Sequence[Any]] | None = None,
        tablet_count: int | None = None,
        first_tablet_index: int | None = None,
        last_tablet_index: int | None = None,
        *,
        timeout_ms: int | None = None,
    ) -> None:
        """Divide an unmounted table into other tablets. Its rows stay.

        - `pivot_keys`: the first key of each new tablet. The first one is that of the first tablet
          in the range: empty for the whole table.
        - `tablet_count`: the number of tablets that divide the table evenly. For a whole table
          only.
        - `first_tablet_index`, `last_tablet_index`: as in `mount_table`.

        Raises TableNotFound, InvalidTabletState, SchemaViolation, InvalidRequest, NodeLocked."""
        first, last = first_tablet_index, last_tablet_index
        await self._run(
            self._catalog.reshard_table(path, pivot_keys, tablet_count, first, last), timeout_ms
        )

    async def alter_table(
        self,
        path: str,
        schema: Iterable[Column | Mapping[str, Any]] | TableSchema,
        *,
        timeout_ms: int | None = None,
    ) -> None:
        """Give an unmounted table another schema, which its rows must fit. The schema has all
        columns of the table, and may have new columns that are not required. A column may lose
        `required`, change its lock, get an aggregate, or change from `utf8` to `string`. Raises
        TableNotFound, InvalidTabletState, SchemaViolation, NodeLocked."""
        await self._run(self._catalog.alter_table(path, schema), timeout_ms)

    async def list_tables(self, prefix: str = "//", *, timeout_ms: int | None = None) -> Names:
        """Return the paths of all tables that begin with `prefix`, in order."""
        return await self._run(self._catalog.list_tables(prefix), timeout_ms)

    async def get_cluster(self, *, timeout_ms: int | None = None) -> Cluster:
        """Return the proxies and cells that the master hears from."""
        return await self._run(self._catalog.get_cluster(), timeout_ms)

    def begin_master(
        self, timeout_ms: int = TIMEOUT_MS, title: str = "", *, call_timeout_ms: int | None = None
    ) -> "Beginning[AsyncMasterTransaction]":
        """Begin a master transaction, which changes the tree.

        In an `async with` block, it commits at the end of the block, or aborts on an exception.

        - `timeout_ms`: the master aborts the transaction if it hears nothing from this client for
          this long, in ms: 1,000 to 3,600,000.
        - `title`: a text for other callers that meet a lock of the transaction.
        - `call_timeout_ms`: the time limit of this call, and of each call of the transaction, in
          ms.

        Raises Unavailable, InvalidRequest, LimitExceeded.

        With asyncio, use `async with db.begin_master() as tx`, or
        `tx = await db.begin_master()`."""
        return Beginning(partial(self._begin, timeout_ms, title, call_timeout_ms))


# asyncio only
@begun_at_calls(
    *("create_table", "remove_table", "create_directory", "remove", "move", "copy", "set"),
    "lock",
)
# end
class AsyncMasterTransaction(AsyncTree, RowsRefused):
    """A transaction on the tree. All its changes take effect at its commit, or none.

    The client pings it in the background while it is open and the program refers to it. If no ping
    arrives within its timeout, the master aborts it. Then all its calls, and the end of its block,
    raise TransactionNotFound.

    With asyncio, a change or a lock begins at its call, after the earlier ones. So the commit
    includes it even if the program does not await it."""

    _instead = "begin one in each process"

    _catalog: MasterTransactionSession
    _writes: TreeWrites  # asyncio only

    def __init__(
        self, around: AsyncTree, catalog: MasterTransactionSession, call_timeout_ms: int | None
    ) -> None:
        super().__init__(around._driver, around._pinger, catalog, call_timeout_ms)
        self._writes = TreeWrites(around._writes)  # asyncio only

    @property
    def id(self) -> TreeTransactionId:
        """The id of the transaction."""
        return self._catalog.lease.id

    @property
    def state(self) -> TransactionState:
        """The state of the transaction, as far as this client knows."""
        return self._catalog.lease.state_known

    def __repr__(self) -> str:
        return self._catalog.lease.describe("dodona.aio.AsyncMasterTransaction")

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        # asyncio only
        if error is not None or self.state is not TransactionState.ACTIVE:
            self._writes.drop()
        # end
        await self._run_end(self._catalog.leave(error is not None))

    # asyncio only
    async def _run_read(self, read: steps.Protocol[Result], timeout_ms: int | None) -> Result:
        await self._writes.wait(timeout_ms)
        return await self._run(read, timeout_ms)

    async def _run_end(self, end: steps.Protocol[None], timeout_ms: int | None = None) -> None:
        """Run `end` after all earlier changes. Abort instead if one of them failed that nothing
        awaited."""
        try:
            await self._writes.wait(timeout_ms)
            await self._writes.settle(timeout_ms)
        except BaseException:
            with suppress(DodonaError):
                await self.abort(timeout_ms=timeout_ms)
            raise
        await self._run(end, timeout_ms)

    # end
    async def lock(
        self,
        path: str,
        mode: LockMode = "exclusive",
        child: str | None = None,
        attribute: str | None = None,
        *,
        timeout_ms: int | None = None,
    ) -> int:
        """Lock a node until the end of the transaction. Returns the id of the node.

        - `mode`: `"exclusive"` prevents all changes by others, in transactions or not. `"shared"`
          prevents exclusive locks of others. `"snapshot"` shows the node as it is now until the end
          of the transaction.
        - `child`, `attribute`: with `"shared"`, lock only this name in the node. Others can't
          change the same one.

        Raises NodeLocked, NodeNotFound, InvalidRequest."""
        return await self._run(self._catalog.lock(path, mode, child, attribute), timeout_ms)

    def begin(
        self, timeout_ms: int = TIMEOUT_MS, title: str = "", *, call_timeout_ms: int | None = None
    ) -> "Beginning[AsyncMasterTransaction]":
        """Begin a nested transaction. Its commit passes its changes to this transaction. The end of
        this transaction aborts it. Raises as `AsyncClient.begin_master`, and TransactionClosed.

        With asyncio, enter the result by `async with`, or await it."""
        return Beginning(partial(self._begin, timeout_ms, title, call_timeout_ms))

    async def ping(self, *, timeout_ms: int | None = None) -> None:
        """Ping the master now, to keep the transaction open. The client also pings in the
        background. Raises TransactionNotFound, TransactionClosed, Unavailable."""
        await self._run(self._catalog.ping(), timeout_ms)

    async def commit(self, *, timeout_ms: int | None = None) -> None:
        """Commit all changes. Nested transactions that are still open are aborted. If it raises
        CommitOutcomeUnknown, call it again to learn the outcome. After any other error, nothing is
        committed."""
        await self._run_end(self._catalog.commit(), timeout_ms)

    async def abort(self, *, timeout_ms: int | None = None) -> None:
        """Abort the transaction: none of its changes takes effect. Raises TransactionClosed after a
        commit."""
        self._writes.drop()  # asyncio only
        await self._run(self._catalog.abort(), timeout_ms)
