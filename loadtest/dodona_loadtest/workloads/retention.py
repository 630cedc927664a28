"""Retention: rows that expire, however they were written, beside rows that stay.

Owns: a table whose rows expire, even the newest version of each, and the record of its writes. Some
tablets get rows by transactions, some by bulk loads, some by both. All of them have commits that
only lock. Each row is written once. An acknowledged row is there until it is as old as the table's
settings say. After all sessions have ended, all rows go, and the simulator checks that. The
checkers of histories want every version, so these rows are in no history. Beside them is a table
that keeps all versions, for ordinary transactions.
"""

from collections.abc import Mapping
from contextlib import suppress
from random import Random
from typing import Any, Final

import pyarrow

from dodona._core.protocol.steps import Pause, Protocol
from dodona_loadtest.histories.recorder import Attempt, Recorder
from dodona_loadtest.histories.shape import TableShape
from dodona_loadtest.workloads.workload import Workload
from dodona_wire.errors import CommitOutcomeUnknown, DodonaError
from dodona_wire.rows.schema import Column
from dodona_wire.types import TIMESTAMP_COUNTER_BITS, LockType, Timestamp

ROWS_PER_TABLET: Final = 4
WRITTEN: Final = (0, 1)
LOADED: Final = (1, 2, 3)
"""Tablets of the table whose rows expire. Tablets 2 and 3 get rows by loads alone."""
LANES: Final = range(4)
LOCKED_KEYS: Final = 3
"""The number of keys of each tablet that are locked, and never written."""
LEASE_MS: Final = 1_000

Key = tuple[int, int]


class Retention(Workload):
    """Rows 0 to n-1 stay, and have a mark; those of the other table expire."""

    name = "retention"
    needs_python_client = True

    def __init__(self, random: Random) -> None:
        super().__init__(random)
        self.tablet_count = random.choice((2, 3))
        self.row_count = ROWS_PER_TABLET * self.tablet_count
        self.load_rate = random.choice((0.2, 0.5))
        self.lock_rate = random.choice((0.1, 0.3))
        self.table = TableShape(
            "//retention/lasting",
            (Column("id", "int64", sort_order="ascending"), Column("mark", "utf8")),
            ((), *[(ROWS_PER_TABLET * index,) for index in range(1, self.tablet_count)]),
        )
        self.passing = TableShape(
            "//retention/passing",
            (
                Column("lane", "int64", sort_order="ascending"),
                Column("n", "int64", sort_order="descending"),
                Column("mark", "utf8"),
            ),
            ((), *[(lane,) for lane in LANES[1:]]),
            ttl_ms=random.choice((1_000, 12_000)),
        )
        self._next = LOCKED_KEYS
        self._marks: dict[Key, str] = {}
        """Marks of all rows that were written here, or may have been."""
        self._refused: set[Key] = set()
        self._committed: dict[Key, int] = {}
        """Commit timestamps of acknowledged rows, until the rows are old."""

    @property
    def expiring(self) -> list[TableShape]:
        return [self.passing]

    def draw_key(self, random: Random) -> dict[str, Any]:
        return {"id": random.randrange(self.row_count)}

    # Before and after

    def set_up(self, db: Recorder) -> Protocol[bool]:
        return (yield from self._mark_all(db, range(self.row_count)))

    def touch(self, db: Recorder) -> Protocol[bool]:
        """Write to every tablet. Abandoned loads are recovered, too."""
        yield from db.session.loads.recover("the last")
        if not (yield from self._mark_all(db, range(0, self.row_count, ROWS_PER_TABLET))):
            return False
        for lane in LANES:
            yield from self._write(db, lane) if lane in WRITTEN else self._lock(db, lane)
        return True

    def _mark_all(self, db: Recorder, numbers: range) -> Protocol[bool]:
        attempt = yield from db.begin()
        for number in numbers:
            yield from attempt.insert(self.table, {"id": number, "mark": db.unique_value()})
        return (yield from attempt.commit())

    # What sessions do

    def transact(self, db: Recorder) -> Protocol[None]:
        dice = db.random.random()
        if dice < 0.15:
            yield from self._use_lasting(db)
        elif dice < 0.15 + self.lock_rate:
            yield from self._lock(db, db.random.choice(LANES))
        elif dice < 0.15 + self.lock_rate + self.load_rate:
            yield from self._load(db, db.random.choice(LOADED))
        else:
            yield from self._write(db, db.random.choice(WRITTEN))

    def _use_lasting(self, db: Recorder) -> Protocol[None]:
        attempt = yield from db.begin()
        keys = [{"id": number} for number in db.random.sample(range(self.row_count), 2)]
        try:
            yield from attempt.lookup(self.table, keys[:1])
            for key in keys:
                yield from attempt.insert(self.table, key | {"mark": db.unique_value()})
        except DodonaError as error:
            attempt.give_up(error)
            raise
        yield from attempt.commit()

    def _lock(self, db: Recorder, lane: int) -> Protocol[None]:
        """Commit without a write."""
        session = db.session
        buffer = yield from session.begin()
        key = {"lane": lane, "n": db.random.randrange(LOCKED_KEYS)}
        kind: LockType = "exclusive" if db.random.random() < 0.3 else "shared_strong"
        yield from session.lock_rows(buffer, self.passing.path, [key], lock_type=kind)
        yield from session.commit(buffer)
        self.count("locked without data")

    def _write(self, db: Recorder, lane: int) -> Protocol[None]:
        session, rows = db.session, self._draw_rows(db, lane)
        buffer = yield from session.begin()
        yield from session.insert_rows(buffer, self.passing.path, rows)
        self._note(rows)
        try:
            timestamp = yield from session.commit(buffer)
        except CommitOutcomeUnknown:
            raise
        except DodonaError:
            self._forget(rows)
            raise
        self._acknowledge(rows, timestamp)
        self.count("passing rows written", len(rows))

    def _load(self, db: Recorder, lane: int) -> Protocol[None]:
        """Load rows. After a refusal their outcome is not known."""
        loads, path, rows = db.session.loads, self.passing.path, self._draw_rows(db, lane)
        ticket = yield from loads.begin([path], lease_ms=LEASE_MS, owner=db.name)
        self._note(rows)
        try:
            batch = pyarrow.RecordBatch.from_pylist(rows)
            staged = yield from loads.stage(ticket, path, batch, 0, 0)
            if db.random.random() < 0.2:
                yield Pause(db.random.randrange(1, 50))
            published = yield from loads.publish(ticket, staged)
        except DodonaError:
            with suppress(DodonaError):
                yield from loads.abort(ticket, "it failed")
            raise
        self._acknowledge(rows, published.timestamp)
        self.count("passing rows loaded", len(rows))

    def _draw_rows(self, db: Recorder, lane: int) -> list[dict[str, Any]]:
        """Return rows with keys that no other session has."""
        first = self._next
        self._next += db.random.randrange(1, 5)
        return [
            {"lane": lane, "n": number, "mark": db.unique_value()}
            for number in range(first, self._next)
        ]

    def _note(self, rows: list[dict[str, Any]]) -> None:
        self._marks |= {_key(row): row["mark"] for row in rows}

    def _forget(self, rows: list[dict[str, Any]]) -> None:
        """Note that these rows were refused."""
        self._refused |= {_key(row) for row in rows}

    def _acknowledge(self, rows: list[dict[str, Any]], timestamp: int | None) -> None:
        assert timestamp is not None
        self._committed |= dict.fromkeys(map(_key, rows), timestamp)

    # Judgement

    def _judge(self, attempt: Attempt) -> Protocol[None]:
        yield from super()._judge(attempt)
        yield from self._judge_passing(attempt)

    def _judge_passing(self, attempt: Attempt) -> Protocol[None]:
        """Check that rows committed at or below a snapshot are there, as long as they are young
        enough. A timestamp taken afterwards shows how old a row can have been at most."""
        path, at = self.passing.path, Timestamp(attempt.record.start)
        known = [(key, it) for key, it in self._committed.items() if it <= at]
        rows = yield from attempt.session.select(path, timestamp=at)
        found = {_key(row): row["mark"] for row in rows}
        now = yield from attempt.session.generate_timestamp()
        oldest = now - ((self.passing.ttl_ms or 0) << TIMESTAMP_COUNTER_BITS) // 1000
        young = [key for key, it in known if it >= oldest]
        self.count("young rows looked for", len(young))
        for key in young:
            if key not in found:
                self.flag(f"at {at} row {key} is not there, but no older than {oldest}")
        self._judge_found(at, found)
        self._committed = {key: it for key, it in self._committed.items() if it >= oldest}

    def _judge_found(self, at: int, found: Mapping[Key, str]) -> None:
        """Judge rows by the writes of this process. Another process may have other rows."""
        for key, mark in found.items():
            if key in self._refused:
                self.flag(f"at {at} row {key} is there, but its transaction was refused")
            if key in self._marks and self._marks[key] != mark:
                self.flag(f"at {at} row {key} has {mark}, but {self._marks[key]} was written")

    def problem(self, rows: list[dict[str, Any]]) -> str | None:
        there = [row["id"] for row in rows]
        lasting = list(range(self.row_count))
        return None if there == lasting else f"the rows are {there}, not {lasting}"


def _key(row: Mapping[str, Any]) -> Key:
    return row["lane"], row["n"]
