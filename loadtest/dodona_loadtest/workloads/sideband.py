"""Sideband: sessions inform each other of their commits outside of the database.

Owns: messages, and what follows from them. A transaction that begins after a message sees the row
of the message. Its commit has a later timestamp, too. Some rows are written by transactions that
raise a number that they read. So a row of a message can be known without any timestamp. Other rows
are written by blind writes of one row.
"""

from collections import deque
from random import Random
from typing import Any, Final, NamedTuple

from dodona._core.protocol.steps import Protocol
from dodona_loadtest.histories.recorder import Attempt, Recorder
from dodona_loadtest.histories.shape import Row, TableShape
from dodona_loadtest.workloads.workload import Workload
from dodona_wire.errors import DodonaError
from dodona_wire.rows.schema import Column

ROWS_PER_TABLET: Final = 4
"""Transactions raise the even rows, and blind writes write the odd ones."""
MESSAGES_MAX: Final = 20


class Message(NamedTuple):
    """An acknowledged commit. `wave` is one more than any that its sender had heard of."""

    sender: str
    row: int
    wave: int
    mark: str
    commit: int
    at_us: int


class Sideband(Workload):
    """Rows 0 to n-1."""

    name = "sideband"

    def __init__(self, random: Random) -> None:
        super().__init__(random)
        self.tablet_count = random.choice((2, 3, 4))
        self.row_count = ROWS_PER_TABLET * self.tablet_count
        self.blind_rate = random.choice((0.2, 0.5))
        self._messages: deque[Message] = deque(maxlen=MESSAGES_MAX)
        self._commits: dict[str, int] = {}
        """Commit timestamps of all acknowledged marks."""
        pivots = [(ROWS_PER_TABLET * index,) for index in range(1, self.tablet_count)]
        self.table = TableShape(
            "//sideband/rows",
            (
                Column("id", "int64", sort_order="ascending"),
                Column("wave", "int64", required=True),
                Column("mark", "utf8", required=True),
            ),
            ((), *pivots),
        )

    def set_up(self, db: Recorder) -> Protocol[bool]:
        attempt = yield from db.begin()
        for number in range(self.row_count):
            row = {"id": number, "wave": 0, "mark": db.unique_value()}
            yield from attempt.insert(self.table, row)
        return (yield from attempt.commit())

    def touch(self, db: Recorder) -> Protocol[bool]:
        attempt = yield from db.begin()
        for number in range(0, self.row_count, ROWS_PER_TABLET):
            yield from self._raise(db, attempt, number, 0)
        return (yield from attempt.commit())

    def transact(self, db: Recorder) -> Protocol[None]:
        message = self._hear(db)
        if db.random.random() < self.blind_rate:
            yield from self._write_blind(db, message)
        else:
            yield from self._transact_after(db, message)

    def _hear(self, db: Recorder) -> Message | None:
        """Return a message of another session, mostly the last one."""
        others = [message for message in self._messages if message.sender != db.name]
        if not others:
            return None
        return others[-1] if db.random.random() < 0.7 else db.random.choice(others)

    def _tell(self, db: Recorder, row: Row, heard: Message | None) -> None:
        assert db.last_commit is not None
        if heard is not None and db.last_commit <= heard.commit:
            self.flag(f"{row} was committed at {db.last_commit}, after having heard of {heard}")
        self._commits[row["mark"]] = db.last_commit
        message = Message(db.name, row["id"], row["wave"], row["mark"], db.last_commit, db.now_us)
        self._messages.append(message)
        self.count("told")
        self.count("told after hearing", heard is not None)

    def _write_blind(self, db: Recorder, heard: Message | None) -> Protocol[None]:
        wave = 1 + (0 if heard is None else heard.wave)
        number = 1 + 2 * db.random.randrange(self.row_count // 2)
        row = {"id": number, "wave": wave, "mark": db.unique_value()}
        if (yield from db.write(self.table, [row])):
            self._tell(db, row, heard)

    def _transact_after(self, db: Recorder, heard: Message | None) -> Protocol[None]:
        attempt = yield from db.begin()
        try:
            if heard is not None:
                yield from self._look_for(attempt, heard)
            number = 2 * db.random.randrange(self.row_count // 2)
            wave = 0 if heard is None else heard.wave
            row = yield from self._raise(db, attempt, number, wave)
        except DodonaError as error:
            attempt.give_up(error)
            raise
        if (yield from attempt.commit()):
            self._tell(db, row, heard)

    def _raise(self, db: Recorder, attempt: Attempt, number: int, wave: int) -> Protocol[Row]:
        (old,) = yield from attempt.lookup(self.table, [{"id": number}])
        wave = 1 + max(wave, 0 if old is None else old["wave"])
        row = {"id": number, "wave": wave, "mark": db.unique_value()}
        yield from attempt.insert(self.table, row)
        return row

    def _look_for(self, attempt: Attempt, heard: Message) -> Protocol[None]:
        if attempt.record.start <= heard.commit:
            self.flag(f"{attempt.record.name} began at {attempt.record.start}, after {heard}")
        (row,) = yield from attempt.lookup(self.table, [{"id": heard.row}])
        problem = self.blindness(row, heard)
        if problem:
            self.flag(f"{attempt.record.name} heard of {heard}, {problem}")

    def blindness(self, row: Row | None, heard: Message) -> str | None:
        """Return why a session that heard that message can't see this in its row, or None."""
        if row is None:
            return "but sees no row"
        if row["mark"] == heard.mark:
            return None
        if heard.row % 2 == 0 and row["wave"] <= heard.wave:
            return f"but sees wave {row['wave']}"
        commit = self._commits.get(row["mark"])
        if commit is not None and commit < heard.commit:
            return f"but sees what was committed at {commit}"
        return None

    def draw_key(self, random: Random) -> dict[str, Any]:
        return {"id": random.randrange(self.row_count)}

    def problem(self, rows: list[dict[str, Any]]) -> str | None:
        if len(rows) != self.row_count:
            return f"{self.row_count - len(rows)} rows are not there"
        return None
