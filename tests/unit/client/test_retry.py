"""Back-off and the bounds of every retry loop."""

from hypothesis import given
from hypothesis import strategies as st

from dodona._core.retry import PAUSE_MS_MAX, RERUN_PAUSE_MS_MAX, Patience, Rerun, backoff_ms
from dodona._core.steps import Pause
from unit.client.protocols import Clock


def patience(clock: Clock, *, duration_ms: int = 10_000, attempts_max: int = 64) -> Patience:
    return Patience(
        clock.instant_us, lambda: 0.99, duration_ms=duration_ms, attempts_max=attempts_max
    )


def pauses(clock: Clock, it: Patience | Rerun) -> list[int]:
    """All that there are; each is waited out."""
    taken: list[int] = []
    while (pause := it.next_pause()) is not None:
        assert isinstance(pause, Pause)
        clock.now_us += pause.duration_ms * 1000
        taken.append(pause.duration_ms)
        assert len(taken) < 1_000
    return taken


@given(st.integers(1, 100), st.floats(0, 1, exclude_max=True))
def test_a_pause_is_random_up_to_a_bound_that_doubles(attempt: int, dice: float) -> None:
    assert 1 <= backoff_ms(attempt, lambda: dice, 4, 500) <= min(500, 4 << min(attempt, 20)) + 1


def test_a_lucky_die_gives_short_pauses_and_an_unlucky_one_long_ones() -> None:
    assert [backoff_ms(it, lambda: 0.0, 4, 500) for it in (1, 5, 50)] == [1, 1, 1]
    assert [backoff_ms(it, lambda: 0.999, 4, 500) for it in (1, 2, 3, 9, 50)] == [
        *(4, 8, 16),
        *(500, 500),
    ]


def test_patience_ends_by_time() -> None:
    clock = Clock()
    taken = pauses(clock, patience(clock, duration_ms=3_000))
    assert sum(taken) == 3_000
    assert max(taken) <= PAUSE_MS_MAX
    assert taken[:6] == sorted(taken[:6])


def test_patience_ends_by_number() -> None:
    clock = Clock()
    assert len(pauses(clock, patience(clock, attempts_max=5))) == 5


def test_time_spent_in_calls_counts() -> None:
    clock = Clock()
    it = patience(clock, duration_ms=100)
    clock.now_us += 100_000
    assert it.next_pause() is None


def rerun(clock: Clock, *, attempts_max: int = 10, deadline_ms: int = 30_000) -> Rerun:
    return Rerun(clock.instant_us, lambda: 0.99, attempts_max=attempts_max, deadline_ms=deadline_ms)


def test_a_rerun_pauses_between_attempts_only() -> None:
    clock = Clock()
    it = rerun(clock, attempts_max=10)
    assert len(pauses(clock, it)) == 9
    assert it.attempt_count == 10


def test_a_rerun_begins_no_attempt_after_its_deadline() -> None:
    clock = Clock()
    taken = pauses(clock, rerun(clock, attempts_max=10_000, deadline_ms=5_000))
    assert 4_000 < sum(taken) < 5_000
    assert max(taken) <= RERUN_PAUSE_MS_MAX
