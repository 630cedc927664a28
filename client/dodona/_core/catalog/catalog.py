"""Tables as a whole: mounting, freezing, resharding, altering, listing them. Pure.

Owns: the calls that there are outside master transactions only, and the waits for tablets to be in
the state that was asked for. Whatever changes a table has its route forgotten, also where it
failed: the reply may have been lost.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Final

from dodona._core.catalog.tables import pivots_of
from dodona._core.catalog.tree import TreeSession
from dodona._core.protocol.arguments import check_flag, check_number, check_path, check_text
from dodona._core.protocol.context import has_time
from dodona._core.protocol.retry import Patience
from dodona._core.protocol.routing import FROZEN, MOUNTED, UNMOUNTED
from dodona._core.protocol.steps import Protocol
from dodona_wire.errors import InvalidRequest, Unavailable
from dodona_wire.messages.catalog import (
    AlterTable,
    Cluster,
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
from dodona_wire.types import Atomicity

MOUNT_TIMEOUT_MS: Final = 30_000
TABLETS_NAMED_MAX: Final = 100
"""In an error, of those that are not in the state that was asked for."""


class CatalogSession(TreeSession):
    """The calls of the tree, under no master transaction, and the life of tables."""

    def create_table(
        self,
        path: str,
        schema: Iterable[Column | Mapping[str, Any]] | TableSchema,
        atomicity: Atomicity = "full",
        pivot_keys: Sequence[Sequence[Any]] | None = None,
        tablet_count: int | None = None,
        mount: bool = False,
        attributes: Mapping[str, Any] | None = None,
    ) -> Protocol[None]:
        """As `TreeSession.create_table`, and with `mount` as `mount_table` after that."""
        check_flag(mount, "mount")
        yield from super().create_table(
            path, schema, atomicity, pivot_keys, tablet_count, False, attributes
        )
        if mount:
            yield from self.mount_table(path)

    def mount_table(
        self,
        path: str,
        freeze: bool = False,
        first_tablet_index: int | None = None,
        last_tablet_index: int | None = None,
        timeout_ms: int = MOUNT_TIMEOUT_MS,
    ) -> Protocol[None]:
        """Raises TableNotFound, InvalidTabletState, Unavailable."""
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
        """Raises TableNotFound, InvalidTabletState, Unavailable."""
        request = UnmountTable(path, first_tablet_index, last_tablet_index)
        yield from self._bring(request, UNMOUNTED, timeout_ms)

    def freeze_table(
        self,
        path: str,
        first_tablet_index: int | None = None,
        last_tablet_index: int | None = None,
        timeout_ms: int = MOUNT_TIMEOUT_MS,
    ) -> Protocol[None]:
        """Raises TableNotFound, InvalidTabletState, Unavailable."""
        request = FreezeTable(path, first_tablet_index, last_tablet_index)
        yield from self._bring(request, FROZEN, timeout_ms)

    def unfreeze_table(
        self,
        path: str,
        first_tablet_index: int | None = None,
        last_tablet_index: int | None = None,
        timeout_ms: int = MOUNT_TIMEOUT_MS,
    ) -> Protocol[None]:
        """Raises TableNotFound, InvalidTabletState, Unavailable."""
        request = UnfreezeTable(path, first_tablet_index, last_tablet_index)
        yield from self._bring(request, MOUNTED, timeout_ms)

    def remount_table(
        self,
        path: str,
        first_tablet_index: int | None = None,
        last_tablet_index: int | None = None,
        timeout_ms: int = MOUNT_TIMEOUT_MS,
    ) -> Protocol[None]:
        """Raises TableNotFound, InvalidTabletState, Unavailable."""
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
        """Raises TableNotFound, InvalidTabletState, SchemaViolation, InvalidRequest."""
        first, last = first_tablet_index, last_tablet_index
        if pivot_keys is None and tablet_count is None:
            raise InvalidRequest("give pivot_keys or tablet_count")
        if tablet_count is not None and not first is last is None:
            raise InvalidRequest(
                "tablet_count cuts a whole table: give pivot_keys for a part of it"
            )
        table = yield from self._get(path)  # its schema may have changed since it was last used
        pivots = pivots_of(TableSchema(table.columns), pivot_keys, tablet_count)
        yield from self._change_mounting(ReshardTable(path, pivots, first, last), None)

    def alter_table(
        self, path: str, schema: Iterable[Column | Mapping[str, Any]] | TableSchema
    ) -> Protocol[None]:
        """Raises TableNotFound, InvalidTabletState, SchemaViolation."""
        check_path(path)
        parsed = TableSchema.parse(schema)
        yield from self._change_mounting(AlterTable(path, parsed.columns), None)

    def begin_change(self, request: TableLifeRequest) -> Protocol[None]:
        """Ask for it, and wait for no tablet. Raises TableNotFound, InvalidTabletState."""
        yield from self._change_mounting(request, self._context.patience())

    def list_tables(self, prefix: str = "//") -> Protocol[list[str]]:
        """Paths that begin with `prefix`, in order."""
        listed = yield from self._ask_patiently(ListTables(check_text(prefix, "prefix")), TableList)
        return list(listed.paths)

    def get_cluster(self, timeout_ms: int | None = None) -> Protocol[Cluster]:
        """The proxies and cells that the master hears from. `timeout_ms` is how long to wait for a
        master that is away."""
        context = self._context
        patience = context.patience() if timeout_ms is None else context.polling(timeout_ms)
        cluster = yield from context.ask_master_patiently(GetCluster(), Cluster, patience)
        context.routing.learn_cells(cluster)
        return cluster

    # ---- waiting

    def _change_mounting(
        self, request: TableLifeRequest, patience: Patience | None
    ) -> Protocol[None]:
        """Ask for it: again while the master is away if there is `patience` for that, that is if a
        repetition changes nothing more."""
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
        """Ask for it, and wait until the tablets concerned are in that state."""
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
    """Names the cell of the first tablet that is waited for, if it has one."""
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
    """The master knows how many tablets there are. Raises InvalidRequest."""
    for name, index in (("first_tablet_index", first), ("last_tablet_index", last)):
        if index is not None:
            check_number(index, name, 0)
    if first is not None and last is not None and first > last:
        raise InvalidRequest("the first tablet comes after the last", first=first, last=last)
