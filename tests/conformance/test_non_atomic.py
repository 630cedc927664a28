"""Transactions without atomicity: no snapshot, no locks, the last write wins."""

import pytest

from conformance.backends import Backend, ClientClock, Simulated
from conformance.tables import APART, PLAIN, TWO_COLUMNS, MakeTable, read, refused, value
from dodona.client import Client
from dodona.errors import InvalidRequest, SnapshotTooOld, TableNotMounted, Unavailable
from dodona.types import Atomicity


@pytest.mark.parametrize(("given", "wanted"), [("none", "full"), ("full", "none")])
def test_a_commit_requires_the_same_atomicity_of_table_and_transaction(
    db: Client, make_table: MakeTable, given: Atomicity, wanted: Atomicity
) -> None:
    path = make_table(atomicity=wanted)
    transaction = db.begin(given)
    transaction.insert_rows(path, [{"k": 1, "v": 1}])
    text = f'Invalid atomicity mode: "{given}" instead of "{wanted}"'
    with refused(InvalidRequest, text, is_retryable=False, table=path):
        transaction.commit()
    assert read(db, path) == []


def test_the_modes_must_match_for_each_table(db: Client, make_table: MakeTable) -> None:
    full, none = make_table(), make_table(atomicity="none")
    transaction = db.begin()
    for path in (full, none):
        transaction.insert_rows(path, [{"k": 1, "v": 1}])
    with refused(InvalidRequest, is_retryable=False, table=none):
        transaction.commit()
    assert read(db, full) == read(db, none) == []


def test_a_write_outside_any_transaction_has_the_tables_mode(
    db: Client, make_table: MakeTable
) -> None:
    path = make_table(atomicity="none")
    db.insert_rows(path, [{"k": 1, "v": 1}])
    db.insert_rows(path, [{"k": 2, "v": 2}], durability="async")
    db.delete_rows(path, [{"k": 1}])
    assert read(db, path) == [{"k": 2, "v": 2}]


def test_a_non_atomic_transaction_has_no_id_and_no_start_timestamp(db: Client) -> None:
    transaction = db.begin("none")
    assert transaction.id is None
    assert transaction.start_timestamp is None


def test_a_non_atomic_transaction_reads_the_last_written_rows(
    db: Client, make_table: MakeTable
) -> None:
    path = make_table(atomicity="none")
    transaction = db.begin("none")
    for number in range(3):
        db.insert_rows(path, [{"k": 1, "v": number}])
        assert transaction.lookup_rows(path, [{"k": 1}]) == [{"k": 1, "v": number}]
        assert list(transaction.select(path)) == [{"k": 1, "v": number}]


def test_a_non_atomic_transaction_does_not_read_its_own_buffered_writes(
    db: Client, make_table: MakeTable
) -> None:
    path = make_table(atomicity="none")
    with db.begin("none") as transaction:
        transaction.insert_rows(path, [{"k": 1, "v": 1}])
        assert transaction.lookup_rows(path, [{"k": 1}]) == []
    assert value(db, path, 1) == 1


def test_non_atomic_transactions_take_no_locks_and_the_last_write_wins(
    db: Client, make_table: MakeTable
) -> None:
    path = make_table(atomicity="none")
    first, second = db.begin("none"), db.begin("none")
    first.insert_rows(path, [{"k": 1, "v": 1}])
    second.insert_rows(path, [{"k": 1, "v": 2}])
    second.commit()
    first.commit()
    assert value(db, path, 1) == 1


def test_a_non_atomic_transaction_cannot_lock_rows(db: Client, make_table: MakeTable) -> None:
    path = make_table(atomicity="none")
    with refused(InvalidRequest, is_retryable=False):
        db.begin("none").lock_rows(path, [{"k": 1}])
    with refused(InvalidRequest, is_retryable=False):
        db.begin("none").insert_rows(path, [{"k": 1, "v": 1}], lock_type="shared_write")


def test_inserts_updates_and_deletions_merge_in_a_non_atomic_transaction(
    db: Client, make_table: MakeTable
) -> None:
    path = make_table(TWO_COLUMNS, atomicity="none")
    db.insert_rows(path, [{"k": 1, "v": 1, "w": b"x"}, {"k": 2, "v": 1}])
    with db.begin("none") as transaction:
        transaction.insert_rows(path, [{"k": 1, "v": 2}], update=True)
        transaction.delete_rows(path, [{"k": 2}])
        transaction.insert_rows(path, [{"k": 2, "w": b"y"}], update=True)
    assert read(db, path) == [{"k": 1, "v": 2, "w": b"x"}, {"k": 2, "v": None, "w": b"y"}]


# ---- timestamps


def test_a_non_atomic_row_is_visible_from_its_timestamp_to_its_deletion(
    db: Client, make_table: MakeTable
) -> None:
    path = make_table(atomicity="none")
    written = db.insert_rows(path, [{"k": 1, "v": 1}])
    deleted = db.delete_rows(path, [{"k": 1}])
    assert written is not None
    assert deleted is not None
    counts = [
        len(read(db, path, timestamp=at)) for at in (written - 1, written, deleted - 1, deleted)
    ]
    assert counts == [0, 1, 1, 0]


def test_the_timestamps_of_a_row_rise_although_clocks_step_back(
    backend: Backend, db: Client, make_table: MakeTable
) -> None:
    path = make_table(atomicity="none")
    clock = ClientClock()
    client = backend.new_client(clock=clock)
    stamps = []
    for number, skew_ms in enumerate((0, 30_000, 0, -30_000, 0)):
        clock.unix_skew_ms = skew_ms
        at = client.insert_rows(path, [{"k": 1, "v": number}])
        assert at is not None
        stamps.append(at)
        assert value(db, path, 1) == number
    assert stamps == sorted(set(stamps))


@pytest.mark.parametrize("skew_ms", [-65_000, 65_000])
def test_a_clock_that_is_more_than_a_minute_off_is_refused(
    backend: Backend, db: Client, make_table: MakeTable, skew_ms: int
) -> None:
    path = make_table(atomicity="none")
    clock = ClientClock()
    clock.unix_skew_ms = skew_ms
    client = backend.new_client(clock=clock)
    text = "Transaction timestamp is off limits, check the local clock readings"
    with refused(InvalidRequest, text, is_retryable=False):
        client.insert_rows(path, [{"k": 1, "v": 1}])
    assert read(db, path) == []
    clock.unix_skew_ms = skew_ms // 2
    client.insert_rows(path, [{"k": 1, "v": 1}])
    assert value(db, path, 1) == 1


@pytest.mark.parametrize("has_moved", [False, True])
def test_a_table_that_became_atomic_commits_nothing_below_its_row_timestamps(
    simulator: Simulated, has_moved: bool
) -> None:
    """A clock that was ahead has stamped rows with times that the oracle has still to come to."""
    db = simulator.db
    db.create_table("//t", PLAIN, "none", mount=True)
    clock = ClientClock()
    clock.unix_skew_ms = 50_000
    stamp = simulator.new_client(clock=clock).insert_rows("//t", [{"k": 100, "v": 1}])
    assert stamp is not None
    db.unmount_table("//t")
    if has_moved:
        db.reshard_table("//t", pivot_keys=APART)
    db.set("//t/@atomicity", "full")
    db.mount_table("//t")
    for _ in range(2):
        transaction = db.begin()
        transaction.insert_rows("//t", [{"k": 100, "v": 2}])
        with refused(SnapshotTooOld, is_retryable=True):
            transaction.commit()
        with refused(SnapshotTooOld, is_retryable=True):
            db.insert_rows("//t", [{"k": 100, "v": 2}])
        simulator.restart_cells()
    simulator.let_pass(60_000)
    committed_at = db.insert_rows("//t", [{"k": 100, "v": 2}])
    assert committed_at is not None
    assert committed_at > stamp
    assert value(db, "//t", 100) == 2


# ---- durability and partial success


def test_async_durability_is_for_non_atomic_transactions_only(db: Client) -> None:
    with refused(InvalidRequest, 'Durability must be "sync"', is_retryable=False):
        db.begin("full", "async")


def test_an_asynchronous_write_can_be_read_immediately(db: Client, make_table: MakeTable) -> None:
    path = make_table(atomicity="none")
    with db.begin("none", "async") as transaction:
        transaction.insert_rows(path, [{"k": 1, "v": 1}])
    assert value(db, path, 1) == 1


def test_a_non_atomic_commit_writes_nothing_if_one_tablet_is_known_to_be_unmounted(
    db: Client, make_table: MakeTable
) -> None:
    path = make_table(PLAIN, atomicity="none", pivot_keys=APART)
    db.unmount_table(path, first_tablet_index=1, last_tablet_index=1)
    transaction = db.begin("none")
    transaction.insert_rows(path, [{"k": 1, "v": 1}, {"k": 100, "v": 1}])
    with refused(TableNotMounted, is_retryable=False, applied=[], unknown=[]):
        transaction.commit()
    db.mount_table(path)
    assert read(db, path) == []


def test_a_failed_non_atomic_commit_names_the_tablets_with_written_rows(
    simulator: Simulated,
) -> None:
    db = simulator.db
    db.create_table("//t", PLAIN, "none", pivot_keys=APART, mount=True)
    away, here = db.get_table("//t").tablets
    assert away.cell is not None
    transaction = db.begin("none")
    transaction.insert_rows("//t", [{"k": 1, "v": 1}, {"k": 100, "v": 1}])
    with (
        simulator.cell_is_down(away.cell),
        refused(Unavailable, is_retryable=True, applied=[here.tablet]) as refusal,
    ):
        transaction.commit()
    lost = refusal.error.attributes
    assert sorted(lost["unknown"] + lost["not_applied"]) == [away.tablet]
    assert read(db, "//t") == [{"k": 100, "v": 1}]
