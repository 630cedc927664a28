"""A workload whose operations have names and shares, over rows that exist before.

Owns: the draw of the next operation, and the last writes of a run. Also owns the filling of tables,
in parts that are committed one by one. Each scenario owns its operations, and the demands on a run.
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
"""Rows of one transaction."""
FILLER: Final = "".join(map(chr, Random(2013).choices(range(33, 127), k=1 << 15)))

Operation = Callable[[Recorder], Protocol[None]]


class Scenario(Workload):
    """A scenario. `operations` are those of a run, by their names."""

    summary: str
    """A sentence for a reader who chooses a scenario."""

    def __init__(self, random: Random, parameters: Parameters) -> None:
        super().__init__(random)
        self.parameters = parameters
        self._filled = 0

    @property
    @abstractmethod
    def operations(self) -> Mapping[str, tuple[float, Operation]]:
        """The share of each operation, in total 1, and its function."""

    def step(self, db: Recorder) -> Protocol[None]:
        """Do one operation."""
        known = self.operations
        (name,) = db.random.choices(list(known), [share for share, _ in known.values()])
        db.doing = name
        yield from known[name][1](db)

    def transact(self, db: Recorder) -> Protocol[None]:
        """Do one operation."""
        yield from self.step(db)

    def problem(self, rows: list[dict[str, Any]]) -> str | None:
        """Find no more problems than the checkers do."""
        del rows
        return None

    def fill(self, db: Recorder, count: int, part: Callable[[range], list[Row]]) -> Protocol[bool]:
        """Insert rows 0 to count - 1, a transaction for each part. A repeated call goes on after
        the last filled part. Return whether all are there."""
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
    """One table of rows 0 to n-1, each with a value that is different at each write."""

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
        """Overwrite a row, without reading the row."""
        yield from db.write(self.table, [self.row(db, db.random.randrange(self.row_count))])


def even_pivots(row_count: int, tablet_count: int) -> tuple[tuple[Any, ...], ...]:
    """Return pivots for keys 0 to n-1: each tablet gets as many rows."""
    tablet_count = min(tablet_count, row_count)
    return ((), *((row_count * place // tablet_count,) for place in range(1, tablet_count)))


def first_keys(table: TableShape) -> list[int]:
    """Return the first key of each tablet, for a table with such keys."""
    return [pivot[0] if pivot else 0 for pivot in table.pivot_keys]


def value(db: Recorder, length: int) -> str:
    """Return a value that no other session writes, of this length or (for long names) more."""
    name = f"{db.unique_value()} "
    place = db.random.randrange(len(FILLER) - length)
    return name + FILLER[place : place + max(0, length - len(name))]


def give_up_on_error(attempt: Attempt, body: Protocol[bool]) -> Protocol[bool]:
    """Run the body of a transaction, and commit if it says so. Return whether it is committed.
    Raises what the body raised."""
    try:
        is_changed = yield from body
    except DodonaError as error:
        attempt.give_up(error)
        raise
    if is_changed:
        return (yield from attempt.commit())
    attempt.end()
    return False
