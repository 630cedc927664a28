"""Every way in, at every number of value columns at which a column mask is another thing.

A mask of up to 64 columns travels as a number, a larger one as bytes. Rows of a short Arrow batch
are made by the node itself. What a cell cannot apply must not come into its log: the node would
stop, at every start anew (the rows are looked at again after one).
"""

from collections.abc import Callable, Iterator
from typing import Any, Final

import pyarrow as pa
import pytest

from conformance.backends import Backend
from conformance.tables import KEY, MakeTable, Row, read
from dodona.client import Client
from dodona.errors import SchemaViolation
from dodona.types import Atomicity

COLUMN_COUNTS: Final = [1, 63, 64, 65, 1024]
LONG_VALUES: Final = 40_000
"""Values of a batch that is long enough to become a chunk."""
SPREAD: Final = [
    *[(kind, count) for kind in ("embedded", "simulator") for count in COLUMN_COUNTS],
    pytest.param("processes", 65, marks=pytest.mark.integration),
]
Way = Callable[[Client, str, list[Row]], None]


def _insert(db: Client, path: str, rows: list[Row]) -> None:
    db.insert_rows(path, rows)


def _commit(db: Client, path: str, rows: list[Row]) -> None:
    with db.begin() as transaction:
        transaction.insert_rows(path, rows)


def _write_none(db: Client, path: str, rows: list[Row]) -> None:
    with db.begin("none") as transaction:
        transaction.insert_rows(path, rows)


def _write_async(db: Client, path: str, rows: list[Row]) -> None:
    db.insert_rows(path, rows, durability="async")


def _write_arrow(db: Client, path: str, rows: list[Row]) -> None:
    assert db.write_arrow(path, pa.Table.from_pylist(rows)) == len(rows)


def _write_arrow_twice(db: Client, path: str, rows: list[Row]) -> None:
    """Each row twice in one batch: the last one counts."""
    firsts = [{**row, "v0": -1} for row in rows]
    assert db.write_arrow(path, pa.Table.from_pylist([*firsts, *rows])) == 2 * len(rows)


def _write_arrow_async(db: Client, path: str, rows: list[Row]) -> None:
    db.write_arrow(path, [pa.RecordBatch.from_pylist(rows)], durability="async")


def _load_full(db: Client, path: str, rows: list[Row]) -> None:
    _load(db, path, rows, "full")


def _load_none(db: Client, path: str, rows: list[Row]) -> None:
    _load(db, path, rows, "none")


def _load(db: Client, path: str, rows: list[Row], atomicity: Atomicity) -> None:
    with db.loads.begin([path], atomicity=atomicity) as load:
        load.write(path, pa.Table.from_pylist(rows))


WAYS: Final[dict[Atomicity, list[Way]]] = {
    "full": [_insert, _commit, _load_full],
    "none": [
        _insert,
        _write_none,
        _write_async,
        _write_arrow,
        _write_arrow_twice,
        _write_arrow_async,
        _load_none,
    ],
}


def _rows(column_count: int, first: int, row_count: int = 2) -> list[Row]:
    names = [f"v{place}" for place in range(column_count)]
    return [{"k": key, **dict.fromkeys(names, key)} for key in range(first, first + row_count)]


def _ways(atomicity: Atomicity, column_count: int) -> Iterator[tuple[Way, list[Row]]]:
    """A way in, short rows for it, or enough of them for a chunk."""
    long_count = LONG_VALUES // column_count + 1
    for place, way in enumerate(WAYS[atomicity]):
        yield way, _rows(column_count, 10 * place)
    for place, way in enumerate([it for it in WAYS[atomicity] if "arrow" in it.__name__]):
        yield way, _rows(column_count, 1_000 + 100_000 * place, long_count)


@pytest.mark.parametrize(("backend", "column_count"), SPREAD, indirect=["backend"])
@pytest.mark.parametrize("atomicity", ["full", "none"])
def test_rows_that_came_in_any_way_are_there_also_after_a_restart(
    backend: Backend, make_table: MakeTable, atomicity: Atomicity, column_count: int
) -> None:
    db = backend.db
    schema = [KEY, *({"name": f"v{place}", "type": "int64"} for place in range(column_count))]
    path = make_table(schema, atomicity=atomicity)
    written: list[Row] = []
    for way, rows in _ways(atomicity, column_count):
        way(db, path, rows)
        written += rows
        assert db.lookup_rows(path, [{"k": rows[-1]["k"]}]) == rows[-1:], way.__name__
    db.delete_rows(path, [{"k": written[0]["k"]}])
    last_only = {"k": written[1]["k"], f"v{column_count - 1}": -1}
    db.insert_rows(path, [last_only], update=True)
    expected = [{**written[1], **last_only}, *written[2:]]
    assert read(db, path) == expected
    backend.restart_cells()
    assert read(db, path) == expected


@pytest.mark.parametrize("backend", ["embedded", "simulator"], indirect=True)
@pytest.mark.parametrize("column_count", [64, 65])
def test_a_batch_that_is_refused_changes_nothing_and_the_next_is_taken(
    backend: Backend, make_table: MakeTable, column_count: int
) -> None:
    """Of a column that takes MessagePack a node finds out only when it looks at the rows."""
    values: list[dict[str, Any]] = [
        {"name": f"v{place}", "type": "any"} for place in range(column_count)
    ]
    path = make_table([KEY, *values], atomicity="none")
    names = ["k", *(it["name"] for it in values)]
    good, bad = [pa.array([part], pa.binary()) for part in (b"\x01", b"\xc1")]
    columns = [pa.array([1], pa.int64()), *[good] * (column_count - 1)]
    with pytest.raises(SchemaViolation, match="MessagePack"):
        backend.db.write_arrow(path, pa.table([*columns, bad], names))
    assert read(backend.db, path) == []
    backend.db.write_arrow(path, pa.table([*columns, good], names))
    expected = [{"k": 1, **{it["name"]: 1 for it in values}}]
    assert read(backend.db, path) == expected
    backend.restart_cells()
    assert read(backend.db, path) == expected
