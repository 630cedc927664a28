"""Write the progress of a cell's start into the book of its starts.

Owns: when that is written: while there is something new, and at a clean stop. The core says what to
write. The book makes it durable, in a thread.
"""

import asyncio
from typing import Any, Final

from dodona_server.process import read_clock
from dodona_server.recovery_book import RecoveryBook
from dodona_tablets.core.start.recovered import Recovered

LOOK_S: Final = 0.25


class RecoveryNotes:
    """The notes of one start. They belong to an event loop from `start` to `close`."""

    def __init__(self, book: RecoveryBook, recovered: Recovered) -> None:
        self._book = book
        self._recovered = recovered
        self._task: asyncio.Task[None] | None = None
        self._written = _changes_of(recovered)

    def start(self) -> None:
        """Take notes until everything is decided."""
        self._task = asyncio.create_task(self._run(), name="recovery notes")

    async def close(self) -> None:
        """Write the last notes, and that this was a clean stop."""
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
