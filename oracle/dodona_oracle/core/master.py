"""The master: allocator and catalog behind one inbox.

Owns: which answers may leave before the log is durable. Timestamps below the durable ceiling leave
without a wait. Every other answer waits for the appends before it. So no client learns of a table,
a mount or a timestamp that a crash could undo. Imports no I/O and no clock.
"""

from collections.abc import Iterable
from typing import Self

import msgspec

from dodona_oracle.core.allocator import USED_UP, Allocator, AllocatorSettings
from dodona_oracle.core.catalog import GROWING, Attendance, Catalog, CatalogStatistics
from dodona_oracle.core.heartbeats import Heartbeats
from dodona_oracle.core.records import (
    CEILING,
    ORACLE,
    Item,
    MasterState,
    Put,
    Record,
    decode_number,
    put_ceiling,
    put_machine,
    state_from_items,
)
from dodona_oracle.core.tree_transactions import OpenTransaction
from dodona_wire.cores.counting import COUNTS, ClockDifference, Histogram, Tally
from dodona_wire.cores.effects import Append, Effect, ReplyAtOnce, ReplyTo, Route
from dodona_wire.cores.fault_points import FaultAt, FaultPoint, no_faults
from dodona_wire.errors import DiskFull, DodonaError, InvalidRequest
from dodona_wire.messages.base import Failure, failure_of
from dodona_wire.messages.catalog import CatalogReply, CatalogRequest, Heartbeat
from dodona_wire.messages.data import GenerateTimestamps, TimestampRange
from dodona_wire.types import TIMESTAMPS_PER_REQUEST_MAX, Now, Timestamp, unix_us_from_timestamp

_count_wrong = Failure(
    "invalid_request", f"The count of timestamps is 1 to {TIMESTAMPS_PER_REQUEST_MAX}."
)
_too_early = Failure(
    "unavailable",
    "the master has just started on another machine: it waits until the lease of the previous "
    "master ends, so retry later",
)


class MasterStatistics(msgspec.Struct, frozen=True):
    """What the master did since its start, and what it holds now."""

    request_count: int
    timestamp_count: int
    timestamp_request_count: int
    request_sizes: Histogram
    """How many timestamps each request got."""
    ceiling_count: int
    next_unused: int
    newest_us: int
    """`next_unused` as Unix time."""
    ceiling_durable: int
    ceiling_us: int
    """`ceiling_durable` as Unix time."""
    clock: ClockDifference
    """How far timestamps lay ahead of this machine's clock when they were given out."""
    catalog_request_count: int
    catalog_refused_by_kind: dict[str, int]
    catalog: CatalogStatistics


class MasterCore:
    """The core of a master. It takes `GenerateTimestamps` and every catalog request. Start one with
    `recover`."""

    def __init__(
        self,
        state: MasterState,
        now: Now,
        settings: AllocatorSettings | None = None,
        machine: str = "",
        fault_at: FaultAt = no_faults,
    ) -> None:
        """`machine` names the machine of this process. If the store names another machine, a
        process there may still use the store. If `machine` is empty, no other process can have the
        store."""
        self._effects: list[Effect] = []
        settings = settings or AllocatorSettings()
        self._fault_at = fault_at
        self._disk_shortage: str | None = None
        self._injects_faults = fault_at is not no_faults
        self._allocator = Allocator(state.ceiling, settings, fault_at)
        self._machine = machine
        self._is_alone = machine in ("", state.machine)
        self._alone_at_us = now.instant_us + (settings.takeover_us if state.machine else 0)
        self._request_count = self._timestamp_count = self._ceiling_count = 0
        self._catalog_request_count = 0
        self._catalog_refused_by_kind: dict[str, int] = {}
        self._request_sizes = Tally(COUNTS)
        self._raise_ceiling(self._allocator.prepare(now))
        self._catalog = Catalog(state, self._append, now, fault_at)
        self._heartbeats = Heartbeats(self._catalog)

    @classmethod
    def recover(
        cls,
        items: Iterable[Item],
        now: Now,
        settings: AllocatorSettings | None = None,
        machine: str = "",
        fault_at: FaultAt = no_faults,
    ) -> Self:
        """Return a master that continues from what a store holds. Raises DataCorrupted."""
        return cls(state_from_items(items), now, settings, machine, fault_at)

    def handle(self, route: Route, body: GenerateTimestamps | CatalogRequest, now: Now) -> None:
        """Handle one request. A wrong request is answered with a Failure."""
        self._request_count += 1
        if type(body) is GenerateTimestamps:
            self._generate(route, body, now)
        elif isinstance(body, CatalogRequest):
            self._catalog_request_count += 1
            reply = self._catalog_reply(body, now)
            if not (isinstance(body, Heartbeat) and self._heartbeats.hold(route, body, reply, now)):
                self._effects.append(ReplyTo(route, reply))
            self._effects += self._heartbeats.answers(now)
        else:
            error = InvalidRequest(f"A master does not answer {type(body).__name__}.")
            self._effects.append(ReplyTo(route, failure_of(error)))

    def handle_durable(self, record: Record, now: Now) -> None:
        """Note that this record, and all records before it, are durable."""
        if isinstance(record, Put) and (record.bucket, record.key) == (ORACLE, CEILING):
            self._allocator.acknowledge(Timestamp(decode_number(record.value)))

    def note_disk(self, shortage: str | None, _: Now) -> None:
        """Note why the disk has no space for new data, or None if it has. Until it has, changes of
        the catalog are refused. Timestamps, reads and heartbeats go on."""
        self._disk_shortage = shortage

    def tick(self, now: Now) -> None:
        """Renew the ceiling ahead of need, and end master transactions that no client pings."""
        self._raise_ceiling(self._allocator.renew(now))
        self._catalog.tick(now)
        self._effects += self._heartbeats.answers(now)

    def hold_no_heartbeats(self, _: Now) -> None:
        """Prepare a stop: answer the held heartbeats, and hold none from now on."""
        self._effects += self._heartbeats.close()

    def next_deadline(self) -> int | None:
        """Return when to call `tick` at the latest, as an instant in microseconds."""
        parts = (self._allocator, self._catalog, self._heartbeats)
        return min([at for it in parts if (at := it.next_deadline()) is not None], default=None)

    def take_effects(self) -> list[Effect]:
        """Return the effects to carry out, in order. Each is returned once."""
        effects, self._effects = self._effects, []
        return effects

    def statistics(self) -> MasterStatistics:
        """Return the current statistics."""
        sizes = self._request_sizes.read()
        return MasterStatistics(
            request_count=self._request_count,
            timestamp_count=self._timestamp_count,
            timestamp_request_count=sizes.count,
            request_sizes=sizes,
            ceiling_count=self._ceiling_count,
            next_unused=self._allocator.next_unused,
            newest_us=unix_us_from_timestamp(Timestamp(self._allocator.next_unused)),
            ceiling_durable=self._allocator.durable,
            ceiling_us=unix_us_from_timestamp(Timestamp(self._allocator.durable)),
            clock=self._allocator.ahead,
            catalog_request_count=self._catalog_request_count,
            catalog_refused_by_kind=dict(self._catalog_refused_by_kind),
            catalog=self._catalog.statistics(),
        )

    def why_not_ready(self, now: Now) -> str | None:
        """Return why the master would give out no timestamp now, or None if it would."""
        if not self._is_alone and now.instant_us < self._alone_at_us:
            return _too_early.message
        return self._allocator.why_none(now)

    def attendance(self, now: Now) -> Attendance:
        """Return which cells and proxies there are."""
        return self._catalog.attendance(now)

    def open_transactions(self, now: Now) -> list[OpenTransaction]:
        """Return the open master transactions, oldest first."""
        return self._catalog.open_transactions(now)

    def _generate(self, route: Route, body: GenerateTimestamps, now: Now) -> None:
        count, earlier_us = body.count, self._allocator.last_demand_us
        if not 0 < count <= TIMESTAMPS_PER_REQUEST_MAX:
            self._effects.append(ReplyAtOnce(route, _count_wrong))
            return
        if not self._is_alone and not self._outlive_predecessor(now):
            self._effects.append(ReplyAtOnce(route, _too_early))
            return
        grant = self._allocator.take(count, now)
        if body.is_idle:
            self._allocator.last_demand_us = earlier_us
        if grant is None:
            why = self._allocator.why_none(now) or USED_UP
            self._effects.append(ReplyAtOnce(route, Failure("unavailable", why)))
            return
        self._timestamp_count += count
        self._request_sizes.add(count)
        reply = TimestampRange(grant.first, count)
        if not grant.is_durable:
            self._raise_ceiling(grant.append)
            self._effects.append(ReplyTo(route, reply))
        elif self._injects_faults and self._fault_at(FaultPoint.ANSWER_BEHIND_APPEND):
            self._raise_ceiling(self._allocator.prepare(now))
            self._effects.append(ReplyTo(route, reply))
        else:
            self._effects.append(ReplyAtOnce(route, reply))
            self._raise_ceiling(self._allocator.renew(now))

    def _outlive_predecessor(self, now: Now) -> bool:
        """Return whether the predecessor's lease is over. Only then the store gets this machine's
        name: a restart before that must wait again."""
        self._is_alone = now.instant_us >= self._alone_at_us
        if self._is_alone:
            self._append(put_machine(self._machine))
        return self._is_alone

    def _raise_ceiling(self, ceiling: Timestamp | None) -> None:
        if ceiling is not None:
            self._ceiling_count += 1
            self._append(put_ceiling(ceiling))

    def _append(self, record: Record) -> None:
        self._effects.append(Append(record))

    def _catalog_reply(self, request: CatalogRequest, now: Now) -> CatalogReply:
        if self._fault_at(FaultPoint.MASTER_UNAVAILABLE):
            return Failure("unavailable", "The master can't answer catalog calls now. Retry.")
        try:
            if self._disk_shortage is not None and isinstance(request, GROWING):
                raise DiskFull(self._disk_shortage)
            return self._catalog.handle(request, now)
        except DodonaError as error:
            count = self._catalog_refused_by_kind.get(error.kind, 0)
            self._catalog_refused_by_kind[error.kind] = count + 1
            return failure_of(error)
