"""Planted bugs: each breaks one rule, and a search must find what a user would see of it.

Owns: the bugs. Must not import: the product.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from early_lock_model.cases import (
    B,
    apart,
    apart_and_plain,
    hot,
    hot_and,
    named,
    never_waits,
    overtaking,
    pair,
    read_beside,
    required,
    sets,
    skipping,
    skipping_apart,
    synced,
    twice,
    withdrawn,
)
from early_lock_model.model import EarlyLockModel
from early_lock_model.rules import Rules
from early_lock_model.state import (
    BLIND,
    LOCKED,
    PLAIN,
    PREPARED,
    Case,
    Record,
    Request,
    Txn,
)


class AnyOrder(Rules):
    def route(self, case: Case, at: int) -> tuple[Request, ...]:
        asked = super().route(case, at)
        return asked[::-1] if at % 2 else asked


class KeyByKey(Rules):
    def split(self, case: Case, txn: Txn, rows: int) -> tuple[Request, ...]:
        keys = [1 << row for row in range(len(case.cell_of)) if rows >> row & 1]
        return tuple(it for key in keys for it in super(KeyByKey, self).split(case, txn, key))

    def route(self, case: Case, at: int) -> tuple[Request, ...]:
        asked = super().route(case, at)
        return asked[::-1] if at % 2 else asked


class PartOfASet(Rules):
    grants_whole = False


class Twice(Rules):
    refuses_second = False


class OverOwners(Rules):
    looks_at_owners = False


class OverLocked(Rules):
    def is_holder(self, record: Record, is_owner: bool) -> bool:
        return record.phase == PREPARED


class OverPrepared(Rules):
    def is_holder(self, record: Record, is_owner: bool) -> bool:
        return record.phase == LOCKED


class PastEarlier(Rules):
    looks_at_earlier = False


class Open(Rules):
    closes = False


class BlindBeside(Rules):
    blind_queues = False


class PlainPasses(Rules):
    refuses_plain = False


class PlainWaits(Rules):
    plain_waits = True


class ConditionPasses(Rules):
    refuses_conditions = False


class GrantedOverWeak(Rules):
    grants_wait_for_weak = False


class BeforeTheLastGrant(Rules):
    begins_after_grants = False


class Trusting(Rules):
    def rows_to_check(self, rows: int, txn: Txn) -> int:
        return rows & ~txn.locks


class LeftOut(Rules):
    commits_locks = False


class ReadsEarly(Rules):
    reads_wait_for_syncs = False


class NoLease(Rules):
    has_lease = False


class LeaseTakesAll(Rules):
    lease_keeps_commit = False


class Forgotten(Rules):
    remembers_ended = False


class ForgottenBlocked(Rules):
    remembers_blocked = False


class PastTheFence(Rules):
    obeys_fence = False


class Silent(Rules):
    answers_ended = False


class AtPrepared(Rules):
    hands_over = PREPARED

    def is_holder(self, record: Record, is_owner: bool) -> bool:
        phases = (LOCKED,) if is_owner else (LOCKED, PREPARED)
        return record.phase in phases


class FirstWaiter(Rules):
    wakes_all = False


class AsleepAtTheEnd(Rules):
    wakes_at_end = False


class AsleepAtTheOutcome(Rules):
    wakes_at_outcome = False


class KeptAtUnmount(Rules):
    unmount_ends = False


class QueuesNowait(Rules):
    nowait_queues = True


class TakesClosed(Rules):
    skips_closed = False


@dataclass(frozen=True, slots=True)
class PlantedBug:
    """A bug, the configuration that shows it, and the promise that it breaks."""

    title: str
    rules: Callable[[], Rules]
    case: Case
    promise: str

    def make(self) -> EarlyLockModel:
        return EarlyLockModel(self.case, self.rules())


BUGS: Final = (
    PlantedBug("cells are asked in any order", AnyOrder, apart(), "DEADLOCK"),
    PlantedBug("the rows of a cell are asked for one by one", KeyByKey, pair(), "DEADLOCK"),
    PlantedBug("a part of a set is granted", PartOfASet, sets(), "MUTEX"),
    PlantedBug("an owner locks twice", Twice, twice(), "DEADLOCK"),
    PlantedBug("a grant does not look at owners", OverOwners, hot(2), "MUTEX"),
    PlantedBug("a grant passes a locked commit", OverLocked, hot_and(PLAIN), "MUTEX"),
    PlantedBug("a grant passes a prepared commit", OverPrepared, apart_and_plain(), "MUTEX"),
    PlantedBug("a grant passes an earlier request that overlaps", PastEarlier, sets(), "FIFO"),
    PlantedBug(
        "a request that waits for commits does not close its rows",
        Open,
        overtaking(PLAIN),
        "OVERTAKEN",
    ),
    PlantedBug(
        "a blind transaction waits beside the queue", BlindBeside, overtaking(BLIND), "OVERTAKEN"
    ),
    PlantedBug("a plain writer passes an early lock", PlainPasses, hot_and(PLAIN), "MUTEX"),
    PlantedBug("a plain writer waits for an early lock", PlainWaits, apart_and_plain(), "DEADLOCK"),
    PlantedBug("a condition passes an early lock", ConditionPasses, required(), "MUTEX"),
    PlantedBug("a row is granted over a weak lock", GrantedOverWeak, required(), "MUTEX"),
    PlantedBug("s is asked for before the last grant", BeforeTheLastGrant, hot(2), "NOLOSE"),
    PlantedBug(
        "a commit trusts an early lock, and checks no version",
        Trusting,
        hot(2, ends=True),
        "LOST UPDATE",
    ),
    PlantedBug(
        "rows that are locked and not written are left out of the commit",
        LeftOut,
        named(ends=True),
        "EXCLUSION",
    ),
    PlantedBug(
        "a grant leaves early, and the commit leaves its rows out",
        LeftOut,
        synced(writes=B),
        "DIRTY",
    ),
    PlantedBug("any read leaves before what it saw is durable", ReadsEarly, read_beside(), "DIRTY"),
    PlantedBug("an early lock has no lease", NoLease, hot(2), "DEADLOCK"),
    PlantedBug(
        "the end of a lease takes the locks of the commit",
        LeaseTakesAll,
        hot(2, ends=True),
        "MUTEX",
    ),
    PlantedBug("an owner that ended is granted again", Forgotten, hot(2, ends=True), "NOLOSE"),
    PlantedBug(
        "an owner that found no row free is granted one later",
        ForgottenBlocked,
        skipping_apart(),
        "DEADLOCK",
    ),
    PlantedBug(
        "an owner from before a restart is granted again",
        PastTheFence,
        hot(2, crashes_max=1),
        "NOLOSE",
    ),
    PlantedBug("a request that has ended is not answered", Silent, hot(2, ends=True), "DEADLOCK"),
    PlantedBug("early locks are handed over at prepared", AtPrepared, apart(), "MUTEX"),
    PlantedBug("only the first request that waits is looked at", FirstWaiter, withdrawn(), "WAKE"),
    PlantedBug(
        "no request is looked at when a lease ends", AsleepAtTheEnd, hot(2, ends=True), "WAKE"
    ),
    PlantedBug("no request is looked at at an outcome", AsleepAtTheOutcome, hot(2), "WAKE"),
    PlantedBug(
        "an unmount does not end the locks of owners",
        KeptAtUnmount,
        hot(2, unmounts_max=1),
        "NOLOSE",
    ),
    PlantedBug("an owner with nowait queues", QueuesNowait, never_waits(), "DEADLOCK"),
    PlantedBug(
        "skip_locked takes a row that a waiting set closes", TakesClosed, skipping(), "FIFO"
    ),
)
