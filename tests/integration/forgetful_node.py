"""A tablet node with a planted fault: it says that records are durable when they are not.

Owns: the fault. Started in a node's place by `test_kills`, which must find it out. What comes
before a process's first write is durable: a cell that has no log at all is refused by the master,
and then nobody commits anything that could be lost.
"""

import runpy
from collections.abc import Sequence

from dodona_tablets.core.records import CommittedHere, PreparedHere, Record, RowsWritten
from dodona_tablets.shell.log import CellLog

GROUPS_KEPT_BACK = 8

_append = CellLog.append
_kept_back: list[Sequence[Record]] = []


def append_late(log: CellLog, records: Sequence[Record]) -> None:
    """Several groups at once, when there are enough."""
    is_write = any(isinstance(it, CommittedHere | PreparedHere | RowsWritten) for it in records)
    if not _kept_back and not is_write:
        _append(log, records)
        return
    _kept_back.append(records)
    if len(_kept_back) == GROUPS_KEPT_BACK:
        _append(log, [record for group in _kept_back for record in group])
        _kept_back.clear()


if __name__ == "__main__":
    CellLog.append = append_late  # type: ignore[method-assign,assignment]
    runpy.run_module("dodona_tablets", run_name="__main__", alter_sys=True)
