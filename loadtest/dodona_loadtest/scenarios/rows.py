"""The scenarios of one kind of operation each: timestamps, commits of rows, reads of rows.

Owns: their operations. The timestamp sweep judges all of them. The checker of tables without
atomicity judges those of such tables.
"""

from collections.abc import Iterable, Mapping, Sequence
from random import Random
from typing import Any, Final

from dodona._core.protocol.steps import Protocol
from dodona_loadtest.checkers.attribution import attribute
from dodona_loadtest.checkers.violation import Violation
from dodona_loadtest.histories.history import History, StampedWrite, Version
from dodona_loadtest.histories.recorder import Attempt, Recorder
from dodona_loadtest.histories.shape import TableShape
from dodona_loadtest.histories.stamped import lookup_stamped, write_stamped
from dodona_loadtest.scenarios.parameters import Parameters
from dodona_loadtest.scenarios.scenario import (
    ROWS_PER_PART,
    Operation,
    RowsScenario,
    Scenario,
    even_pivots,
    first_keys,
    give_up_on_error,
    value,
)
from dodona_loadtest.workloads.workload import SNAPSHOTS_MAX
from dodona_wire.rows.schema import Column

OLD_SHARE: Final = 0.2
"""The share of snapshot reads at a timestamp of an earlier read."""


class Timestamps(Scenario):
    """Takes timestamps; it has no table."""

    name = "timestamps"
    summary = "timestamps from the oracle: unique, and rising in real time"

    @property
    def tables(self) -> list[TableShape]:
        return []

    @property
    def operations(self) -> Mapping[str, tuple[float, Operation]]:
        return {"timestamps": (1.0, self._take)}

    def set_up(self, db: Recorder) -> Protocol[bool]:
        yield from self._take(db)
        return True

    def touch(self, db: Recorder) -> Protocol[bool]:
        return (yield from self.set_up(db))

    def conclude(self, db: Recorder) -> Protocol[None]:
        yield from self._take(db)

    def draw_key(self, random: Random) -> dict[str, Any]:
        raise AssertionError("there are no rows")

    def _take(self, db: Recorder) -> Protocol[None]:
        yield from db.take_timestamps(self.parameters.timestamps_per_call)


class RowCommits(RowsScenario):
    """An atomic write of one row, in one call."""

    name = "row_commits"
    summary = "atomic durable commits of one row, in one call"

    @property
    def operations(self) -> Mapping[str, tuple[float, Operation]]:
        return {"commit of a row": (1.0, self.write)}


class CrossCellCommits(RowsScenario):
    """A row of each of two tablets, in a transaction: neighbours are in different cells."""

    name = "cross_cell_commits"
    summary = "transactions that commit a row on each of two nodes"
    cells_min = 2

    @property
    def operations(self) -> Mapping[str, tuple[float, Operation]]:
        return {"commit on two nodes": (1.0, self._commit)}

    def _commit(self, db: Recorder) -> Protocol[None]:
        starts = first_keys(self.table)
        first = db.random.randrange(len(starts))
        attempt = yield from db.begin()
        yield from give_up_on_error(attempt, self._write(db, attempt, starts, first))

    def _write(
        self, db: Recorder, attempt: Attempt, starts: Sequence[int], first: int
    ) -> Protocol[bool]:
        ends = [*starts[1:], self.row_count]
        for tablet in dict.fromkeys((first, (first + 1) % len(starts))):
            number = db.random.randrange(starts[tablet], ends[tablet])
            yield from attempt.insert(self.table, self.row(db, number))
        return True


class NonAtomic(Scenario):
    """Rows that are written several at a call, each for itself."""

    name = "non_atomic"
    summary = "writes and lookups of rows without atomicity, answered from memory"

    def __init__(self, random: Random, parameters: Parameters) -> None:
        super().__init__(random, parameters)
        self.row_count = parameters.rows
        self.table = TableShape(
            "//non_atomic/rows",
            (
                Column("id", "int64", sort_order="ascending"),
                Column("value", "utf8", required=True),
            ),
            even_pivots(self.row_count, parameters.tablets),
            atomicity="none",
        )

    @property
    def operations(self) -> Mapping[str, tuple[float, Operation]]:
        reads = self.parameters.reads(0.3)
        return {"write": (1 - reads, self._write), "lookup": (reads, self._look_up)}

    def set_up(self, db: Recorder) -> Protocol[bool]:
        while self._filled < self.row_count:
            end = min(self.row_count, self._filled + ROWS_PER_PART)
            told = yield from self._put(db, range(self._filled, end), is_durable=True)
            if any(it.status != "ok" for it in told):
                return False
            self._filled = end
        return True

    def touch(self, db: Recorder) -> Protocol[bool]:
        told = yield from self._put(db, first_keys(self.table), is_durable=True)
        return all(it.status == "ok" for it in told)

    def conclude(self, db: Recorder) -> Protocol[None]:
        yield from lookup_stamped(db, self.table, [{"id": it} for it in range(self._filled)][:100])

    def draw_key(self, random: Random) -> dict[str, Any]:
        return {"id": random.randrange(self.row_count)}

    def _keys(self, db: Recorder) -> list[int]:
        count = min(self.parameters.rows_per_call, self.row_count)
        return db.random.sample(range(self.row_count), count)

    def _write(self, db: Recorder) -> Protocol[None]:
        yield from self._put(db, self._keys(db), is_durable=self.parameters.durability == "sync")

    def _look_up(self, db: Recorder) -> Protocol[None]:
        yield from lookup_stamped(db, self.table, [{"id": it} for it in self._keys(db)])

    def _put(
        self, db: Recorder, ids: Iterable[int], *, is_durable: bool
    ) -> Protocol[list[StampedWrite]]:
        length = self.parameters.value_bytes
        rows = [{"id": number, "value": value(db, length)} for number in ids]
        return (yield from write_stamped(db, self.table, rows, is_durable=is_durable))


class HotRows(Scenario):
    """A few counters that all callers read and increment."""

    name = "hot_rows"
    summary = "increments of the same few rows by all: conflicts, and no lost update"

    def __init__(self, random: Random, parameters: Parameters) -> None:
        super().__init__(random, parameters)
        self.row_count = parameters.hot_rows
        self.table = TableShape(
            "//hot_rows/counters",
            (
                Column("id", "int64", sort_order="ascending"),
                Column("count", "int64"),
                Column("writer", "utf8"),
            ),
            even_pivots(self.row_count, parameters.tablets),
        )
        self._increments: dict[str, int] = {}
        """Transactions that add one, and the row to which they add."""

    @property
    def operations(self) -> Mapping[str, tuple[float, Operation]]:
        reads = self.parameters.reads(0.2)
        return {"increment": (1 - reads, self._increment), "lookup": (reads, self.look)}

    def set_up(self, db: Recorder) -> Protocol[bool]:
        return (yield from self.fill(db, self.row_count, lambda ids: [_count(db, i) for i in ids]))

    def draw_key(self, random: Random) -> dict[str, Any]:
        return {"id": random.randrange(self.row_count)}

    def touch(self, db: Recorder) -> Protocol[bool]:
        attempt = yield from db.begin()
        keys = [{"id": number} for number in first_keys(self.table)]
        for row in (yield from attempt.lookup(self.table, keys)):
            if row is not None:
                yield from attempt.insert(self.table, _count(db, row["id"], row["count"]))
        return (yield from attempt.commit())

    def _increment(self, db: Recorder) -> Protocol[None]:
        attempt = yield from db.begin()
        yield from give_up_on_error(attempt, self._add_one(db, attempt))

    def _add_one(self, db: Recorder, attempt: Attempt) -> Protocol[bool]:
        key = self.draw_key(db.random)
        (row,) = yield from attempt.lookup(self.table, [key])
        if row is None:
            self.flag(f"at {attempt.record.start} there is no row {key}")
            return False
        self._increments[attempt.record.name] = row["id"]
        yield from attempt.insert(self.table, _count(db, row["id"], row["count"] + 1))
        return True

    def check_versions(self, history: History, dump: Sequence[Version]) -> list[Violation]:
        """Check that each counter is the sum of its increments."""
        added = dict.fromkeys(range(self.row_count), 0)
        for t, _ in attribute(history.transactions, dump).committed:
            if t.name in self._increments:
                added[self._increments[t.name]] += 1
        newest = {
            version.row: dict(version.columns or ()).get("count")
            for version in sorted(dump, key=lambda it: it.timestamp)
        }
        violations = []
        for number, count in added.items():
            found = newest.get(self.table.row_key({"id": number}))
            if found != count:
                text = f"counter {number} is {found} in the end, after {count} increments"
                violations.append(Violation("INVARIANT", text))
        return violations


def _count(db: Recorder, number: int, count: int = 0) -> dict[str, Any]:
    return {"id": number, "count": count, "writer": db.unique_value()}


class SnapshotReads(RowsScenario):
    """Lookups of several keys at a snapshot, new and old, beside writers of single rows."""

    name = "snapshot_reads"
    summary = "lookups of several keys at a timestamp, of now or of before, beside writers"

    @property
    def operations(self) -> Mapping[str, tuple[float, Operation]]:
        reads = self.parameters.reads(0.9)
        return {
            "lookup at a new snapshot": (reads * (1 - OLD_SHARE), self._look_up),
            "lookup at an old snapshot": (reads * OLD_SHARE, self._look_back),
            "commit of a row": (1 - reads, self.write),
        }

    def _look_up(self, db: Recorder) -> Protocol[None]:
        attempt = yield from db.begin_reading()
        self._snapshots = [*self._snapshots[1 - SNAPSHOTS_MAX :], attempt.record.start]
        yield from give_up_on_error(attempt, self._read(db, attempt))

    def _look_back(self, db: Recorder) -> Protocol[None]:
        if not self._snapshots:
            yield from self._look_up(db)
            return
        attempt = db.begin_at(db.random.choice(self._snapshots))
        yield from give_up_on_error(attempt, self._read(db, attempt))

    def _read(self, db: Recorder, attempt: Attempt) -> Protocol[bool]:
        count = min(self.parameters.keys_per_read, self.row_count)
        keys = [{"id": it} for it in db.random.sample(range(self.row_count), count)]
        yield from attempt.lookup(self.table, keys)
        return False


class Scans(RowsScenario):
    """Scans of ranges at a snapshot, beside writers of single rows."""

    name = "scans"
    summary = "scans of ranges of keys at a timestamp, beside writers"

    @property
    def operations(self) -> Mapping[str, tuple[float, Operation]]:
        reads = self.parameters.reads(0.8)
        return {"scan": (reads, self._scan), "commit of a row": (1 - reads, self.write)}

    def _scan(self, db: Recorder) -> Protocol[None]:
        attempt = yield from db.begin_reading()
        yield from give_up_on_error(attempt, self._read(db, attempt))

    def _read(self, db: Recorder, attempt: Attempt) -> Protocol[bool]:
        first = db.random.randrange(self.row_count)
        count = db.random.randint(1, self.parameters.scan_rows_max)
        yield from attempt.scan(self.table, [first], [first + count])
        return False
