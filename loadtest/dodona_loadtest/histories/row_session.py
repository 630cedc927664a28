"""What a recorder needs of a session: the few operations that all clients have.

Owns: their signatures. Must not import: any core but the client's.
"""

import typing
from collections.abc import Iterable, Sequence
from typing import Any

from dodona._core.protocol.steps import Protocol
from dodona._core.writing.outcomes import Outcome
from dodona._core.writing.transaction import TransactionBuffer
from dodona_loadtest.histories.shape import Row
from dodona_wire.types import Durability, LockType, Timestamp, TransactionId


class RowSession(typing.Protocol):
    """The operations of a client that a recorder needs. Its protocols raise DodonaError."""

    def generate_timestamp(self, count: int, /) -> Protocol[Timestamp]:
        """Return the first of `count` timestamps."""

    def begin(self) -> Protocol[TransactionBuffer]:
        """Begin a transaction with a snapshot of its own."""

    def lookup_rows(
        self,
        path: str,
        keys: Sequence[Row],
        columns: Sequence[str] | None = None,
        /,
        *,
        keep_missing: bool,
        timestamp: Timestamp,
    ) -> Protocol[list[Any]]:
        """Return rows with these columns, or all. A missing row is None."""

    def select(
        self,
        path: str,
        lower: Sequence[Any] | None = None,
        upper: Sequence[Any] | None = None,
        /,
        *,
        timestamp: Timestamp,
    ) -> Protocol[Iterable[Row]]:
        """Return the rows of lower ≤ key < upper."""

    def write_rows(
        self, path: str, rows: Sequence[Row], update: bool, durability: Durability, /
    ) -> Protocol[Timestamp | None]:
        """Write rows without a transaction."""

    def erase_rows(
        self, path: str, keys: Sequence[Row], durability: Durability, /
    ) -> Protocol[Timestamp | None]:
        """Delete rows without a transaction."""

    def insert_rows(
        self,
        buffer: TransactionBuffer,
        path: str,
        rows: Sequence[Row],
        update: bool,
        aggregate: bool,
        lock_type: LockType,
        /,
    ) -> Protocol[None]:
        """Insert rows within a transaction."""

    def delete_rows(
        self, buffer: TransactionBuffer, path: str, keys: Sequence[Row], /
    ) -> Protocol[None]:
        """Delete rows within a transaction."""

    def lock_rows(
        self,
        buffer: TransactionBuffer,
        path: str,
        keys: Sequence[Row],
        locks: Sequence[str] | None,
        lock_type: LockType,
        /,
    ) -> Protocol[None]:
        """Lock rows within a transaction."""

    def commit(self, buffer: TransactionBuffer, /) -> Protocol[Timestamp | None]:
        """Commit. Raises CommitOutcomeUnknown, whose `transaction`, if any, is for `outcome`."""

    def outcome(self, transaction: TransactionId, /, *, settle: bool = False) -> Protocol[Outcome]:
        """Return the outcome of a transaction."""
