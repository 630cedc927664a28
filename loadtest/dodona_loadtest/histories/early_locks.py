"""Begin transactions that lock rows first, or that are run again, and record them.

Owns: what a history has of early locks: the names of owners, the rows that they asked for, and
those that they had. Only the Python client does this.
"""

from collections.abc import Sequence

from dodona._core.protocol.retry import Rerun
from dodona._core.protocol.steps import Calls, Protocol, Step
from dodona._core.writing.early_locks import Waiting
from dodona._core.writing.transaction import TransactionBuffer
from dodona_loadtest.histories.history import Lock, RowKey, Transaction
from dodona_loadtest.histories.recorder import Attempt, Recorder
from dodona_loadtest.histories.shape import Row, TableShape
from dodona_loadtest.histories.watching import watched
from dodona_wire.errors import DodonaError
from dodona_wire.messages.locks import AcquireLocks


def begin_locked(
    db: Recorder, table: TableShape, keys: Sequence[Row], waiting: Waiting
) -> Protocol[Attempt]:
    """Lock rows, then begin a transaction. Raises DodonaError."""
    beginning = db.session.begin(locks={table.path: keys}, waiting=waiting)
    return _begin_watched(db, [table.row_key(key) for key in keys], beginning)


def begin_again(db: Recorder, rerun: Rerun) -> Protocol[Attempt]:
    """Begin the next attempt of a function as `run_in_transaction` does: after several conflicts,
    it locks rows first. Raises DodonaError."""
    asked = [RowKey(path, bytes(it)) for path, keys in rerun.rows.items() for it in keys]
    return _begin_watched(db, asked, db.session.begin_attempt(rerun, ()))


def _begin_watched(
    db: Recorder, asked: Sequence[RowKey], beginning: Protocol[TransactionBuffer]
) -> Protocol[Attempt]:
    record = db.history.begin(db.name, db.now_us)
    record.asked.extend(asked)
    try:
        buffer = yield from watched(beginning, lambda step: _note_owner(record, step))
    except DodonaError as error:
        record.status, record.end_us, record.error = "fail", db.now_us, str(error)
        raise
    assert buffer.start_timestamp is not None
    record.start, record.begun_us = buffer.start_timestamp, db.now_us
    record.is_start_of_cell = buffer.start_timestamp == buffer.locked.start
    attempt = Attempt(db, buffer, record)
    for path, keys in buffer.locked.rows.items():
        attempt.locked_keys += buffer.locked_rows[path]
        for key, named in zip(keys, buffer.locked_rows[path], strict=True):
            row = RowKey(path, bytes(key))
            record.locked_early.append(row)
            record.locks.append(Lock(row, True, is_exclusive=True))  # of its commit
            attempt.name_row(repr(named), row)
    return attempt


def is_to_run_again(db: Recorder, attempt: Attempt, rerun: Rerun) -> Protocol[bool]:
    """Return whether the Python client runs its function again, after a commit that was not
    acknowledged. It pauses first, as `run_in_transaction` does. Then this attempt has had no
    effect. Raises DodonaError if the client would stop trying."""
    assert db.failure is not None
    is_committed = yield from db.session.after_failure(rerun, attempt.buffer, db.failure)
    if not is_committed and attempt.record.status != "ok":
        attempt.record.status = "fail"
    return not is_committed


def _note_owner(record: Transaction, step: Step) -> None:
    for _, sent in step.requests if isinstance(step, Calls) else ():
        if isinstance(sent, AcquireLocks) and sent.owner not in record.owners:
            record.owners.append(sent.owner)
