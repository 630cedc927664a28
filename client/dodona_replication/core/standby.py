"""Wait for a log whose owner is silent, so that this process takes it over.

Owns: what a standby knows of each log. That is its document, and for how long the replicas of the
set have heard nothing of the owner. A standby reads the documents again and again, and waits at the
replicas (see `silence`). It ends when it has found a log.

Invariants:
- A silence proves nothing. The compare of the take-over decides (R1), so a wrong suspicion costs a
  pause and no data.
- A log is found only if its owner can't go on: so many members of the set are silent that the rest
  is below `copies_min`. A member that does not answer counts as silent beside one that is.
- A log is found only if this process could go on: it reaches `copies_min` replicas.
- A new owner has as much time to fence the replicas as an owner may be silent. A log that was given
  up has more time, so that a node that starts again gets it back.
- A log that could not be taken over is left alone for a pause (see `attempts`). After that, any
  other log that is found comes first.
- An owner that followed many others within half a minute has more time, and each further one twice
  as much. What starved the ones before may starve it, too: its start is the most work of all.
- A process that was woken late waits longer for an owner, by as much. They may share a machine, or
  a load, that is too much for both.
- A log of epoch 0 belongs to the process that makes it.

R1 and so on are rules of the replication protocol. Must not import: any shell.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

import msgspec

from dodona_replication.core.document import Revisioned
from dodona_replication.core.owner_effects import AskReplica
from dodona_wire.messages.replicas import AwaitSilence, LogSilence
from dodona_wire.types import Now


class StandbyLimits(msgspec.Struct, frozen=True):
    """Times of a standby."""

    silence_ms: int = 700
    """An owner that replicas have not heard for so long has failed."""
    silence_ms_max: int = 8_000
    """An owner that followed many others has failed after this silence at the latest."""
    owners_max: int = 4
    """So many owners may follow each other within half a minute. Each further one has twice the
    time."""
    wait_ms: int = 1_500
    """How long a replica lets the standby wait for its answer."""
    again_ms: int = 200
    """The pause before a replica is asked again that has reported a silence, or did not answer."""
    valid_ms: int = 1_000
    """How long a report of a silence counts."""
    documents_ms: int = 2_000
    """The pause before the documents are read again."""
    released_ms: int = 3_000
    """How long a log that its owner gave up is left to the node whose own log it is."""
    look_ms: int = 100
    """The pause before the process looks again whether it was woken in time."""
    late_ms_max: int = 2_000
    """By how much longer a standby waits at most because it was woken late itself."""
    late_valid_ms: int = 5_000
    """How long it counts that the standby was woken late."""


class Candidate(NamedTuple):
    """The process that stands by."""

    cluster: str
    prefix: str
    """Begins the names of the logs that it can host. A number follows."""
    address: str = ""
    """Where it can be reached, for people who look for it."""


class OwnLog(NamedTuple):
    """The log that this process prefers. It takes the log as soon as no process owns it."""

    log: str
    former_owner: str | None = None
    """The last process of this folder. The folder is locked, so it has ended."""


class FoundLog(NamedTuple):
    """A log to take over."""

    log: str
    seen: Revisioned | None
    """Its document. If another one is there by then, the log is not free any more. None: it had no
    document."""


class StandbyReport(NamedTuple):
    """What a process that stands by knows, in numbers."""

    log_count: int = 0
    """The logs whose owners it waits for."""
    left_alone_count: int = 0
    """The logs that it could not take over, and leaves alone for now."""
    reachable_count: int = 0
    """The replicas that answer."""
    late_us: int = 0
    """By how much longer it waits for owners, because it was woken late itself."""


class AskDocuments(msgspec.Struct, frozen=True):
    """Read the documents of all logs of the cluster."""


StandbyEffect = AskReplica | AskDocuments

NEVER_US: Final = -1
CONTRADICTIONS_MAX: Final = 2
"""Documents that are read after a replica has shown a higher epoch. One may have been older."""


class _Member:
    """A replica of a set, as a standby hears it."""

    __slots__ = ("ask_at_us", "away_at_us", "is_waiting", "silent_at_us")

    def __init__(self, now_us: int) -> None:
        self.ask_at_us = now_us
        self.is_waiting = False
        """Whether a request is under way."""
        self.away_at_us = NEVER_US
        """When it did not answer, if that was its last answer."""
        self.silent_at_us = NEVER_US
        """When it reported that the owner is silent, if that was its last answer."""


class _Watched:
    """A log and the members of its set."""

    __slots__ = ("contradictions", "has_higher_epoch", "members", "seen", "seen_at_us")

    def __init__(self, seen: Revisioned, now_us: int) -> None:
        self.has_higher_epoch = False
        """Whether a replica has a higher epoch than the document."""
        self.contradictions = 0
        """How many documents were read since then, all of this epoch."""
        self.seen = seen
        self.seen_at_us = now_us
        """When this epoch was seen first."""
        self.members = {it: _Member(now_us) for it in seen.document.members}


class Standby:
    """Waits for a log without an owner, until `found` is one."""

    def __init__(
        self,
        candidate: Candidate,
        limits: StandbyLimits,
        now: Now,
        own: OwnLog | None = None,
        since_us: int | None = None,
        may_take_at_us: Mapping[str, int] | None = None,
    ) -> None:
        """Begin to wait.

        - `since_us`: when this process began to stand by, as an instant. By default, that is now.
        - `may_take_at_us`: of logs that could not be taken over, when the pause ends, as instants.
        """
        self.found: FoundLog | None = None
        self.is_watching = False
        """Whether the documents have been read."""
        self._candidate = candidate
        self._limits = limits
        self._own = own
        self._since_us = now.instant_us if since_us is None else since_us
        self._may_take_at_us = dict(may_take_at_us or {})
        self._late_us = 0
        """By how much this process was woken late, the worst of the last time."""
        self._late_at_us = NEVER_US
        self._look_at_us = now.instant_us
        self._logs: dict[str, _Watched] = {}
        self._reachable: frozenset[str] = frozenset()
        self._read_at_us = now.instant_us
        self._is_reading = False
        self._effects: list[StandbyEffect] = []

    # ---- inputs

    def know(self, reachable: frozenset[str]) -> None:
        """Note which replicas answer, members of a set or not."""
        self._reachable = reachable

    def handle_documents(self, found: Mapping[str, Revisioned] | None, now: Now) -> None:
        """Take the documents of all logs, by log, or None if the coordinator is away."""
        limits = self._limits
        self._is_reading = False
        pause_ms = limits.again_ms if found is None else limits.documents_ms
        self._read_at_us = now.instant_us + pause_ms * 1000
        if found is None:
            return
        if not self.is_watching:
            self.is_watching = True
            if self._take_own(found):
                return
        before, self._logs = self._logs, {}
        for log, seen in found.items():
            if self._is_ours(log) and seen.document.epoch > 0:
                self._logs[log] = _following(before.get(log), seen, now.instant_us)
        self._doubt_own()

    def handle_reply(self, asked: AskReplica, reply: object, now: Now) -> None:
        """Take the answer of a replica, or a failure of the connection."""
        request: AwaitSilence = asked.request
        watched = self._logs.get(request.log)
        member = None if watched is None else watched.members.get(asked.replica)
        if self.found is not None or watched is None or member is None or not member.is_waiting:
            return
        self._note_lateness(now.instant_us)
        member.is_waiting = False
        if request.epoch != watched.seen.document.epoch:
            return  # the answer is about another owner: ask about this one
        now_us = now.instant_us
        member.away_at_us = member.silent_at_us = NEVER_US
        member.ask_at_us = now_us + self._limits.again_ms * 1000
        if not isinstance(reply, LogSilence):
            member.away_at_us = now_us
        elif reply.epoch > request.epoch:
            watched.has_higher_epoch = True
            self._read_soon(now)
        elif self._is_silent(request.log, watched, reply, now):
            member.silent_at_us = now_us
        elif reply.epoch == request.epoch and reply.silence_ms < self._limits.silence_ms:
            member.ask_at_us = now_us  # it has waited
        self._find(request.log, watched, now)

    def tick(self, now: Now) -> None:
        """Send what is due."""
        if self.found is not None:
            return
        self._note_lateness(now.instant_us)
        self._look_at_us = now.instant_us + self._limits.look_ms * 1000
        if not self._is_reading and now.instant_us >= self._read_at_us:
            self._is_reading = True
            self._effects.append(AskDocuments())
        for log, watched in self._logs.items():
            for replica, member in watched.members.items():
                if not member.is_waiting and now.instant_us >= member.ask_at_us:
                    member.is_waiting = True
                    self._effects.append(self._ask(log, watched, replica))

    def report(self, now: Now) -> StandbyReport:
        """Return what people may want to know."""
        left_alone = [it for it in self._may_take_at_us.values() if it > now.instant_us]
        return StandbyReport(
            len(self._logs), len(left_alone), len(self._reachable), self._late_us_by(now.instant_us)
        )

    def next_deadline(self) -> int | None:
        """Return the instant of the next `tick`, in µs, or None if only an input goes on."""
        if self.found is not None:
            return None
        due = [
            member.ask_at_us
            for watched in self._logs.values()
            for member in watched.members.values()
            if not member.is_waiting
        ]
        if not self._is_reading:
            due.append(self._read_at_us)
        return min([*due, self._look_at_us])

    def take_effects(self) -> list[StandbyEffect]:
        """Return the effects to carry out, in order. Each is returned once."""
        effects, self._effects = self._effects, []
        return effects

    # ---- steps

    def _is_ours(self, log: str) -> bool:
        prefix = self._candidate.prefix
        return log.startswith(prefix) and log.removeprefix(prefix).isdecimal()

    def _take_own(self, found: Mapping[str, Revisioned]) -> bool:
        """Find the own log if no process can own it now."""
        if self._own is None:
            return False
        log, former_owner = self._own
        seen = found.get(log)
        if seen is None or seen.document.released or seen.document.owner == former_owner:
            self.found = FoundLog(log, seen)
        return self.found is not None

    def _doubt_own(self) -> None:
        """Find the own log if its document is older than the log (R32). The take-over says so, and
        raises the alarm: to wait would hide it."""
        watched = None if self._own is None else self._logs.get(self._own.log)
        if self._own is None or watched is None or not watched.has_higher_epoch:
            return
        watched.contradictions += 1
        if watched.contradictions >= CONTRADICTIONS_MAX:
            self.found = FoundLog(self._own.log, watched.seen)

    def _ask(self, log: str, watched: _Watched, replica: str) -> AskReplica:
        limits, epoch = self._limits, watched.seen.document.epoch
        how = limits.silence_ms, limits.wait_ms, self._candidate.address
        return AskReplica(replica, AwaitSilence(self._candidate.cluster, log, replica, epoch, *how))

    def _is_silent(self, log: str, watched: _Watched, reply: LogSilence, now: Now) -> bool:
        """Return whether a replica has heard nothing of the owner for too long.

        An owner that has not fenced the replica yet is not heard there: its time began with its
        document. The log of another node is not silent for longer than this process stands by. So
        each node gets its own log after a start of all processes."""
        limits, document = self._limits, watched.seen.document
        silence_us = reply.silence_ms * 1000
        if reply.epoch != document.epoch:
            silence_us = now.instant_us - watched.seen_at_us
        late_us = self._late_us_by(now.instant_us)
        wait_ms = self._patience_ms(reply.owner_count)
        if self._own is not None and self._own.log == log:
            return silence_us >= wait_ms * 1000 + late_us
        if document.released:
            wait_ms = max(wait_ms, limits.released_ms)
        waited_us = min(silence_us, now.instant_us - self._since_us)
        return waited_us >= wait_ms * 1000 + late_us

    def _patience_ms(self, owner_count: int) -> int:
        """Return for how long an owner may be silent that followed so many others."""
        limits = self._limits
        doubled = max(0, owner_count - limits.owners_max)
        longest_ms = max(limits.silence_ms, limits.silence_ms_max)
        return min(limits.silence_ms << min(doubled, 16), longest_ms)

    def _is_lost(self, watched: _Watched, now: Now) -> bool:
        """Return whether the owner can't go on without the members that do not hear it, and this
        process could."""
        since_us = now.instant_us - self._limits.valid_ms * 1000
        members, copies_min = watched.members, watched.seen.document.copies_min
        silent = {name for name, it in members.items() if it.silent_at_us >= since_us}
        away = {name for name, it in members.items() if it.away_at_us >= since_us} - silent
        needed_count = len(members) - copies_min + 1
        is_stuck = len(silent) >= needed_count or len(silent) + len(away) == len(members)
        return bool(silent) and is_stuck and len(silent | self._reachable - away) >= copies_min

    def _find(self, log: str, watched: _Watched, now: Now) -> None:
        """Find the log that an answer is about, if it has no owner. Logs that could not be taken
        over come last."""
        failed = self._may_take_at_us
        if failed.get(log, 0) > now.instant_us or not self._is_lost(watched, now):
            return
        if log in failed:
            for other, it in self._logs.items():
                if other not in failed and self._is_lost(it, now):
                    log, watched = other, it
                    break
        self.found = FoundLog(log, watched.seen)

    def _note_lateness(self, now_us: int) -> None:
        """Note by how much later than due this process was woken. The owners of logs may have had
        to wait as long for the processor. If they did, replicas heard nothing meanwhile."""
        late_us = min(now_us - self._look_at_us, self._limits.late_ms_max * 1000)
        if late_us > self._late_us_by(now_us):
            self._late_us, self._late_at_us = late_us, now_us

    def _late_us_by(self, now_us: int) -> int:
        is_valid = now_us - self._late_at_us < self._limits.late_valid_ms * 1000
        return self._late_us if is_valid else 0

    def _read_soon(self, now: Now) -> None:
        at_us = now.instant_us + self._limits.again_ms * 1000
        self._read_at_us = min(self._read_at_us, at_us)


def _following(before: _Watched | None, seen: Revisioned, now_us: int) -> _Watched:
    """Return what is known of a log after its document was read again."""
    if before is None or before.seen.document.epoch != seen.document.epoch:
        return _Watched(seen, now_us)
    before.seen = seen
    members = before.members
    before.members = {it: members.get(it) or _Member(now_us) for it in seen.document.members}
    return before
