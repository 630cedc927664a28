"""What a serializable transaction has read: the form in which reads travel, and stay in a log.

Owns: this form. The rules are in `docs/explanation/commit-protocol.md#serializable`.
"""

from dodona_wire.messages.base import Message
from dodona_wire.types import Key


class ReadRange(Message, frozen=True, array_like=True, gc=False):
    """The rows of lower ≤ key < upper that a transaction has read, in these lock groups. Rows that
    are absent belong to it. A single row is the range up to the next possible key."""

    lower: Key
    upper: Key
    lock_mask: int
