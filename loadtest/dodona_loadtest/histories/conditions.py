"""A condition of a commit, in the words of a history.

Owns: what the history has of a condition: the state that it requires, and the lock that keeps it.
"""

from dodona._core.writing.conditions import Requirement
from dodona_loadtest.histories.history import Condition, Lock, Transaction, frozen
from dodona_loadtest.histories.shape import Row, TableShape
from dodona_wire.rows.columns import MAIN_LOCK


def note_condition(record: Transaction, table: TableShape, key: Row, required: Requirement) -> None:
    """Note that the transaction requires this of a row: values, or that it is absent."""
    assert not required.version, "a history knows rows by their values"
    row = table.row_key(key)
    columns = None
    if required.is_absent:
        locks = [it.lock for it in table.value_columns if it.lock is not None]
        groups = table.groups_named([MAIN_LOCK, *locks])
    else:
        names = sorted(required.expected)
        columns = tuple([(name, frozen(required.expected[name])) for name in names])
        groups = table.groups_of([it for it in table.value_columns if it.name in required.expected])
    record.conditions.append(Condition(row, columns))
    record.locks.append(Lock(row, False, groups, is_condition=True))
