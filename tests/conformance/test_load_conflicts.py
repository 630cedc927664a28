"""Bulk loads and everybody else: who wins where both want the same rows."""

import pytest

from conformance.backends import Backend
from conformance.bulk import filled, keys, record_of, rows, values
from conformance.selections import ON_SEVERAL_CELLS
from conformance.stepping import Stepwise, prepare
from conformance.tables import PLAIN, MakeTable, refused, value
from dodona import Load, Published
from dodona.client import Client
from dodona.errors import (
    ConcurrentAppend,
    ConcurrentDeleteDelete,
    ConcurrentDeleteRead,
    TransactionConflict,
)
from dodona.types import LoadMode, LockType
from dodona_wire.messages.data import Decide

SOON_MS = 100
LEFT, RIGHT = 1, 150
"""Rows of two tablets."""


@pytest.fixture
def path(db: Client, make_table: MakeTable) -> str:
    return filled(db, make_table, PLAIN, [{"k": key, "v": 0} for key in (LEFT, 2, RIGHT)])


# ---- what was committed while the load ran


@pytest.mark.parametrize("key", [LEFT, RIGHT])
def test_a_row_that_was_written_since_the_start_is_a_conflict(
    db: Client, path: str, key: int
) -> None:
    load = db.loads.begin([path])
    load.write(path, rows([LEFT, RIGHT], 7))
    timestamp = db.insert_rows(path, [{"k": key, "v": 5}])
    with refused(
        ConcurrentAppend,
        is_retryable=True,
        key={"k": key},
        table=path,
        start_timestamp=load.id,
        winner_timestamp=timestamp,
    ):
        load.publish()
    load.abort()
    assert values(db, path) == {LEFT: 0, 2: 0, RIGHT: 0, key: 5}


def test_rows_that_the_load_has_not_are_no_conflict(db: Client, path: str) -> None:
    load = db.loads.begin([path])
    load.write(path, rows([LEFT, RIGHT], 7))
    db.insert_rows(path, [{"k": 2, "v": 5}, {"k": 151, "v": 5}])
    load.publish()
    assert values(db, path) == {LEFT: 7, 2: 5, RIGHT: 7, 151: 5}


def test_a_load_with_overwrites_may_replace_concurrent_changes(db: Client, path: str) -> None:
    load = db.loads.begin([path], overwrites=True, erased={path: ([100], None)})
    load.write(path, rows([LEFT, RIGHT], 7))
    db.insert_rows(path, [{"k": LEFT, "v": 5}, {"k": RIGHT, "v": 5}, {"k": 151, "v": 5}])
    load.publish()
    assert values(db, path) == {LEFT: 7, 2: 0, RIGHT: 7}


def test_a_load_conflicts_with_changes_after_its_start_timestamp(db: Client, path: str) -> None:
    start = db.generate_timestamp()
    db.insert_rows(path, [{"k": LEFT, "v": 5}])
    load = db.loads.begin([path], start_timestamp=start)
    load.write(path, rows([LEFT], 7))
    with refused(ConcurrentAppend, is_retryable=True, start_timestamp=start):
        load.publish()
    load.abort()
    with db.loads.begin([path]) as load:
        load.write(path, rows([LEFT], 7))
    assert value(db, path, LEFT) == 7


@pytest.mark.parametrize(
    ("mode", "error"),
    [
        ("upsert", ConcurrentAppend),
        ("insert", ConcurrentAppend),
        ("update", ConcurrentDeleteRead),
        ("delete", ConcurrentDeleteDelete),
    ],
)
def test_the_error_for_a_concurrent_deletion_depends_on_the_mode_of_the_load(
    db: Client, path: str, mode: LoadMode, error: type[TransactionConflict]
) -> None:
    load = db.loads.begin([path], mode=mode)
    load.write(path, keys([LEFT]) if mode == "delete" else rows([LEFT], 7))
    db.delete_rows(path, [{"k": LEFT}])
    with refused(error, is_retryable=True, key={"k": LEFT}, table=path):
        load.publish()
    load.abort()
    assert values(db, path) == {2: 0, RIGHT: 0}


@pytest.mark.parametrize("is_deleted", [False, True])
def test_rows_of_an_erased_range_that_were_changed_are_a_conflict(
    db: Client, path: str, is_deleted: bool
) -> None:
    load = db.loads.begin([path], erased={path: ([100], None)})
    load.write(path, rows([101], 7))
    if is_deleted:
        db.delete_rows(path, [{"k": RIGHT}])
    else:
        db.insert_rows(path, [{"k": 199, "v": 5}])
    error = ConcurrentDeleteRead if is_deleted else ConcurrentAppend
    with refused(error, is_retryable=True, table=path):
        load.publish()
    load.abort()
    assert values(db, path) == {LEFT: 0, 2: 0, **({} if is_deleted else {RIGHT: 0, 199: 5})}


def test_of_two_loads_with_a_row_in_common_the_first_one_wins(
    db: Client, other: Client, path: str
) -> None:
    loads = [client.loads.begin([path]) for client in (db, other, other)]
    for number, load in enumerate(loads):
        load.write(path, rows([LEFT, 50] if number < 2 else [51], number))
    winner = loads[0].publish()
    with refused(ConcurrentAppend, is_retryable=True, winner_timestamp=winner.timestamp):
        loads[1].publish()
    loads[1].abort()
    loads[2].publish()
    assert values(db, path) == {LEFT: 0, 2: 0, 50: 0, 51: 2, RIGHT: 0}


# ---- transactions that ran while the load was published


@pytest.mark.parametrize("key", [LEFT, RIGHT, 50])
def test_a_transaction_from_before_a_publication_conflicts_on_the_rows_of_the_load(
    db: Client, other: Client, path: str, key: int
) -> None:
    writer, locker, stranger, later = (other.begin() for _ in range(4))
    with db.loads.begin([path]) as load:
        load.write(path, rows([LEFT, RIGHT, 50], 7))
    writer.insert_rows(path, [{"k": key, "v": 9}])
    locker.lock_rows(path, [{"k": key}], lock_type="shared_strong")
    locker.insert_rows(path, [{"k": 3, "v": 9}])
    for loser in (writer, locker):
        with refused(TransactionConflict, is_retryable=True, table=path):
            loser.commit()
    stranger.insert_rows(path, [{"k": 2, "v": 9}])
    stranger.commit()
    later = other.begin()
    later.insert_rows(path, [{"k": key, "v": 9}])
    later.commit()
    assert values(db, path) == {LEFT: 7, RIGHT: 7, 50: 7, 2: 9, key: 9}


def test_a_transaction_from_before_a_publication_conflicts_in_the_erased_range(
    db: Client, other: Client, path: str
) -> None:
    transaction = other.begin()
    with db.loads.begin([path], erased={path: ([100], None)}):
        pass
    transaction.insert_rows(path, [{"k": RIGHT, "v": 9}])
    with refused(TransactionConflict, is_retryable=True, table=path):
        transaction.commit()
    assert values(db, path) == {LEFT: 0, 2: 0}


# ---- between prepare and decision


def _publishing(db: Client, load: Load) -> Stepwise[Published]:
    """Up to where its rows are prepared in all cells."""
    protocol = db._session.loads.publish(load.ticket, load._staged)
    publication = Stepwise(db, protocol)
    publication.advance_to(Decide)
    return publication


@ON_SEVERAL_CELLS
def test_a_load_waits_for_a_prepared_transaction_with_its_rows_and_then_conflicts(
    backend: Backend, db: Client, other: Client, path: str
) -> None:
    transaction = other.begin()
    transaction.insert_rows(path, [{"k": LEFT, "v": 5}, {"k": RIGHT, "v": 5}])
    load = db.loads.begin([path])
    load.write(path, rows([LEFT], 7))
    commit = prepare(other, transaction)
    publication = backend.start(db, db._session.loads.publish(load.ticket, load._staged))
    backend.let_pass(SOON_MS)
    assert not publication.is_over
    assert commit.result() is not None
    with refused(ConcurrentAppend, is_retryable=True):
        publication.result()
    load.abort()
    assert value(db, path, LEFT) == 5


@ON_SEVERAL_CELLS
@pytest.mark.parametrize("lock_type", ["shared_strong", "exclusive"])
def test_a_load_waits_for_row_locks(
    backend: Backend, db: Client, other: Client, path: str, lock_type: LockType
) -> None:
    transaction = other.begin()
    transaction.lock_rows(path, [{"k": LEFT}, {"k": RIGHT}], lock_type=lock_type)
    load = db.loads.begin([path])
    load.write(path, rows([LEFT], 7))
    commit = prepare(other, transaction)
    publication = backend.start(db, db._session.loads.publish(load.ticket, load._staged))
    backend.let_pass(SOON_MS)
    assert not publication.is_over
    commit.result()
    assert publication.result().row_count == 1
    assert value(db, path, LEFT) == 7


@ON_SEVERAL_CELLS
def test_a_load_that_is_prepared_is_waited_for(
    backend: Backend, db: Client, other: Client, path: str
) -> None:
    early = other.begin()
    load = db.loads.begin([path])
    load.write(path, rows([LEFT, RIGHT], 7))
    publication = _publishing(db, load)
    begun_later = other.begin()
    assert value(other, path, 2) == 0, "another row is not waited for"
    assert early.lookup_rows(path, [{"k": LEFT}]) == [{"k": LEFT, "v": 0}]
    lookup = backend.start(other, other._session.lookup_rows(path, [{"k": LEFT}]))
    scan = backend.start(other, other._session.select(path))
    begun_later.insert_rows(path, [{"k": RIGHT, "v": 9}])
    commit = backend.start(other, other._session.commit(begun_later._buffer))
    backend.let_pass(SOON_MS)
    assert not lookup.is_over
    assert not scan.is_over
    assert not commit.is_over
    early.insert_rows(path, [{"k": LEFT, "v": 8}])
    with refused(TransactionConflict, is_retryable=True, table=path):
        early.commit()
    publication.result()
    assert lookup.result() == [{"k": LEFT, "v": 7}]
    commit.result()
    assert [row["v"] for row in scan.result()][:2] == [7, 0]
    assert values(db, path) == {LEFT: 7, 2: 0, RIGHT: 9}


@ON_SEVERAL_CELLS
def test_a_load_that_is_prepared_can_not_be_given_up_any_more(
    backend: Backend, db: Client, other: Client, path: str
) -> None:
    """Whoever aborts it waits for what comes of it: the lock on its record decides."""
    load = db.loads.begin([path])
    load.write(path, rows([LEFT, RIGHT], 7))
    publication = _publishing(db, load)
    abort = backend.start(other, other._session.loads.abort_load(load.id, "too late"))
    backend.let_pass(SOON_MS)
    assert not abort.is_over
    published = publication.result()
    assert abort.result() == published
    assert record_of(db, load.id).state == "finished"
    assert values(db, path) == {LEFT: 7, 2: 0, RIGHT: 7}


@ON_SEVERAL_CELLS
def test_a_load_that_is_aborted_during_its_publication_is_not_published(
    db: Client, other: Client, path: str
) -> None:
    load = db.loads.begin([path])
    load.write(path, rows([LEFT, RIGHT], 7))
    publication = Stepwise(db, db._session.loads.publish(load.ticket, load._staged))
    while record_of(other, load.id).state != "publishing":
        publication.advance()
    assert other.loads.abort(load.id, "just in time") is None
    with pytest.raises(TransactionConflict.__mro__[1], match="just in time"):
        publication.result()
    assert values(db, path) == {LEFT: 0, 2: 0, RIGHT: 0}
