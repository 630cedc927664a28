"""A workload whose operations have names and shares, over rows that are there beforehand.

Owns: the draw of what comes next, the filling of tables in parts that are committed one by one, and
the last writes of a run. What an operation is, and what a run must look like, is each scenario's.
"""

from abc import abstractmethod
from collections.abc import Callable, Mapping
from random import Random
from typing import Any, Final

from dodona._core.protocol.steps import Protocol
from dodona_loadtest.histories.recorder import Attempt, Recorder
from dodona_loadtest.histories.shape import Row, TableShape
from dodona_loadtest.scenarios.parameters import Parameters
from dodona_loadtest.workloads.workload import Workload
from dodona_wire.errors import DodonaError
from dodona_wire.rows.schema import Column

ROWS_PER_PART: Final = 500
"""Filled in one transaction."""
FILLER: Final = "".join(map(chr, Random(2013).choices(range(33, 127), k=1 << 15)))

Operation = Callable[[Recorder], Protocol[None]]


class Scenario(Workload):
    """`operations` are those of a run, by their names."""

    summary: str
    """A sentence for whoever has to choose."""

    def __init__(self, random: Random, parameters: Parameters) -> None:
        super().__init__(random)
        self.parameters = parameters
        self._filled = 0

    @property
    @abstractmethod
    def operations(self) -> Mapping[str, tuple[float, Operation]]:
        """Shares, which come to 1, and what is done."""

    def step(self, db: Recorder) -> Protocol[None]:
        """One operation."""
        known = self.operations
        (name,) = db.random.choices(list(known), [share for share, _ in known.values()])
        db.doing = name
        yield from known[name][1](db)

    def transact(self, db: Recorder) -> Protocol[None]:
        """One operation."""
        yield from self.step(db)

    def problem(self, rows: list[dict[str, Any]]) -> str | None:
        """Nothing more than the checkers see."""
        del rows
        return None

    def fill(self, db: Recorder, count: int, part: Callable[[range], list[Row]]) -> Protocol[bool]:
        """Insert rows 0 to count - 1, a transaction for each part; what is filled stays filled when
        this is called again. → whether all are there."""
        while self._filled < count:
            places = range(self._filled, min(count, self._filled + ROWS_PER_PART))
            attempt = yield from db.begin()
            for row in part(places):
                yield from attempt.insert(self.tables[0], row)
            if not (yield from attempt.commit()):
                return False
            self._filled = places.stop
        return True


class RowsScenario(Scenario):
    """One table of rows 0 to n-1 with a value each, which is different whenever it is written."""

    def __init__(self, random: Random, parameters: Parameters) -> None:
        super().__init__(random, parameters)
        self.row_count = parameters.rows
        self.table = TableShape(
            f"//{self.name}/rows",
            (
                Column("id", "int64", sort_order="ascending"),
                Column("value", "utf8", required=True),
            ),
            even_pivots(self.row_count, parameters.tablets),
        )

    def set_up(self, db: Recorder) -> Protocol[bool]:
        return (
            yield from self.fill(db, self.row_count, lambda ids: [self.row(db, i) for i in ids])
        )

    def draw_key(self, random: Random) -> dict[str, Any]:
        return {"id": random.randrange(self.row_count)}

    def row(self, db: Recorder, number: int) -> Row:
        return {"id": number, "value": value(db, self.parameters.value_bytes)}

    def touch(self, db: Recorder) -> Protocol[bool]:
        attempt = yield from db.begin()
        for number in first_keys(self.table):
            yield from attempt.insert(self.table, self.row(db, number))
        return (yield from attempt.commit())

    def write(self, db: Recorder) -> Protocol[None]:
        """Overwrite a row, without a look at it."""
        yield from db.write(self.table, [self.row(db, db.random.randrange(self.row_count))])


def even_pivots(row_count: int, tablet_count: int) -> tuple[tuple[Any, ...], ...]:
    """Of keys 0 to n-1: as many rows in each tablet."""
    tablet_count = min(tablet_count, row_count)
    return ((), *((row_count * place // tablet_count,) for place in range(1, tablet_count)))


def first_keys(table: TableShape) -> list[int]:
    """Of each tablet of a table with such keys."""
    return [pivot[0] if pivot else 0 for pivot in table.pivot_keys]


def value(db: Recorder, length: int) -> str:
    """One that nobody else writes, of this length or (where names are long) a little more."""
    name = f"{db.unique_value()} "
    place = db.random.randrange(len(FILLER) - length)
    return name + FILLER[place : place + max(0, length - len(name))]


def give_up_on_error(attempt: Attempt, body: Protocol[bool]) -> Protocol[bool]:
    """Run the body of a transaction, and commit if it says so. → whether it is committed. Raises
    what the body raised."""
    try:
        is_changed = yield from body
    except DodonaError as error:
        attempt.give_up(error)
        raise
    if is_changed:
        return (yield from attempt.commit())
    attempt.end()
    return False
