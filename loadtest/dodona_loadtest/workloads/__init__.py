"""What callers do in a run: a workload has tables, a setup, steps, a last write and a check."""

from dodona_loadtest.workloads.bank import Bank
from dodona_loadtest.workloads.blind import Blind
from dodona_loadtest.workloads.column_groups import ColumnGroups
from dodona_loadtest.workloads.counters import Counters
from dodona_loadtest.workloads.cycle import Cycle
from dodona_loadtest.workloads.fencing import Fencing
from dodona_loadtest.workloads.hot_rows import HotRows
from dodona_loadtest.workloads.list_append import ListAppend
from dodona_loadtest.workloads.loads import BulkLoads
from dodona_loadtest.workloads.retention import Retention
from dodona_loadtest.workloads.serializable import Serializable
from dodona_loadtest.workloads.sideband import Sideband
from dodona_loadtest.workloads.slow_transactions import SlowTransactions
from dodona_loadtest.workloads.sums import Sums
from dodona_loadtest.workloads.workload import Workload
from dodona_loadtest.workloads.write_skew import (
    SerializableWriteSkew,
    UnlockedWriteSkew,
    WriteSkew,
)

_ALL: tuple[type[Workload], ...] = (
    Bank,
    Blind,
    ColumnGroups,
    Counters,
    Cycle,
    Fencing,
    HotRows,
    ListAppend,
    BulkLoads,
    Retention,
    Serializable,
    SerializableWriteSkew,
    Sideband,
    SlowTransactions,
    Sums,
    UnlockedWriteSkew,
    WriteSkew,
)
WORKLOADS: dict[str, type[Workload]] = {workload.name: workload for workload in _ALL}

__all__ = [
    "WORKLOADS",
    "Bank",
    "Blind",
    "BulkLoads",
    "ColumnGroups",
    "Counters",
    "Cycle",
    "Fencing",
    "HotRows",
    "ListAppend",
    "Retention",
    "Serializable",
    "SerializableWriteSkew",
    "Sideband",
    "SlowTransactions",
    "Sums",
    "UnlockedWriteSkew",
    "Workload",
    "WriteSkew",
]
