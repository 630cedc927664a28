"""A master, an oracle and cells that answer whoever holds a snapshot, and note what was asked."""

from dodona._core.protocol.steps import MASTER, ORACLE, Target
from dodona._core.reading.holding import LEASE_MS
from dodona.types import Timestamp
from dodona_wire.messages.base import Failure
from dodona_wire.messages.catalog import GetTable, Table
from dodona_wire.messages.data import GenerateTimestamps, HoldSnapshot, SnapshotHeld, TimestampRange
from dodona_wire.messages.families import Reply, Request

FRESH = Timestamp(500)
HELD = SnapshotHeld(LEASE_MS)
GONE = Failure("table_not_found", "no such table")
TOO_OLD = Failure("snapshot_too_old", "it has gone", {"retained_timestamp": 900})


class Cells:
    """Answers for all servers: every cell says `reply`, unless `replies` has one for it."""

    def __init__(self, *tables: Table) -> None:
        self.tables = {it.path: it for it in tables}
        self.reply: Reply = HELD
        self.replies: dict[Target, Reply] = {}
        self.asked: list[tuple[Target, Request]] = []
        self.master_reply: Reply | None = None

    def answer(self, target: Target, body: Request) -> Reply:
        self.asked.append((target, body))
        if target == ORACLE:
            assert isinstance(body, GenerateTimestamps)
            return TimestampRange(FRESH, 1)
        if target == MASTER:
            assert isinstance(body, GetTable)
            return self.master_reply or self.tables.get(body.path) or GONE
        assert isinstance(body, HoldSnapshot)
        assert int(body.reader) == FRESH
        return self.replies.get(target, self.reply)

    def take(self) -> dict[Target, list[int]]:
        """The cells that were asked since, and of which tablets."""
        asked, self.asked = self.asked, []
        return {target: [*body.tablets] for target, body in asked if isinstance(body, HoldSnapshot)}
