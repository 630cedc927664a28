"""What the reads of a serializable transaction exclude.

Owns: the rows that count as read. A client may merge reads that are near each other, so all rows
between the first and the last read of a table count, with all of their lock groups.
Must not import: any core.
"""

from dodona_loadtest.checkers.absences import WHOLE_ROW
from dodona_loadtest.histories.history import Lock, RowKey, Transaction


def read_locks(t: Transaction, row: RowKey) -> list[Lock]:
    """Return the lock that the reads of a transaction take on a row, until its outcome: weak, and
    for reading."""
    if not t.is_serializable:
        return []
    keys = [it.row.key for it in t.reads if it.row.table == row.table]
    keys += [it.row.key for it in t.glances if it.row.table == row.table]
    scans = [it for it in t.scans if it.table == row.table]
    first = min([*keys, *(it.lower for it in scans)], default=row.key + b"\0")
    is_below_end = any(row.key <= key for key in keys) or any(row.key < it.upper for it in scans)
    return [Lock(row, False, WHOLE_ROW)] if first <= row.key and is_below_end else []
