"""The replicated log as one model: all parts, one at a time, in any order.

Owns: the list of steps, the promises that each state must keep, and how a state is packed. Must not
import: planted bugs, configurations.
"""

from collections.abc import Iterator
from struct import Struct
from typing import Any, Final, cast

from replication_model.bounds import Bounds
from replication_model.cutting import cut, cut_replica
from replication_model.document import (
    apply_change,
    change_set,
    first_state,
    learn_change,
    release,
    take_over,
)
from replication_model.leases import may_read, ping, tick
from replication_model.logs import has_all, opening_record, show
from replication_model.owners import acknowledge, take_log, write
from replication_model.replicas import arrive, fence, lose_disk
from replication_model.rules import Rules
from replication_model.settling import settled
from replication_model.state import (
    CANDIDATE,
    ENDED,
    IN_SET,
    LOST,
    OWNER,
    Owner,
    State,
)
from replication_model.step import Step

NUMBER_BYTES: Final = 4
"""Of the number of a head, a replica or an owner in a packed state."""


class _Parts:
    """The parts of states that were met, each with a number. A part that is equal to an earlier one
    has its number."""

    def __init__(self) -> None:
        self.values: list[Any] = []
        self._numbers: dict[Any, int] = {}
        self._known: dict[int, int] = {}
        """By address. A part of `values` is never removed, so its address stays its own."""

    def numbers_of(self, parts: tuple[Any, ...]) -> list[int]:
        numbers = [*map(self._known.get, map(id, parts))]
        if None in numbers:
            for at, number in enumerate(numbers):
                if number is None:
                    numbers[at] = self._number_of(parts[at])
        return cast("list[int]", numbers)

    def _number_of(self, part: Any) -> int:
        number = self._numbers.get(part)
        if number is None:
            number = self._numbers[part] = len(self.values)
            self.values.append(part)
            self._known[id(part)] = number
        return number


class LogModel:
    """The replicated log under some rules."""

    def __init__(self, bounds: Bounds, rules: type[Rules] = Rules) -> None:
        self.bounds = bounds
        self.rules = rules(bounds)
        self._parts = _Parts()
        self._forms = [
            Struct(f"{1 + bounds.replica_count + count}I")
            for count in range(bounds.epoch_count + 2)
        ]

    @property
    def title(self) -> str:
        return self.bounds.title

    def first(self) -> State:
        return first_state(self.rules, (opening_record(1, False),))

    def steps(self, state: State) -> Iterator[Step[State]]:
        """Return all that can happen next."""
        for step in self._far_reaching(state):
            if step.violation is not None:
                yield step
            else:
                yield Step(step.action, step.details, self.settle(step.state))
        yield from self._local(state)

    def settle(self, state: State) -> State:
        """Drop what can have no effect any more."""
        return settled(self.rules, state)

    def _far_reaching(self, state: State) -> Iterator[Step[State]]:
        """Steps after which something may have no effect any more."""
        rules = self.rules
        yield from take_over(rules, state)
        for at, owner in enumerate(state.owners):
            if owner.phase == ENDED:
                continue
            if owner.phase in (CANDIDATE, OWNER):
                yield from fence(rules, state, at, owner)
            if owner.phase == CANDIDATE:
                yield from take_log(rules, state, at, owner)
                continue
            yield from acknowledge(rules, state, at, owner)
            yield from change_set(rules, state, at, owner)
            yield from apply_change(state, at, owner)
            yield from learn_change(state, at, owner)
            yield from release(rules, state, at, owner)
        yield from tick(state)
        yield from lose_disk(rules, state)
        yield from rules.extra(state)

    def _local(self, state: State) -> Iterator[Step[State]]:
        """Steps that leave a settled state settled."""
        rules = self.rules
        for at, owner in enumerate(state.owners):
            if owner.log:
                yield from arrive(rules, state, owner)
            if owner.phase == OWNER:
                yield from write(rules, state, at, owner)
                if self.bounds.has_pings:
                    yield from ping(rules, state, at, owner)
                if self.bounds.may_cut:
                    yield from cut(rules, state, at, owner)
                    yield from cut_replica(rules, state, owner)

    def violation(self, state: State) -> str | None:
        """Return which promise a state breaks."""
        if self.bounds.checks_reads:
            for at, owner in enumerate(state.owners):
                if owner.phase == OWNER and (found := self._stale_read(state, at, owner)):
                    return found
        if self.bounds.checks_members:
            return _incomplete_member(state)
        return None

    def _stale_read(self, state: State, at: int, owner: Owner) -> str | None:
        known = state.head.acknowledged
        if owner.acknowledged >= len(known) and has_all(owner.log, known):
            return None
        if not may_read(self.rules, state, at, owner):
            return None
        shown = show(owner.log[: owner.acknowledged])
        is_newest = owner.epoch == state.head.epoch and owner is state.owners[-1]
        what = "an acknowledged write is lost" if is_newest else "a stale read"
        return f"{what}: epoch {owner.epoch} shows {shown}, acknowledged is {show(known)}"

    # ---- states as bytes

    def pack(self, state: State) -> bytes:
        """Return the same bytes for every order of the replicas."""
        numbers_of = self._parts.numbers_of
        replicas = numbers_of(state.replicas)
        replicas.sort()
        owners = numbers_of(state.owners)
        return self._forms[len(owners)].pack(*numbers_of((state.head,)), *replicas, *owners)

    def unpack(self, packed: bytes) -> State:
        values = self._parts.values
        count = 1 + self.bounds.replica_count
        form = self._forms[len(packed) // NUMBER_BYTES - count]
        head, *others = [values[it] for it in form.unpack(packed)]
        return State(head, tuple(others[count - 1 :]), tuple(others[: count - 1]))


def _incomplete_member(state: State) -> str | None:
    known = state.head.acknowledged
    for replica in state.replicas:
        is_member = replica.member & IN_SET and replica.epoch != LOST
        if is_member and not has_all(replica.log, known):
            return f"a member has {show(replica.log)}, acknowledged is {show(known)}"
    return None
