"""Cutting a log at a checkpoint. A learner that ends before the cut begins anew: see `replicas`.

Owns: when an owner and a replica may cut. Any acknowledged entry may be a checkpoint here. Must not
import: the document, owners, leases.
"""

from collections.abc import Iterator

from msgspec.structs import replace

from replication_model.logs import CUT, cut_count
from replication_model.replicas import distinct
from replication_model.rules import Rules
from replication_model.state import OWNER, Owner, State
from replication_model.step import Step


def cut(rules: Rules, state: State, at: int, owner: Owner) -> Iterator[Step[State]]:
    """An owner cuts before its newest acknowledged checkpoint (R24)."""
    if owner.phase != OWNER or owner.acknowledged < owner.opening:
        return
    count = rules.cut_end(owner) - 1
    if count > cut_count(owner.log):
        shorter = replace(owner, log=(CUT,) * count + owner.log[count:])
        after = state.with_owner(at, shorter)
        yield Step("epoch {} cuts its log: {}", (owner.epoch, shorter.log), after)


def cut_replica(rules: Rules, state: State, owner: Owner) -> Iterator[Step[State]]:
    """A replica cuts where the owner did, if it has the checkpoint (R24)."""
    count = cut_count(owner.log)
    for place, replica in distinct(state.replicas):
        is_behind = cut_count(replica.log) < count < len(replica.log)
        if replica.epoch != owner.epoch or not is_behind:
            continue
        if rules.agreed(replica.log, owner.log) == len(replica.log):
            shorter = replace(replica, log=(CUT,) * count + replica.log[count:])
            after = state.with_replica(place, shorter)
            yield Step("a replica cuts its log: {}", (shorter.log,), after)
