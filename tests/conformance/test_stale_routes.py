"""What a client knows of a table may be old: another one has altered it since, or made it anew.

Nothing that the table takes now is refused by what it was before, and no cell has to say so first.
"""

from collections.abc import Callable, Iterator
from typing import Any

import pyarrow
import pytest

from conformance.backends import Backend
from conformance.tables import PLAIN, TWO_COLUMNS, MakeTable, read, refused
from dodona.client import Client
from dodona.errors import MetadataChanged, SchemaViolation

NEW = {"k": 1, "v": 1, "w": b"2"}
"""A row as TWO_COLUMNS has it, and PLAIN has not."""
ARROW = pyarrow.Table.from_pylist([NEW])


def in_a_transaction(db: Client, path: str) -> None:
    with db.begin() as transaction:
        transaction.insert_rows(path, iter([NEW]))


def load(db: Client, path: str) -> None:
    with db.loads.begin([path]) as load:
        load.write(path, ARROW)


def join_a_load(db: Client, other: Client, path: str) -> None:
    """As a task does, whose process wrote to the table in another job."""
    with other.loads.begin([path]) as load:
        staged = db.loads.join(load.ticket).write(path, ARROW)
        load.publish(staged)


def scan_pages(db: Client, path: str) -> list[Any]:
    with db.hold_snapshot([path]) as snapshot:
        batches = snapshot.read_batches(path, columns=["w"])
        return [row for batch in batches for row in batch.to_pylist()]


def changes_of(db: Client, path: str) -> list[Any]:
    return [row for batch in db.read_changes(path, 1, columns=["w"]) for row in batch.to_pylist()]


WRITES: dict[str, Callable[[Client, str], object]] = {
    "insert_rows": lambda db, path: db.insert_rows(path, iter([NEW])),
    "in a transaction": in_a_transaction,
    "load": load,
}
READS: dict[str, Callable[[Client, str], object]] = {
    "lookup_rows": lambda db, path: db.lookup_rows(path, iter([{"k": 1}]), columns=["w"]),
    "lookup_versions": lambda db, path: db.lookup_versions(path, [{"k": 1}], columns=["w"]),
    "select": lambda db, path: list(db.select(path, columns=["w"])),
    "read_arrow": lambda db, path: db.read_arrow(path, columns=["w"]).to_pylist(),
    "read_batches": scan_pages,
    "read_changes": changes_of,
    "query": lambda db, path: db.query(f"select w from [{path}]").to_pylist(),
}


@pytest.fixture(params=["full", "none"])
def altered(
    request: pytest.FixtureRequest, db: Client, other: Client, make_table: MakeTable
) -> Iterator[str]:
    """A table that `db` knew before."""
    path = make_table(PLAIN, atomicity=request.param)
    db.insert_rows(path, [{"k": 1, "v": 1}])
    alter(other, path, TWO_COLUMNS)
    yield path
    assert db.lookup_rows(path, [{"k": 1}]), "and nothing is lost"


def alter(db: Client, path: str, schema: Any) -> None:
    db.unmount_table(path)
    db.alter_table(path, schema)
    db.mount_table(path)


def rows_in_one_dict() -> Iterator[dict[str, Any]]:
    row: dict[str, Any] = {"k": 1, "v": 1}
    yield row
    row["k"] = 2
    yield row
    row.update(k=3, w=b"2")  # only here does the old schema not fit
    yield row


@pytest.mark.parametrize("altered", ["full"], indirect=True)
def test_a_generator_may_give_one_dict_again_and_again(db: Client, altered: str) -> None:
    db.insert_rows(altered, rows_in_one_dict())
    assert [row["k"] for row in read(db, altered)] == [1, 2, 3]
    assert [row["w"] for row in read(db, altered)] == [None, None, b"2"]


@pytest.mark.parametrize("altered", ["full"], indirect=True)
@pytest.mark.parametrize("way", WRITES)
def test_new_columns_are_written(db: Client, altered: str, way: str) -> None:
    WRITES[way](db, altered)
    assert read(db, altered) == [NEW]


@pytest.mark.parametrize("altered", ["full"], indirect=True)
def test_a_client_that_joins_a_load_can_load_new_columns(
    db: Client, other: Client, altered: str
) -> None:
    join_a_load(db, other, altered)
    assert read(db, altered) == [NEW]


@pytest.mark.parametrize("altered", ["none"], indirect=True)
def test_new_columns_come_in_bulk(db: Client, altered: str) -> None:
    assert db.write_arrow(altered, iter([ARROW])) == 1
    assert read(db, altered) == [NEW]


@pytest.mark.parametrize("altered", ["none"], indirect=True)
def test_new_columns_may_be_left_out_in_bulk(db: Client, altered: str) -> None:
    """What fits both ways is sent as it was before; the cell says that it is another table now."""
    with refused(MetadataChanged, "altered since", is_retryable=False, row_count=0, added=["w"]):
        db.write_arrow(altered, ARROW.drop("w"))
    assert db.write_arrow(altered, ARROW.drop("w")) == 1
    assert read(db, altered) == [{**NEW, "w": None}]


@pytest.mark.parametrize("altered", ["full"], indirect=True)
def test_new_columns_may_be_left_out_of_a_load(db: Client, other: Client, altered: str) -> None:
    with other.loads.begin([altered]) as load:
        load.publish(db.loads.join(load.ticket).write(altered, ARROW.drop("w")))
    assert read(db, altered) == [{**NEW, "w": None}]


@pytest.mark.parametrize("way", READS)
def test_new_columns_are_read(db: Client, altered: str, way: str) -> None:
    assert READS[way](db, altered)


@pytest.mark.parametrize("altered", ["full"], indirect=True)
def test_an_unknown_column_is_still_refused_after_the_schema_changed(
    db: Client, altered: str
) -> None:
    row = {**NEW, "x": 3}
    for insert in (db.insert_rows, db.begin().insert_rows):
        with refused(SchemaViolation, "no such column", is_retryable=False):
            insert(altered, iter([row]))
    with refused(SchemaViolation, "no such column", is_retryable=False):
        db.lookup_rows(altered, [{"k": 1}], columns=["x"])


@pytest.mark.parametrize("atomicity", ["full", "none"])
def test_a_recreated_table_is_written_with_its_new_atomicity(
    db: Client, other: Client, make_table: MakeTable, atomicity: str
) -> None:
    before = "none" if atomicity == "full" else "full"
    path = make_table(PLAIN, atomicity=before)
    for _ in range(2):
        db.insert_rows(path, [{"k": 1, "v": 1}])
        db.write_arrow(path, ARROW.drop("w")) if before == "none" else load_plain(db, path)
        other.remove(path)
        other.create_table(path, PLAIN, atomicity=atomicity, mount=True)  # type: ignore[arg-type]
        with db.begin(atomicity) as transaction:  # type: ignore[arg-type]
            transaction.insert_rows(path, [{"k": 1, "v": 1}])
        before, atomicity = atomicity, before


def load_plain(db: Client, path: str) -> None:
    with db.loads.begin([path], overwrites=True) as load:
        load.write(path, ARROW.drop("w"))


def test_a_table_that_has_atomicity_by_now_is_scanned_at_one_timestamp(
    backend: Backend, db: Client, other: Client, make_table: MakeTable
) -> None:
    path = make_table(PLAIN, atomicity="none")
    db.insert_rows(path, [{"k": 1, "v": 1}])
    other.remove(path)
    other.create_table(path, PLAIN, mount=True)
    other.insert_rows(path, [{"k": 2, "v": 2}])
    for _ in range(100):  # until the cell has heard that the old one is gone
        found = list(db.select(path))
        if found != [{"k": 1, "v": 1}]:
            break
        backend.let_pass(50)
    assert found == read(db, path) == [{"k": 2, "v": 2}]
