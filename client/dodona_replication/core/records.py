"""The records of a replica's store: what changed in which log.

Owns: these records, and what each does to a tail. The core makes a record and changes its own
tails. The store writes it, and later makes the same tails of what it has.
Must not import: any shell.
"""

import msgspec

from dodona_replication.core.tail import Tail
from dodona_wire.messages.replicas import Entry


class EpochRaised(msgspec.Struct, frozen=True, gc=False):
    """The log has a higher epoch. The first one makes the log."""

    log: str
    epoch: int


class EntriesAdded(msgspec.Struct, frozen=True, gc=False):
    """The log has these entries behind its last one."""

    log: str
    entries: tuple[Entry, ...]


class EntriesDropped(msgspec.Struct, frozen=True, gc=False):
    """The log ends with this entry."""

    log: str
    last_index: int


class LogCut(msgspec.Struct, frozen=True, gc=False):
    """The log begins with this entry, which it has."""

    log: str
    first_index: int


class LogBegun(msgspec.Struct, frozen=True, gc=False):
    """The log has these entries, and nothing else."""

    log: str
    epoch_before: int
    entries: tuple[Entry, ...]


class Swept(msgspec.Struct, frozen=True, gc=False):
    """Nothing changed. The store removes a part of what no log needs any more."""


Record = EpochRaised | EntriesAdded | EntriesDropped | LogCut | LogBegun | Swept


class LogState(msgspec.Struct):
    """A log of a replica, without its records."""

    epoch: int = 0
    tail: Tail = msgspec.field(default_factory=Tail)

    def copy(self) -> "LogState":
        """Return a state that changes by itself."""
        return LogState(self.epoch, self.tail.copy())

    def apply(self, record: Record) -> None:
        """Change the state as the record says."""
        tail = self.tail
        match record:
            case EpochRaised(epoch=epoch):
                assert epoch > self.epoch, "an epoch never falls"
                self.epoch = epoch
            case EntriesAdded(entries=entries):
                tail.extend(entries)
            case EntriesDropped(last_index=last_index):
                tail.drop_behind(last_index)
            case LogCut(first_index=first_index):
                tail.cut_before(first_index)
            case LogBegun(epoch_before=epoch_before, entries=entries):
                first_index = entries[0].index
                self.tail = Tail(first_index, epoch_before, (), first_index - 1)
                self.tail.extend(entries)
