"""What a gateway holds: leases, owners, limits, and what is known of what ended."""

import pytest

from dodona.errors import (
    InvalidRequest,
    Overloaded,
    TransactionAborted,
    TransactionNotFound,
    WrongGateway,
)
from dodona.types import Timestamp
from dodona_gateway.core.holdings import (
    LEASE_MS_MAX,
    End,
    Holding,
    HoldingLimits,
    Holdings,
    check_lease,
)
from dodona_gateway.core.transaction_id import HeldId

GATEWAY = 7
MS = 1000


def held_id(place: int, gateway: int = GATEWAY) -> HeldId:
    return HeldId(Timestamp(1000 + place), "full", gateway, place)


class Bench:
    """Holdings of names, and a clock."""

    def __init__(self, **limits: int) -> None:
        self.given_up: list[str] = []
        self.holdings: Holdings[str] = Holdings(
            GATEWAY, HoldingLimits(**limits), self.given_up.append
        )
        self.now_us = 0

    def begin(self, place: int, owner: str = "ann", lease_ms: int = 100) -> Holding[str]:
        self.holdings.check_room(owner)
        return self.holdings.add(held_id(place), owner, f"tx {place}", lease_ms, self.now_us)

    def find(self, place: int, owner: str = "ann") -> Holding[str] | End:
        return self.holdings.find(str(held_id(place)), owner, self.now_us)

    def pass_ms(self, ms: int) -> int:
        self.now_us += ms * MS
        return self.holdings.expire(self.now_us)

    def end(self, place: int) -> End:
        found = self.find(place)
        assert isinstance(found, End)
        return found


def test_an_expired_lease_ends_a_transaction_and_the_error_names_the_lease() -> None:
    bench = Bench()
    bench.begin(1)
    bench.begin(2, lease_ms=300)
    assert bench.pass_ms(99) == 0
    assert bench.pass_ms(1) == 1
    assert bench.given_up == ["tx 1"]
    error = bench.end(1).error
    assert isinstance(error, TransactionNotFound)
    assert "lease of 100 ms expired" in error.message
    assert error.attributes == {"transaction": str(held_id(1))}
    assert bench.holdings.open_count == 1


def test_a_lease_ends_at_its_deadline_even_before_expire_runs() -> None:
    bench = Bench()
    bench.begin(1)
    bench.begin(2)
    bench.now_us = 99 * MS
    assert isinstance(bench.find(2), Holding)  # renewed
    bench.now_us = 100 * MS
    assert isinstance(bench.end(1).error, TransactionNotFound)  # before any call of `expire`
    assert isinstance(bench.find(2), Holding)
    assert bench.given_up == ["tx 1"]
    assert bench.holdings.expire(bench.now_us) == 0
    assert bench.holdings.ended_by_outcome["expired"] == 1


def test_a_running_call_keeps_a_transaction_beyond_its_lease() -> None:
    bench = Bench()
    bench.begin(1).use_count += 1
    bench.now_us = 500 * MS
    assert isinstance(bench.find(1), Holding)


def test_an_end_that_is_not_remembered_is_not_found() -> None:
    bench = Bench(ended_count_max=0)
    bench.begin(1)
    bench.now_us = 100 * MS
    with pytest.raises(TransactionNotFound):
        bench.find(1)


def test_every_look_renews_a_lease() -> None:
    bench = Bench()
    bench.begin(1)
    for _ in range(5):
        assert bench.pass_ms(80) == 0
        assert isinstance(bench.find(1), Holding)
    assert bench.pass_ms(100) == 1


def test_no_lease_ends_a_transaction_that_a_call_is_at() -> None:
    bench = Bench()
    holding = bench.begin(1)
    holding.use_count = 1
    assert bench.pass_ms(1_000) == 0
    holding.use_count = 0
    bench.holdings.renew(holding, bench.now_us)
    assert bench.pass_ms(99) == 0
    assert bench.pass_ms(1) == 1


def test_another_owner_cannot_find_or_renew_a_transaction() -> None:
    bench = Bench()
    holding = bench.begin(1)
    with pytest.raises(TransactionNotFound, match="does not hold the transaction"):
        bench.find(1, "bob")
    bench.pass_ms(99)
    with pytest.raises(TransactionNotFound):  # nor did that renew it
        bench.find(1, "bob")
    assert bench.pass_ms(1) == 1
    with pytest.raises(TransactionNotFound) as refused:
        bench.find(1, "bob")
    assert type(refused.value) is TransactionNotFound
    bench.holdings.end(holding, bench.now_us)


def test_errors_distinguish_other_gateways_ended_transactions_and_invalid_ids() -> None:
    bench = Bench()
    with pytest.raises(WrongGateway, match="Another gateway"):
        bench.holdings.find(str(held_id(1, GATEWAY + 1)), "ann", 0)
    with pytest.raises(TransactionNotFound, match="ended long ago") as refused:
        bench.find(1)
    assert type(refused.value) is TransactionNotFound
    with pytest.raises(InvalidRequest, match="not a transaction's id"):
        bench.holdings.find("nonsense", "ann", 0)


def test_open_transactions_are_bounded_in_total_and_per_owner() -> None:
    bench = Bench(open_count_max=3, open_per_owner_max=2)
    first = bench.begin(1)
    bench.begin(2)
    with pytest.raises(Overloaded, match="You have 2 open transactions"):
        bench.begin(3)
    bench.begin(3, "bob")
    with pytest.raises(Overloaded, match="holds 3 open transactions"):
        bench.begin(4, "eve")
    bench.holdings.end(first, 0)
    bench.begin(4)
    bench.pass_ms(100)
    assert bench.holdings.open_count == 0
    bench.begin(5)
    bench.begin(6)


def test_bytes_are_counted_for_all_together() -> None:
    bench = Bench(bytes_max=100)
    first, second = bench.begin(1), bench.begin(2, "bob")
    bench.holdings.note_size(first, 60)
    bench.holdings.check_size()
    bench.holdings.note_size(second, 40)
    assert bench.holdings.size_bytes == 100
    with pytest.raises(Overloaded, match="100 bytes of rows"):
        bench.holdings.check_size()
    bench.holdings.note_size(first, 59)
    bench.holdings.check_size()
    bench.holdings.end(first, 0)
    assert bench.holdings.size_bytes == 40


def test_a_call_that_outlives_its_transaction_leaves_no_bytes_behind() -> None:
    bench = Bench()
    holding = bench.begin(1)
    bench.holdings.note_size(holding, 60)
    bench.holdings.end(holding, 0)
    bench.holdings.note_size(holding, 80)
    bench.holdings.end(holding, 0, Timestamp(5))
    assert bench.holdings.size_bytes == 0
    assert bench.end(1).timestamp is None


def test_ends_are_forgotten_in_time_and_by_number() -> None:
    bench = Bench(ended_count_max=2, ended_ms_max=1000)
    holdings = [bench.begin(it, lease_ms=60_000) for it in range(4)]
    for place, holding in enumerate(holdings[:3]):
        bench.holdings.end(holding, bench.now_us, Timestamp(place))
        bench.pass_ms(400)
    with pytest.raises(TransactionNotFound):
        bench.end(0)
    assert bench.end(1).timestamp == 1
    bench.pass_ms(200)
    with pytest.raises(TransactionNotFound):
        bench.end(1)
    assert bench.end(2).timestamp == 2
    bench.holdings.end(holdings[3], bench.now_us, error=TransactionAborted("lost"))
    assert isinstance(bench.end(3).error, TransactionAborted)


def test_all_that_are_open_can_be_looked_through() -> None:
    bench = Bench()
    ids = [bench.begin(it).id for it in range(3)]
    assert [it.id for it in bench.holdings] == ids


@pytest.mark.parametrize("lease_ms", [0, -1, LEASE_MS_MAX + 1])
def test_a_lease_has_bounds(lease_ms: int) -> None:
    assert check_lease(1) == 1
    assert check_lease(LEASE_MS_MAX) == LEASE_MS_MAX
    with pytest.raises(InvalidRequest, match="lease_ms must be 1 to"):
        check_lease(lease_ms)
