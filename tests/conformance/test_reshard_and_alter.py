"""Resharding and altering: the rows stay, and what can not be is refused."""

from collections.abc import Callable
from datetime import date
from typing import Any

import pytest

from conformance.tables import APART, KEY, PLAIN, TWO_COLUMNS, MakeTable, Row, Schema, read, refused
from dodona.client import Client
from dodona.errors import (
    DodonaError,
    InvalidRequest,
    InvalidTabletState,
    SchemaViolation,
    TransactionConflict,
)
from dodona.types import Atomicity

NUMBER: Row = {"name": "v", "type": "int64"}
ROWS = [{"k": key, "v": key} for key in (1, 50, 100, 150, 200)]


def _pivots(db: Client, path: str) -> list[tuple[Any, ...]]:
    return [tablet.pivot_key for tablet in db.get_table(path).tablets]


def _filled(db: Client, make_table: MakeTable, schema: Schema = PLAIN, **options: Any) -> str:
    path = make_table(schema, **options)
    db.insert_rows(path, ROWS)
    db.unmount_table(path)
    return path


# ---- reshard


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ([[]], [[], [100]]),
        ([[], [100]], [[]]),
        ([[], [100]], [[], [50], [150]]),
        ([[], [50], [100]], [[], [75]]),
    ],
)
def test_a_reshard_keeps_the_rows_and_all_their_versions(
    db: Client, make_table: MakeTable, before: list[list[int]], after: list[list[int]]
) -> None:
    path = make_table(pivot_keys=before)
    first = db.insert_rows(path, ROWS)
    second = db.insert_rows(path, [{"k": 100, "v": -1}])
    third = db.delete_rows(path, [{"k": 150}])
    history = {at: read(db, path, timestamp=at) for at in (first, second, third) if at is not None}
    db.unmount_table(path)
    db.reshard_table(path, pivot_keys=after)
    assert _pivots(db, path) == [tuple(pivot) for pivot in after]
    db.mount_table(path)
    assert {at: read(db, path, timestamp=at) for at in history} == history
    db.insert_rows(path, [{"k": 100, "v": 7}])
    assert {row["k"]: row["v"] for row in read(db, path)} == {1: 1, 50: 50, 100: 7, 200: 200}


def test_some_tablets_can_be_resharded_and_the_others_stay(
    db: Client, make_table: MakeTable
) -> None:
    path = _filled(db, make_table, pivot_keys=[[], [50], [100], [200]])
    ids = [tablet.tablet for tablet in db.get_table(path).tablets]
    db.reshard_table(path, pivot_keys=[[50], [60], [70]], first_tablet_index=1, last_tablet_index=2)
    assert _pivots(db, path) == [(), (50,), (60,), (70,), (200,)]
    after = [tablet.tablet for tablet in db.get_table(path).tablets]
    assert (after[0], after[-1]) == (ids[0], ids[-1])
    db.mount_table(path)
    assert read(db, path) == ROWS


def test_a_tablet_count_reshards_evenly(db: Client, make_table: MakeTable) -> None:
    path = make_table([{**KEY, "type": "uint64"}, NUMBER], mount=False)
    db.reshard_table(path, tablet_count=2)
    assert _pivots(db, path) == [(), (1 << 63,)]


@pytest.mark.parametrize(
    ("pivot_keys", "indexes"),
    [
        pytest.param([[5], [10]], {}, id="the first is not empty"),
        pytest.param([[], [10], [10]], {}, id="one twice"),
        pytest.param([[], [20], [10]], {}, id="out of order"),
        pytest.param([], {}, id="none"),
        pytest.param([[]], {"first_tablet_index": 0, "last_tablet_index": 2}, id="too far"),
        pytest.param([[50]], {"first_tablet_index": 1, "last_tablet_index": 1}, id="another first"),
        pytest.param([[], [100]], {"first_tablet_index": 0, "last_tablet_index": 0}, id="too much"),
    ],
)
def test_a_reshard_that_can_not_be_changes_nothing(
    db: Client, make_table: MakeTable, pivot_keys: list[list[int]], indexes: dict[str, int]
) -> None:
    path = _filled(db, make_table, pivot_keys=APART)
    with pytest.raises(InvalidRequest) as caught:
        db.reshard_table(path, pivot_keys=pivot_keys, **indexes)
    assert not caught.value.is_retryable
    assert _pivots(db, path) == [(), (100,)]
    db.mount_table(path)
    assert read(db, path) == ROWS


def test_only_unmounted_tablets_can_be_resharded(db: Client, make_table: MakeTable) -> None:
    path = _filled(db, make_table, pivot_keys=APART)
    db.mount_table(path, first_tablet_index=1, last_tablet_index=1)
    with refused(InvalidTabletState, "is not unmounted", is_retryable=False):
        db.reshard_table(path, pivot_keys=[[]])
    db.reshard_table(path, pivot_keys=[[], [50]], first_tablet_index=0, last_tablet_index=0)
    assert _pivots(db, path) == [(), (50,), (100,)]
    db.mount_table(path)
    assert read(db, path) == ROWS


@pytest.mark.parametrize("atomicity", ["full", "none"])
def test_a_client_that_knew_the_old_tablets_notices_nothing(
    db: Client, other: Client, make_table: MakeTable, atomicity: Atomicity
) -> None:
    path = make_table(PLAIN, pivot_keys=APART, atomicity=atomicity)
    other.insert_rows(path, ROWS)
    keys = [{"k": row["k"]} for row in ROWS]
    uses: list[Callable[[], Any]] = [
        lambda: other.lookup_rows(path, keys) == ROWS,
        lambda: list(other.select(path)) == ROWS,
        lambda: other.read_arrow(path).to_pylist() == ROWS,
        lambda: other.insert_rows(path, ROWS),
        lambda: other.delete_rows(path, [{"k": 7}]),
    ]
    for number, use in enumerate(uses):
        db.unmount_table(path)
        db.reshard_table(path, pivot_keys=[[], [30 + number], [120 - number]])
        db.mount_table(path)
        assert use()
    assert read(db, path) == ROWS


def test_a_table_can_be_resharded_again_and_again(db: Client, make_table: MakeTable) -> None:
    path = _filled(db, make_table)
    cuts: list[list[list[int]]] = [[[], [100]], [[], [50], [100]], [[]], [[], [150]]]
    for pivot_keys in cuts:
        db.reshard_table(path, pivot_keys=pivot_keys)
    db.mount_table(path)
    assert read(db, path) == ROWS


# ---- alter


def test_a_value_column_can_be_added_and_reads_null(db: Client, make_table: MakeTable) -> None:
    path = _filled(db, make_table)
    db.alter_table(path, TWO_COLUMNS)
    db.mount_table(path)
    assert read(db, path) == [row | {"w": None} for row in ROWS]
    db.insert_rows(path, [{"k": 1, "w": b"x"}], update=True)
    assert db.lookup_rows(path, [{"k": 1}]) == [{"k": 1, "v": 1, "w": b"x"}]


def test_a_key_column_can_be_appended_and_reads_null(db: Client, make_table: MakeTable) -> None:
    path = _filled(db, make_table)
    db.alter_table(path, [KEY, {**KEY, "name": "l"}, NUMBER])
    db.mount_table(path)
    assert read(db, path) == [{"k": row["k"], "l": None, "v": row["v"]} for row in ROWS]
    db.insert_rows(path, [{"k": 1, "l": 0, "v": 0}, {"k": 1, "l": None, "v": -1}])
    found = db.lookup_rows(path, [{"k": 1, "l": None}, {"k": 1, "l": 0}])
    assert [row["v"] for row in found] == [-1, 0]
    assert [(row["k"], row["l"]) for row in read(db, path)][:3] == [(1, None), (1, 0), (50, None)]


def test_a_column_that_becomes_an_aggregate_keeps_its_value_as_the_base(
    db: Client, make_table: MakeTable
) -> None:
    path = _filled(db, make_table)
    db.alter_table(path, [KEY, {**NUMBER, "aggregate": "sum"}])
    db.mount_table(path)
    db.insert_rows(path, [{"k": 50, "v": 5}], aggregate=True)
    assert db.lookup_rows(path, [{"k": 50}]) == [{"k": 50, "v": 55}]


def test_locks_can_be_changed_and_a_column_need_not_be_required_any_more(
    db: Client, make_table: MakeTable
) -> None:
    other: Row = {"name": "w", "type": "int64"}
    path = make_table([KEY, {**NUMBER, "required": True}, other])
    db.insert_rows(path, [{"k": 1, "v": 1, "w": 1}])
    db.unmount_table(path)
    db.alter_table(path, [KEY, {**NUMBER, "lock": "one"}, {**other, "lock": "two"}])
    db.mount_table(path)
    first, second, third = db.begin(), db.begin(), db.begin()
    first.insert_rows(path, [{"k": 1, "v": None}], update=True)
    second.insert_rows(path, [{"k": 1, "w": 2}], update=True)
    third.insert_rows(path, [{"k": 1, "w": 3}], update=True)
    first.commit()
    second.commit()
    with refused(TransactionConflict, is_retryable=True, lock="two"):
        third.commit()
    assert read(db, path) == [{"k": 1, "v": None, "w": 2}]


@pytest.mark.parametrize(
    "schema",
    [
        pytest.param([{**KEY, "name": "l"}, NUMBER], id="another key column"),
        pytest.param([{**KEY, "name": "l"}, KEY, NUMBER], id="a key column in front"),
        pytest.param([{**KEY, "type": "string"}, NUMBER], id="another key type"),
        pytest.param([KEY, {**NUMBER, "type": "string"}], id="another type"),
        pytest.param([KEY, {"name": "w", "type": "int64"}], id="a column dropped"),
        pytest.param(
            [KEY, NUMBER, {"name": "w", "type": "int64", "required": True}],
            id="a new required column",
        ),
        pytest.param([KEY, {**NUMBER, "required": True}], id="a column that becomes required"),
        pytest.param([NUMBER], id="no key columns"),
        pytest.param([KEY], id="key columns only"),
    ],
)
def test_a_schema_that_the_rows_would_not_fit_is_refused(
    db: Client, make_table: MakeTable, schema: Schema
) -> None:
    path = _filled(db, make_table)
    with pytest.raises(InvalidRequest) as caught:
        db.alter_table(path, schema)
    assert type(caught.value) in (InvalidRequest, SchemaViolation)
    db.mount_table(path)
    assert read(db, path) == ROWS


def test_a_dropped_key_column_is_refused(db: Client, make_table: MakeTable) -> None:
    path = make_table([KEY, {**KEY, "name": "l"}, NUMBER], mount=False)
    with pytest.raises(DodonaError) as caught:
        db.alter_table(path, PLAIN)
    assert isinstance(caught.value, InvalidRequest)
    assert len(db.get_table(path).schema.key_columns) == 2


def test_a_mounted_table_is_not_altered(db: Client, make_table: MakeTable) -> None:
    path = make_table(PLAIN, pivot_keys=APART)
    db.unmount_table(path, first_tablet_index=0, last_tablet_index=0)
    with refused(InvalidTabletState, is_retryable=False):
        db.alter_table(path, TWO_COLUMNS)
    assert db.get_table(path).schema.value_names == ("v",)


@pytest.mark.parametrize("is_flushed", [False, True])
def test_a_struct_gets_optional_fields_which_are_null_in_older_rows(
    db: Client, make_table: MakeTable, is_flushed: bool
) -> None:
    path = make_table([KEY, {"name": "v", "type": "list<struct<a:int8>>"}])
    db.insert_rows(path, [{"k": 1, "v": [{"a": 1}]}])
    db.unmount_table(path)
    wide = [KEY, {"name": "v", "type": "list<struct<a:int32,b:optional<date>>>"}]
    db.alter_table(path, wide)
    db.mount_table(path)
    old = {"k": 1, "v": [{"a": 1, "b": None}]}
    new = {"k": 2, "v": [{"a": 1 << 20, "b": date(2024, 2, 29)}]}
    db.insert_rows(path, [new])
    if is_flushed:
        db.unmount_table(path)
        db.mount_table(path)
    assert read(db, path) == [old, new]
    assert db.read_arrow(path)["v"].to_pylist() == [old["v"], new["v"]]
    db.unmount_table(path)
    for column in ({"type": "list<struct<a:int8>>"}, {"type": "any"}):
        with pytest.raises(SchemaViolation, match="can't change from"):
            db.alter_table(path, [KEY, {"name": "v", **column}])
