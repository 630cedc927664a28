"""A snapshot that is held stays readable, whatever happens to cells and tables meanwhile."""

from itertools import pairwise
from typing import Any

import pytest

from conformance.backends import Backend, Simulated
from conformance.selections import UNDER_VIRTUAL_TIME
from conformance.tables import TWO_COLUMNS, MakeTable, Row, read, refused
from dodona.client import Client
from dodona.errors import (
    InvalidRequest,
    MetadataChanged,
    SnapshotTooOld,
    TableNotFound,
    TableNotMounted,
)
from dodona.snapshot import Snapshot
from dodona.types import CellId, Timestamp

AT_ONCE: Row = {"min_data_ttl": 0, "max_data_ttl": 0, "dynamic_store_auto_flush_period": 1_000}
LATER_MS = 180_000
"""Two leases, and the life of a transaction."""
PIVOTS: list[list[int]] = [[], [3], [6]]
BEFORE = [{"k": number, "v": 1, "w": None} for number in range(9)]


def _write(db: Client, path: str, value: int) -> None:
    db.insert_rows(path, [{"k": number, "v": value} for number in range(9)])


def _prepare(db: Client, make_table: MakeTable, **attributes: Any) -> str:
    path = make_table(TWO_COLUMNS, pivot_keys=PIVOTS, attributes={**AT_ONCE, **attributes})
    _write(db, path, 1)
    return path


def _move(db: Client, path: str, to: str) -> None:
    db.unmount_table(path)
    db.move(path, to)
    db.mount_table(to)


def _rows(snapshot: Snapshot, path: str, *ends: Any) -> list[Row]:
    return [row for batch in snapshot.read_batches(path, *ends) for row in batch.to_pylist()]


def _is_kept(db: Client, path: str, at: Timestamp) -> bool:
    try:
        return read(db, path, timestamp=at) == BEFORE
    except SnapshotTooOld:
        return False


# ---- whatever the back end


def test_a_snapshot_shows_tables_as_they_were(db: Client, make_table: MakeTable) -> None:
    path = _prepare(db, make_table)
    with db.hold_snapshot([path]) as snapshot:
        _write(db, path, 2)
        assert _rows(snapshot, path) == BEFORE
        assert read(db, path, timestamp=snapshot.timestamp) == BEFORE
        assert _rows(snapshot, path, [2], [7]) == BEFORE[2:7]
        (key, *_) = snapshot.read_batches(path, columns=["k"])
        assert key.schema.names == ["k"]
        snapshot.check()
    with refused(InvalidRequest, "snapshot was released", is_retryable=False):
        snapshot.check()
    with refused(InvalidRequest, "snapshot was released", is_retryable=False):
        _rows(snapshot, path)


def test_a_timestamp_can_be_given(db: Client, make_table: MakeTable) -> None:
    path = _prepare(db, make_table)
    at = db.generate_timestamp()
    _write(db, path, 2)
    with db.hold_snapshot([path], at) as snapshot:
        assert snapshot.timestamp == at
        assert _rows(snapshot, path) == BEFORE


def test_a_snapshot_is_cut_into_parts_and_shared(db: Client, make_table: MakeTable) -> None:
    path = _prepare(db, make_table)
    with db.hold_snapshot([path], lease_ms=600_000) as snapshot:
        _write(db, path, 2)
        cuts = snapshot.split(path, 2)
        assert cuts == sorted(cuts)
        assert {(3,), (6,)} < set(cuts), "no part goes over the end of a tablet"
        share = db.hold_snapshot([path], snapshot.timestamp, reader=snapshot.reader)
        assert (share.reader, share.timestamp) == (snapshot.reader, snapshot.timestamp)
        parts = [_rows(share, path, *ends) for ends in pairwise([None, *cuts, None])]
        assert [row for part in parts for row in part] == BEFORE
        assert max(len(part) for part in parts) == 2
        assert snapshot.split(path, 100, [1], [2]) == []
        assert snapshot.split(path, 100, [1], [4]) == [(3,)]


@pytest.mark.parametrize("replace", ["made anew", "moved there"])
def test_a_held_snapshot_does_not_read_another_table_at_the_same_path(
    db: Client, make_table: MakeTable, new_path: str, replace: str
) -> None:
    """It had no rows then, or other ones: they were read as if they were those of the snapshot."""
    path, other = _prepare(db, make_table), make_table(TWO_COLUMNS)
    _write(db, other, 5)
    with db.hold_snapshot([path, other]) as snapshot:
        under_way = snapshot.read_batches(path)
        assert next(under_way).num_rows > 0
        assert [*snapshot.tables] == [path, other]
        if replace == "made anew":
            db.remove_table(path)
            db.create_table(path, TWO_COLUMNS, mount=True)
        else:
            _move(db, path, new_path)
            _move(db, other, path)
            db.create_table(other, TWO_COLUMNS, mount=True)
        with refused(MetadataChanged, f"Another table is at {path}", is_retryable=False):
            _rows(snapshot, path)
        with refused(MetadataChanged, f"Another table is at {path}", is_retryable=False):
            list(under_way)
        with db.hold_snapshot([path], snapshot.timestamp, reader=snapshot.reader) as share:
            assert share.tables[path] != snapshot.tables[path]
    with db.hold_snapshot([path]) as snapshot:
        _move(db, path, f"{new_path}-too")
        with refused(TableNotFound, path, is_retryable=False):
            _rows(snapshot, path)
        _move(db, f"{new_path}-too", path)
        assert len(_rows(snapshot, path)) == (0 if replace == "made anew" else 9)


def test_tables_without_atomicity_are_read_at_their_newest(
    db: Client, make_table: MakeTable
) -> None:
    path = make_table(TWO_COLUMNS, atomicity="none")
    with db.hold_snapshot([path]) as snapshot:
        db.insert_rows(path, [{"k": 1, "v": 1}])
        assert len(_rows(snapshot, path)) == 1


def test_hold_snapshot_refuses_no_tables_missing_tables_and_unmounted_tables(
    db: Client, make_table: MakeTable, new_path: str
) -> None:
    path = make_table(TWO_COLUMNS, mount=False)
    with refused(TableNotMounted, "Cannot read from tablet", is_retryable=False):
        db.hold_snapshot([path])
    with refused(TableNotFound, "no table", is_retryable=False):
        db.hold_snapshot([new_path])
    with refused(InvalidRequest, "1 to 10000 tables", is_retryable=False):
        db.hold_snapshot([])


def test_an_error_in_the_block_is_the_block_s(db: Client, make_table: MakeTable) -> None:
    path = _prepare(db, make_table)
    with pytest.raises(ZeroDivisionError), db.hold_snapshot([path]) as snapshot:
        raise ZeroDivisionError
    with refused(InvalidRequest, "snapshot was released", is_retryable=False):
        snapshot.check()


# ---- with time


@UNDER_VIRTUAL_TIME
def test_cells_keep_old_versions_only_while_a_snapshot_is_held(
    backend: Backend, db: Client, other: Client, make_table: MakeTable
) -> None:
    path = _prepare(db, make_table)
    with db.hold_snapshot([path]) as snapshot:
        _write(db, path, 2)
        for _ in range(5):
            backend.let_pass(LATER_MS)
            assert _rows(snapshot, path) == BEFORE
            assert _is_kept(other, path, snapshot.timestamp)
    backend.let_pass(LATER_MS)
    assert not _is_kept(db, path, snapshot.timestamp)
    with refused(SnapshotTooOld, "is less than tablet .* retained timestamp", is_retryable=True):
        db.hold_snapshot([path], snapshot.timestamp)


@UNDER_VIRTUAL_TIME
def test_rows_that_expire_stay_as_well(backend: Backend, db: Client, make_table: MakeTable) -> None:
    path = _prepare(db, make_table, min_data_versions=0)
    with db.hold_snapshot([path]) as snapshot:
        backend.let_pass(3 * LATER_MS)
        assert _rows(snapshot, path) == BEFORE
    backend.let_pass(LATER_MS)
    assert read(db, path) == []


@UNDER_VIRTUAL_TIME
def test_other_tables_grow_old(backend: Backend, db: Client, make_table: MakeTable) -> None:
    path, neighbour = _prepare(db, make_table), _prepare(db, make_table)
    with db.hold_snapshot([path]) as snapshot:
        _write(db, neighbour, 2)
        backend.let_pass(LATER_MS)
        assert not _is_kept(db, neighbour, snapshot.timestamp)


@UNDER_VIRTUAL_TIME
@pytest.mark.parametrize("period_ms", [10_000, 50_000, 100_000])
def test_restarted_cells_keep_the_versions_of_a_held_snapshot(
    backend: Backend, db: Client, make_table: MakeTable, period_ms: int
) -> None:
    path = _prepare(db, make_table)
    with db.hold_snapshot([path]) as snapshot:
        _write(db, path, 2)
        for _ in range(5):
            backend.let_pass(period_ms)
            backend.restart_cells()
            assert _rows(snapshot, path) == BEFORE
        backend.let_pass(LATER_MS)
        assert _rows(snapshot, path) == BEFORE


@pytest.mark.slow("cells that hand over rows, on every back end")
@UNDER_VIRTUAL_TIME
def test_resharded_tablets_keep_the_versions_of_a_held_snapshot(
    backend: Backend, db: Client, other: Client, make_table: MakeTable
) -> None:
    """Between two renewals, just before old versions would go, and at other moments."""
    path = _prepare(db, make_table)
    with db.hold_snapshot([path]) as snapshot:
        _write(db, path, 2)
        for number in range(12):
            backend.let_pass(LATER_MS // 2 + 2_700 * number)
            other.unmount_table(path)
            other.reshard_table(path, pivot_keys=[[], [1], [number % 7 + 2]])
            other.mount_table(path)
            backend.let_pass(14_000)
            assert _is_kept(other, path, snapshot.timestamp)
        backend.let_pass(LATER_MS)
        assert _rows(snapshot, path) == BEFORE


@UNDER_VIRTUAL_TIME
def test_cells_release_the_snapshot_of_a_dead_reader_when_its_lease_ends(
    backend: Backend, db: Client, other: Client, make_table: MakeTable
) -> None:
    path = _prepare(db, make_table)
    at = db.generate_timestamp()
    assert isinstance(backend, Simulated)
    held = backend.start(other, other._session.hold_snapshot([path], at)).result()
    assert held.is_open, "and nobody renews it"
    _write(db, path, 2)
    backend.let_pass(55_000)
    assert _is_kept(db, path, at)
    backend.let_pass(LATER_MS)
    assert not _is_kept(db, path, at)


@UNDER_VIRTUAL_TIME
def test_a_cell_that_is_away_for_long_is_no_secret(
    backend: Backend, db: Client, make_table: MakeTable
) -> None:
    path = _prepare(db, make_table)
    assert isinstance(backend, Simulated)
    cell = db.get_table(path).tablets[0].cell
    assert cell is not None
    with db.hold_snapshot([path]) as snapshot:
        with backend.cell_is_down(CellId(cell)):
            backend.let_pass(30_000)
        backend.let_pass(LATER_MS)
        assert _rows(snapshot, path) == BEFORE
    with (
        refused(
            SnapshotTooOld, "could not renew the lease in all cells in time", is_retryable=True
        ),
        db.hold_snapshot([path]) as snapshot,
        backend.cell_is_down(CellId(cell)),
    ):
        backend.let_pass(60_000)
