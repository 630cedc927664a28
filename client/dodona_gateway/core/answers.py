"""What the gateway answers over REST: one struct for each body. Pure.

Owns: the names and types of all fields, of which the OpenAPI document is made.
"""

from typing import Any, Literal

import msgspec

from dodona._core.catalog.tables import TableInfo
from dodona._core.reading.versions import VersionedRow
from dodona_gateway.core.requests import Row, Values
from dodona_wire.types import Atomicity, CellId, Revision, TableSettings, TabletId, Timestamp


class Answer(msgspec.Struct, frozen=True):
    """Base of all."""


class RowsAnswer(Answer, frozen=True):
    """Base of those with a table's rows, which may be long: they are bounded as they are sent."""


class Timestamps(Answer, frozen=True):
    """`first` to `first + count - 1` are yours."""

    first: Timestamp
    count: int


class Done(Answer, frozen=True, omit_defaults=True):
    """It is done. `warnings` say what of it is of no use, if anything is."""

    warnings: list[str] = []


class TabletView(Answer, frozen=True):
    """One tablet: it goes from its pivot key to the next one's."""

    tablet: TabletId
    pivot_key: Values
    state: str
    cell: CellId | None
    revision: Revision


class TableView(Answer, frozen=True, omit_defaults=True):
    """A table, as the master knew it at one moment. `warnings` say which of the attributes that it
    was made with are of no use, if any are."""

    path: str
    schema: list[Row]
    atomicity: Atomicity
    tablets: list[TabletView]
    settings: TableSettings
    is_mounted: bool
    warnings: list[str] = []


class Paths(Answer, frozen=True):
    """Paths of tables, in order."""

    paths: list[str]


class Names(Answer, frozen=True):
    """Names in a directory, in order."""

    names: list[str]


class Value(Answer, frozen=True):
    """An attribute, or what is in a directory."""

    value: Any


class CellView(Answer, frozen=True):
    """One cell, and the node that it is in."""

    cell: CellId
    address: str
    is_alive: bool
    tablet_count: int


class ClusterView(Answer, frozen=True):
    """The proxies and cells that the master hears from."""

    proxies: list[str]
    cells: list[CellView]


class Written(Answer, frozen=True):
    """`timestamp` is that of the commit; null if there was nothing to write."""

    timestamp: Timestamp | None


class FoundRows(RowsAnswer, frozen=True):
    """Rows, in the order of the keys."""

    rows: list[Row | None]


class SelectedRows(RowsAnswer, frozen=True):
    """Rows in key order, as of `timestamp` (null without atomicity). There are more if `next` is
    not null."""

    rows: list[Row | None]
    next: Values | None
    timestamp: Timestamp | None


class FoundVersions(RowsAnswer, frozen=True):
    """Histories, in the order of the keys; everything in them newest first."""

    rows: list[VersionedRow | None]


class QueryResult(Answer, frozen=True):
    """The rows of a query: a list of values each, in the order of `columns`."""

    columns: list[str]
    types: list[str]
    rows: list[Values]


class Begun(Answer, frozen=True):
    """A transaction. All of its requests go to `gateway`, the address of the one that holds it."""

    transaction: str
    start_timestamp: Timestamp | None
    lease_ms: int
    gateway: str


class Buffered(Answer, frozen=True):
    """How much a transaction holds by now."""

    row_count: int
    size_bytes: int


class Outcome(Answer, frozen=True):
    """What became of a transaction. `timestamp` is that of its commit."""

    state: Literal["active", "committing", "committed", "aborted", "pending", "unknown"]
    timestamp: Timestamp | None = None


class BulkWritten(Answer, frozen=True):
    """`timestamp` is that of the commit, null without atomicity. `is_skipped`: this version had
    been written before."""

    row_count: int
    timestamp: Timestamp | None
    is_skipped: bool = False


class StreamedRows(Answer, frozen=True):
    """Rows as a stream: record batches, or one row after the other."""


class TokenView(Answer, frozen=True):
    """A token, without its secret. Times are in Unix microseconds."""

    id: str
    name: str
    grants: list[str]
    state: Literal["valid", "expired", "revoked"]
    created_us: int
    expires_us: int | None
    revoked_us: int | None


class MadeToken(Answer, frozen=True):
    """A new token. `token` is its text, to be sent as `Authorization: Bearer <token>`."""

    token: str
    about: TokenView


class TokenList(Answer, frozen=True):
    """All tokens."""

    tokens: list[TokenView]


def view_table(table: TableInfo) -> TableView:
    """A table as REST shows it."""
    return TableView(
        table.path,
        [msgspec.to_builtins(it) for it in table.schema.columns],
        table.atomicity,
        [
            TabletView(it.tablet, list(it.pivot_key), it.state, it.cell, it.revision)
            for it in table.tablets
        ],
        table.settings,
        table.is_mounted,
    )
