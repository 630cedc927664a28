"""What an owner knows of the document of its log: the sets that it may name now.

Owns: one change of the document at a time, until its outcome is known (R17). While an answer is
missing, the document may have the old set or the new one. So both sets count (R16): an entry is
acknowledged only when all replicas of all possible sets have stored it.

Invariants: a change never names fewer replicas than `copies_min` (R14). No outcome is guessed: a
compare ends with its answer, or with a document of a higher revision (R3).
Must not import: any shell.
"""

from collections.abc import Sequence

from dodona_replication.core.coordination import Answer, Applied, Compare, InDoubt, Refused
from dodona_replication.core.document import Document, Revisioned


class Lost(Exception):
    """Another process changed the document: this process does not own the log any more."""

    def __init__(self, current: Revisioned | None) -> None:
        super().__init__()
        self.current = current


class Ownership:
    """The document as an owner knows it."""

    def __init__(self, seen: Revisioned) -> None:
        """`seen` is the document that the owner read, of an epoch before its own."""
        self._set(seen, None)
        self.joined_count = self.dropped_count = 0
        """How often a replica joined the set, and was dropped from it."""

    @property
    def document(self) -> Document:
        """The last document that the coordinator confirmed."""
        return self._confirmed.document

    @property
    def revision(self) -> int:
        return self._confirmed.revision

    @property
    def pending(self) -> Compare | None:
        """The change whose outcome is not known."""
        return self._pending

    @property
    def members(self) -> tuple[str, ...]:
        return self._confirmed.document.members

    def propose(self, document: Document) -> Compare:
        """Begin a change. Call this only if none is pending."""
        assert self._pending is None, "one change at a time (R17)"
        compare = Compare(self._confirmed.revision, document)
        self._set(self._confirmed, compare)
        return compare

    def can_drop(self, replica: str) -> bool:
        """Return whether the set may lose this member now."""
        document = self._confirmed.document
        is_large = len(document.members) > document.copies_min
        return self._pending is None and is_large and replica in document.members

    def without(self, replica: str) -> Sequence[str]:
        return [it for it in self.members if it != replica]

    def hear(self, asked: Compare, answer: Answer) -> bool:
        """Take the answer of the coordinator to a compare. Return whether it ended the pending
        change, which is in force. Raises Lost."""
        compare = self._pending
        if compare is None or compare != asked:
            return False  # a late answer, after a document ended the change: another one may pend
        match answer:
            case Applied(revision=revision):
                return self._end(Revisioned(compare.document, revision))
            case Refused(current=current):
                return self.see(current)
            case InDoubt():
                return False

    def see(self, current: Revisioned | None) -> bool:
        """Take a document that was read, watched, or shown by a refusal. Return whether it ended
        the pending change. Raises Lost."""
        compare = self._pending
        if compare is None:
            if current is not None and current.revision > self._confirmed.revision:
                raise Lost(current)
            return False
        found = compare.settle(current)
        if isinstance(found, Applied):
            return self._end(Revisioned(compare.document, found.revision))
        if isinstance(found, InDoubt):
            return False
        raise Lost(found.current)

    def _end(self, now: Revisioned) -> bool:
        before, after = {*self.members}, {*now.document.members}
        self.joined_count += len(after - before)
        self.dropped_count += len(before - after)
        self._set(now, None)
        return True

    def _set(self, confirmed: Revisioned, pending: Compare | None) -> None:
        self._confirmed = confirmed
        self._pending = pending
        members = {*confirmed.document.members}
        if pending is not None:
            members.update(pending.document.members)
        self.counted = frozenset(members)
        """The replicas of all sets that the document may name now. Each answer of a replica needs
        it, and it seldom changes."""
