"""The proxy: it asks the master for the timestamps of many callers in one request. Stateless.

Owns: the one request in flight, its deadline, and the limit of waiting callers. A range may come
back after its callers got an error. The proxy drops such a range: it is older than the next
request, so no caller may have it. Imports no I/O and no clock.
"""

from typing import Any, Final

import msgspec

from dodona_wire.cores.batcher import Batcher
from dodona_wire.cores.counting import COUNTS, DURATIONS_US, Histogram, Tally
from dodona_wire.cores.effects import AskMaster, Effect, ReplyTo, Route
from dodona_wire.cores.fault_points import FaultAt, FaultPoint, no_faults
from dodona_wire.errors import DataCorrupted
from dodona_wire.messages.base import Failure, failure_of
from dodona_wire.messages.data import GenerateTimestamps, TimestampRange
from dodona_wire.types import TIMESTAMPS_PER_REQUEST_MAX, Now, Timestamp

_count_wrong: Final = Failure(
    "invalid_request", f"The count of timestamps is 1 to {TIMESTAMPS_PER_REQUEST_MAX}."
)
_overloaded: Final = Failure(
    "overloaded", "Too many callers wait for timestamps at this proxy. Wait, then repeat the call."
)


class ProxyLimits(msgspec.Struct, frozen=True):
    """How long callers may wait, and how many of them."""

    answer_us_max: int = 3_000_000
    """If the master does not answer a request for so long, all its callers fail."""
    waiting_count_max: int = 200_000
    """The number of callers that may wait. The next caller is refused as overloaded."""


class ProxyStatistics(msgspec.Struct, frozen=True):
    """What the proxy did since its start, and how many callers wait now."""

    request_count: int
    timestamp_count: int
    batch_count: int
    batch_sizes: Histogram
    """How many timestamps each batch asked for."""
    batch_durations_us: Histogram
    """How long the batches took that were answered."""
    failed_batch_count: int
    waiting_count: int


class ProxyCore:
    """Takes `GenerateTimestamps` and asks with `AskMaster`. The answer is one of two inputs."""

    def __init__(self, limits: ProxyLimits | None = None, fault_at: FaultAt = no_faults) -> None:
        self._limits = limits or ProxyLimits()
        self._fault_at = fault_at
        self._injects_faults = fault_at is not no_faults
        self._effects: list[Effect] = []
        self._batcher: Batcher[Route] = Batcher()
        self._token = 0
        self._silent: dict[str, Any] = {}
        """Which server does not answer. It is set only while callers get their errors."""
        self._deadline_us: int | None = None
        self._request_count = self._timestamp_count = 0
        self._failed_batch_count = 0
        self._asked_us = 0
        self._batch_sizes = Tally(COUNTS)
        self._batch_durations_us = Tally(DURATIONS_US)

    def handle(self, route: Route, body: GenerateTimestamps, now: Now) -> None:
        """Handle one request. It goes to the master now, unless another request is in flight."""
        self._request_count += 1
        if type(body) is not GenerateTimestamps:
            text = f"A proxy gives out timestamps only. It does not answer {type(body).__name__}."
            self._effects.append(ReplyTo(route, Failure("invalid_request", text)))
        elif not 0 < body.count <= TIMESTAMPS_PER_REQUEST_MAX:
            self._effects.append(ReplyTo(route, _count_wrong))
        elif self._batcher.waiting_count >= self._limits.waiting_count_max or (
            self._injects_faults and self._fault_at(FaultPoint.PRETEND_PROXY_FULL)
        ):
            self._effects.append(ReplyTo(route, _overloaded))
        else:
            self._batcher.add(route, body.count)
            self._ask(now)

    def handle_range(self, token: int, first: Timestamp, now: Now) -> None:
        """Pass on the range that the master gave for this token, from `first` on."""
        if token != self._token or self._deadline_us is None:
            return
        if self._fault_at(FaultPoint.LOSE_RANGE):
            self._fail_unavailable("The answer was lost.", now)
            return
        try:
            shares = self._batcher.split(first)
        except DataCorrupted as error:
            self._fail(failure_of(error), now)
            return
        self._deadline_us = None
        self._batch_durations_us.add(now.instant_us - self._asked_us)
        for route, share_first, count in shares:
            self._timestamp_count += count
            self._effects.append(ReplyTo(route, TimestampRange(share_first, count)))
        self._ask(now)

    def handle_failure(
        self, token: int, message: str, now: Now, attributes: dict[str, Any] | None = None
    ) -> None:
        """Fail the callers: the master refused, or did not answer. The attributes say which server
        is silent. `is_sent` is left out: it is about the request of this proxy, and those of its
        callers were sent."""
        if token == self._token and self._deadline_us is not None:
            given = (attributes or {}).items()
            self._silent = {name: value for name, value in given if name != "is_sent"}
            self._fail_unavailable(f"The master gave no timestamps: {message}", now)
            self._silent = {}

    def tick(self, now: Now) -> None:
        """Fail the request in flight if its deadline has passed."""
        if self._deadline_us is not None and now.instant_us >= self._deadline_us:
            wait_ms = self._limits.answer_us_max // 1000
            self._fail_unavailable(f"The master did not answer within {wait_ms} ms.", now)

    def next_deadline(self) -> int | None:
        """Return when to call `tick` at the latest, as an instant in microseconds."""
        return self._deadline_us

    def take_effects(self) -> list[Effect]:
        """Return the effects to carry out, in order. Each is returned once."""
        effects, self._effects = self._effects, []
        return effects

    @property
    def waiting_count(self) -> int:
        """Requests that wait for the master."""
        return self._batcher.waiting_count

    def statistics(self) -> ProxyStatistics:
        """Return the current statistics."""
        sizes = self._batch_sizes.read()
        return ProxyStatistics(
            request_count=self._request_count,
            timestamp_count=self._timestamp_count,
            batch_count=sizes.count,
            batch_sizes=sizes,
            batch_durations_us=self._batch_durations_us.read(),
            failed_batch_count=self._failed_batch_count,
            waiting_count=self._batcher.waiting_count,
        )

    def _ask(self, now: Now) -> None:
        count = self._batcher.next_batch_count()
        if count is None:
            return
        self._token += 1
        self._batch_sizes.add(count)
        self._asked_us = now.instant_us
        self._deadline_us = now.instant_us + self._limits.answer_us_max
        self._effects.append(AskMaster(self._token, count))

    def _fail_unavailable(self, message: str, now: Now) -> None:
        self._fail(Failure("unavailable", message, self._silent), now)

    def _fail(self, failure: Failure, now: Now) -> None:
        self._failed_batch_count += 1
        self._deadline_us = None
        for route in self._batcher.fail():
            self._effects.append(ReplyTo(route, failure))
        self._ask(now)
