"""Mount, freeze, reshard, alter and list whole tables. Pure.

Owns: the calls that exist only outside master transactions, and the waits until tablets have the
wanted state. After each change of a table the client forgets its route. It does so also after a
failure, since the reply may have been lost.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Final

from dodona._core.catalog.like import Columns
from dodona._core.catalog.tables import pivots_of
from dodona._core.catalog.tree import TreeSession
from dodona._core.protocol.arguments import (
    check_flag,
    check_number,
    check_path,
    check_text,
    pack_map,
)
from dodona._core.protocol.retry import Patience, has_time
from dodona._core.protocol.routing import FROZEN, MOUNTED, UNMOUNTED
from dodona._core.protocol.steps import Protocol
from dodona_wire.errors import InvalidRequest, Unavailable
from dodona_wire.messages.catalog import (
    AlterTable,
    Cluster,
    CreateTable,
    FreezeTable,
    GetCluster,
    GetTable,
    ListTables,
    MountTable,
    RemountTable,
    ReshardTable,
    Table,
    TableLifeRequest,
    TableList,
    Tablet,
    UnfreezeTable,
    UnmountTable,
)
from dodona_wire.rows.schema import Column, TableSchema
from dodona_wire.shown import shown
from dodona_wire.types import Atomicity, Key

MOUNT_TIMEOUT_MS: Final = 30_000
TABLETS_NAMED_MAX: Final = 100
"""How many tablets that do not have the wanted state an error names."""


class CatalogSession(TreeSession):
    """The calls of the tree outside master transactions, and the calls that mount and change
    tables."""

    def create_table(
        self,
        path: str,
        schema: Columns | None = None,
        atomicity: Atomicity = "full",
        pivot_keys: Sequence[Sequence[Any]] | None = None,
        tablet_count: int | None = None,
        mount: bool = False,
        attributes: Mapping[str, Any] | None = None,
        like: Any = None,
        keys: Sequence[str] | None = None,
        if_not_exists: bool = False,
    ) -> Protocol[None]:
        """Create a table as `TreeSession.create_table` does. With `mount`, mount it as
        `mount_table` does."""
        check_flag(mount, "mount")
        create = super().create_table
        settings = (atomicity, pivot_keys, tablet_count, False, attributes)
        yield from create(path, schema, *settings, like, keys, if_not_exists)
        if mount:
            yield from self.mount_table(path)

    def restore_table(
        self,
        path: str,
        schema: TableSchema,
        pivot_keys: tuple[Key, ...],
        attributes: Mapping[str, Any],
    ) -> Protocol[None]:
        """Create and mount the table of a backup, without atomicity. Its pivot keys are encoded.
        Its expressions stay as they are. Raises as `create_table` does."""
        packed = pack_map(attributes, "attributes")
        request = CreateTable(
            path, schema.columns, "none", pivot_keys, packed, is_restored=not schema.is_possible
        )
        yield from self._ask(request, Table)
        self._context.routing.forget(path)
        yield from self.mount_table(path)

    def mount_table(
        self,
        path: str,
        freeze: bool = False,
        first_tablet_index: int | None = None,
        last_tablet_index: int | None = None,
        timeout_ms: int = MOUNT_TIMEOUT_MS,
    ) -> Protocol[None]:
        """Mount tablets, and wait until cells serve them. Raises TableNotFound, Unavailable, and
        InvalidTabletState if a tablet's state does not allow it."""
        check_flag(freeze, "freeze")
        request = MountTable(path, freeze, first_tablet_index, last_tablet_index)
        yield from self._bring(request, FROZEN if freeze else MOUNTED, timeout_ms)

    def unmount_table(
        self,
        path: str,
        first_tablet_index: int | None = None,
        last_tablet_index: int | None = None,
        timeout_ms: int = MOUNT_TIMEOUT_MS,
    ) -> Protocol[None]:
        """Unmount tablets, and wait until no cell has them. Raises TableNotFound, Unavailable, and
        InvalidTabletState if a tablet's state does not allow it."""
        request = UnmountTable(path, first_tablet_index, last_tablet_index)
        yield from self._bring(request, UNMOUNTED, timeout_ms)

    def freeze_table(
        self,
        path: str,
        first_tablet_index: int | None = None,
        last_tablet_index: int | None = None,
        timeout_ms: int = MOUNT_TIMEOUT_MS,
    ) -> Protocol[None]:
        """Freeze tablets, and wait until they take no more writes. Raises TableNotFound,
        Unavailable, and InvalidTabletState if a tablet's state does not allow it."""
        request = FreezeTable(path, first_tablet_index, last_tablet_index)
        yield from self._bring(request, FROZEN, timeout_ms)

    def unfreeze_table(
        self,
        path: str,
        first_tablet_index: int | None = None,
        last_tablet_index: int | None = None,
        timeout_ms: int = MOUNT_TIMEOUT_MS,
    ) -> Protocol[None]:
        """Unfreeze tablets, and wait until they take writes again. Raises TableNotFound,
        Unavailable, and InvalidTabletState if a tablet's state does not allow it."""
        request = UnfreezeTable(path, first_tablet_index, last_tablet_index)
        yield from self._bring(request, MOUNTED, timeout_ms)

    def remount_table(
        self,
        path: str,
        first_tablet_index: int | None = None,
        last_tablet_index: int | None = None,
        timeout_ms: int = MOUNT_TIMEOUT_MS,
    ) -> Protocol[None]:
        """Let mounted tablets use the current settings of their table, which takes effect soon
        after the call. Raises TableNotFound, Unavailable, and InvalidTabletState if a tablet's
        state does not allow it."""
        request = RemountTable(path, first_tablet_index, last_tablet_index)
        yield from self._change_mounting(request, self._context.polling(timeout_ms))

    def reshard_table(
        self,
        path: str,
        pivot_keys: Sequence[Sequence[Any]] | None = None,
        tablet_count: int | None = None,
        first_tablet_index: int | None = None,
        last_tablet_index: int | None = None,
    ) -> Protocol[None]:
        """Divide a table, or some tablets in a row, into new tablets. Raises TableNotFound,
        InvalidTabletState, SchemaViolation, InvalidRequest."""
        first, last = first_tablet_index, last_tablet_index
        if pivot_keys is None and tablet_count is None:
            raise InvalidRequest("Pass pivot_keys or tablet_count.")
        if tablet_count is not None and not first is last is None:
            raise InvalidRequest(
                "tablet_count divides a whole table. For a part of a table, pass pivot_keys."
            )
        table = yield from self._get(path)  # the schema in the cache may be old
        pivots = pivots_of(TableSchema(table.columns), pivot_keys, tablet_count)
        yield from self._change_mounting(ReshardTable(path, pivots, first, last), None)

    def alter_table(
        self, path: str, schema: Iterable[Column | Mapping[str, Any]] | TableSchema
    ) -> Protocol[None]:
        """Give an unmounted table a new schema, which its rows must fit. Raises TableNotFound,
        InvalidTabletState, SchemaViolation."""
        check_path(path)
        parsed = TableSchema.parse_existing(schema)
        yield from self._change_mounting(AlterTable(path, parsed.columns), None)

    def begin_change(self, request: TableLifeRequest) -> Protocol[None]:
        """Ask the master for the change, and wait for no tablet. Raises TableNotFound,
        InvalidTabletState."""
        yield from self._change_mounting(request, self._context.patience())

    def list_tables(self, prefix: str = "//") -> Protocol[list[str]]:
        """Return the paths that begin with `prefix`, in order."""
        listed = yield from self._ask_patiently(ListTables(check_text(prefix, "prefix")), TableList)
        return list(listed.paths)

    def get_cluster(self, timeout_ms: int | None = None) -> Protocol[Cluster]:
        """Return the proxies and cells that the master knows. `timeout_ms` is how long to wait if
        the master does not answer."""
        context = self._context
        patience = context.patience() if timeout_ms is None else context.polling(timeout_ms)
        cluster = yield from context.ask_master_patiently(GetCluster(), Cluster, patience)
        context.routing.learn_cells(cluster)
        return cluster

    # ---- waiting

    def _change_mounting(
        self, request: TableLifeRequest, patience: Patience | None
    ) -> Protocol[None]:
        """Ask the master for the change. With `patience`, ask again while the master does not
        answer. `patience` is None if a repetition would change more."""
        check_path(request.path)
        if not isinstance(request, AlterTable):
            _check_range(request.first_tablet, request.last_tablet)
        try:
            if patience is None:
                yield from self._context.ask_master(request, Table)
            else:
                yield from self._context.ask_master_patiently(request, Table, patience)
        finally:
            self._context.routing.forget(request.path)

    def _bring(
        self,
        request: MountTable | UnmountTable | FreezeTable | UnfreezeTable,
        state: str,
        timeout_ms: int,
    ) -> Protocol[None]:
        """Ask the master for the change, and wait until the tablets concerned have the state."""
        context, path = self._context, request.path
        patience = context.polling(timeout_ms)
        yield from self._change_mounting(request, patience)
        first = request.first_tablet or 0
        end = None if request.last_tablet is None else request.last_tablet + 1
        began_us = context.instant_us()
        late: Callable[[int], Unavailable] | None = None
        while True:
            try:
                table = yield from context.ask_master_patiently(GetTable(path), Table, patience)
            except Unavailable as error:
                if late is not None and "timeout_ms" in error.attributes:
                    raise late(context.instant_us() - began_us) from error
                raise
            context.routing.learn(table)
            waiting = [it for it in table.tablets[first:end] if it.state != state]
            if not waiting:
                return
            late = partial(_late, table, waiting, state)
            if not (yield from has_time(patience)):
                raise late(context.instant_us() - began_us)


def _late(table: Table, waiting: Sequence[Tablet], state: str, waited_us: int) -> Unavailable:
    """Return the error for a wait that took too long. It names the cell of the first tablet that is
    late, if the tablet has one."""
    waited_ms = round(waited_us / 1000)
    text = f"{len(waiting)} tablets of {table.path} are not {state} after {shown(waited_ms)} ms"
    states = {int(it.tablet): it.state for it in waiting[:TABLETS_NAMED_MAX]}
    cell = waiting[0].cell
    if cell is None:
        return Unavailable(text, table=table.path, tablets=states)
    address = table.addresses.get(cell)
    named: dict[str, Any] = {"cell": int(cell)}
    if address is None:
        text = f"{text}: the master waits for cell {cell}"
    else:
        text = f"{text}: the master waits for cell {cell} at {address}"
        named["address"] = address
    return Unavailable(text, table=table.path, tablets=states, **named)


def _check_range(first: int | None, last: int | None) -> None:
    """Check a range of tablet indexes. The master knows how many tablets there are. Raises
    InvalidRequest."""
    for name, index in (("first_tablet_index", first), ("last_tablet_index", last)):
        if index is not None:
            check_number(index, name, 0)
    if first is not None and last is not None and first > last:
        raise InvalidRequest(
            "The first tablet comes after the last. Pass a range that is not empty.",
            first=first,
            last=last,
        )
