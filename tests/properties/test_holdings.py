"""What a gateway holds, against a model that keeps everything and looks through all of it."""

from typing import NamedTuple

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from dodona.errors import DodonaError, Overloaded, TransactionNotFound, WrongGateway
from dodona.types import Timestamp
from dodona_gateway.core.holdings import End, Holding, HoldingLimits, Holdings
from dodona_gateway.core.transaction_id import HeldId
from suite.levels import examples

GATEWAY = 3
LIMITS = HoldingLimits(
    open_count_max=4, open_per_owner_max=3, bytes_max=100, ended_count_max=3, ended_ms_max=500
)
OWNERS = st.sampled_from(["ann", "bob"])
PLACES = st.integers(0, 30)
"""Of a transaction that was begun, counted from the last one."""


class Known(NamedTuple):
    """The model's view of one transaction. `ended_us` is None while it is open."""

    owner: str
    lease_ms: int
    expires_us: int
    holding: Holding[list[str]]
    size_bytes: int = 0
    use_count: int = 0
    ended_us: int | None = None
    end: tuple[int | None, str | None] = (None, None)
    ended_rank: int = 0


class HoldingsMachine(RuleBasedStateMachine):
    """Calls of two owners in any order, and time that passes."""

    def __init__(self) -> None:
        super().__init__()
        self.holdings: Holdings[list[str]] = Holdings(
            GATEWAY, LIMITS, lambda held: held.append("given up")
        )
        self.known: list[Known] = []
        self.now_us = 0
        self.ranks = 0

    # ---- the model

    def open(self) -> list[Known]:
        return [it for it in self.known if it.ended_us is None]

    def remembered(self) -> list[Known]:
        ended = sorted(
            (it for it in self.known if it.ended_us is not None), key=lambda it: it.ended_rank
        )
        oldest_us = self.forgot_us - LIMITS.ended_ms_max * 1000
        return [it for it in ended[-LIMITS.ended_count_max :] if (it.ended_us or 0) > oldest_us]

    forgot_us = 0
    """What is too old goes whenever something ends, and when time is looked at."""

    def change(self, place: int, **changes: object) -> None:
        self.known[place] = self.known[place]._replace(**changes)  # type: ignore[arg-type]

    def finish(self, place: int, timestamp: int | None, kind: str | None) -> None:
        self.ranks += 1
        self.forgot_us = self.now_us
        self.change(
            place,
            ended_us=self.now_us,
            end=(timestamp, kind),
            ended_rank=self.ranks,
            size_bytes=0,
        )

    def is_over(self, place: int) -> bool:
        it = self.known[place]
        return it.ended_us is None and it.expires_us <= self.now_us and not it.use_count

    def place(self, back: int) -> int | None:
        return len(self.known) - 1 - back if back < len(self.known) else None

    # ---- what happens

    @rule(owner=OWNERS, lease_ms=st.integers(1, 300))
    def begin(self, owner: str, lease_ms: int) -> None:
        open_ones = self.open()
        mine = [it for it in open_ones if it.owner == owner]
        is_full = len(open_ones) >= LIMITS.open_count_max or len(mine) >= LIMITS.open_per_owner_max
        try:
            self.holdings.check_room(owner)
        except Overloaded:
            assert is_full
            return
        assert not is_full
        place = len(self.known)
        its_id = HeldId(Timestamp(place + 1), "full", GATEWAY, place)
        held = self.holdings.add(its_id, owner, [], lease_ms, self.now_us)
        self.known.append(Known(owner, lease_ms, self.now_us + lease_ms * 1000, held))

    @rule(back=PLACES, owner=OWNERS)
    def find(self, back: int, owner: str) -> None:
        place = self.place(back)
        if place is None:
            return
        if self.is_over(place):
            self.finish(place, None, TransactionNotFound.kind)
        its = self.known[place]
        is_there = its.owner == owner and (its.ended_us is None or its in self.remembered())
        try:
            found = self.holdings.find(str(its.holding.id), owner, self.now_us)
        except TransactionNotFound:
            assert not is_there
            return
        assert is_there
        if isinstance(found, End):
            kind = None if found.error is None else found.error.kind
            assert (found.timestamp, kind) == its.end
        else:
            assert found is its.holding
            self.change(place, expires_us=self.now_us + its.lease_ms * 1000)

    @rule(back=PLACES, gateway=st.integers(0, 9).filter(lambda it: it != GATEWAY))
    def find_elsewhere(self, back: int, gateway: int) -> None:
        its_id = HeldId(Timestamp(back + 1), "full", gateway, back)
        try:
            self.holdings.find(str(its_id), "ann", self.now_us)
        except WrongGateway:
            return
        raise AssertionError("another gateway's transaction was found")

    @rule(back=PLACES, size_bytes=st.integers(0, 80))
    def fill(self, back: int, size_bytes: int) -> None:
        place = self.place(back)
        if place is None:
            return
        self.holdings.note_size(self.known[place].holding, size_bytes)
        if self.known[place].ended_us is None:
            self.change(place, size_bytes=size_bytes)

    @rule(back=PLACES, change=st.sampled_from([1, -1]))
    def use(self, back: int, change: int) -> None:
        place = self.place(back)
        if place is None or self.known[place].use_count + change < 0:
            return
        its = self.known[place]
        its.holding.use_count += change
        self.change(place, use_count=its.use_count + change)
        if change < 0:
            self.holdings.renew(its.holding, self.now_us)
            self.change(place, expires_us=self.now_us + its.lease_ms * 1000)

    @rule(back=PLACES, is_committed=st.booleans())
    def end(self, back: int, is_committed: bool) -> None:
        place = self.place(back)
        if place is None:
            return
        its = self.known[place]
        error = None if is_committed else DodonaError("it failed")
        timestamp = Timestamp(self.ranks) if is_committed else None
        self.holdings.end(its.holding, self.now_us, timestamp, error)
        if its.ended_us is None:
            self.finish(place, timestamp, None if is_committed else DodonaError.kind)

    @rule(ms=st.integers(0, 400))
    def pass_time(self, ms: int) -> None:
        """Leases end meanwhile, and nothing has noticed it yet."""
        self.now_us += ms * 1000

    @rule()
    def expire(self) -> None:
        count = self.holdings.expire(self.now_us)
        late = [place for place in range(len(self.known)) if self.is_over(place)]
        assert count == len(late)
        for place in late:
            assert self.known[place].holding.held == ["given up"]
            self.finish(place, None, TransactionNotFound.kind)
        self.forgot_us = self.now_us

    # ---- what always holds

    @invariant()
    def counts_are_right(self) -> None:
        open_ones = self.open()
        assert [it.id for it in self.holdings] == [it.holding.id for it in open_ones]
        assert self.holdings.open_count == len(open_ones)
        assert self.holdings.size_bytes == sum(it.size_bytes for it in open_ones)
        try:
            self.holdings.check_size()
        except Overloaded:
            assert self.holdings.size_bytes >= LIMITS.bytes_max
        else:
            assert self.holdings.size_bytes < LIMITS.bytes_max

    @invariant()
    def memory_is_bounded(self) -> None:
        assert len(self.holdings._ended) <= LIMITS.ended_count_max
        assert sorted(self.holdings._owned) == sorted({it.owner for it in self.open()})


TestHoldings = HoldingsMachine.TestCase
TestHoldings.settings = settings(max_examples=examples(150), stateful_step_count=40, deadline=None)
