"""Named leases, and transactions that commit only while a lease is still their owner's."""

import pytest

from conformance.backends import Backend
from conformance.tables import APART, PLAIN, MakeTable, read, value
from dodona import Lease
from dodona._core.protocol import steps
from dodona.client import Client, Transaction
from dodona.errors import (
    InvalidRequest,
    LeaseHeld,
    PrerequisiteFailed,
    TableExists,
    TransactionConflict,
)

pytestmark = pytest.mark.part("transactions on real processes")

LONG_MS, SHORT_MS = 3_600_000, 1
OWNERS = 8
ATTEMPTS_MAX = 600


@pytest.fixture
def leases(db: Client, new_path: str) -> str:
    path = f"{new_path}-leases"
    db.leases.create_table(path)
    return path


def acquire_when_it_is_over(backend: Backend, path: str, owner: str) -> Lease:
    """Another owner has it for a moment."""
    for _ in range(ATTEMPTS_MAX):
        try:
            return backend.db.leases.acquire(path, "x", owner, LONG_MS)
        except LeaseHeld:
            backend.let_pass(100)
    pytest.fail("the lease does not expire")


def test_a_lease_has_one_owner(db: Client, other: Client, leases: str) -> None:
    first = db.leases.acquire(leases, "x", "ann", LONG_MS)
    assert first == Lease(leases, "x", "ann", 1)
    with pytest.raises(LeaseHeld) as error:
        other.leases.acquire(leases, "x", "bob")
    assert error.value.is_retryable
    assert error.value.attributes["owner"] == "ann"
    assert error.value.attributes["epoch"] == 1
    assert other.leases.acquire(leases, "y", "bob").epoch == 1, "another name is another lease"
    with pytest.raises(LeaseHeld):
        db.leases.acquire(leases, "x", "ann")
    db.leases.release(first)
    assert other.leases.acquire(leases, "x", "bob") == Lease(leases, "x", "bob", 2)


def test_an_expired_lease_is_taken_over(backend: Backend, leases: str) -> None:
    first = backend.db.leases.acquire(leases, "x", "ann", SHORT_MS)
    second = acquire_when_it_is_over(backend, leases, "bob")
    assert second.epoch == 2
    for call in (backend.db.leases.renew, backend.db.leases.release):
        with pytest.raises(PrerequisiteFailed) as error:
            call(first)
        assert error.value.attributes["found"] == {"owner": "bob", "epoch": 2}
    backend.db.leases.renew(second)


def test_a_lease_that_expired_is_renewed_if_it_is_still_free(backend: Backend, leases: str) -> None:
    lease = backend.db.leases.acquire(leases, "x", "ann", SHORT_MS)
    backend.let_pass(100)
    backend.db.leases.renew(lease, LONG_MS)
    with pytest.raises(LeaseHeld):
        backend.db.leases.acquire(leases, "x", "bob")


@pytest.mark.parametrize("cells", [1, 2])
def test_a_transaction_commits_while_its_lease_is_its_owners(
    backend: Backend, leases: str, make_table: MakeTable, cells: int
) -> None:
    db, path = backend.db, make_table(PLAIN, pivot_keys=APART)
    rows = [{"k": 100 * it, "v": 1} for it in range(cells)]
    lease = db.leases.acquire(leases, "x", "ann", SHORT_MS)
    with db.begin(prerequisites=[lease]) as tx:
        tx.insert_rows(path, rows)
        db.leases.renew(lease, SHORT_MS)  # no conflict
    assert read(db, path) == rows
    late = db.begin(prerequisites=[lease])
    late.insert_rows(path, [{**it, "v": 2} for it in rows])
    acquire_when_it_is_over(backend, leases, "bob")
    with pytest.raises(PrerequisiteFailed) as error:
        late.commit()
    assert error.value.attributes["key"] == {"name": "x"}
    assert read(db, path) == rows


def test_a_released_lease_lets_no_transaction_commit(
    db: Client, leases: str, make_table: MakeTable
) -> None:
    path = make_table(PLAIN)
    lease = db.leases.acquire(leases, "x", "ann", LONG_MS)
    db.leases.release(lease)
    again = db.leases.acquire(leases, "x", "ann", LONG_MS)
    with pytest.raises(PrerequisiteFailed), db.begin(prerequisites=[lease]) as tx:
        tx.insert_rows(path, [{"k": 1, "v": 1}])

    def write(tx: Transaction) -> None:  # the other cell may not have heard of the refusal yet
        tx.insert_rows(path, [{"k": 1, "v": 2}])

    db.run_in_transaction(write, prerequisites=[again])
    assert value(db, path, 1) == 2


def test_a_commit_without_writes_checks_the_lease(db: Client, leases: str) -> None:
    lease = db.leases.acquire(leases, "x", "ann", LONG_MS)
    tx = db.begin(prerequisites=[lease])
    assert tx.commit() is not None
    db.leases.release(lease)
    with pytest.raises(PrerequisiteFailed):
        db.begin(prerequisites=[lease]).commit()


def test_a_function_runs_once_under_a_lost_lease(db: Client, leases: str) -> None:
    lease = db.leases.acquire(leases, "x", "ann", LONG_MS)
    runs: list[Transaction] = []
    db.run_in_transaction(runs.append, prerequisites=[lease])
    db.leases.release(lease)
    with pytest.raises(PrerequisiteFailed):
        db.run_in_transaction(runs.append, prerequisites=[lease])
    assert len(runs) == 2


def test_prerequisites_of_an_iterator_count_in_every_attempt(db: Client, leases: str) -> None:
    lease = db.leases.acquire(leases, "x", "ann", LONG_MS)
    db.leases.release(lease)
    runs: list[Transaction] = []

    def fail_first(tx: Transaction) -> None:
        runs.append(tx)
        if len(runs) == 1:
            raise TransactionConflict("run it again")

    with pytest.raises(PrerequisiteFailed):
        db.run_in_transaction(fail_first, prerequisites=iter([lease]))  # type: ignore[arg-type]
    assert len(runs) == 2


def test_a_shorter_renewal_moves_no_expiry_back(backend: Backend, leases: str) -> None:
    db = backend.db
    lease = db.leases.acquire(leases, "x", "ann", LONG_MS)
    db.leases.renew(lease, SHORT_MS)
    backend.let_pass(100)
    with pytest.raises(LeaseHeld):
        db.leases.acquire(leases, "x", "bob")


def test_an_expired_owner_that_goes_on_committing_is_replaced(
    backend: Backend, leases: str, make_table: MakeTable
) -> None:
    """Its transactions hold the row of the lease nearly all the time."""
    db, path = backend.db, make_table(PLAIN, pivot_keys=APART)
    lease = db.leases.acquire(leases, "x", "ann", SHORT_MS)
    backend.let_pass(100)
    counts: list[int] = []

    def commit(number: int) -> steps.Protocol[None]:
        session = db._session
        while True:
            buffer = yield from session.begin(prerequisites=[lease])
            rows = [{"k": 100 * it + number, "v": 1} for it in range(2)]
            yield from session.insert_rows(buffer, path, rows)
            try:
                yield from session.commit(buffer)
            except TransactionConflict:  # with the takeover
                continue
            counts.append(number)

    owners = [backend.start(db, commit(number)) for number in range(OWNERS)]
    while len(counts) < 2 * OWNERS:
        backend.let_pass(1)
    theirs = backend.db.leases.acquire(leases, "x", "bob", LONG_MS)
    assert theirs.epoch == 2
    for owner in owners:
        with pytest.raises(PrerequisiteFailed):
            owner.result()


def test_two_owners_of_two_leases_write_under_both(
    db: Client, leases: str, make_table: MakeTable
) -> None:
    path = make_table(PLAIN)
    both = [db.leases.acquire(leases, name, "ann", LONG_MS) for name in ("x", "y")]
    with db.begin(prerequisites=both) as tx:
        tx.insert_rows(path, [{"k": 1, "v": 1}])
    db.leases.release(both[1])
    with pytest.raises(PrerequisiteFailed) as error, db.begin(prerequisites=both) as tx:
        tx.insert_rows(path, [{"k": 1, "v": 2}])
    assert error.value.attributes["key"] == {"name": "y"}


def test_a_lease_survives_a_restart(backend: Backend, leases: str) -> None:
    lease = backend.db.leases.acquire(leases, "x", "ann", LONG_MS)
    backend.restart_cells()
    backend.db.leases.renew(lease, LONG_MS)
    with pytest.raises(LeaseHeld):
        backend.db.leases.acquire(leases, "x", "bob")


def test_what_is_no_lease_is_refused(db: Client, leases: str, make_table: MakeTable) -> None:
    lease = db.leases.acquire(leases, "x", "ann")
    for wrong in ([leases], lease, [Lease(leases, "x", "ann", 0)], "leases"):
        with pytest.raises(InvalidRequest):
            db.begin(prerequisites=wrong)  # type: ignore[arg-type]
    with pytest.raises(InvalidRequest, match="atomicity full"):
        db.begin(atomicity="none", prerequisites=[lease])
    for name, owner in (("", "ann"), ("x", ""), ("x" * 1_001, "ann")):
        with pytest.raises(InvalidRequest, match="the length of"):
            db.leases.acquire(leases, name, owner)
    with pytest.raises(InvalidRequest, match="lease_ms"):
        db.leases.renew(lease, 0)
    with pytest.raises(TableExists):
        db.leases.create_table(make_table(PLAIN))
