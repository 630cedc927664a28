"""Keep the outcomes of finished transactions until the forget watermark passes them.

Owns: the outcome records and the watermark W (rules 11 and 12 of
`docs/explanation/commit-protocol.md`). Outcomes are in buckets of a few seconds of start time, so
that to forget them has no cost per outcome.
Invariant: W only rises.
"""

from collections.abc import Iterator

from dodona_wire.messages.base import Failure
from dodona_wire.types import NULL_TIMESTAMP, TIMESTAMP_COUNTER_BITS, Timestamp, TransactionId

_BUCKET_BITS = TIMESTAMP_COUNTER_BITS + 2

Outcome = Timestamp | Failure
"""The commit timestamp, or the reason of a refusal, which a repeated request gets again."""


class Outcomes:
    """The outcomes by transaction id, and the watermark."""

    def __init__(self) -> None:
        self.watermark: Timestamp = NULL_TIMESTAMP
        self._buckets: dict[int, dict[TransactionId, Outcome]] = {}

    def __len__(self) -> int:
        return sum(len(bucket) for bucket in self._buckets.values())

    def items(self) -> Iterator[tuple[TransactionId, Outcome]]:
        """Yield all outcomes that are kept."""
        for bucket in self._buckets.values():
            yield from bucket.items()

    def get(self, transaction: TransactionId) -> Outcome | None:
        bucket = self._buckets.get(transaction >> _BUCKET_BITS)
        return None if bucket is None else bucket.get(transaction)

    def put(self, transaction: TransactionId, outcome: Outcome) -> None:
        """Record an outcome. A recorded commit is final. A refusal may only be repeated."""
        bucket = self._buckets.setdefault(transaction >> _BUCKET_BITS, {})
        known = bucket.setdefault(transaction, outcome)
        if known is outcome:
            return
        assert isinstance(known, Failure) == isinstance(outcome, Failure), "outcome overturned"
        assert isinstance(known, Failure) or known == outcome, "commit timestamp changed"

    @property
    def newest_bound(self) -> Timestamp:
        """Return a timestamp: no transaction with an outcome here began later."""
        newest = max(self._buckets, default=-1)
        return Timestamp(max((newest + 1 << _BUCKET_BITS) - 1, self.watermark))

    def has_bucket_below(self, watermark: Timestamp) -> bool:
        """Return whether the cell would forget an outcome if the watermark rose so far."""
        return any((index + 1) << _BUCKET_BITS <= watermark for index in self._buckets)

    def raise_watermark(self, watermark: Timestamp) -> None:
        """Raise the watermark, and forget whole buckets at or below it."""
        assert watermark >= self.watermark, "the watermark only rises"
        self.watermark = watermark
        for index in [i for i in self._buckets if (i + 1) << _BUCKET_BITS <= watermark]:
            del self._buckets[index]
