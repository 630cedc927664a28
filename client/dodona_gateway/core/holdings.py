"""The transactions that a gateway holds for callers who can't: leases, owners, limits. Pure.

Owns: which there are, until when, and what is still known of those that ended. Invariants: a
transaction belongs to who began it; one whose lease ends is given up, unless a call is at it; what
ended is remembered for a while, so that a repeated commit is answered as the first was.
Time is an argument; what a transaction is, is its holder's business.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import Final, Generic, Literal, TypeVar, get_args

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

Held = TypeVar("Held")
Outcome = Literal["committed", "failed", "aborted", "expired"]
OUTCOMES: Final = get_args(Outcome)
"""How transactions end: `failed` in their commit, `aborted` by their owner."""


class HoldingLimits(msgspec.Struct, frozen=True):
    """What one gateway holds at most."""

    open_count_max: int = 10_000
    open_per_owner_max: int = 5_000
    bytes_max: int = 512 << 20
    """Of buffered rows, of all transactions together."""
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
        """Calls that are at it now, its commit among them: meanwhile no lease ends it."""


class End(msgspec.Struct, frozen=True):
    """How a transaction ended: committed at `timestamp` (None if it wrote nothing), or with an
    error, which its commit was answered with, and is again."""

    owner: str
    ended_us: int
    timestamp: Timestamp | None = None
    error: DodonaError | None = None


class Holdings(Generic[Held]):
    """All transactions of one gateway, which is the one numbered `gateway`."""

    def __init__(self, gateway: int, limits: HoldingLimits) -> None:
        self._gateway = gateway
        self._limits = limits
        self._open: dict[str, Holding[Held]] = {}
        self._owned: dict[str, int] = {}
        self._ended: OrderedDict[str, End] = OrderedDict()
        self._size_bytes = 0
        self.ended_by_outcome = dict.fromkeys(OUTCOMES, 0)
        """Since the start."""

    @property
    def open_count(self) -> int:
        """How many are open now."""
        return len(self._open)

    @property
    def size_bytes(self) -> int:
        """Of the rows that are buffered now."""
        return self._size_bytes

    def check_room(self, owner: str) -> None:
        """That another may begin. Raises Overloaded."""
        limits = self._limits
        if len(self._open) >= limits.open_count_max:
            text = f"this gateway holds {limits.open_count_max} transactions: end some"
            raise Overloaded(text, open_count_max=limits.open_count_max)
        if self._owned.get(owner, 0) >= limits.open_per_owner_max:
            text = f"you have {limits.open_per_owner_max} transactions open here: end some"
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
        """The transaction, with its lease renewed, or how it ended. Raises InvalidRequest,
        WrongGateway, TransactionNotFound: also for somebody else's."""
        found: Holding[Held] | End | None = self._open.get(text) or self._ended.get(text)
        if found is None:
            its_id = parse_held_id(text)
            if its_id.gateway != self._gateway:
                raise WrongGateway(
                    "another gateway holds this transaction: send its requests there",
                    transaction=text,
                )
        if found is None or found.owner != owner:
            raise TransactionNotFound(
                "no such transaction is held here: it ended long ago, its lease expired, or the "
                "gateway was restarted",
                transaction=text,
            )
        if isinstance(found, Holding):
            self.renew(found, now_us)
        return found

    def renew(self, holding: Holding[Held], now_us: int) -> None:
        """Its lease begins anew."""
        holding.expires_us = now_us + holding.lease_ms * 1000

    def note_size(self, holding: Holding[Held], size_bytes: int) -> None:
        """Its rows have so many bytes now. Of one that is over, which some call was still at, this
        changes nothing."""
        if str(holding.id) not in self._open:
            return
        self._size_bytes += size_bytes - holding.size_bytes
        holding.size_bytes = size_bytes

    def check_size(self) -> None:
        """That more rows may come. Raises Overloaded."""
        bytes_max = self._limits.bytes_max
        if self._size_bytes >= bytes_max:
            text = f"the transactions that this gateway holds have {bytes_max} bytes of rows"
            raise Overloaded(text, bytes_max=bytes_max)

    def end(
        self,
        holding: Holding[Held],
        now_us: int,
        timestamp: Timestamp | None = None,
        error: DodonaError | None = None,
        *,
        outcome: Outcome | None = None,
    ) -> None:
        """It is over; its end is remembered. Repeating it is harmless. Without an `outcome` it was
        its commit that ended."""
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

    def expire(self, now_us: int, give_up: Callable[[Held], None]) -> int:
        """Give up those whose lease is over. → how many."""
        late = [it for it in self._open.values() if it.expires_us <= now_us and not it.use_count]
        for holding in late:
            give_up(holding.held)
            text = f"the transaction's lease of {holding.lease_ms} ms expired"
            error = TransactionNotFound(text, transaction=str(holding.id))
            self.end(holding, now_us, error=error, outcome="expired")
        self._forget(now_us)
        return len(late)

    def __iter__(self) -> Iterator[Holding[Held]]:
        return iter(self._open.values())

    def _forget(self, now_us: int) -> None:
        oldest_us = now_us - self._limits.ended_ms_max * 1000
        while self._ended:
            first = next(iter(self._ended.values()))
            if len(self._ended) <= self._limits.ended_count_max and first.ended_us > oldest_us:
                return
            self._ended.popitem(last=False)


def check_lease(lease_ms: int) -> int:
    """Raises InvalidRequest."""
    if not 0 < lease_ms <= LEASE_MS_MAX:
        raise InvalidRequest(f"lease_ms is 1 to {LEASE_MS_MAX}, not {lease_ms}")
    return lease_ms
