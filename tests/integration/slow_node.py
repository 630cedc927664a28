"""A tablet node with a long log: its replay lasts until a file is there.

Owns: the wait. Started in a node's place by `test_drain`. The file is named by DODONA_TEST_GATE.
"""

import os
import runpy
import time
from collections.abc import Iterator
from pathlib import Path

from dodona_tablets.core.records import Record
from dodona_tablets.shell.log import CellLog

GATE = "DODONA_TEST_GATE"
WAIT_SECONDS_MAX = 600.0

_read = CellLog.read


def read_slowly(log: CellLog, checkpoint: int | None = None) -> Iterator[Record]:
    """As ever, once the file is there."""
    until = time.monotonic() + WAIT_SECONDS_MAX
    while not Path(os.environ[GATE]).exists() and time.monotonic() < until:
        time.sleep(0.01)
    return _read(log, checkpoint)


if __name__ == "__main__":
    CellLog.read = read_slowly  # type: ignore[method-assign, assignment]
    runpy.run_module("dodona_tablets", run_name="__main__", alter_sys=True)
