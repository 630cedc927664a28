"""When to retry, and for how long. Pure: the caller passes the clock and the random numbers.

Owns: the backoff (exponential, full jitter), and the limits of every retry loop of the client: a
number of attempts and a time. Both count from the first failure, so success costs nothing.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Final

from dodona._core.protocol.steps import Pause, Protocol
from dodona_wire.errors import DodonaError, Unavailable
from dodona_wire.messages.base import Failure
from dodona_wire.types import Key

PAUSE_MS_FIRST: Final = 4
PAUSE_MS_MAX: Final = 500
RETRY_DEAD_MS: Final = 200
"""How long a call retries a server that has been silent for longer than any caller waits."""

ROUNDING_US: Final = 1_000
"""The limits of calls are whole milliseconds. A wait that ends within 1 ms of a limit was ended by
this limit."""

InstantClock = Callable[[], int]
"""A function that returns monotonic microseconds."""
Dice = Callable[[], float]
"""A function that returns a random number, at least 0 and below 1."""


def backoff_ms(attempt: int, dice: Dice, first_ms: int, max_ms: int) -> int:
    """Return the pause in ms after failed attempt `attempt` (the first is 1), with full jitter."""
    assert attempt > 0
    longest_ms = min(max_ms, first_ms << min(attempt - 1, 20))
    return 1 + int(longest_ms * dice())


class Patience:
    """The limits of one operation's retries."""

    __slots__ = (
        "_attempt",
        "_attempts_max",
        "_clock",
        "_deadline_us",
        "_dice",
        "_outage_ms_max",
        "_pause_ms_max",
    )

    def __init__(
        self,
        clock: InstantClock,
        dice: Dice,
        *,
        duration_ms: int,
        attempts_max: int,
        pause_ms_max: int = PAUSE_MS_MAX,
        outage_ms_max: int | None = None,
    ) -> None:
        """Make limits from now on. `outage_ms_max` is how long all callers together wait for a
        silent server. None means `duration_ms`."""
        assert duration_ms > 0
        assert attempts_max > 0
        self._clock = clock
        self._dice = dice
        self._deadline_us = clock() + duration_ms * 1000
        self._attempts_max = attempts_max
        self._pause_ms_max = pause_ms_max
        self._outage_ms_max = duration_ms if outage_ms_max is None else outage_ms_max
        self._attempt = 0

    def note_silence(self, silent_ms: int) -> None:
        """Note how long a server has been silent. All callers together wait `outage_ms_max` for it.
        So a later caller retries for the rest of that time only, but at least `RETRY_DEAD_MS`."""
        left_ms = max(RETRY_DEAD_MS, self._outage_ms_max - silent_ms)
        self._deadline_us = min(self._deadline_us, self._clock() + left_ms * 1000)

    @property
    def remaining_ms(self) -> int:
        return max(0, (self._deadline_us - self._clock()) // 1000)

    def next_pause(self) -> Pause | None:
        """Return the pause before the next attempt, or None if no attempt is left."""
        self._attempt += 1
        remaining_ms = self.remaining_ms
        if self._attempt > self._attempts_max or remaining_ms == 0:
            return None
        pause_ms = backoff_ms(self._attempt, self._dice, PAUSE_MS_FIRST, self._pause_ms_max)
        return Pause(min(pause_ms, remaining_ms))


def wait_or_raise(patience: Patience, error: DodonaError) -> Protocol[None]:
    """Pause before the next attempt. Raises `error` if no attempt is left."""
    if not (yield from has_time(patience, error)):
        raise error


def has_time(patience: Patience, failed: DodonaError | Failure | None = None) -> Protocol[bool]:
    """Pause before the next attempt. Return False if none is left: the retries, or the time of the
    caller's call, have ended. `failed` is None if the caller only waits for a state."""
    silent_ms = None if failed is None else failed.attributes.get("silent_ms")
    if type(silent_ms) is int:
        patience.note_silence(silent_ms)
    pause = patience.next_pause()
    if pause is None:
        return False
    return not (yield pause)


RERUN_PAUSE_MS_FIRST: Final = 5
RERUN_PAUSE_MS_MAX: Final = 1_000
RERUN_DEADLINE_MS: Final = 30_000
CONFLICTS_BEFORE_LOCKS: Final = 3
LOCKED_ROWS_MAX: Final = 1_000
"""A function whose attempts write more rows than this takes no locks before it runs."""
LOCK_WAIT_MS_MAX: Final = 30_000


class Rerun:
    """The limits of a function that runs as a transaction, again and again until it commits."""

    def __init__(
        self,
        clock: InstantClock,
        dice: Dice,
        *,
        attempts_max: int | None,
        deadline_ms: int,
        timeout_ms: int | None = None,
    ) -> None:
        """Make limits from now on. No attempt begins later than `deadline_ms`. Without
        `attempts_max`, this is the only limit. How many attempts are needed depends on how many
        others write the same rows, which the caller can't know. The calls of all attempts end at
        `timeout_ms`."""
        self._clock = clock
        self._dice = dice
        self._attempts_max = attempts_max
        self._began_us = self._attempt_began_us = clock()
        self._deadline_us = self._began_us + deadline_ms * 1000
        self._cut_us = None if timeout_ms is None else self._began_us + timeout_ms * 1000
        if self._cut_us is not None:
            self._deadline_us = min(self._deadline_us, self._cut_us)
        self._attempt = 0
        self._telling: DodonaError | None = None
        self._conflict_count = 0
        self.rows: dict[str, list[Key]] = {}
        """The rows that the next attempt locks before it begins, by path."""

    @property
    def left_ms(self) -> int:
        """The time that is left for a wait before the next attempt, in ms."""
        left_ms = (self._deadline_us - self._clock()) // 1000
        return max(1, min(LOCK_WAIT_MS_MAX, left_ms))

    def note_rows(self, rows: Mapping[str, Iterable[Key]]) -> None:
        """Note which rows an attempt wrote or locked that met a conflict. From the third one on,
        the next attempt locks them first, with those of the attempts before it. So it waits in
        line, and does not lose again. Very many rows are not locked."""
        self._conflict_count += 1
        known = self.rows if self._conflict_count > CONFLICTS_BEFORE_LOCKS else {}
        wanted = {path: dict.fromkeys(known.get(path, ())) for path in {**known, **rows}}
        for path, keys in rows.items():
            wanted[path].update(dict.fromkeys(keys))
        is_time = self._conflict_count >= CONFLICTS_BEFORE_LOCKS
        is_small = sum(map(len, wanted.values())) <= LOCKED_ROWS_MAX
        self.rows = {path: [*keys] for path, keys in wanted.items()} if is_time and is_small else {}

    @property
    def attempt_count(self) -> int:
        """How many attempts have failed so far."""
        return self._attempt

    def telling(self, error: DodonaError) -> DodonaError:
        """Return the error to raise if this failed attempt is the last one. If the attempt had
        little time left, that is the error of the attempt before: it says more."""
        if self._telling is None or not self._was_hurried(error):
            self._telling = error
        return self._telling

    def _was_hurried(self, error: DodonaError) -> bool:
        """Return whether an attempt got no answer only because the attempts before it took most of
        the time."""
        if self._cut_us is None or not isinstance(error, Unavailable):
            return False
        now_us = self._clock()
        is_short = now_us - self._attempt_began_us < self._attempt_began_us - self._began_us
        return is_short and now_us + ROUNDING_US >= self._cut_us

    def next_pause(self) -> Pause | None:
        """Return the pause before the next attempt, or None if no attempt is left."""
        self._attempt += 1
        if self._attempts_max is not None and self._attempt >= self._attempts_max:
            return None
        # A long pause is shortened, so that the last attempt begins just before the deadline.
        left_ms = (self._deadline_us - self._clock()) // 1000 - 1
        if left_ms <= 0:
            return None
        pause_ms = backoff_ms(self._attempt, self._dice, RERUN_PAUSE_MS_FIRST, RERUN_PAUSE_MS_MAX)
        pause_ms = min(pause_ms, left_ms)
        self._attempt_began_us = self._clock() + pause_ms * 1000
        return Pause(pause_ms)
