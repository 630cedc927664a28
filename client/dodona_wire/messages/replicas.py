"""The messages between the owner of a replicated log and a log replica.

Owns: their numbers and limits. Every request names the cluster, the log, the replica and an epoch.
A replica answers only requests that name itself, so an empty disk never passes for the one that was
lost. R4 and so on are rules of the replication protocol.

The answers that an owner acts on are messages of their own (`EpochTooOld`, `FenceFirst`,
`WrongReplica`, `LogMisaligned`). A `Failure` is for a fault of the request, of the settings, or of
the disk.
"""

from typing import Final

from dodona_wire.messages.base import Failure, Message

ENTRY_BYTES_MAX: Final = 32 << 20
"""Bytes of the records of one entry."""
ENTRIES_BYTES_MAX: Final = 48 << 20
"""Bytes of the records of all entries in one message."""
ENTRIES_MAX: Final = 4_096
"""Entries in one message."""
PAGE_BYTES_MAX: Final = 1 << 20
"""Bytes of the records in an answer to `FetchEntries`. One longer entry is an answer alone."""
SILENCE_MS_MAX: Final = 60_000
"""The longest silence, and the longest wait for it, that `AwaitSilence` may ask for, ms."""


class Entry(Message, frozen=True, array_like=True, gc=False):
    """One commit group of a log. Index and epoch name one entry for ever."""

    index: int
    """From 1 on, without gaps."""
    epoch: int
    checksum: int
    """CRC-32 of index, epoch and records."""
    records: bytes
    """The replica never looks into them."""


class LogRequest(Message, frozen=True, array_like=True, gc=False):
    """What every request to a log replica begins with."""

    cluster: str
    log: str
    replica: str
    """The id that the replica drew for its disk (R8)."""
    epoch: int


class FenceLog(LogRequest, frozen=True, array_like=True, gc=False, tag=130):
    """Refuse all requests of lower epochs from now on (R4). Makes the log if the replica does not
    have it. → LogFenced | EpochTooOld"""


class FetchEntries(LogRequest, frozen=True, array_like=True, gc=False, tag=131):
    """Read entries from `first_index` on, up to `bytes_max` bytes of records, but one entry at
    least. `PAGE_BYTES_MAX` is a limit, too. → LogEntries | LogMisaligned"""

    first_index: int
    bytes_max: int = PAGE_BYTES_MAX


class AlignLog(LogRequest, frozen=True, array_like=True, gc=False, tag=132):
    """Drop the entries behind this entry, which is the last one that both logs have. A log with an
    entry of the request's own epoch behind it drops nothing (R10). → LogAligned | LogMisaligned"""

    index: int
    """0: before the first entry of all."""
    entry_epoch: int


class StoreEntries(LogRequest, frozen=True, array_like=True, gc=False, tag=133):
    """Store the entries behind the previous one, which the log must have (R9). Then drop all
    entries before the one that the cut names, if the log has that entry (R24). Without entries,
    only cut. → EntriesStored | LogMisaligned"""

    previous_index: int
    previous_epoch: int
    entries: tuple[Entry, ...]
    cut_index: int = 0
    """The entry with an acknowledged checkpoint. 0: no cut."""
    cut_epoch: int = 0


class BeginLog(LogRequest, frozen=True, array_like=True, gc=False, tag=134):
    """Begin the log anew with these entries, of which the first one has an acknowledged checkpoint.
    A log that has that entry, or begins behind it, stays as it is (R25). → EntriesStored |
    LogMisaligned"""

    previous_epoch: int
    """The epoch of the entry before the first one, which the log does not get."""
    entries: tuple[Entry, ...]


class PingLog(LogRequest, frozen=True, array_like=True, gc=False, tag=135):
    """Show that the owner is alive. → LogPong"""

    number: int


class AwaitSilence(LogRequest, frozen=True, array_like=True, gc=False, tag=136):
    """Wait until the owner of this epoch has been silent for `silence_ms`. The answer comes after
    `wait_ms` in any case, and immediately if the log has another epoch. → LogSilence"""

    silence_ms: int
    wait_ms: int
    address: str = ""
    """Where the process that waits can be reached, if it stands by."""


class LogFenced(Message, frozen=True, array_like=True, gc=False, tag=137):
    """The log has the epoch of the request, durably. Its entries are durable, too (R7)."""

    first_index: int
    """The first entry that is not cut. The log is empty if it is above all of `last_indexes`."""
    epoch_before: int
    """The epoch of the entry before the first one. 0: there never was one."""
    last_indexes: tuple[tuple[int, int], ...]
    """Each epoch that has entries here, rising, and the index of its last entry."""


class LogEntries(Message, frozen=True, array_like=True, gc=False, tag=138):
    """Entries without gaps. Fewer than there were at the request if the log has changed since."""

    entries: tuple[Entry, ...]


class LogAligned(Message, frozen=True, array_like=True, gc=False, tag=139):
    """Where the log ends now."""

    last_index: int


class EntriesStored(Message, frozen=True, array_like=True, gc=False, tag=140):
    """All entries of the request up to this index are durable."""

    index: int


class LogMisaligned(Message, frozen=True, array_like=True, gc=False, tag=141):
    """The log does not have the entry that the request builds on. Nothing was stored or dropped.
    This is what the log has, as in `LogFenced`."""

    first_index: int
    epoch_before: int
    last_indexes: tuple[tuple[int, int], ...]


class LogPong(Message, frozen=True, array_like=True, gc=False, tag=142):
    """The answer to the ping of this number, and the wall clock of the replica."""

    number: int
    unix_us: int


class LogSilence(Message, frozen=True, array_like=True, gc=False, tag=143):
    """For how long the replica has not heard from the owner of its present epoch, ms."""

    epoch: int
    """0: the replica does not have the log."""
    silence_ms: int
    owner_count: int = 0
    """How many owners have followed another one in the last half minute."""


class EpochTooOld(Message, frozen=True, array_like=True, gc=False, tag=144):
    """The replica has a higher epoch of this log: read the document (R32)."""

    epoch: int


class FenceFirst(Message, frozen=True, array_like=True, gc=False, tag=145):
    """The replica has a lower epoch of this log, or no such log (0): send a fence (R4)."""

    epoch: int


class WrongReplica(Message, frozen=True, array_like=True, gc=False, tag=146):
    """Another replica is at this address: its disk is another one (R8)."""

    replica: str


ReplicaRequest = (
    FenceLog | FetchEntries | AlignLog | StoreEntries | BeginLog | PingLog | AwaitSilence
)
ReplicaReply = (
    LogFenced
    | LogEntries
    | LogAligned
    | EntriesStored
    | LogMisaligned
    | LogPong
    | LogSilence
    | EpochTooOld
    | FenceFirst
    | WrongReplica
    | Failure
)
