"""Own a log: send its entries to the replicas, and acknowledge what all of them have stored.

Owns: one epoch of one log, from its recovery on (see `take_over`) to its end. The host appends
records, and hears what is acknowledged. It asks `may_read` before it answers anything that is not
behind an acknowledged entry.

Invariants:
- An entry is acknowledged, in order, when every replica of every possible set has stored it (R12).
- The first entry of an epoch is its opening record. Nothing is acknowledged before it (R11).
- The owner reads within a lease, which every replica of every possible set has granted (R18, R19).
- A member is dropped by a change of the document, and only if the set may lose it (R13, R14). A
  learner counts from before the change is sent (R16).
- After the release was sent, or after the end, nothing is acknowledged or read (R31, R32).

Must not import: any shell.
"""

from collections import deque
from collections.abc import Iterable, Mapping, Sequence

from dodona_replication.core.alignment import common_index, tail_of
from dodona_replication.core.claimant import Claimant
from dodona_replication.core.copy import Copy
from dodona_replication.core.document import MEMBERS_MAX, Document
from dodona_replication.core.entries import make_entry
from dodona_replication.core.owner_effects import ANSWERS, Acknowledged, AskCoordinator, AskReplica
from dodona_replication.core.recent import Recent
from dodona_replication.core.take_over import TakeOver
from dodona_wire.errors import DiskFull
from dodona_wire.messages.base import Failure
from dodona_wire.messages.replicas import (
    AlignLog,
    BeginLog,
    EntriesStored,
    Entry,
    EpochTooOld,
    FenceFirst,
    FenceLog,
    FetchEntries,
    LogAligned,
    LogEntries,
    LogFenced,
    LogMisaligned,
    LogRequest,
    PingLog,
    StoreEntries,
    WrongReplica,
)
from dodona_wire.types import Now


class Owner(Claimant):
    """The owner of a log, in one epoch."""

    def __init__(self, taken: TakeOver, opening: bytes, now: Now) -> None:
        """`taken` is a take-over that is recovered. `opening` is the opening record."""
        assert taken.is_recovered
        assert taken.serve_from_us is not None
        super().__init__(taken.identity, taken.limits, taken.ownership)
        self.epoch = taken.epoch
        self.opening_index = taken.tail.last_index + 1
        self.acknowledged_index = 0
        self.is_releasing = False
        self._serve_from_us = taken.serve_from_us
        self._told_index = 0
        """Up to here the host knows what is acknowledged."""
        self._tail = taken.tail.copy()
        self._cut: tuple[int, int] = (0, 0)
        self._spares: tuple[str, ...] = ()
        self._wanted = MEMBERS_MAX
        self._learner: str | None = None
        self._compare_at_us: int | None = None
        self._ping_number = 0
        self._awake_us = now.instant_us
        """When this process had its last input."""
        self._waiting = deque([(self.opening_index, now.instant_us)])
        first = self._entry(opening)
        self._recent = Recent(first, self.limits.kept_bytes_max)
        self._tail.extend([first])
        self._copies: dict[str, Copy] = {}
        for replica in self.ownership.members:
            self._meet(replica, now)

    # ---- what the host does

    @property
    def first_index(self) -> int:
        return self._tail.first_index

    @property
    def last_index(self) -> int:
        return self._recent.last_index

    @property
    def document(self) -> Document:
        return self.ownership.document

    @property
    def copies(self) -> Mapping[str, Copy]:
        """The members of the set, and the learner, by their ids."""
        return self._copies

    @property
    def waiting(self) -> Sequence[tuple[int, int]]:
        """The entries that are not acknowledged, and the instants at which they were appended."""
        return self._waiting

    def is_open(self, now: Now) -> bool:
        """Return whether the host may take new work: the opening record is acknowledged, and the
        wait is over (R11, R21)."""
        is_alive = not self.is_ended and not self.is_releasing
        is_opened = self.acknowledged_index >= self.opening_index
        return is_alive and is_opened and now.instant_us >= self._serve_from_us

    def may_read(self, now: Now) -> bool:
        """Return whether the host may answer now from acknowledged state, what it was asked before
        (R19)."""
        return self.is_open(now) and now.instant_us < self.lease_until_us()

    def may_read_since(self, since_us: int, now: Now) -> bool:
        """As `may_read`, for what the host was asked at this instant. Without a lease, all replicas
        must have answered something that was sent later (R22)."""
        return self.may_read(now) or (self.is_open(now) and self._answered_us() >= since_us)

    def lease_until_us(self) -> int:
        """Return the end of the lease as an instant in µs."""
        return self._answered_us() + self.limits.lease_us

    def _answered_us(self) -> int:
        """Return an instant after which every replica of every possible set has answered something
        that was sent then, or later. Negative: some have answered nothing."""
        return min([self._copies[it].answered_us for it in self.ownership.counted])

    def ping(self, now: Now) -> None:
        """Ask all replicas for an answer, since the host waits to read."""
        if self.is_ended:
            return
        for replica, copy in self._copies.items():
            self._nudge(replica, copy, now)

    def missed(self, now: Now) -> tuple[str, ...]:
        """Return the silent members without which nothing can be acknowledged or read, since the
        set may not lose so many (R14). Empty if it may: it loses them soon."""
        silent = [it for it in self.ownership.members if self._is_silent(self._copies[it], now)]
        document = self.document
        is_enough = len(document.members) - len(silent) >= document.copies_min
        return () if is_enough else tuple(silent)

    def append(self, records: bytes, now: Now) -> int:
        """Add an entry to the log, and return its index. It is safe once it is acknowledged."""
        assert not self.is_ended
        assert not self.is_releasing
        entry = self._entry(records)
        self._recent.add(entry)
        self._tail.extend([entry])
        self._waiting.append((entry.index, now.instant_us))
        self._send_all(now)
        return entry.index

    def cut(self, index: int, now: Now) -> None:
        """Drop what is before an acknowledged entry that has a checkpoint (R24)."""
        assert self._tail.first_index <= index <= self.acknowledged_index
        epoch = self._tail.epoch_at(index)
        assert epoch is not None
        self._tail.cut_before(index)
        self._cut = index, epoch
        for replica, copy in self._copies.items():
            if copy.is_aligned and copy.stored_index >= index:
                self._ask(replica, self._store(replica, copy.next_index, ()), now)

    def offer(self, spares: Iterable[str], now: Now, wanted: int = MEMBERS_MAX) -> None:
        """Name replicas that may join the set while it has fewer than `wanted`."""
        self._spares, self._wanted = tuple(spares), wanted
        self._learn(now)

    def release(self, now: Now) -> None:
        """Give the log up. Call this once all that was appended is acknowledged. After this call
        nothing is read, even if the coordinator refuses the release (R31)."""
        assert self.acknowledged_index == self.last_index
        self.is_releasing = True
        if self.ownership.pending is None:
            self._compare(self.document.release())

    # ---- the document

    def _change(self, now: Now, *, is_over: bool) -> None:
        if self.is_ended:
            return
        if not is_over:
            if self.ownership.pending is not None and self._compare_at_us is None:
                self._compare_at_us = now.instant_us + self.limits.repeat_ms * 1000
            return
        self._compare_at_us = None
        if self.document.released:
            self._end("the log was released")
            return
        if self._learner in self.ownership.members:
            self._learner = None
        kept = {*self.ownership.members, self._learner}
        self._copies = {it: copy for it, copy in self._copies.items() if it in kept}
        self._advance(now)
        if self.is_releasing:
            self._compare(self.document.release())

    def _compare(self, document: Document) -> None:
        self._effects.append(AskCoordinator(self.ownership.propose(document)))

    # ---- time

    def next_deadline(self) -> int | None:
        """Return the instant of the next `tick`, in µs. None: there is none."""
        if self.is_ended:
            return None
        due = [it.asked_us + self._pause_us(it) for it in self._copies.values()]
        if self._compare_at_us is not None:
            due.append(self._compare_at_us)
        if self._told_index < self.opening_index <= self.acknowledged_index:
            due.append(self._serve_from_us)
        return min(due, default=None)

    def tick(self, now: Now) -> None:
        if self.is_ended:
            return
        self._wake(now)
        if self._compare_at_us is not None and now.instant_us >= self._compare_at_us:
            self._compare_at_us = None
            if (pending := self.ownership.pending) is not None:
                self._effects.append(AskCoordinator(pending))
        self._tell(now)
        for replica, copy in self._copies.items():
            if now.instant_us >= copy.asked_us + self._pause_us(copy):
                self._nudge(replica, copy, now)
        self._drop_one(now)
        self._learn(now)

    def _pause_us(self, copy: Copy) -> int:
        limits = self.limits
        return 1000 * (limits.ping_ms if copy.is_aligned else limits.repeat_ms)

    def _nudge(self, replica: str, copy: Copy, now: Now) -> None:
        """Ask a replica for anything, or again for what it did not answer."""
        if not copy.is_aligned:
            self._ask(replica, self._request(replica, FenceLog), now)
            return
        self._ping_number += 1
        self._ask(replica, self._request(replica, PingLog, self._ping_number), now)
        self._send(replica, copy, now)

    # ---- the set

    def _drop_one(self, now: Now) -> None:
        """Drop the member that has been silent for longest, if any was for too long. Or else the
        one that is furthest behind, if an entry has waited for it for too long."""
        copies = {it: self._copies[it] for it in self.ownership.members}
        replica = min(copies, key=lambda it: (copies[it].heard_us, it))
        if not self._is_silent(copies[replica], now):
            replica = min(copies, key=lambda it: (copies[it].stored_index, it))
            if not self._is_slow(copies[replica], now):
                return
        if self.ownership.can_drop(replica) and not self.is_releasing:
            self._compare(self.document.with_members(self.ownership.without(replica)))

    def _is_silent(self, copy: Copy, now: Now) -> bool:
        """Return whether a replica has answered nothing for too long, while this process ran."""
        until_us = min(now.instant_us, self._awake_us + self._pause_us_max)
        return until_us - copy.heard_us >= self.limits.silent_ms * 1000

    @property
    def _pause_us_max(self) -> int:
        """A longer pause between two inputs means that this process stood still."""
        return 2000 * max(self.limits.ping_ms, self.limits.repeat_ms)

    def _wake(self, now: Now) -> None:
        """Count no silence of replicas while this process stood still: their answers wait."""
        stood_us = now.instant_us - self._awake_us - self._pause_us_max
        self._awake_us = now.instant_us
        if stood_us > 0:
            for copy in self._copies.values():
                copy.heard_us += stood_us

    def _is_slow(self, copy: Copy, now: Now) -> bool:
        """Return whether an entry has waited for this replica for long, and another one has it."""
        if not self._waiting:
            return False
        index, since_us = self._waiting[0]
        is_late = now.instant_us - since_us >= self.limits.slow_ms * 1000
        stored = [self._copies[it].stored_index for it in self.ownership.members]
        return is_late and copy.stored_index < index <= max(stored)

    def _learn(self, now: Now) -> None:
        """Take a learner, or propose it once it has all that is acknowledged (R15)."""
        if self.is_ended or self.is_releasing or self.ownership.pending is not None:
            return
        members = self.ownership.members
        if self._learner is None:
            fresh = [it for it in self._spares if it not in members]
            if fresh and (len(members) < self._wanted or self.missed(now)):
                self._learner = fresh[0]
                self._meet(fresh[0], now)
            return
        copy = self._copies[self._learner]
        if self._is_silent(copy, now):
            self._forget_learner()
        elif copy.stored_index >= max(self.acknowledged_index, self.opening_index):
            self._compare(self.document.with_members([*members, self._learner]))

    def _forget_learner(self) -> None:
        """It is silent, or has no space: another one may be better."""
        assert self._learner is not None
        if self.ownership.pending is not None:  # it may be a member already
            return
        del self._copies[self._learner]
        at = self._spares.index(self._learner) + 1 if self._learner in self._spares else 0
        self._spares = self._spares[at:] + self._spares[:at]
        self._learner = None

    def _meet(self, replica: str, now: Now) -> None:
        self._copies[replica] = Copy(now.instant_us)
        self._ask(replica, self._request(replica, FenceLog), now)

    # ---- answers of replicas

    def handle_reply(self, asked: AskReplica, reply: object, sent_us: int, now: Now) -> None:
        """Take the answer of a replica, or a failure of the connection."""
        copy = self._copies.get(asked.replica)
        if self.is_ended or copy is None:
            return
        self._wake(now)
        if isinstance(asked.request, (StoreEntries, BeginLog)):
            copy.unanswered = max(0, copy.unanswered - 1)
        if isinstance(reply, ANSWERS):
            copy.hear(sent_us, now.instant_us)
        if isinstance(reply, EpochTooOld):  # nothing is answered any more (R32)
            epochs = f"epoch {reply.epoch}, and this process owned epoch {self.epoch}"
            self._end(f"replica {asked.replica} has {epochs}", is_too_old=True)
        elif isinstance(asked.request, FetchEntries):
            self._pass_on(asked, reply, now)
        elif isinstance(reply, (LogFenced, LogMisaligned)):
            self._take_tail(asked.replica, copy, reply, now)
        elif isinstance(asked.request, (AlignLog, StoreEntries, BeginLog)):
            self._take_change(asked, copy, reply, now)
        elif isinstance(reply, FenceFirst | WrongReplica):
            copy.part(None)

    def _take_tail(
        self, replica: str, copy: Copy, reply: LogFenced | LogMisaligned, now: Now
    ) -> None:
        if isinstance(reply, LogMisaligned):  # `tick` fences it again, after a pause
            copy.part(None)
        elif not copy.is_aligned:
            copy.part(tail_of(reply))
            self._realign(replica, now)

    def _take_change(self, asked: AskReplica, copy: Copy, reply: object, now: Now) -> None:
        """Take the answer to a request that changes the log of a replica."""
        match asked.request, reply:
            case AlignLog(index=index), LogAligned(last_index=last_index):
                self._take_aligned(asked.replica, copy, index, last_index, now)
            case StoreEntries(), EntriesStored(index=index):
                copy.store(index)
                self._advance(now)
                self._send(asked.replica, copy, now)
                self._learn(now)
            case BeginLog(), EntriesStored():
                copy.part(None)
                self._ask(asked.replica, self._request(asked.replica, FenceLog), now)
            case _, Failure(kind=DiskFull.kind) if asked.replica == self._learner:
                copy.part(None)
                self._forget_learner()
            case _:
                copy.part(None)  # whether it was done is not known: `tick` fences it again

    def _take_aligned(
        self, replica: str, copy: Copy, index: int, last_index: int, now: Now
    ) -> None:
        if copy.is_aligned:
            return  # the answer to a request that was repeated
        if last_index != index:  # it kept entries of this epoch: look again
            self._ask(replica, self._request(replica, FenceLog), now)
            return
        copy.align(index)
        self._send(replica, copy, now)

    def _realign(self, replica: str, now: Now) -> None:
        """Make the log of a replica a beginning of this log."""
        copy = self._copies[replica]
        assert copy.tail is not None
        index = common_index(self._tail, copy.tail)
        if index is None:
            self._copy_to(replica, self._tail.first_index, now)
        elif index == copy.tail.last_index:
            copy.align(index)
            self._advance(now)
            self._send(replica, copy, now)
        else:
            epoch = self._tail.epoch_at(index)
            assert epoch is not None
            self._ask(replica, self._request(replica, AlignLog, index, epoch), now)

    def _advance(self, now: Now) -> None:
        """Acknowledge what all replicas of all possible sets have stored."""
        index = min([self._copies[it].stored_index for it in self.ownership.counted])
        if index >= self.opening_index and index > self.acknowledged_index:
            self.acknowledged_index = index
            self._recent.acknowledge(index)
            while self._waiting and self._waiting[0][0] <= index:
                self._waiting.popleft()
            self._tell(now)

    def _tell(self, now: Now) -> None:
        """Tell the host what is acknowledged. Not before the end of the wait: the owner before may
        still read, and does not know what this owner has recovered (R21)."""
        if self.acknowledged_index > self._told_index and self.is_open(now):
            self._told_index = self.acknowledged_index
            self._effects.append(Acknowledged(self._told_index))

    # ---- entries

    def _send_all(self, now: Now) -> None:
        for replica, copy in self._copies.items():
            self._send(replica, copy, now)

    def _send(self, replica: str, copy: Copy, now: Now) -> None:
        """Send a replica the entries that it lacks."""
        if not copy.is_aligned or copy.copying:
            return
        if copy.next_index < self._tail.first_index:
            copy.part(None)  # what it needs next is cut: it begins anew
            return
        if copy.next_index < self._recent.first_index:
            self._copy_to(replica, copy.next_index, now)
            return
        limits = self.limits
        while copy.next_index <= self.last_index and copy.unanswered < limits.window_max:
            entries = self._recent.page(copy.next_index, limits.page_bytes_max)
            self._ask(replica, self._store(replica, copy.next_index, entries), now)
            copy.next_index = entries[-1].index + 1

    def _store(self, replica: str, first_index: int, entries: Sequence[Entry]) -> StoreEntries:
        epoch = self._tail.epoch_at(first_index - 1)
        assert epoch is not None
        cluster, log, _ = self.identity
        return StoreEntries(
            cluster, log, replica, self.epoch, first_index - 1, epoch, tuple(entries), *self._cut
        )

    def _copy_to(self, replica: str, first_index: int, now: Now) -> None:
        """Read entries for a replica that is far behind, from one that has them."""
        able = [
            it
            for it in sorted(self.ownership.members)
            if it != replica and self._copies[it].holds_index >= first_index
        ]
        if able:
            source = able[self._ping_number % len(able)]
            self._copies[replica].copying = True
            self._ask(source, self._request(source, FetchEntries, first_index), now, replica)

    def _pass_on(self, asked: AskReplica, reply: object, now: Now) -> None:
        """Send entries that were read to the replica that lacks them."""
        replica = asked.for_replica
        copy = None if replica is None else self._copies.get(replica)
        if replica is None or copy is None or not copy.copying:
            return
        copy.copying = False
        if not isinstance(reply, LogEntries) or not self._are_ours(reply.entries):
            return  # `tick` tries again
        first = reply.entries[0].index
        if copy.is_aligned and first == copy.next_index:
            copy.next_index = reply.entries[-1].index + 1
            self._ask(replica, self._store(replica, first, reply.entries), now)
        elif not copy.is_aligned and first == self._tail.first_index:
            cluster, log, _ = self.identity
            before = self._tail.epoch_before
            request = BeginLog(cluster, log, replica, self.epoch, before, reply.entries)
            self._ask(replica, request, now)

    def _are_ours(self, entries: Sequence[Entry]) -> bool:
        """Return whether all of these are entries of this log."""
        return bool(entries) and all(self._tail.has(it.index, it.epoch) for it in entries)

    def _entry(self, records: bytes) -> Entry:
        return make_entry(self._tail.last_index + 1, self.epoch, records)

    def _request(self, replica: str, kind: type[LogRequest], *fields: int) -> LogRequest:
        cluster, log, _ = self.identity
        return kind(cluster, log, replica, self.epoch, *fields)

    def _ask(
        self, replica: str, request: LogRequest, now: Now, for_replica: str | None = None
    ) -> None:
        copy = self._copies.get(replica)
        if copy is not None:
            copy.asked_us = now.instant_us
            copy.unanswered += isinstance(request, (StoreEntries, BeginLog))
        self._effects.append(AskReplica(replica, request, for_replica))
