"""A serializable transaction as a workload uses it, with its reads in the history.

Owns: how it begins, its reads of some columns, and its scan for the first rows of a range. These
are of the Python client.
"""

from collections.abc import Iterable, Sequence
from typing import Any, Final

from dodona._core.protocol.steps import Protocol
from dodona_loadtest.histories.history import Glance, Read, RowKey, Scan, visible
from dodona_loadtest.histories.recorder import Attempt, Recorder
from dodona_loadtest.histories.shape import Row, TableShape
from dodona_wire.types import NULL_TIMESTAMP, Timestamp

BYTES_MAX: Final = 1 << 20


def begin_serializable(db: Recorder, names: Iterable[tuple[str, RowKey]]) -> Protocol[Attempt]:
    """Begin a serializable transaction. `names` are rows by the text of their key in errors: a
    refusal may name each row of a range that was read."""
    attempt = yield from db.begin("serializable")
    for text, row in names:
        attempt.name_row(text, row)
    return attempt


def glance(
    attempt: Attempt, table: TableShape, key: Row, columns: Sequence[str]
) -> Protocol[Row | None]:
    """Read some columns of a row."""
    row = yield from attempt.glance(table, key, columns)
    seen = visible(None if row is None else {name: row[name] for name in columns})
    attempt.record.glances.append(Glance(table.row_key(key), tuple(columns), seen))
    return row


def scan_first(
    attempt: Attempt, table: TableShape, count: int, lower: Sequence[Any], upper: Sequence[Any]
) -> Protocol[list[dict[str, Any]]]:
    """Read the first rows of lower ≤ key < upper. What lies behind the last of them is not read."""
    at, session = Timestamp(attempt.record.start), attempt.session
    found, _ = yield from session.first_rows(
        table.path, count, BYTES_MAX, lower, upper, None, at, NULL_TIMESTAMP, attempt.buffer
    )
    rows = [dict(row) for row in found.rows]
    reads = tuple(Read(table.row_key(row), table.columns_read(row) or ()) for row in rows)
    end = table.bound(upper if found.next is None else found.next, b"")
    if found.next is not None:  # the caller learns that there is a row, and not what it has
        attempt.record.glances.append(Glance(RowKey(table.path, end), (), ()))
    attempt.record.scans.append(Scan(table.path, table.bound(lower, b""), end, reads))
    return rows
