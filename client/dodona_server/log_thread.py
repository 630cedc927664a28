"""How a runtime's records become durable while it goes on: by a thread, or elsewhere.

Owns: the thread and the queue to it, and what a log elsewhere has to offer. The thread appends one
batch of records after the other, in order, and reports after each batch that it is durable. It ends
with the first batch that fails: no append is tried after another has failed.
"""

import threading
from _queue import SimpleQueue
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from dodona_server.scheduling import take_short_turns
from dodona_wire.types import Now

Report = Callable[[BaseException | None], None]
"""Takes the news that a batch is durable (None), or the error after which nothing more is."""


class Log(Protocol):
    """A log. `append` blocks until the records are durable, and is called from a thread."""

    def append(self, records: Sequence[Any]) -> None: ...


class DistantLog(ABC):
    """A log that is stored by other processes. Another process may take it over at any time.

    So its owner has to prove, for what no append is before, that it still is the owner. All methods
    are called on the event loop, and none blocks."""

    @abstractmethod
    async def join(self) -> None:
        """Live in the running event loop."""

    @abstractmethod
    async def leave(self) -> None:
        """Give the log up, if all batches are durable, and leave the event loop."""

    @abstractmethod
    def begin(self, report: Report) -> None:
        """Report each batch to this function, on the event loop, perhaps within `append`."""

    @abstractmethod
    def append(self, records: Sequence[Any]) -> None:
        """Begin to make a batch durable, once the one before is. A batch without records counts as
        durable when this process has proved that it owned the log after this call."""

    @abstractmethod
    def may_answer(self, now: Now) -> bool:
        """Return whether answers may leave now that no append is before. It is asked for each."""

    @abstractmethod
    def shortage(self, now: Now) -> str | None:
        """Return why nothing can become durable now, if that is known, as `why_late` of a runtime
        does. New requests are refused then."""


class LogThread:
    """Appends to this log until it is closed. The thread calls `report` after each batch: with None
    when it is durable, else with the error."""

    def __init__(self, log: Log, report: Report) -> None:
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
