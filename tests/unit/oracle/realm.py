"""A catalog with its store and its clock, for the tests of the catalog."""

from collections.abc import Iterable
from typing import Any

from dodona.keys import encode_key
from dodona.schema import Column
from dodona.types import KEY_MIN, CellId, ClusterId, Key, Now, Revision, TabletId
from dodona_oracle.core.catalog import Catalog
from dodona_oracle.core.records import (
    CLUSTER,
    COUNTERS,
    LAST_REVISION,
    ORACLE,
    Item,
    MasterState,
    Put,
    Record,
    changes_of,
    decode_number,
    encode_number,
    state_from_items,
)
from dodona_wire.messages.catalog import (
    Assignment,
    CatalogReply,
    CatalogRequest,
    CreateTable,
    GetTable,
    Heartbeat,
    MountedTablet,
)

COLUMNS = (
    Column("k", "int64", sort_order="ascending"),
    Column("name", "utf8", sort_order="ascending"),
    Column("v", "any"),
)


def pivot(*values: Any) -> Key:
    return encode_key(values, ["int64", "utf8"])


def create(path: str = "//bank/accounts", tablet_count: int = 1) -> CreateTable:
    pivots = (KEY_MIN, *(pivot(index) for index in range(1, tablet_count)))
    return CreateTable(path, COLUMNS, "full", pivots)


class Realm:
    """A catalog, its store, and a clock that stands still unless told otherwise."""

    def __init__(self) -> None:
        self.values: dict[tuple[str, bytes], bytes] = {}
        self.instant_us = 0
        self.records: list[Record] = []
        self.unix_us = 0
        self.catalog = Catalog(state_from_items([]), self.append, self.now())
        self.cluster = ClusterId(decode_number(self.values[ORACLE, CLUSTER]))
        self.records.clear()

    def now(self) -> Now:
        return Now(self.instant_us, self.unix_us)

    def append(self, record: Record) -> None:
        self.records.append(record)
        for change in changes_of(record):
            if isinstance(change, Put):
                self.values[change.bucket, change.key] = change.value
            else:
                self.values.pop((change.bucket, change.key), None)

    def state(self) -> MasterState:
        """What is stored."""
        items: list[Item] = [(*name, value) for name, value in self.values.items()]
        return state_from_items(items)

    def restart(self) -> None:
        self.catalog = Catalog(self.state(), self.append, self.now())

    def as_it_was(self) -> "Realm":
        """Another one, over a copy of what is stored now: a backup, or a process that was
        replaced."""
        other = Realm()
        other.values, other.cluster = dict(self.values), self.cluster
        other.instant_us, other.unix_us = self.instant_us, self.unix_us
        other.restart()
        return other

    def ask(self, request: CatalogRequest) -> Any:
        reply: CatalogReply = self.catalog.handle(request, self.now())
        return reply

    def beat(
        self,
        cell: int,
        *mounted: MountedTablet,
        port: int = 9000,
        revision: Revision | None = None,
        stored: Iterable[int] = (),
        epoch: int = 0,
    ) -> Assignment:
        """The cell has taken all that was commanded, unless `revision` says otherwise."""
        address = f"http://127.0.0.1:{port + cell}"
        revision = self.catalog_revision() if revision is None else revision
        kept = tuple(map(TabletId, stored))
        beat = Heartbeat(
            CellId(cell), address, mounted, 7, revision, self.cluster, kept, epoch=epoch
        )
        reply = self.ask(beat)
        assert isinstance(reply, Assignment)
        return reply

    def catalog_revision(self) -> Revision:
        """The last that was given out."""
        stored = self.values.get((COUNTERS, LAST_REVISION), encode_number(0))
        return Revision(decode_number(stored))

    def serve(self, cell: int) -> Assignment:
        """The cell takes up its assignment and says so."""
        tablets = self.beat(cell).tablets
        return self.beat(cell, *(MountedTablet(each.tablet, each.revision) for each in tablets))

    def states(self, path: str = "//bank/accounts") -> list[str]:
        return [tablet.state for tablet in self.ask(GetTable(path)).tablets]

    def cells(self, path: str = "//bank/accounts") -> list[int | None]:
        return [tablet.cell for tablet in self.ask(GetTable(path)).tablets]
