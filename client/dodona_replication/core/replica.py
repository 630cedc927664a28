"""The core of a log replica: it keeps the entries of many logs, and refuses old owners.

Owns: the rules of a replica. The owner of a log sends it the entries; a new owner fences the log
first. The core has only the tails of the logs: the store has the entries. Limits are in
`ReplicaLimits`.

Invariants:
- A log has one epoch. A request of another one changes nothing (R4).
- Each change is one record, before the answer that reports it (R7). A request that is refused makes
  no record.
- An owner reads only what is durable: the reading is behind all records (R7).
- A pong does not wait for the disk if the epoch is durable. It says only that no higher epoch was
  answered before. So a disk that stalls ends no lease.

R4 and so on are rules of the replication protocol. Must not import: any shell.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from heapq import nsmallest
from typing import Any, Final

import msgspec

from dodona_replication.core.document import check_name
from dodona_replication.core.entries import check_entries, check_epoch
from dodona_replication.core.records import (
    EntriesAdded,
    EntriesDropped,
    EpochRaised,
    LogBegun,
    LogCut,
    LogState,
    Record,
    Swept,
)
from dodona_replication.core.silence import MS, Silences
from dodona_replication.core.tail import NO_EPOCH
from dodona_wire.cores.effects import Append, Effect, ReadEntries, ReplyAtOnce, ReplyTo, Route
from dodona_wire.errors import DiskFull, DodonaError, InvalidRequest, LimitExceeded, Overloaded
from dodona_wire.messages.base import Failure, failure_of
from dodona_wire.messages.replicas import (
    PAGE_BYTES_MAX,
    SILENCE_MS_MAX,
    AlignLog,
    AwaitSilence,
    BeginLog,
    EntriesStored,
    EpochTooOld,
    FenceFirst,
    FenceLog,
    FetchEntries,
    LogAligned,
    LogEntries,
    LogFenced,
    LogMisaligned,
    LogPong,
    LogRequest,
    LogSilence,
    PingLog,
    ReplicaReply,
    StoreEntries,
    WrongReplica,
)
from dodona_wire.types import Now

REFUSALS: Final = (
    *("epoch_too_old", "fence_first", "misaligned", "wrong_replica"),
    *("disk_full", "invalid_request", "limit_exceeded", "overloaded"),
)
"""The kinds of refusals that are counted."""
ADDRESS_LENGTH_MAX: Final = 500
_COUNTED: Final[Mapping[type[Any], str]] = {
    EpochTooOld: "epoch_too_old",
    FenceFirst: "fence_first",
    LogMisaligned: "misaligned",
    WrongReplica: "wrong_replica",
}


class ReplicaLimits(msgspec.Struct, frozen=True):
    """What one replica grants the owners of its logs."""

    logs_max: int = 10_000
    """Logs of one replica. A fence that would make one more is refused."""
    waiters_max: int = 10_000
    """Candidates that may wait for the silence of an owner."""
    candidates_max: int = 256
    """Addresses of processes that stand by: the ones that asked last."""
    candidate_ms: int = 10_000
    """A process that has not asked for so long does not stand by any more."""


class ReplicaStatistics(msgspec.Struct, frozen=True):
    """What the replica did since its start, and what it has now."""

    log_count: int
    entry_count: int
    """Entries that all logs have now."""
    stored_count: int
    """Entries that were stored since the start, with those that were dropped again."""
    stored_bytes: int
    fence_count: int
    """How often a log got a higher epoch."""
    refused_by_kind: dict[str, int]
    waiter_count: int
    is_full: bool
    """Whether new entries are refused, because there is no space for them."""
    other_cluster_count: int
    """Requests that named another cluster."""


class LogSummary(msgspec.Struct, frozen=True):
    """One log of the replica."""

    log: str
    epoch: int
    first_index: int
    last_index: int
    owner_silent_ms: int
    """How long its owner has sent nothing to this replica. An owner that dropped the replica sends
    nothing, too. Since the start of this process, if the owner has sent nothing since."""


class ReplicaCore:
    """Takes the requests of owners and candidates, and answers each."""

    def __init__(
        self,
        cluster: str,
        replica: str,
        logs: Mapping[str, LogState],
        now: Now,
        limits: ReplicaLimits | None = None,
    ) -> None:
        """`logs` are those of the store, whose epochs and entries are durable. They belong to the
        core from now on. Every owner counts as heard now."""
        self._cluster = cluster
        self._replica = replica
        self._logs = dict(logs)
        self._limits = limits or ReplicaLimits()
        self._durable_epochs = {name: log.epoch for name, log in self._logs.items()}
        self._effects: list[Effect] = []
        self._silences = Silences()
        for name, log in self._logs.items():
            self._silences.hear(name, log.epoch, now.instant_us)
        self._asked_us_by_candidate: dict[str, int] = {}
        """When each process that stands by asked last, the newest last."""
        self._disk_shortage: str | None = None
        self._stored_count = self._stored_bytes = self._fence_count = 0
        self._other_cluster_count = 0
        self._refused_by_kind: Counter[str] = Counter()
        self._handlers: dict[type[Any], Callable[[Route, Any, LogState, Now], ReplicaReply | None]]
        self._handlers = {
            FetchEntries: self._fetch,
            AlignLog: self._align,
            StoreEntries: self._store,
            BeginLog: self._begin,
            PingLog: self._ping,
        }

    # Inputs

    def handle(self, route: Route, body: LogRequest, now: Now) -> None:
        """Handle one request. A wrong request is answered with a Failure, and changes nothing."""
        try:
            reply = self._reply(route, body, now)
        except DodonaError as error:
            reply = failure_of(error)
        if reply is None:
            return
        kind = reply.kind if type(reply) is Failure else _COUNTED.get(type(reply))
        if kind is not None:
            self._refused_by_kind[kind] += 1
        self._effects.append(ReplyTo(route, reply))

    def handle_durable(self, record: Record, _: Now) -> None:
        """Note that this record, and all records before it, are durable."""
        if type(record) is EpochRaised:
            self._durable_epochs[record.log] = record.epoch

    def note_disk(self, shortage: str | None, _: Now) -> None:
        """Note why there is no space for new entries, or None if there is. Until there is, requests
        with new entries are refused. All others go on."""
        self._disk_shortage = shortage

    def sweep(self, _: Now) -> None:
        """Let the store remove a part of what no log needs any more."""
        self._effects.append(Append(Swept()))

    def tick(self, now: Now) -> None:
        """Answer the candidates whose owners are silent, or that have waited for long enough."""
        self._effects += self._silences.due(now.instant_us)

    def finish(self, now: Now) -> None:
        """Answer all candidates, because the process stops."""
        self._effects += self._silences.close(now.instant_us)

    def next_deadline(self) -> int | None:
        """Return when to call `tick` at the latest, as an instant in microseconds."""
        return self._silences.next_deadline()

    def take_effects(self) -> list[Effect]:
        """Return the effects to carry out, in order. Each is returned once."""
        effects, self._effects = self._effects, []
        return effects

    def statistics(self) -> ReplicaStatistics:
        """Return the current statistics."""
        return ReplicaStatistics(
            log_count=len(self._logs),
            entry_count=sum(len(it.tail) for it in self._logs.values()),
            stored_count=self._stored_count,
            stored_bytes=self._stored_bytes,
            fence_count=self._fence_count,
            refused_by_kind={kind: self._refused_by_kind[kind] for kind in REFUSALS},
            waiter_count=self._silences.waiting_count,
            is_full=self._disk_shortage is not None,
            other_cluster_count=self._other_cluster_count,
        )

    def summaries(self, now: Now, count_max: int) -> list[LogSummary]:
        """Return the first logs by name."""
        owners = self._silences.owners
        return [
            LogSummary(
                name,
                log.epoch,
                log.tail.first_index,
                log.tail.last_index,
                owners[name].silence(now.instant_us).silence_ms,
            )
            for name, log in nsmallest(count_max, self._logs.items())
        ]

    def candidates(self, now: Now) -> list[str]:
        """Return the addresses of the processes that stand by here."""
        since_us = now.instant_us - self._limits.candidate_ms * MS
        return sorted(it for it, at in self._asked_us_by_candidate.items() if at >= since_us)

    # Requests

    def _reply(self, route: Route, body: LogRequest, now: Now) -> ReplicaReply | None:
        """Return the answer, or None if it comes in another way. Raises DodonaError."""
        if not isinstance(body, LogRequest):
            raise InvalidRequest(f"A log replica does not answer {type(body).__name__}.")
        if body.cluster != self._cluster:
            self._other_cluster_count += 1
            raise InvalidRequest(
                f"This replica is of cluster {self._cluster}. Use the replicas of your cluster.",
                cluster=body.cluster,
            )
        if body.replica != self._replica:
            return WrongReplica(self._replica)
        if type(body) is AwaitSilence:
            return self._await_silence(route, body, now)
        check_epoch(body.log, body.epoch)
        if type(body) is FenceLog:
            return self._fence(body, now)
        log = self._logs.get(body.log)
        if log is None or body.epoch > log.epoch:
            return FenceFirst(0 if log is None else log.epoch)
        if body.epoch < log.epoch:
            return EpochTooOld(log.epoch)
        self._effects += self._silences.hear(body.log, body.epoch, now.instant_us)
        return self._handlers[type(body)](route, body, log, now)

    def _fence(self, body: FenceLog, now: Now) -> ReplicaReply:
        """The epoch is in force immediately. The answer is behind its record (R4)."""
        log = self._logs.get(body.log)
        if log is None:
            self._check_room(check_name(body.log, "log"))
            log = self._logs[body.log] = LogState()
            self._durable_epochs[body.log] = 0
        if body.epoch < log.epoch:
            return EpochTooOld(log.epoch)
        if body.epoch > log.epoch:
            self._change(log, EpochRaised(body.log, body.epoch))
            self._fence_count += 1
        self._effects += self._silences.hear(body.log, body.epoch, now.instant_us)
        tail = log.tail
        return LogFenced(tail.first_index, tail.epoch_before, tail.last_indexes)

    def _fetch(
        self, route: Route, body: FetchEntries, log: LogState, _: Now
    ) -> ReplicaReply | None:
        if body.bytes_max < 1:
            raise InvalidRequest("Ask for one byte at least.", log=body.log)
        tail = log.tail
        if not tail.first_index <= body.first_index <= tail.last_index + 1:
            return _misaligned(log)
        if body.first_index > tail.last_index:
            return LogEntries(())
        page = (body.first_index, tail.last_index, body.epoch, min(body.bytes_max, PAGE_BYTES_MAX))
        self._effects.append(ReadEntries(route, body.log, *page))
        return None

    def _align(self, _: Route, body: AlignLog, log: LogState, __: Now) -> ReplicaReply:
        """Drop what differs from the owner's log. Entries of its own epoch do not differ (R10)."""
        tail = log.tail
        is_all = (body.index, body.entry_epoch) == (0, NO_EPOCH) and tail.first_index == 1
        if not is_all and not tail.has(body.index, body.entry_epoch):
            return _misaligned(log)
        if body.index < tail.last_index and tail.last_epoch < body.epoch:  # R10
            self._change(log, EntriesDropped(body.log, body.index))
        return LogAligned(tail.last_index)

    def _store(self, _: Route, body: StoreEntries, log: LogState, __: Now) -> ReplicaReply:
        tail = log.tail
        previous = body.previous_index, body.previous_epoch
        check_entries(body.log, body.epoch, previous, body.entries)
        if tail.epoch_at(body.previous_index) != body.previous_epoch:  # R9
            return _misaligned(log)
        known = [it for it in body.entries if it.index <= tail.last_index]
        if any(tail.epoch_at(it.index) != it.epoch for it in known):  # R9
            return _misaligned(log)
        if new := body.entries[len(known) :]:
            self._check_disk(body.log)
            self._count(new)
            self._change(log, EntriesAdded(body.log, new))
        if body.cut_index > tail.first_index and tail.has(body.cut_index, body.cut_epoch):  # R24
            self._change(log, LogCut(body.log, body.cut_index))
        return EntriesStored(body.previous_index + len(body.entries))

    def _begin(self, _: Route, body: BeginLog, log: LogState, __: Now) -> ReplicaReply:
        if not body.entries:
            raise InvalidRequest("A log begins with one entry at least.", log=body.log)
        first = body.entries[0]
        check_entries(body.log, body.epoch, (first.index - 1, body.previous_epoch), body.entries)
        tail = log.tail
        if tail.first_index > first.index:  # R25
            return _misaligned(log)
        if not tail.has(first.index, first.epoch):
            self._check_disk(body.log)
            self._count(body.entries)
            self._change(log, LogBegun(body.log, body.previous_epoch, body.entries))
        has = [log.tail.has(it.index, it.epoch) for it in body.entries]
        return EntriesStored(first.index + [*has, False].index(False) - 1)

    def _ping(self, route: Route, body: PingLog, log: LogState, now: Now) -> ReplicaReply | None:
        pong = LogPong(body.number, now.unix_us)
        if self._durable_epochs[body.log] < log.epoch:  # R4
            return pong
        self._effects.append(ReplyAtOnce(route, pong))
        return None

    def _await_silence(self, route: Route, body: AwaitSilence, now: Now) -> ReplicaReply | None:
        for name, value_ms in (("silence_ms", body.silence_ms), ("wait_ms", body.wait_ms)):
            if not 1 <= value_ms <= SILENCE_MS_MAX:
                text = f"{name} is between 1 and {SILENCE_MS_MAX} ms, not {value_ms}."
                raise InvalidRequest(text, log=body.log)
        self._note_candidate(body.address, now)
        owner = self._silences.owners.get(body.log)
        if owner is None:
            return LogSilence(0, 0)
        found = owner.silence(now.instant_us)
        if found.epoch != body.epoch or found.silence_ms >= body.silence_ms:
            self._effects.append(ReplyAtOnce(route, found))
        elif self._silences.waiting_count >= self._limits.waiters_max:
            raise Overloaded(
                f"{self._limits.waiters_max} candidates wait here already. Wait, then ask again.",
                log=body.log,
            )
        else:
            waits_us = body.silence_ms * MS, body.wait_ms * MS
            self._silences.wait(body.log, route, *waits_us, now.instant_us)
        return None

    # Steps

    def _note_candidate(self, address: str, now: Now) -> None:
        if not 0 < len(address) <= ADDRESS_LENGTH_MAX:
            return
        known = self._asked_us_by_candidate
        known.pop(address, None)
        known[address] = now.instant_us
        if len(known) > self._limits.candidates_max:
            del known[next(iter(known))]

    def _change(self, log: LogState, record: Record) -> None:
        log.apply(record)
        self._effects.append(Append(record))

    def _count(self, entries: tuple[Any, ...]) -> None:
        self._stored_count += len(entries)
        self._stored_bytes += sum(len(it.records) for it in entries)

    def _check_room(self, log: str) -> None:
        if len(self._logs) >= self._limits.logs_max:
            raise LimitExceeded(
                f"This replica has {self._limits.logs_max} logs, which is its limit. Use another "
                "replica for this one.",
                log=log,
            )

    def _check_disk(self, log: str) -> None:
        if self._disk_shortage is not None:
            raise DiskFull(self._disk_shortage, log=log)


def _misaligned(log: LogState) -> LogMisaligned:
    tail = log.tail
    return LogMisaligned(tail.first_index, tail.epoch_before, tail.last_indexes)
