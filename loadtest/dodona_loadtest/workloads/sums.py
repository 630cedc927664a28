"""Sums: changes of aggregate columns, which need no read.

Owns: rows whose balances always add up to 0, and a count of the changes. In the end the count is
that of acknowledged changes, plus at most the unsure ones. In some runs changes take shared locks
and do not conflict. Sometimes a transaction that has read a row replaces all earlier changes by
plain values.
"""

from random import Random
from typing import Any, Final

from dodona._core.protocol.steps import Protocol
from dodona_loadtest.checkers.violation import Violation
from dodona_loadtest.histories.history import History
from dodona_loadtest.histories.recorder import Attempt, Recorder
from dodona_loadtest.histories.shape import TableShape
from dodona_loadtest.workloads.workload import Workload
from dodona_wire.errors import DodonaError
from dodona_wire.rows.schema import Column

ROWS_PER_TABLET: Final = 2
AMOUNT_MAX: Final = 50


class Sums(Workload):
    """Rows 0 to n-1, each with a balance and the number of changes to it."""

    name = "sums"

    def __init__(self, random: Random) -> None:
        super().__init__(random)
        self.tablet_count = random.choice((2, 3))
        self.row_count = ROWS_PER_TABLET * self.tablet_count
        self.is_shared = random.random() < 0.5
        self.plain_rate = random.choice((0.0, 0.1))
        pivots = [(ROWS_PER_TABLET * index,) for index in range(1, self.tablet_count)]
        self.table = TableShape(
            "//sums/rows",
            (
                Column("id", "int64", sort_order="ascending"),
                Column("balance", "int64", aggregate="sum"),
                Column("changes", "int64", aggregate="sum"),
                Column("writer", "utf8"),
            ),
            ((), *pivots),
            has_shared_writes=self.is_shared,
        )

    def set_up(self, db: Recorder) -> Protocol[bool]:
        attempt = yield from db.begin()
        for number in range(self.row_count):
            yield from self._change(db, attempt, number, 0)
        return (yield from attempt.commit())

    def touch(self, db: Recorder) -> Protocol[bool]:
        return (yield from self.set_up(db))

    def transact(self, db: Recorder) -> Protocol[None]:
        attempt = yield from db.begin()
        try:
            if db.random.random() < self.plain_rate:
                yield from self._settle(db, attempt, db.random.randrange(self.row_count))
            else:
                source, target = db.random.sample(range(self.row_count), 2)
                amount = db.random.randint(1, AMOUNT_MAX)
                yield from self._change(db, attempt, source, -amount)
                yield from self._change(db, attempt, target, amount)
        except DodonaError as error:
            attempt.give_up(error)
            raise
        yield from attempt.commit()

    def _change(self, db: Recorder, attempt: Attempt, number: int, amount: int) -> Protocol[None]:
        row = {"id": number, "balance": amount, "changes": 1, "writer": db.unique_value()}
        yield from attempt.insert(
            self.table, row, is_update=True, is_aggregate=True, is_shared=self.is_shared
        )

    def _settle(self, db: Recorder, attempt: Attempt, number: int) -> Protocol[None]:
        """Write plain values in place of the earlier changes. This counts as a change as well."""
        (row,) = yield from attempt.lookup(self.table, [{"id": number}])
        if row is None:
            self.flag(f"at {attempt.record.start} row {number} is not there")
            return
        settled = {"id": number, "balance": row["balance"], "changes": row["changes"] + 1}
        yield from attempt.insert(self.table, {**settled, "writer": db.unique_value()})

    def draw_key(self, random: Random) -> dict[str, Any]:
        return {"id": random.randrange(self.row_count)}

    def problem(self, rows: list[dict[str, Any]]) -> str | None:
        total = sum(row["balance"] for row in rows)
        if len(rows) != self.row_count:
            return f"{self.row_count - len(rows)} rows are not there"
        return None if total == 0 else f"the balances add up to {total}"

    def check(self, history: History) -> list[Violation]:
        """Compare the count with the last look at the whole table, after all sessions."""
        looks = [t for t in history.transactions if t.scans and t.status == "ok"]
        if not looks:
            return []
        last = max(looks, key=lambda t: t.start)
        changes = sum(dict(read.columns or ())["changes"] for read in last.scans[0].reads)
        sure = unsure = 0
        for t in history.transactions:
            if t.status == "ok" and t.end_us is not None and t.end_us < last.begin_us:
                sure += len(t.writes)
            elif t.commit_us is not None and t.status != "fail":
                unsure += len(t.writes)
        self.count("changes", changes)
        if sure <= changes <= sure + unsure:
            return []
        text = f"{changes} changes at {last.start}, after {sure} and {unsure} unsure ones"
        return [Violation("INVARIANT", text)]
