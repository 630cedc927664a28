"""Writes down what became of a cell's start, in the book of its starts.

Owns: when that is written: while there is something new, and at a stop in order. The core says
what; the book, in a thread, makes it durable.
"""

import asyncio
from typing import Any, Final

from dodona_server.process import read_clock
from dodona_server.recovery_book import RecoveryBook
from dodona_tablets.core.start.recovered import Recovered

LOOK_S: Final = 0.25


class RecoveryNotes:
    """Of one start. Belongs to an event loop from `start` to `close`."""

    def __init__(self, book: RecoveryBook, recovered: Recovered) -> None:
        self._book = book
        self._recovered = recovered
        self._task: asyncio.Task[None] | None = None
        self._written = _changes_of(recovered)

    def start(self) -> None:
        """Take notes until all is decided."""
        self._task = asyncio.create_task(self._run(), name="recovery notes")

    async def close(self) -> None:
        """The last ones, and that this was a stop in order."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
        changes = {**_changes_of(self._recovered), "stopped_us": read_clock().unix_us}
        await asyncio.to_thread(self._book.amend, **changes)

    async def _run(self) -> None:
        is_settled = False
        while not is_settled:
            await asyncio.sleep(LOOK_S)
            is_settled = self._recovered.is_quiet
            changes = _changes_of(self._recovered)
            if changes != self._written:
                self._written = changes
                await asyncio.to_thread(self._book.amend, **changes)


def _changes_of(recovered: Recovered) -> dict[str, Any]:
    return {
        "served_after_ms": recovered.served_after_ms,
        "transaction_count": recovered.transaction_count,
        "transactions": tuple(recovered.transactions),
        "loads": recovered.loads,
    }
