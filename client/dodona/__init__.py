"""Dodona: a timestamp oracle, and transactional tablets that use its timestamps.

    import dodona

    db = dodona.connect("http://127.0.0.1:8500")    # or dodona.open("./data"): no server at all

`dodona.aio` has the same API for asyncio. `dodona.errors` has the errors. Python imports each name
on its first use. So a server, and a command that only shows its help, import nothing of the client.
"""

import logging
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from dodona._core.catalog.tables import TableInfo, TabletInfo
    from dodona._core.loads.records import LoadRecord, LoadRecovery
    from dodona._core.loads.ticket import LoadTicket, Published
    from dodona._core.reading.rows import Rows
    from dodona._core.reading.versions import VersionedRow, VersionedValue
    from dodona._core.writing.outcomes import Outcome
    from dodona._core.writing.senders import StagedBatch
    from dodona._core.writing.transaction import TransactionState
    from dodona.catalog import MasterTransaction
    from dodona.changes import Changes
    from dodona.client import Client, Transaction, connect, open
    from dodona.leases import Lease, Leases
    from dodona.loads import Load, Loads
    from dodona.local_copy import LocalCopy
    from dodona.snapshot import Snapshot
    from dodona.timestamps import datetime_from_timestamp, timestamp_from_datetime
    from dodona_wire.errors import (
        CommitOutcomeUnknown,
        ConcurrentAppend,
        ConcurrentDeleteDelete,
        ConcurrentDeleteRead,
        ConcurrentTransaction,
        DataCorrupted,
        DiskFull,
        DodonaError,
        DodonaWarning,
        DuplicateKey,
        FolderInUse,
        Forbidden,
        InvalidRequest,
        InvalidTabletState,
        LeaseHeld,
        LimitExceeded,
        LoadEnded,
        LocksEnded,
        MetadataChanged,
        NodeExists,
        NodeLocked,
        NodeNotFound,
        NotAcceptable,
        Overloaded,
        PrerequisiteFailed,
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
    from dodona_wire.rows.schema import Column, TableSchema
    from dodona_wire.rows.text_format import json_of_any
    from dodona_wire.types import (
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
    "DodonaWarning",
    "DuplicateKey",
    "FolderInUse",
    "Forbidden",
    "InvalidRequest",
    "InvalidTabletState",
    "Lease",
    "LeaseHeld",
    "Leases",
    "LimitExceeded",
    "Load",
    "LoadEnded",
    "LoadRecord",
    "LoadRecovery",
    "LoadTicket",
    "Loads",
    "LocalCopy",
    "LocksEnded",
    "MasterTransaction",
    "MetadataChanged",
    "NodeExists",
    "NodeLocked",
    "NodeNotFound",
    "NotAcceptable",
    "Outcome",
    "Overloaded",
    "PrerequisiteFailed",
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
    "json_of_any",
    "open",
    "timestamp_from_datetime",
]

_HOMES: Final = {
    "dodona._core.loads.records": "LoadRecord LoadRecovery",
    "dodona._core.loads.ticket": "LoadTicket Published",
    "dodona._core.writing.outcomes": "Outcome",
    "dodona._core.reading.rows": "Rows",
    "dodona._core.writing.senders": "StagedBatch",
    "dodona._core.catalog.tables": "TableInfo TabletInfo",
    "dodona._core.writing.transaction": "TransactionState",
    "dodona._core.reading.versions": "VersionedRow VersionedValue",
    "dodona.catalog": "MasterTransaction",
    "dodona.changes": "Changes",
    "dodona.client": "Client Transaction connect open",
    "dodona.errors": (
        "CommitOutcomeUnknown ConcurrentAppend ConcurrentDeleteDelete ConcurrentDeleteRead "
        "ConcurrentTransaction DataCorrupted DiskFull DodonaError DodonaWarning DuplicateKey "
        "FolderInUse Forbidden InvalidRequest InvalidTabletState LeaseHeld LimitExceeded LoadEnded "
        "LocksEnded MetadataChanged NodeExists NodeLocked NodeNotFound NotAcceptable Overloaded "
        "PrerequisiteFailed ProtocolChanged RequestTimedOut RowBlocked RowNotFound "
        "SchemaViolation SnapshotTooOld TableExists TableNotFound TableNotMounted TabletMoved "
        "TransactionAborted TransactionClosed TransactionConflict TransactionNotFound "
        "Unauthenticated Unavailable UnsupportedMediaType WrongGateway"
    ),
    "dodona.leases": "Lease Leases",
    "dodona.loads": "Load Loads",
    "dodona.local_copy": "LocalCopy",
    "dodona.schema": "Column TableSchema",
    "dodona.snapshot": "Snapshot",
    "dodona.timestamps": "datetime_from_timestamp timestamp_from_datetime",
    "dodona_wire.rows.text_format": "json_of_any",
    "dodona.types": (
        "ASYNC_LAST_COMMITTED MAX_TIMESTAMP MIN_TIMESTAMP SYNC_LAST_COMMITTED TableSettings "
        "Timestamp"
    ),
}
"""For each module, the names that the package exports from it."""
_HOME_OF: Final = {name: home for home, names in _HOMES.items() for name in names.split()}
_MODULES: Final = frozenset(
    [
        "catalog",
        "changes",
        "client",
        "errors",
        "keys",
        "leases",
        "loads",
        "schema",
        "snapshot",
        "timestamps",
        "types",
        "values",
    ]
)
"""The public modules. A program can use them after `import dodona`."""


def __getattr__(name: str) -> Any:
    """Import a name on its first use (PEP 562). Raises AttributeError for an unknown name."""
    if name in _MODULES:
        return import_module(f"dodona.{name}")
    home = _HOME_OF.get(name)
    if home is None:
        raise AttributeError(f"module 'dodona' has no attribute {name!r}")
    found = globals()[name] = getattr(import_module(home), name)
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_MODULES})


# The application decides where the log of a library goes.
logging.getLogger("dodona").addHandler(logging.NullHandler())
