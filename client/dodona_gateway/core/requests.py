"""The bodies of REST requests, in a user's words: one struct for each. Pure.

Owns: the names, types and defaults of all fields, of which the OpenAPI document is made. Rows and
keys are objects from column name to value. Timestamps are whole numbers of 64 bits.
"""

from typing import Annotated, Any, Final

import msgspec

from dodona._core.catalog.catalog import MOUNT_TIMEOUT_MS
from dodona._core.named_leases import LEASE_MS_MAX as NAMED_LEASE_MS_MAX
from dodona._core.writing.early_locks import ROWS_MAX, WAIT_MS_MAX
from dodona._core.writing.lease import EPOCH_MAX
from dodona_gateway.core.holdings import LEASE_MS, LEASE_MS_MAX
from dodona_wire.errors import InvalidRequest
from dodona_wire.rows.json_text import decode_json
from dodona_wire.rows.text_format import unmarked
from dodona_wire.types import (
    NULL_TIMESTAMP,
    SYNC_LAST_COMMITTED,
    TIMESTAMPS_PER_REQUEST_MAX,
    Atomicity,
    Durability,
    Isolation,
    LoadMode,
    LockType,
    Timestamp,
)

SELECT_ROWS: Final = 10_000
"""The number of rows that a select returns, unless the request has a limit."""
SELECT_ROWS_MAX: Final = 100_000

Row = dict[str, Any]
Values = list[Any]
Count = Annotated[int, msgspec.Meta(ge=1, le=TIMESTAMPS_PER_REQUEST_MAX)]
Index = Annotated[int, msgspec.Meta(ge=0)]
Wait = Annotated[int, msgspec.Meta(ge=1, le=600_000)]
Lease = Annotated[int, msgspec.Meta(ge=1, le=LEASE_MS_MAX)]
LeaseMs = Annotated[int, msgspec.Meta(ge=1, le=NAMED_LEASE_MS_MAX)]
Epoch = Annotated[int, msgspec.Meta(ge=1, le=EPOCH_MAX)]
LineWait = Annotated[int, msgspec.Meta(ge=1, le=WAIT_MS_MAX)]
FreeRows = Annotated[int, msgspec.Meta(ge=1, le=ROWS_MAX)]
Limit = Annotated[int, msgspec.Meta(ge=1, le=SELECT_ROWS_MAX)]


class Body(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The base of all bodies. An unknown field is refused."""


class Timed(Body, frozen=True, kw_only=True):
    """The base of calls that may have a timeout. When the time is over, the answer is Unavailable,
    or CommitOutcomeUnknown if a commit was sent. A change of the catalog may still come about."""

    timeout_ms: Wait | None = None


class GenerateTimestamps(Timed, frozen=True):
    """Generate `count` consecutive timestamps."""

    count: Count = 1


# Tables and the tree


class CreateTable(Timed, frozen=True):
    """Create a table. `pivot_keys` or `tablet_count` says how it is divided into tablets. With
    `mount` the answer waits until the table is mounted."""

    path: str
    schema: list[Row]
    atomicity: Atomicity = "full"
    pivot_keys: list[Values] | None = None
    tablet_count: int | None = None
    mount: bool = False
    attributes: Row = {}


class ChangeTable(Body, frozen=True):
    """Change tablets of a table, from the first to the last index; all tablets if no index is
    given. The answer comes when they have the new state, or after `timeout_ms`."""

    path: str
    first_tablet_index: Index | None = None
    last_tablet_index: Index | None = None
    timeout_ms: Wait = MOUNT_TIMEOUT_MS


class MountTable(ChangeTable, frozen=True):
    """Mount tablets as `ChangeTable` says. With `freeze` they can be read but not written."""

    freeze: bool = False


class ReshardTable(Timed, frozen=True):
    """Divide an unmounted table into other tablets."""

    path: str
    pivot_keys: list[Values] | None = None
    tablet_count: int | None = None
    first_tablet_index: Index | None = None
    last_tablet_index: Index | None = None


class AlterTable(Timed, frozen=True):
    """Give an unmounted table another schema."""

    path: str
    schema: list[Row]


class CreateDirectory(Timed, frozen=True):
    """Create a directory."""

    path: str
    attributes: Row = {}
    recursive: bool = False
    ignore_existing: bool = False


class SetNode(Timed, frozen=True):
    """Set the attribute `//name/@attribute`, or with `//name/@` all attributes."""

    path: str
    value: Any


class MoveNode(Timed, frozen=True):
    """Move or copy a node from one path to another."""

    source: str
    destination: str
    recursive: bool = False


class Path(Timed, frozen=True):
    """One path."""

    path: str


class Prefix(Timed, frozen=True):
    """The beginning of the paths to list."""

    prefix: str = "//"


class RemoveNode(Timed, frozen=True):
    """Remove a node. With `recursive`, all nodes in a directory are removed with it. With `force`,
    the node may be missing."""

    path: str
    recursive: bool = False
    force: bool = False


class GetCluster(Timed, frozen=True):
    """Get the cluster. The request may have a timeout, or no field."""


class Nothing(Body, frozen=True):
    """A body without fields."""


# Rows


class InsertRows(Timed, frozen=True):
    """Insert rows. With `update`, columns that a row lacks keep their values. With `aggregate`,
    values of aggregate columns are changes. The call fails if a row exists (`if_absent`), has
    another version (`if_version`) or other values (`expect`)."""

    table: str
    rows: list[Row]
    update: bool = False
    aggregate: bool = False
    durability: Durability = "sync"
    if_absent: bool = False
    if_version: Timestamp | None = None
    expect: Row | None = None


class DeleteRows(Timed, frozen=True):
    """Delete the rows of these keys. `if_version` and `expect` are as in `InsertRows`."""

    table: str
    keys: list[Row]
    durability: Durability = "sync"
    if_version: Timestamp | None = None
    expect: Row | None = None


class LookupRows(Timed, frozen=True):
    """Look up rows. Missing rows are left out, or null with `keep_missing`."""

    table: str
    keys: list[Row]
    columns: list[str] | None = None
    keep_missing: bool = False
    timestamp: Timestamp = SYNC_LAST_COMMITTED
    retention_timestamp: Timestamp = NULL_TIMESTAMP


class LookupVersions(Timed, frozen=True):
    """Look up all versions of the rows of these keys, up to a timestamp. `since` and `below` leave
    only the versions with since < timestamp < below. `limit` leaves only the newest versions of
    each row. The next page of a row is below its `more_below`."""

    table: str
    keys: list[Row]
    columns: list[str] | None = None
    keep_missing: bool = False
    timestamp: Timestamp = SYNC_LAST_COMMITTED
    since: Timestamp = NULL_TIMESTAMP
    below: Timestamp | None = None
    limit: Limit | None = None


class SelectRows(Timed, frozen=True):
    """Select the first `limit` rows with lower ≤ key < upper. Both bounds are values of leading key
    columns. To read on, use the answer's `next` as the next `lower`, at the answer's
    `timestamp`."""

    table: str
    lower: Values | None = None
    upper: Values | None = None
    columns: list[str] | None = None
    limit: Limit = SELECT_ROWS
    timestamp: Timestamp = SYNC_LAST_COMMITTED
    retention_timestamp: Timestamp = NULL_TIMESTAMP


class Query(Timed, frozen=True):
    """Run DuckDB's SQL over tables named as `[//path]`, all at one timestamp. `parameters` has the
    values for `$name` in an object, or for `?` in a list."""

    sql: str
    timestamp: Timestamp = SYNC_LAST_COMMITTED
    retention_timestamp: Timestamp = NULL_TIMESTAMP
    parameters: Row | Values | None = None


# Transactions


class HeldLease(Body, frozen=True):
    """A named lease that was acquired: the answer to `acquire_lease`."""

    table: str
    name: str
    owner: str
    epoch: Epoch


class BeginTransaction(Timed, frozen=True):
    """Begin a transaction that the gateway holds. The gateway aborts it if no call for it comes for
    `lease_ms`. With full atomicity it lives 60 s at most. Its commit fails unless each named lease
    in `prerequisites` still has this owner and this epoch. `locks` are the keys of rows, by table.
    They are locked before the transaction begins, for 10 s at most. The call waits for them up to
    `wait_ms` (10 s by default), or not at all with `nowait`. With `skip_locked`, it locks at most
    so many of them, those that are free now. With the `isolation` `"serializable"`, the commit of a
    transaction that writes is refused if another one has changed what it read. Without it, the
    settings of each table decide. With a `timestamp`, it only reads, as of this timestamp, and may
    live for longer."""

    atomicity: Atomicity = "full"
    durability: Durability = "sync"
    read_own_writes: bool = False
    lease_ms: Lease = LEASE_MS
    prerequisites: list[HeldLease] = []
    locks: dict[str, list[Row]] | None = None
    wait_ms: LineWait | None = None
    nowait: bool = False
    skip_locked: FreeRows | None = None
    isolation: Isolation | None = None
    timestamp: Timestamp | None = None


class InsertInTransaction(Timed, frozen=True):
    """Insert rows as `InsertRows` does, at the transaction's commit."""

    table: str
    rows: list[Row]
    update: bool = False
    aggregate: bool = False
    lock_type: LockType = "exclusive"
    if_absent: bool = False
    if_version: Timestamp | None = None
    expect: Row | None = None


class DeleteInTransaction(Timed, frozen=True):
    """Delete rows as `DeleteRows` does, at the transaction's commit."""

    table: str
    keys: list[Row]
    if_version: Timestamp | None = None
    expect: Row | None = None


class LockRows(Timed, frozen=True):
    """Lock the named lock groups of rows; the main lock if none is named."""

    table: str
    keys: list[Row]
    locks: list[str] | None = None
    lock_type: LockType = "shared_strong"


class LookupInTransaction(Timed, frozen=True):
    """Look up rows as `LookupRows` does, at the transaction's start timestamp."""

    table: str
    keys: list[Row]
    columns: list[str] | None = None
    keep_missing: bool = False


class LookupVersionsInTransaction(Timed, frozen=True):
    """Look up versions as `LookupVersions` does, up to the transaction's start timestamp."""

    table: str
    keys: list[Row]
    columns: list[str] | None = None
    keep_missing: bool = False
    since: Timestamp = NULL_TIMESTAMP
    below: Timestamp | None = None
    limit: Limit | None = None


class SelectInTransaction(Timed, frozen=True):
    """Select rows as `SelectRows` does, at the transaction's start timestamp."""

    table: str
    lower: Values | None = None
    upper: Values | None = None
    columns: list[str] | None = None
    limit: Limit = SELECT_ROWS


class QueryInTransaction(Timed, frozen=True):
    """Run a query as `Query` does, at the transaction's start timestamp."""

    sql: str
    parameters: Row | Values | None = None


class CommitTransaction(Timed, frozen=True):
    """Commit a transaction. The body may have a timeout, or no field."""


class FindOutcome(Timed, frozen=True):
    """Find the outcome of a transaction. With `settle` it is decided now: if it is not committed
    yet, it never will be."""

    settle: bool = False


# Named leases


class CreateLeaseTable(Timed, frozen=True):
    """Create a table for named leases, and mount it. A table of leases may exist already."""

    table: str


class AcquireLease(Timed, frozen=True):
    """Acquire a named lease that is new, released or expired. No other owner can acquire it for
    `lease_ms`."""

    table: str
    name: str
    owner: str
    lease_ms: LeaseMs = LEASE_MS


class RenewLease(Timed, frozen=True):
    """Let a named lease expire `lease_ms` from now."""

    table: str
    name: str
    owner: str
    epoch: Epoch
    lease_ms: LeaseMs = LEASE_MS


class ReleaseLease(Timed, frozen=True):
    """Release a named lease, so that another owner can acquire it."""

    table: str
    name: str
    owner: str
    epoch: Epoch


# Bulk


class BulkWrite(Timed, frozen=True):
    """Write rows in bulk. `mode` says what the load requires of rows that exist already. A mode
    other than `upsert`, `application` and `version` need a table with atomicity. A version that was
    written before is not written again."""

    table: str
    mode: LoadMode = "upsert"
    durability: Durability = "sync"
    application: str | None = None
    version: Index | None = None


class BulkRead(Timed, frozen=True):
    """Read a table in bulk, or its rows of lower ≤ key < upper (lists in JSON). They are as of
    `timestamp`, which is a fresh one by default. `columns` are names with commas between."""

    table: str
    lower: str | None = None
    upper: str | None = None
    columns: str | None = None
    timestamp: Timestamp | None = None


def parse_bound(name: str, text: str | None) -> Values | None:
    """Parse the leading values of a key from JSON. Raises InvalidRequest."""
    if text is None:
        return None
    try:
        return msgspec.convert(unmarked(decode_json(text), name), Values)
    except (msgspec.DecodeError, RecursionError) as error:
        raise InvalidRequest(
            f"{name} must be a list of key column values in JSON: {error}"
        ) from error


# Tokens


class CreateToken(Body, frozen=True):
    """Create a token with grants such as `write://home/bank/**`. It expires after `expires_s`
    seconds, or never."""

    name: str
    grants: list[str]
    expires_s: Annotated[int, msgspec.Meta(ge=1, le=10_000_000_000)] | None = None


class RevokeToken(Body, frozen=True):
    """Revoke a token, by its id."""

    id: str
