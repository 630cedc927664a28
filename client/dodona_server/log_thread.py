"""The thread that makes records durable while its caller goes on.

Owns: the thread and the queue to it. The thread appends one batch of records after the other, in
order, and reports after each batch that it is durable. It ends with the first batch that fails: no
append is tried after another has failed.
"""

import threading
from collections.abc import Callable, Sequence
from queue import SimpleQueue
from typing import Any, Protocol

from dodona_server.scheduling import take_short_turns


class Log(Protocol):
    """A log. `append` blocks until the records are durable, and is called from a thread."""

    def append(self, records: Sequence[Any]) -> None: ...


class LogThread:
    """Appends to this log until it is closed. The thread calls `report` after each batch: with None
    when it is durable, else with the error."""

    def __init__(self, log: Log, report: Callable[[BaseException | None], None]) -> None:
        self._log = log
        self._report = report
        self._batches: SimpleQueue[Sequence[Any] | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="dodona-log", daemon=True)
        self._thread.start()

    def append(self, records: Sequence[Any]) -> None:
        """Queue these records behind those of earlier calls. Returns without a wait."""
        self._batches.put(records)

    def close(self, wait_ms_max: int) -> None:
        """End the thread after the batches that it has. Waits for at most `wait_ms_max`."""
        self._batches.put(None)
        self._thread.join(wait_ms_max / 1000)

    def _run(self) -> None:
        take_short_turns()  # it wakes several times in a flush, and all clients wait for it
        while (records := self._batches.get()) is not None:
            try:
                self._log.append(records)
            except BaseException as error:  # noqa: BLE001 - never survive a failed append
                self._report(error)
                return
            self._report(None)
