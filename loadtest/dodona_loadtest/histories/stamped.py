"""Writes and reads of tables without atomicity, written into the history.

Owns: the answer for each row of a call. Such a write succeeds row by row. An error says for each
tablet whether its rows are there. So some rows of one call may be sure and others not.
"""

from collections.abc import Sequence

from dodona._core.protocol.steps import Calls, Protocol, Step
from dodona_loadtest.histories.history import Read, StampedRead, StampedWrite, Status
from dodona_loadtest.histories.recorder import Recorder
from dodona_loadtest.histories.refusals import kind_of
from dodona_loadtest.histories.shape import Row, TableShape
from dodona_wire.errors import DodonaError, InvalidRequest
from dodona_wire.messages.data import WriteNonAtomic
from dodona_wire.types import SYNC_LAST_COMMITTED, Durability, TabletId, Timestamp

STATES: dict[str, Status] = {"applied": "ok", "unknown": "info", "not_applied": "fail"}
"""The states of an error's tablets, as statuses of their rows."""

Places = dict[bytes, tuple[int, TabletId]]
"""The cell and the tablet to which each key was sent last."""


def write_stamped(
    db: Recorder, table: TableShape, rows: Sequence[Row], *, is_durable: bool
) -> Protocol[list[StampedWrite]]:
    """Overwrite rows, each for itself. Return the answer for each."""
    number = len(db.history.stamped_writes)
    records = [
        StampedWrite(db.name, number, table.write(row, is_update=False), is_durable, db.now_us)
        for row in rows
    ]
    db.history.stamped_writes.extend(records)
    if db.on_commit is not None:
        db.on_commit()
    places: Places = {}
    durability: Durability = "sync" if is_durable else "async"
    writing = db.rows.write_rows(table.path, rows, False, durability)
    try:
        told = yield from _watch(writing, records, places)
    except DodonaError as error:
        _fail(records, places, error, is_watched=db.is_watched)
    else:
        for record in records:
            record.status, record.told = "ok", told
    for record in records:
        record.answered_us = db.now_us
    refused = [record for record in records if record.status != "ok"]
    db.refusal = kind_of(refused[0].error) if refused else None
    return records


def _watch(
    writing: Protocol[Timestamp | None], records: Sequence[StampedWrite], places: Places
) -> Protocol[Timestamp | None]:
    """Note where the rows go: a crash there may take them back."""
    try:
        step = next(writing)
        while True:
            _note_places(step, places)
            for record in records:
                key = record.write.row.key
                record.cell = places[key][0] if key in places else None
            step = writing.send((yield step))
    except StopIteration as end:
        told: Timestamp | None = end.value
        return told
    finally:
        writing.close()


def _note_places(step: Step, places: Places) -> None:
    for target, body in step.requests if isinstance(step, Calls) else ():
        if isinstance(body, WriteNonAtomic):
            for key, *_ in body.writes:
                places[bytes(key)] = (int(target), body.tablet)


def _fail(
    records: Sequence[StampedWrite], places: Places, error: DodonaError, *, is_watched: bool
) -> None:
    said = {
        tablet: status
        for state, status in STATES.items()
        for tablet in error.attributes.get(state, ())
    }
    stamps = error.attributes.get("client_timestamp"), error.attributes.get("server_timestamp")
    for record in records:
        place = places.get(record.write.row.key)
        if not is_watched:
            record.status = _status_anywhere(list(said.values()), error)
        else:
            record.status = "fail" if place is None else said.get(place[1], "info")
        record.error = f"{error.kind}: {error.message}"
        if stamps[0] is not None and stamps[1] is not None:
            record.clocks = stamps[0], stamps[1]


def _status_anywhere(said: Sequence[Status], error: DodonaError) -> Status:
    """Return the status of a row in an unknown tablet: a state of all tablets is its own."""
    if not said:  # the call was refused as a whole, or its outcome is unsure
        return "fail" if isinstance(error, InvalidRequest) else "info"
    return said[0] if len(dict.fromkeys(said)) == 1 else "info"


def lookup_stamped(db: Recorder, table: TableShape, keys: Sequence[Row]) -> Protocol[None]:
    """Read rows, each as of a time of its own."""
    asked_us = db.now_us
    rows = yield from db.rows.lookup_rows(
        table.path, keys, keep_missing=True, timestamp=SYNC_LAST_COMMITTED
    )
    _keep(db, table, asked_us, list(zip(keys, rows, strict=True)))


def scan_stamped(db: Recorder, table: TableShape, keys: Sequence[Row]) -> Protocol[list[Row]]:
    """Read the whole table, which has no other keys than these. Return its rows."""
    asked_us = db.now_us
    found = yield from db.rows.select(table.path, timestamp=SYNC_LAST_COMMITTED)
    rows = {table.row_key(row): row for row in found}
    for key in keys:
        rows.setdefault(table.row_key(key), {})
    _keep(db, table, asked_us, [(key, rows.pop(table.row_key(key)) or None) for key in keys])
    _keep(db, table, asked_us, [(row, row) for row in rows.values()])  # no session wrote these
    return list(found)


def _keep(
    db: Recorder, table: TableShape, asked_us: int, rows: Sequence[tuple[Row, Row | None]]
) -> None:
    for key, row in rows:
        read = db.history.shared(Read(table.row_key(key), table.columns_read(row)))
        db.history.stamped_reads.append(StampedRead(db.name, asked_us, db.now_us, read))
