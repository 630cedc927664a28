"""The thread that makes records durable, while whoever has them goes on.

Owns: the thread and the way to it. It appends one batch of records after the other, in order, and
says after each that it is durable. With the first that fails it ends: no append is tried after
another has failed.
"""

import threading
from collections.abc import Callable, Sequence
from queue import SimpleQueue
from typing import Any, Protocol

from dodona_server.scheduling import take_short_turns


class Log(Protocol):
    """Where records become durable. `append` blocks until they are, and is called from a thread."""

    def append(self, records: Sequence[Any]) -> None: ...


class LogThread:
    """Appends to this log from when it is made until it is closed. `report` is called in the thread
    after each batch: with None when it is durable, else with what went wrong."""

    def __init__(self, log: Log, report: Callable[[BaseException | None], None]) -> None:
        self._log = log
        self._report = report
        self._batches: SimpleQueue[Sequence[Any] | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="dodona-log", daemon=True)
        self._thread.start()

    def append(self, records: Sequence[Any]) -> None:
        """Have them made durable, behind those of earlier calls. Returns at once."""
        self._batches.put(records)

    def close(self, wait_ms_max: int) -> None:
        """End the thread, behind what it was given."""
        self._batches.put(None)
        self._thread.join(wait_ms_max / 1000)

    def _run(self) -> None:
        take_short_turns()  # the disk answers it several times a flush, and everybody waits for it
        while (records := self._batches.get()) is not None:
            try:
                self._log.append(records)
            except BaseException as error:  # noqa: BLE001 - never survive a failed append
                self._report(error)
                return
            self._report(None)
