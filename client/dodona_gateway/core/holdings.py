"""The transactions that a gateway holds for its callers: leases, owners, limits. Pure.

Owns: which transactions are held, until when, and what the gateway knows of those that ended.

Invariants: a transaction belongs to the caller that began it. A transaction is aborted when its
lease ends, unless a call uses it at that time. The end of a transaction is remembered for some
time, so that a repeated commit gets the first answer again.

Time is an argument. This module does not know what a held transaction contains.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import Any, Final, Generic, Literal, TypeVar, get_args

import msgspec

from dodona_gateway.core.transaction_id import HeldId, parse_held_id
from dodona_wire.errors import (
    DodonaError,
    InvalidRequest,
    Overloaded,
    TransactionNotFound,
    WrongGateway,
)
from dodona_wire.types import Timestamp

LEASE_MS_MAX: Final = 60_000
LEASE_MS: Final = 30_000
_END: Final = "Commit or abort some, then retry."

Held = TypeVar("Held")
Outcome = Literal["committed", "failed", "aborted", "expired"]
OUTCOMES: Final = get_args(Outcome)
"""How transactions end: `failed` in their commit, `aborted` by their owner."""


class HoldingLimits(msgspec.Struct, frozen=True):
    """The limits of what one gateway holds."""

    open_count_max: int = 10_000
    open_per_owner_max: int = 5_000
    bytes_max: int = 512 << 20
    """The bytes of buffered rows, in all transactions together."""
    ended_count_max: int = 100_000
    ended_ms_max: int = 600_000
    """How long the end of a transaction is remembered."""


class Holding(Generic[Held]):
    """One open transaction. `held` is the transaction itself."""

    __slots__ = ("expires_us", "held", "id", "lease_ms", "owner", "size_bytes", "use_count")

    def __init__(self, its_id: HeldId, owner: str, held: Held, lease_ms: int) -> None:
        self.id = its_id
        self.owner = owner
        self.held = held
        self.lease_ms = lease_ms
        self.expires_us = 0
        self.size_bytes = 0
        self.use_count = 0
        """The number of calls that use it now, its commit included. While there are any, its lease
        can't end it."""


class End(msgspec.Struct, frozen=True):
    """How a transaction ended: committed at `timestamp` (None if it wrote nothing), or with an
    error. The commit was answered with this error, and its repetitions are too."""

    owner: str
    ended_us: int
    timestamp: Timestamp | None = None
    error: DodonaError | None = None


class Holdings(Generic[Held]):
    """All transactions of one gateway. `gateway` is its number. `give_up` is called with each
    transaction whose lease is over."""

    def __init__(
        self, gateway: int, limits: HoldingLimits, give_up: Callable[[Held], None]
    ) -> None:
        self._gateway = gateway
        self._limits = limits
        self._give_up = give_up
        self._open: dict[str, Holding[Held]] = {}
        self._owned: dict[str, int] = {}
        self._ended: OrderedDict[str, End] = OrderedDict()
        self._size_bytes = 0
        self.ended_by_outcome = dict.fromkeys(OUTCOMES, 0)
        """Counts since the start."""

    @property
    def open_count(self) -> int:
        """Return the number of open transactions."""
        return len(self._open)

    @property
    def size_bytes(self) -> int:
        """Return the bytes of the rows that are buffered now."""
        return self._size_bytes

    def check_room(self, owner: str) -> None:
        """Check that another transaction may begin. Raises Overloaded."""
        limits = self._limits
        if len(self._open) >= limits.open_count_max:
            text = (
                f"This gateway holds {limits.open_count_max} open transactions, its limit. {_END}"
            )
            raise Overloaded(text, open_count_max=limits.open_count_max)
        if self._owned.get(owner, 0) >= limits.open_per_owner_max:
            text = (
                f"You have {limits.open_per_owner_max} open transactions here, your limit. {_END}"
            )
            raise Overloaded(text, open_per_owner_max=limits.open_per_owner_max)

    def add(
        self,
        its_id: HeldId,
        owner: str,
        held: Held,
        lease_ms: int,
        now_us: int,
    ) -> Holding[Held]:
        """Hold a transaction that has begun, for `lease_ms` from now."""
        holding = Holding(its_id, owner, held, lease_ms)
        assert str(its_id) not in self._open, "an id is given out once"
        self._open[str(its_id)] = holding
        self._owned[owner] = self._owned.get(owner, 0) + 1
        self.renew(holding, now_us)
        return holding

    def find(self, text: str, owner: str, now_us: int) -> Holding[Held] | End:
        """Return the transaction, with its lease renewed, or how it ended. Raises InvalidRequest,
        WrongGateway, or TransactionNotFound, also for another owner's transaction."""
        held = self._open.get(text)
        if held is not None and _is_over(held, now_us):  # `expire` has not come to it yet
            self._expire(held, now_us)
        found: Holding[Held] | End | None = self._open.get(text) or self._ended.get(text)
        if found is None:
            its_id = parse_held_id(text)
            if its_id.gateway != self._gateway:
                raise WrongGateway(
                    "Another gateway holds this transaction. Send its requests to that gateway.",
                    transaction=text,
                )
        if found is None or found.owner != owner:
            raise TransactionNotFound(
                "This gateway does not hold the transaction. The transaction ended long ago, its "
                "lease expired, or the gateway was restarted. Begin a new one.",
                transaction=text,
            )
        if isinstance(found, Holding):
            self.renew(found, now_us)
        return found

    def renew(self, holding: Holding[Held], now_us: int) -> None:
        """Start its lease again."""
        holding.expires_us = now_us + holding.lease_ms * 1000

    def note_size(self, holding: Holding[Held], size_bytes: int) -> None:
        """Note how many bytes its rows have now. Nothing changes if it has ended while a call still
        used it."""
        if str(holding.id) not in self._open:
            return
        self._size_bytes += size_bytes - holding.size_bytes
        holding.size_bytes = size_bytes

    def check_size(self) -> None:
        """Check that more rows may come. Raises Overloaded."""
        bytes_max = self._limits.bytes_max
        if self._size_bytes >= bytes_max:
            text = f"The transactions of this gateway have {bytes_max} bytes of rows, its limit."
            raise Overloaded(f"{text} {_END}", bytes_max=bytes_max)

    def end(
        self,
        holding: Holding[Held],
        now_us: int,
        timestamp: Timestamp | None = None,
        error: DodonaError | None = None,
        *,
        outcome: Outcome | None = None,
    ) -> None:
        """End a transaction, and remember its end. A repetition changes nothing. Without an
        `outcome`, its commit has ended."""
        text = str(holding.id)
        self.note_size(holding, 0)
        if self._open.pop(text, None) is None:
            return
        left_count = self._owned[holding.owner] - 1
        if left_count:
            self._owned[holding.owner] = left_count
        else:
            del self._owned[holding.owner]
        self.ended_by_outcome[outcome or ("committed" if error is None else "failed")] += 1
        self._ended[text] = End(holding.owner, now_us, timestamp, error)
        self._forget(now_us)

    def expire(self, now_us: int) -> int:
        """End the transactions whose lease is over, and return their number."""
        late = [it for it in self._open.values() if _is_over(it, now_us)]
        for holding in late:
            self._expire(holding, now_us)
        self._forget(now_us)
        return len(late)

    def _expire(self, holding: Holding[Held], now_us: int) -> None:
        self._give_up(holding.held)
        text = f"The transaction's lease of {holding.lease_ms} ms expired. Begin a new one."
        error = TransactionNotFound(text, transaction=str(holding.id))
        self.end(holding, now_us, error=error, outcome="expired")

    def __iter__(self) -> Iterator[Holding[Held]]:
        return iter(self._open.values())

    def _forget(self, now_us: int) -> None:
        oldest_us = now_us - self._limits.ended_ms_max * 1000
        while self._ended:
            first = next(iter(self._ended.values()))
            if len(self._ended) <= self._limits.ended_count_max and first.ended_us > oldest_us:
                return
            self._ended.popitem(last=False)


def _is_over(holding: Holding[Any], now_us: int) -> bool:
    """Return whether the lease is over, and no call uses the transaction."""
    return holding.expires_us <= now_us and not holding.use_count


def check_lease(lease_ms: int) -> int:
    """Return the lease if its length is allowed. Raises InvalidRequest."""
    if not 0 < lease_ms <= LEASE_MS_MAX:
        raise InvalidRequest(f"lease_ms must be 1 to {LEASE_MS_MAX}, not {lease_ms}.")
    return lease_ms
