"""Fencing: rows that are inserted once, counted up by compare-and-set, and written under a lease.

Owns: slots, which sessions claim if they are absent, count up if they are as they were seen, and
release. Also leases, which sessions take over in the same way, and slots that are written while a
lease in another tablet is as it was seen. No write but that of a lease reads in a transaction: only
conditions keep two of them apart. The history has each condition, and the checkers judge it.
"""

from collections.abc import Mapping
from random import Random
from typing import Any, Final

from dodona._core.protocol.steps import Pause, Protocol
from dodona._core.writing.conditions import Requirement
from dodona_loadtest.checkers.violation import Violation
from dodona_loadtest.histories.history import History
from dodona_loadtest.histories.recorder import Recorder
from dodona_loadtest.histories.shape import TableShape
from dodona_loadtest.workloads.workload import Workload
from dodona_wire.errors import DodonaError
from dodona_wire.rows.schema import Column
from dodona_wire.types import NULL_TIMESTAMP

SLOTS_PER_TABLET: Final = 3
LEASES: Final = (0, 1)
"""The first rows of the first tablet."""
THOUGHT_MS_MAX: Final = 30
ABSENT: Final = Requirement(True, NULL_TIMESTAMP, {})


class Fencing(Workload):
    """Rows 0 to n-1. A slot that was released does not exist."""

    name = "fencing"
    needs_python_client = True

    def __init__(self, random: Random) -> None:
        super().__init__(random)
        self.tablet_count = random.choice((2, 3, 4))
        self.hot_rate = random.choice((0.3, 0.6, 0.9))
        self.row_count = SLOTS_PER_TABLET * self.tablet_count
        pivots = [(SLOTS_PER_TABLET * index,) for index in range(1, self.tablet_count)]
        self.table = TableShape(
            "//fencing/rows",
            (
                Column("id", "int64", sort_order="ascending"),
                Column("owner", "utf8", lock="holder"),
                Column("epoch", "int64", lock="holder"),
                Column("note", "utf8", lock="note"),
            ),
            ((), *pivots),
        )

    def set_up(self, db: Recorder) -> Protocol[bool]:
        attempt = yield from db.begin()
        for lease in LEASES:
            yield from attempt.insert(self.table, self._row(db, lease, 1))
        return (yield from attempt.commit())

    def touch(self, db: Recorder) -> Protocol[bool]:
        attempt = yield from db.begin()
        for tablet in range(self.tablet_count):
            row = {"id": SLOTS_PER_TABLET * tablet, "note": db.unique_value()}
            yield from attempt.insert(self.table, row, is_update=True)
        return (yield from attempt.commit())

    def transact(self, db: Recorder) -> Protocol[None]:
        dice = db.random.random()
        slot = self._draw_slot(db.random)
        if dice < 0.25:
            yield from db.write(self.table, [self._row(db, slot, 1)], required=ABSENT)
        elif dice < 0.45:
            yield from self._count_up(db, slot)
        elif dice < 0.6:
            yield from self._count_up(db, db.random.choice(LEASES))
        elif dice < 0.7:
            yield from self._release(db, slot)
        elif dice < 0.8:
            note = {"id": self._draw_slot(db.random), "note": db.unique_value()}
            yield from db.write(self.table, [note], is_update=True)
        else:
            yield from self._write_under_lease(db, slot)

    def _count_up(self, db: Recorder, row: int) -> Protocol[None]:
        """Set the next epoch, if the row is as it was seen. A slot may be absent."""
        seen = yield from db.lookup_latest(self.table, {"id": row})
        if db.random.random() < 0.5:
            yield Pause(db.random.randrange(1, THOUGHT_MS_MAX))
        if seen is None:
            yield from db.write(self.table, [self._row(db, row, 1)], required=ABSENT)
            return
        after = self._row(db, row, (seen["epoch"] or 0) + 1)
        yield from db.write(self.table, [after], is_update=True, required=_as_seen(seen))

    def _release(self, db: Recorder, slot: int) -> Protocol[None]:
        seen = yield from db.lookup_latest(self.table, {"id": slot})
        if seen is not None and slot not in LEASES:
            yield from db.erase(self.table, [{"id": slot}], _as_seen(seen))

    def _write_under_lease(self, db: Recorder, slot: int) -> Protocol[None]:
        """Write a slot in a transaction, while a lease is as it was seen before."""
        lease = db.random.choice(LEASES)
        seen = yield from db.lookup_latest(self.table, {"id": lease})
        attempt = yield from db.begin()
        try:
            yield from attempt.insert(self.table, self._row(db, slot, 1), is_update=True)
            if seen is not None:
                yield from attempt.require(self.table, {"id": lease}, _as_seen(seen))
            yield Pause(db.random.randrange(1, THOUGHT_MS_MAX))
        except DodonaError as error:
            attempt.give_up(error)
            raise
        yield from attempt.commit()

    def _row(self, db: Recorder, row: int, epoch: int) -> dict[str, Any]:
        return {"id": row, "owner": db.unique_value(), "epoch": epoch}

    def _draw_slot(self, random: Random) -> int:
        last = self.row_count - 1
        return last if random.random() < self.hot_rate else random.randrange(len(LEASES), last)

    def draw_key(self, random: Random) -> dict[str, Any]:
        return {"id": random.randrange(self.row_count)}

    def problem(self, rows: list[dict[str, Any]]) -> str | None:
        there = {row["id"] for row in rows}
        lost = [lease for lease in LEASES if lease not in there]
        return f"the leases {lost} are not there" if lost else None

    def check(self, history: History) -> list[Violation]:
        """Check nothing more: only count the commits under conditions, and those refused."""
        for t in history.transactions:
            if t.conditions:
                is_unmet = t.error.startswith("prerequisite_failed")
                self.count("unmet" if is_unmet else f"conditional_{t.status}")
        return super().check(history)


def _as_seen(row: Mapping[str, Any]) -> Requirement:
    return Requirement(False, NULL_TIMESTAMP, {"owner": row["owner"], "epoch": row["epoch"]})
