"""Counters: a table without atomicity, in which the last write of each row wins.

Owns: rows over several tablets, which have their writer's mark twice. A call writes several of
them. Some calls are answered from memory and some from the disk. Rows are read back directly
afterwards, and as a whole. A checker judges the timestamps. Here each row must be whole.
"""

from collections.abc import Sequence
from random import Random
from typing import Any, Final

from dodona._core.protocol.steps import Protocol
from dodona_loadtest.checkers.violation import Violation
from dodona_loadtest.histories.history import History, StampedWrite
from dodona_loadtest.histories.recorder import Recorder
from dodona_loadtest.histories.shape import Row, TableShape
from dodona_loadtest.histories.stamped import lookup_stamped, scan_stamped, write_stamped
from dodona_loadtest.workloads.workload import Workload
from dodona_wire.rows.schema import Column

ROWS_PER_TABLET: Final = 3
ROWS_PER_CALL_MAX: Final = 4


class Counters(Workload):
    """Rows 0 to n-1."""

    name = "counters"

    def __init__(self, random: Random) -> None:
        super().__init__(random)
        self.tablet_count = random.choice((2, 3, 4))
        self.row_count = ROWS_PER_TABLET * self.tablet_count
        self.durable_rate = random.choice((0.0, 0.2, 0.5, 1.0))
        pivots = [(ROWS_PER_TABLET * index,) for index in range(1, self.tablet_count)]
        self.table = TableShape(
            "//counters/rows",
            (
                Column("id", "int64", sort_order="ascending"),
                Column("mark", "utf8", required=True),
                Column("count", "int64"),
                Column("twin", "utf8", required=True),
            ),
            ((), *pivots),
            atomicity="none",
        )

    def set_up(self, db: Recorder) -> Protocol[bool]:
        told = yield from self._write(db, range(self.row_count), is_durable=True)
        return all(write.status == "ok" for write in told)

    def touch(self, db: Recorder) -> Protocol[bool]:
        """Write to every tablet. A refusal for the clock is an answer too: if a master's clock was
        ahead for a while, its timestamps stay ahead forever."""
        told = yield from self._write(db, range(self.row_count), is_durable=True)
        return all(write.status == "ok" or write.clocks is not None for write in told)

    def transact(self, db: Recorder) -> Protocol[None]:
        count = db.random.randint(1, ROWS_PER_CALL_MAX)
        numbers = db.random.sample(range(self.row_count), count)
        is_durable = db.random.random() < self.durable_rate
        yield from self._write(db, numbers, is_durable=is_durable)
        if db.random.random() < 0.3:
            yield from lookup_stamped(db, self.table, [{"id": number} for number in numbers])

    def _write(
        self, db: Recorder, numbers: Sequence[int], *, is_durable: bool
    ) -> Protocol[list[StampedWrite]]:
        rows = []
        for count, number in enumerate(numbers):
            mark = db.unique_value()
            rows.append({"id": number, "mark": mark, "count": count, "twin": mark})
        return (yield from write_stamped(db, self.table, rows, is_durable=is_durable))

    def look(self, db: Recorder) -> Protocol[None]:
        yield from lookup_stamped(db, self.table, [self.draw_key(db.random)])

    def audit(self, db: Recorder) -> Protocol[None]:
        """Look at all rows. There is no state of the whole table, but each row has one."""
        keys = [{"id": number} for number in range(self.row_count)]
        problem = self.problem((yield from scan_stamped(db, self.table, keys)))
        if problem:
            self.flag(problem)

    def draw_key(self, random: Random) -> dict[str, Any]:
        return {"id": random.randrange(self.row_count)}

    def problem(self, rows: Sequence[Row]) -> str | None:
        for row in rows:
            if row["mark"] != row["twin"]:
                return f"row {row['id']} is half {row['mark']} and half {row['twin']}"
        return None

    def check(self, history: History) -> list[Violation]:
        """Check nothing more: only count what a run contains."""
        for write in history.stamped_writes:
            kind = "clock refused" if write.clocks is not None else f"rows {write.status}"
            self.count(kind)
        return super().check(history)
