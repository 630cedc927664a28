"""The allocator under clocks that step, bursts, restarts and slow disks."""

import pytest

from dodona.types import (
    MAX_TIMESTAMP,
    TIMESTAMPS_PER_REQUEST_MAX,
    Now,
    Timestamp,
    timestamp_from_unix_us,
    unix_us_from_timestamp,
)
from dodona_oracle.core.allocator import Allocator, AllocatorSettings
from dodona_oracle.core.clock_guard import LAST_UNIX_US
from dodona_wire.cores.counting import ClockDifference

HOUR_US = 3_600_000_000
NOON_US = 1_700_000_000_000_000
SECOND = 1_000_000


def at(instant_us: int, unix_us: int | None = None) -> Now:
    return Now(instant_us, NOON_US + instant_us if unix_us is None else unix_us)


def started(ceiling: int = 0, now: Now | None = None) -> Allocator:
    """An allocator whose first ceiling is durable."""
    allocator = Allocator(Timestamp(ceiling))
    allocator.acknowledge(allocator.prepare(now or at(0)))
    return allocator


def take(allocator: Allocator, count: int, now: Now) -> int:
    """The first of a range; its ceiling, if it needs one, is durable at once."""
    grant = allocator.take(count, now)
    assert grant is not None
    if grant.append is not None:
        assert not grant.is_durable
        allocator.acknowledge(grant.append)
    assert grant.first + count <= allocator.durable
    return grant.first


def test_timestamps_follow_the_clock() -> None:
    allocator = started()
    for instant_us in range(0, 10 * SECOND, 7_919):
        first = take(allocator, 3, at(instant_us))
        assert abs(unix_us_from_timestamp(Timestamp(first)) - NOON_US - instant_us) <= 1


def test_the_first_request_after_the_start_is_granted_immediately() -> None:
    grant = started().take(1_000_000, at(1000))
    assert grant is not None
    assert grant.is_durable
    assert grant.append is None


def test_a_range_above_the_durable_ceiling_waits_until_a_ceiling_is_durable() -> None:
    allocator = Allocator(Timestamp(0))
    ceiling = allocator.prepare(at(0))
    early = allocator.take(1, at(1))
    assert early is not None
    assert (early.append, early.is_durable) == (None, False)  # waits behind the first append
    allocator.acknowledge(ceiling)
    late = allocator.take(1, at(SECOND))
    assert late is not None
    assert late.append is not None
    assert late.append > late.first
    assert not late.is_durable


@pytest.mark.parametrize("step_us", [-HOUR_US, HOUR_US, -1, 1])
def test_a_clock_step_neither_stalls_nor_repeats(step_us: int) -> None:
    allocator = started()
    last = take(allocator, 10, at(1000)) + 9
    for turn in range(1, 2000):
        unix_us = NOON_US + 1000 + step_us * (turn % 2) + turn
        first = take(allocator, 1000, at(1000 + turn, unix_us))
        assert first > last
        last = first + 999


def test_behind_a_clock_that_stepped_back_the_counter_goes_on() -> None:
    allocator = started()
    first = take(allocator, 5, at(1000))
    assert take(allocator, 5, at(2000, NOON_US - HOUR_US)) == first + 5
    assert take(allocator, 5, at(3000, 0)) == first + 10
    assert take(allocator, 5, at(4000, -HOUR_US)) == first + 15


def test_a_clock_that_stepped_forward_is_followed() -> None:
    allocator = started()
    take(allocator, 1, at(0))
    first = take(allocator, 1, at(1000, NOON_US + HOUR_US))
    assert first == timestamp_from_unix_us(NOON_US + HOUR_US)


def test_a_clock_that_crawls_by_microseconds_never_resets_the_counter() -> None:
    allocator = started()
    last = 0
    for turn in range(10_000):
        first = take(allocator, 1 + turn % 5000, at(turn // 3))
        assert first > last
        last = first + turn % 5000


def test_a_restart_continues_immediately_at_the_durable_ceiling() -> None:
    before = started()
    last = take(before, 1_000_000, at(1000)) + 999_999
    after = started(before.durable, at(1001))
    first = take(after, 1, at(1002))
    assert first >= before.durable > last
    assert unix_us_from_timestamp(Timestamp(first)) - NOON_US < SECOND


def test_no_number_of_restarts_drives_timestamps_away_from_the_clock() -> None:
    ceiling, instant_us = 0, 0
    for _ in range(50):  # a process that dies right after its first answer, 20 times a second
        allocator = started(ceiling, at(instant_us))
        first = take(allocator, 1, at(instant_us))
        assert abs(unix_us_from_timestamp(Timestamp(first)) - NOON_US - instant_us) < SECOND
        ceiling = allocator.durable
        instant_us += 50_000


def test_a_restart_under_a_clock_that_went_back_an_hour() -> None:
    before = started()
    last = take(before, 10, at(1000)) + 9
    after = started(before.durable, at(0, NOON_US - HOUR_US))
    first = take(after, 10, at(1000, NOON_US - HOUR_US))
    assert last < first < last + timestamp_from_unix_us(SECOND)


def test_a_burst_larger_than_a_second_holds_carries_into_the_next() -> None:
    allocator = started()
    instant_us = 0
    last = take(allocator, 1, at(instant_us))
    for _ in range(2200):  # 2.2 billion timestamps within one instant; a second has 1.07 billion
        first = take(allocator, TIMESTAMPS_PER_REQUEST_MAX, at(instant_us))
        assert first == last + 1
        last = first + TIMESTAMPS_PER_REQUEST_MAX - 1
    assert unix_us_from_timestamp(Timestamp(last)) - NOON_US > 2 * SECOND


def test_the_ceiling_is_renewed_ahead_of_need_once_at_a_time() -> None:
    allocator = started()
    take(allocator, 1, at(0))
    assert allocator.next_deadline() == 200_000
    assert allocator.renew(at(199_999)) is None
    ceiling = allocator.renew(at(200_000))
    assert ceiling == timestamp_from_unix_us(NOON_US + 200_000) + timestamp_from_unix_us(400_000)
    assert allocator.next_deadline() is None
    assert allocator.renew(at(300_000)) is None  # one is under way
    allocator.acknowledge(ceiling)
    assert allocator.next_deadline() == 400_000


def test_the_ceiling_is_renewed_while_the_counter_runs_ahead_of_the_clock() -> None:
    allocator = started()
    take(allocator, 1, at(0))
    stood_back = at(1, NOON_US - HOUR_US)
    while allocator.appended - allocator.next_unused > 5 * TIMESTAMPS_PER_REQUEST_MAX:
        take(allocator, TIMESTAMPS_PER_REQUEST_MAX, stood_back)
    append_count = 0
    for _ in range(100):  # an hour behind, a million timestamps a request
        grant = allocator.take(TIMESTAMPS_PER_REQUEST_MAX, stood_back)
        assert grant is not None
        assert grant.is_durable, "a caller had to wait for the disk"
        ceiling = allocator.renew(stood_back)
        if ceiling is not None:
            append_count += 1
            allocator.acknowledge(ceiling)
    # The distance that is kept is ten requests: a commit for about every fifth of the largest.
    assert 15 <= append_count <= 20


def test_the_allocator_stops_renewing_its_ceiling_when_requests_stop() -> None:
    allocator = started()
    take(allocator, 1, at(0))
    renewed_count = 0
    while (deadline_us := allocator.next_deadline()) is not None:
        ceiling = allocator.renew(at(deadline_us))
        if ceiling is not None:
            renewed_count += 1
            allocator.acknowledge(ceiling)
        assert deadline_us <= 6 * SECOND
    assert 20 <= renewed_count <= 26  # five seconds, five times a second
    assert allocator.renew(at(7 * SECOND)) is None
    take(allocator, 1, at(8 * SECOND))
    ceiling = allocator.renew(at(8 * SECOND + AllocatorSettings().demand_us))
    assert ceiling is not None, "the last request is not older than that"
    allocator.acknowledge(ceiling)
    assert allocator.renew(at(8 * SECOND + AllocatorSettings().demand_us + 200_000)) is None
    take(allocator, 1, at(14 * SECOND))
    assert allocator.next_deadline() == 14 * SECOND + 200_000


def test_timestamps_that_are_used_up_are_refused() -> None:
    allocator = started(MAX_TIMESTAMP - 10)
    assert allocator.take(100, at(0)) is None
    assert allocator.take(10, at(0)) is not None
    assert allocator.take(1, at(0)) is None


@pytest.mark.parametrize("missing", [0, 1])
def test_timestamps_are_exhausted_when_the_largest_request_does_not_fit(missing: int) -> None:
    ceiling = MAX_TIMESTAMP - TIMESTAMPS_PER_REQUEST_MAX + missing
    allocator = Allocator(Timestamp(ceiling))
    assert (allocator.why_none(at(0)) is None) is (missing == 0)
    assert (allocator.take(TIMESTAMPS_PER_REQUEST_MAX, at(0)) is not None) is (missing == 0)


def test_the_first_timestamp_of_all_is_one_though_the_clock_shows_the_epoch() -> None:
    assert take(Allocator(Timestamp(0)), 1, at(0, 0)) == 1


def test_a_range_that_ends_at_the_durable_ceiling_is_granted_without_an_append() -> None:
    allocator = started()
    take(allocator, 1, at(0))
    now = at(0, NOON_US - HOUR_US)
    while (left := allocator.durable - allocator.next_unused) > TIMESTAMPS_PER_REQUEST_MAX:
        take(allocator, TIMESTAMPS_PER_REQUEST_MAX, now)
    grant = allocator.take(left, now)
    assert grant is not None
    assert (grant.append, grant.is_durable) == (None, True)
    over = allocator.take(1, now)
    assert over is not None
    assert over.append is not None


def test_how_far_timestamps_are_ahead_of_the_clock_is_remembered() -> None:
    allocator = started()
    assert allocator.ahead == ClockDifference(0, 0)
    take(allocator, 1, at(0))
    take(allocator, 1, at(1, NOON_US - 2 * SECOND))
    take(allocator, 1, at(2, NOON_US - SECOND))
    assert allocator.ahead == ClockDifference(SECOND, 2 * SECOND)


WRONG_CLOCKS = (25 * HOUR_US + NOON_US, NOON_US + 87_600 * HOUR_US, LAST_UNIX_US + 1, 1 << 62)


@pytest.mark.parametrize("unix_us", WRONG_CLOCKS)
def test_no_timestamps_are_given_out_while_the_clock_is_wrong(unix_us: int) -> None:
    allocator = started()
    before = take(allocator, 1, at(1))
    for instant_us in (2, 300_000, 2_500_000):
        wrong = at(instant_us, unix_us + instant_us)
        assert allocator.take(1, wrong) is None
        assert "no timestamps are given out" in str(allocator.why_none(wrong))
        ceiling = allocator.renew(wrong)
        if ceiling is not None:
            allocator.acknowledge(ceiling)
    right = at(2_600_000)
    assert allocator.why_none(right) is None
    first = take(allocator, 1, right)
    assert first > before
    assert unix_us_from_timestamp(Timestamp(first)) - right.unix_us < SECOND
    assert unix_us_from_timestamp(Timestamp(allocator.appended)) - right.unix_us < SECOND


@pytest.mark.parametrize("unix_us", [NOON_US + 367 * 24 * HOUR_US, LAST_UNIX_US + 1, 1 << 62])
def test_a_start_with_a_clock_too_far_ahead_gives_out_no_timestamps(unix_us: int) -> None:
    """Nor by the ceiling: the next start, by a clock that is right, goes on as if nothing was."""
    before = started()
    take(before, 1, at(0))
    wrong = started(before.durable, at(5, unix_us))
    assert wrong.take(1, at(6, unix_us)) is None
    assert unix_us_from_timestamp(Timestamp(wrong.appended)) - NOON_US < SECOND
    assert take(wrong, 1, at(7)) > 0
    assert take(started(wrong.durable, at(10)), 1, at(11)) > 0


def test_a_machine_may_be_off_for_months() -> None:
    before = started()
    later = at(0, NOON_US + 300 * 24 * HOUR_US)
    first = take(started(before.durable, later), 1, later)
    assert unix_us_from_timestamp(Timestamp(first)) == later.unix_us


def test_a_clock_that_was_set_back_by_mistake_may_be_set_right() -> None:
    allocator = started()
    take(allocator, 1, at(1))
    take(allocator, 1, at(2, NOON_US - 100 * 24 * HOUR_US))
    first = take(allocator, 1, at(3))
    assert unix_us_from_timestamp(Timestamp(first)) - NOON_US < SECOND


@pytest.mark.parametrize("count", [0, -1, TIMESTAMPS_PER_REQUEST_MAX + 1])
def test_a_count_out_of_bounds_is_the_callers_mistake(count: int) -> None:
    with pytest.raises(AssertionError):
        started().take(count, at(0))


def test_ceilings_that_were_never_appended_can_not_become_durable() -> None:
    allocator = started()
    with pytest.raises(AssertionError, match="never appended"):
        allocator.acknowledge(Timestamp(allocator.appended + 1))
    with pytest.raises(AssertionError, match="in order"):
        allocator.acknowledge(Timestamp(allocator.durable))


def test_settings_that_make_no_sense_are_refused() -> None:
    with pytest.raises(AssertionError):
        Allocator(Timestamp(0), AllocatorSettings(window_us=100, renew_us=100))


# The lease


def test_after_an_expired_lease_a_timestamp_waits_for_a_new_append() -> None:
    """Somebody else may have taken the store meanwhile, and told larger ones."""
    allocator = started()
    lease_us = AllocatorSettings().lease_us
    in_time = allocator.take(1, at(lease_us, NOON_US))
    late = allocator.take(1, at(lease_us + 1, NOON_US))
    assert in_time is not None
    assert late is not None
    assert in_time.is_durable
    assert in_time.append is None
    assert not late.is_durable
    assert late.append is not None
    allocator.acknowledge(late.append)
    again = allocator.take(1, at(lease_us + 2, NOON_US))
    assert again is not None
    assert again.is_durable


def test_a_lease_begins_when_its_append_is_made_and_not_when_it_is_durable() -> None:
    allocator = Allocator(Timestamp(0))
    ceiling = allocator.prepare(at(0))
    lease_us = AllocatorSettings().lease_us
    allocator.acknowledge(ceiling)  # after a long time
    grant = allocator.take(1, at(lease_us + 1, NOON_US))
    assert grant is not None
    assert not grant.is_durable


def test_while_the_disk_hangs_each_lease_has_one_append_on_the_way() -> None:
    allocator = started()
    lease_us = AllocatorSettings().lease_us
    grants = [
        allocator.take(1, at(instant_us, NOON_US))
        for instant_us in range(lease_us + 1, 3 * lease_us, lease_us // 10)
    ]
    assert not any(grant is None or grant.is_durable for grant in grants)
    assert len([grant for grant in grants if grant and grant.append]) == 2


def test_the_lease_is_renewed_while_the_clock_stands_still() -> None:
    """The ceiling is far enough ahead: only the lease asks for an append, at its half."""
    allocator = started()
    take(allocator, 1, at(0))
    instant_us = 0
    appended_at_us = []
    while instant_us < 4 * SECOND:
        grant = allocator.take(1, at(instant_us, NOON_US - HOUR_US))
        assert grant is not None
        assert grant.is_durable, instant_us
        assert grant.append is None
        deadline_us = allocator.next_deadline()
        assert deadline_us is not None
        instant_us = deadline_us
        ceiling = allocator.renew(at(instant_us, NOON_US - HOUR_US))
        if ceiling is not None:
            appended_at_us.append(instant_us)
            allocator.acknowledge(ceiling)
    assert appended_at_us == [it * 600_000 for it in range(1, 7)]


def test_a_lease_shorter_than_the_window_is_refused() -> None:
    with pytest.raises(AssertionError):
        Allocator(Timestamp(0), AllocatorSettings(lease_us=300_000))
    with pytest.raises(AssertionError):
        Allocator(Timestamp(0), AllocatorSettings(takeover_us=1_000_000))
