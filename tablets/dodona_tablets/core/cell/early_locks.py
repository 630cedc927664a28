"""Hold the early locks of a cell: who has locked rows before a transaction, and who waits in line.

Owns: the requests of owners, the line of each row, and what they mean for transactions. The rules
are in `docs/explanation/commit-protocol.md#early-locks`. Early locks are in memory only, and end
with the process. Nothing is derived from them: a commit checks everything again.

Invariants:
- Each row has a line, in order of arrival. The owner of the row is at its head.
- A request that is granted is at the head of all its lines.
- No line is empty, and a tablet without lines has no table of them.
"""

from collections.abc import Iterable
from typing import Any, Final, NamedTuple

from dodona_tablets.core.cell.outcomes import Outcomes
from dodona_tablets.core.rows.chunks.chunk import ChunkAway
from dodona_tablets.core.tablet.publications import PublicationRows
from dodona_tablets.core.tablet.tablet import Tablet
from dodona_tablets.core.tablet.transaction import Transaction
from dodona_wire.errors import DataCorrupted, LocksEnded
from dodona_wire.messages.base import Failure
from dodona_wire.types import Key, Owner, TabletId, Timestamp, TransactionId

LOCKS_ENDED: Final = Failure(LocksEnded.kind, "The locks of this owner have ended. Begin again.")


class Row(NamedTuple):
    """A row of a tablet."""

    tablet: Tablet
    key: Key

    @property
    def holder(self) -> Transaction | None:
        """A transaction that commits and holds the row, by any lock."""
        publishing, locks = self.tablet.publishing, self.tablet.locks.get(self.key)
        if locks is not None and locks.holders:
            return locks.holders[0].transaction
        if publishing is not None and _may_have(publishing.rows, self.key):
            return publishing.transaction
        return None


class LockRequest:
    """The request of an owner for rows of one cell, granted or in line."""

    __slots__ = (
        "asked_until_us",
        "is_granted",
        "is_last",
        "lease_ms",
        "leased_until_us",
        "owner",
        "routes",
        "rows",
        "transaction",
        "wait_until_us",
    )

    def __init__(
        self, owner: Owner, rows: tuple[Row, ...], transaction: Transaction | None = None
    ) -> None:
        self.owner = owner
        self.rows = rows
        self.transaction = transaction
        """The blind transaction that stands in line for itself. It commits when its turn comes."""
        self.is_granted = False
        self.is_last = False
        """Whether the grant has the start timestamp of the owner."""
        self.lease_ms = 0
        self.leased_until_us = 0
        """When the request ends, once it is granted."""
        self.asked_until_us = 0
        """When the request ends while it is in line, unless its client repeats it."""
        self.wait_until_us = 0
        """When those who asked are answered that they still wait."""
        self.routes: tuple[Any, ...] = ()

    @property
    def is_waiting(self) -> bool:
        return not self.is_granted

    @property
    def name(self) -> int:
        """The name of the owner, or of the blind transaction, in errors."""
        return self.owner if self.transaction is None else self.transaction.id


class EarlyLocks:
    """The requests for early locks of one cell, in order of arrival, and the lines of its rows."""

    def __init__(self) -> None:
        self.requests: dict[Owner, LockRequest] = {}
        self._lines: dict[TabletId, dict[Key, list[LockRequest]]] = {}
        self.row_count = 0
        """The places in all lines."""
        self._ended = Outcomes()
        """Why the requests of owners have ended. A late copy of a request gets the same answer."""

    # Requests

    def join(self, request: LockRequest) -> None:
        """Put a request at the end of the lines of its rows."""
        assert request.owner not in self.requests, "an owner asks once"
        self.requests[request.owner] = request
        self.row_count += len(request.rows)
        for row in request.rows:
            lines = self._lines.setdefault(row.tablet.assignment.tablet, {})
            lines.setdefault(row.key, []).append(request)

    def leave(self, request: LockRequest) -> list[LockRequest]:
        """End a request. Return those that are next in line."""
        del self.requests[request.owner]
        self.row_count -= len(request.rows)
        following: dict[Owner, LockRequest] = {}
        for tablet, key in request.rows:
            lines = self._lines[tablet.assignment.tablet]
            line = lines[key]
            was_head = line[0] is request
            line.remove(request)
            if line and was_head:
                following[line[0].owner] = line[0]
            elif not line:
                del lines[key]
                if not lines:
                    del self._lines[tablet.assignment.tablet]
        return list(following.values())

    def of_tablet(self, tablet: TabletId) -> list[LockRequest]:
        """Return the requests that have rows of a tablet, in order of arrival."""
        if tablet not in self._lines:
            return []
        ours = {it.owner for line in self._lines[tablet].values() for it in line}
        return [it for owner, it in self.requests.items() if owner in ours]

    def heads(self, tablet: TabletId, keys: Iterable[Key] | None) -> list[LockRequest]:
        """Return the first in line for each of these rows of a tablet (None: for all of them)."""
        lines = self._lines.get(tablet)
        if lines is None:
            return []
        found = lines if keys is None else [key for key in keys if key in lines]
        return [lines[key][0] for key in found]

    # Owners that have ended

    def end(self, owner: Owner, reason: Failure) -> None:
        """Note that an owner never gets locks here any more, and why."""
        self._ended.put(TransactionId(owner), reason)

    def why_ended(self, owner: Owner) -> Failure | None:
        """Return why an owner gets no locks any more, or None if the cell knows no reason."""
        if owner <= self._ended.watermark:
            return LOCKS_ENDED
        reason = self._ended.get(TransactionId(owner))
        return reason if isinstance(reason, Failure) else None

    def forget(self, watermark: Timestamp) -> None:
        """Forget owners with older names. Requests by such names have ended."""
        if watermark > self._ended.watermark:
            self._ended.raise_watermark(watermark)

    # Whose turn it is

    def is_first(self, request: LockRequest) -> bool:
        """Return whether no other request is before this one for any of its rows. Then only
        transactions can be in its way. Newcomers are kept off its rows, so that it does not wait
        for ever."""
        return all(self._head(it) is request for it in request.rows)

    def may_be_granted(self, request: LockRequest) -> bool:
        return self.is_first(request) and all(it.holder is None for it in request.rows)

    def is_free(self, row: Row) -> bool:
        """Return whether an early lock can have the row now: no request is before it, and no
        transaction holds the row."""
        return self._head(row) is None and row.holder is None

    def obstacle(self, request: LockRequest) -> tuple[Row, LockRequest | None] | None:
        """Return the first row that a request waits for, and who is before it in line. Without
        a request there, a transaction holds the row. Return None if its turn has come in this
        event."""
        for row in request.rows:
            head = self._head(row)
            if head is not request:
                return row, head
        held = next((it for it in request.rows if it.holder is not None), None)
        return None if held is None else (held, None)

    def in_the_way(
        self, tablet: TabletId, keys: Iterable[Key], owner: Owner
    ) -> tuple[Key, LockRequest] | None:
        """Return the first request that keeps a transaction off one of these rows, and the key of
        the row. `owner` is the transaction's own."""
        lines = self._lines.get(tablet)
        if lines is None:
            return None
        for key in keys:
            line = lines.get(key)
            if line is None or line[0].owner == owner:
                continue
            if line[0].is_granted or self.is_first(line[0]):
                return key, line[0]
        return None

    def keys(self, tablet: TabletId) -> Iterable[Key]:
        """Return the keys of a tablet that have a line."""
        return self._lines.get(tablet, ())

    def _head(self, row: Row) -> LockRequest | None:
        line = self._lines.get(row.tablet.assignment.tablet, {}).get(row.key)
        return line[0] if line else None


def _may_have(rows: PublicationRows, key: Key) -> bool:
    """Return whether a load that is being published has a row. One whose chunks can't be read may
    have it. It ends soon."""
    try:
        return rows.has(key)
    except (ChunkAway, DataCorrupted):
        return True
