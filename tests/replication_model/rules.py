"""The decisions of the protocol's rules, one method each.

Owns: what a replica accepts, what an owner counts, and what a successor waits for. A planted bug is
a subclass that gets one of these decisions wrong, so no part has a switch for a bug. Must not
import: parts. A part asks the rules, and makes the steps.
"""

from collections.abc import Iterator, Sequence

from replication_model.bounds import Bounds
from replication_model.logs import CUT, Log, agreed_count
from replication_model.state import (
    APPLIED,
    CANDIDATE,
    CONFIRMED,
    NOT_BEGUN,
    PROPOSED,
    SENT,
    Owner,
    Replica,
    State,
    View,
)
from replication_model.step import Step


class Rules:
    """The rules as they are designed."""

    takes_over = True
    """A take-over compares the mod revision, in one step (R1). A bug may have its own steps."""
    candidate_fences_spares = False
    ended_may_acknowledge = False
    """An owner that the fence has stopped may acknowledge all the same. If so, its state stays."""
    ended_may_read = False

    def __init__(self, bounds: Bounds) -> None:
        self.bounds = bounds

    # ---- replicas

    def accepts(self, replica: Replica, owner: Owner) -> bool:
        """Whether an append of this owner may arrive (R4)."""
        return replica.epoch == owner.epoch

    def agreed(self, stored: Log, log: Log) -> int:
        """How many entries of a replica are the owner's, too (R9)."""
        return agreed_count(stored, log)

    def stored(self, replica: Replica, owner: Owner) -> int:
        """How many entries a replica of the owner's epoch says that it has stored. A log without
        its checkpoint has none (R25)."""
        count = self.agreed(replica.log, owner.log)
        is_whole = count == len(replica.log) and count > 0 and replica.log[-1] != CUT
        return count if is_whole else 0

    def said(self, replica: Replica, at: int, owner: Owner) -> int:
        """What the owner may count of this replica at most (R7)."""
        if replica.epoch != owner.epoch:
            return replica.views[at].said
        return 0 if owner.phase == CANDIDATE else self.stored(replica, owner)

    # ---- the set

    def possible(self, at: int, owner: Owner, replicas: Sequence[Replica]) -> list[Replica]:
        """Every replica of every possible set (R16, R17)."""
        mask = CONFIRMED | PROPOSED if owner.change in (SENT, APPLIED) else CONFIRMED
        return [it for it in replicas if it.views[at].roles & mask]

    def may_drop(self, member_count: int) -> bool:
        """R14."""
        return member_count > self.bounds.copies_min

    def may_join(self, replica: Replica, owner: Owner) -> bool:
        """Whether a learner has enough to be proposed (R15)."""
        return self.stored(replica, owner) >= max(owner.acknowledged, owner.opening)

    # ---- a successor

    def may_fetch(self, replica: Replica, at: int, owner: Owner) -> bool:
        """Whether a candidate may take the log of this replica (R5, R6)."""
        is_member = bool(replica.views[at].roles & CONFIRMED)
        return is_member and replica.epoch == owner.epoch

    def first_wait(self, is_released: bool) -> int:
        """The wait of a candidate before its first fence (R21, R31)."""
        return 0 if is_released or self.bounds.confirms_reads else NOT_BEGUN

    def wait_by_fence(self, replica: Replica, at: int, owners: Sequence[Owner]) -> int:
        """The wait of a candidate after the first fenced replica, if that begins it (R21)."""
        is_member = bool(replica.views[at].roles)
        return self.bounds.wait_ticks if is_member else NOT_BEGUN

    def acknowledged_at_start(self, log: Log) -> int:
        """What a successor serves before it has acknowledged anything (R11)."""
        return 0

    # ---- acknowledging and reading

    def are_enough(self, have: Sequence[bool]) -> bool:
        """Whether so many of the possible sets' replicas are enough (R12)."""
        return bool(have) and all(have)

    def lease_of(self, ticks: Sequence[int]) -> int:
        """The lease by those of the possible sets' replicas (R18)."""
        return min(ticks, default=0)

    def lease_by_ping(self, owner: Owner) -> int:
        """The lease that a ping gives which all have answered, counted from its sending (R18)."""
        return owner.ping

    def lease_at_leaving(self, view: View) -> int:
        """For how long the answers of a replica count that leaves the epoch now."""
        has_none = self.bounds.has_pings or self.bounds.confirms_reads
        return 0 if has_none else self.bounds.lease_ticks

    def lease_at_pong(self, view: View) -> int:
        """What a replica remembers of its answer to a ping: nothing (R21)."""
        return view.lease

    def cut_end(self, owner: Owner) -> int:
        """The entry before this index is the newest checkpoint that may be cut at (R24)."""
        return owner.acknowledged

    # ---- planted bugs

    def extra(self, state: State) -> Iterator[Step[State]]:
        """Return steps that only a broken protocol has."""
        yield from ()
