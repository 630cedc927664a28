"""What a coordinator answers to a compare, and what a later read proves about it.

Owns: the three answers (applied, refused, in doubt), the end of a doubt (R3, R16, R17), and which
documents a watch passes on (R1).

A *compare* replaces a document if its revision is still the one that was read. The answer may get
lost after the compare was applied, or before. So "in doubt" is an answer of its own. The caller
keeps both outcomes in mind until a read settles it:

- A read of the old revision proves nothing. The compare may still arrive.
- A read of a higher revision settles it. The compare can't be applied any more. It was applied if
  the document is the one that was sent. This is a proof, because an owner sends one compare at a
  time, and no other process has its id.

R1 and so on are rules of the replication protocol.

Must not import: any shell.
"""

import msgspec

from dodona_replication.core.document import Document, Revisioned


class Applied(msgspec.Struct, frozen=True):
    """The compare was applied, and the document is in force."""

    revision: int
    """The revision that the document got."""


class Refused(msgspec.Struct, frozen=True):
    """The compare was not applied, and never will be."""

    current: Revisioned | None
    """The document that the coordinator had instead. None: it had none."""


class InDoubt(msgspec.Struct, frozen=True):
    """No answer came. The compare may have been applied, or may be applied later."""

    reason: str
    """What failed, for people."""


class Superseded(msgspec.Struct, frozen=True):
    """The compare is not in force, and never will be. It may have been, for a time."""

    current: Revisioned


Answer = Applied | Refused | InDoubt


class Compare(msgspec.Struct, frozen=True):
    """A compare that was sent: keep it until its outcome is known."""

    revision: int | None
    """The revision that the document must still have. None: there must be no document."""
    document: Document

    def settle(self, seen: Revisioned | None) -> Applied | Superseded | InDoubt:
        """Return what a read proves about this compare after a doubt. `seen` may also be the
        document of a watch, or of the refusal of a repeat."""
        if seen is None or seen.revision <= (self.revision or 0):
            return InDoubt("a read of the old revision proves nothing: read again")
        if seen.document == self.document:
            return Applied(seen.revision)
        return Superseded(seen)


class NewestSeen:
    """The newest revision that a watch passed on. Late and repeated events bring no old set back
    (R1)."""

    def __init__(self, revision: int = 0) -> None:
        self._revision = revision

    @property
    def revision(self) -> int:
        return self._revision

    def take(self, seen: Revisioned) -> bool:
        """Return whether a document is newer than all before it, and remember its revision."""
        if seen.revision <= self._revision:
            return False
        self._revision = seen.revision
        return True
