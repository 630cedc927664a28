"""What a process remembers of logs that it could not take over."""

import msgspec
import pytest

from dodona_replication.core.attempts import (
    LOGS_MAX,
    PAUSE_MS_MAX,
    PAUSE_MS_MIN,
    Attempt,
    Attempts,
)
from dodona_wire.types import Now

NOW = Now(1_000_000, 50_000_000)


def later(ms: int) -> Now:
    return Now(NOW.instant_us + ms * 1000, NOW.unix_us + ms * 1000)


def test_each_failed_attempt_doubles_the_pause_up_to_its_limit() -> None:
    attempts = Attempts()
    pauses = [attempts.begin("cell-1", NOW).pause_ms for _ in range(20)]
    assert pauses[:3] == [PAUSE_MS_MIN, 2 * PAUSE_MS_MIN, 4 * PAUSE_MS_MIN]
    assert pauses[-1] == PAUSE_MS_MAX


def test_a_success_ends_the_pause_and_the_growth() -> None:
    attempts = Attempts()
    attempts.begin("cell-1", NOW)
    attempts.begin("cell-1", NOW)
    attempts.succeed("cell-1")
    attempts.succeed("cell-2")
    assert attempts.may_take_at_us(NOW) == {}
    assert attempts.begin("cell-1", NOW).pause_ms == PAUSE_MS_MIN


def test_the_pause_begins_when_an_attempt_fails() -> None:
    attempts = Attempts()
    attempts.begin("cell-1", NOW)
    failed = later(10 * PAUSE_MS_MIN)
    assert attempts.fail("cell-1", failed) == Attempt(1, failed.unix_us)
    assert attempts.may_take_at_us(failed) == {"cell-1": failed.instant_us + PAUSE_MS_MIN * 1000}


def test_another_process_of_the_same_folder_waits_for_the_rest_of_the_pause() -> None:
    attempts = Attempts()
    attempts.begin("cell-1", NOW)
    again = msgspec.json.decode(msgspec.json.encode(attempts), type=Attempts)
    now = later(2_000)
    left_us = (PAUSE_MS_MIN - 2_000) * 1000
    assert again.may_take_at_us(now) == {"cell-1": now.instant_us + left_us}
    late = later(10 * PAUSE_MS_MIN)
    assert again.may_take_at_us(late) == {"cell-1": late.instant_us}


def test_a_clock_that_was_set_back_makes_no_pause_longer() -> None:
    attempts = Attempts()
    attempts.begin("cell-1", NOW)
    before = Now(NOW.instant_us, 1)
    pause_us = PAUSE_MS_MIN * 1000
    assert attempts.may_take_at_us(before) == {"cell-1": NOW.instant_us + pause_us}


def test_only_the_last_logs_are_remembered() -> None:
    attempts = Attempts()
    for number in range(LOGS_MAX + 2):
        attempts.begin(f"cell-{number}", NOW)
    attempts.begin("cell-2", NOW)
    attempts.begin("cell-new", NOW)
    assert len(attempts.by_log) == LOGS_MAX
    assert {"cell-0", "cell-3"} & {*attempts.by_log} == set()
    assert attempts.by_log["cell-2"].count == 2


@pytest.mark.parametrize("text", [b'{"by_log":{"a":{"count":0,"unix_us":1}}}', b"[]", b"{"])
def test_a_file_of_something_else_is_not_read(text: bytes) -> None:
    with pytest.raises(msgspec.DecodeError):
        msgspec.json.decode(text, type=Attempts)


def test_an_attempt_says_how_often_it_failed() -> None:
    assert Attempts().begin("cell-1", NOW) == Attempt(1, NOW.unix_us)
