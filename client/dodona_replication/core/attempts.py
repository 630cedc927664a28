"""What a process remembers of logs that it could not take over, so that others have their turn.

Owns: the pause after each failed attempt, which grows. An attempt counts as failed from its begin
until it is known to have succeeded: a process may end in between. Of a log that is taken over
again after its pause, all this says only that others come first.

Must not import: any shell.
"""

from collections.abc import Mapping
from typing import Annotated, Final

import msgspec

from dodona_wire.preload import preload_decoder
from dodona_wire.types import Now

PAUSE_MS_MIN: Final = 5_000
"""The pause after the first failed attempt. Each further one doubles it."""
PAUSE_MS_MAX: Final = 60_000
LOGS_MAX: Final = 1_000
"""Logs that are remembered: the ones that failed last."""


class Attempt(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The failed attempts to take one log over."""

    count: Annotated[int, msgspec.Meta(ge=1)]
    """How many have failed, one after the other."""
    unix_us: int
    """When the last one failed, or began, as long as its outcome is not known."""

    @property
    def pause_ms(self) -> int:
        """How long the log is left alone after the last attempt."""
        return int(min(PAUSE_MS_MAX, PAUSE_MS_MIN << min(self.count - 1, 16)))


@preload_decoder
class Attempts(msgspec.Struct, forbid_unknown_fields=True):
    """The failed attempts by log."""

    by_log: dict[str, Attempt] = {}

    def begin(self, log: str, now: Now) -> Attempt:
        """Note an attempt. It counts as failed until `succeed`."""
        before = self.by_log.pop(log, None)
        count = 1 if before is None else before.count + 1
        self.by_log[log] = Attempt(count, now.unix_us)  # the newest is the last one
        while len(self.by_log) > LOGS_MAX:
            del self.by_log[next(iter(self.by_log))]
        return self.by_log[log]

    def fail(self, log: str, now: Now) -> Attempt:
        """Note that the attempt that began last has failed. Its pause begins now."""
        self.by_log[log] = Attempt(self.by_log[log].count, now.unix_us)
        return self.by_log[log]

    def succeed(self, log: str) -> None:
        """Forget the attempts on a log, which was opened, or has another owner."""
        self.by_log.pop(log, None)

    def may_take_at_us(self, now: Now) -> Mapping[str, int]:
        """Return when the pause of each of these logs ends, as instants. A clock that was set back
        makes no pause longer."""
        found = {}
        for log, it in self.by_log.items():
            pause_us = it.pause_ms * 1000
            left_us = min(pause_us, it.unix_us + pause_us - now.unix_us)
            found[log] = now.instant_us + max(0, left_us)
        return found
