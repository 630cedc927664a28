"""Dodona: a timestamp oracle and the transactional tablets that live by its timestamps.

    import dodona

    db = dodona.connect("http://127.0.0.1:8500")    # or dodona.open("./data"): no server at all

`dodona.aio` has the same for asyncio, `dodona.errors` what can go wrong. Importing this imports no
network library and no server: `connect` and `open` load what they need.
"""

import logging

from dodona._core.loads.records import LoadRecord, LoadRecovery
from dodona._core.loads.ticket import LoadTicket, Published
from dodona._core.outcomes import Outcome
from dodona._core.rows import Rows
from dodona._core.senders import StagedBatch
from dodona._core.tables import TableInfo, TabletInfo
from dodona._core.transaction import TransactionState
from dodona._core.versions import VersionedRow, VersionedValue
from dodona.catalog import MasterTransaction
from dodona.changes import Changes
from dodona.client import Client, Transaction, connect, open
from dodona.errors import (
    CommitOutcomeUnknown,
    ConcurrentAppend,
    ConcurrentDeleteDelete,
    ConcurrentDeleteRead,
    ConcurrentTransaction,
    DataCorrupted,
    DiskFull,
    DodonaError,
    DuplicateKey,
    FolderInUse,
    Forbidden,
    InvalidRequest,
    InvalidTabletState,
    LimitExceeded,
    LoadEnded,
    MetadataChanged,
    NodeExists,
    NodeLocked,
    NodeNotFound,
    NotAcceptable,
    Overloaded,
    ProtocolChanged,
    RequestTimedOut,
    RowBlocked,
    RowNotFound,
    SchemaViolation,
    SnapshotTooOld,
    TableExists,
    TableNotFound,
    TableNotMounted,
    TabletMoved,
    TransactionAborted,
    TransactionClosed,
    TransactionConflict,
    TransactionNotFound,
    Unauthenticated,
    Unavailable,
    UnsupportedMediaType,
    WrongGateway,
)
from dodona.loads import Load, Loads
from dodona.schema import Column, TableSchema
from dodona.snapshot import Snapshot
from dodona.timestamps import datetime_from_timestamp, timestamp_from_datetime
from dodona.types import (
    ASYNC_LAST_COMMITTED,
    MAX_TIMESTAMP,
    MIN_TIMESTAMP,
    SYNC_LAST_COMMITTED,
    TableSettings,
    Timestamp,
)

__all__ = [
    "ASYNC_LAST_COMMITTED",
    "MAX_TIMESTAMP",
    "MIN_TIMESTAMP",
    "SYNC_LAST_COMMITTED",
    "Changes",
    "Client",
    "Column",
    "CommitOutcomeUnknown",
    "ConcurrentAppend",
    "ConcurrentDeleteDelete",
    "ConcurrentDeleteRead",
    "ConcurrentTransaction",
    "DataCorrupted",
    "DiskFull",
    "DodonaError",
    "DuplicateKey",
    "FolderInUse",
    "Forbidden",
    "InvalidRequest",
    "InvalidTabletState",
    "LimitExceeded",
    "Load",
    "LoadEnded",
    "LoadRecord",
    "LoadRecovery",
    "LoadTicket",
    "Loads",
    "MasterTransaction",
    "MetadataChanged",
    "NodeExists",
    "NodeLocked",
    "NodeNotFound",
    "NotAcceptable",
    "Outcome",
    "Overloaded",
    "ProtocolChanged",
    "Published",
    "RequestTimedOut",
    "RowBlocked",
    "RowNotFound",
    "Rows",
    "SchemaViolation",
    "Snapshot",
    "SnapshotTooOld",
    "StagedBatch",
    "TableExists",
    "TableInfo",
    "TableNotFound",
    "TableNotMounted",
    "TableSchema",
    "TableSettings",
    "TabletInfo",
    "TabletMoved",
    "Timestamp",
    "Transaction",
    "TransactionAborted",
    "TransactionClosed",
    "TransactionConflict",
    "TransactionNotFound",
    "TransactionState",
    "Unauthenticated",
    "Unavailable",
    "UnsupportedMediaType",
    "VersionedRow",
    "VersionedValue",
    "WrongGateway",
    "connect",
    "datetime_from_timestamp",
    "open",
    "timestamp_from_datetime",
]

# A library leaves it to the application what becomes of its log.
logging.getLogger("dodona").addHandler(logging.NullHandler())
