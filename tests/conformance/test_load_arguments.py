"""Bulk loads that are refused before they begin, and rows that are refused before they are sent."""

from typing import Any

import pytest

from conformance.bulk import HALVES, rows
from conformance.tables import MakeTable, refused
from dodona.client import Client
from dodona.errors import InvalidRequest, TableNotFound, TableNotMounted
from dodona.types import Atomicity, Timestamp


def test_a_load_begins_with_tables_that_can_be_written(
    db: Client, make_table: MakeTable, new_path: str
) -> None:
    path = make_table(pivot_keys=HALVES)
    before = db.loads.list_loads()
    with refused(TableNotFound, is_retryable=False):
        db.loads.begin([path, new_path])
    db.unmount_table(path, first_tablet_index=1, last_tablet_index=1)
    with refused(TableNotMounted, "Mount it", is_retryable=False, table=path):
        db.loads.begin([path])
    db.mount_table(path)
    db.freeze_table(path)
    with refused(TableNotMounted, is_retryable=False, table=path):
        db.loads.begin([path])
    assert db.loads.list_loads() == before, "nothing was begun"


@pytest.mark.parametrize(("given", "wanted"), [("none", "full"), ("full", "none")])
def test_the_modes_of_load_and_table_must_match(
    db: Client, make_table: MakeTable, given: Atomicity, wanted: Atomicity
) -> None:
    path = make_table(atomicity=wanted)
    text = f'Invalid atomicity mode: "{given}" instead of "{wanted}"'
    with refused(InvalidRequest, text, is_retryable=False, table=path):
        db.loads.begin([path], atomicity=given)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"mode": "replace"}, "mode is one of"),
        ({"application": "a"}, "Pass both application and version"),
        ({"version": 1}, "Pass both application and version"),
        ({"application": "a", "version": -1}, "version is a number from 0"),
        ({"application": "a", "version": 1 << 63}, "version is a number up to"),
        ({"application": 5, "version": 1}, "application is a str"),
        ({"lease_ms": 0}, "lease_ms is a number from 1"),
        ({"lease_ms": 3_600_001}, "lease_ms is a number up to 3600000"),
        ({"start_timestamp": 0}, "start_timestamp"),
        ({"start_timestamp": 1 << 62}, "start_timestamp"),
        ({"erased": {"//elsewhere": (None, None)}}, "not in the load"),
        ({"erased": [([1], [2])]}, "Pass erased ranges"),
        ({"erased": {"//t": (None, None)}, "mode": "insert"}, "need mode 'upsert'"),
        ({"erased": {"//t": [1]}}, "Pass erased ranges"),
    ],
)
def test_arguments_that_make_no_sense_are_refused(
    db: Client, make_table: MakeTable, options: dict[str, Any], text: str
) -> None:
    path = make_table()
    if "//t" in options.get("erased", ()):
        options = {**options, "erased": {path: options["erased"]["//t"]}}
    with refused(InvalidRequest, text, is_retryable=False):
        db.loads.begin([path], **options)


def test_a_load_has_one_to_a_hundred_tables(db: Client, make_table: MakeTable) -> None:
    path = make_table()
    many: list[Any] = [[], path, [path] * 101, 5, [path, path], [5]]
    for paths in many:
        with refused(InvalidRequest, is_retryable=False):
            db.loads.begin(paths)


def test_a_load_accepts_only_rows_of_its_own_tables(db: Client, make_table: MakeTable) -> None:
    path, other_path = make_table(), make_table()
    first, second = db.loads.begin([path]), db.loads.begin([other_path])
    with refused(InvalidRequest, "not in the load", is_retryable=False, table=other_path):
        first.write(other_path, rows([1]))
    with refused(InvalidRequest, "another load", is_retryable=False):
        first.publish(second.write(other_path, rows([1])))
    for data in ({1}, "rows", None, 5):
        with refused(InvalidRequest, "rows in bulk are", is_retryable=False):
            first.write(path, data)
    with refused(InvalidRequest, 'Durability must be "sync"', is_retryable=False):
        first.write(path, rows([1]), durability="async")
    with refused(InvalidRequest, "partition", is_retryable=False):
        first.write(path, rows([1]), partition=-1)


def test_the_start_timestamp_may_be_that_of_a_snapshot(db: Client, make_table: MakeTable) -> None:
    path = make_table()
    with db.hold_snapshot([path]) as snapshot:
        load = db.loads.begin([path], start_timestamp=snapshot.timestamp)
        assert load.ticket.stamp == snapshot.timestamp
        assert load.id > snapshot.timestamp
    load.abort()
    with refused(InvalidRequest, "start_timestamp", is_retryable=False):
        db.loads.begin([path], start_timestamp=Timestamp(load.id + (100 << 30)))
