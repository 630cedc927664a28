"""Cycle: a ring of rows, each naming the next. Transactions rotate pointers; it stays one ring.

Owns: the ring and its check. One wrong or missing write, or one read of a mixed state, breaks the
ring permanently or shows it broken. So this is the most sensitive of all workloads.
"""

from random import Random
from typing import Any, Final

from dodona._core.protocol.steps import Protocol
from dodona_loadtest.histories.recorder import Attempt, Recorder
from dodona_loadtest.histories.shape import TableShape
from dodona_loadtest.workloads.workload import Workload
from dodona_wire.errors import DodonaError
from dodona_wire.rows.schema import Column

NODES_PER_TABLET: Final = 3


class Cycle(Workload):
    """Nodes 0 to n-1; node n-1 points to node 0 in the beginning."""

    name = "cycle"

    def __init__(self, random: Random) -> None:
        super().__init__(random)
        self.tablet_count = random.choice((2, 3, 5))
        self.node_count = NODES_PER_TABLET * self.tablet_count
        pivots = [(NODES_PER_TABLET * index,) for index in range(1, self.tablet_count)]
        self.table = TableShape(
            "//cycle/ring",
            (
                Column("node", "int64", sort_order="ascending"),
                Column("next", "int64", required=True),
                Column("writer", "utf8", required=True),
            ),
            ((), *pivots),
        )

    def set_up(self, db: Recorder) -> Protocol[bool]:
        attempt = yield from db.begin()
        for node in range(self.node_count):
            yield from self._point(db, attempt, node, (node + 1) % self.node_count)
        return (yield from attempt.commit())

    def draw_key(self, random: Random) -> dict[str, Any]:
        return {"node": random.randrange(self.node_count)}

    def problem(self, rows: list[dict[str, Any]]) -> str | None:
        following = {row["node"]: row["next"] for row in rows}
        visited: list[int] = []
        node: int | None = 0
        while node is not None and node not in visited:
            visited.append(node)
            node = following.get(node)
        is_one_ring = node == 0 and len(visited) == self.node_count
        return None if is_one_ring else f"the ring is broken: {following}"

    def touch(self, db: Recorder) -> Protocol[bool]:
        attempt = yield from db.begin()
        for index in range(self.tablet_count):
            node = NODES_PER_TABLET * index
            following = yield from self._next(attempt, node)
            yield from self._point(db, attempt, node, following)
        return (yield from attempt.commit())

    def transact(self, db: Recorder) -> Protocol[None]:
        """Make a → b → c → d into a → c → b → d."""
        attempt = yield from db.begin()
        try:
            a = db.random.randrange(self.node_count)
            b = yield from self._next(attempt, a)
            c = yield from self._next(attempt, b)
            d = yield from self._next(attempt, c)
            if len({a, b, c}) < 3:
                self.flag(f"at {attempt.record.start} there is a short ring: {a}, {b}, {c}")
                attempt.end()
                return
            yield from self._point(db, attempt, a, c)
            yield from self._point(db, attempt, c, b)
            yield from self._point(db, attempt, b, d)
        except DodonaError as error:
            attempt.give_up(error)
            raise
        yield from attempt.commit()

    def _next(self, attempt: Attempt, node: int) -> Protocol[int]:
        (row,) = yield from attempt.lookup(self.table, [{"node": node}])
        if row is None:
            self.flag(f"at {attempt.record.start} node {node} is not there")
            return node
        return int(row["next"])

    def _point(self, db: Recorder, attempt: Attempt, node: int, following: int) -> Protocol[None]:
        row: dict[str, Any] = {"node": node, "next": following, "writer": db.unique_value()}
        yield from attempt.insert(self.table, row)
