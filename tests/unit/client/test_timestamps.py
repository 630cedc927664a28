"""Timestamps as times of day, and how a session gets them."""

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import dodona
from dodona._core.protocol.steps import ORACLE
from dodona.errors import InvalidRequest, Unavailable
from dodona.timestamps import check_plausible
from dodona.types import MAX_TIMESTAMP, Timestamp
from dodona_wire.messages.base import Failure
from dodona_wire.messages.data import GenerateTimestamps, TimestampRange
from unit.client.protocols import LOST, Clock, Play, finish, new_session

MICROSECONDS = st.integers(1_000_000, (1 << 32) * 1_000_000 - 1)
MOMENTS = MICROSECONDS.map(lambda it: datetime.fromtimestamp(0, UTC) + timedelta(microseconds=it))


@given(MOMENTS)
def test_a_datetime_survives_conversion_to_a_timestamp_within_a_microsecond(
    moment: datetime,
) -> None:
    timestamp = dodona.timestamp_from_datetime(moment)
    assert abs(dodona.datetime_from_timestamp(timestamp) - moment) <= timedelta(microseconds=1)


@given(MOMENTS, MOMENTS)
def test_later_moments_have_larger_timestamps(left: datetime, right: datetime) -> None:
    timestamps = [dodona.timestamp_from_datetime(it) for it in (left, right)]
    assert (timestamps[0] < timestamps[1]) == (left < right)


def test_the_seconds_are_in_bits_30_to_61() -> None:
    moment = datetime(2024, 1, 1, tzinfo=timezone(timedelta(hours=3)))
    assert dodona.timestamp_from_datetime(moment) == int(moment.timestamp()) << 30


@pytest.mark.parametrize("timestamp", [0, -5, MAX_TIMESTAMP + 1, dodona.SYNC_LAST_COMMITTED])
def test_a_timestamp_without_a_datetime_is_refused(timestamp: int) -> None:
    with pytest.raises(InvalidRequest, match="Invalid timestamp"):
        dodona.datetime_from_timestamp(timestamp)


@pytest.mark.parametrize(
    "moment",
    [
        datetime(2024, 1, 1),  # noqa: DTZ001 - that is what is refused
        datetime(1960, 1, 1, tzinfo=UTC),
        datetime(2200, 1, 1, tzinfo=UTC),
    ],
)
def test_a_datetime_without_a_timestamp_is_refused(moment: datetime) -> None:
    with pytest.raises(InvalidRequest):
        dodona.timestamp_from_datetime(moment)


# ---- from the oracle


def test_a_timestamp_is_asked_of_the_oracle() -> None:
    clock = Clock()
    asking = Play(clock, new_session(clock).generate_timestamp(3))
    assert asking.call == (ORACLE, GenerateTimestamps(3))
    asking.answer(TimestampRange(Timestamp(9), 3))
    assert asking.result == 9


def test_an_oracle_that_is_away_is_asked_again_but_not_for_ever() -> None:
    clock = Clock()
    asking = Play(clock, new_session(clock).generate_timestamp())
    asking.answer(LOST)
    asking.wait()
    asking.answer(TimestampRange(Timestamp(9), 1))
    assert asking.result == 9
    began_us = clock.now_us
    with pytest.raises(Unavailable):
        finish(Play(clock, new_session(clock).generate_timestamp()), lambda target, body: LOST)
    assert 9_000_000 <= clock.now_us - began_us <= 11_000_000


@pytest.mark.parametrize("count", [0, 1_000_001])
def test_a_wrong_count_is_refused_by_the_oracle(count: Any) -> None:
    clock = Clock()
    asking = Play(clock, new_session(clock).generate_timestamp(count))
    with pytest.raises(InvalidRequest):
        asking.answer(Failure("invalid_request", "the count is wrong"))


def test_a_number_of_a_person_is_of_1971_or_later() -> None:
    first = dodona.timestamp_from_datetime(datetime(1971, 1, 1, tzinfo=UTC))
    assert check_plausible(first) == first
    assert check_plausible(0) == 0  # what that means is for its reader
    assert check_plausible(MAX_TIMESTAMP + 1) == MAX_TIMESTAMP + 1
    for number in (1, 20260701, first - 1):
        with pytest.raises(InvalidRequest, match=f"No oracle issued timestamp {number} "):
            check_plausible(number)
