"""What the owner of a replicated log reports of its copies, and one line about it for people.

A node makes the report. Its metrics, the command line and the console are made of it. Pure.
Owns: the names of the fields, and that line. Each field has a default, because a node and its
reader may have different versions. Durations are in microseconds.
"""

from collections.abc import Iterator
from typing import Final

import msgspec

MEMBER: Final = "member"
LEARNER: Final = "learner"
SPARE: Final = "spare"
UNKNOWN: Final = "unknown"
ROLES: Final = (MEMBER, LEARNER, SPARE, UNKNOWN)
"""A member's copy counts. A learner is being copied to. A spare could learn. It is unknown which
replica is at an address that has not said so."""
AWAY_US: Final = 1_000_000
"""A replica that has left requests unanswered for so long is away."""
BEHIND_US: Final = 1_000_000
"""A member that lets an entry wait for so long is behind."""
COORDINATOR_AWAY_US: Final = 10_000_000
"""A sound coordinator says something every two seconds. If one of its members fails, the next one
is asked after five."""


class ReplicaState(msgspec.Struct, frozen=True):
    """The log replica at one address, as the owner of one log knows it."""

    address: str = ""
    """The address in the settings of the owner. The id, if no address is known for it."""
    role: str = UNKNOWN
    replica: str = ""
    """The id of the replica, which belongs to its disk. Empty if it is unknown."""
    lag_entries: int = 0
    """Entries of the log that it has not stored yet."""
    lag_us: int = 0
    """How long the oldest entry without an acknowledgement has waited for it."""
    silent_us: int = 0
    """How long it has left requests unanswered. A member is asked several times a second."""
    reason: str = ""
    """Why it is unknown."""

    @property
    def is_away(self) -> bool:
        return self.silent_us >= AWAY_US


class CopiesReport(msgspec.Struct, frozen=True):
    """The copies of one log."""

    log: str = ""
    owner: str = ""
    """The id of the process that owns the log."""
    epoch: int = 0
    """Rises by one with each take-over."""
    is_serving: bool = False
    """Whether the process owns the log and may take new work."""
    wanted_count: int = 0
    copies_min: int = 0
    """The smallest set that the log may have."""
    replicas: tuple[ReplicaState, ...] = ()
    """The replicas at all addresses of the settings, and members of the set that have none."""
    waiting_entries: int = 0
    """Entries that are not acknowledged."""
    joined_count: int = 0
    """How often a replica joined the set, since the process owns the log."""
    dropped_count: int = 0
    """How often a replica was dropped from it."""
    coordinator_silent_us: int = 0
    """How long the coordinator has not answered."""
    take_over_us: int | None = None
    """How long the process needed until it owned the log, from its first look at the document."""

    def of(self, *roles: str) -> tuple[ReplicaState, ...]:
        return tuple([it for it in self.replicas if it.role in roles])

    @property
    def counts_by_role(self) -> dict[str, int]:
        return {role: len(self.of(role)) for role in ROLES}

    @property
    def changes_by_kind(self) -> dict[str, int]:
        return {"joined": self.joined_count, "dropped": self.dropped_count}

    @property
    def lag_entries_by_address(self) -> dict[str, int]:
        return {it.address: it.lag_entries for it in self.of(MEMBER, LEARNER)}

    @property
    def lag_us_by_address(self) -> dict[str, int]:
        return {it.address: it.lag_us for it in self.of(MEMBER, LEARNER)}

    @property
    def silent_us_by_address(self) -> dict[str, int]:
        return {it.address: it.silent_us for it in self.replicas}

    @property
    def is_complete(self) -> bool:
        """Whether the log has all of the copies that it should have, and each is up to date."""
        return not any(self._troubles())

    @property
    def text(self) -> str:
        """Return one line about the copies, such as `2 of 3 copies: http://replica-1:8504 has not
        answered for 12 s`."""
        count = len([it for it in self.of(MEMBER) if not it.is_away])
        begin = f"{count} of {self.wanted_count} copies"
        return ": ".join([begin, *filter(None, ["; ".join(self._troubles())])])

    def _troubles(self) -> Iterator[str]:
        members = self.of(MEMBER)
        sound_count = len([it for it in members if not it.is_away])
        is_short = sound_count < self.wanted_count
        if not self.is_serving:
            yield "the log is not open"
        elif sound_count < self.copies_min:
            yield f"the cell waits, since it needs {self.copies_min}"
        for it in self.replicas:
            if it.role == UNKNOWN and is_short:
                yield f"{it.address} is not known ({it.reason or 'it was not asked yet'})"
            elif it.is_away and (it.role == MEMBER or is_short):
                yield f"{it.address} has not answered for {_seconds(it.silent_us)}"
            elif it.role == LEARNER:
                yield f"{it.address} is being copied to, and lacks {_entries(it.lag_entries)}"
            elif it.role == MEMBER and it.lag_us >= BEHIND_US:
                behind = f"{_entries(it.lag_entries)} and {_seconds(it.lag_us)}"
                yield f"{it.address} is {behind} behind"
        if self.coordinator_silent_us >= COORDINATOR_AWAY_US:
            yield f"etcd has not answered for {_seconds(self.coordinator_silent_us)}"


def _entries(count: int) -> str:
    return "1 entry" if count == 1 else f"{count} entries"


def _seconds(duration_us: int) -> str:
    return f"{duration_us // 1_000_000} s"
