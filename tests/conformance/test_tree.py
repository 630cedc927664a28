"""The tree: directories, tables and attributes, and what moving and copying does to tables."""

from collections.abc import Callable
from typing import Any

import pyarrow
import pytest

from conformance.backends import Backend
from conformance.tables import PLAIN, MakeTable, read, refused, value
from dodona.client import Client
from dodona.errors import (
    DodonaWarning,
    InvalidRequest,
    InvalidTabletState,
    NodeExists,
    NodeNotFound,
    TableNotFound,
)
from dodona.types import TableSettings


@pytest.fixture
def folder(db: Client, new_path: str) -> str:
    db.create_directory(new_path, recursive=True)
    return new_path


# ---- attributes that mean nothing


def test_a_misspelled_setting_makes_no_table(db: Client, new_path: str) -> None:
    with pytest.raises(InvalidRequest, match="Did you mean 'min_data_ttl'"):
        db.create_table(new_path, PLAIN, attributes={"min_data_tll": 1})
    assert not db.exists(new_path)


def test_an_attribute_without_meaning_is_kept_with_a_warning(db: Client, new_path: str) -> None:
    with pytest.warns(DodonaWarning, match="'optimize_for'"):
        db.create_table(new_path, PLAIN, attributes={"optimize_for": "scan", "team": "x"})
    with pytest.warns(DodonaWarning, match="'forced_compaction_revision'"):
        db.set(f"{new_path}/@forced_compaction_revision", 1)
    assert db.get(f"{new_path}/@optimize_for") == "scan"
    with pytest.warns(DodonaWarning, match="'account'"):
        db.create_directory(f"{new_path}-directory", attributes={"account": "x"})


def test_a_setting_of_tables_is_refused_for_a_directory(db: Client, folder: str) -> None:
    with pytest.raises(InvalidRequest, match="this is a directory"):
        db.set(f"{folder}/@min_data_ttl", 1)
    with pytest.raises(InvalidRequest, match="this is a directory"):
        db.create_directory(f"{folder}/d", {"atomicity": "none"})
    assert db.list(folder) == []


# ---- directories


def test_a_directory_lists_its_tables_and_directories(db: Client, folder: str) -> None:
    assert db.list(folder) == []
    for name in ("b", "a"):
        db.create_directory(f"{folder}/{name}")
    db.create_table(f"{folder}/c", PLAIN)
    assert db.list(folder) == ["a", "b", "c"]
    assert db.get(folder) == {"a": {}, "b": {}, "c": None}
    assert db.exists(f"{folder}/a")
    assert not db.exists(f"{folder}/d")


def test_a_table_is_created_with_its_parent_directories(db: Client, new_path: str) -> None:
    db.create_table(f"{new_path}/a/b", PLAIN)
    assert db.list(f"{new_path}/a") == ["b"]
    assert db.list_tables(f"{new_path}/") == [f"{new_path}/a/b"]


def test_a_directory_is_made_in_one_that_is_there(db: Client, folder: str) -> None:
    with refused(NodeNotFound, is_retryable=False):
        db.create_directory(f"{folder}/a/b")
    db.create_directory(f"{folder}/a/b", recursive=True)
    with refused(NodeExists, is_retryable=False):
        db.create_directory(f"{folder}/a")
    db.create_directory(f"{folder}/a", ignore_existing=True)
    assert db.list(f"{folder}/a") == ["b"]


def test_nothing_is_inside_a_table(db: Client, make_table: MakeTable) -> None:
    path = make_table()
    with pytest.raises(InvalidRequest) as caught:
        db.create_directory(f"{path}/a")
    assert not caught.value.is_retryable
    with pytest.raises(InvalidRequest):
        db.create_table(f"{path}/a", PLAIN)


def test_only_an_empty_directory_is_removed_unless_asked_for_all(db: Client, folder: str) -> None:
    db.create_table(f"{folder}/a/t", PLAIN, mount=True)
    with refused(InvalidRequest, is_retryable=False):
        db.remove(f"{folder}/a")
    assert db.exists(f"{folder}/a/t")
    db.remove(f"{folder}/a", recursive=True)
    assert not db.exists(f"{folder}/a")
    with refused(TableNotFound, is_retryable=False):
        db.get_table(f"{folder}/a/t")


def test_removing_a_missing_node_or_attribute_is_an_error_unless_forced(
    db: Client, folder: str
) -> None:
    for path in (f"{folder}/a", f"{folder}/@a"):
        with pytest.raises(NodeNotFound) as caught:
            db.remove(path)
        assert not caught.value.is_retryable
        db.remove(path, force=True)


# ---- attributes


def test_attributes_of_any_kind_are_kept(db: Client, folder: str) -> None:
    values: dict[str, Any] = {"text": "x", "number": 1, "nested": {"a": [1, None, True]}}
    for name, each in values.items():
        db.set(f"{folder}/@{name}", each)
    assert {name: db.get(f"{folder}/@{name}") for name in values} == values
    assert values.items() <= db.get(f"{folder}/@").items()
    assert set(values) <= set(db.list(f"{folder}/@"))
    assert db.exists(f"{folder}/@text")
    db.remove(f"{folder}/@text")
    assert not db.exists(f"{folder}/@text")
    with refused(NodeNotFound, is_retryable=False):
        db.get(f"{folder}/@text")


def test_a_setting_is_checked(db: Client, make_table: MakeTable) -> None:
    path = make_table()
    for name, wrong in (
        ("enable_shared_write_locks", 1),
        ("min_data_versions", -1),
        ("max_data_ttl", "1s"),
        ("in_memory_mode", "some"),
        ("isolation", "serial"),
        ("atomicity", "half"),
    ):
        before = db.get(f"{path}/@{name}")
        with refused(InvalidRequest, is_retryable=False):
            db.set(f"{path}/@{name}", wrong)
        assert db.get(f"{path}/@{name}") == before


def test_settings_are_given_when_a_table_is_made(db: Client, new_path: str) -> None:
    attributes = {"min_data_versions": 3, "owner": "me"}
    db.create_table(new_path, PLAIN, attributes=attributes)
    assert db.get(f"{new_path}/@min_data_versions") == 3
    assert db.get(f"{new_path}/@owner") == "me"
    assert db.get(f"{new_path}/@max_data_versions") == 1


def test_a_table_like_data_is_made_with_settings(db: Client, new_path: str) -> None:
    data = pyarrow.table({"k": [1], "v": [2]})
    attributes = {"isolation": "serializable"}
    db.create_table(new_path, like=data, keys=["k"], attributes=attributes)
    assert db.get_table(new_path).settings == TableSettings(isolation="serializable")
    assert "TableSettings(isolation='serializable')" in repr(db.get_table(new_path))


def test_the_isolation_of_a_mounted_table_is_set_and_copied(
    db: Client, other: Client, make_table: MakeTable, new_path: str
) -> None:
    path = make_table(attributes={"isolation": "serializable"})
    assert db.get_table(path).settings.isolation == "serializable"
    db.set(f"{path}/@isolation", "snapshot")
    assert db.get_table(path).is_mounted
    assert db.get(f"{path}/@isolation") == "snapshot"
    assert other.get_table(path).settings.isolation == "snapshot"
    db.unmount_table(path)
    db.copy(path, new_path)
    assert db.get_table(new_path).settings.isolation == "snapshot"


def test_isolation_and_no_atomicity_exclude_each_other(db: Client, make_table: MakeTable) -> None:
    for atomicity, name, wrong in (
        ("none", "isolation", "serializable"),
        ("full", "atomicity", "none"),
    ):
        isolation = "serializable" if atomicity == "full" else None
        path = make_table(atomicity=atomicity, mount=False, attributes={"isolation": isolation})
        text = 'isolation "serializable" needs atomicity "full"'
        with refused(InvalidRequest, text, is_retryable=False, table=path, attribute="isolation"):
            db.set(f"{path}/@{name}", wrong)
        found = db.get_table(path)
        assert (found.atomicity, found.settings.isolation) == (atomicity, isolation)


def test_the_tablet_count_of_a_table_can_be_read_and_not_set(
    db: Client, make_table: MakeTable
) -> None:
    path = make_table()
    assert db.get(f"{path}/@atomicity") == "full"
    with pytest.raises(InvalidRequest):
        db.set(f"{path}/@tablet_count", 5)
    assert db.get(f"{path}/@tablet_count") == 1


# ---- moving and copying


def test_a_moved_table_keeps_its_rows(db: Client, make_table: MakeTable, new_path: str) -> None:
    path = make_table()
    at = db.insert_rows(path, [{"k": 1, "v": 1}])
    assert at is not None
    db.unmount_table(path)
    db.move(path, new_path)
    assert not db.exists(path)
    db.mount_table(new_path)
    assert read(db, new_path) == read(db, new_path, timestamp=at) == [{"k": 1, "v": 1}]
    db.insert_rows(new_path, [{"k": 2, "v": 2}])
    assert len(read(db, new_path)) == 2


def test_a_copied_table_has_the_same_rows_and_changes_independently(
    backend: Backend, db: Client, make_table: MakeTable, new_path: str
) -> None:
    path = make_table(PLAIN, pivot_keys=[[], [100]], attributes={"min_data_versions": 7})
    db.insert_rows(path, [{"k": 1, "v": 1}, {"k": 100, "v": 1}])
    db.unmount_table(path)
    db.copy(path, new_path)
    for each in (path, new_path):
        db.mount_table(each)
    db.insert_rows(path, [{"k": 1, "v": 2}])
    db.delete_rows(new_path, [{"k": 100}])
    assert [row["v"] for row in read(db, path)] == [2, 1]
    assert read(db, new_path) == [{"k": 1, "v": 1}]
    assert db.get(f"{new_path}/@min_data_versions") == 7
    db.remove(path)
    backend.restart_cells()
    assert read(db, new_path) == [{"k": 1, "v": 1}]


@pytest.mark.parametrize("is_frozen", [False, True])
def test_a_mounted_table_is_neither_moved_nor_copied(
    db: Client, make_table: MakeTable, new_path: str, is_frozen: bool
) -> None:
    path = make_table()
    db.insert_rows(path, [{"k": 1, "v": 1}])
    if is_frozen:
        db.freeze_table(path)
    for change in (db.move, db.copy):
        with refused(InvalidTabletState, is_retryable=False):
            change(path, new_path)
    assert not db.exists(new_path)
    assert value(db, path, 1) == 1


def test_a_directory_moves_with_all_its_content(db: Client, folder: str, new_path: str) -> None:
    db.create_directory(f"{folder}/a/b", {"x": 1}, recursive=True)
    db.create_table(f"{folder}/a/t", PLAIN)
    db.move(f"{folder}/a", f"{folder}/c")
    assert db.get(folder) == {"c": {"b": {}, "t": None}}
    assert db.get(f"{folder}/c/b/@x") == 1


def test_a_move_or_copy_onto_an_existing_node_is_refused(db: Client, folder: str) -> None:
    for name in ("a", "b"):
        db.create_directory(f"{folder}/{name}")
    for change in (db.move, db.copy):
        with refused(NodeExists, is_retryable=False):
            change(f"{folder}/a", f"{folder}/b")
        with refused(NodeNotFound, is_retryable=False):
            change(f"{folder}/x", f"{folder}/y")
        with refused(NodeNotFound, is_retryable=False):
            change(f"{folder}/a", f"{folder}/x/y")
    db.move(f"{folder}/a", f"{folder}/x/y", recursive=True)
    assert db.get(folder) == {"b": {}, "x": {"y": {}}}


def test_a_directory_is_not_moved_into_itself(db: Client, folder: str) -> None:
    db.create_directory(f"{folder}/a")
    with pytest.raises(InvalidRequest):
        db.move(f"{folder}/a", f"{folder}/a/b")
    assert db.get(folder) == {"a": {}}


@pytest.mark.parametrize("name", [".", ".."])
def test_no_node_is_called_as_a_step_of_an_address(
    db: Client, make_table: MakeTable, folder: str, name: str
) -> None:
    path, table = f"{folder}/{name}", make_table()
    db.unmount_table(table)
    calls: list[Callable[[], object]] = [
        lambda: db.create_table(path, PLAIN),
        lambda: db.create_directory(path),
        lambda: db.create_table(f"{path}/t", PLAIN),
        lambda: db.move(table, path),
        lambda: db.copy(table, path),
    ]
    for call in calls:
        with refused(InvalidRequest, is_retryable=False, name=name):
            call()
    assert not db.exists(path)
    transaction = db.begin_master()
    with refused(InvalidRequest, is_retryable=False, name=name):
        transaction.create_directory(path)
    transaction.abort()
