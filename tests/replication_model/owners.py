"""Owners and successors: taking a log, writing, acknowledging.

Owns: what is acknowledged, and the two promises about it: nothing of it is lost, and one owner
acknowledges in an epoch. Must not import: the document, leases, cutting.
"""

from collections.abc import Iterator

from msgspec.structs import replace

from replication_model.logs import CUT, Log, has_all, opening_record, show
from replication_model.replicas import distinct
from replication_model.rules import Rules
from replication_model.state import CANDIDATE, ENDED, NOT_BEGUN, OWNER, RELEASED, Owner, State
from replication_model.step import Step


def take_log(rules: Rules, state: State, at: int, owner: Owner) -> Iterator[Step[State]]:
    """A candidate fetches the log of one replica, and appends its opening record (R5, R6, R11)."""
    for _, replica in distinct(state.replicas):
        has_checkpoint = not replica.log or replica.log[-1] != CUT  # R25
        if has_checkpoint and rules.may_fetch(replica, at, owner):
            log = (*replica.log, opening_record(owner.epoch, _is_second(state, at, owner)))
            count = rules.acknowledged_at_start(log)
            wait = rules.bounds.wait_ticks if owner.wait == NOT_BEGUN else owner.wait
            taken = Owner(owner.epoch, OWNER, log, count, len(log), wait)
            details = (owner.epoch, replica.log)
            yield Step("epoch {} takes the log {}", details, state.with_owner(at, taken))


def _is_second(state: State, at: int, owner: Owner) -> bool:
    """Whether another process has this epoch, too. The rules make that impossible."""
    return any(it.epoch == owner.epoch for index, it in enumerate(state.owners) if index != at)


def write(rules: Rules, state: State, at: int, owner: Owner) -> Iterator[Step[State]]:
    """A serving owner appends a write. It needs no lease for that."""
    head, bounds = state.head, rules.bounds
    if owner.wait or owner.acknowledged < owner.opening or head.write_count >= bounds.write_count:
        return
    if len(owner.log) - owner.acknowledged < bounds.outstanding_max:
        longer = replace(owner, log=(*owner.log, owner.log[-1] + 1))
        after = State(replace(head, write_count=head.write_count + 1), state.owners, state.replicas)
        yield Step("epoch {} writes", (owner.epoch,), after.with_owner(at, longer))


def acknowledge(rules: Rules, state: State, at: int, owner: Owner) -> Iterator[Step[State]]:
    """An owner counts one more entry, or its opening record with all before it (R11, R12)."""
    if owner.phase not in (OWNER, RELEASED) or owner.wait:
        return
    count = max(owner.acknowledged + 1, owner.opening)
    if count > len(owner.log):
        return
    possible = rules.possible(at, owner, state.replicas)
    have = [rules.said(it, at, owner) >= count for it in possible]
    if rules.are_enough(have):
        entries = owner.log[:count]
        violation = _broken_promise(rules, state, at, entries, sum(have))
        known = state.head.acknowledged
        if violation is None and len(entries) >= len(known):
            known = entries if CUT not in entries else known + entries[len(known) :]
        after = replace(state, head=replace(state.head, acknowledged=known))
        counted = after.with_owner(at, replace(owner, acknowledged=count))
        yield Step("epoch {} acknowledges {}", (owner.epoch, entries), counted, violation)


def _broken_promise(
    rules: Rules, state: State, at: int, entries: Log, copy_count: int
) -> str | None:
    epoch, known = state.owners[at].epoch, state.head.acknowledged
    if copy_count < rules.bounds.copies_min:
        return f"epoch {epoch} acknowledges with too few copies: {copy_count}"
    for index, it in enumerate(state.owners):
        has_served = it.phase not in (CANDIDATE, ENDED) and it.acknowledged >= it.opening > 0
        if index != at and it.epoch == epoch and has_served:
            return f"two owners acknowledge in epoch {epoch}"
    if len(entries) >= len(known):
        if has_all(entries, known):
            return None
        return f"an acknowledged write is lost: {show(entries)} replaces {show(known)}"
    if all(mine in (CUT, other) for mine, other in zip(entries, known, strict=False)):
        return None
    return f"two histories: {show(entries)} beside {show(known)}"
