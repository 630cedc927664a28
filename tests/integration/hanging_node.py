"""A tablet node whose disk hangs for as long as a file named `hang` lies in its data folder.

Owns: the fault. Started in a node's place by `test_failing_disks`. What hangs lets go of Python, as
a sync does, and never for ever.
"""

import runpy
import time
from collections.abc import Sequence

from dodona_tablets.core.records import Record
from dodona_tablets.shell.log import CellLog

HANG = "hang"
HANG_S_MAX = 60.0

_append = CellLog.append


def append_once_it_answers(log: CellLog, records: Sequence[Record]) -> None:
    """As a disk that hangs within a sync, and then goes on."""
    until = time.monotonic() + HANG_S_MAX
    while (log.path / HANG).exists() and time.monotonic() < until:
        time.sleep(0.01)
    _append(log, records)


if __name__ == "__main__":
    CellLog.append = append_once_it_answers  # type: ignore[method-assign,assignment]
    runpy.run_module("dodona_tablets", run_name="__main__", alter_sys=True)
