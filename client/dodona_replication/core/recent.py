"""The newest entries of a log, in the memory of its owner.

Owns: the entries that may still have to be sent. All that are not acknowledged are here, and some
that are. A replica that is further behind gets its entries from another replica.

Must not import: any shell.
"""

from collections.abc import Sequence

from dodona_wire.messages.replicas import ENTRIES_MAX, Entry


class Recent:
    """Entries without gaps."""

    def __init__(self, first: Entry, kept_bytes_max: int) -> None:
        self._entries = {first.index: first}
        self.first_index = self.last_index = first.index
        self._acknowledged_index = first.index - 1
        self._kept_bytes = 0
        """Bytes of the acknowledged records that are kept."""
        self._kept_bytes_max = kept_bytes_max

    def add(self, entry: Entry) -> None:
        assert entry.index == self.last_index + 1
        self._entries[entry.index] = entry
        self.last_index = entry.index

    def acknowledge(self, index: int) -> None:
        """All entries up to this one are acknowledged. The last one of these is always kept."""
        for at in range(self._acknowledged_index + 1, index + 1):
            self._kept_bytes += len(self._entries[at].records)
        self._acknowledged_index = index
        while self._kept_bytes > self._kept_bytes_max and self.first_index < index:
            self._kept_bytes -= len(self._entries.pop(self.first_index).records)
            self.first_index += 1

    def page(self, first_index: int, bytes_max: int) -> Sequence[Entry]:
        """Return entries from an index on: at least one, if there is one."""
        assert first_index >= self.first_index, "another replica has these entries"
        found: list[Entry] = []
        size_bytes = 0
        for index in range(first_index, min(self.last_index + 1, first_index + ENTRIES_MAX)):
            size_bytes += len(self._entries[index].records)
            if found and size_bytes > bytes_max:
                break
            found.append(self._entries[index])
        return found
