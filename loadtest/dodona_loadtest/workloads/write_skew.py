"""Write skew: of the two of a pair, one is always on duty.

Owns: pairs whose rows are in different tablets. A doctor who leaves reads both rows and writes one
of them. With a strong lock on the row that was only read, the rule always holds. Without it, or
with a weak lock, which ends with the commit, snapshot isolation allows a violation. A run counts
how often that happens. Then the database took no more locks than requested. With serializable
transactions, the rule holds without any lock. Beside them, others write notes, which are of another
lock group, at snapshot isolation.
"""

from collections.abc import Mapping, Sequence
from random import Random
from typing import Any, Final

from dodona._core.protocol.steps import Pause, Protocol
from dodona_loadtest.checkers.violation import Violation
from dodona_loadtest.histories.history import History
from dodona_loadtest.histories.recorder import Attempt, Recorder
from dodona_loadtest.histories.serializable import begin_serializable, glance
from dodona_loadtest.histories.shape import Row, TableShape
from dodona_loadtest.workloads.workload import Workload
from dodona_wire.errors import DodonaError
from dodona_wire.rows.schema import Column

PAIRS_PER_TABLET: Final = 2
THOUGHT_MS_MAX: Final = 40
WEAK_RATE: Final = 1 / 3
CONFIRM_RATE: Final = 0.15
STAND_INS: Final = 2
"""They have negative numbers, belong to no pair, and have rows from time to time."""


class WriteSkew(Workload):
    """Doctors 0 to n-1: those of pair i are i and i + n/2."""

    name = "write_skew"
    has_strong_locks = True
    is_serializable = False

    def __init__(self, random: Random) -> None:
        super().__init__(random)
        self.tablet_count = random.choice((2, 4))
        self.pair_count = PAIRS_PER_TABLET * self.tablet_count // 2
        self.hot_rate = random.choice((0.0, 0.5, 1.0))
        pivots = [(PAIRS_PER_TABLET * index,) for index in range(1, self.tablet_count)]
        self.table = TableShape(
            f"//{self.name}/doctors",
            (
                Column("id", "int64", sort_order="ascending"),
                Column("is_on_duty", "boolean", lock="duty"),
                Column("writer", "utf8", lock="duty"),
                Column("note", "utf8", lock="note"),
            ),
            ((), *pivots),
        )

    @property
    def keeps_rule(self) -> bool:
        """Whether one of each pair must always be on duty."""
        return self.has_strong_locks or self.is_serializable

    def set_up(self, db: Recorder) -> Protocol[bool]:
        attempt = yield from self._begin(db)
        for doctor in range(2 * self.pair_count):
            yield from self._put(db, attempt, doctor, True)
        return (yield from attempt.commit())

    def touch(self, db: Recorder) -> Protocol[bool]:
        return (yield from self.set_up(db))

    def transact(self, db: Recorder) -> Protocol[None]:
        pair = 0 if db.random.random() < self.hot_rate else db.random.randrange(self.pair_count)
        is_note = db.random.random() < 0.15
        attempt = yield from (db.begin() if is_note else self._begin(db))
        try:
            if is_note:
                note = {"id": pair, "note": db.unique_value()}
                yield from attempt.insert(self.table, note, is_update=True)
            else:
                yield from self._change_duty(db, attempt, pair)
        except DodonaError as error:
            attempt.give_up(error)
            raise
        yield from attempt.commit()

    def _change_duty(self, db: Recorder, attempt: Attempt, pair: int) -> Protocol[None]:
        """Let one doctor leave if both are on duty; else let one that is away come back."""
        pairs = [pair, pair + self.pair_count]
        rows = yield from self._read(db, attempt, [{"id": doctor} for doctor in pairs])
        if db.random.random() < 0.7:
            yield Pause(db.random.randrange(1, THOUGHT_MS_MAX))
        on_duty = [_is_on_duty(row) for row in rows]
        if self.keeps_rule and not any(on_duty):
            self.flag(f"at {attempt.record.start} nobody of pair {pair} is on duty")
        if db.random.random() < CONFIRM_RATE:
            # Without a lock: only a lock of another doctor, who has left meanwhile, can be a
            # conflict.
            yield from self._put(db, attempt, pairs[0], on_duty[0])
            return
        mine = db.random.randrange(2) if all(on_duty) else on_duty.index(False)
        yield from self._put(db, attempt, pairs[mine], not on_duty[mine])
        if self.has_strong_locks:
            yield from attempt.lock(self.table, {"id": pairs[1 - mine]}, ["duty"])
        elif not self.is_serializable and db.random.random() < WEAK_RATE:
            other = {"id": pairs[1 - mine]}
            yield from attempt.lock(self.table, other, ["duty"], is_strong=False)

    def _begin(self, db: Recorder) -> Protocol[Attempt]:
        return db.begin()

    def _read(
        self, _db: Recorder, attempt: Attempt, keys: Sequence[Row]
    ) -> Protocol[list[Row | None]]:
        return attempt.lookup(self.table, keys)

    def _put(self, db: Recorder, attempt: Attempt, doctor: int, is_on_duty: bool) -> Protocol[None]:
        row = {"id": doctor, "is_on_duty": is_on_duty, "writer": db.unique_value()}
        yield from attempt.insert(self.table, row, is_update=True)

    def draw_key(self, random: Random) -> dict[str, Any]:
        return {"id": random.randrange(2 * self.pair_count)}

    def problem(self, rows: list[dict[str, Any]]) -> str | None:
        on_duty = {row["id"]: _is_on_duty(row) for row in rows if row["id"] >= 0}
        if len(on_duty) != 2 * self.pair_count:
            return f"{2 * self.pair_count - len(on_duty)} doctors are not there"
        for pair in range(self.pair_count):
            if self.keeps_rule and not (on_duty[pair] or on_duty[pair + self.pair_count]):
                return f"nobody of pair {pair} is on duty"
        return None

    def check(self, history: History) -> list[Violation]:
        """Check nothing more: only count the seen skews, by the writers that left both away."""
        pair_of = {
            self.table.row_key({"id": doctor}): doctor % self.pair_count
            for doctor in range(2 * self.pair_count)
        }
        skews: dict[tuple[Any, ...], None] = {}
        for t in history.transactions:
            away: dict[int, list[Any]] = {}
            for read in (*t.reads, *(read for scan in t.scans for read in scan.reads)):
                columns = dict(read.columns or ())
                if columns.get("is_on_duty") is False:
                    away.setdefault(pair_of[read.row], []).append((read.row, columns["writer"]))
            skews.update(dict.fromkeys(tuple(sorted(it)) for it in away.values() if len(it) == 2))
        self.count("skews", len(skews))
        if self.keeps_rule and skews:
            self.flag(f"both were away {len(skews)} times")
        return super().check(history)


class UnlockedWriteSkew(WriteSkew):
    """The same without strong locks: the anomaly is allowed, and has to happen."""

    name = "unlocked_write_skew"
    has_strong_locks = False


class SerializableWriteSkew(WriteSkew):
    """The same with validated reads instead of locks. It also has stand-ins."""

    name = "serializable_write_skew"
    has_strong_locks = False
    is_serializable = True
    needs_python_client = True

    def transact(self, db: Recorder) -> Protocol[None]:
        dice = db.random.random()
        stand_in = {"id": -db.random.randint(1, STAND_INS)}
        if dice < 0.08:
            note = {**stand_in, "note": db.unique_value()}
            yield from db.write(self.table, [note], is_update=True)
        elif dice < 0.14:
            yield from db.erase(self.table, [stand_in])
        elif dice < 0.25:
            yield from self._note_for(db, stand_in)
        else:
            yield from super().transact(db)

    def _note_for(self, db: Recorder, stand_in: Row) -> Protocol[None]:
        """Write a note that depends on whether a stand-in is there and on duty. Another one may
        create the row with a note, which is of another lock group. Nobody has read the note that it
        replaces, so the client may send this transaction again."""
        attempt = yield from self._begin(db)
        try:
            yield from glance(attempt, self.table, stand_in, ["is_on_duty"])
            yield Pause(db.random.randrange(1, THOUGHT_MS_MAX))
            note = {"id": db.random.choice((0, self.pair_count)), "note": db.unique_value()}
            yield from attempt.insert(self.table, note, is_update=True)
        except DodonaError as error:
            attempt.give_up(error)
            raise
        yield from attempt.commit()

    def _begin(self, db: Recorder) -> Protocol[Attempt]:
        numbers = range(-STAND_INS, 2 * self.pair_count)
        keys: list[Row] = [{"id": number} for number in numbers]
        names = [(self.table.key_text(key), self.table.row_key(key)) for key in keys]
        return begin_serializable(db, names)

    def _read(
        self, db: Recorder, attempt: Attempt, keys: Sequence[Row]
    ) -> Protocol[list[Row | None]]:
        """Read rows, or only whether they are on duty. Then notes of others are no conflict."""
        if db.random.random() < 0.5:
            return (yield from attempt.lookup(self.table, keys))
        rows: list[Row | None] = []
        for key in keys:
            row = yield from glance(attempt, self.table, key, ["is_on_duty"])
            rows += [row]
        return rows


def _is_on_duty(row: Row | Mapping[str, Any] | None) -> bool:
    return row is not None and bool(row["is_on_duty"])
