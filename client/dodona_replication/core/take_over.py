"""Take over a log: from the document to a log that can be replayed.

Owns: the first steps of a failover. The compare raises the epoch. Then every member of the set is
fenced, the fullest log is taken, and its entries go to the host, which replays them. After that
`owner` goes on.

Invariants:
- Nothing is fenced before the compare is known to be applied (R3).
- Entries are read only after the fence, from a member of the set (R5, R6).
- The wait begins when the first answer to a fence has come (R21). A released log needs no wait
  (R31).
- A fenced replica hears from this process again and again. Otherwise it would report a silence
  while a long log is read, and another process would take the log over.

Must not import: any shell.
"""

from dodona_replication.core.alignment import fullest, tail_of
from dodona_replication.core.claimant import Claimant
from dodona_replication.core.document import Revisioned
from dodona_replication.core.owner_effects import (
    AskCoordinator,
    AskReplica,
    Identity,
    OwnerLimits,
    Replay,
)
from dodona_replication.core.ownership import Ownership
from dodona_replication.core.tail import Tail
from dodona_wire.messages.base import Failure
from dodona_wire.messages.replicas import (
    EpochTooOld,
    FenceLog,
    FetchEntries,
    LogEntries,
    LogFenced,
    LogMisaligned,
    LogRequest,
    PingLog,
)
from dodona_wire.types import Now


class TakeOver(Claimant):
    """One attempt to own a log, in one epoch. It is over when `is_recovered` or `is_ended`."""

    def __init__(self, identity: Identity, seen: Revisioned, limits: OwnerLimits, now: Now) -> None:
        """`seen` is the document as it was read. Sends the compare."""
        super().__init__(identity, limits, Ownership(seen))
        self.tails: dict[str, Tail] = {}
        """What the fenced members have."""
        self.source: str | None = None
        """The member whose log is taken. If it gives no entries, another one is asked."""
        self.serve_from_us: int | None = None
        """The end of the wait for the lease of the owner before. None: no member is fenced yet."""
        self.is_recovered = False
        self._was_released = seen.document.released
        self._choose_at_us: int | None = None
        self._first_index = self._next_index = 0
        self._repeat_at_us: int | None = None
        self._ping_at_us: int | None = None
        self._ping_number = 0
        compare = self.ownership.propose(seen.document.take_over(identity.owner))
        self.epoch = compare.document.epoch
        self._effects.append(AskCoordinator(compare))

    @property
    def tail(self) -> Tail:
        """The log that was taken."""
        assert self.source is not None
        return self.tails[self.source]

    def next_deadline(self) -> int | None:
        """Return the instant of the next `tick`, in µs."""
        if self.is_recovered or self.is_ended:
            return None
        due = self._repeat_at_us, self._choose_at_us, self._ping_at_us
        return min([it for it in due if it is not None], default=None)

    def tick(self, now: Now) -> None:
        if self.is_recovered or self.is_ended:
            return
        if self._choose_at_us is not None and now.instant_us >= self._choose_at_us:
            self._choose(now)
        if self._repeat_at_us is not None and now.instant_us >= self._repeat_at_us:
            self._repeat_at_us = None
            self._repeat(now)
        if self._ping_at_us is not None and now.instant_us >= self._ping_at_us:
            self._ping(now)

    def _ping(self, now: Now) -> None:
        self._ping_number += 1
        self._effects += [self._ask(it, PingLog, self._ping_number) for it in self.tails]
        self._ping_at_us = now.instant_us + self.limits.ping_ms * 1000

    # ---- the document

    def _change(self, now: Now, *, is_over: bool) -> None:
        if self.is_ended:
            return
        if is_over:
            self._repeat(now)
        elif self.ownership.pending is not None:
            self._repeat_later(now)

    # ---- the replicas

    def handle_reply(self, asked: AskReplica, reply: object, sent_us: int, now: Now) -> None:
        """Take the answer of a replica, or a failure of the connection."""
        if self.is_ended or self.is_recovered:
            return
        match asked.request, reply:
            case _, EpochTooOld(epoch=epoch):
                reason = f"replica {asked.replica} has epoch {epoch} of this log already"
                self._end(reason, is_too_old=True)
            case FenceLog(), LogFenced():
                self._take_fence(asked.replica, reply, now)
            case FetchEntries(), LogEntries() if asked.replica == self.source:
                self._take_entries(reply)
            case PingLog(), _:
                pass
            case FetchEntries(), LogMisaligned():
                self._end(f"replica {asked.replica} has lost entries that it had")
            case FetchEntries(), Failure() if asked.replica == self.source:
                self._change_source()
                self._repeat_later(now)
            case _:
                self._repeat_later(now)

    def _take_fence(self, replica: str, found: LogFenced, now: Now) -> None:
        if self.source is not None or replica not in self.ownership.members:
            return
        self.tails[replica] = tail_of(found)
        if self.serve_from_us is None:
            wait_us = 0 if self._was_released else self.limits.wait_us
            self.serve_from_us = now.instant_us + wait_us
            self._choose_at_us = now.instant_us + self.limits.choose_ms * 1000
            self._ping_at_us = now.instant_us + self.limits.ping_ms * 1000
        if len(self.tails) == len(self.ownership.members):
            self._choose(now)

    def _choose(self, now: Now) -> None:
        self._choose_at_us = None
        self.source = fullest(self.tails)
        self._first_index = self._next_index = self.tail.first_index
        self._repeat(now)

    def _change_source(self) -> None:
        """Go on with the next fenced member whose log begins with what was replayed, so that it is
        that member's log which is taken (R6). It may be the same one."""
        assert self.source is not None
        names = sorted(self.tails)
        place = names.index(self.source) + 1
        able = [it for it in (*names[place:], *names[:place]) if self._goes_on(self.tails[it])]
        self.source = able[0]
        if self._next_index == self._first_index:  # nothing was replayed
            self._first_index = self._next_index = self.tail.first_index

    def _goes_on(self, tail: Tail) -> bool:
        if self._next_index == self._first_index:
            return True
        last_index = self._next_index - 1
        is_long = tail.first_index <= self._first_index
        return is_long and tail.epoch_at(last_index) == self.tail.epoch_at(last_index)

    def _take_entries(self, found: LogEntries) -> None:
        entries = [it for it in found.entries if it.index >= self._next_index]
        if not entries or entries[0].index != self._next_index:
            return  # the answer to a request that was repeated
        self._next_index = entries[-1].index + 1
        self._effects.append(Replay(tuple(entries)))
        self._read()

    def _repeat(self, now: Now) -> None:
        """Ask for what is missing."""
        pending = self.ownership.pending
        if pending is not None:
            self._effects.append(AskCoordinator(pending))
        elif self.source is None:
            missing = [it for it in self.ownership.members if it not in self.tails]
            self._effects += [self._ask(it, FenceLog) for it in missing]
            self._repeat_later(now)
        else:
            self._read()

    def _read(self) -> None:
        if self._next_index > self.tail.last_index:
            self.is_recovered = True
            return
        assert self.source is not None
        self._effects.append(self._ask(self.source, FetchEntries, self._next_index))

    def _ask(self, replica: str, kind: type[LogRequest], *fields: int) -> AskReplica:
        cluster, log, _ = self.identity
        return AskReplica(replica, kind(cluster, log, replica, self.epoch, *fields))

    def _repeat_later(self, now: Now) -> None:
        if self._repeat_at_us is None:
            self._repeat_at_us = now.instant_us + self.limits.repeat_ms * 1000
