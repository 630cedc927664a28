"""YCSB's six standard mixes over one table, with its keys, fields and choices.

Owns: the mixes, the numbering of records and the records themselves. YCSB leaves some choices to
the database. Here an update writes one field without a read of the row. A read is of the last
committed state, a scan is at a snapshot, and F's read-modify-write is one transaction. YCSB scans
so many rows from a key on. Here the scan ends so many places further on among the keys filled in at
first. Records that were inserted meanwhile come on top. The load phase fills in records in parts.
"""

from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass
from random import Random
from typing import Any, Final

from dodona._core.protocol.steps import Protocol
from dodona_loadtest.histories.recorder import Attempt, Recorder
from dodona_loadtest.histories.shape import Row, TableShape
from dodona_loadtest.scenarios import draws
from dodona_loadtest.scenarios.parameters import Distribution, Parameters
from dodona_loadtest.scenarios.scenario import Operation, Scenario, give_up_on_error, value
from dodona_wire.rows.schema import Column

SPACE_FACTOR: Final = 2
"""Numbers that a scrambled choice may hit, as a multiple of the first ones: room for inserts."""


@dataclass(frozen=True, slots=True)
class Mix:
    """Shares of operations, in total 1, and how records are chosen."""

    about: str
    distribution: Distribution = "zipfian"
    read: float = 0.0
    update: float = 0.0
    insert: float = 0.0
    scan: float = 0.0
    read_modify_write: float = 0.0


MIXES: Final[dict[str, Mix]] = {
    "a": Mix("half reads, half updates", read=0.5, update=0.5),
    "b": Mix("reads, one in twenty an update", read=0.95, update=0.05),
    "c": Mix("reads only", read=1.0),
    "d": Mix("reads of the newest records, one in twenty an insert", "latest", 0.95, insert=0.05),
    "e": Mix("short scans, one in twenty an insert", scan=0.95, insert=0.05),
    "f": Mix("half reads, half read-modify-writes", read=0.5, read_modify_write=0.5),
}


class Ycsb(Scenario):
    """One mix. Records are numbered; their keys are hashes of their numbers."""

    mix: Mix

    def __init__(self, random: Random, parameters: Parameters) -> None:
        super().__init__(random, parameters)
        self._numbers = Numbers(parameters.rows)
        self._keys = sorted(map(key_of, range(parameters.rows)))
        self._choose = _choice(self.mix, parameters, self._numbers)
        count, tablets = parameters.rows, min(parameters.tablets, parameters.rows)
        self._fields = [f"field{number}" for number in range(parameters.field_count)]
        self.table = TableShape(
            f"//{self.name}/usertable",
            (
                Column("ycsb_key", "utf8", sort_order="ascending"),
                *(Column(name, "utf8") for name in self._fields),
            ),
            ((), *((self._keys[count * place // tablets],) for place in range(1, tablets))),
        )

    @property
    def operations(self) -> Mapping[str, tuple[float, Operation]]:
        known = {
            "read": (self.mix.read, self.look),
            "update": (self.mix.update, self._update),
            "insert": (self.mix.insert, self._insert),
            "scan": (self.mix.scan, self._scan),
            "read-modify-write": (self.mix.read_modify_write, self._modify),
        }
        return {name: it for name, it in known.items() if it[0]}

    def set_up(self, db: Recorder) -> Protocol[bool]:
        def records(numbers: range) -> list[Row]:
            return [self._record(db, number) for number in numbers]

        return (yield from self.fill(db, self.parameters.rows, records))

    def draw_key(self, random: Random) -> dict[str, Any]:
        return {"ycsb_key": key_of(self._choose(random))}

    def touch(self, db: Recorder) -> Protocol[bool]:
        attempt = yield from db.begin()
        keys = [pivot[0] if pivot else self._keys[0] for pivot in self.table.pivot_keys]
        for key in dict.fromkeys(keys):
            yield from attempt.insert(
                self.table, self._change(db, {"ycsb_key": key}), is_update=True
            )
        return (yield from attempt.commit())

    def _record(self, db: Recorder, number: int) -> Row:
        length = self.parameters.field_bytes
        return {"ycsb_key": key_of(number)} | {name: value(db, length) for name in self._fields}

    def _change(self, db: Recorder, key: Row) -> Row:
        """Return a record's key with one new field."""
        return {**key, db.random.choice(self._fields): value(db, self.parameters.field_bytes)}

    def _update(self, db: Recorder) -> Protocol[None]:
        row = self._change(db, self.draw_key(db.random))
        yield from db.write(self.table, [row], is_update=True)

    def _insert(self, db: Recorder) -> Protocol[None]:
        number = self._numbers.take()
        try:
            yield from db.write(self.table, [self._record(db, number)])
        finally:
            self._numbers.finish(number)

    def _scan(self, db: Recorder) -> Protocol[None]:
        attempt = yield from db.begin_reading()
        yield from give_up_on_error(attempt, self._read_range(db, attempt))

    def _read_range(self, db: Recorder, attempt: Attempt) -> Protocol[bool]:
        lower = self.draw_key(db.random)["ycsb_key"]
        count = db.random.randint(1, self.parameters.scan_rows_max)
        end = bisect_left(self._keys, lower) + count
        upper = [self._keys[end]] if end < len(self._keys) else None
        yield from attempt.scan(self.table, [lower], upper)
        return False

    def _modify(self, db: Recorder) -> Protocol[None]:
        attempt = yield from db.begin()
        yield from give_up_on_error(attempt, self._read_and_write(db, attempt))

    def _read_and_write(self, db: Recorder, attempt: Attempt) -> Protocol[bool]:
        key = self.draw_key(db.random)
        yield from attempt.lookup(self.table, [key])
        yield from attempt.insert(self.table, self._change(db, key), is_update=True)
        return True


class Numbers:
    """The numbers of records: those up to `newest` have all been inserted, or refused."""

    def __init__(self, count: int) -> None:
        self._next = count
        self._newest = count - 1
        self._finished: dict[int, None] = {}

    def newest(self) -> int:
        """Return the number up to which no session inserts any more."""
        return self._newest

    def take(self) -> int:
        """Return the number of a record that will be inserted."""
        self._next += 1
        return self._next - 1

    def finish(self, number: int) -> None:
        """Note that an insert is over, with any outcome."""
        self._finished[number] = None
        while self._newest + 1 in self._finished:
            self._newest += 1
            del self._finished[self._newest]


def key_of(number: int) -> str:
    """Return a record's key."""
    return f"user{draws.hash_64(number)}"


def _choice(mix: Mix, parameters: Parameters, numbers: Numbers) -> draws.Choice:
    asked, theta, newest = parameters.distribution, parameters.zipfian_theta, numbers.newest
    name = mix.distribution if asked == "standard" else asked
    if name == "latest":
        return draws.latest(theta, newest)
    if name == "uniform":
        return draws.uniform(newest)
    space = parameters.rows * (SPACE_FACTOR if mix.insert else 1)
    return draws.scrambled_zipfian(space, theta, newest)


def _of(letter: str) -> type[Ycsb]:
    mix = MIXES[letter]
    words = {"name": f"ycsb_{letter}", "summary": f"YCSB {letter.upper()}: {mix.about}", "mix": mix}
    return type(f"Ycsb{letter.upper()}", (Ycsb,), words)


YCSB: Final[tuple[type[Ycsb], ...]] = tuple(map(_of, MIXES))
