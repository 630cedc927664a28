"""Column groups: writers of different lock groups of a row do not conflict, except with main.

Owns: counters, one for each lock group of each row. A transaction raises a counter that it has
read. In the end each counter is the number of acknowledged raises, plus at most the unsure ones.
Some rows are deleted and made again. A counter elsewhere counts that, so that no transaction only
deletes.
"""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from random import Random
from typing import Any, Final

from dodona._core.protocol.steps import Pause, Protocol
from dodona_loadtest.checkers.violation import Violation
from dodona_loadtest.histories.history import History, RowKey, Transaction, Write
from dodona_loadtest.histories.recorder import Attempt, Recorder
from dodona_loadtest.histories.shape import Row, TableShape
from dodona_loadtest.workloads.workload import Workload
from dodona_wire.errors import DodonaError
from dodona_wire.rows.schema import Column

ROWS_PER_TABLET: Final = 2
"""Of each two rows, the first one is never deleted."""
GROUPS: Final = ("a", "b", "c")
MAIN: Final = "main"
THOUGHT_MS_MAX: Final = 30


class ColumnGroups(Workload):
    """Rows 0 to n-1, with a counter and its last writer in each lock group."""

    name = "column_groups"

    def __init__(self, random: Random) -> None:
        super().__init__(random)
        self.tablet_count = random.choice((2, 3))
        self.row_count = ROWS_PER_TABLET * self.tablet_count
        self.hot_rate = random.choice((0.3, 0.7))
        self.main_rate = random.choice((0.05, 0.2))
        # The table has its rows the other way round, so that runs have descending keys, too.
        lasts = range(self.tablet_count - 1, 0, -1)
        pivots = [(ROWS_PER_TABLET * index - 1,) for index in lasts]
        columns = [Column("id", "int64", sort_order="descending")]
        for group in (*GROUPS, MAIN):
            lock = None if group == MAIN else group
            columns.append(Column(f"{group}_count", "int64", lock=lock))
            columns.append(Column(f"{group}_writer", "utf8", lock=lock))
        self.table = TableShape("//groups/rows", tuple(columns), ((), *pivots))

    def set_up(self, db: Recorder) -> Protocol[bool]:
        attempt = yield from db.begin()
        for number in range(self.row_count):
            yield from self._raise(db, attempt, number, (*GROUPS, MAIN), None)
        return (yield from attempt.commit())

    def touch(self, db: Recorder) -> Protocol[bool]:
        attempt = yield from db.begin()
        for number in range(0, self.row_count, ROWS_PER_TABLET):
            row = yield from self._look(attempt, number)
            yield from self._raise(db, attempt, number, (*GROUPS, MAIN), row)
        return (yield from attempt.commit())

    def transact(self, db: Recorder) -> Protocol[None]:
        attempt = yield from db.begin()
        try:
            if db.random.random() < 0.1:
                yield from self._remove(db, attempt)
            else:
                yield from self._raise_some(db, attempt)
        except DodonaError as error:
            attempt.give_up(error)
            raise
        yield from attempt.commit()

    def _raise_some(self, db: Recorder, attempt: Attempt) -> Protocol[None]:
        """Raise one group, two or all of one row or two. Another group may be read-locked."""
        numbers = [self._draw(db.random)]
        if db.random.random() < 0.4:
            numbers.append((numbers[0] + db.random.randrange(1, self.row_count)) % self.row_count)
        for number in numbers:
            row = yield from self._look(attempt, number)
            if db.random.random() < 0.5:
                yield Pause(db.random.randrange(1, THOUGHT_MS_MAX))
            groups = self._draw_groups(db.random)
            if row is None and db.random.random() < 0.3:
                groups = (*GROUPS, MAIN)
            yield from self._raise(db, attempt, number, groups, row)
            free = [group for group in GROUPS if group not in groups]
            if free and db.random.random() < (0.15 if row else 0.5):
                is_strong = db.random.random() < 0.5
                yield from attempt.lock(
                    self.table, {"id": number}, [db.random.choice(free)], is_strong=is_strong
                )

    def _draw(self, random: Random) -> int:
        is_hot = random.random() < self.hot_rate
        return random.randrange(ROWS_PER_TABLET if is_hot else self.row_count)

    def _draw_groups(self, random: Random) -> Sequence[str]:
        dice = random.random()
        if dice < self.main_rate:
            return (MAIN,) if dice < self.main_rate / 2 else (*GROUPS, MAIN)
        return random.sample(GROUPS, 1 if dice < 0.8 else 2)

    def _remove(self, db: Recorder, attempt: Attempt) -> Protocol[None]:
        """Delete a row that may go, and count that in the row before it."""
        number = ROWS_PER_TABLET * db.random.randrange(self.tablet_count)
        row = yield from self._look(attempt, number)
        yield from attempt.delete(self.table, {"id": number + 1})
        yield from self._raise(db, attempt, number, (MAIN,), row)

    def look(self, db: Recorder) -> Protocol[None]:
        """Look at the newest state of a row, or twice at one snapshot."""
        if db.random.random() < 0.4:
            yield from super().look(db)
        else:
            yield from self._look_twice(db)

    def _look_twice(self, db: Recorder) -> Protocol[None]:
        """Look at some groups first and at all later. The row is there both times, or never."""
        key, group = self.draw_key(db.random), db.random.choice((*GROUPS, MAIN))
        names = [f"{group}_count", f"{group}_writer"]
        attempt = yield from db.begin()
        try:
            part = yield from attempt.glance(self.table, key, names)
            yield Pause(db.random.randrange(1, THOUGHT_MS_MAX))
            (row,) = yield from attempt.lookup(self.table, [key])
        except DodonaError as error:
            attempt.give_up(error)
            raise
        attempt.end()
        self.count("seen as a part", part is not None)
        self.count("absent", part is None)
        whole = None if row is None else {name: row[name] for name in names}
        if part != whole:
            self.flag(f"at {attempt.record.start} {key} was {part}, and later {whole}")

    def _look(self, attempt: Attempt, number: int) -> Protocol[Row | None]:
        (row,) = yield from attempt.lookup(self.table, [{"id": number}])
        return row

    def _raise(
        self,
        db: Recorder,
        attempt: Attempt,
        number: int,
        groups: Sequence[str],
        row: Row | None,
    ) -> Protocol[None]:
        raised: dict[str, Any] = {"id": number}
        for group in groups:
            count = 0 if row is None else row[f"{group}_count"] or 0
            raised[f"{group}_count"] = count + 1
            raised[f"{group}_writer"] = db.unique_value()
        is_update = len(groups) <= len(GROUPS) or db.random.random() < 0.5
        yield from attempt.insert(self.table, raised, is_update=is_update)

    def draw_key(self, random: Random) -> dict[str, Any]:
        return {"id": random.randrange(self.row_count)}

    def problem(self, rows: list[dict[str, Any]]) -> str | None:
        there = [row["id"] for row in rows]
        for number in range(0, self.row_count, ROWS_PER_TABLET):
            if number not in there:
                return f"row {number} is not there"
        for row in rows:
            for group in (*GROUPS, MAIN):
                if (row[f"{group}_count"] is None) != (row[f"{group}_writer"] is None):
                    return f"row {row['id']} has half of group {group}: {row}"
        return None

    def check(self, history: History) -> list[Violation]:
        self.count("side by side", _count_side_by_side(history.transactions))
        return [Violation("INVARIANT", text) for text in self._miscounts(history)]

    def _miscounts(self, history: History) -> Iterator[str]:
        """Compare counters with the last look at the whole table, after all sessions."""
        last = max(
            (t for t in history.transactions if t.scans and t.status == "ok"),
            key=lambda t: t.start,
            default=None,
        )
        if last is None:
            return
        seen = {read.row: dict(read.columns or ()) for read in last.scans[0].reads}
        for number in range(0, self.row_count, ROWS_PER_TABLET):
            row = self.table.row_key({"id": number})
            for group in (*GROUPS, MAIN):
                count = seen.get(row, {}).get(f"{group}_count", 0)
                sure, unsure = _raise_counts(history.transactions, row, f"{group}_count", last)
                if not sure <= count <= sure + unsure:
                    text = f"{group} of row {number} is {count} at {last.start}, "
                    yield text + f"after {sure} raises and {unsure} unsure ones"


def _raise_counts(
    transactions: list[Transaction], row: RowKey, column: str, last: Transaction
) -> tuple[int, int]:
    """Return how many raises the last look must have seen, and how many it may have seen."""
    sure = unsure = 0
    for t in transactions:
        if not any(write.row == row and column in dict(write.columns or ()) for write in t.writes):
            continue
        if t.status == "ok" and t.end_us is not None and t.end_us < last.begin_us:
            sure += 1
        elif t.commit_us is not None and t.status != "fail":
            unsure += 1
    return sure, unsure


def _count_side_by_side(transactions: list[Transaction]) -> int:
    """Count pairs of commits to disjoint groups of a row, of which neither saw the other."""
    by_row: dict[RowKey, list[tuple[int, int, Write]]] = {}
    for t in transactions:
        for write in t.writes if t.commit is not None else ():
            by_row.setdefault(write.row, []).append((t.commit or 0, t.start, write))
    count = 0
    for commits in by_row.values():
        commits.sort(key=lambda commit: commit[0])
        for (earlier, _, first), (_, start, second) in pairwise(commits):
            count += start < earlier and not set(first.groups) & set(second.groups)
    return count
