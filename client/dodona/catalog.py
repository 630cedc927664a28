"""The part of the blocking API that is about tables, the tree they are in, and master transactions.

Owns: its public names and arguments; `dodona.aio_catalog` is its twin, name by name. Every method
is one line over a protocol of the session that its object was made with: under a master
transaction, or under none.
"""

from collections.abc import Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, Protocol, Self, TypeVar

from dodona._core.catalog.catalog import MOUNT_TIMEOUT_MS, CatalogSession
from dodona._core.catalog.master_transaction import TIMEOUT_MS, Lease, RowsRefused
from dodona._core.catalog.tables import TableInfo
from dodona._core.catalog.tree import MasterTransactionSession, Names, TreeSession
from dodona._core.protocol import steps
from dodona._core.protocol.process_bound import MAKE_ONE_THERE, ProcessBound
from dodona._core.writing.transaction import TransactionState
from dodona._io.bounds import within
from dodona._io.pinger import Pinger
from dodona_wire.messages.attribute_names import names_set, warn_about
from dodona_wire.messages.catalog import Cluster
from dodona_wire.messages.tree import LockMode
from dodona_wire.rows.schema import Column, TableSchema
from dodona_wire.types import Atomicity, TreeTransactionId

Result = TypeVar("Result")


class Driver(Protocol):
    """What a client runs its protocols with."""

    def run(self, protocol: steps.Protocol[Result], timeout_ms: int | None = None) -> Result: ...

    def close(self) -> None: ...


class Tree(ProcessBound):
    """The calls that a client and a master transaction have in common. In a transaction others see
    what they do once it is committed, and it sees it at once; outside, each is on its own.

    A path is `//name/name`; `//name/@attribute` is an attribute of what is there. A name is at
    most 256 letters, digits and any of `_.-`, and not `.` or `..`.
    """

    _catalog: TreeSession

    def __init__(
        self,
        driver: Driver,
        pinger: Pinger[Lease],
        catalog: TreeSession,
        call_timeout_ms: int | None,
    ) -> None:
        self._run = within(driver.run, call_timeout_ms, "call_timeout_ms")
        self._call_timeout_ms = call_timeout_ms
        self._driver = driver
        self._pinger = pinger
        self._catalog = catalog

    def create_table(
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
        """Make a sorted table, and the directories above it. `schema` is a list of columns, as
        `Column` or as dicts of its fields.

        It has one tablet, or one for each of `pivot_keys` (lists of leading key column values,
        rising, the first is empty), or `tablet_count`, which divide all values of the first key
        column evenly. `attributes` are settings (see `TableSettings`) and others of your own:
        a misspelled setting is refused, and one of YTsaurus's that changes nothing here is warned
        of (`DodonaWarning`). With `mount` (not in a master transaction) it is mounted too: should
        that fail, the table is there. Raises NodeExists, SchemaViolation, InvalidRequest,
        LimitExceeded, NodeLocked, Unavailable."""
        warn_about(attributes or ())
        create = self._catalog.create_table
        self._run(
            create(path, schema, atomicity, pivot_keys, tablet_count, mount, attributes), timeout_ms
        )

    def remove_table(self, path: str, *, timeout_ms: int | None = None) -> None:
        """Remove a table and all its rows, mounted or not. Raises TableNotFound, NodeLocked."""
        self._run(self._catalog.remove_table(path), timeout_ms)

    def get_table(self, path: str, *, timeout_ms: int | None = None) -> TableInfo:
        """The table's schema, atomicity, settings and tablets, as the master knows them now. Raises
        TableNotFound."""
        return self._run(self._catalog.get_table(path), timeout_ms)

    def create_directory(
        self,
        path: str,
        attributes: Mapping[str, Any] | None = None,
        recursive: bool = False,
        ignore_existing: bool = False,
        *,
        timeout_ms: int | None = None,
    ) -> None:
        """Make a directory; with `recursive` those above it too. Raises NodeExists (unless
        `ignore_existing` and it is a directory), NodeNotFound, InvalidRequest, NodeLocked."""
        warn_about(attributes or ())
        create = self._catalog.create_directory
        self._run(create(path, attributes, recursive, ignore_existing), timeout_ms)

    def remove(
        self,
        path: str,
        recursive: bool = False,
        force: bool = False,
        *,
        timeout_ms: int | None = None,
    ) -> None:
        """Remove a table (a mounted one too), a directory (an empty one, unless `recursive`) or an
        attribute. Raises NodeNotFound, unless `force`; InvalidRequest, NodeLocked."""
        self._run(self._catalog.remove(path, recursive, force), timeout_ms)

    def move(
        self,
        source: str,
        destination: str,
        recursive: bool = False,
        *,
        timeout_ms: int | None = None,
    ) -> None:
        """Move a table or a directory to a path where nothing is; with `recursive` the directories
        above that are made. Tables must be unmounted. Raises NodeNotFound, NodeExists,
        InvalidTabletState, NodeLocked."""
        self._run(self._catalog.move(source, destination, recursive), timeout_ms)

    def copy(
        self,
        source: str,
        destination: str,
        recursive: bool = False,
        *,
        timeout_ms: int | None = None,
    ) -> None:
        """As `move`, and the source stays. Copies of tables have their rows of now (in a master
        transaction: of its commit), settings and attributes, and are unmounted."""
        self._run(self._catalog.copy(source, destination, recursive), timeout_ms)

    def list(self, path: str, *, timeout_ms: int | None = None) -> Names:
        """The names in a directory, sorted; of `//name/@` those of all attributes. Raises
        NodeNotFound, and InvalidRequest for a table."""
        return self._run(self._catalog.list(path), timeout_ms)

    def exists(self, path: str, *, timeout_ms: int | None = None) -> bool:
        """Whether there is such a table, directory or attribute."""
        return self._run(self._catalog.exists(path), timeout_ms)

    def get(self, path: str, *, timeout_ms: int | None = None) -> Any:
        """The value of an attribute; of `//name/@` all attributes as a dict; of a directory what is
        in it as nested dicts, in which tables are None. Raises NodeNotFound."""
        return self._run(self._catalog.get(path), timeout_ms)

    def set(self, path: str, value: Any, *, timeout_ms: int | None = None) -> None:
        """Set an attribute to any value that JSON has; `//name/@` to a dict of all attributes that
        are the user's own. Settings of tables are attributes (see `TableSettings`), where None is
        the default. Raises NodeNotFound, InvalidRequest, InvalidTabletState, NodeLocked."""
        self._run(self._catalog.set(path, value), timeout_ms)
        warn_about(names_set(path, value))

    def _begin(
        self, timeout_ms: int, title: str, call_timeout_ms: int | None
    ) -> "MasterTransaction":
        limit_ms = self._bound_ms(call_timeout_ms)
        begun = self._run(self._catalog.begin(timeout_ms, title), limit_ms)
        self._pinger.watch(begun.lease)
        return MasterTransaction(self._driver, self._pinger, begun, limit_ms)

    def _bound_ms(self, timeout_ms: int | None) -> int | None:
        """Of a call that was given this."""
        return self._call_timeout_ms if timeout_ms is None else timeout_ms


class Catalog(Tree):
    """What there is outside of master transactions only: the life of tables.

    Where a range of tablets can be given, its ends are places in the table from 0, both included;
    without one it begins with the first or ends with the last. `timeout_ms` is how long to wait for
    tablets (the client's `call_timeout_ms` unless given, or 30 s), after which Unavailable is
    raised and what was asked for goes on. What is so already, or on its
    way to be, is no error. While a master transaction has a lock on the table all of them raise
    NodeLocked.
    """

    _instead = MAKE_ONE_THERE

    _catalog: CatalogSession

    def _mounting_ms(self, timeout_ms: int | None) -> int:
        """How long a call that was given this waits for tablets."""
        limit_ms = self._bound_ms(timeout_ms)
        return MOUNT_TIMEOUT_MS if limit_ms is None else limit_ms

    def mount_table(
        self,
        path: str,
        freeze: bool = False,
        first_tablet_index: int | None = None,
        last_tablet_index: int | None = None,
        timeout_ms: int | None = None,
    ) -> None:
        """Have the table served, and wait until it is; with `freeze` for reads only. Raises
        TableNotFound, InvalidTabletState, Unavailable (whose attributes say which tablets are not
        served yet)."""
        first, last = first_tablet_index, last_tablet_index
        limit_ms = self._mounting_ms(timeout_ms)
        change = self._catalog.mount_table(path, freeze, first, last, limit_ms)
        self._run(change, limit_ms)

    def unmount_table(
        self,
        path: str,
        first_tablet_index: int | None = None,
        last_tablet_index: int | None = None,
        timeout_ms: int | None = None,
    ) -> None:
        """Have it served no more, and wait until it is not: until the transactions that are
        committing there have ended. Raises as `mount_table`."""
        first, last = first_tablet_index, last_tablet_index
        limit_ms = self._mounting_ms(timeout_ms)
        change = self._catalog.unmount_table(path, first, last, limit_ms)
        self._run(change, limit_ms)

    def freeze_table(
        self,
        path: str,
        first_tablet_index: int | None = None,
        last_tablet_index: int | None = None,
        timeout_ms: int | None = None,
    ) -> None:
        """Have a mounted table refuse writes, and wait until it does. Raises as `mount_table`."""
        first, last = first_tablet_index, last_tablet_index
        limit_ms = self._mounting_ms(timeout_ms)
        change = self._catalog.freeze_table(path, first, last, limit_ms)
        self._run(change, limit_ms)

    def unfreeze_table(
        self,
        path: str,
        first_tablet_index: int | None = None,
        last_tablet_index: int | None = None,
        timeout_ms: int | None = None,
    ) -> None:
        """Have a frozen table take writes, and wait until it does. Raises as `mount_table`."""
        first, last = first_tablet_index, last_tablet_index
        limit_ms = self._mounting_ms(timeout_ms)
        change = self._catalog.unfreeze_table(path, first, last, limit_ms)
        self._run(change, limit_ms)

    def remount_table(
        self,
        path: str,
        first_tablet_index: int | None = None,
        last_tablet_index: int | None = None,
        timeout_ms: int | None = None,
    ) -> None:
        """Have mounted tablets go by the table's settings as they are now: so it is a moment later.
        Raises TableNotFound, InvalidTabletState, Unavailable."""
        first, last = first_tablet_index, last_tablet_index
        limit_ms = self._mounting_ms(timeout_ms)
        change = self._catalog.remount_table(path, first, last, limit_ms)
        self._run(change, limit_ms)

    def reshard_table(
        self,
        path: str,
        pivot_keys: Sequence[Sequence[Any]] | None = None,
        tablet_count: int | None = None,
        first_tablet_index: int | None = None,
        last_tablet_index: int | None = None,
        *,
        timeout_ms: int | None = None,
    ) -> None:
        """Cut an unmounted table anew, at `pivot_keys` (the first is that of the first tablet
        concerned: empty for the whole table) or, the whole table only, evenly into `tablet_count`
        tablets. Its rows stay. Raises TableNotFound, InvalidTabletState, SchemaViolation."""
        first, last = first_tablet_index, last_tablet_index
        self._run(
            self._catalog.reshard_table(path, pivot_keys, tablet_count, first, last), timeout_ms
        )

    def alter_table(
        self,
        path: str,
        schema: Iterable[Column | Mapping[str, Any]] | TableSchema,
        *,
        timeout_ms: int | None = None,
    ) -> None:
        """Give an unmounted table another schema, which its rows must fit: all its columns and new
        ones that are not required. A column may become not required, change its lock, get an
        aggregate, or become string from utf8. Raises TableNotFound, InvalidTabletState,
        SchemaViolation."""
        self._run(self._catalog.alter_table(path, schema), timeout_ms)

    def list_tables(self, prefix: str = "//", *, timeout_ms: int | None = None) -> Names:
        """The paths of all tables that begin with `prefix`, in order."""
        return self._run(self._catalog.list_tables(prefix), timeout_ms)

    def get_cluster(self, *, timeout_ms: int | None = None) -> Cluster:
        """The proxies and cells that the master hears from."""
        return self._run(self._catalog.get_cluster(), timeout_ms)

    def begin_master(
        self, timeout_ms: int = TIMEOUT_MS, title: str = "", *, call_timeout_ms: int | None = None
    ) -> "MasterTransaction":
        """Begin a transaction on the tree. Used in a `with` block it commits at the end, or aborts
        on an exception. The master ends it if it hears nothing from this client for `timeout_ms`
        (1,000 to 3,600,000). Others who meet its locks see its `title`. `call_timeout_ms` bounds
        the time of this call, and of the transaction's. Raises Unavailable, InvalidRequest,
        LimitExceeded."""
        return self._begin(timeout_ms, title, call_timeout_ms)


class MasterTransaction(Tree, RowsRefused):
    """A transaction on the tree: what it creates, removes, moves, copies and sets takes effect at
    its commit, all of it or nothing. It is pinged in the background for as long as it is open and
    referred to. If that fails for its time-out the master ends it: then all calls, and the end of
    the block, raise TransactionNotFound."""

    _instead = "begin one in each process"

    _catalog: MasterTransactionSession

    @property
    def id(self) -> TreeTransactionId:
        """Names it."""
        return self._catalog.lease.id

    @property
    def state(self) -> TransactionState:
        """What has become of it, as far as this client knows."""
        return self._catalog.lease.state_known

    def __repr__(self) -> str:
        return self._catalog.lease.describe("dodona.MasterTransaction")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._run(self._catalog.leave(error is not None))

    def lock(
        self,
        path: str,
        mode: LockMode = "exclusive",
        child: str | None = None,
        attribute: str | None = None,
        *,
        timeout_ms: int | None = None,
    ) -> int:
        """Lock what is there until the end: `exclusive` against all changes by others, `shared`
        (of one `child` name or one `attribute`, if given) against those of the same, `snapshot` to
        see it as it is now. → the node's id. Raises NodeLocked, NodeNotFound, InvalidRequest."""
        return self._run(self._catalog.lock(path, mode, child, attribute), timeout_ms)

    def begin(
        self, timeout_ms: int = TIMEOUT_MS, title: str = "", *, call_timeout_ms: int | None = None
    ) -> "MasterTransaction":
        """Begin one inside this one: its commit hands over to this one what it did, and the end of
        this one aborts it. Raises as `Client.begin_master`, and TransactionClosed."""
        return self._begin(timeout_ms, title, call_timeout_ms)

    def ping(self, *, timeout_ms: int | None = None) -> None:
        """Tell the master that this client is alive, now; it is told from time to time anyway.
        Raises TransactionNotFound, TransactionClosed, Unavailable."""
        self._run(self._catalog.ping(), timeout_ms)

    def commit(self, *, timeout_ms: int | None = None) -> None:
        """Have all of it take effect; those inside it that are still open are aborted. Raises
        CommitOutcomeUnknown (call it again to find out), and others: then nothing of it has."""
        self._run(self._catalog.commit(), timeout_ms)

    def abort(self, *, timeout_ms: int | None = None) -> None:
        """Have none of it take effect. Raises TransactionClosed once it is committed."""
        self._run(self._catalog.abort(), timeout_ms)
