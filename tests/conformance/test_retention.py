"""Old versions go, as a table's settings say, and reads below what is left are refused."""

from typing import Any

import pytest

from conformance.backends import Backend
from conformance.bulk import rows
from conformance.selections import UNDER_VIRTUAL_TIME
from conformance.tables import SUM, TWO_COLUMNS, MakeTable, Row, read, refused, value
from dodona.client import Client
from dodona.errors import SnapshotTooOld
from dodona.types import Atomicity, Timestamp

pytestmark = UNDER_VIRTUAL_TIME

AT_ONCE: Row = {"min_data_ttl": 0, "max_data_ttl": 0, "dynamic_store_auto_flush_period": 1_000}
"""As soon as no transaction may need it any more, what is not among the versions to keep goes."""
LATER_MS = 180_000


def _write(db: Client, path: str, *numbers: int) -> list[Timestamp]:
    stamps = [db.insert_rows(path, [{"k": 1, "v": number}]) for number in numbers]
    return [stamp for stamp in stamps if stamp is not None]


def _versions(db: Client, path: str) -> list[Any]:
    (row,) = db.lookup_versions(path, [{"k": 1}])
    return [it.value for it in row.values["v"]]


def _refuse(db: Client, path: str, at: Timestamp) -> None:
    tablet = db.get_table(path).tablets[0].tablet
    where: Row = {"table": path, "tablet": tablet, "timestamp": at}
    for call in (
        lambda: db.lookup_rows(path, [{"k": 1}], timestamp=at),
        lambda: db.select(path, timestamp=at),
        lambda: db.lookup_versions(path, [{"k": 1}], timestamp=at),
    ):
        with refused(
            SnapshotTooOld, "is less than tablet .* retained timestamp", is_retryable=True, **where
        ) as refusal:
            call()
        assert refusal.error.attributes["retained_timestamp"] > at


def test_a_read_below_the_retained_timestamp_is_refused_from_then_on(
    backend: Backend, db: Client, make_table: MakeTable
) -> None:
    path = make_table(TWO_COLUMNS, attributes=AT_ONCE)
    first, *_ = _write(db, path, 1, 2)
    assert value(db, path, 1, timestamp=first) == 1
    backend.let_pass(LATER_MS)
    assert read(db, path) == [{"k": 1, "v": 2, "w": None}]
    _refuse(db, path, first)
    db.remount_table(path)
    _refuse(db, path, first)
    db.unmount_table(path)
    db.mount_table(path)
    _refuse(db, path, first)
    backend.restart_cells()
    _refuse(db, path, first)
    assert read(db, path) == [{"k": 1, "v": 2, "w": None}]


@pytest.mark.parametrize("way", ["reshard", "move", "alter"])
def test_a_retained_timestamp_goes_with_the_rows(
    backend: Backend, db: Client, make_table: MakeTable, new_path: str, way: str
) -> None:
    """Whatever serves them now has what was left of them, and not more."""
    path = make_table(TWO_COLUMNS, attributes=AT_ONCE)
    first, *_ = _write(db, path, 1, 2)
    backend.let_pass(LATER_MS)
    _refuse(db, path, first)
    db.unmount_table(path)
    match way:
        case "reshard":
            db.reshard_table(path, pivot_keys=[[], [1], [2]])
        case "move":
            db.move(path, new_path)
            path = new_path
        case "alter":
            db.alter_table(path, [*TWO_COLUMNS, {"name": "x", "type": "int64"}])
    db.mount_table(path)
    with refused(SnapshotTooOld, "retained timestamp", is_retryable=True):
        db.lookup_rows(path, [{"k": 1}], timestamp=first)
    assert value(db, path, 1) == 2


def test_by_default_versions_of_the_last_half_hour_stay(
    backend: Backend, db: Client, make_table: MakeTable
) -> None:
    path = make_table(TWO_COLUMNS)
    first, *_ = _write(db, path, 1, 2)
    backend.let_pass(LATER_MS)
    assert value(db, path, 1, timestamp=first) == 1
    assert _versions(db, path) == [2, 1]


@pytest.mark.parametrize("count", [1, 3])
def test_a_table_keeps_the_set_number_of_versions_regardless_of_age(
    backend: Backend, db: Client, make_table: MakeTable, count: int
) -> None:
    kept = {"min_data_versions": count, "max_data_versions": count}
    path = make_table(TWO_COLUMNS, attributes=AT_ONCE | kept)
    _write(db, path, 1, 2, 3, 4, 5)
    backend.let_pass(LATER_MS)
    assert _versions(db, path) == [5, 4, 3][:count]


def test_without_versions_to_keep_a_row_expires(
    backend: Backend, db: Client, make_table: MakeTable
) -> None:
    path = make_table(TWO_COLUMNS, attributes=AT_ONCE | {"min_data_versions": 0})
    _write(db, path, 1)
    backend.let_pass(LATER_MS)
    assert read(db, path) == []


EXPIRING: Row = {"min_data_ttl": 0, "max_data_ttl": 1_000, "min_data_versions": 0}


@pytest.mark.parametrize("atomicity", ["full", "none"])
def test_rows_of_loads_expire_as_all_others_do(
    backend: Backend, db: Client, make_table: MakeTable, atomicity: Atomicity
) -> None:
    """Of a table that has nothing but loads; beside it transactions lock rows and write none."""
    path = make_table(atomicity=atomicity, attributes=EXPIRING)
    for number in range(2):
        with db.loads.begin([path], atomicity=atomicity) as load:
            load.write(path, rows(range(number, 30_000)))  # enough for a chunk
    if atomicity == "full":
        with db.begin() as transaction:
            transaction.lock_rows(path, [{"k": 7}])
    assert len(read(db, path)) == 30_000
    backend.let_pass(LATER_MS)
    assert read(db, path) == []
    assert db.lookup_versions(path, [{"k": 29_999}]) == []
    backend.restart_cells()
    assert read(db, path) == []


ADVISED: Row = {"min_data_ttl": 0, "merge_rows_on_flush": True}
"""For tables without atomicity, by the YTsaurus document."""


def test_without_atomicity_versions_go_as_soon_as_no_read_is_under_way(
    backend: Backend, db: Client, make_table: MakeTable
) -> None:
    settings = ADVISED | {"dynamic_store_auto_flush_period": 1_000}
    path = make_table(TWO_COLUMNS, atomicity="none", attributes=settings)
    with db.hold_snapshot([path]) as snapshot:
        for number in range(60):
            _write(db, path, number)
            backend.let_pass(500)
        held_at = snapshot.timestamp
        assert len(_versions(db, path)) == 60  # what the reader sees, and all that is younger
        assert db.lookup_rows(path, [{"k": 1}], timestamp=held_at) == []
    for number in range(60):
        _write(db, path, number)
        backend.let_pass(500)
    assert len(_versions(db, path)) < 30
    _refuse(db, path, held_at)
    assert read(db, path) == [{"k": 1, "v": 59, "w": None}]
    with db.hold_snapshot([path]) as snapshot:
        assert value(db, path, 1, timestamp=snapshot.timestamp) == 59


def test_of_a_deleted_row_nothing_is_left(
    backend: Backend, db: Client, make_table: MakeTable
) -> None:
    path = make_table(TWO_COLUMNS, attributes=AT_ONCE)
    _write(db, path, 1, 2)
    db.delete_rows(path, [{"k": 1}])
    backend.let_pass(LATER_MS)
    assert db.lookup_versions(path, [{"k": 1}]) == []
    db.insert_rows(path, [{"k": 1, "w": b"x"}], update=True)
    assert read(db, path) == [{"k": 1, "v": None, "w": b"x"}]


def test_aggregates_keep_their_value(backend: Backend, db: Client, make_table: MakeTable) -> None:
    path = make_table(SUM, attributes=AT_ONCE)
    for number in (1, 2, 3):
        db.insert_rows(path, [{"k": 1, "total": number}], update=True, aggregate=True)
    backend.let_pass(LATER_MS)
    db.insert_rows(path, [{"k": 1, "total": 4}], update=True, aggregate=True)
    assert value(db, path, 1, "total") == 10
    backend.restart_cells()
    assert value(db, path, 1, "total") == 10


def test_settings_apply_from_the_next_remount(
    backend: Backend, db: Client, make_table: MakeTable
) -> None:
    path = make_table(TWO_COLUMNS)
    first, *_ = _write(db, path, 1, 2)
    for name, setting in AT_ONCE.items():
        db.set(f"{path}/@{name}", setting)
    backend.let_pass(LATER_MS)
    assert value(db, path, 1, timestamp=first) == 1
    db.remount_table(path)
    backend.let_pass(LATER_MS)
    _refuse(db, path, first)


def test_a_transaction_keeps_its_snapshot_until_its_end(
    backend: Backend, db: Client, other: Client, make_table: MakeTable
) -> None:
    path = make_table(TWO_COLUMNS, attributes=AT_ONCE)
    _write(db, path, 0)
    backend.let_pass(LATER_MS)
    transaction = db.begin()
    for number in range(55):
        _write(other, path, number)
        backend.let_pass(1_000)
        assert transaction.lookup_rows(path, [{"k": 1}]) == [{"k": 1, "v": 0, "w": None}]
