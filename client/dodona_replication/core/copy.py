"""What the owner of a log knows of one replica, in one epoch.

Owns: how far the replica has stored the owner's log, what is on its way to it, and when it answered
last. The log of a replica that is not *aligned* may differ from the owner's.

Must not import: any shell.
"""

from typing import Final

from dodona_replication.core.tail import Tail

NEVER: Final = -(1 << 62)
"""An instant before all others, in µs."""


class Copy:
    """One replica."""

    __slots__ = (
        "answered_us",
        "asked_us",
        "copying",
        "heard_us",
        "is_aligned",
        "next_index",
        "stored_index",
        "tail",
        "unanswered",
    )

    def __init__(self, now_us: int) -> None:
        self.tail: Tail | None = None
        """What it said that it has. None: it is not fenced yet."""
        self.is_aligned = False
        self.stored_index = 0
        """It has stored the owner's log up to here, in this epoch."""
        self.next_index = 0
        """The next entry that it has not been sent."""
        self.answered_us = NEVER
        """When the newest request was *sent* that it answered (R18)."""
        self.heard_us = now_us
        """When the newest answer came, or when it was first thought of."""
        self.asked_us = now_us
        """When it was sent the newest request, or when it was first thought of."""
        self.unanswered = 0
        """Requests on their way that ask it to change its log."""
        self.copying = False
        """Whether entries for it are being read from another replica."""

    @property
    def holds_index(self) -> int:
        """Up to where others can get entries from it."""
        return self.stored_index if self.is_aligned else 0

    def hear(self, sent_us: int, now_us: int) -> None:
        """Note an answer to a request that was sent at that instant."""
        self.heard_us = now_us
        self.answered_us = max(self.answered_us, sent_us)

    def align(self, index: int) -> None:
        """Its log is the owner's up to this index, and ends there."""
        self.is_aligned = True
        self.stored_index, self.next_index = index, index + 1

    def part(self, tail: Tail | None) -> None:
        """Its log may differ from the owner's. It is `tail`, or not known."""
        self.tail, self.is_aligned, self.copying = tail, False, False

    def store(self, index: int) -> None:
        """It has stored entries of the owner up to this index."""
        self.stored_index = max(self.stored_index, index)
