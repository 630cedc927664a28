"""Grants of early locks: without a wait, of rows that are free, and with a start timestamp."""

from typing import Any

import pytest

from dodona.types import TransactionId
from dodona_tablets.core.cell.early_locks import LOCKS_ENDED
from dodona_tablets.core.requests.locking import BYTES_TOLD_MAX, ROWS_TOLD_MAX
from dodona_wire.messages.data import (
    Committed,
)
from dodona_wire.messages.locks import (
    AcquireLocks,
    LocksGranted,
    TabletKeys,
)
from dodona_wire.types import Owner
from unit.tablets.cells import (
    ATOMIC,
    REVISION,
    Bench,
    key,
    put,
)
from unit.tablets.cold import NO_COMPACTION, cold
from unit.tablets.owners import (
    LEASE_MS,
    ask,
    commit,
    is_waiting,
    kind_of,
    locked,
    new_owner,
    release,
    said,
)


@pytest.fixture
def bench() -> Bench:
    return Bench(2)


# ---- nowait, and rows that are free


def test_without_a_wait_the_answer_names_the_owner(bench: Bench) -> None:
    owner = locked(bench, 1)
    refused = said(bench, ask(bench, new_owner(bench), 2, 1, wait_ms=0))
    assert kind_of(refused) == "row_blocked"
    assert (refused.attributes["owner"], refused.attributes["key"]) == (owner, {"id": 1})
    assert isinstance(bench.try_commit(put(2, 2)), Committed), "it holds nothing"


def test_a_repeated_request_without_a_wait_gets_its_first_answer(bench: Bench) -> None:
    first, owner = locked(bench, 1), new_owner(bench)
    refused = said(bench, ask(bench, owner, 1, wait_ms=0))
    release(bench, first)
    assert said(bench, ask(bench, owner, 1, wait_ms=0)) == refused


def test_rows_that_are_free_are_taken_up_to_a_number(bench: Bench) -> None:
    locked(bench, 2)
    start = bench.begin()
    bench.prepare(start, put(3, 1), cell=0)
    bench.answer_oracle()
    grant = said(bench, ask(bench, new_owner(bench), 1, 2, 3, 4, 5, 6, skip_max=3))
    assert grant.tablets == (TabletKeys(ATOMIC, REVISION, (key(1), key(4), key(5))),)
    late = new_owner(bench)
    nothing = said(bench, ask(bench, late, 1, 2, 3, skip_max=3))
    assert isinstance(nothing, LocksGranted)
    assert nothing.tablets == ()
    assert said(bench, ask(bench, late, 7, skip_max=3)) == LOCKS_ENDED, "a copy locks nothing"


def test_a_row_that_another_one_waits_for_is_not_free(bench: Bench) -> None:
    locked(bench, 1)
    ask(bench, new_owner(bench), 1, 2)
    grant = said(bench, ask(bench, new_owner(bench), 2, 3, skip_max=2))
    assert grant.tablets == (TabletKeys(ATOMIC, REVISION, (key(3),)),)


# ---- the start timestamp and the rows that come with the last grant


def ask_last(bench: Bench, owner: Owner, *ids: int) -> Any:
    keys = TabletKeys(ATOMIC, REVISION, tuple(map(key, ids)))
    return bench.ask(AcquireLocks(owner, (keys,), LEASE_MS, 2_000, is_last=True))


def test_the_last_grant_has_a_start_and_the_rows(bench: Bench) -> None:
    newest = bench.commit(put(1, 7, "x"))
    route = ask_last(bench, new_owner(bench), 1, 2)
    assert is_waiting(bench, route), "the oracle is asked after the grant"
    bench.answer_oracle()
    grant = said(bench, route)
    assert grant.start > newest
    assert grant.rows == (((7, "x"), None),)


def test_the_rows_are_those_of_the_owner_before(bench: Bench) -> None:
    owner, following = locked(bench, 1), new_owner(bench)
    route = ask_last(bench, following, 1)
    at = commit(bench, owner, put(1, 5)).timestamp
    bench.answer_oracle()
    grant = said(bench, route)
    assert grant.start > at
    assert grant.rows == (((5, None),),)
    answer = commit(bench, following, put(1, 6), start=TransactionId(grant.start))
    assert isinstance(answer, Committed)


def test_many_rows_do_not_come_with_the_grant(bench: Bench) -> None:
    route = ask_last(bench, new_owner(bench), *range(ROWS_TOLD_MAX + 1))
    bench.answer_oracle()
    grant = said(bench, route)
    assert grant.start
    assert grant.rows == ()


def test_long_rows_do_not_come_with_the_grant(bench: Bench) -> None:
    bench.commit(put(1, 1, "x" * (BYTES_TOLD_MAX + 1)))
    route = ask_last(bench, new_owner(bench), 1)
    bench.answer_oracle()
    assert said(bench, route).rows == ()


def test_rows_in_chunks_that_are_away_do_not_come_with_the_grant() -> None:
    bench = cold((1, 2), settings=NO_COMPACTION)
    route = ask_last(bench, new_owner(bench), 1)
    bench.answer_oracle()
    grant = said(bench, route)
    assert grant.start
    assert grant.rows == ()


def test_a_grant_does_not_wait_for_an_oracle_that_is_silent(bench: Bench) -> None:
    owner = new_owner(bench)
    route = ask_last(bench, owner, 1)
    for _ in range(3):
        bench.pass_time(1)
    grant = said(bench, route)
    assert isinstance(grant, LocksGranted)
    assert not grant.start, "the owner asks the oracle by itself"
    bench.answer_oracle()
    assert said(bench, route) == grant


def test_a_start_that_comes_after_the_end_of_the_locks_is_dropped(bench: Bench) -> None:
    owner = new_owner(bench)
    route = ask_last(bench, owner, 1)
    release(bench, owner)
    bench.answer_oracle()
    assert said(bench, route) == LOCKS_ENDED
