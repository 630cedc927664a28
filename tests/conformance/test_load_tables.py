"""Bulk loads whose tables change while they are under way: which error says so."""

from collections.abc import Callable
from typing import Final

import pyarrow as pa
import pytest

from conformance.bulk import HALVES, rows, values
from conformance.tables import PLAIN, TWO_COLUMNS, MakeTable, read, refused
from dodona.client import Client
from dodona.errors import (
    DodonaError,
    MetadataChanged,
    ProtocolChanged,
    TableNotMounted,
)


def test_a_table_that_was_altered_takes_nothing_of_the_load(
    db: Client, make_table: MakeTable
) -> None:
    path = make_table()
    load = db.loads.begin([path])
    load.write(path, rows([1]))
    db.unmount_table(path)
    db.alter_table(path, TWO_COLUMNS)
    db.mount_table(path)
    with refused(MetadataChanged, "altered", is_retryable=False, table=path):
        load.publish()
    load.abort()
    assert read(db, path) == []


@pytest.mark.parametrize("is_removed", [False, True])
def test_a_load_is_refused_if_its_table_was_removed_or_created_again(
    db: Client, make_table: MakeTable, is_removed: bool
) -> None:
    path = make_table(pivot_keys=HALVES)
    load = db.loads.begin([path])
    staged = load.write(path, rows([1, 150]))
    db.remove(path)
    if not is_removed:
        db.create_table(path, PLAIN, pivot_keys=HALVES, mount=True)
    text = "removed" if is_removed else "created again"
    with refused(ProtocolChanged, text, is_retryable=False, table=path):
        load.publish(staged)
    load.abort()
    if not is_removed:
        assert values(db, path) == {}


def test_a_table_that_was_resharded_takes_nothing_of_the_load(
    db: Client, make_table: MakeTable
) -> None:
    path = make_table(pivot_keys=HALVES)
    load = db.loads.begin([path])
    load.write(path, rows([1, 150]))
    db.unmount_table(path)
    db.reshard_table(path, pivot_keys=[[], [50], [100]])
    db.mount_table(path)
    with refused(ProtocolChanged, "resharded", is_retryable=False, table=path):
        load.publish()
    load.abort()
    assert values(db, path) == {}


def _alter(db: Client, path: str) -> None:
    db.unmount_table(path)
    db.alter_table(path, TWO_COLUMNS)
    db.mount_table(path)


def _set(db: Client, path: str) -> None:
    db.set(f"{path}/@max_data_versions", 7)


def _set_and_remount(db: Client, path: str) -> None:
    _set(db, path)
    db.remount_table(path)


def _unmount(db: Client, path: str) -> None:
    db.unmount_table(path)


def _remove(db: Client, path: str) -> None:
    db.remove_table(path)


def _make_anew(db: Client, path: str) -> None:
    """Whatever its columns are now."""
    db.remove_table(path)
    db.create_table(path, TWO_COLUMNS, mount=True)


def _alter_and_reshard(db: Client, path: str) -> None:
    db.unmount_table(path)
    db.alter_table(path, TWO_COLUMNS)
    db.reshard_table(path, pivot_keys=[[], [7]])
    db.mount_table(path)


CHANGES: Final = [
    (_alter, MetadataChanged),
    (_set, MetadataChanged),
    (_set_and_remount, MetadataChanged),
    (_unmount, ProtocolChanged),
    (_remove, ProtocolChanged),
    (_make_anew, ProtocolChanged),
    (_alter_and_reshard, ProtocolChanged),
]
"""What is done to a table, and what the pages say of a load that was begun before."""


@pytest.mark.parametrize(("change", "error"), CHANGES)
def test_the_error_of_a_publication_depends_on_the_change_of_the_table(
    db: Client,
    make_table: MakeTable,
    change: Callable[[Client, str], None],
    error: type[DodonaError],
) -> None:
    path = make_table()
    load = db.loads.begin([path])
    load.write(path, rows([1]))
    change(db, path)
    with refused(error, is_retryable=False, table=path) as refusal:
        load.publish()
    assert refusal.error.action == "look"
    load.abort()


@pytest.mark.parametrize("change", [_unmount, _remove])
def test_a_load_refuses_rows_for_an_unmounted_or_removed_table(
    db: Client, make_table: MakeTable, change: Callable[[Client, str], None]
) -> None:
    path = make_table()
    load = db.loads.begin([path])
    change(db, path)
    with refused(ProtocolChanged, is_retryable=False, table=path):
        load.write(path, rows([1]))
    load.abort()


def test_a_remount_and_another_tables_attributes_change_nothing(
    db: Client, make_table: MakeTable
) -> None:
    path, other = make_table(), make_table()
    with db.loads.begin([path]) as load:
        load.write(path, rows([1]))
        db.remount_table(path)
        _set_and_remount(db, other)
    assert values(db, path) == {1: 1}


def test_rows_that_no_longer_fit_an_altered_table_raise_metadata_changed(
    db: Client, make_table: MakeTable
) -> None:
    path = make_table()
    load = db.loads.begin([path])
    _alter(db, path)
    with refused(MetadataChanged, "altered", is_retryable=False, table=path):
        load.write(path, pa.table({"k": [1], "y": [1]}))
    load.abort()


def test_an_unmount_drops_the_staged_rows_of_a_load(db: Client, make_table: MakeTable) -> None:
    path = make_table(pivot_keys=HALVES)
    load = db.loads.begin([path])
    load.write(path, rows([1, 150]))
    db.unmount_table(path)
    with refused(ProtocolChanged, "unmounted", is_retryable=False, table=path):
        load.publish()
    with refused(ProtocolChanged, "unmounted", is_retryable=False, table=path):
        load.write(path, rows([1]))
    db.mount_table(path)
    with refused(ProtocolChanged, "unmounted", is_retryable=False, load=load.id):
        load.publish()
    staged = load.write(path, rows([2, 151]))
    assert load.publish(staged).row_count == 2, "what comes later is taken"
    assert sorted(values(db, path)) == [2, 151]


def test_a_load_is_refused_while_its_table_is_frozen_and_accepted_afterwards(
    db: Client, make_table: MakeTable
) -> None:
    path = make_table(pivot_keys=HALVES)
    load = db.loads.begin([path])
    load.write(path, rows([1, 150]))
    db.freeze_table(path)
    with refused(TableNotMounted, is_retryable=False, table=path):
        load.write(path, rows([2]))
    with refused(TableNotMounted, is_retryable=False, table=path):
        load.publish()
    assert values(db, path) == {}
    db.unfreeze_table(path)
    published = load.publish()
    assert sorted(values(db, path)) == [1, 150]
    db.unmount_table(path)
    assert load.publish() == published
