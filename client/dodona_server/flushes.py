"""Flushes: groups of records on their way to the log, and their counts.

Owns: what one flush makes durable with the effects behind it, how much may wait for it, and which
flushes the loop itself makes. Also owns how long flushes took and how many records they had. These
are counted once for each flush.
"""

from typing import Any, Final

import msgspec

from dodona_wire.cores.counting import COUNTS, DURATIONS_US, Histogram, Tally
from dodona_wire.cores.effects import Append, Effect

INLINE_RECORDS_MAX: Final = 1_000
INLINE_BYTES_MAX: Final = 64 << 10
"""A longer frame brings more than a quick flush can write."""
INLINE_PAUSE_US: Final = 100_000
PAUSE_RATIO: Final = 10
"""The pause after a slow flush is so many times as long as the flush. So slow flushes stop the loop
for at most a tenth of the time."""


class RuntimeStatistics(msgspec.Struct, frozen=True):
    """What a runtime did so far, and what waits now."""

    flush_count: int
    record_count: int
    flush_duration_us_max: int
    flush_durations_us: Histogram
    flush_records: Histogram
    """How many records became durable together."""
    refused_count: int
    waiting_count: int
    waiting_age_us: int


class RuntimeLimits(msgspec.Struct, frozen=True):
    """How much may wait for the log, and how far early answers may run ahead."""

    waiting_count_max: int = 100_000
    """Records and effects not yet durable. Beyond this, requests are refused as overloaded."""
    waiting_bytes_max: int = 256 << 20
    """Bytes of frames that came while records waited. Beyond this, requests are refused, too."""
    at_once_age_ms_max: int | None = None
    """If the oldest waiting append is older than this, `ReplyAtOnce` waits behind it, too. So a
    crash can undo early answers only of this time. None: it never waits."""
    inline_flush_us_max: int = 0
    """While flushes take no longer than this, the loop itself makes those that a client waits for
    (see `InlineRule`). 0: the log's thread makes all."""
    close_ms_max: int = 10_000
    """How long `close` lets the log finish."""


class Batch:
    """The records that one flush makes durable, and the effects that may leave after it."""

    __slots__ = ("effects", "records", "since_us", "size_bytes")

    def __init__(self, since_us: int) -> None:
        self.since_us = since_us
        self.records: list[Any] = []
        self.effects: list[Effect] = []
        self.size_bytes = 0


class InlineRule:
    """Decides which flushes the loop itself makes, while everything else waits.

    A thread that makes a flush sleeps at each answer of the disk. Then it waits for a processor
    core and for the interpreter's lock, and the loop has both. Under load that takes several times
    as long as the flush, and each sleep costs processor time. So the loop itself makes a flush that
    is short and has an answer behind it. Records without an answer gather behind the thread. A long
    or slow flush would stop everything else. After one, the thread makes all flushes for
    `INLINE_PAUSE_US`, or for `PAUSE_RATIO` times as long as the slow one took.
    """

    def __init__(self, duration_us_max: int) -> None:
        """`duration_us_max` is the longest flush for the loop. 0: the thread makes all flushes."""
        self._duration_us_max = duration_us_max
        self._paused_until_us = 0

    def admits(self, batch: Batch, now_us: int) -> bool:
        """Return whether the loop makes this flush."""
        return (
            self._duration_us_max > 0
            and now_us >= self._paused_until_us
            and len(batch.records) <= INLINE_RECORDS_MAX
            and any(type(effect) is not Append for effect in batch.effects)
        )

    def note(self, duration_us: int, now_us: int) -> None:
        """Note how long a flush took."""
        if duration_us > self._duration_us_max:
            self.pause(now_us, duration_us * PAUSE_RATIO)

    def pause(self, now_us: int, pause_us_min: int = 0) -> None:
        """Leave all flushes to the thread for a while."""
        until_us = now_us + max(pause_us_min, INLINE_PAUSE_US)
        self._paused_until_us = max(self._paused_until_us, until_us)


class FlushCounts:
    """The counts of all flushes since the start."""

    def __init__(self) -> None:
        self._durations_us = Tally(DURATIONS_US)
        self._records = Tally(COUNTS)
        self._duration_us_max = 0

    def add(self, duration_us: int, record_count: int) -> None:
        """Count one flush."""
        self._duration_us_max = max(self._duration_us_max, duration_us)
        self._durations_us.add(duration_us)
        self._records.add(record_count)

    def statistics(
        self, refused_count: int, waiting_count: int, waiting_age_us: int
    ) -> RuntimeStatistics:
        """Return these counts, with those that the runtime itself keeps."""
        durations_us, records = self._durations_us.read(), self._records.read()
        return RuntimeStatistics(
            flush_count=durations_us.count,
            record_count=records.total,
            flush_duration_us_max=self._duration_us_max,
            flush_durations_us=durations_us,
            flush_records=records,
            refused_count=refused_count,
            waiting_count=waiting_count,
            waiting_age_us=waiting_age_us,
        )
