"""What became of finished transactions, remembered until the forget watermark passes them.

Owns: the outcome records and the watermark W (rules 11, 12 of
`docs/explanation/commit-protocol.md`). W only rises.
Outcomes lie in buckets of a few seconds of start time, so that forgetting costs nothing a row.
"""

from collections.abc import Iterator

from dodona_wire.messages.base import Failure
from dodona_wire.types import NULL_TIMESTAMP, TIMESTAMP_COUNTER_BITS, Timestamp, TransactionId

_BUCKET_BITS = TIMESTAMP_COUNTER_BITS + 2

Outcome = Timestamp | Failure
"""The commit timestamp, or why it was refused (told again to whoever repeats the request)."""


class Outcomes:
    """Outcome by transaction id, and the watermark."""

    def __init__(self) -> None:
        self.watermark: Timestamp = NULL_TIMESTAMP
        self._buckets: dict[int, dict[TransactionId, Outcome]] = {}

    def __len__(self) -> int:
        return sum(len(bucket) for bucket in self._buckets.values())

    def items(self) -> Iterator[tuple[TransactionId, Outcome]]:
        """All that is remembered."""
        for bucket in self._buckets.values():
            yield from bucket.items()

    def get(self, transaction: TransactionId) -> Outcome | None:
        bucket = self._buckets.get(transaction >> _BUCKET_BITS)
        return None if bucket is None else bucket.get(transaction)

    def put(self, transaction: TransactionId, outcome: Outcome) -> None:
        """Record an outcome. A recorded commit is final; a refusal may only be repeated."""
        bucket = self._buckets.setdefault(transaction >> _BUCKET_BITS, {})
        known = bucket.setdefault(transaction, outcome)
        if known is outcome:
            return
        assert isinstance(known, Failure) == isinstance(outcome, Failure), "outcome overturned"
        assert isinstance(known, Failure) or known == outcome, "commit timestamp changed"

    @property
    def newest_bound(self) -> Timestamp:
        """No transaction with a remembered outcome began later."""
        newest = max(self._buckets, default=-1)
        return Timestamp(max((newest + 1 << _BUCKET_BITS) - 1, self.watermark))

    def has_bucket_below(self, watermark: Timestamp) -> bool:
        """Whether raising the watermark so far would forget anything."""
        return any((index + 1) << _BUCKET_BITS <= watermark for index in self._buckets)

    def raise_watermark(self, watermark: Timestamp) -> None:
        """Forget whole buckets that lie at or below the new watermark."""
        assert watermark >= self.watermark, "the watermark only rises"
        self.watermark = watermark
        for index in [i for i in self._buckets if (i + 1) << _BUCKET_BITS <= watermark]:
            del self._buckets[index]
