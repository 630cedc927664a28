"""Named leases step by step: what `acquire` asks again, and what it makes of lost answers."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import dodona
import dodona.aio
from dodona import Lease
from dodona._core.protocol.routing import Routing
from dodona._core.protocol.steps import Calls, Pause, Protocol, Step
from dodona._core.session import Session
from dodona.errors import (
    CommitOutcomeUnknown,
    InvalidRequest,
    LeaseHeld,
    PrerequisiteFailed,
    TransactionConflict,
)
from dodona_wire.messages.base import Failure
from dodona_wire.messages.data import AskOutcome, ConditionalCommit, Lookup
from dodona_wire.messages.families import Request
from unit.client.protocols import LOST, Clock

PATH = "//leases"
LONG_MS = 3_600_000
ANN = Lease(PATH, "x", "ann", 1)


@pytest.fixture
def db(tmp_path: Path) -> Iterator[dodona.Client]:
    with dodona.open(tmp_path / "db") as db:
        db.leases.create_table(PATH)
        yield db


def row(db: dodona.Client) -> dict[str, Any]:
    (found,) = db.lookup_rows(PATH, [{"name": "x"}])
    return found


def once(step: Step) -> Protocol[Any]:
    return (yield step)


class Calling:
    """A client whose answers a test may lose. Its pauses take no time but that of its clock."""

    def __init__(self, db: dodona.Client) -> None:
        self.db = db
        self.clock = Clock()
        self.session = Session(
            instant_us=self.clock.instant_us,
            unix_us=self.clock.unix_us,
            dice=lambda: 0.5,
            routing=Routing(),
        )
        self.pauses: list[int] = []
        self.withheld: list[Step] = []
        """Requests of commits that a cell may get later."""

    def run(
        self, protocol: Protocol[Any], meet: Callable[[Step], list[Failure] | None] | None = None
    ) -> Any:
        """Run it. `meet` sees each step first, and may answer it."""
        replies: Any = None
        try:
            while True:
                step = protocol.send(replies)
                replies = None if meet is None else meet(step)
                if isinstance(step, Pause):
                    self.pauses.append(step.duration_ms)
                    self.clock.now_us += step.duration_ms * 1000
                    replies = []
                elif replies is None:
                    replies = self.deliver(step)
        except StopIteration as stop:
            return stop.value

    def deliver(self, step: Step) -> Any:
        return self.db._run(once(step))

    def acquire(
        self, owner: str = "ann", meet: Callable[[Step], list[Failure] | None] | None = None
    ) -> Lease:
        acquire = self.session.named_leases.acquire
        lease: Lease = self.run(acquire(PATH, "x", owner, LONG_MS), meet)
        return lease


def asks(step: Step, kind: type[Request]) -> bool:
    return isinstance(step, Calls) and isinstance(step.requests[0][1], kind)


class Losing:
    """Loses the answer to the first commit, and those to questions about it."""

    def __init__(self, calling: Calling, is_delivered: bool, then: Callable[[], None]) -> None:
        self._calling = calling
        self._is_delivered = is_delivered
        self._then = then
        self.lost: list[Step] = []

    def __call__(self, step: Step) -> list[Failure] | None:
        if asks(step, ConditionalCommit) and not self.lost:
            self.lost.append(step)
            if self._is_delivered:
                self._calling.deliver(step)
            self._then()
            return [LOST]
        return [LOST] if asks(step, AskOutcome) else None


def nothing() -> None:
    """No other client does anything meanwhile."""


def test_a_lease_that_another_owner_has_is_refused_without_a_pause(db: dodona.Client) -> None:
    db.leases.acquire(PATH, "x", "bob", LONG_MS)
    calling = Calling(db)
    with pytest.raises(LeaseHeld) as error:
        calling.acquire()
    assert error.value.attributes["owner"] == "bob"
    assert calling.pauses == []


def test_an_own_lease_whose_commit_was_not_acknowledged_is_found(db: dodona.Client) -> None:
    calling = Calling(db)
    losing = Losing(calling, True, nothing)
    assert calling.acquire("ann", losing) == ANN
    assert losing.lost
    assert row(db)["epoch"] == 1
    db.leases.renew(ANN)


def test_a_commit_that_arrives_after_the_next_attempt_changes_nothing(db: dodona.Client) -> None:
    calling = Calling(db)
    losing = Losing(calling, False, nothing)
    assert calling.acquire("ann", losing) == ANN
    before = row(db)
    (late,) = losing.lost
    (answer,) = calling.deliver(late)
    assert isinstance(answer, Failure)
    assert row(db) == before


def test_the_same_owners_lease_of_another_call_is_not_taken_for_an_own_one(
    db: dodona.Client,
) -> None:
    def meanwhile() -> None:
        db.leases.acquire(PATH, "x", "ann", LONG_MS // 2)

    calling = Calling(db)
    with pytest.raises(LeaseHeld) as error:
        calling.acquire("ann", Losing(calling, False, meanwhile))
    assert error.value.attributes["epoch"] == 1


def test_an_outcome_that_nobody_can_tell_is_unknown_to_the_caller(db: dodona.Client) -> None:
    calling = Calling(db)
    losing = Losing(calling, True, nothing)

    def meet(step: Step) -> list[Failure] | None:
        return [LOST] if losing.lost and asks(step, Lookup) else losing(step)

    with pytest.raises(CommitOutcomeUnknown):
        calling.acquire("ann", meet)
    assert sum(calling.pauses) > 10_000


def test_a_takeover_that_meets_a_renewal_is_refused(db: dodona.Client) -> None:
    lease = db.leases.acquire(PATH, "x", "ann", 1)
    db.insert_rows(PATH, [{"name": "x", "expires": 1}], update=True)
    calling = Calling(db)

    def meet(step: Step) -> None:
        if asks(step, ConditionalCommit):
            db.leases.renew(lease, LONG_MS)

    with pytest.raises(LeaseHeld) as error:
        calling.acquire("bob", meet)
    assert error.value.attributes["owner"] == "ann"


def test_renewals_that_arrive_out_of_order_keep_the_last_expiry(db: dodona.Client) -> None:
    lease = db.leases.acquire(PATH, "x", "ann", 1)
    calling = Calling(db)
    kept: list[dict[str, Any]] = []

    def meet(step: Step) -> None:
        if asks(step, ConditionalCommit) and not kept:
            db.leases.renew(lease, LONG_MS)
            kept.append(row(db))

    calling.run(calling.session.named_leases.renew(lease, LONG_MS), meet)
    assert [row(db)] == kept


def test_a_late_renewal_of_a_lost_lease_is_refused(db: dodona.Client) -> None:
    lease = db.leases.acquire(PATH, "x", "ann", LONG_MS)
    calling = Calling(db)

    def meet(step: Step) -> None:
        if asks(step, ConditionalCommit):
            db.leases.release(lease)

    with pytest.raises(PrerequisiteFailed):
        calling.run(calling.session.named_leases.renew(lease), meet)
    assert row(db)["expires"] == 0


@pytest.mark.parametrize(
    "values", [{}, {"owner": "bob"}, {"epoch": 3}, {"expires": 0}, {"epoch": -1, "expires": 0}]
)
def test_a_row_that_no_acquire_wrote_is_refused(
    db: dodona.Client, values: dict[str, object]
) -> None:
    written = {"name": "x", "owner": None, "epoch": None, "expires": None, **values}
    db.insert_rows(PATH, [written])
    with pytest.raises(InvalidRequest, match="no valid epoch") as error:
        db.leases.acquire(PATH, "x", "ann")
    assert error.value.attributes["name"] == "x"
    db.insert_rows(PATH, [{"name": "x", "epoch": 7, "expires": 0}], update=True)
    if values.get("owner") is None:
        assert db.leases.acquire(PATH, "x", "ann").epoch == 8


def test_a_table_of_something_else_is_refused(db: dodona.Client) -> None:
    db.create_table(
        "//names",
        [{"name": "name", "type": "utf8", "sort_order": "ascending"}, {"name": "v", "type": "any"}],
        mount=True,
    )
    db.insert_rows("//names", [{"name": "x", "v": 1}])
    with pytest.raises(InvalidRequest):
        db.leases.acquire("//names", "x", "ann")


@pytest.mark.anyio
async def test_prerequisites_of_an_iterator_count_in_every_attempt(tmp_path: Path) -> None:
    runs = []

    async def fail_first(tx: dodona.aio.AsyncTransaction) -> None:
        runs.append(tx)
        if len(runs) == 1:
            raise TransactionConflict("run it again")

    async with await dodona.aio.open(tmp_path / "db") as db:
        await db.leases.create_table(PATH)
        lease = await db.leases.acquire(PATH, "x", "ann")
        await db.leases.release(lease)
        given: Any = iter([lease])
        with pytest.raises(PrerequisiteFailed):
            await db.run_in_transaction(fail_first, prerequisites=given)
    assert len(runs) == 2
