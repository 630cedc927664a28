"""Show the progress of a job on stderr, for people who do not see Spark's console or page.

Owns: the line, and the thread that writes it. It counts the tasks of stages that began after it. If
the session runs other jobs meanwhile, it counts their tasks, too.
"""

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

PERIOD_S: Final = 1.0


@contextmanager
def told(session: SparkSession, what: str) -> Iterator[None]:
    """Write the progress about once a second, during a `with` block."""
    stop = threading.Event()
    thread = threading.Thread(target=_tell, args=(session, what, stop), name="progress")
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def _tell(session: SparkSession, what: str, stop: threading.Event) -> None:
    try:
        tracker = session.sparkContext.statusTracker()
    except PySparkException:  # a session on another machine, which has its own progress bar
        return
    before = set(tracker.getActiveStageIds())
    tasks: dict[int, tuple[int, int]] = {}
    began_s = time.monotonic()
    is_over = False
    while not is_over:
        is_over = stop.wait(PERIOD_S)
        for number in {*tracker.getActiveStageIds(), *tasks} - before:
            stage = tracker.getStageInfo(number)
            if stage is not None:
                tasks[number] = stage.numCompletedTasks, stage.numTasks
        ended, known = (sum(counts) for counts in zip((0, 0), *tasks.values(), strict=True))
        duration_s = time.monotonic() - began_s
        sys.stderr.write(f"\r{what}: {ended} of {known} tasks, {duration_s:.0f} s")
        sys.stderr.flush()
    sys.stderr.write("\n")
