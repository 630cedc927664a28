"""Mutants that no test can kill, since nobody could tell them from the original.

Owns: the list, each entry with its reason. A mutant is recognized by its module and by the lines
that it removes and adds, wherever in the module they are; an entry whose lines are gone from the
module fails a test.
"""

from mutation.equivalent_client import OF_CLIENT
from mutation.equivalent_oracle import OF_ORACLE
from mutation.mutant import Equivalent, Mutant

LOCKS = "tablets/dodona_tablets/core/tablet/locks.py"
TAKING = "tablets/dodona_tablets/core/commit/taking.py"
COORDINATOR = "tablets/dodona_tablets/core/commit/coordinator.py"
ADMISSION = "tablets/dodona_tablets/core/commit/admission.py"
CHUNKS = "tablets/dodona_tablets/core/cell/chunks.py"
TRANSACTION = "tablets/dodona_tablets/core/tablet/transaction.py"
RETENTION = "tablets/dodona_tablets/core/rows/retention.py"
VERSION = "tablets/dodona_tablets/core/rows/version.py"
STORE = "tablets/dodona_tablets/core/rows/store.py"

OF_TABLETS: tuple[Equivalent, ...] = (
    Equivalent(
        LOCKS,
        "if newest is None or newest[0] <= start:",
        "if newest is None or newest[0] < start:",
        "only a shortcut: the loop below looks at no version at the start either",
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
        TAKING,
        "recent = [store.rows for store in stores if store.max_timestamp > start]",
        "recent = [store.rows for store in stores if store.max_timestamp >= start]",
        "only a shortcut: no version at the start is in the way",
    ),
    Equivalent(
        COORDINATOR,
        "self._cell.turn_away(transaction, participants, POISONED, is_blind=False)",
        "self._cell.turn_away(transaction, participants, POISONED, is_blind=True)",
        "there are two participants: only of one it is asked whether it was blind",
    ),
    Equivalent(
        ADMISSION,
        "is_alone = len(participants) == 1",
        "is_alone = len(participants) == 0",
        "only a shortcut: one participant is distinct",
    ),
    Equivalent(
        ADMISSION,
        "if len(modifications) > 1 and not are_distinct([part.tablet for part in modifications]):",
        "if len(modifications) > 0 and not are_distinct([part.tablet for part in modifications]):",
        "only a shortcut: one part has one tablet",
    ),
    Equivalent(
        ADMISSION,
        "if len(modifications) > 1 and not are_distinct([part.tablet for part in modifications]):",
        "if len(modifications) >= 1 and not are_distinct([part.tablet for part in modifications]):",
        "only a shortcut: one part has one tablet",
    ),
    Equivalent(
        TRANSACTION,
        "self.asked_at_us = 0",
        "self.asked_at_us = -1",
        "it is set with the first route, and read only if there is one",
    ),
    Equivalent(
        TRANSACTION,
        "self.asked_at_us = 0",
        "self.asked_at_us = 1",
        "it is set with the first route, and read only if there is one",
    ),
    Equivalent(
        RETENTION,
        "if not old or (len(old) == 1 and _may_stay(old[0], terms)):",
        "if not old and (len(old) == 1 and _may_stay(old[0], terms)):",
        "only a shortcut: the steps below leave such a row as it is",
    ),
    Equivalent(
        RETENTION,
        "if not old or (len(old) == 1 and _may_stay(old[0], terms)):",
        "if not old or (len(old) == 0 and _may_stay(old[0], terms)):",
        "only a shortcut: the steps below leave such a row as it is",
    ),
    Equivalent(
        RETENTION,
        "if not old or (len(old) == 1 and _may_stay(old[0], terms)):",
        "if not old or (len(old) == 1 and _may_stay(old[ -1], terms)):",
        "there is one",
    ),
    Equivalent(
        RETENTION,
        "is_plain_write = len(only) == 4 and only[1] != DELETE_MASK",
        "is_plain_write = len(only) == 3 and only[1] != DELETE_MASK",
        "only a shortcut: the steps below leave such a row as it is",
    ),
    Equivalent(
        RETENTION,
        "is_plain_write = len(only) == 4 and only[1] != DELETE_MASK",
        "is_plain_write = len(only) == 5 and only[1] != DELETE_MASK",
        "only a shortcut: the steps below leave such a row as it is",
    ),
    Equivalent(
        RETENTION,
        "return is_plain_write and (terms.settings.min_data_versions > 0 "
        "or only[0] >= oldest_kept)",
        "return is_plain_write and (terms.settings.min_data_versions > 0 "
        "and only[0] >= oldest_kept)",
        "only a shortcut: the steps below leave such a row as it is",
    ),
    Equivalent(
        RETENTION,
        "return is_plain_write and (terms.settings.min_data_versions > 0 "
        "or only[0] >= oldest_kept)",
        "return is_plain_write and (terms.settings.min_data_versions > 0 or only[0] > oldest_kept)",
        "only a shortcut: the steps below leave such a row as it is",
    ),
    Equivalent(
        RETENTION,
        "return is_plain_write and (terms.settings.min_data_versions > 0 "
        "or only[0] >= oldest_kept)",
        "return is_plain_write and (terms.settings.min_data_versions > 1 "
        "or only[0] >= oldest_kept)",
        "only a shortcut: the steps below leave such a row as it is",
    ),
    Equivalent(
        RETENTION,
        "if most > least:",
        "if most >= least:",
        "only a shortcut: with equal numbers no more than the least stay",
    ),
    Equivalent(
        VERSION,
        "if newest is not None and newest[0] > timestamp:",
        "if newest is not None and newest[0] >= timestamp:",
        "only a shortcut: the walk ends at this version",
    ),
    Equivalent(
        VERSION,
        "return newest[2] if newest[1] == wanted else _merged(newest, wanted, full)",
        "return newest[2] if newest[ 2] == wanted else _merged(newest, wanted, full)",
        "only a shortcut: the versions are merged to the same values",
    ),
    Equivalent(
        STORE,
        "if lowest < self.min_timestamp:",
        "if lowest <= self.min_timestamp:",
        "an equal one changes nothing",
    ),
    Equivalent(
        STORE,
        "if highest > self.max_timestamp:",
        "if highest >= self.max_timestamp:",
        "an equal one changes nothing",
    ),
    Equivalent(
        STORE,
        "if not rungs or rungs[-1][0] <= at:",
        "if not rungs or rungs[- 0][0] <= at:",
        "only earlier: rungs are added for the newer versions once",
    ),
    Equivalent(
        STORE,
        "if not rungs or rungs[-1][0] <= at:",
        "if not rungs or rungs[-1][ 1] <= at:",
        "only earlier: rungs are added for the newer versions once",
    ),
    Equivalent(
        STORE,
        "return _merged([part for part in parts if part[1] < part[2]])",
        "return _merged([part for part in parts if part[1] <= part[2]])",
        "an empty part has no keys",
    ),
    Equivalent(
        STORE,
        "break",
        "continue",
        "only a shortcut: nothing is left to free",
    ),
    Equivalent(
        STORE,
        "while len(parts) > 1:",
        "while len(parts) > 0:",
        "only a shortcut for the last part",
    ),
    Equivalent(
        STORE,
        "while len(parts) > 1:",
        "while len(parts) >= 1:",
        "only a shortcut for the last part",
    ),
    Equivalent(
        STORE,
        "share = max(window_keys // len(parts), 1)",
        "share = max(window_keys * len(parts), 1)",
        "how many keys a window has is a choice",
    ),
    Equivalent(
        STORE,
        "share = max(window_keys // len(parts), 1)",
        "share = max(window_keys // len(parts), 2)",
        "how many keys a window has is a choice",
    ),
    Equivalent(
        STORE,
        "window_keys = min(2 * window_keys, WINDOW_KEYS)",
        "window_keys = min( 3 * window_keys, WINDOW_KEYS)",
        "how many keys a window has is a choice",
    ),
    Equivalent(
        STORE,
        "window_keys = min(2 * window_keys, WINDOW_KEYS)",
        "window_keys = min(2 + window_keys, WINDOW_KEYS)",
        "how many keys a window has is a choice",
    ),
    Equivalent(
        LOCKS,
        "special, last_mask = part.special, -1",
        "special, last_mask = part.special, - 2",
        "no mask is negative",
    ),
    Equivalent(
        COORDINATOR,
        "cell.turn_away(transaction, participants, POISONED, is_blind=False)",
        "cell.turn_away(transaction, participants, POISONED, is_blind=True)",
        "there are two participants: only of one it is asked whether it was blind",
    ),
    Equivalent(
        STORE,
        "window_keys = min(2 * window_keys, WINDOW_KEYS)",
        "window_keys = min( 1 * window_keys, WINDOW_KEYS)",
        "how many keys a window has is a choice",
    ),
)
EQUIVALENT: tuple[Equivalent, ...] = (*OF_TABLETS, *OF_ORACLE, *OF_CLIENT)


def is_equivalent(mutant: Mutant) -> bool:
    return any(
        it.module == mutant.module and mutant.diff == (f"- {it.before}", f"+ {it.after}")
        for it in EQUIVALENT
    )
