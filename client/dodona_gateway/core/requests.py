"""What the gateway is asked over REST, in a user's words: one struct for each body. Pure.

Owns: the names, types and defaults of all fields, of which the OpenAPI document is made. Rows and
keys are objects from column name to value; timestamps are whole numbers of 64 bits.
"""

from typing import Annotated, Any, Final

import msgspec

from dodona._core.catalog.catalog import MOUNT_TIMEOUT_MS
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
    LoadMode,
    LockType,
    Timestamp,
)

SELECT_ROWS: Final = 10_000
"""How many rows a select gives, unless it says how many."""
SELECT_ROWS_MAX: Final = 100_000

Row = dict[str, Any]
Values = list[Any]
Count = Annotated[int, msgspec.Meta(ge=1, le=TIMESTAMPS_PER_REQUEST_MAX)]
Index = Annotated[int, msgspec.Meta(ge=0)]
Wait = Annotated[int, msgspec.Meta(ge=1, le=600_000)]
Lease = Annotated[int, msgspec.Meta(ge=1, le=LEASE_MS_MAX)]
Limit = Annotated[int, msgspec.Meta(ge=1, le=SELECT_ROWS_MAX)]


class Body(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Base of all: a field that is not known is refused."""


class Timed(Body, frozen=True, kw_only=True):
    """Base of calls whose time a caller may bound. When it is up they are answered with
    Unavailable, or CommitOutcomeUnknown if a commit was sent."""

    timeout_ms: Wait | None = None


class GenerateTimestamps(Timed, frozen=True):
    """So many timestamps in a row."""

    count: Count = 1


# Tables and the tree


class CreateTable(Body, frozen=True):
    """A table. `pivot_keys` or `tablet_count` say how it is cut into tablets; with `mount` the
    answer waits until it is served."""

    path: str
    schema: list[Row]
    atomicity: Atomicity = "full"
    pivot_keys: list[Values] | None = None
    tablet_count: int | None = None
    mount: bool = False
    attributes: Row = {}


class ChangeTable(Body, frozen=True):
    """Which tablets of a table, from the first to the last, by place; all unless given. The answer
    comes once they are in the state that was asked for, or after `timeout_ms`."""

    path: str
    first_tablet_index: Index | None = None
    last_tablet_index: Index | None = None
    timeout_ms: Wait = MOUNT_TIMEOUT_MS


class MountTable(ChangeTable, frozen=True):
    """As `ChangeTable`; with `freeze` they can be read and not written."""

    freeze: bool = False


class ReshardTable(Body, frozen=True):
    """Cut an unmounted table anew."""

    path: str
    pivot_keys: list[Values] | None = None
    tablet_count: int | None = None
    first_tablet_index: Index | None = None
    last_tablet_index: Index | None = None


class AlterTable(Body, frozen=True):
    """Another schema for an unmounted table."""

    path: str
    schema: list[Row]


class CreateDirectory(Body, frozen=True):
    """A directory."""

    path: str
    attributes: Row = {}
    recursive: bool = False
    ignore_existing: bool = False


class SetNode(Body, frozen=True):
    """An attribute, `//name/@attribute`, or with `//name/@` all."""

    path: str
    value: Any


class MoveNode(Body, frozen=True):
    """From one path to another; also for copies."""

    source: str
    destination: str
    recursive: bool = False


class Path(Body, frozen=True):
    """One path."""

    path: str


class Prefix(Body, frozen=True):
    """The beginning of paths."""

    prefix: str = "//"


class RemoveNode(Body, frozen=True):
    """With `recursive` all that is in a directory goes along, with `force` nothing may be there."""

    path: str
    recursive: bool = False
    force: bool = False


class Nothing(Body, frozen=True):
    """No field."""


# Rows


class InsertRows(Timed, frozen=True):
    """With `update` columns that a row lacks keep their values, with `aggregate` values of
    aggregate columns are changes."""

    table: str
    rows: list[Row]
    update: bool = False
    aggregate: bool = False
    durability: Durability = "sync"


class DeleteRows(Timed, frozen=True):
    """The rows of these keys."""

    table: str
    keys: list[Row]
    durability: Durability = "sync"


class LookupRows(Timed, frozen=True):
    """Rows that are not there are left out, or null with `keep_missing`."""

    table: str
    keys: list[Row]
    columns: list[str] | None = None
    keep_missing: bool = False
    timestamp: Timestamp = SYNC_LAST_COMMITTED
    retention_timestamp: Timestamp = NULL_TIMESTAMP


class LookupVersions(Timed, frozen=True):
    """All versions of the rows of these keys, up to a timestamp; or of each the newest `limit` of
    since < timestamp < below. The next page is below the row's `more_below`."""

    table: str
    keys: list[Row]
    columns: list[str] | None = None
    keep_missing: bool = False
    timestamp: Timestamp = SYNC_LAST_COMMITTED
    since: Timestamp = NULL_TIMESTAMP
    below: Timestamp | None = None
    limit: Limit | None = None


class SelectRows(Timed, frozen=True):
    """The first `limit` rows of lower ≤ key < upper, which are leading key column values. The
    answer's `next` is where to go on: the next call's `lower`, at the answer's `timestamp`."""

    table: str
    lower: Values | None = None
    upper: Values | None = None
    columns: list[str] | None = None
    limit: Limit = SELECT_ROWS
    timestamp: Timestamp = SYNC_LAST_COMMITTED
    retention_timestamp: Timestamp = NULL_TIMESTAMP


class Query(Timed, frozen=True):
    """DuckDB's SQL over tables named as `[//path]`, all at one timestamp."""

    sql: str
    timestamp: Timestamp = SYNC_LAST_COMMITTED
    retention_timestamp: Timestamp = NULL_TIMESTAMP


# Transactions


class BeginTransaction(Timed, frozen=True):
    """A transaction that the gateway holds. It is given up when none of its calls came for
    `lease_ms`; with full atomicity it lives 60 s at most."""

    atomicity: Atomicity = "full"
    durability: Durability = "sync"
    read_own_writes: bool = False
    lease_ms: Lease = LEASE_MS


class InsertInTransaction(Timed, frozen=True):
    """As `InsertRows`, at the transaction's commit."""

    table: str
    rows: list[Row]
    update: bool = False
    aggregate: bool = False
    lock_type: LockType = "exclusive"


class DeleteInTransaction(Timed, frozen=True):
    """As `DeleteRows`, at the transaction's commit."""

    table: str
    keys: list[Row]


class LockRows(Timed, frozen=True):
    """Lock groups of rows, by name; the main lock unless given."""

    table: str
    keys: list[Row]
    locks: list[str] | None = None
    lock_type: LockType = "shared_strong"


class LookupInTransaction(Timed, frozen=True):
    """As `LookupRows`, at the transaction's start."""

    table: str
    keys: list[Row]
    columns: list[str] | None = None
    keep_missing: bool = False


class LookupVersionsInTransaction(Timed, frozen=True):
    """As `LookupVersions`, up to the transaction's start."""

    table: str
    keys: list[Row]
    columns: list[str] | None = None
    keep_missing: bool = False
    since: Timestamp = NULL_TIMESTAMP
    below: Timestamp | None = None
    limit: Limit | None = None


class SelectInTransaction(Timed, frozen=True):
    """As `SelectRows`, at the transaction's start."""

    table: str
    lower: Values | None = None
    upper: Values | None = None
    columns: list[str] | None = None
    limit: Limit = SELECT_ROWS


class QueryInTransaction(Timed, frozen=True):
    """As `Query`, at the transaction's start."""

    sql: str


class CommitTransaction(Timed, frozen=True):
    """The bound of its time, or no field."""


class FindOutcome(Timed, frozen=True):
    """With `settle` it is decided now, so that it will not be committed later."""

    settle: bool = False


# Bulk


class BulkWrite(Timed, frozen=True):
    """`mode` says what is asked of rows that are there already; it goes with atomicity, as do
    `application` and `version`: a version that was written before is not written again."""

    table: str
    mode: LoadMode = "upsert"
    durability: Durability = "sync"
    application: str | None = None
    version: Index | None = None


class BulkRead(Timed, frozen=True):
    """A table, or the rows of lower ≤ key < upper (lists in JSON), as of a timestamp, a fresh one
    unless given. `columns` are names with commas between."""

    table: str
    lower: str | None = None
    upper: str | None = None
    columns: str | None = None
    timestamp: Timestamp | None = None


def parse_bound(name: str, text: str | None) -> Values | None:
    """Leading key column values, as JSON. Raises InvalidRequest."""
    if text is None:
        return None
    try:
        return msgspec.convert(unmarked(decode_json(text), name), Values)
    except (msgspec.DecodeError, RecursionError) as error:
        raise InvalidRequest(f"{name} is a list of key column values in JSON: {error}") from error


# Tokens


class CreateToken(Body, frozen=True):
    """A token with grants such as `write://home/bank/**`; it expires after `expires_s` seconds, or
    never."""

    name: str
    grants: list[str]
    expires_s: Annotated[int, msgspec.Meta(ge=1, le=10_000_000_000)] | None = None


class RevokeToken(Body, frozen=True):
    """A token, by its id."""

    id: str
