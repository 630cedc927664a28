"""Say whether a cell has written behind a place in its replicated log, by the file of a replica.

Owns: which records change nothing for any client. Reads only. A replica may lack the last entries,
and may have entries that were never acknowledged: the caller asks as many replicas as it needs.
"""

from itertools import islice
from typing import Final

from dodona_replication.shell.replica_check import StoredReplica
from dodona_tablets.core.records import (
    Checkpoint,
    ChunksCompacted,
    StoreFlushed,
    StoreRotated,
    WatermarkRaised,
)
from dodona_tablets.shell.log_entries import FoundGroups
from dodona_tablets.shell.log_groups import decode_group

ENTRIES_MAX: Final = 1_000
"""A log with more entries behind the place counts as one with writes."""
UPKEEP: Final = frozenset(
    {Checkpoint, StoreRotated, StoreFlushed, ChunksCompacted, WatermarkRaised}
)
"""Records of a cell's own work: no client waits for one of these."""


def has_writes_behind(stored: StoredReplica, log: str, index: int) -> bool:
    """Return whether this replica has records of a log behind an entry, other than those of upkeep.
    If records behind it were cut, it is not known, and so it has. Raises DataCorrupted."""
    if stored.states[log].first_index > index + 1:
        return True
    entries = list(islice(stored.entries_behind(log, index), ENTRIES_MAX + 1))
    if len(entries) > ENTRIES_MAX:
        return True
    groups = FoundGroups(stored.path, entries).walk(lambda _: True)
    kinds = {type(it) for key, value in groups for it in decode_group(key, value, stored.path)}
    return not kinds <= UPKEEP
