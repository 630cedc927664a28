"""Items 1 to 14: the timestamp oracle and its proxies."""

from collections.abc import Iterable
from typing import Self

import pytest
from msgspec.structs import replace

from dodona.types import (
    TIMESTAMP_COUNTER_BITS,
    TIMESTAMPS_PER_REQUEST_MAX,
    Now,
    Timestamp,
    timestamp_from_unix_us,
)
from dodona_loadtest.checkers.violation import Promise
from dodona_oracle.core.allocator import Allocator, AllocatorSettings, Grant
from dodona_oracle.core.master import MasterCore
from dodona_oracle.core.proxy import ProxyCore
from dodona_oracle.core.records import Item, MasterState, state_from_items
from dodona_wire.cores.batcher import Batcher
from dodona_wire.cores.effects import Effect, ReplyAtOnce, ReplyTo, Route
from dodona_wire.cores.fault_points import FaultAt, no_faults
from dodona_wire.messages.data import GenerateTimestamps, TimestampRange
from negative.bug import BUSY, CheckedBug, Plant, PlantedBug, Where
from unit.oracle import test_allocator, test_master, test_store

TICK = 1 << TIMESTAMP_COUNTER_BITS
SPARE_COUNT = 100
FAR_US = 1 << 62

STILL = Where(changes={"master_clock_rate": 0.0, "is_ceiling_tight": True})
"""The clock stands still: all is left to the ceiling."""


class FollowsTheClockBack(Allocator):
    seen_us = 0

    def take(self, count: int, now: Now) -> Grant | None:
        if now.unix_us < self.seen_us:
            self._next_unused = timestamp_from_unix_us(now.unix_us)
        self.seen_us = now.unix_us
        return super().take(count, now)


class ResetsTheCounter(Allocator):
    """Compares instants in microseconds and makes timestamps of milliseconds."""

    seen_us = 0

    def take(self, count: int, now: Now) -> Grant | None:
        whole_us = now.unix_us // 1000 * 1000
        is_behind = self._next_unused < timestamp_from_unix_us(whole_us + 1000)
        if now.unix_us > self.seen_us and is_behind:
            self._next_unused = timestamp_from_unix_us(whole_us)
        self.seen_us = now.unix_us
        return super().take(count, Now(now.instant_us, whole_us))


class Overflows(Allocator):
    """More timestamps than a second has: the counter begins anew, the second does not move on."""

    def take(self, count: int, now: Now) -> Grant | None:
        before = self._next_unused
        grant = super().take(count, now)
        is_ahead = before > timestamp_from_unix_us(now.unix_us)
        if is_ahead and self._next_unused // TICK > before // TICK:
            self._next_unused -= TICK
        return grant


def with_allocator(planted: type[Allocator]) -> Plant:
    return lambda patch: patch.setattr("dodona_oracle.core.master.Allocator", planted)


class OutlivesItsLease(Allocator):
    """A process that stood still tells timestamps as if nobody else could have come meanwhile."""

    def take(self, count: int, now: Now) -> Grant | None:
        self._leased_until_us = FAR_US
        return super().take(count, now)


class LeasesByTheWallClock(Allocator):
    """`instant_us` is the wall clock's throughout, but for when to be woken."""

    apart_us = 0

    def _seen(self, now: Now) -> Now:
        self.apart_us = now.instant_us - now.unix_us
        return Now(now.unix_us, now.unix_us)

    def take(self, count: int, now: Now) -> Grant | None:
        return super().take(count, self._seen(now))

    def renew(self, now: Now) -> Timestamp | None:
        return super().renew(self._seen(now))

    def prepare(self, now: Now) -> Timestamp:
        return super().prepare(self._seen(now))

    def next_deadline(self) -> int | None:
        deadline_us = super().next_deadline()
        return None if deadline_us is None else deadline_us + self.apart_us


def serve_before_the_ceiling_is_loaded(patch: pytest.MonkeyPatch) -> None:
    def planted(items: Iterable[Item]) -> MasterState:
        return replace(state_from_items(items), ceiling=Timestamp(0))

    patch.setattr("dodona_oracle.core.master.state_from_items", planted)


def resume_what_was_known_before(patch: pytest.MonkeyPatch) -> None:
    """A machine that has the store again goes on from what it knew when it had it last."""
    known: dict[str, Timestamp] = {}

    class Resumes(MasterCore):
        @classmethod
        def recover(
            cls,
            items: Iterable[Item],
            now: Now,
            settings: AllocatorSettings | None = None,
            machine: str = "",
            fault_at: FaultAt = no_faults,
        ) -> Self:
            state = state_from_items(items)
            ceiling = known.setdefault(machine, state.ceiling)
            return cls(replace(state, ceiling=ceiling), now, settings, machine, fault_at)

    patch.setattr("simulator.servers.MasterCore", Resumes)


def believe_to_be_alone(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(MasterCore, "_outlive_predecessor", lambda *_: True)


def share_the_store(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("dodona_wire.net.folder.fcntl.flock", lambda *_: None)


def tell_before_it_is_written(patch: pytest.MonkeyPatch) -> None:
    take = MasterCore.take_effects

    def planted(self: MasterCore) -> list[Effect]:
        return [
            ReplyAtOnce(it.route, it.body) if isinstance(it, ReplyTo) else it for it in take(self)
        ]

    patch.setattr(MasterCore, "take_effects", planted)


def tell_above_the_durable_ceiling(patch: pytest.MonkeyPatch) -> None:
    generate = MasterCore._generate

    def planted(self: MasterCore, route: Route, body: GenerateTimestamps, now: Now) -> None:
        generate(self, route, body, now)
        self._effects = [
            ReplyAtOnce(it.route, it.body)
            if isinstance(it, ReplyTo) and isinstance(it.body, TimestampRange)
            else it
            for it in self._effects
        ]

    patch.setattr(MasterCore, "_generate", planted)


class Joining(Batcher[Route]):
    """Asks for some more than it needs, and gives them to those who come while it waits."""

    spare_count = 0

    def next_batch_count(self) -> int | None:
        count = super().next_batch_count()
        if count is None or count + SPARE_COUNT > TIMESTAMPS_PER_REQUEST_MAX:
            self.spare_count = 0
            return count
        self.spare_count = SPARE_COUNT
        return count + SPARE_COUNT

    def add(self, waiter: Route, count: int = 1) -> None:
        if not self._in_flight or count > self.spare_count:
            super().add(waiter, count)
            return
        self.spare_count -= count
        counts = self._in_flight_counts or [1] * len(self._in_flight)
        self._in_flight.append(waiter)
        self._in_flight_counts = [*counts, count]


class HandsOutTwice(ProxyCore):
    """A batch that failed is served by a late copy of the reply before."""

    last: Timestamp | None = None

    def handle_range(self, token: int, first: Timestamp, now: Now) -> None:
        self.last = first
        super().handle_range(token, first, now)

    def _fail_unavailable(self, message: str, now: Now) -> None:
        if self.last is None:
            super()._fail_unavailable(message, now)
        else:
            self._batcher._last = 0
            super().handle_range(self._token, self.last, now)


class Frugal(Batcher[Route]):
    """Keeps what was left of a range for when the master can't be reached."""

    left: Timestamp | None = None
    left_count = 0

    def next_batch_count(self) -> int | None:
        count = super().next_batch_count()
        return None if count is None else min(count + SPARE_COUNT, TIMESTAMPS_PER_REQUEST_MAX)

    def split(self, first: Timestamp) -> list[tuple[Route, Timestamp, int]]:
        shares = super().split(first)
        used_count = sum(count for _, _, count in shares)
        if used_count + SPARE_COUNT <= TIMESTAMPS_PER_REQUEST_MAX:
            self.left, self.left_count = Timestamp(first + used_count), SPARE_COUNT
        return shares


class ServesWhatWasLeft(ProxyCore):
    def _fail_unavailable(self, message: str, now: Now) -> None:
        batcher = self._batcher
        assert isinstance(batcher, Frugal)
        wanted_count = sum(batcher._in_flight_counts or [1] * len(batcher._in_flight))
        if batcher.left is None or wanted_count > batcher.left_count:
            super()._fail_unavailable(message, now)
            return
        left, batcher.left = batcher.left, None
        self._deadline_us = None
        batcher._last = 0
        for route, first, count in Batcher.split(batcher, left):
            self._effects.append(ReplyTo(route, TimestampRange(first, count)))
        self._ask(now)


def with_proxy(core: type[ProxyCore], batcher: type[Batcher[Route]] = Batcher) -> Plant:
    def plant(patch: pytest.MonkeyPatch) -> None:
        patch.setattr("simulator.servers.ProxyCore", core)
        patch.setattr("dodona_oracle.core.proxy.Batcher", batcher)

    return plant


def take_any_count(patch: pytest.MonkeyPatch) -> None:
    def planted(self: MasterCore, route: Route, body: GenerateTimestamps, now: Now) -> None:
        self._allocator._next_unused += body.count
        self._effects.append(ReplyAtOnce(route, TimestampRange(Timestamp(1), body.count)))

    patch.setattr(MasterCore, "_generate", planted)


def check_counts(_: object) -> None:
    for count in (0, -1, TIMESTAMPS_PER_REQUEST_MAX + 1):
        test_master.test_a_count_out_of_bounds_is_refused(count)


TAKEOVERS = Where(changes={"master_clock_rate": 0.0}, takeover_count=10)

TIMESTAMPS: tuple[Promise, ...] = ("UNIQUE", "MONOTONIC", "CRASH")
"""Whoever notices that the oracle has gone back stops: that is one way to show it."""

BUGS: tuple[PlantedBug | CheckedBug, ...] = (
    PlantedBug(
        1,
        "timestamps follow a clock that steps back",
        with_allocator(FollowsTheClockBack),
        TIMESTAMPS,
    ),
    PlantedBug(
        2,
        "a master serves before it has loaded the ceiling",
        serve_before_the_ceiling_is_loaded,
        TIMESTAMPS,
        STILL,
    ),
    PlantedBug(
        3,
        "a master that was replaced tells timestamps after its lease is over",
        with_allocator(OutlivesItsLease),
        TIMESTAMPS,
        TAKEOVERS,
    ),
    PlantedBug(
        4,
        "a master serves while its predecessor may still do",
        believe_to_be_alone,
        TIMESTAMPS,
        TAKEOVERS,
    ),
    CheckedBug(
        4,
        "two masters open one store",
        share_the_store,
        test_store.test_a_second_process_that_opens_a_folder_gets_the_id_of_the_first_process,
        "test_a_second_process_that_opens_a_folder_gets_the_id_of_the_first_process",
    ),
    PlantedBug(
        5,
        "a master goes on from what it knew when it had the store before",
        resume_what_was_known_before,
        TIMESTAMPS,
        STILL,
    ),
    PlantedBug(
        6,
        "the counter begins anew when the clock moved by less than a millisecond",
        with_allocator(ResetsTheCounter),
        TIMESTAMPS,
    ),
    CheckedBug(
        7,
        "the counter of a second overflows into itself",
        lambda patch: patch.setattr(test_allocator, "Allocator", Overflows),
        lambda _: test_allocator.test_a_burst_larger_than_a_second_holds_carries_into_the_next(),
        "test_a_burst_larger_than_a_second_holds_carries_into_the_next",
    ),
    PlantedBug(
        8,
        "the lease is judged by the wall clock",
        with_allocator(LeasesByTheWallClock),
        TIMESTAMPS,
        TAKEOVERS,
    ),
    PlantedBug(
        9,
        "the master gives out timestamps before their ceiling is durable",
        tell_above_the_durable_ceiling,
        TIMESTAMPS,
        STILL,
    ),
    PlantedBug(
        10,
        "a proxy lets callers join a request that is under way",
        with_proxy(ProxyCore, Joining),
        TIMESTAMPS,
        Where(changes=BUSY, network={"delay_us_mean": 2_000}),
    ),
    PlantedBug(
        11,
        "a proxy hands a range out twice when a request is repeated",
        with_proxy(HandsOutTwice),
        TIMESTAMPS,
    ),
    PlantedBug(
        12,
        "a proxy that is cut off serves what was left of a range",
        with_proxy(ServesWhatWasLeft, Frugal),
        TIMESTAMPS,
    ),
    CheckedBug(
        13,
        "a request may take any number of timestamps, none or less",
        take_any_count,
        check_counts,
        "test_a_count_out_of_bounds_is_refused",
    ),
    CheckedBug(
        14,
        "the master reports the result of a master transaction before the store has it",
        tell_before_it_is_written,
        lambda _: test_master.test_no_answer_reports_a_commit_that_a_crash_can_undo(),
        "test_no_answer_reports_a_commit_that_a_crash_can_undo",
    ),
)
