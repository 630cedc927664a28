"""Slow transactions: they read, think for seconds, and then write or lock the rows they read.

Owns: counters in many tablets, of which a cell has several, and gates: rows without data that are
only ever locked. A transaction lasts as long as an unmount and a mount of a table. So another mount
serves its rows when it commits. A transaction raises a counter that it has read. In the end the
counter is the number of acknowledged raises, plus at most the unsure ones. Rows are locked without
data in two ways. Each lock must be respected as long as a transaction lives that began before it.
Some transactions run again until they commit, as the client does it for its callers. Each of them
commits once, with any outcome of its earlier attempts.
"""

from collections.abc import Mapping, Sequence
from random import Random
from typing import Any, Final

from dodona._core.protocol.steps import Pause, Protocol
from dodona_loadtest.checkers.violation import Violation
from dodona_loadtest.histories.early_locks import is_to_run_again
from dodona_loadtest.histories.history import History, RowKey, Transaction
from dodona_loadtest.histories.recorder import Attempt, Recorder
from dodona_loadtest.histories.shape import Row, TableShape
from dodona_loadtest.workloads.workload import Workload
from dodona_wire.errors import DodonaError
from dodona_wire.rows.schema import Column

COUNTERS_PER_TABLET: Final = 2
ROWS_PER_TABLET: Final = 3
"""The last row of each tablet is a gate."""
THOUGHT_MS_MEAN: Final = 1_200
THOUGHT_MS_MAX: Final = 6_000
RERUN_RATE: Final = 0.4
RERUNS_MAX: Final = 6
RERUN_MS_MAX: Final = 20_000
LONG_US: Final = 1_000_000
"""Microseconds after which a transaction counts as slow."""


class SlowTransactions(Workload):
    """Rows 0 to n-1: of each three, two are counters, and one is a gate."""

    name = "slow_transactions"

    def __init__(self, random: Random) -> None:
        super().__init__(random)
        self.tablet_count = random.choice((4, 6, 8))
        self.slow_rate = random.choice((0.3, 0.7))
        self.gate_rate = random.choice((0.1, 0.4))
        self.exclusive_rate = random.choice((0.05, 0.5))
        pivots = [(ROWS_PER_TABLET * index,) for index in range(1, self.tablet_count)]
        self.table = TableShape(
            "//slow/counters",
            (
                Column("id", "int64", sort_order="ascending"),
                Column("count", "int64", lock="count"),
                Column("writer", "utf8", lock="count"),
                Column("note", "utf8", lock="note"),
            ),
            ((), *pivots),
        )

    @property
    def counters(self) -> list[int]:
        """The numbers of the rows that have data."""
        rows = range(ROWS_PER_TABLET * self.tablet_count)
        return [row for row in rows if row % ROWS_PER_TABLET < COUNTERS_PER_TABLET]

    def set_up(self, db: Recorder) -> Protocol[bool]:
        attempt = yield from db.begin()
        for number in self.counters:
            yield from self._put(db, attempt, number, 1)
        return (yield from attempt.commit())

    def touch(self, db: Recorder) -> Protocol[bool]:
        attempt = yield from db.begin()
        numbers = [ROWS_PER_TABLET * index for index in range(self.tablet_count)]
        rows = yield from attempt.lookup(self.table, [{"id": number} for number in numbers])
        for number, row in zip(numbers, rows, strict=True):
            yield from self._raise(db, attempt, number, row)
        return (yield from attempt.commit())

    def transact(self, db: Recorder) -> Protocol[None]:
        """Use rows of two tablets or three, often of one cell."""
        count = 2 if db.random.random() < 0.7 else 3
        tablets = db.random.sample(range(self.tablet_count), count)
        numbers = [
            ROWS_PER_TABLET * tablet + db.random.randrange(COUNTERS_PER_TABLET)
            for tablet in tablets
        ]
        if db.is_watched and db.random.random() < RERUN_RATE:
            yield from self._run_until_committed(db, numbers)
        else:
            attempt = yield from self._attempt(db, numbers)
            yield from attempt.commit()

    def _run_until_committed(self, db: Recorder, numbers: Sequence[int]) -> Protocol[None]:
        rerun = db.session.rerun(RERUNS_MAX, RERUN_MS_MAX)
        while True:
            attempt = yield from self._attempt(db, numbers)
            if (yield from attempt.commit()):
                break
            if not (yield from is_to_run_again(db, attempt, rerun)):
                break
            self.count("run again")

    def _attempt(self, db: Recorder, numbers: Sequence[int]) -> Protocol[Attempt]:
        attempt = yield from db.begin()
        try:
            rows = yield from attempt.lookup(self.table, [{"id": number} for number in numbers])
            yield from self._think(db.random)
            yield from self._act(db, attempt, numbers, rows)
        except DodonaError as error:
            attempt.give_up(error)
            raise
        return attempt

    def _think(self, random: Random) -> Protocol[None]:
        if random.random() < self.slow_rate:
            thought_ms = 1 + int(random.expovariate(1 / THOUGHT_MS_MEAN))
            yield Pause(min(thought_ms, THOUGHT_MS_MAX))

    def _act(
        self, db: Recorder, attempt: Attempt, numbers: Sequence[int], rows: Sequence[Row | None]
    ) -> Protocol[None]:
        """Raise the first counter, mostly; raise or lock the others; lock gates beside them."""
        is_reader = db.random.random() < 0.15
        for place, (number, row) in enumerate(zip(numbers, rows, strict=True)):
            if db.random.random() < self.gate_rate:
                gate = number - number % ROWS_PER_TABLET + COUNTERS_PER_TABLET
                yield from self._lock(db, attempt, gate)
            if is_reader or (place > 0 and db.random.random() < 0.3):
                yield from self._lock(db, attempt, number)
            else:
                yield from self._raise(db, attempt, number, row)

    def _lock(self, db: Recorder, attempt: Attempt, number: int) -> Protocol[None]:
        """Lock a row without data: exclusively, or for reading."""
        groups = db.random.choice((["count"], ["note"], ["count", "note"], None))
        is_exclusive = db.random.random() < self.exclusive_rate
        yield from attempt.lock(self.table, {"id": number}, groups, is_exclusive=is_exclusive)

    def _raise(
        self, db: Recorder, attempt: Attempt, number: int, row: Row | None
    ) -> Protocol[None]:
        if row is None:
            self.flag(f"at {attempt.record.start} counter {number} is not there")
            return
        yield from self._put(db, attempt, number, row["count"] + 1)

    def _put(self, db: Recorder, attempt: Attempt, number: int, count: int) -> Protocol[None]:
        row = {"id": number, "count": count, "writer": db.unique_value()}
        yield from attempt.insert(self.table, row, is_update=True)

    def draw_key(self, random: Random) -> dict[str, Any]:
        return {"id": random.choice(self.counters)}

    def problem(self, rows: list[dict[str, Any]]) -> str | None:
        there = [row["id"] for row in rows]
        return None if there == self.counters else f"the rows are {there}, not {self.counters}"

    def check(self, history: History) -> list[Violation]:
        """Compare each counter with the last look at the whole table, after all sessions."""
        self.count("slow commits", sum(map(_is_slow, history.transactions)))
        self.count("turned away", sum(map(_was_turned_away, history.transactions)))
        last = max(
            (t for t in history.transactions if t.scans and t.status == "ok"),
            key=lambda t: t.start,
            default=None,
        )
        if last is None:
            return []
        seen = {read.row: dict(read.columns or ()) for read in last.scans[0].reads}
        return [
            Violation("INVARIANT", problem)
            for number in self.counters
            if (problem := self._miscount(history, number, seen, last))
        ]

    def _miscount(
        self,
        history: History,
        number: int,
        seen: Mapping[RowKey, Mapping[str, Any]],
        last: Transaction,
    ) -> str | None:
        row = self.table.row_key({"id": number})
        count = seen.get(row, {}).get("count", 0)
        sure = unsure = 0
        for t in history.transactions:
            if not any(write.row == row for write in t.writes):
                continue
            if t.status == "ok" and t.end_us is not None and t.end_us < last.begin_us:
                sure += 1
            elif t.commit_us is not None and t.status != "fail":
                unsure += 1
        if sure <= count <= sure + unsure:
            return None
        return f"counter {number} is {count}, after {sure} raises and {unsure} unsure ones"


def _is_slow(t: Transaction) -> bool:
    is_known = t.status == "ok" and t.commit_us is not None and t.begun_us is not None
    return is_known and (t.commit_us or 0) - (t.begun_us or 0) > LONG_US


def _was_turned_away(t: Transaction) -> bool:
    """Return whether a fence or its age turned the transaction away."""
    return t.error.startswith("snapshot_too_old")
