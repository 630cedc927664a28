"""What a refusal tells the history of a transaction.

Owns: the kind of an error, the conflict that it names, and the start of an attempt that begins
anew.
"""

from collections.abc import Mapping, Sequence

from dodona_loadtest.histories.history import Conflict, RowKey, Transaction
from dodona_wire.errors import DodonaError, TransactionConflict

RowsByKey = Mapping[str, Sequence[RowKey]]
"""Rows by the key in a refusal; several tables may have rows of that key."""


def kind_of(error: str) -> str:
    """Return the kind of an error, with which the text in a record begins."""
    return error.partition(":")[0]


def forget_start(record: Transaction) -> None:
    """Forget the start of an aborted attempt to several cells: this one begins anew."""
    if not record.is_blind:
        record.names.append(record.start)
        record.is_blind, record.start, record.begun_us = True, 0, None


def fail(
    record: Transaction, error: DodonaError, rows_by_key: RowsByKey, *, is_watched: bool
) -> None:
    record.status, record.error = "fail", f"{error.kind}: {error.message}"
    if not isinstance(error, TransactionConflict):
        return
    said = error.attributes.get
    rows = rows_by_key.get(repr(said("key")), [])
    rows = [row for row in rows if said("table") in (None, row.table)]
    # If names are not seen, a holder may have a name that is not in the history. A write without a
    # transaction may have been sent as one.
    is_tellable = is_watched or (said("winner") is None and not record.is_blind)
    if rows and is_tellable:
        one_of = tuple(dict.fromkeys(rows))
        record.conflict = Conflict(one_of, said("winner"), said("winner_timestamp"))
