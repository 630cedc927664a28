"""Blind: bundles of rows that are overwritten without a read, and counted up after one.

Owns: bundles of one row, of several rows of one tablet, and of one row of every tablet. All rows of
a bundle always have the same mark and count. Autocommit writes replace or erase whole bundles and
annotate single rows. Transactions read a bundle, wait a little, and write the count plus one. So
each blind write is read, or overwritten by a transaction that must have seen it.
"""

from collections.abc import Mapping, Sequence
from random import Random
from typing import Any, Final

from dodona._core.protocol.steps import Pause, Protocol
from dodona_loadtest.histories.recorder import Attempt, Recorder
from dodona_loadtest.histories.shape import TableShape
from dodona_loadtest.workloads.workload import Workload
from dodona_wire.errors import DodonaError
from dodona_wire.rows.schema import Column

ROWS_PER_TABLET: Final = 6
LOCAL_OFFSETS: Final = (0, 1, 2)
SOLO_OFFSET: Final = 3
SPREAD_OFFSETS: Final = (4, 5)
THOUGHT_MS_MAX: Final = 30

Bundle = tuple[int, ...]
State = tuple[str | None, int | None]
"""Mark and count."""


class Blind(Workload):
    """Rows 0 to n-1, in bundles. A bundle that was erased has no marks."""

    name = "blind"
    may_be_resharded = False
    """An unsure deletion differs from others only if all of its rows stay in one cell."""

    def __init__(self, random: Random) -> None:
        super().__init__(random)
        self.tablet_count = random.choice((2, 4, 6))
        self.blind_rate = random.choice((0.3, 0.5, 0.8))
        self.hot_rate = random.choice((0.0, 0.3, 0.7))
        firsts = range(0, ROWS_PER_TABLET * self.tablet_count, ROWS_PER_TABLET)
        self.narrow: list[Bundle] = []
        """Bundles of one tablet each."""
        for first in firsts:
            self.narrow.append(tuple(first + offset for offset in LOCAL_OFFSETS))
            self.narrow.append((first + SOLO_OFFSET,))
        self.wide: list[Bundle] = [
            tuple(first + offset for first in firsts) for offset in SPREAD_OFFSETS
        ]
        self.table = TableShape(
            "//blind/bundles",
            (
                Column("id", "int64", sort_order="ascending"),
                Column("mark", "utf8", lock="state"),
                Column("count", "int64", lock="state"),
                Column("memo", "utf8", lock="memo"),
            ),
            ((), *[(first,) for first in firsts[1:]]),
        )

    @property
    def bundles(self) -> list[Bundle]:
        return [*self.narrow, *self.wide]

    def set_up(self, db: Recorder) -> Protocol[bool]:
        attempt = yield from db.begin()
        for bundle in self.bundles:
            yield from self._mark(db, attempt, bundle, 0, is_update=False)
        return (yield from attempt.commit())

    def transact(self, db: Recorder) -> Protocol[None]:
        if db.random.random() >= self.blind_rate:
            yield from self._count_up(db, self._draw_bundle(db.random, self.bundles))
            return
        dice = db.random.random()
        if dice < 0.5:
            yield from self._replace(db, self._draw_bundle(db.random, self.bundles))
        elif dice < 0.85:
            # Rows of several cells are locked the longest, so a write most often waits there.
            bundles = self.wide if db.random.random() < 0.8 else self.narrow
            row = db.random.choice(self._draw_bundle(db.random, bundles))
            memo = {"id": row, "memo": db.unique_value()}
            yield from db.write(self.table, [memo], is_update=True)
        else:
            yield from db.erase(self.table, self._keys(self._draw_bundle(db.random, self.narrow)))

    def draw_key(self, random: Random) -> dict[str, Any]:
        return {"id": random.randrange(ROWS_PER_TABLET * self.tablet_count)}

    def problem(self, rows: list[dict[str, Any]]) -> str | None:
        states = {row["id"]: (row["mark"], row["count"]) for row in rows}
        found = (self._mixture(bundle, states) for bundle in self.bundles)
        return next((problem for problem in found if problem), None)

    def touch(self, db: Recorder) -> Protocol[bool]:
        attempt = yield from db.begin()
        count = yield from self._look(attempt, self.wide[0])
        yield from self._mark(db, attempt, self.wide[0], count + 1, is_update=True)
        return (yield from attempt.commit())

    def _draw_bundle(self, random: Random, bundles: Sequence[Bundle]) -> Bundle:
        """Draw a bundle. In some runs a few bundles of each kind are hot."""
        if random.random() < self.hot_rate:
            return random.choice([*bundles[:2], bundles[-1]])
        return random.choice(bundles)

    def _replace(self, db: Recorder, bundle: Bundle) -> Protocol[None]:
        rows = self._rows(db, bundle, 0)
        is_update = db.random.random() < 0.5
        if not is_update and bundle not in self.wide:
            # It is the same to the table. Rows of all columns, in one tablet, take the short path.
            rows = [{**row, "memo": None} for row in rows]
        yield from db.write(self.table, rows, is_update=is_update)

    def _count_up(self, db: Recorder, bundle: Bundle) -> Protocol[None]:
        attempt = yield from db.begin()
        try:
            count = yield from self._look(attempt, bundle)
            if db.random.random() < 0.5:
                yield Pause(db.random.randrange(1, THOUGHT_MS_MAX))
            # An overwrite takes the main lock, so annotations have to wait for it.
            is_update = len(bundle) == 1 or db.random.random() < 0.3
            yield from self._mark(db, attempt, bundle, count + 1, is_update=is_update)
        except DodonaError as error:
            attempt.give_up(error)
            raise
        yield from attempt.commit()

    def _look(self, attempt: Attempt, bundle: Bundle) -> Protocol[int]:
        """Return the bundle's count: 0 if it does not exist."""
        rows = yield from attempt.lookup(self.table, self._keys(bundle))
        states = {row["id"]: (row["mark"], row["count"]) for row in rows if row is not None}
        problem = self._mixture(bundle, states)
        if problem:
            self.flag(f"at {attempt.record.start} {problem}")
        first = rows[0]
        return 0 if first is None else first["count"] or 0

    def _mixture(self, bundle: Bundle, states: Mapping[int, State]) -> str | None:
        """Return the error if its rows are not all of one write. An erased row may have a memo."""
        found = [states.get(row, (None, None)) for row in bundle]
        if all(state == found[0] for state in found):
            return None
        return f"the rows {bundle} are not one bundle: {found}"

    def _mark(
        self, db: Recorder, attempt: Attempt, bundle: Bundle, count: int, *, is_update: bool
    ) -> Protocol[None]:
        for row in self._rows(db, bundle, count):
            yield from attempt.insert(self.table, row, is_update=is_update)

    def _rows(self, db: Recorder, bundle: Bundle, count: int) -> list[dict[str, Any]]:
        mark = db.unique_value()
        return [{"id": row, "mark": mark, "count": count} for row in bundle]

    def _keys(self, bundle: Bundle) -> list[dict[str, Any]]:
        return [{"id": row} for row in bundle]
