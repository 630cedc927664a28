"""Bulk loads: what they write, when it is seen, and what is refused."""

import pickle
from typing import Any

import pyarrow as pa
import pytest

from conformance.backends import Backend
from conformance.bulk import HALVES, filled, keys, record_of, rows, values
from conformance.tables import PLAIN, TWO_COLUMNS, MakeTable, read, refused
from dodona import LoadTicket, Published
from dodona.client import Client
from dodona.errors import (
    DuplicateKey,
    InvalidRequest,
    LoadEnded,
    RowNotFound,
    SchemaViolation,
)
from dodona.types import LoadId, LoadMode

# ---- what is seen


def test_rows_of_a_load_become_visible_together_when_the_load_is_published(
    db: Client, other: Client, make_table: MakeTable
) -> None:
    paths = [make_table(pivot_keys=HALVES), make_table()]
    load = db.loads.begin(paths, owner="somebody")
    for path in paths:
        load.write(path, rows(range(50, 150)))
    assert [values(other, path) for path in paths] == [{}, {}]
    published = load.publish()
    assert published == Published(published.timestamp, 200)
    for path in paths:
        assert values(other, path) == dict.fromkeys(range(50, 150), 1)
        assert values(other, path, published.timestamp) == dict.fromkeys(range(50, 150), 1)
        assert values(other, path, published.timestamp - 1) == {}
        (row,) = other.lookup_versions(path, [{"k": 50}])
        assert row.write_timestamps == [published.timestamp]
    record = record_of(other, load.id)
    assert (record.state, record.tables, record.mode) == ("finished", tuple(paths), "upsert")
    assert (record.owner, record.row_count) == ("somebody", 200)
    assert (record.deleted_count, record.commit_timestamp) == (0, published.timestamp)
    assert (record.reason, record.application, record.version) == (None, None, None)
    assert record.lease_ms == 600_000


def test_an_earlier_snapshot_does_not_show_a_load(db: Client, make_table: MakeTable) -> None:
    path = filled(db, make_table, PLAIN, [{"k": 1, "v": 0}])
    with db.begin() as transaction, db.hold_snapshot([path]) as snapshot:
        before = db.generate_timestamp()
        with db.loads.begin([path]) as load:
            load.write(path, rows([1, 200], 7))
        assert list(transaction.select(path)) == [{"k": 1, "v": 0}]
        assert [it.to_pylist() for it in snapshot.read_batches(path)] == [[{"k": 1, "v": 0}]]
    assert values(db, path, before) == {1: 0}
    assert values(db, path) == {1: 7, 200: 7}


def test_published_and_staged_rows_of_loads_survive_a_restart(
    backend: Backend, db: Client, make_table: MakeTable
) -> None:
    path = make_table(pivot_keys=HALVES)
    with db.loads.begin([path]) as load:
        load.write(path, rows(range(50, 150)))
    unpublished = db.loads.begin([path])
    staged = unpublished.write(path, rows([0, 100, 200], 2))
    backend.restart_cells()
    assert values(db, path) == dict.fromkeys(range(50, 150), 1)
    published = unpublished.publish(staged)
    assert published.row_count == 3
    assert values(db, path) == {**dict.fromkeys(range(50, 150), 1), 0: 2, 100: 2, 200: 2}


def test_a_load_without_rows_is_published_as_well(db: Client, make_table: MakeTable) -> None:
    path = filled(db, make_table, PLAIN, [{"k": 1, "v": 1}])
    with db.loads.begin([path]) as load:
        assert load.write(path, rows([])) == []
    with db.loads.begin([path]) as idle:
        pass
    for it in (load, idle):
        record = record_of(db, it.id)
        assert (record.state, record.row_count) == ("finished", 0)
    assert values(db, path) == {1: 1}


# ---- modes

CONTENT = [{"k": 1, "v": 1, "w": b"x"}, {"k": 150, "v": 2, "w": b"y"}]


def test_upsert_writes_whole_rows(db: Client, make_table: MakeTable) -> None:
    path = filled(db, make_table, TWO_COLUMNS, CONTENT)
    with db.loads.begin([path], mode="upsert") as load:
        load.write(path, rows([1, 2], 7))
    loaded = [{"k": key, "v": 7, "w": None} for key in (1, 2)]
    assert read(db, path) == [*loaded, CONTENT[1]]


def test_insert_takes_rows_that_are_not_there(db: Client, make_table: MakeTable) -> None:
    path = filled(db, make_table, TWO_COLUMNS, CONTENT)
    with db.loads.begin([path], mode="insert") as load:
        load.write(path, rows([2, 151], 7))
    assert [row["k"] for row in read(db, path)] == [1, 2, 150, 151]
    refused_load = db.loads.begin([path], mode="insert")
    refused_load.write(path, rows([3, 150], 8))
    with refused(DuplicateKey, "is there already", is_retryable=False, key={"k": 150}, table=path):
        refused_load.publish()
    refused_load.abort()
    assert [row["k"] for row in read(db, path)] == [1, 2, 150, 151]


def test_insert_takes_rows_that_were_deleted(db: Client, make_table: MakeTable) -> None:
    path = filled(db, make_table, TWO_COLUMNS, CONTENT)
    db.delete_rows(path, [{"k": 1}])
    with db.loads.begin([path], mode="insert") as load:
        load.write(path, rows([1], 7))
    assert read(db, path)[0] == {"k": 1, "v": 7, "w": None}


def test_update_sets_the_columns_that_are_given(db: Client, make_table: MakeTable) -> None:
    path = filled(db, make_table, TWO_COLUMNS, CONTENT)
    with db.loads.begin([path], mode="update") as load:
        load.write(path, rows([1, 150], 7))
    assert read(db, path) == [{**row, "v": 7} for row in CONTENT]
    refused_load = db.loads.begin([path], mode="update")
    refused_load.write(path, rows([1, 2], 8))
    with refused(RowNotFound, "not there", is_retryable=False, key={"k": 2}, table=path):
        refused_load.publish()
    refused_load.abort()
    assert read(db, path) == [{**row, "v": 7} for row in CONTENT]


def test_delete_takes_keys_that_are_there_or_not(db: Client, make_table: MakeTable) -> None:
    path = filled(db, make_table, TWO_COLUMNS, CONTENT)
    with db.loads.begin([path], mode="delete") as load:
        load.write(path, keys([1, 2, 99]))
    assert read(db, path) == CONTENT[1:]
    for data in (rows([150]), pa.table({"v": [1]})):
        load = db.loads.begin([path], mode="delete")
        with refused(SchemaViolation, is_retryable=False):
            load.write(path, data)
        load.abort()


# ---- a key that comes twice


@pytest.mark.parametrize("mode", ["upsert", "insert", "delete"])
def test_a_key_that_comes_twice_in_one_call_is_refused(
    db: Client, make_table: MakeTable, mode: LoadMode
) -> None:
    path = make_table(pivot_keys=HALVES)
    make = keys if mode == "delete" else rows
    load = db.loads.begin([path], mode=mode)
    with refused(DuplicateKey, "twice", is_retryable=False, key={"k": 102}, table=path):
        load.write(path, make([102, 1, 2, 102, 3]))
    with refused(DuplicateKey, "twice", is_retryable=False, key={"k": 7}, table=path):
        load.write(path, [make([7, 6]), make([5, 7]).to_batches()[0]])
    load.write(path, make([102]))
    assert load.publish().row_count == 1, "of what was refused nothing is left"


@pytest.mark.parametrize("partitions", [(0, 0), (0, 1)])
def test_a_publication_is_refused_if_two_calls_wrote_the_same_key(
    db: Client, make_table: MakeTable, partitions: tuple[int, int]
) -> None:
    path = make_table(pivot_keys=HALVES)
    load = db.loads.begin([path])
    for partition in partitions:
        load.write(path, rows([partition, 150], partition), partition)
    with refused(DuplicateKey, "twice", is_retryable=False, table=path) as refusal:
        load.publish()
    assert refusal.error.attributes["key"] in ({"k": 0}, {"k": 150})
    load.abort()
    assert values(db, path) == {}


def test_a_load_publishes_the_rows_of_all_write_calls_and_clients(
    db: Client, other: Client, make_table: MakeTable
) -> None:
    path = make_table(pivot_keys=HALVES)
    load = db.loads.begin([path])
    staged = [batch for key in range(3) for batch in load.write(path, rows([key, 100 + key]))]
    staged += other.loads.join(load.ticket).write(path, rows([3, 103]))
    assert load.publish(staged).row_count == 8
    assert sorted(values(db, path)) == [*range(4), *range(100, 104)]


def test_only_attempts_that_count_are_published(db: Client, make_table: MakeTable) -> None:
    path = make_table(pivot_keys=HALVES)
    load = db.loads.begin([path])
    load.write(path, rows([1, 2, 101], 1), partition=0, attempt=0)
    winner = load.write(path, rows([1, 2, 101], 2), partition=0, attempt=1)
    other = load.write(path, rows([3], 3), partition=1)
    assert [batch.path for batch in [*winner, *other]] == [path] * 3
    assert load.publish([*winner, *other, *winner]).row_count == 4, "a repeat counts once"
    assert values(db, path) == {1: 2, 2: 2, 101: 2, 3: 3}


# ---- erased ranges


def test_a_load_replaces_all_rows_in_its_erased_ranges(db: Client, make_table: MakeTable) -> None:
    content = [{"k": key, "v": 0} for key in range(0, 200, 10)]
    paths = [filled(db, make_table, PLAIN, content) for _ in range(3)]
    erased: dict[str, Any] = {paths[0]: ([50], [150]), paths[1]: (None, None)}
    with db.loads.begin(paths, erased=erased) as load:
        for path in paths:
            load.write(path, rows([60, 61, 149], 9))
    outside = {key: 0 for key in range(0, 200, 10) if not 50 <= key < 150}
    loaded = dict.fromkeys([60, 61, 149], 9)
    assert values(db, paths[0]) == {**outside, **loaded}
    assert values(db, paths[1]) == loaded
    assert values(db, paths[2]) == {**{row["k"]: row["v"] for row in content}, **loaded}
    record = record_of(db, load.id)
    assert (record.row_count, record.deleted_count) == (9, 9 + 19)


def test_a_range_can_be_erased_without_rows(db: Client, make_table: MakeTable) -> None:
    path = filled(db, make_table, PLAIN, [{"k": key, "v": 0} for key in (1, 50, 150, 199)])
    with db.loads.begin([path], erased={path: ([50], None)}) as load:
        pass
    assert values(db, path) == {1: 0}
    assert record_of(db, load.id).deleted_count == 3


def test_a_load_also_writes_rows_outside_its_erased_range(
    db: Client, make_table: MakeTable
) -> None:
    path = filled(db, make_table, PLAIN, [{"k": 1, "v": 0}, {"k": 150, "v": 0}])
    with db.loads.begin([path], erased={path: (None, [100])}) as load:
        load.write(path, rows([2, 150], 5))
    assert values(db, path) == {2: 5, 150: 5}


# ---- its end


def _fail_in_block(db: Client, path: str, *, is_published: bool) -> LoadId:
    load = db.loads.begin([path])

    def run() -> None:
        with load:
            load.write(path, rows([3]))
            if is_published:
                load.publish()
            raise ZeroDivisionError("of the user's")

    with pytest.raises(ZeroDivisionError, match="of the user's"):
        run()
    return load.id


def test_a_with_block_publishes_at_its_end_and_aborts_on_an_exception(
    db: Client, make_table: MakeTable
) -> None:
    path = make_table()
    record = record_of(db, _fail_in_block(db, path, is_published=False))
    assert (record.state, record.reason) == ("aborted", "ZeroDivisionError: of the user's")
    assert values(db, path) == {}
    with db.loads.begin([path]) as load:
        load.write(path, rows([2]))
    assert values(db, path) == {2: 1}
    with refused(DuplicateKey, is_retryable=False), db.loads.begin([path], mode="insert") as load:
        load.write(path, rows([2]))
    record = record_of(db, load.id)
    assert record.state == "aborted"
    assert "is there already" in str(record.reason)


@pytest.mark.parametrize("text", ["file \udcff", "x" * (17 << 20)], ids=["no Unicode", "long"])
def test_a_with_block_aborts_on_an_exception_with_a_long_or_invalid_text(
    db: Client, make_table: MakeTable, text: str
) -> None:
    path = make_table()
    load = db.loads.begin([path])

    def run() -> None:
        with load:
            raise OSError(text)

    with pytest.raises(OSError, match=text[:4]):
        run()
    record = record_of(db, load.id)
    assert record.state == "aborted"
    assert str(record.reason).startswith(f"OSError: {text[:4]}")
    with refused(InvalidRequest, "reason is a str", is_retryable=False):
        db.loads.begin([path]).abort(None)  # type: ignore[arg-type]


def test_a_with_block_does_not_change_a_load_that_ended_inside_the_block(
    db: Client, make_table: MakeTable
) -> None:
    path = make_table()
    with db.loads.begin([path]) as load:
        load.write(path, rows([1]))
        published = load.publish()
    assert record_of(db, load.id).commit_timestamp == published.timestamp
    with db.loads.begin([path]) as load:
        load.write(path, rows([2]))
        load.abort("on second thoughts")
    assert record_of(db, load.id).reason == "on second thoughts"
    assert record_of(db, _fail_in_block(db, path, is_published=True)).state == "finished"
    assert values(db, path) == {1: 1, 3: 1}


def test_publishing_again_gives_the_same_answer(
    db: Client, other: Client, make_table: MakeTable
) -> None:
    path = make_table(pivot_keys=HALVES)
    load = db.loads.begin([path], erased={path: (None, None)})
    load.write(path, rows([1, 150]))
    published = load.publish()
    assert load.publish() == published
    assert other.loads.join(load.ticket).publish() == published
    db.remove(path)
    assert load.publish() == published
    assert load.abort() == published, "what is published stays so"
    assert other.loads.abort(load.id) == published
    assert record_of(db, load.id).state == "finished"


def test_another_process_takes_part_with_the_ticket(
    db: Client, other: Client, make_table: MakeTable
) -> None:
    path = make_table(pivot_keys=HALVES)
    load = db.loads.begin([path])
    ticket = pickle.loads(pickle.dumps(load.ticket))
    assert isinstance(ticket, LoadTicket)
    assert ticket == load.ticket
    joined = other.loads.join(ticket)
    assert (joined.id, joined.is_recorded, repr(joined)) == (load.id, False, repr(load))
    staged = pickle.loads(pickle.dumps(joined.write(path, rows([1, 150]), 1)))
    staged += load.write(path, rows([2, 151]), 2)
    published = joined.publish(staged)
    assert load.publish() == published
    assert sorted(values(db, path)) == [1, 2, 150, 151]


def test_an_aborted_load_has_no_rows_and_stays_aborted(
    db: Client, other: Client, make_table: MakeTable
) -> None:
    path = make_table(pivot_keys=HALVES)
    load = db.loads.begin([path])
    staged = load.write(path, rows([1, 150]))
    assert load.abort("for a reason") is None
    assert load.abort("for another") is None
    with refused(LoadEnded, "for a reason", is_retryable=True, load=load.id):
        load.publish(staged)
    for it in (load, other.loads.join(load.ticket)):
        with refused(LoadEnded, is_retryable=True):
            it.write(path, rows([2]))
    assert values(db, path) == {}
    record = record_of(db, load.id)
    assert (record.state, record.reason) == ("aborted", "for a reason")
    assert db.loads.recover() == []


def test_a_published_load_accepts_no_more_rows(db: Client, make_table: MakeTable) -> None:
    path = make_table()
    load = db.loads.begin([path])
    published = load.publish()
    with refused(LoadEnded, is_retryable=True):
        load.write(path, rows([1]))
    assert load.publish() == published
    assert values(db, path) == {}


def test_a_load_can_be_aborted_by_its_id_alone(
    db: Client, other: Client, make_table: MakeTable
) -> None:
    path = make_table()
    load = db.loads.begin([path])
    staged = load.write(path, rows([1]))
    assert other.loads.abort(load.id, "the operator said so") is None
    with refused(LoadEnded, "the operator said so", is_retryable=True):
        load.publish(staged)
    with refused(LoadEnded, "No load", is_retryable=True):
        other.loads.abort(other.generate_timestamp())  # type: ignore[arg-type]
    with refused(InvalidRequest, is_retryable=False):
        other.loads.abort(-1)  # type: ignore[arg-type]
