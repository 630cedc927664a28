"""The bodies of the gateway's REST answers: one struct for each. Pure.

Owns: the names and types of all fields, of which the OpenAPI document is made.
"""

from typing import Any, Literal

import msgspec

from dodona._core.catalog.tables import TableInfo
from dodona._core.reading.versions import VersionedRow
from dodona_gateway.core.requests import Row, Values
from dodona_wire.types import Atomicity, CellId, Revision, TableSettings, TabletId, Timestamp


class Answer(msgspec.Struct, frozen=True):
    """The base of all answers."""


class RowsAnswer(Answer, frozen=True):
    """The base of answers with a table's rows. Their length is limited when they are sent."""


class Timestamps(Answer, frozen=True):
    """The timestamps from `first` to `first + count - 1` are yours."""

    first: Timestamp
    count: int


class AcquiredLease(Answer, frozen=True):
    """The named lease is yours. Send it as a prerequisite, and with `renew` and `release`."""

    table: str
    name: str
    owner: str
    epoch: int


class Done(Answer, frozen=True, omit_defaults=True):
    """The call is done. `warnings` name the attributes that have no effect, if there are any."""

    warnings: list[str] = []


class TabletView(Answer, frozen=True):
    """One tablet. Its range goes from its pivot key to the pivot key of the next tablet."""

    tablet: TabletId
    pivot_key: Values
    state: str
    cell: CellId | None
    revision: Revision


class TableView(Answer, frozen=True, omit_defaults=True):
    """A table, as the master knew it at one time. `warnings` name the attributes of the new table
    that have no effect, if there are any."""

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
    """An attribute, the content of a directory, or whether a node exists."""

    value: Any


class CellView(Answer, frozen=True):
    """One cell, and the node that hosts it."""

    cell: CellId
    address: str
    is_alive: bool
    tablet_count: int


class ClusterView(Answer, frozen=True):
    """The proxies and cells that the master hears from."""

    proxies: list[str]
    cells: list[CellView]


class ReplicaView(Answer, frozen=True):
    """One log replica, as the owner of a log knows it. Its role is `member` (its copy counts),
    `learner` (it is being copied to), `spare`, or `unknown` (then `reason` says why)."""

    address: str
    replica: str
    role: str
    lag_entries: int
    lag_ms: int
    silent_ms: int
    reason: str


class LogView(Answer, frozen=True):
    """The copies of one cell's log. `text` says the same in one line, for people."""

    cell: CellId
    owner: str
    epoch: int
    is_serving: bool
    text: str
    copies_wanted: int
    copies_min: int
    coordinator_silent_ms: int
    replicas: list[ReplicaView]


class ClusterCopies(Answer, frozen=True):
    """The copies of all logs that have copies, and the cells that did not answer."""

    logs: list[LogView]
    silent_cells: list[CellId]


class Written(Answer, frozen=True):
    """`timestamp` is the commit timestamp; null if there was nothing to write."""

    timestamp: Timestamp | None


class FoundRows(RowsAnswer, frozen=True):
    """Rows, in the order of the keys."""

    rows: list[Row | None]


class SelectedRows(RowsAnswer, frozen=True):
    """Rows in key order, as of `timestamp` (null without atomicity). If `next` is not null, there
    are more rows."""

    rows: list[Row | None]
    next: Values | None
    timestamp: Timestamp | None


class FoundVersions(RowsAnswer, frozen=True):
    """Histories, in the order of the keys. All lists in a history begin with the newest."""

    rows: list[VersionedRow | None]


class QueryResult(Answer, frozen=True):
    """The rows of a query. Each row is a list of values, in the order of `columns`."""

    columns: list[str]
    types: list[str]
    rows: list[Values]


class Begun(Answer, frozen=True, omit_defaults=True):
    """A transaction. Send all of its requests to `gateway`, the address of the gateway that holds
    it. `locked_rows` are the keys of the rows that were locked before it began, by table."""

    transaction: str
    start_timestamp: Timestamp | None
    lease_ms: int
    gateway: str
    locked_rows: dict[str, list[Row]] = {}


class Buffered(Answer, frozen=True):
    """How much a transaction has buffered so far."""

    row_count: int
    size_bytes: int


class Outcome(Answer, frozen=True):
    """The state of a transaction. `timestamp` is its commit timestamp."""

    state: Literal["active", "committing", "committed", "aborted", "pending", "unknown"]
    timestamp: Timestamp | None = None


class BulkWritten(Answer, frozen=True):
    """`timestamp` is the commit timestamp, null without atomicity. `is_skipped` means that this
    version was written before."""

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
    """A new token. `token` is its text. Send it as `Authorization: Bearer <token>`."""

    token: str
    about: TokenView


class TokenList(Answer, frozen=True):
    """All tokens."""

    tokens: list[TokenView]


def view_table(table: TableInfo) -> TableView:
    """Return a table as REST shows it."""
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
