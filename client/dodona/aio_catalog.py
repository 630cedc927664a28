"""The part of the asyncio API that is about tables, the tree they are in, and master transactions.

Owns: its public names and arguments; `dodona.catalog` is its twin, name by name, and says what each
method does. Every method is one line over the same protocols.
"""

from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial, wraps
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, Protocol, Self, TypeVar

from dodona._core.catalog.catalog import MOUNT_TIMEOUT_MS, CatalogSession
from dodona._core.catalog.master_transaction import TIMEOUT_MS, Lease, RowsRefused
from dodona._core.catalog.tables import TableInfo
from dodona._core.catalog.tree import MasterTransactionSession, Names, TreeSession
from dodona._core.protocol import steps
from dodona._core.protocol.process_bound import MAKE_ONE_THERE, ProcessBound
from dodona._core.writing.transaction import TransactionState
from dodona._io.aio_pinger import AsyncPinger
from dodona._io.aio_writes import TreeWrites
from dodona._io.beginning import Beginning
from dodona._io.bounds import async_within
from dodona_wire.errors import DodonaError
from dodona_wire.messages.attribute_names import names_set, warn_about
from dodona_wire.messages.catalog import Cluster
from dodona_wire.messages.tree import LockMode
from dodona_wire.rows.schema import Column, TableSchema
from dodona_wire.types import Atomicity, Timestamp, TreeTransactionId

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


class AsyncDriver(Protocol):
    """What a client runs its protocols with."""

    async def run(
        self, protocol: steps.Protocol[Result], timeout_ms: int | None = None
    ) -> Result: ...

    def generate_timestamp(self) -> Awaitable[Timestamp]: ...

    async def close(self) -> None: ...


class AsyncTree(ProcessBound):
    """As `dodona.catalog.Tree`."""

    _catalog: TreeSession

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
        schema: Iterable[Column | Mapping[str, Any]] | TableSchema,
        atomicity: Atomicity = "full",
        pivot_keys: Sequence[Sequence[Any]] | None = None,
        tablet_count: int | None = None,
        mount: bool = False,
        attributes: Mapping[str, Any] | None = None,
        *,
        timeout_ms: int | None = None,
    ) -> None:
        """As `dodona.Client.create_table`."""
        warn_about(attributes or ())
        create = self._catalog.create_table
        await self._run(
            create(path, schema, atomicity, pivot_keys, tablet_count, mount, attributes), timeout_ms
        )

    async def remove_table(self, path: str, *, timeout_ms: int | None = None) -> None:
        """As `dodona.Client.remove_table`."""
        await self._run(self._catalog.remove_table(path), timeout_ms)

    async def get_table(self, path: str, *, timeout_ms: int | None = None) -> TableInfo:
        """As `dodona.Client.get_table`."""
        return await self._read(self._catalog.get_table(path), timeout_ms)

    async def create_directory(
        self,
        path: str,
        attributes: Mapping[str, Any] | None = None,
        recursive: bool = False,
        ignore_existing: bool = False,
        *,
        timeout_ms: int | None = None,
    ) -> None:
        """As `dodona.Client.create_directory`."""
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
        """As `dodona.Client.remove`."""
        await self._run(self._catalog.remove(path, recursive, force), timeout_ms)

    async def move(
        self,
        source: str,
        destination: str,
        recursive: bool = False,
        *,
        timeout_ms: int | None = None,
    ) -> None:
        """As `dodona.Client.move`."""
        await self._run(self._catalog.move(source, destination, recursive), timeout_ms)

    async def copy(
        self,
        source: str,
        destination: str,
        recursive: bool = False,
        *,
        timeout_ms: int | None = None,
    ) -> None:
        """As `dodona.Client.copy`."""
        await self._run(self._catalog.copy(source, destination, recursive), timeout_ms)

    async def list(self, path: str, *, timeout_ms: int | None = None) -> Names:
        """As `dodona.Client.list`."""
        return await self._read(self._catalog.list(path), timeout_ms)

    async def exists(self, path: str, *, timeout_ms: int | None = None) -> bool:
        """As `dodona.Client.exists`."""
        return await self._read(self._catalog.exists(path), timeout_ms)

    async def get(self, path: str, *, timeout_ms: int | None = None) -> Any:
        """As `dodona.Client.get`."""
        return await self._read(self._catalog.get(path), timeout_ms)

    async def set(self, path: str, value: Any, *, timeout_ms: int | None = None) -> None:
        """As `dodona.Client.set`."""
        await self._run(self._catalog.set(path, value), timeout_ms)
        warn_about(names_set(path, value))

    async def _read(self, read: steps.Protocol[Result], timeout_ms: int | None) -> Result:
        return await self._run(read, timeout_ms)

    def _around(self) -> TreeWrites | None:
        """For a master transaction in this one."""
        return None

    async def _begin(
        self, timeout_ms: int, title: str, call_timeout_ms: int | None
    ) -> "AsyncMasterTransaction":
        limit_ms = self._bound_ms(call_timeout_ms)
        begun = await self._read(self._catalog.begin(timeout_ms, title), limit_ms)
        self._pinger.watch(begun.lease)
        return AsyncMasterTransaction(self._driver, self._pinger, begun, limit_ms, self._around())

    def _bound_ms(self, timeout_ms: int | None) -> int | None:
        """Of a call that was given this."""
        return self._call_timeout_ms if timeout_ms is None else timeout_ms


class AsyncCatalog(AsyncTree):
    """As `dodona.catalog.Catalog`."""

    _instead = MAKE_ONE_THERE

    _catalog: CatalogSession

    def _mounting_ms(self, timeout_ms: int | None) -> int:
        """How long a call that was given this waits for tablets."""
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
        """As `dodona.Client.mount_table`."""
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
        """As `dodona.Client.unmount_table`."""
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
        """As `dodona.Client.freeze_table`."""
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
        """As `dodona.Client.unfreeze_table`."""
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
        """As `dodona.Client.remount_table`."""
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
        """As `dodona.Client.reshard_table`."""
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
        """As `dodona.Client.alter_table`."""
        await self._run(self._catalog.alter_table(path, schema), timeout_ms)

    async def list_tables(self, prefix: str = "//", *, timeout_ms: int | None = None) -> Names:
        """As `dodona.Client.list_tables`."""
        return await self._run(self._catalog.list_tables(prefix), timeout_ms)

    async def get_cluster(self, *, timeout_ms: int | None = None) -> Cluster:
        """As `dodona.Client.get_cluster`."""
        return await self._run(self._catalog.get_cluster(), timeout_ms)

    def begin_master(
        self, timeout_ms: int = TIMEOUT_MS, title: str = "", *, call_timeout_ms: int | None = None
    ) -> "Beginning[AsyncMasterTransaction]":
        """`async with db.begin_master() as tx`, or `tx = await db.begin_master()`."""
        return Beginning(partial(self._begin, timeout_ms, title, call_timeout_ms))


class AsyncMasterTransaction(AsyncTree, RowsRefused):
    """As `dodona.MasterTransaction`."""

    _instead = "begin one in each process"

    _catalog: MasterTransactionSession

    def __init__(
        self,
        driver: AsyncDriver,
        pinger: AsyncPinger[Lease],
        catalog: MasterTransactionSession,
        call_timeout_ms: int | None,
        around: TreeWrites | None = None,
    ) -> None:
        super().__init__(driver, pinger, catalog, call_timeout_ms)
        self._writes = TreeWrites(around)

    @property
    def id(self) -> TreeTransactionId:
        """As `dodona.MasterTransaction.id`."""
        return self._catalog.lease.id

    @property
    def state(self) -> TransactionState:
        """As `dodona.MasterTransaction.state`."""
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
        if error is not None or self.state is not TransactionState.ACTIVE:
            self._writes.drop()
        await self._end(self._catalog.leave(error is not None))

    async def _read(self, read: steps.Protocol[Result], timeout_ms: int | None) -> Result:
        await self._writes.wait(timeout_ms)
        return await self._run(read, timeout_ms)

    def _around(self) -> TreeWrites | None:
        return self._writes

    async def _end(self, end: steps.Protocol[None], timeout_ms: int | None = None) -> None:
        """Behind all changes. Aborts if one of them failed that nobody has awaited."""
        try:
            await self._writes.wait(timeout_ms)
            await self._writes.settle(timeout_ms)
        except BaseException:
            with suppress(DodonaError):
                await self.abort(timeout_ms=timeout_ms)
            raise
        await self._run(end, timeout_ms)

    async def lock(
        self,
        path: str,
        mode: LockMode = "exclusive",
        child: str | None = None,
        attribute: str | None = None,
        *,
        timeout_ms: int | None = None,
    ) -> int:
        """As `dodona.MasterTransaction.lock`."""
        return await self._run(self._catalog.lock(path, mode, child, attribute), timeout_ms)

    def begin(
        self, timeout_ms: int = TIMEOUT_MS, title: str = "", *, call_timeout_ms: int | None = None
    ) -> "Beginning[AsyncMasterTransaction]":
        """As `dodona.MasterTransaction.begin`."""
        return Beginning(partial(self._begin, timeout_ms, title, call_timeout_ms))

    async def ping(self, *, timeout_ms: int | None = None) -> None:
        """As `dodona.MasterTransaction.ping`."""
        await self._run(self._catalog.ping(), timeout_ms)

    async def commit(self, *, timeout_ms: int | None = None) -> None:
        """As `dodona.MasterTransaction.commit`."""
        await self._end(self._catalog.commit(), timeout_ms)

    async def abort(self, *, timeout_ms: int | None = None) -> None:
        """As `dodona.MasterTransaction.abort`."""
        self._writes.drop()
        await self._run(self._catalog.abort(), timeout_ms)


def _begun_at_call(
    method: Callable[Concatenate[AsyncMasterTransaction, Arguments], Coroutine[Any, Any, Result]],
) -> Callable[Concatenate[AsyncMasterTransaction, Arguments], Coroutine[Any, Any, Result]]:
    """It begins when it is called, behind those before it: what nobody awaits is committed, too."""

    @wraps(method)
    def call(
        self: AsyncMasterTransaction, /, *arguments: Arguments.args, **named: Arguments.kwargs
    ) -> Coroutine[Any, Any, Result]:
        return self._writes.begin(method(self, *arguments, **named))

    return call


for _name in (
    *("create_table", "remove_table", "create_directory", "remove", "move", "copy", "set"),
    "lock",
):
    setattr(AsyncMasterTransaction, _name, _begun_at_call(getattr(AsyncMasterTransaction, _name)))
