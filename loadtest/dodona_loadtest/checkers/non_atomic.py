"""Check tables without atomicity: whole rows, rising timestamps, and answers that stay true.

Owns: the checks GHOST, DURABILITY, STAMP, LATEST and FALSE-REFUSAL for tables without atomicity.
Each row is judged by itself, because such a table promises nothing across rows. A row that a reader
saw is durable. So every value that was read is in the dump. Of two writes that follow each other in
real time, the later one has the later timestamp. Needs unique values, rows that are only
overwritten, and every version. Must not import: any core.
"""

from bisect import bisect_left
from collections.abc import Iterable
from typing import Final, NamedTuple

from dodona_loadtest.checkers.losses import Answered, check_losses
from dodona_loadtest.checkers.violation import Promise, Violation
from dodona_loadtest.histories.history import (
    Acquisition,
    Columns,
    History,
    RowKey,
    StampedRead,
    StampedWrite,
    Version,
    visible,
)

TIMESTAMP_COUNTER_BITS: Final = 30
CLOCK_DIFFERENCE_S_MAX: Final = 60
LOSS_US_MAX: Final = 100_000
"""Microseconds of answers from memory that a crash may take back."""


def check_stamped(
    history: History, dump: Iterable[Version], loss_us_max: int = LOSS_US_MAX
) -> list[Violation]:
    """Return all broken promises. `dump` holds every version of every such table."""
    return _Checker(history, list(dump), loss_us_max).run()


class _Seen(NamedTuple):
    """From this instant on, the row is known to have a version of this timestamp."""

    at_us: int
    stamp: int


class _Checker:
    def __init__(self, history: History, dump: list[Version], loss_us_max: int) -> None:
        self._history = history
        self._loss_us_max = loss_us_max
        self._violations: list[Violation] = []
        self._dump = dump
        self._writes = {
            (it.write.row, visible(dict(it.write.columns or ()))): it
            for it in history.stamped_writes
        }
        assert len(self._writes) == len(history.stamped_writes), "values are unique"
        self._stamps: dict[tuple[RowKey, Columns | None], int] = {}
        self._floors: dict[RowKey, _Floor] = {}
        self._oracle = _Oracle(history.acquisitions)

    def run(self) -> list[Violation]:
        self._attribute()
        self._find_floors()
        for write in self._history.stamped_writes:
            self._check_write(write)
        self._check_told()
        for read in self._history.stamped_reads:
            self._check_read(read)
        answered = [
            Answered(write, self._stamp(write) is not None)
            for write in self._history.stamped_writes
            if write.status == "ok"
        ]
        losses = check_losses(answered, self._history.crashes, self._loss_us_max)
        return self._violations + losses

    def _flag(self, promise: Promise, text: str) -> None:
        self._violations.append(Violation(promise, text))

    def _attribute(self) -> None:
        """Match versions and writes. Each version is one whole row that a caller wrote once."""
        for version in self._dump:
            place = version.row, None if version.columns is None else visible(dict(version.columns))
            text = f"{version.row} at {version.timestamp}: {version.columns}"
            write = self._writes.get(place)
            if write is None:
                self._flag("GHOST", f"nobody wrote {text}")
            elif place in self._stamps:
                self._flag("GHOST", f"{write.name} is there twice: {text}")
            else:
                self._stamps[place] = version.timestamp

    def _stamp(self, write: StampedWrite) -> int | None:
        """Return the timestamp of the write's version, None if it has none."""
        return self._stamps.get((write.write.row, visible(dict(write.write.columns or ()))))

    def _find_floors(self) -> None:
        seen: dict[RowKey, list[_Seen]] = {}
        for write in self._history.stamped_writes:
            stamp = self._stamp(write)
            if stamp is not None and write.status == "ok" and write.answered_us is not None:
                seen.setdefault(write.write.row, []).append(_Seen(write.answered_us, stamp))
        for read in self._history.stamped_reads:
            stamp = self._stamps.get((read.read.row, read.read.columns))
            if stamp is not None:
                seen.setdefault(read.read.row, []).append(_Seen(read.answered_us, stamp))
        self._floors = {row: _Floor(found) for row, found in seen.items()}

    def _floor(self, row: RowKey, asked_us: int) -> int:
        floor = self._floors.get(row)
        return 0 if floor is None else floor.before(asked_us)

    def _check_write(self, write: StampedWrite) -> None:
        row, stamp = write.write.row, self._stamp(write)
        if stamp is None:
            if write.status == "ok" and write.is_durable:
                self._flag("DURABILITY", f"{write.name} is not there: {write.write}")
        elif write.status == "fail":
            self._flag("GHOST", f"{write.name} failed ({write.error}), but {row} has it at {stamp}")
        elif stamp <= (floor := self._floor(row, write.asked_us)):
            text = f"{write.name} wrote {row} at {stamp}, though {floor} was known before"
            self._flag("STAMP", text)
        elif write.status == "ok" and write.answered_us is not None:
            # A write without an answer may have happened later, when clocks had gone on.
            latest = self._oracle.after(write.answered_us)
            if latest is not None and _seconds(stamp) > _seconds(latest) + CLOCK_DIFFERENCE_S_MAX:
                self._flag("STAMP", f"{write.name} wrote {row} at {stamp}, too far above {latest}")
        if write.clocks is not None:
            theirs, ours = write.clocks
            if abs(_seconds(theirs) - _seconds(ours)) <= CLOCK_DIFFERENCE_S_MAX:
                self._flag("FALSE-REFUSAL", f"{write.name}: {write.error} {write.clocks}")

    def _check_told(self) -> None:
        """Check the largest timestamp that each call reported, if all its rows are there."""
        calls: dict[str, list[StampedWrite]] = {}
        for write in self._history.stamped_writes:
            calls.setdefault(write.name, []).append(write)
        for name, writes in calls.items():
            stamps = [stamp for write in writes if (stamp := self._stamp(write)) is not None]
            told = writes[0].told
            if len(stamps) == len(writes) and told is not None and told != max(stamps):
                self._flag("STAMP", f"{name} was told {told}, but wrote at {stamps}")

    def _check_read(self, read: StampedRead) -> None:
        row, columns = read.read
        floor = self._floor(row, read.asked_us)
        if columns is None:
            if floor:
                self._flag("LATEST", f"{read} has no row, though {floor} was known before")
            return
        stamp = self._stamps.get((row, columns))
        write = self._writes.get((row, columns))
        if write is None or write.asked_us > read.answered_us:
            self._flag("GHOST", f"nobody had written what {read} saw")
        elif stamp is None:
            self._flag("DURABILITY", f"{read} saw what is not there any more")
        elif stamp < floor:
            self._flag("LATEST", f"{read} saw {stamp}, though {floor} was known before")


class _Floor:
    """The newest timestamp of one row that was known before an instant."""

    def __init__(self, seen: list[_Seen]) -> None:
        self._instants: list[int] = []
        self._highest: list[int] = []
        for at_us, stamp in sorted(seen):
            self._instants.append(at_us)
            self._highest.append(max(stamp, self._highest[-1] if self._highest else 0))

    def before(self, instant_us: int) -> int:
        position = bisect_left(self._instants, instant_us)
        return self._highest[position - 1] if position else 0


class _Oracle:
    """How far the oracle was: a timestamp that is asked for later is above all issued ones."""

    def __init__(self, acquisitions: Iterable[Acquisition]) -> None:
        self._instants: list[int] = []
        self._lowest: list[int] = []
        for a in sorted(acquisitions, key=lambda a: a.asked_us, reverse=True):
            self._instants.append(-a.asked_us)
            self._lowest.append(min(a.first, self._lowest[-1] if self._lowest else a.first))

    def after(self, instant_us: int) -> int | None:
        """Return a timestamp that no clock of that instant may exceed by far, if one is known."""
        position = bisect_left(self._instants, -instant_us)
        return self._lowest[position - 1] if position else None


def _seconds(timestamp: int) -> int:
    return timestamp >> TIMESTAMP_COUNTER_BITS
