"""Serializable transactions: list append with nothing but validated reads to keep it in order.

Owns: three kinds of transactions beside those of `list_append`. One looks at lists of one tablet,
and appends to a list of another. One scans for lists, and creates or leaves alone what depends on
what it found. The third creates a list without a transaction. All sessions are serializable, so the
checker of lists must find one serial order. A list without appends has no row.
"""

from collections.abc import Sequence
from random import Random
from typing import Any, Final

from dodona._core.protocol.steps import Pause, Protocol
from dodona._core.writing.conditions import Requirement
from dodona_loadtest.checkers.violation import Violation
from dodona_loadtest.histories.history import History, RowKey
from dodona_loadtest.histories.recorder import Attempt, Recorder
from dodona_loadtest.histories.serializable import begin_serializable, scan_first
from dodona_loadtest.workloads.list_append import THOUGHT_MS_MAX, ListAppend, hash_of
from dodona_wire.errors import DodonaError
from dodona_wire.types import NULL_TIMESTAMP

BLOCK_LISTS: Final = 3
"""Neighbours that are scanned together."""
CLAIMS_PER_BLOCK: Final = 12
"""After so many scans, sessions go on to the next lists: those before have rows by then."""
HOT_PER_TABLET: Final = 2
COLD_RATE: Final = 0.2
ABSENT: Final = Requirement(True, NULL_TIMESTAMP, {})


class Serializable(ListAppend):
    """Lists 0 to n-1. In each tablet, the first ones are hot, and the others are still absent."""

    name = "serializable"
    path = "//serializable/lists"
    lists_per_tablet = 24
    is_serializable = True
    needs_python_client = True
    cells_min = 2

    def __init__(self, random: Random) -> None:
        super().__init__(random)
        self._claim_count = 0
        self._row_names: list[tuple[str, RowKey]] = [
            (self.table.key_text(key), self.table.row_key(key))
            for key in map(_key_of, range(self.list_count))
        ]

    def _begin(self, db: Recorder) -> Protocol[Attempt]:
        return begin_serializable(db, self._row_names)

    def transact(self, db: Recorder) -> Protocol[None]:
        if db.random.random() < 0.15:
            yield from self._create_blindly(db)
            return
        attempt = yield from self._begin(db)
        try:
            dice = db.random.random()
            if dice < 0.25:
                yield from self._operate(db, attempt)
            elif dice < 0.6:
                yield from self._claim(db, attempt)
            else:
                yield from self._append_elsewhere(db, attempt)
        except DodonaError as error:
            attempt.give_up(error)
            raise
        if attempt.record.is_writer:
            yield from attempt.commit()
        else:
            attempt.end()

    def _create_blindly(self, db: Recorder) -> Protocol[None]:
        """Create a list, if it is absent, without a transaction."""
        number = db.random.choice(self._draw_block(db.random))
        row = {"id": number, "elements": [db.unique_value()]}
        yield from db.write(self.table, [row], required=ABSENT)

    def _append_elsewhere(self, db: Recorder, attempt: Attempt) -> Protocol[None]:
        """Look at lists of one tablet, and append to a list of another."""
        read, written = db.random.sample(range(self.tablet_count), 2)
        for _ in range(db.random.randint(1, 3)):
            yield from self._look(attempt, self._draw_list_of(read, db.random))
        yield from self._think(db.random)
        yield from self._append(db, attempt, self._draw_list_of(written, db.random), 1)

    def _claim(self, db: Recorder, attempt: Attempt) -> Protocol[None]:
        """Scan a few neighbours. Append to a list of others if some are absent, else to a hot
        list."""
        watched, others = self._draw_block(db.random), self._draw_block(db.random)
        self._claim_count += 1
        rows = yield from self._scan(db.random, attempt, watched)
        for row in rows:
            self._judge_hash(row)
        yield from self._think(db.random)
        if len(rows) < len(watched):
            yield from self._append(db, attempt, db.random.choice(others), 1)
        else:
            yield from self._append(db, attempt, self._draw_list(db.random), 1)

    def _scan(
        self, random: Random, attempt: Attempt, watched: Sequence[int]
    ) -> Protocol[list[dict[str, Any]]]:
        """Read a block, as a whole or up to its first list."""
        lower = tuple(_key_of(watched[0]).values())
        upper = (*list(_key_of(watched[-1]).values())[:-1], watched[-1] + 1)
        if random.random() < 0.3:
            return scan_first(attempt, self.table, 1, lower, upper)
        return attempt.scan(self.table, lower, upper)

    def _think(self, random: Random) -> Protocol[None]:
        if random.random() < 0.5:
            yield Pause(random.randrange(1, THOUGHT_MS_MAX))

    def _draw_block(self, random: Random) -> list[int]:
        """Return neighbours in one tablet that are mostly absent still."""
        block_count = self.lists_per_tablet // BLOCK_LISTS
        block = (self._claim_count // CLAIMS_PER_BLOCK + random.randrange(2)) % block_count
        first = self.lists_per_tablet * random.randrange(self.tablet_count) + BLOCK_LISTS * block
        return self._in_order[first : first + BLOCK_LISTS]

    def _draw_list(self, random: Random) -> int:
        return self._draw_list_of(random.randrange(self.tablet_count), random)

    def _draw_list_of(self, tablet: int, random: Random) -> int:
        """Return a list that this tablet had at first. Most draws are of the hot ones."""
        count = self.lists_per_tablet if random.random() < COLD_RATE else HOT_PER_TABLET
        return self._in_order[self.lists_per_tablet * tablet + random.randrange(count)]

    def check(self, history: History) -> list[Violation]:
        """Judge the lists. Also count what became of serializable writers."""
        for t in history.transactions:
            if t.is_serializable and t.writes:
                self.count(f"serializable_{t.status}")
        return super().check(history)


def _key_of(number: int) -> dict[str, Any]:
    return {"hash": hash_of(number), "id": number}
