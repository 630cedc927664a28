"""Versions of an application: each is published once in each table, and never skipped silently."""

import msgspec
import pytest

from conformance.bulk import record_of, rows, values
from conformance.tables import PLAIN, MakeTable, Row, refused
from dodona import Load, Published
from dodona.client import Client
from dodona.errors import ConcurrentTransaction, LoadEnded
from dodona.types import LoadMode


def test_every_version_of_an_application_is_published_once(
    db: Client, other: Client, make_table: MakeTable, new_path: str
) -> None:
    path = make_table()
    application = f"app of {new_path}"
    with db.loads.begin([path], application=application, version=3) as load:
        assert not load.is_recorded
        load.write(path, rows([1], 3))
    published = load.publish()
    for version in (3, 2, 0):
        with other.loads.begin([path], application=application, version=version) as again:
            assert again.is_recorded
            with refused(LoadEnded, "published before", is_retryable=True):
                again.write(path, rows([2]))
        assert again.publish() == Published(published.timestamp, 0, is_skipped=True)
        assert again.abort() is None
    with other.loads.begin([path], application=application, version=4) as load:
        assert not load.is_recorded
        load.write(path, rows([1], 4))
    with other.loads.begin([path], application=application + "'s", version=0) as load:
        assert not load.is_recorded
    assert values(db, path) == {1: 4}


def test_after_an_application_is_deleted_its_version_can_be_published_again(
    db: Client, make_table: MakeTable, new_path: str
) -> None:
    path = make_table()
    application = f"app of {new_path}"
    for value in (1, 2):
        with db.loads.begin([path], application=application, version=3) as load:
            assert not load.is_recorded
            load.write(path, rows([1], value))
        assert record_of(db, load.id).state == "finished"
        db.delete_rows("//sys/load_applications", [{"application": application, "path": path}])
    assert values(db, path) == {1: 2}


def test_versions_are_those_of_each_table(
    db: Client, other: Client, make_table: MakeTable, new_path: str
) -> None:
    """As of a program that writes each of its batches to two tables (delta #1141, #1421)."""
    first, second = make_table(), make_table()
    application = f"app of {new_path}"
    for attempt, client in enumerate((db, other)):
        for path in (first, second):
            with client.loads.begin([path], application=application, version=1) as load:
                assert load.is_recorded == (attempt > 0)
                if not load.is_recorded:
                    load.write(path, rows([1], 1))
    assert values(db, first) == values(db, second) == {1: 1}
    with db.loads.begin([first, second], application=application, version=1) as both:
        assert both.is_recorded
    with db.loads.begin([second, first], application=application, version=2) as both:
        both.write(second, rows([2]))
    for path in (first, second):
        with db.loads.begin([path], application=application, version=2) as load:
            assert load.is_recorded


def test_a_load_of_which_some_tables_have_the_version_is_refused_with_the_list(
    db: Client, other: Client, make_table: MakeTable, new_path: str
) -> None:
    first, second, third = make_table(), make_table(), make_table()
    application = f"app of {new_path}"
    numbered: Row = {"application": application, "version": 5}
    late = other.loads.begin([first, second, third], **numbered)
    with db.loads.begin([second], **numbered) as load:
        load.write(second, rows([1]))
    said: Row = {"recorded": {second: 5}, "not_recorded": [first, third], "loads": [load.id]}
    before = len(db.loads.list_loads())
    with refused(ConcurrentTransaction, "some of the load's tables", is_retryable=True, **said):
        db.loads.begin([first, second, third], **numbered)
    assert len(db.loads.list_loads()) == before
    late.write(first, rows([9]))
    with refused(ConcurrentTransaction, "some of the load's tables", is_retryable=True, **said):
        late.publish()
    late.abort()
    assert values(db, first) == {}
    with db.loads.begin([first, third], **numbered) as load:
        load.write(first, rows([1]))
    assert values(db, first) == values(db, second) == {1: 1}


def test_a_recreated_table_has_no_published_versions(
    db: Client, make_table: MakeTable, new_path: str
) -> None:
    path = make_table()
    application = f"app of {new_path}"
    for value in (1, 2):
        with db.loads.begin([path], application=application, version=1) as load:
            assert not load.is_recorded
            load.write(path, rows([1], value))
        assert values(db, path) == {1: value}
        db.remove_table(path)
        db.create_table(path, PLAIN, mount=True)


@pytest.mark.parametrize("mode", ["upsert", "insert"])
def test_of_two_that_are_under_way_with_one_version_one_is_published(
    db: Client, other: Client, make_table: MakeTable, new_path: str, mode: LoadMode
) -> None:
    path = make_table()
    application = f"app of {new_path}"
    loads = [
        client.loads.begin([path], mode=mode, application=application, version=version)
        for client, version in ((db, 1), (other, 1), (other, 2))
    ]
    for number, load in enumerate(loads):
        load.write(path, rows([1 if number < 2 else 2], number))
    loads[0].publish()
    for _ in range(2):
        with refused(
            ConcurrentTransaction,
            f"Another load published version 1 of application '{application}' during this load",
            is_retryable=True,
            application=application,
            recorded={path: 1},
            loads=[loads[0].id],
        ):
            loads[1].publish()
    loads[1].abort()
    with refused(LoadEnded, "was aborted", is_retryable=True):
        loads[1].publish()
    assert record_of(db, loads[1].id).state == "aborted"
    assert loads[2].publish().row_count == 1
    assert values(db, path) == {1: 0, 2: 2}


def numbered(db: Client, load: Load, application: str, version: int, query: str) -> Load:
    """As a stream does at the end of a batch: at its beginning nobody knows its number."""
    ticket = msgspec.structs.replace(
        load.ticket, application=application, version=version, query=query
    )
    return db.loads.join(ticket)


def test_a_repeated_stream_batch_is_skipped_and_a_concurrent_batch_is_refused(
    db: Client, other: Client, make_table: MakeTable, new_path: str
) -> None:
    path, application = make_table(), f"app of {new_path}"
    loads = [db.loads.begin([path]) for _ in range(2)]
    staged = [load.write(path, rows([number])) for number, load in enumerate(loads)]
    first, second = (numbered(db, it, application, 0, "q") for it in loads)
    published = first.publish(staged[0])
    with refused(ConcurrentTransaction, "during this load", is_retryable=True):
        second.publish(staged[1])
    second.abort()
    again = other.loads.begin([path])
    repeated = again.write(path, rows([5]))
    for _ in range(2):
        done = numbered(other, again, application, 0, "q").publish(repeated)
        assert done == Published(published.timestamp, 0, is_skipped=True)
    assert values(db, path) == {0: 1}


def test_a_stream_without_its_checkpoint_replaces_the_old_query_of_the_application(
    db: Client, make_table: MakeTable, new_path: str
) -> None:
    path, application = make_table(), f"app of {new_path}"
    for query, version in (("old", 0), ("old", 1), ("new", 0)):
        load = db.loads.begin([path])
        staged = load.write(path, rows([1], version))
        numbered(db, load, application, version, query).publish(staged)
    load = db.loads.begin([path])
    with refused(ConcurrentTransaction, "Another query now uses application", is_retryable=True):
        numbered(db, load, application, 2, "old").publish([])
    load.abort()
    assert values(db, path) == {1: 0}
