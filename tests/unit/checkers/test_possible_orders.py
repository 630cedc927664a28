"""The list-append checker against the definition: it refuses what no order of moments explains.

Small histories, right ones and wrong ones, are run in every possible order. What the checker says
has to be the same, for snapshot isolation and for serializability, plain, with sessions, and with
real time.
"""

from collections import Counter
from itertools import product
from random import Random
from typing import Final, get_args

import pytest

from dodona_loadtest.checkers.appends import Append, AppendTransaction
from dodona_loadtest.checkers.list_append import check_appends
from dodona_loadtest.checkers.list_append_cycles import Order
from unit.checkers.possible_orders import draw_history, is_possible

ORDERS: Final[tuple[Order, ...]] = get_args(Order)
HISTORIES: Final = 300
LEVELS: Final = list(product(ORDERS, (False, True)))


def show(history: list[AppendTransaction]) -> str:
    return "\n".join(str(t) for t in history)


@pytest.mark.parametrize(("order", "is_serializable"), LEVELS)
def test_the_checker_refuses_exactly_the_impossible_histories(
    order: Order, is_serializable: bool
) -> None:
    verdicts: Counter[bool] = Counter()
    for seed in range(HISTORIES):
        history = draw_history(Random(seed))
        found = check_appends(history, order=order, is_serializable=is_serializable)
        expected = is_possible(history, order, is_serializable=is_serializable)
        assert (found == []) == expected, f"seed {seed}: {found}\n{show(history)}"
        verdicts[expected] += 1
    assert min(verdicts[True], verdicts[False]) > HISTORIES / 10, verdicts


@pytest.mark.parametrize(("order", "is_serializable"), LEVELS)
def test_blind_appends_never_raise_a_false_alarm(order: Order, is_serializable: bool) -> None:
    """The order of what nobody saw may stay open: then the checker need not see all, but most."""
    seen: Counter[bool] = Counter()
    for seed in range(HISTORIES):
        history = draw_history(Random(seed), is_blind=True)
        found = check_appends(history, order=order, is_serializable=is_serializable)
        if is_possible(history, order, is_serializable=is_serializable):
            assert found == [], f"seed {seed}: {found}\n{show(history)}"
        else:
            seen[found != []] += 1
    assert seen[True] > HISTORIES / 10, seen
    assert seen[False] < HISTORIES / 100, seen


@pytest.mark.parametrize("is_blind", [False, True])
def test_a_serial_execution_is_accepted(is_blind: bool) -> None:
    for seed in range(HISTORIES):
        history = draw_history(Random(seed), is_serial=True, is_blind=is_blind)
        for order, is_serializable in LEVELS:
            found = check_appends(history, order=order, is_serializable=is_serializable)
            assert found == [], f"seed {seed}: {found}\n{show(history)}"


def test_a_stricter_level_allows_fewer_histories() -> None:
    """Each demand refuses histories that the one before allows, and none the other way round."""
    allowed = {level: set[int]() for level in LEVELS}
    for seed in range(HISTORIES):
        history = draw_history(Random(seed))
        for order, is_serializable in LEVELS:
            if not check_appends(history, order=order, is_serializable=is_serializable):
                allowed[order, is_serializable].add(seed)
    plain, session, real_time = ORDERS
    assert allowed[real_time, False] < allowed[session, False] < allowed[plain, False]
    assert allowed[plain, True] < allowed[plain, False]


def test_the_random_histories_contain_each_status_and_each_anomaly() -> None:
    histories = [draw_history(Random(seed)) for seed in range(HISTORIES)]
    statuses = Counter(t.status for history in histories for t in history)
    assert min(statuses[status] for status in ("ok", "fail", "info", "open")) > 50, statuses
    promises = Counter(
        violation.promise
        for history in histories
        for violation in check_appends(history, is_serializable=True)
    )
    for promise in ("G0", "G1A", "G1B", "G1C", "G-SINGLE", "G2", "LOST-APPEND", "REAL-TIME"):
        assert promises[promise] > 0, promises
    assert any(len(appended(t)) > 1 for history in histories for t in history)


def appended(t: AppendTransaction) -> list[Append]:
    return [it for it in t.operations if isinstance(it, Append)]
