"""What an owner of a log asks its shell to do, its limits, and its name.

Owns: the effects of a take-over and of an owner. The shell carries them out in order, and passes
each answer back. An effect that fails is answered with a `Failure`, so no answer is ever missing.

Must not import: any shell.
"""

from typing import Any, Final, NamedTuple

import msgspec

from dodona_replication.core.coordination import Compare
from dodona_replication.core.document import Revisioned
from dodona_wire.messages.replicas import (
    PAGE_BYTES_MAX,
    EntriesStored,
    Entry,
    LogAligned,
    LogEntries,
    LogFenced,
    LogMisaligned,
    LogPong,
)

ANSWERS: Final = (LogFenced, LogAligned, EntriesStored, LogMisaligned, LogPong, LogEntries)
"""Answers of a replica that has the epoch of the owner: each of them renews the lease."""


class Identity(NamedTuple):
    """The log, and the process that owns it."""

    cluster: str
    log: str
    owner: str
    """The id of the process (see `document.owner_id`)."""


class OwnerLimits(msgspec.Struct, frozen=True):
    """Times and sizes of a replicated log. All processes of a cluster have the same lease."""

    lease_ms: int = 750
    """How long the owner may answer reads after it sent a request that all replicas answered. 0, if
    the clock may stand still: then each read waits for such answers (R22)."""
    ping_ms: int = 150
    """The pause between two requests to a replica is never longer."""
    silent_ms: int = 700
    """A replica that has not answered for so long is dropped, if the set may lose it."""
    slow_ms: int = 1_500
    """A replica that has not stored an entry for so long is dropped, too, if others have it."""
    repeat_ms: int = 100
    """The pause before a fence or a compare without an answer is sent again."""
    choose_ms: int = 20
    """How long a new owner waits for other members after the first one is fenced."""
    window_max: int = 8
    """Requests with entries that may be on their way to one replica."""
    page_bytes_max: int = PAGE_BYTES_MAX
    """Bytes of records in one request, if it has more than one entry."""
    kept_bytes_max: int = 8 << 20
    """Bytes of acknowledged records that are kept for replicas that come a little later."""

    @property
    def lease_us(self) -> int:
        return self.lease_ms * 1000

    @property
    def wait_us(self) -> int:
        """How long a new owner waits: longer than any lease, even if clocks differ by 1 % (R21).
        Without leases it does not wait (R22)."""
        return self.lease_us + self.lease_us // 100 + 5_000 if self.lease_us else 0


class AskReplica(msgspec.Struct, frozen=True):
    """Send a request to a replica. Its answer comes back with all of this, and with the instant at
    which it was sent."""

    replica: str
    request: Any
    for_replica: str | None = None
    """Entries are read for this replica, which lacks them."""


class AskCoordinator(msgspec.Struct, frozen=True):
    """Send a compare to the coordinator."""

    compare: Compare


class Replay(msgspec.Struct, frozen=True):
    """Apply entries that the log had before this owner."""

    entries: tuple[Entry, ...]


class Acknowledged(msgspec.Struct, frozen=True):
    """All entries up to this index are safe. Answers that wait for them may leave."""

    index: int


class Ended(msgspec.Struct, frozen=True):
    """This process does not own the log any more. It must answer nothing that needs the log."""

    reason: str
    """For people."""
    current: Revisioned | None = None
    """The document that ended it, if it is known."""
    is_too_old: bool = False
    """A replica has a higher epoch. Read the document. If it still names this process, the document
    is older than the log: call an operator, and guess nothing (R32)."""


OwnerEffect = AskReplica | AskCoordinator | Replay | Acknowledged | Ended
