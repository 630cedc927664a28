"""Planted bugs of the small models: chunks, timestamps, transactions over a change of the owner.

Owns: the bugs. Must not import: the other chapters.
"""

from collections.abc import Iterator, Sequence
from typing import Final

from replication_model.ceiling import CeilingModel, Master, Store
from replication_model.chunks import Bucket, ChunkModel, Keeper, Name, Records, in_use
from replication_model.handover import HandoverModel, Host
from replication_model.planted.bug import PlantedBug
from replication_model.step import Step

# ---- chunks


class CutsEarly(ChunkModel):
    def log_to_cut_by(self, keeper: Keeper) -> Records:
        return keeper.log


class NamesWithoutEpoch(ChunkModel):
    def epoch_in_name(self, keeper: Keeper) -> int:
        return 0


class NamesAgain(ChunkModel):
    """Only names in use are taken. A late DELETE meets the second use of a name."""

    def taken_names(self, log: Records) -> set[Name]:
        return {*in_use(log)}


class DeletesTheUnanswered(ChunkModel):
    """An upload without an answer is deleted, and sent again under its name."""

    def extra(self, state: Bucket, at: int) -> Iterator[Step[Bucket]]:
        keeper = state.keepers[at]
        taken = self.taken_names(keeper.log)
        for put in state.puts:
            is_own = put.name[0] == keeper.epoch and put.name not in taken
            if is_own and put.name not in keeper.answered and put.name not in state.deletes:
                after = self.deleted(state, put.name)
                yield Step("epoch {} gives PUT {}.{} up", (keeper.epoch, *put.name), after)


class RecordsEarly(ChunkModel):
    def may_record(self, is_answered: bool) -> bool:
        return True


class DeletesEarly(ChunkModel):
    def log_to_delete_by(self, keeper: Keeper) -> Records:
        return keeper.log


class CollectsEveryEpoch(ChunkModel):
    def may_be_orphan(self, name: Name, keeper: Keeper) -> bool:
        return name[0] > 0


class CollectsBeforeItServes(ChunkModel):
    def may_collect(self, keeper: Keeper) -> bool:
        return True


class ForgetsTheAppended(ChunkModel):
    """A chunk whose record is only appended counts as an orphan."""

    def used_names(self, keeper: Keeper) -> set[Name]:
        return {*in_use(keeper.acknowledged_log)}

    def may_be_orphan(self, name: Name, keeper: Keeper) -> bool:
        return super().may_be_orphan(name, keeper) or name in keeper.answered


class ForgetsTheAcknowledged(ChunkModel):
    """A chunk whose replacement is only appended counts as an orphan."""

    def used_names(self, keeper: Keeper) -> set[Name]:
        return {*in_use(keeper.log)}


# ---- timestamps


class SavesWithoutOwnership(CeilingModel):
    def takes_appends(self, store: Store, master: Master) -> bool:
        return store.epoch >= master.epoch


class IssuesBelowTheAppended(CeilingModel):
    def bound(self, master: Master) -> int:
        return max(master.appended, master.acknowledged) if master.acknowledged else 0


class IssuesWithoutLease(CeilingModel):
    def needs_lease(self) -> bool:
        return False


class DoesNotWait(CeilingModel):
    def first_wait(self) -> int:
        return 0


class BeginsAtItsClock(CeilingModel):
    def first_unused(self, ceiling: int) -> range:
        return range(1, ceiling + 1)


class ReadsBeforeTheFence(CeilingModel):
    def may_fetch(self, store: Store, master: Master) -> bool:
        return store.epoch <= master.epoch


class CountsOneReplica(CeilingModel):
    def are_enough(self, have: Sequence[bool]) -> bool:
        return any(have)


class KeepsItsLease(CeilingModel):
    """A late answer gives a whole lease."""

    def lease_after_tick(self, lease: int) -> int:
        return lease


class LowersTheCeiling(CeilingModel):
    def ceilings_after(self, ceiling: int) -> list[int]:
        lower = [ceiling - 1] if ceiling > 1 else []
        return [*super().ceilings_after(ceiling), *lower]


# ---- transactions over a change of the owner


class RefusesWithoutLease(HandoverModel):
    refusal_needs_lease = False


class ReadsWithoutLease(HandoverModel):
    read_needs_lease = False


class HasNoFence(HandoverModel):
    has_fence = False


class AsksForTheFenceEarly(HandoverModel):
    def may_ask_for_fence(self, host: Host) -> bool:
        return True


class PreparesEarly(HandoverModel):
    """A transaction locks, and asks for its prepare timestamp, during the wait."""

    def may_lock(self, host: Host) -> bool:
        return True


BUGS: Final[tuple[PlantedBug, ...]] = (
    PlantedBug("R19", "a refusal needs no lease", RefusesWithoutLease),
    PlantedBug("R19", "a read without the transaction needs no lease", ReadsWithoutLease),
    PlantedBug("R23", "a successor takes no fence timestamp", HasNoFence),
    PlantedBug("R23", "the fence timestamp comes before the wait ends", AsksForTheFenceEarly),
    PlantedBug("R23", "a prepare timestamp comes before the wait ends", PreparesEarly),
    PlantedBug("R24", "a log is cut before the chunk's record is acknowledged", CutsEarly),
    PlantedBug("R26", "names of chunks have no epoch", lambda: NamesWithoutEpoch(3, 2, 2)),
    PlantedBug("R26", "a log names a replaced chunk again", lambda: NamesAgain(3, 1, 2)),
    PlantedBug("R26", "an upload without an answer is deleted", DeletesTheUnanswered),
    PlantedBug("R27", "a record is appended before the upload is answered", RecordsEarly),
    PlantedBug("R28", "a chunk is deleted before its replacement is safe", DeletesEarly),
    PlantedBug("R29", "orphans of each epoch are deleted", CollectsEveryEpoch),
    PlantedBug("R29", "orphans are deleted before the owner serves", CollectsBeforeItServes),
    PlantedBug("R29", "an appended record does not protect its chunk", ForgetsTheAppended),
    PlantedBug("R29", "an acknowledged record does not protect its chunk", ForgetsTheAcknowledged),
    PlantedBug("T1", "a ceiling is saved by a master that is deposed", SavesWithoutOwnership),
    PlantedBug("T1", "timestamps are issued below an appended ceiling", IssuesBelowTheAppended),
    PlantedBug("T1", "timestamps are issued without a lease", IssuesWithoutLease),
    PlantedBug("T1", "a new master does not wait", DoesNotWait),
    PlantedBug("T1", "a ceiling is read before the fence", ReadsBeforeTheFence),
    PlantedBug("T1", "a ceiling on one replica is enough", CountsOneReplica),
    PlantedBug("T1", "a master's lease is counted from the answer", KeepsItsLease),
    PlantedBug("T2", "a new master begins at its clock", BeginsAtItsClock),
    PlantedBug("T3", "a clock that goes back lowers the ceiling", LowersTheCeiling),
)
