"""Hot rows: a few rows that sessions lock before they begin, beside others that only write them.

Owns: owners that wait in line, do not wait, or take rows that are free. They read and write some of
their rows, or others, or vanish with their locks. Beside them there are transactions that begin
with locks only after several conflicts, writes without a transaction, and conditions. Each row has
a number that transactions raise by what they read, and a note that others write.
"""

from collections.abc import Sequence
from random import Random
from typing import Any, Final

from dodona._core.protocol.steps import Pause, Protocol
from dodona._core.writing.conditions import Requirement
from dodona._core.writing.early_locks import Waiting
from dodona_loadtest.checkers.violation import Violation
from dodona_loadtest.histories.early_locks import (
    begin_again,
    begin_locked,
    is_to_run_again,
)
from dodona_loadtest.histories.history import History
from dodona_loadtest.histories.recorder import Attempt, Recorder
from dodona_loadtest.histories.shape import Row, TableShape
from dodona_loadtest.workloads.workload import Workload
from dodona_wire.errors import DodonaError
from dodona_wire.rows.schema import Column
from dodona_wire.types import NULL_TIMESTAMP

ROWS_PER_TABLET: Final = 3
LOCKED_ROWS_MAX: Final = 4
THOUGHT_MS_MAX: Final = 60
LONG_THOUGHT_MS_MAX: Final = 1_500
WAITS_MS: Final = (20, 300, 3_000)
RERUNS_MAX: Final = 8
RERUN_MS_MAX: Final = 5_000


class HotRows(Workload):
    """Rows 0 to n-1. Most sessions want the first rows of each tablet."""

    name = "hot_rows"
    needs_python_client = True
    cells_min = 2

    def __init__(self, random: Random) -> None:
        super().__init__(random)
        self.tablet_count = random.choice((2, 3, 4))
        self.vanish_rate = random.choice((0.0, 0.05, 0.2))
        self.row_count = ROWS_PER_TABLET * self.tablet_count
        pivots = [(ROWS_PER_TABLET * index,) for index in range(1, self.tablet_count)]
        self.table = TableShape(
            "//hot/rows",
            (
                Column("id", "int64", sort_order="ascending"),
                Column("number", "int64", lock="number"),
                Column("writer", "utf8", lock="number"),
                Column("note", "utf8", lock="note"),
            ),
            ((), *pivots),
        )

    def set_up(self, db: Recorder) -> Protocol[bool]:
        attempt = yield from db.begin()
        for row in range(self.row_count):
            number = {"id": row, "number": 0, "writer": db.unique_value()}
            yield from attempt.insert(self.table, number)
        return (yield from attempt.commit())

    def touch(self, db: Recorder) -> Protocol[bool]:
        attempt = yield from db.begin()
        for tablet in range(self.tablet_count):
            note = {"id": ROWS_PER_TABLET * tablet, "note": db.unique_value()}
            yield from attempt.insert(self.table, note, is_update=True)
        return (yield from attempt.commit())

    def transact(self, db: Recorder) -> Protocol[None]:
        dice = db.random.random()
        if dice < 0.35:
            waiting = Waiting(db.random.choice(WAITS_MS))
            yield from self._lock_and_write(db, self._draw_rows(db.random), waiting)
        elif dice < 0.43:
            yield from self._lock_and_write(db, self._draw_rows(db.random), Waiting(0))
        elif dice < 0.55:
            rows = db.random.sample(range(self.row_count), self.row_count)
            yield from self._lock_and_write(db, rows, Waiting(0, db.random.randint(1, 3)))
        elif dice < 0.75:
            yield from self._run_until_committed(db)
        elif dice < 0.95:
            note = {"id": self._draw_row(db.random), "note": db.unique_value()}
            yield from db.write(self.table, [note], is_update=True)
        else:
            yield from self._write_beside(db)

    # With locks first

    def _lock_and_write(
        self, db: Recorder, numbers: Sequence[int], waiting: Waiting
    ) -> Protocol[None]:
        keys = [{"id": number} for number in numbers]
        attempt = yield from begin_locked(db, self.table, keys, waiting)
        try:
            locked = [key["id"] for key in attempt.locked_keys]
            yield from self._think(db.random)
            yield from self._raise_some(db, attempt, locked)
        except DodonaError as error:
            yield from attempt.abort(error)
            raise
        dice = db.random.random()
        if dice < self.vanish_rate:
            attempt.vanish()
        elif dice < self.vanish_rate + 0.05 or not attempt.record.writes:
            yield from attempt.abort()
        else:
            yield from attempt.commit()

    def _raise_some(self, db: Recorder, attempt: Attempt, locked: Sequence[int]) -> Protocol[None]:
        """Raise some of the locked rows, and sometimes another one. Or raise only another one: then
        the locked rows keep others out, and are not written."""
        is_beside = db.random.random() < 0.3
        chosen = [] if is_beside else [it for it in locked if db.random.random() < 0.7]
        if locked and (is_beside or db.random.random() < 0.3):
            chosen = list(dict.fromkeys([*chosen, self._draw_row(db.random)]))
        yield from self._raise(db, attempt, chosen)

    def _raise(self, db: Recorder, attempt: Attempt, numbers: Sequence[int]) -> Protocol[None]:
        rows = yield from attempt.lookup(self.table, [{"id": number} for number in numbers])
        for number, row in zip(numbers, rows, strict=True):
            yield from attempt.insert(self.table, self._after(db, number, row), is_update=True)

    def _after(self, db: Recorder, number: int, row: Row | None) -> dict[str, Any]:
        before = 0 if row is None else row["number"] or 0
        return {"id": number, "number": before + 1, "writer": db.unique_value()}

    def _think(self, random: Random) -> Protocol[None]:
        dice = random.random()
        if dice < 0.6:
            longest_ms = THOUGHT_MS_MAX if dice < 0.5 else LONG_THOUGHT_MS_MAX
            yield Pause(random.randrange(1, longest_ms))

    # Without locks, or with locks after conflicts

    def _run_until_committed(self, db: Recorder) -> Protocol[None]:
        """Do as `run_in_transaction` does: lock the rows first after several conflicts."""
        numbers = self._draw_rows(db.random)
        rerun = db.session.rerun(RERUNS_MAX, RERUN_MS_MAX)
        while True:
            attempt = yield from begin_again(db, rerun)
            try:
                yield from self._think(db.random)
                yield from self._raise(db, attempt, numbers)
            except DodonaError as error:
                yield from attempt.abort(error)
                raise
            if (yield from attempt.commit()):
                break
            if not (yield from is_to_run_again(db, attempt, rerun)):
                break
            self.count("locked after conflicts", bool(rerun.rows))

    def _write_beside(self, db: Recorder) -> Protocol[None]:
        """Write a row while another one is as it was seen."""
        number, kept = db.random.sample(range(self.row_count), 2)
        seen = yield from db.lookup_latest(self.table, {"id": kept})
        attempt = yield from db.begin()
        try:
            note = {"id": number, "note": db.unique_value()}
            yield from attempt.insert(self.table, note, is_update=True)
            if seen is not None:
                required = Requirement(False, NULL_TIMESTAMP, {"number": seen["number"]})
                yield from attempt.require(self.table, {"id": kept}, required)
        except DodonaError as error:
            attempt.give_up(error)
            raise
        yield from attempt.commit()

    def _draw_rows(self, random: Random) -> list[int]:
        drawn = [self._draw_row(random) for _ in range(random.randint(1, LOCKED_ROWS_MAX))]
        return list(dict.fromkeys(drawn))

    def _draw_row(self, random: Random) -> int:
        """Half of the draws are the first row of a tablet."""
        if random.random() < 0.5:
            return ROWS_PER_TABLET * random.randrange(self.tablet_count)
        return random.randrange(self.row_count)

    def draw_key(self, random: Random) -> dict[str, Any]:
        return {"id": random.randrange(self.row_count)}

    def problem(self, rows: list[dict[str, Any]]) -> str | None:
        there = {row["id"] for row in rows}
        lost = [number for number in range(self.row_count) if number not in there]
        return f"the rows {lost} are not there" if lost else None

    def check(self, history: History) -> list[Violation]:
        """Check nothing more: only count what became of those that locked first."""
        for t in history.transactions:
            if t.owners:
                what = f"locked_{t.status}" if t.locked_early else "not_locked"
                self.count(what)
        return super().check(history)
