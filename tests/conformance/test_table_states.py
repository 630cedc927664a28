"""Mounted, frozen, unmounted: which command leads where, and what can be done in each state."""

from collections.abc import Callable
from typing import Any

import pytest

from conformance.tables import APART, PLAIN, MakeTable, read, refused, value
from dodona.client import Client
from dodona.errors import InvalidRequest, InvalidTabletState, TableNotFound, TableNotMounted

Command = Callable[[Client, str], None]

COMMANDS: dict[str, Command] = {
    "mount": lambda db, path: db.mount_table(path),
    "mount frozen": lambda db, path: db.mount_table(path, freeze=True),
    "unmount": lambda db, path: db.unmount_table(path),
    "freeze": lambda db, path: db.freeze_table(path),
    "unfreeze": lambda db, path: db.unfreeze_table(path),
}
WAYS_TO: dict[str, list[str]] = {
    "unmounted": [],
    "mounted": ["mount"],
    "frozen": ["mount", "freeze"],
}
LEADS_TO = {
    ("unmounted", "mount"): "mounted",
    ("unmounted", "mount frozen"): "frozen",
    ("unmounted", "unmount"): "unmounted",
    ("mounted", "mount"): "mounted",
    ("mounted", "unmount"): "unmounted",
    ("mounted", "freeze"): "frozen",
    ("mounted", "unfreeze"): "mounted",
    ("frozen", "mount frozen"): "frozen",
    ("frozen", "unmount"): "unmounted",
    ("frozen", "freeze"): "frozen",
    ("frozen", "unfreeze"): "mounted",
}
"""Whatever is not here is refused."""


def states(db: Client, path: str) -> list[str]:
    return [tablet.state for tablet in db.get_table(path).tablets]


def bring(db: Client, path: str, state: str) -> None:
    for command in WAYS_TO[state]:
        COMMANDS[command](db, path)


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("state", WAYS_TO)
def test_each_table_command_leads_to_the_expected_state_or_is_refused(
    db: Client, make_table: MakeTable, state: str, command: str
) -> None:
    path = make_table(PLAIN, pivot_keys=APART, mount=False)
    bring(db, path, state)
    if (state, command) in LEADS_TO:
        COMMANDS[command](db, path)
        assert states(db, path) == [LEADS_TO[state, command]] * 2
        return
    first = db.get_table(path).tablets[0].tablet
    text = f'Cannot {command.split()[0]} tablet {first} in "{state}" state'
    with refused(InvalidTabletState, text, is_retryable=False):
        COMMANDS[command](db, path)
    assert states(db, path) == [state] * 2


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_for_a_table_that_is_not_there_is_refused(
    db: Client, new_path: str, command: str
) -> None:
    with refused(TableNotFound, is_retryable=False):
        COMMANDS[command](db, new_path)


def test_some_tablets_can_be_mounted_and_others_not(db: Client, make_table: MakeTable) -> None:
    path = make_table(PLAIN, pivot_keys=[[], [100], [200]], mount=False)
    db.mount_table(path, first_tablet_index=1, last_tablet_index=1)
    assert states(db, path) == ["unmounted", "mounted", "unmounted"]
    db.insert_rows(path, [{"k": 150, "v": 1}])
    with refused(TableNotMounted, is_retryable=False):
        db.insert_rows(path, [{"k": 50, "v": 1}])
    db.mount_table(path, freeze=True, first_tablet_index=2, last_tablet_index=2)
    db.freeze_table(path, first_tablet_index=1, last_tablet_index=2)
    assert states(db, path) == ["unmounted", "frozen", "frozen"]
    db.unmount_table(path)
    assert states(db, path) == ["unmounted"] * 3


def test_a_refused_command_changes_no_tablet(db: Client, make_table: MakeTable) -> None:
    path = make_table(PLAIN, pivot_keys=[[], [100], [200]])
    db.freeze_table(path, first_tablet_index=2, last_tablet_index=2)
    with refused(InvalidTabletState, "Cannot mount tablet", is_retryable=False):
        db.mount_table(path)
    db.unmount_table(path, first_tablet_index=1, last_tablet_index=1)
    with refused(InvalidTabletState, "Cannot freeze tablet", is_retryable=False):
        db.freeze_table(path)
    assert states(db, path) == ["mounted", "unmounted", "frozen"]


@pytest.mark.parametrize(("first", "last"), [(1, 0), (0, 2), (-1, 0), (2, 2)])
def test_tablets_that_are_not_there_are_refused(
    db: Client, make_table: MakeTable, first: int, last: int
) -> None:
    path = make_table(PLAIN, pivot_keys=APART)
    with refused(InvalidRequest, is_retryable=False):
        db.unmount_table(path, first_tablet_index=first, last_tablet_index=last)
    assert states(db, path) == ["mounted"] * 2


# ---- what can be done


def _use(db: Client, path: str) -> dict[str, Callable[[], Any]]:
    return {
        "insert": lambda: db.insert_rows(path, [{"k": 2, "v": 2}]),
        "delete": lambda: db.delete_rows(path, [{"k": 1}]),
        "lookup": lambda: db.lookup_rows(path, [{"k": 1}]),
        "select": lambda: list(db.select(path)),
    }


def test_an_unmounted_table_can_be_neither_read_nor_written(
    db: Client, make_table: MakeTable
) -> None:
    path = make_table()
    db.insert_rows(path, [{"k": 1, "v": 1}])
    db.unmount_table(path)
    for call in _use(db, path).values():
        with refused(TableNotMounted, is_retryable=False, state="unmounted"):
            call()
    db.mount_table(path)
    assert read(db, path) == [{"k": 1, "v": 1}]


def test_a_frozen_table_can_be_read_and_not_written(db: Client, make_table: MakeTable) -> None:
    path = make_table()
    at = db.insert_rows(path, [{"k": 1, "v": 1}])
    assert at is not None
    db.freeze_table(path)
    calls = _use(db, path)
    assert calls["lookup"]() == calls["select"]() == [{"k": 1, "v": 1}]
    assert read(db, path, timestamp=at - 1) == []
    for name in ("insert", "delete"):
        with refused(TableNotMounted, is_retryable=False, state="frozen"):
            calls[name]()
    db.unfreeze_table(path)
    calls["insert"]()
    assert [row["v"] for row in read(db, path)] == [1, 2]


def test_a_transaction_locks_no_rows_of_a_frozen_table(db: Client, make_table: MakeTable) -> None:
    path = make_table()
    db.freeze_table(path)
    transaction = db.begin()
    transaction.lock_rows(path, [{"k": 1}])
    with refused(TableNotMounted, is_retryable=False, state="frozen"):
        transaction.commit()


def test_an_empty_frozen_table_can_be_read(db: Client, make_table: MakeTable) -> None:
    path = make_table(mount=False)
    db.mount_table(path, freeze=True)
    assert read(db, path) == []
    assert db.lookup_rows(path, [{"k": 1}], keep_missing=True) == [None]
    db.unmount_table(path)
    assert states(db, path) == ["unmounted"]


def test_a_table_mounted_as_frozen_can_be_read_and_not_written(
    db: Client, make_table: MakeTable
) -> None:
    path = make_table()
    db.insert_rows(path, [{"k": 1, "v": 1}])
    db.unmount_table(path)
    db.mount_table(path, freeze=True)
    assert value(db, path, 1) == 1
    with refused(TableNotMounted, is_retryable=False, state="frozen"):
        db.insert_rows(path, [{"k": 1, "v": 2}])


def test_remounting_an_unmounted_table_does_not_mount_the_table(
    db: Client, make_table: MakeTable
) -> None:
    path = make_table(mount=False)
    db.remount_table(path)
    assert states(db, path) == ["unmounted"]


# ---- attributes


@pytest.mark.parametrize(
    ("attribute", "new", "words"),
    [("atomicity", "none", "atomicity mode"), ("in_memory_mode", "compressed", "in-memory mode")],
)
def test_atomicity_and_memory_mode_change_only_while_all_tablets_are_unmounted(
    db: Client, make_table: MakeTable, attribute: str, new: str, words: str
) -> None:
    path = make_table(PLAIN, pivot_keys=APART)
    before = db.get(f"{path}/@{attribute}")
    db.unmount_table(path, first_tablet_index=0, last_tablet_index=0)
    text = f"Cannot change table {words} since not all tablets are unmounted"
    with refused(InvalidTabletState, text, is_retryable=False):
        db.set(f"{path}/@{attribute}", new)
    assert db.get(f"{path}/@{attribute}") == before
    db.unmount_table(path)
    db.set(f"{path}/@{attribute}", new)
    assert db.get(f"{path}/@{attribute}") == new


def test_a_table_keeps_its_rows_when_its_atomicity_changes(
    db: Client, make_table: MakeTable
) -> None:
    path = make_table()
    db.insert_rows(path, [{"k": 1, "v": 1}])
    db.unmount_table(path)
    db.set(f"{path}/@atomicity", "none")
    db.mount_table(path)
    with db.begin("none") as transaction:
        transaction.insert_rows(path, [{"k": 2, "v": 2}])
    assert [row["v"] for row in read(db, path)] == [1, 2]
    transaction = db.begin()
    transaction.insert_rows(path, [{"k": 3, "v": 3}])
    with refused(InvalidRequest, "Invalid atomicity mode", is_retryable=False):
        transaction.commit()
