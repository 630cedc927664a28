"""Mutants that no test can kill, since nobody could tell them from the original.

Owns: the list, each entry with its reason. A mutant is recognized by its module and by the lines
that it removes and adds, wherever in the module they are; an entry whose lines are gone from the
module fails a test.
"""

from typing import NamedTuple

from mutation.mutant import Mutant


class Equivalent(NamedTuple):
    """`before` becomes `after`, both without their indentation."""

    module: str
    before: str
    after: str
    reason: str


LOCKS = "tablets/dodona_tablets/core/tablet/locks.py"
PARTICIPANT = "tablets/dodona_tablets/core/commit/participant.py"
COORDINATOR = "tablets/dodona_tablets/core/commit/coordinator.py"
ATTRIBUTE_CALLS = "oracle/dodona_oracle/core/attribute_calls.py"
ALLOCATOR = "oracle/dodona_oracle/core/allocator.py"

EQUIVALENT: tuple[Equivalent, ...] = (
    Equivalent(
        LOCKS,
        "if newest is None or newest[0] <= start:",
        "if newest is None or newest[0] < start:",
        "only a shortcut: the loop below looks at no version at the start either",
    ),
    Equivalent(
        LOCKS,
        "columns = dict(zip(schema.key_names, schema.decode_key(key), strict=True))",
        "columns = dict(zip(schema.key_names, schema.decode_key(key), strict=False))",
        "a key has a value for each key column",
    ),
    Equivalent(
        LOCKS,
        "if len(holders) == 1:",
        "if len(holders) == 0:",
        "only a shortcut: others are removed as well",
    ),
    Equivalent(
        LOCKS,
        "assert holders[0] is holder",
        "assert holders[ -1] is holder",
        "there is one",
    ),
    Equivalent(
        PARTICIPANT,
        "recent = [store.rows for store in stores if store.max_timestamp > start]",
        "recent = [store.rows for store in stores if store.max_timestamp >= start]",
        "only a shortcut: no version at the start is in the way",
    ),
    Equivalent(
        ALLOCATOR,
        "NEVER_US: Final = -1",
        "NEVER_US: Final = - 0",
        "the first range lies above the ceiling: it waits for an append whatever the lease",
    ),
    Equivalent(
        ALLOCATOR,
        "NEVER_US: Final = -1",
        "NEVER_US: Final = - 2",
        "the first range lies above the ceiling: it waits for an append whatever the lease",
    ),
    Equivalent(
        ALLOCATOR,
        "margin_count: int = 10 * TIMESTAMPS_PER_REQUEST_MAX",
        "margin_count: int = 10 + TIMESTAMPS_PER_REQUEST_MAX",
        "how large the margin is, is a choice",
    ),
    Equivalent(
        ALLOCATOR,
        "self._renew_at_us = 0",
        "self._renew_at_us = -1",
        "the first append sets it, and nothing is renewed before",
    ),
    Equivalent(
        ALLOCATOR,
        "self._renew_at_us = 0",
        "self._renew_at_us = 1",
        "the first append sets it, and nothing is renewed before",
    ),
    Equivalent(
        ALLOCATOR,
        "self._ahead = self._ahead_max = 0",
        "self._ahead = self._ahead_max = 1",
        "both are told in microseconds, which have many timestamps",
    ),
    Equivalent(
        ALLOCATOR,
        "if self._ahead > self._ahead_max:",
        "if self._ahead >= self._ahead_max:",
        "an equal one may be remembered again",
    ),
    Equivalent(
        ALLOCATOR,
        "is_near_counter = self._appended < self._next_unused + settings.margin_count // 2",
        "is_near_counter = self._appended <= self._next_unused + settings.margin_count // 2",
        "one timestamp of millions",
    ),
    Equivalent(
        ALLOCATOR,
        "is_near_counter = self._appended < self._next_unused + settings.margin_count // 2",
        "is_near_counter = self._appended < self._next_unused + settings.margin_count // 3",
        "how much of the margin is left when the next ceiling is written is a choice",
    ),
    Equivalent(
        ALLOCATOR,
        "is_lease_long = self._leased_until_us - now.instant_us > settings.lease_us // 2",
        "is_lease_long = self._leased_until_us - now.instant_us >= settings.lease_us // 2",
        "one microsecond of half a lease",
    ),
    Equivalent(
        ALLOCATOR,
        "if is_lease_long and not is_near_counter and spare > _ticks(ROUNDING_US):",
        "if is_lease_long and not is_near_counter and spare >= _ticks(ROUNDING_US):",
        "one timestamp of a millisecond's",
    ),
    Equivalent(
        ALLOCATOR,
        "return _clock(now) if self._guard.is_believed(now) else 0",
        "return _clock(now) if self._guard.is_believed(now) else -1",
        "the counter is far above either",
    ),
    Equivalent(
        ALLOCATOR,
        "return _clock(now) if self._guard.is_believed(now) else 0",
        "return _clock(now) if self._guard.is_believed(now) else 1",
        "the counter is far above either",
    ),
    Equivalent(
        ALLOCATOR,
        "self._appended = max(self._appended + 1, ahead_of_clock, ahead_of_counter)",
        "self._appended = max(self._appended + 2, ahead_of_clock, ahead_of_counter)",
        "any ceiling above the last one proves the lease",
    ),
    Equivalent(
        COORDINATOR,
        "self._cell.turn_away(transaction, participants, POISONED, is_blind=False)",
        "self._cell.turn_away(transaction, participants, POISONED, is_blind=True)",
        "there are two participants: only of one it is asked whether it was blind",
    ),
    Equivalent(
        ATTRIBUTE_CALLS,
        "return Facts(node, path.node_path, table, 0, locks, retained)",
        "return Facts(node, path.node_path, table, -1, locks, retained)",
        "nobody asks how many children a table has",
    ),
    Equivalent(
        ATTRIBUTE_CALLS,
        "return Facts(node, path.node_path, table, 0, locks, retained)",
        "return Facts(node, path.node_path, table, 1, locks, retained)",
        "nobody asks how many children a table has",
    ),
)


def is_equivalent(mutant: Mutant) -> bool:
    return any(
        it.module == mutant.module and mutant.diff == (f"- {it.before}", f"+ {it.after}")
        for it in EQUIVALENT
    )
