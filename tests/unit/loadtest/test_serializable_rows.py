"""What the rows of serializable transactions demand at their end, and that each demand can fail."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dodona_loadtest.harness.errors import ContenderFailed, ContenderMissing
from dodona_loadtest.peers import dodona_serializable, postgres, postgres_serializable
from dodona_loadtest.peers.accounts import (
    CUSTOMERS,
    HOT_CUSTOMERS,
    KINDS,
    NOTHING,
    Bank,
    BankRequest,
    Outcome,
)
from dodona_loadtest.peers.dodona import open_cluster
from dodona_loadtest.peers.records import FIELD_BYTES, FIELDS, RECORDS, Records
from dodona_loadtest.peers.skew import Meet, SkewCheck, Take

SAVINGS, CHECKING = {1: 100, 2: 40}, {1: 30, 2: 50}


# ---- SmallBank


@pytest.mark.parametrize(
    ("request_", "outcome"),
    [
        (BankRequest("Balance", (1,), 5), NOTHING),
        (BankRequest("DepositChecking", (1,), 5), Outcome({}, {1: 35}, 5)),
        (BankRequest("TransactSavings", (1,), -100), Outcome({1: 0}, {}, -100)),
        (BankRequest("TransactSavings", (1,), -101), NOTHING),
        (BankRequest("WriteCheck", (1,), 130), Outcome({}, {1: -100}, -130)),
        (BankRequest("WriteCheck", (1,), 131), Outcome({}, {1: -102}, -132)),
        (BankRequest("Amalgamate", (1, 2), 5), Outcome({1: 0}, {1: 0, 2: 180})),
        (BankRequest("SendPayment", (2, 1), 50), Outcome({}, {2: 0, 1: 80})),
        (BankRequest("SendPayment", (2, 1), 51), NOTHING),
    ],
)
def test_each_kind_of_transaction_moves_money_as_smallbank_has_it(
    request_: BankRequest, outcome: Outcome
) -> None:
    """And it needs no balance that it does not read."""
    savings = {it: SAVINGS[it] for it in request_.savings}
    checking = {it: CHECKING[it] for it in request_.checking}
    assert request_.outcome(savings, checking) == outcome


def test_requests_are_of_all_kinds_and_most_are_for_hot_customers() -> None:
    bank = Bank()
    drawn = [bank.draw() for _ in range(2_000)]
    assert {it.kind for it in drawn} == {*KINDS}
    hot = [it for it in drawn if max(it.customers) < HOT_CUSTOMERS]
    assert 0.85 < len(hot) / len(drawn) < 0.95
    assert max(max(it.customers) for it in drawn) < CUSTOMERS
    assert all(len(set(it.customers)) == len(it.customers) for it in drawn)


def test_a_bank_finds_money_that_is_missing_and_accounts_that_are_not_there() -> None:
    bank = Bank()
    savings, checking = dict(bank.savings), dict(bank.checking)
    bank.check(savings, checking)
    bank.pay(7)
    with pytest.raises(ContenderFailed, match="cents"):
        bank.check(savings, checking)
    checking[0] += 7
    bank.check(savings, checking)
    overdrawn = {**savings, 0: -1}
    with pytest.raises(ContenderFailed, match="below zero"):
        bank.check(overdrawn, {**checking, 0: checking[0] + savings[0] + 1})
    del savings[0]
    with pytest.raises(ContenderFailed, match=f"{CUSTOMERS - 1} of {CUSTOMERS} savings"):
        bank.check(savings, checking)


# ---- records


def test_a_few_records_are_hot_and_fields_have_their_length() -> None:
    records = Records()
    keys = {row["id"] for row in records.first()}
    assert len(keys) == RECORDS
    counts: dict[str, int] = dict.fromkeys(keys, 0)
    for _ in range(2_000):
        key, field, value = records.draw()
        counts[key] += 1
        assert field in FIELDS
        assert len(value) == FIELD_BYTES
    assert max(counts.values()) > 20 * 2_000 / RECORDS


# ---- write skew


def _take_by(is_serial: bool, taken: set[int]) -> Take:
    """A database that runs transactions one after another, or all of them at the same snapshot."""

    async def take(caller: int, place: int, other: int, meet: Meet) -> None:
        seen = {place, other} & taken
        await meet()
        if is_serial:
            seen = {place, other} & taken
        if not seen:
            taken.add(place)

    return take


def _check_skew(is_serial: bool, lost: int = 0) -> None:
    taken: set[int] = set()

    async def found() -> list[int]:
        return sorted(taken)[lost:]

    async def run() -> None:
        check = SkewCheck()
        for _ in range(2):
            await check.run(_take_by(is_serial, taken), found)

    asyncio.run(run())


def test_write_skew_is_found() -> None:
    _check_skew(is_serial=True)
    with pytest.raises(ContenderFailed, match="2 were taken"):
        _check_skew(is_serial=False)
    with pytest.raises(ContenderFailed, match="0 were taken"):
        _check_skew(is_serial=True, lost=1)


Check = Callable[[Path, str], None]


def _check_dodona(folder: Path, isolation: Any) -> None:
    with open_cluster(folder) as cluster:
        _open_and_check(dodona_serializable.BankLoad(cluster.master_url, isolation))


def _check_postgres(folder: Path, isolation: str) -> None:
    with postgres.server(folder) as served:
        _open_and_check(postgres_serializable.BankLoad(served.port, isolation))


def _open_and_check(load: dodona_serializable.BankLoad | postgres_serializable.BankLoad) -> None:
    async def run() -> None:
        await load.open(1)
        try:
            await load.check()
        finally:
            await load.close()

    asyncio.run(run())


@pytest.mark.integration
@pytest.mark.parametrize(
    ("check", "isolation"), [(_check_dodona, "snapshot"), (_check_postgres, "repeatable_read")]
)
def test_a_contender_at_snapshot_isolation_is_not_measured(
    open_folder: Path, check: Check, isolation: str
) -> None:
    try:
        with pytest.raises(ContenderFailed, match="aren't serializable"):
            check(open_folder, isolation)
        (open_folder / "again").mkdir(mode=0o755)
        check(open_folder / "again", "serializable")
    except ContenderMissing as missing:
        pytest.skip(str(missing))
