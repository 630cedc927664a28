"""Bulk loads whose tables change, whose owners die, and those without atomicity."""

import gc

import pytest

from conformance.backends import Backend, ClientClock
from conformance.bulk import HALVES, filled, keys, record_of, rows, values
from conformance.selections import UNDER_VIRTUAL_TIME
from conformance.stepping import Stepwise
from conformance.tables import PLAIN, MakeTable, refused
from dodona import Load, LoadTicket
from dodona._core.loads.cells import close_everywhere
from dodona.client import Client
from dodona.errors import InvalidRequest, LoadEnded, Overloaded, SnapshotTooOld
from dodona.types import LoadMode
from dodona_wire.messages.catalog import MountTable
from dodona_wire.messages.loads import OpenLoad

LEASE_MS = 20_000
LATER_MS = 25_000
MANY = range(40_000)
"""Rows for a chunk of their own: fewer are written one by one."""


# ---- owners that die


def _begun(db: Client, path: str, lease_ms: int = LEASE_MS) -> LoadTicket:
    """A load that nobody renews."""
    return db._run(db._session.loads.begin([path], lease_ms=lease_ms, owner="who died"))


def _staged(db: Client, path: str) -> Load:
    """Such a load, with rows."""
    ticket = _begun(db, path)
    staged = db._run(db._session.loads.stage(ticket, path, rows([1, 150])))
    load = Load(db._run, db._session, db.loads.join(ticket)._lease)
    load._lease.is_open = False
    load._staged = staged
    return load


@pytest.mark.slow("a lease's life, on every back end")
@UNDER_VIRTUAL_TIME
def test_a_load_stays_open_while_at_least_one_client_renews_its_lease(
    backend: Backend, db: Client, other: Client, make_table: MakeTable
) -> None:
    path = make_table(pivot_keys=HALVES)
    load = db.loads.begin([path], lease_ms=LEASE_MS)
    joined = other.loads.join(load.ticket)
    load.write(path, rows([1, 150]))
    backend.let_pass(3 * LEASE_MS)
    assert db.loads.recover() == []
    staged = load._staged
    del load
    gc.collect()
    backend.let_pass(3 * LEASE_MS)
    assert joined.publish(staged).row_count == 2, "one of them is enough"


@UNDER_VIRTUAL_TIME
def test_each_write_of_rows_renews_the_lease_of_a_load(
    backend: Backend, db: Client, make_table: MakeTable
) -> None:
    path = make_table()
    ticket, staged = _begun(db, path), []
    for key in range(5):
        backend.let_pass(LEASE_MS * 3 // 4)
        staged += db._run(db._session.loads.stage(ticket, path, rows([key])))
    assert db.loads.join(ticket).publish(staged).row_count == 5


@UNDER_VIRTUAL_TIME
def test_recover_rolls_back_an_unpublished_load_of_a_dead_owner(
    backend: Backend, db: Client, other: Client, make_table: MakeTable
) -> None:
    path = make_table(pivot_keys=HALVES)
    load = _staged(db, path)
    backend.let_pass(LEASE_MS // 2)
    assert other.loads.recover() == []
    backend.let_pass(LATER_MS)
    with refused(LoadEnded, "not renewed", is_retryable=True):
        load.write(path, rows([2]))
    (recovery,) = other.loads.recover("the operator")
    assert (recovery.load, recovery.outcome) == (load.id, "rolled_back")
    assert (recovery.state_before, recovery.owner) == ("running", "the operator")
    assert recovery.tables == (path,)
    assert "lease" in recovery.reason
    record = record_of(other, load.id)
    assert (record.state, record.owner) == ("aborted", "who died")
    assert other.loads.recover() == []
    assert db.loads.list_recoveries() == [recovery]
    with refused(LoadEnded, "lease expired", is_retryable=True):
        load.publish()
    assert load.abort() is None
    assert record_of(other, load.id).reason == record.reason
    assert values(db, path) == {}


@UNDER_VIRTUAL_TIME
def test_a_new_load_recovers_the_loads_of_dead_owners(
    backend: Backend, db: Client, other: Client, make_table: MakeTable
) -> None:
    path = make_table(pivot_keys=HALVES)
    load = _staged(db, path)
    backend.let_pass(LATER_MS)
    with other.loads.begin([path], owner="the next"):
        pass
    (recovery,) = db.loads.list_recoveries()
    assert (recovery.load, recovery.owner) == (load.id, "the next")


@UNDER_VIRTUAL_TIME
def test_recover_rolls_forward_a_published_load_of_a_dead_owner(
    backend: Backend, db: Client, other: Client, make_table: MakeTable
) -> None:
    path = make_table(pivot_keys=HALVES)
    load = _staged(db, path)
    publication = Stepwise(db, db._session.loads.publish(load.ticket, load._staged))
    while record_of(other, load.id).state != "published":
        publication.advance()
    assert sorted(values(other, path)) == [1, 150]
    assert other.loads.recover() == [], "it is open still"
    backend.let_pass(LATER_MS)
    (recovery,) = other.loads.recover("the operator")
    assert (recovery.outcome, recovery.state_before) == ("rolled_forward", "published")
    published = load.publish()
    assert published.row_count == 2
    record = record_of(other, load.id)
    assert (record.state, record.commit_timestamp) == ("finished", published.timestamp)
    (version,) = other.lookup_versions(path, [{"k": 1}])
    assert version.write_timestamps == [published.timestamp]
    assert load.abort() == published
    assert sorted(values(other, path)) == [1, 150]


@UNDER_VIRTUAL_TIME
@pytest.mark.parametrize("duration_ms", [0, 15_000])
def test_a_load_whose_owner_dies_during_publication_has_all_rows_or_none(
    backend: Backend, db: Client, other: Client, duration_ms: int
) -> None:
    """At every single step of it."""
    other.create_table("//t", PLAIN, pivot_keys=HALVES, mount=True)
    outcomes: list[str] = []
    for step_count in range(40):
        load = _staged(db, "//t")
        publication = Stepwise(db, db._session.loads.publish(load.ticket, load._staged))
        for _ in range(step_count):
            if not publication.is_over:
                publication.advance()
        is_over = publication.is_over
        backend.let_pass(duration_ms)
        backend.let_pass(LATER_MS)
        recovered: list[str] = [it.outcome for it in other.loads.recover() if it.load == load.id]
        record = record_of(other, load.id)
        is_there = record.state == "finished"
        assert is_there or record.state == "aborted"
        assert sorted(values(other, "//t")) == ([1, 150] if is_there else [])
        outcome = "rolled_forward" if is_there else "rolled_back"
        assert recovered in ([], [outcome])
        outcomes += recovered or ["finished"]
        with other.loads.begin(["//t"], erased={"//t": (None, None)}):
            pass
        if is_over:
            break
    assert set(outcomes) == {"rolled_back", "rolled_forward", "finished"}
    assert outcomes == sorted(outcomes, key=["rolled_back", "rolled_forward", "finished"].index)


@UNDER_VIRTUAL_TIME
@pytest.mark.parametrize("mounted_count", [0, 1, 2])
def test_an_owner_that_dies_while_the_first_load_begins_does_not_block_others(
    db: Client, other: Client, make_table: MakeTable, mounted_count: int
) -> None:
    """A system table is made and mounted by two requests. (Simulator, seeds 5235 and 5284.)"""
    path = make_table()
    beginning = Stepwise(db, db._session.loads.begin([path]))
    for _ in range(mounted_count):
        beginning.advance_to(MountTable)
        beginning.advance()
    beginning.advance_to(MountTable)
    assert other.loads.recover() == []
    assert other.loads.list_recoveries() == []
    with db.loads.join(beginning.result()) as load:
        load.write(path, rows([1]))
    assert values(db, path) == {1: 1}


@UNDER_VIRTUAL_TIME
def test_a_load_that_is_just_being_opened_is_not_cleared_away(
    db: Client, other: Client, make_table: MakeTable
) -> None:
    path = make_table()
    beginning = Stepwise(db, db._session.loads.begin([path]))
    beginning.advance_to(OpenLoad)
    assert other.loads.list_loads() == []  # its record comes when it is open
    with other.loads.begin([path]):
        assert other.loads.recover() == []
    with db.loads.join(beginning.result()) as load:
        load.write(path, rows([1]))
    assert values(db, path) == {1: 1}


@UNDER_VIRTUAL_TIME
def test_a_with_block_reports_that_the_load_lost_its_lease(
    backend: Backend, db: Client, make_table: MakeTable
) -> None:
    path = make_table()

    def run() -> None:
        with db.loads.begin([path], lease_ms=LEASE_MS) as load:
            load.write(path, rows([1]))
            db._run(close_everywhere(db._session._context, load.id))
            backend.let_pass(LATER_MS)
            assert not load._lease.is_open, "that was noticed"

    with refused(LoadEnded, is_retryable=True):
        run()
    assert values(db, path) == {}
    assert [it.state for it in db.loads.list_loads()] == ["aborted"]


@UNDER_VIRTUAL_TIME
def test_no_more_than_a_thousand_loads_are_open(
    backend: Backend, db: Client, make_table: MakeTable
) -> None:
    path = make_table(atomicity="none")
    loads = [db.loads.begin([path], atomicity="none") for _ in range(1_000)]
    with refused(Overloaded, "the limit is 1000", is_retryable=True):
        db.loads.begin([path], atomicity="none")
    loads.pop().publish()
    db.loads.begin([path], atomicity="none")


# ---- without atomicity


def test_without_atomicity_rows_are_seen_as_they_come(
    db: Client, other: Client, make_table: MakeTable
) -> None:
    path = make_table(atomicity="none", pivot_keys=HALVES)
    with db.loads.begin([path], atomicity="none") as load:
        assert load.write(path, rows([1, 150, 1], 7)) == []
        assert values(other, path) == {1: 7, 150: 7}
        other.loads.join(load.ticket).write(path, rows(MANY, 8), durability="async")
        assert values(other, path)[150] == 8
    assert values(db, path) == dict.fromkeys(MANY, 8)
    assert load.id not in [it.load for it in db.loads.list_loads()]
    assert load.publish() == load.publish()
    assert load.abort() is None


def test_an_abort_of_a_non_atomic_load_keeps_the_written_rows(
    db: Client, make_table: MakeTable
) -> None:
    path = make_table(atomicity="none")
    load = db.loads.begin([path], atomicity="none")
    load.write(path, rows([1]))
    assert load.abort() is None
    assert load.abort() is None
    assert values(db, path) == {1: 1}


@pytest.mark.parametrize("numbers", [range(1), MANY])
@pytest.mark.parametrize("is_published", [False, True])
def test_without_atomicity_rows_that_come_late_are_refused(
    db: Client, other: Client, make_table: MakeTable, numbers: range, is_published: bool
) -> None:
    path = make_table(atomicity="none")
    load = db.loads.begin([path], atomicity="none")
    late = other.loads.join(load.ticket)
    if is_published:
        load.publish()
    else:
        other.loads.abort(load.id)
    for it in (load, late):
        with refused(LoadEnded, is_retryable=True, table=path):
            it.write(path, rows(numbers))
    assert values(db, path) == {}


@pytest.mark.parametrize("numbers", [range(10), MANY])
def test_without_atomicity_keys_can_be_deleted(
    db: Client, make_table: MakeTable, numbers: range
) -> None:
    path = make_table(atomicity="none", pivot_keys=HALVES)
    with db.loads.begin([path], atomicity="none") as load:
        load.write(path, rows([*numbers, 50_000]))
    with db.loads.begin([path], atomicity="none", mode="delete") as load:
        load.write(path, keys(numbers))
    assert values(db, path) == {50_000: 1}


def test_without_atomicity_there_are_no_conditions(db: Client, make_table: MakeTable) -> None:
    path = make_table(atomicity="none")
    modes: list[LoadMode] = ["insert", "update"]
    for mode in modes:
        with refused(InvalidRequest, "without atomicity", is_retryable=False):
            db.loads.begin([path], atomicity="none", mode=mode)
    for options in (
        {"overwrites": True},
        {"start_timestamp": db.generate_timestamp()},
        {"erased": {path: (None, None)}},
        {"application": "a", "version": 0},
    ):
        with refused(InvalidRequest, "without atomicity", is_retryable=False):
            db.loads.begin([path], atomicity="none", **options)


@pytest.mark.parametrize("skew_ms", [-120_000, 120_000])
def test_without_atomicity_a_clock_that_is_off_is_refused(
    backend: Backend, db: Client, make_table: MakeTable, skew_ms: int
) -> None:
    path, atomic = make_table(atomicity="none"), make_table()
    clock = ClientClock()
    clock.unix_skew_ms = skew_ms
    client = backend.new_client(clock=clock)
    text = "Transaction timestamp is off limits, check the local clock readings"
    with refused(InvalidRequest, text, is_retryable=False):
        client.loads.begin([path], atomicity="none")
    with client.loads.begin([atomic]) as load:
        load.write(atomic, rows([1]))
    assert values(db, atomic) == {1: 1}, "an atomic load has no stamp of the client's clock"


def test_without_atomicity_the_same_rows_may_come_again(db: Client, make_table: MakeTable) -> None:
    """A task that is repeated writes what it wrote, at the stamp of the load."""
    path = filled(db, lambda *a, **o: make_table(*a, atomicity="none", **o), PLAIN, [])
    load = db.loads.begin([path], atomicity="none")
    for _ in range(2):
        load.write(path, rows([1, 150], 7))
    load.publish()
    assert values(db, path) == {1: 7, 150: 7}


@UNDER_VIRTUAL_TIME
def test_a_start_that_is_not_kept_any_more_is_refused(backend: Backend, db: Client) -> None:
    at_once = {"min_data_ttl": 0, "max_data_ttl": 0, "dynamic_store_auto_flush_period": 1_000}
    db.create_table("//t", PLAIN, mount=True, attributes=at_once)
    db.insert_rows("//t", [{"k": 1, "v": 1}])
    start = db.generate_timestamp()
    for value in (2, 3):
        db.insert_rows("//t", [{"k": 1, "v": value}])
        backend.let_pass(180_000)
    with refused(SnapshotTooOld, is_retryable=True):
        db.loads.begin(["//t"], start_timestamp=start)
    assert db.loads.list_loads() == []
