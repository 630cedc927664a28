"""Check the rules that must hold at every time and at the end of the demonstration.

Owns: the snapshots (one timestamp, two tables, one sum). Owns also the comparison of the end with
the source, and with the book of acknowledged commits. Every check returns its errors in words, and
none prints.
"""

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final, TypeVar

import dodona
from dodona_local.demo_data import CarrierDay, Totals, sum_of
from dodona_local.demo_post import Acknowledged, totals_of
from dodona_local.demo_tables import CARRIER_DAY, POSTED
from dodona_wire.errors import DodonaError
from dodona_wire.types import Timestamp

SNAPSHOT_PAUSE_S: Final = 1.0
READ_WAIT_S_MAX: Final = 60.0
"""How long a read is repeated while `dodona up` restarts the process that serves it."""

READ_PAUSE_S: Final = 0.2

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class Marker:
    """The marker row that a transaction wrote, with the totals that it changed."""

    transaction: int
    totals: Totals


@dataclass(frozen=True, slots=True)
class Reading:
    """Both tables, whole, at one timestamp."""

    timestamp: Timestamp
    markers: Mapping[int, Marker]
    totals: Mapping[CarrierDay, Totals]

    def snapshot(self) -> "KeptReading":
        posted = sum_of(marker.totals for marker in self.markers.values())
        return KeptReading(
            self.timestamp, frozenset(self.markers), posted, sum_of(self.totals.values())
        )


@dataclass(frozen=True, slots=True)
class KeptReading:
    """The kept part of a reading: its batches, the sum that they posted, and the sum of the
    totals."""

    timestamp: Timestamp
    batches: frozenset[int]
    posted: Totals
    arrived: Totals


def take_reading(db: dodona.Client) -> Reading:
    """Read both tables at one fresh timestamp. The read is repeated, within bounds, while a server
    is down."""
    return patiently(lambda: _read_at(db, db.generate_timestamp()))


def _read_at(db: dodona.Client, timestamp: Timestamp) -> Reading:
    markers = db.select(POSTED, timestamp=timestamp)
    totals = db.select(CARRIER_DAY, timestamp=timestamp)
    return Reading(
        timestamp,
        {row["batch"]: Marker(row["transaction"], totals_of(row)) for row in markers},
        {(row["carrier"], row["day"]): totals_of(row) for row in totals},
    )


def patiently(read: Callable[[], Result]) -> Result:
    """Repeat a read that failed with a retryable error. Raises the error after
    `READ_WAIT_S_MAX`."""
    deadline = time.monotonic() + READ_WAIT_S_MAX
    while True:
        try:
            return read()
        except DodonaError as error:
            if not error.is_retryable or time.monotonic() > deadline:
                raise
        time.sleep(READ_PAUSE_S)


class SnapshotReader:
    """Takes snapshots in a thread while other threads write, and shows each one."""

    def __init__(self, db: dodona.Client, show: Callable[[KeptReading], None]) -> None:
        self.snapshots: list[KeptReading] = []
        self._db = db
        self._show = show
        self._failure: DodonaError | None = None
        self._stop = threading.Event()

    @contextmanager
    def running(self) -> Iterator[None]:
        """Read for the length of a `with` block. Raises the reader's error at its end."""
        thread = threading.Thread(target=self._run, name="snapshot reader")
        thread.start()
        try:
            yield
        finally:
            self._stop.set()
            thread.join()
        if self._failure is not None:
            raise self._failure

    def _run(self) -> None:
        try:
            is_last = False
            while not is_last:  # the last one, after all writes: so a quick run has one, too
                is_last = self._stop.wait(SNAPSHOT_PAUSE_S)
                snapshot = take_reading(self._db).snapshot()
                self.snapshots.append(snapshot)
                self._show(snapshot)
        except DodonaError as error:
            self._failure = error


def faults_of_snapshot(snapshot: KeptReading, book: Mapping[int, Acknowledged]) -> list[str]:
    """Return the facts that contradict a snapshot: its own sums, or the commits at or before it."""
    faults = []
    if snapshot.posted != snapshot.arrived:
        faults.append(
            f"at {snapshot.timestamp} the batches posted {snapshot.posted} "
            f"but {snapshot.arrived} arrived"
        )
    for batch, entry in sorted(book.items()):
        if entry.timestamp is not None:
            is_due = entry.timestamp <= snapshot.timestamp
            if is_due != (batch in snapshot.batches):
                faults.append(
                    f"at {snapshot.timestamp} batch {batch}, committed at {entry.timestamp}, "
                    f"is {'missing' if is_due else 'visible'}"
                )
    return faults


def faults_of_markers(found: Mapping[int, Marker], book: Mapping[int, Acknowledged]) -> list[str]:
    """Return the acknowledged commits that are missing at the end, and the batches that no worker
    posted."""
    faults = [
        f"batch {batch} is posted, but not by a worker" for batch in sorted({*found} - {*book})
    ]
    for batch, entry in sorted(book.items()):
        marker = found.get(batch)
        if marker is None:
            faults.append(f"batch {batch}, acknowledged at {entry.timestamp}, is lost")
        elif marker != Marker(entry.transaction, entry.totals):
            faults.append(f"batch {batch} was acknowledged as {entry} but is {marker}")
    return faults


def faults_of_totals(
    found: Mapping[CarrierDay, Totals], expected: Mapping[CarrierDay, Totals]
) -> list[str]:
    """Return the differences between the database and the source."""
    return [
        f"{carrier} on {day}: the database has {found.get((carrier, day), Totals())}, "
        f"the source {expected.get((carrier, day), Totals())}"
        for carrier, day in sorted({*found, *expected})
        if found.get((carrier, day)) != expected.get((carrier, day))
    ]


def carrier_rows(
    totals: Mapping[CarrierDay, Totals], names: Mapping[str, str]
) -> Sequence[tuple[str, ...]]:
    """Return a line for each carrier, the busiest first: flights, mean delay, the day with most
    late minutes."""
    days: dict[str, dict[str, Totals]] = {}
    for (carrier, day), posted in totals.items():
        days.setdefault(carrier, {})[day] = posted
    sums = {carrier: sum_of(by_day.values()) for carrier, by_day in days.items()}
    lines = []
    for carrier in sorted(days, key=lambda carrier: -sums[carrier].flights):
        worst = max(days[carrier], key=lambda day: (days[carrier][day].minutes, day))
        lines.append(_carrier_line(carrier, names, sums[carrier], worst, days[carrier][worst]))
    return lines


def _carrier_line(
    carrier: str, names: Mapping[str, str], total: Totals, day: str, worst: Totals
) -> tuple[str, ...]:
    mean = f"{total.minutes / total.landed:+.1f} min" if total.landed else "–"
    name = names.get(carrier, "")
    return carrier, name, day, f"{worst.minutes:,} min", f"{total.flights:,}", mean
