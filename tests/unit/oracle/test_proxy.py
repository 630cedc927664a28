"""The batcher and the proxy: who is served from which request to the master, and who fails when."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dodona.errors import DataCorrupted
from dodona.types import Now, Timestamp, TransactionId
from dodona_oracle.core.proxy import ProxyCore, ProxyLimits
from dodona_wire.cores.batcher import Batcher
from dodona_wire.cores.effects import AskMaster, ReplyTo
from dodona_wire.messages.base import Failure
from dodona_wire.messages.data import AskOutcome, GenerateTimestamps, TimestampRange
from suite.levels import examples

SECOND = 1_000_000


def at(instant_us: int) -> Now:
    return Now(instant_us, 0)


def one_ask(core: ProxyCore) -> AskMaster:
    (effect,) = core.take_effects()
    assert isinstance(effect, AskMaster)
    return effect


def replies(core: ProxyCore) -> dict[Any, Any]:
    return {
        effect.route: effect.body for effect in core.take_effects() if isinstance(effect, ReplyTo)
    }


# The batcher


def test_callers_that_come_during_a_request_wait_for_the_next_request() -> None:
    batcher: Batcher[str] = Batcher()
    batcher.add("a", 2)
    assert batcher.next_batch_count() == 2
    batcher.add("b", 3)
    assert batcher.next_batch_count() is None
    assert batcher.split(Timestamp(10)) == [("a", 10, 2)]
    assert batcher.next_batch_count() == 3
    assert batcher.split(Timestamp(20)) == [("b", 20, 3)]
    assert batcher.next_batch_count() is None


def test_a_range_is_split_in_arrival_order_without_gaps() -> None:
    batcher: Batcher[int] = Batcher()
    for waiter, count in enumerate([1, 5, 2]):
        batcher.add(waiter, count)
    assert batcher.next_batch_count() == 8
    assert batcher.split(Timestamp(100)) == [(0, 100, 1), (1, 101, 5), (2, 106, 2)]


def test_more_than_one_request_may_hold_is_cut_and_the_order_kept() -> None:
    batcher: Batcher[int] = Batcher(count_max=10)
    for waiter, count in enumerate([4, 4, 4, 10, 1]):
        batcher.add(waiter, count)
    batches: list[list[int]] = []
    while (batch_count := batcher.next_batch_count()) is not None:
        shares = batcher.split(Timestamp(1 + 100 * len(batches)))
        assert sum(share[2] for share in shares) == batch_count <= 10
        batches.append([share[0] for share in shares])
    assert batches == [[0, 1], [2], [3], [4]]


@pytest.mark.parametrize("first", [1, 10, 14])
def test_an_oracle_that_goes_back_is_not_believed(first: int) -> None:
    batcher: Batcher[str] = Batcher()
    batcher.add("a", 5)
    batcher.next_batch_count()
    batcher.split(Timestamp(10))
    batcher.add("b")
    batcher.next_batch_count()
    with pytest.raises(DataCorrupted, match="gone back") as refusal:
        batcher.split(Timestamp(first))
    assert refusal.value.attributes == {"timestamp": first, "timestamp_before": 14}
    assert batcher.fail() == ["b"], "whoever waited is told"
    batcher.add("c")
    batcher.next_batch_count()
    assert batcher.split(Timestamp(15)) == [("c", 15, 1)]


def test_a_proxy_reports_to_its_callers_that_the_oracle_went_back() -> None:
    core = ProxyCore()
    core.handle("a", GenerateTimestamps(1), at(0))
    core.handle_range(one_ask(core).token, Timestamp(10), at(0))
    assert replies(core) == {"a": TimestampRange(Timestamp(10), 1)}
    core.handle("b", GenerateTimestamps(1), at(0))
    core.handle_range(one_ask(core).token, Timestamp(10), at(0))
    failure = replies(core)["b"]
    assert isinstance(failure, Failure)
    assert failure.kind == "data_corrupted"
    core.handle("c", GenerateTimestamps(1), at(0))
    core.handle_range(one_ask(core).token, Timestamp(11), at(0))
    assert replies(core) == {"c": TimestampRange(Timestamp(11), 1)}


def test_only_the_callers_of_the_failed_request_fail() -> None:
    batcher: Batcher[str] = Batcher()
    batcher.add("a")
    batcher.next_batch_count()
    batcher.add("b")
    assert batcher.fail() == ["a"]
    assert batcher.next_batch_count() == 1
    assert batcher.fail() == ["b"]


def test_a_range_that_no_caller_asked_for_raises_an_assertion_error() -> None:
    with pytest.raises(AssertionError, match="no caller asked"):
        Batcher[str]().split(Timestamp(1))


# The proxy


def test_the_first_caller_is_sent_immediately_and_the_next_ones_share_a_request() -> None:
    core = ProxyCore()
    core.handle("a", GenerateTimestamps(1), at(0))
    first = one_ask(core)
    assert first.count == 1
    core.handle("b", GenerateTimestamps(2), at(1))
    core.handle("c", GenerateTimestamps(3), at(2))
    assert core.take_effects() == []
    core.handle_range(first.token, Timestamp(100), at(3))
    answer, second = core.take_effects()
    assert answer == ReplyTo("a", TimestampRange(Timestamp(100), 1))
    assert isinstance(second, AskMaster)
    assert second.count == 5
    core.handle_range(second.token, Timestamp(200), at(4))
    assert replies(core) == {
        "b": TimestampRange(Timestamp(200), 2),
        "c": TimestampRange(Timestamp(202), 3),
    }
    assert core.next_deadline() is None


def test_a_request_that_times_out_fails_only_its_own_callers() -> None:
    core = ProxyCore()
    core.handle("a", GenerateTimestamps(1), at(0))
    one_ask(core)
    core.handle("b", GenerateTimestamps(1), at(SECOND))
    assert core.next_deadline() == 3 * SECOND
    core.tick(at(3 * SECOND - 1))
    assert core.take_effects() == []
    core.tick(at(3 * SECOND))
    failed, again = core.take_effects()
    assert isinstance(failed, ReplyTo)
    assert failed.route == "a"
    assert isinstance(failed.body, Failure)
    assert failed.body.kind == "unavailable"
    assert "3000 ms" in failed.body.message
    assert isinstance(again, AskMaster)
    assert core.next_deadline() == 6 * SECOND


def test_an_answer_after_the_timeout_of_its_callers_is_ignored() -> None:
    core = ProxyCore()
    core.handle("a", GenerateTimestamps(1), at(0))
    first = one_ask(core)
    core.handle("b", GenerateTimestamps(1), at(1))
    core.tick(at(3 * SECOND))
    _, second = core.take_effects()
    assert isinstance(second, AskMaster)
    core.handle_range(first.token, Timestamp(100), at(3 * SECOND + 1))
    assert core.take_effects() == []
    core.handle_range(second.token, Timestamp(200), at(3 * SECOND + 2))
    assert replies(core) == {"b": TimestampRange(Timestamp(200), 1)}
    core.handle_range(second.token, Timestamp(200), at(3 * SECOND + 3))  # repeated
    core.handle_failure(second.token, "late", at(3 * SECOND + 4))
    assert core.take_effects() == []


def test_a_failure_of_the_master_reaches_the_callers_with_its_message() -> None:
    core = ProxyCore()
    core.handle("a", GenerateTimestamps(1), at(0))
    core.handle_failure(one_ask(core).token, "connection refused", at(1))
    (failure,) = replies(core).values()
    assert failure.kind == "unavailable"
    assert "connection refused" in failure.message
    core.handle("b", GenerateTimestamps(1), at(2))
    core.handle_range(one_ask(core).token, Timestamp(7), at(3))
    assert replies(core) == {"b": TimestampRange(Timestamp(7), 1)}


def test_the_attributes_of_a_failure_name_the_silent_server() -> None:
    core = ProxyCore()
    core.handle("a", GenerateTimestamps(1), at(0))
    core.handle_failure(one_ask(core).token, "silent", at(1), {"server": "m", "is_sent": False})
    assert replies(core)["a"].attributes == {"server": "m"}


def test_a_failure_of_an_earlier_request_fails_no_later_caller() -> None:
    core = ProxyCore()
    core.handle("a", GenerateTimestamps(1), at(0))
    first = one_ask(core)
    core.handle("b", GenerateTimestamps(1), at(1))
    core.tick(at(3 * SECOND))
    core.take_effects()
    core.handle_failure(first.token, "late", at(3 * SECOND + 1))
    assert core.take_effects() == []


@pytest.mark.parametrize("count", [0, -1, 1_000_001])
def test_a_count_out_of_bounds_is_refused(count: int) -> None:
    core = ProxyCore()
    core.handle("a", GenerateTimestamps(count), at(0))
    assert replies(core)["a"].kind == "invalid_request"


def test_a_request_for_another_server_is_refused() -> None:
    core = ProxyCore()
    core.handle("a", AskOutcome(TransactionId(1)), at(0))  # type: ignore[arg-type]
    assert replies(core)["a"].kind == "invalid_request"


def test_a_proxy_refuses_callers_above_the_limit_of_waiting_callers() -> None:
    core = ProxyCore(ProxyLimits(waiting_count_max=3))
    for route in range(5):
        core.handle(route, GenerateTimestamps(1), at(0))
    ask, *refused = core.take_effects()
    assert isinstance(ask, AskMaster)
    assert [(it.route, it.body.kind) for it in refused if isinstance(it, ReplyTo)] == [  # type: ignore[union-attr]
        (3, "overloaded"),
        (4, "overloaded"),
    ]
    assert core.statistics().waiting_count == 3


def test_statistics_count_what_was_done() -> None:
    core = ProxyCore()
    core.handle("a", GenerateTimestamps(5), at(0))
    core.handle_range(one_ask(core).token, Timestamp(1), at(1))
    core.handle("b", GenerateTimestamps(1), at(2))
    core.tick(at(4 * SECOND))
    core.take_effects()
    core.handle("c", GenerateTimestamps(1_000_000), at(5 * SECOND))
    core.handle_range(one_ask(core).token, Timestamp(9), at(5 * SECOND + 400))
    statistics = core.statistics()
    assert (statistics.request_count, statistics.timestamp_count) == (3, 1_000_005)
    assert (statistics.batch_count, statistics.failed_batch_count) == (3, 1)
    assert statistics.batch_durations_us.total == 401


STEPS = st.one_of(
    st.tuples(st.just("ask"), st.integers(1, 5)),
    st.tuples(st.just("answer"), st.integers(0, 3)),
    st.tuples(st.just("fail"), st.integers(0, 3)),
    st.tuples(st.just("wait"), st.sampled_from([1, SECOND, 4 * SECOND])),
)


@settings(max_examples=examples(200), deadline=None)
@given(st.lists(STEPS, max_size=60))
def test_no_caller_gets_timestamps_of_a_request_older_than_its_own(
    steps: list[tuple[str, int]],
) -> None:
    """The master answers any of its requests, late and repeatedly; each is stamped when sent."""
    core = ProxyCore()
    instant_us = next_unused = next_route = 0
    asked_at: dict[int, int] = {}
    told: set[int] = set()
    sent: list[tuple[AskMaster, int]] = []

    def check() -> None:
        nonlocal next_unused
        for effect in core.take_effects():
            if isinstance(effect, AskMaster):
                sent.append((effect, next_unused))
                next_unused += effect.count
                continue
            assert isinstance(effect, ReplyTo)
            floor = asked_at.pop(effect.route)  # each caller is answered once
            if isinstance(effect.body, TimestampRange):
                given_out = range(effect.body.first, effect.body.first + effect.body.count)
                assert effect.body.first >= floor, "served from an older request"
                assert told.isdisjoint(given_out), "given out twice"
                told.update(given_out)

    for name, argument in steps:
        if name == "ask":
            next_route += 1
            asked_at[next_route] = next_unused
            core.handle(next_route, GenerateTimestamps(argument), at(instant_us))
        elif name == "wait":
            instant_us += argument
            core.tick(at(instant_us))
        elif sent:
            ask, first = sent[-1 - argument % len(sent)]
            if name == "answer":
                core.handle_range(ask.token, Timestamp(first), at(instant_us))
            else:
                core.handle_failure(ask.token, "planned", at(instant_us))
        check()
    core.tick(at(instant_us + 4 * SECOND))
    check()
    core.tick(at(instant_us + 8 * SECOND))
    check()
    assert not asked_at, "a caller was forgotten"
