"""Loads without atomicity: their rows are visible immediately, and none comes after the end.

Owns: their table, in which each load has rows of its own, and the fence. Once every cell has
answered that a load is over, the rows of the load do not change.
"""

from typing import Any

from dodona._core.protocol.steps import Protocol
from dodona_loadtest.histories.loads import StampedLoad, begin_stamped_load
from dodona_loadtest.histories.recorder import Recorder
from dodona_loadtest.histories.shape import TableShape
from dodona_loadtest.workloads.workload import Workload
from dodona_wire.errors import DodonaError
from dodona_wire.rows.schema import Column
from dodona_wire.types import SYNC_LAST_COMMITTED


class PlainLoads:
    """A part of a workload, which judges and counts."""

    def __init__(self, lease_ms: int) -> None:
        self._lease_ms = lease_ms
        self.table = TableShape(
            "//loads/plain",
            (
                Column("load", "int64", sort_order="ascending"),
                Column("n", "int64", sort_order="ascending"),
                Column("mark", "utf8"),
            ),
            ((),),
            "none",
        )
        self._closed: dict[int, list[int] | None] = {}
        """The rows of each load that is over in all cells."""

    def transact(self, db: Recorder, judge: Workload) -> Protocol[None]:
        load = yield from begin_stamped_load(db, self.table, self._lease_ms)
        number = 0
        for _ in range(db.random.randrange(1, 4)):
            rows = [_row(db, load, number + place) for place in range(2)]
            number += len(rows)
            try:
                yield from load.write(rows)
            except DodonaError:
                judge.count("plain batches failed")
        yield from load.finish()
        if not load.is_closed:
            return
        judge.count("plain loads closed")
        self._closed[load.ticket.load] = None
        try:
            yield from load.write([_row(db, load, -1)])
        except DodonaError:
            judge.count("late batches refused")
        else:
            judge.flag(f"load {load.ticket.load} was closed everywhere, and took rows")
        yield from self._look(db, judge)

    def _look(self, db: Recorder, judge: Workload) -> Protocol[None]:
        """Check that the rows of a load do not change after its end."""
        closed = list(self._closed)
        rows = yield from db.session.select(self.table.path, timestamp=SYNC_LAST_COMMITTED)
        numbers: dict[int, list[int]] = {load: [] for load in closed}
        for row in rows:
            numbers.get(row["load"], []).append(row["n"])
        for load, found in numbers.items():
            known = self._closed[load]
            if known is not None and known != found:
                judge.flag(f"load {load} was closed everywhere with {known}, now it has {found}")
            if -1 in found:
                judge.flag(f"load {load} was closed everywhere, and has what came later")
            self._closed[load] = found


def _row(db: Recorder, load: StampedLoad, number: int) -> dict[str, Any]:
    return {"load": load.ticket.load, "n": number, "mark": db.unique_value()}
