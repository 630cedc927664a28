"""A writer and a reader of single rows for each cell, for as long as a round lasts.

Owns: the times of acknowledgements, and the rows that were acknowledged. The writer of a cell
writes one row after the other. The reader has connections of its own. It asks for the newest row
that was acknowledged before it asks, so a cell whose owner does not know that it is deposed would
show. The thread of all writers and readers ends with the block.

Limits: a writer has one call under way, and pauses `PAUSE_S` between two. A call ends after
`CALL_MS_MAX`.
"""

import asyncio
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from contextlib import suppress
from types import TracebackType
from typing import Any, Final, Self, TypeVar

from dodona.aio import AsyncClient, connect
from dodona_loadtest.live.session_group import now_us
from dodona_wire.errors import DodonaError

COLUMNS: Final = (
    {"name": "k", "type": "int64", "sort_order": "ascending"},
    {"name": "v", "type": "int64"},
)
PAUSE_S: Final = 0.01
CALL_MS_MAX: Final = 10_000
SET_UP_S_MAX: Final = 60.0
TABLETS_PER_CELL: Final = 2
"""The master spreads tablets over all cells, and each cell needs one."""
KEYS_PER_TABLET: Final = 1 << 32
KEYS_PER_LOOKUP: Final = 1_000

Result = TypeVar("Result")


class Pulse:
    """The writer and the reader of one cell."""

    def __init__(self, path: str, cell: int, first_key: int) -> None:
        self.cell = cell
        self.acknowledged: list[tuple[int, int]] = []
        """The instants of the acknowledgements in µs, and the keys of the rows, in order."""
        self.stale_count = 0
        self._path = path
        self._next_key = first_key
        self._missing: set[int] = set()
        """The keys of rows that were acknowledged and missing at a look."""

    def last_us(self) -> int:
        """Return when the last row was acknowledged, or 0."""
        return self.acknowledged[-1][0] if self.acknowledged else 0

    async def write(self, db: AsyncClient) -> None:
        """Write rows until cancelled."""
        while True:
            key, self._next_key = self._next_key, self._next_key + 1
            with suppress(DodonaError):
                await db.insert_rows(self._path, [{"k": key, "v": key}], timeout_ms=CALL_MS_MAX)
                self.acknowledged.append((now_us(), key))
            await asyncio.sleep(PAUSE_S)

    async def read(self, db: AsyncClient) -> None:
        """Read rows until cancelled."""
        while True:
            if self.acknowledged:
                key = self.acknowledged[-1][1]
                with suppress(DodonaError):
                    found = await db.lookup_rows(self._path, [{"k": key}], timeout_ms=CALL_MS_MAX)
                    self.stale_count += len(found) != 1
            await asyncio.sleep(PAUSE_S)

    async def lost_count(self, db: AsyncClient) -> int:
        """Return how many acknowledged rows are missing that were not missing at the last call. An
        old row may be lost, too. Raises DodonaError."""
        keys = [key for _, key in self.acknowledged]
        missing = set(keys)
        for first in range(0, len(keys), KEYS_PER_LOOKUP):
            batch = [{"k": key} for key in keys[first : first + KEYS_PER_LOOKUP]]
            found = await db.lookup_rows(self._path, batch, timeout_ms=CALL_MS_MAX)
            missing.difference_update(it["k"] for it in found)
        new_count = len(missing - self._missing)
        self._missing |= missing
        return new_count


class Pulses:
    """The writers and readers of all cells. Enter it while the cluster is sound."""

    def __init__(self, master_url: str, path: str, cell_count: int) -> None:
        """`path` is that of a table that does not exist."""
        self.each: tuple[Pulse, ...] = ()
        self._master_url = master_url
        self._path = path
        self._cell_count = cell_count
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="pulses", daemon=True)
        self._ending = asyncio.Event()
        self._running: Future[None] | None = None
        self._clients: list[AsyncClient] = []
        self._stale_count = 0

    def __enter__(self) -> Self:
        self._thread.start()
        try:
            self._run(self._set_up(), SET_UP_S_MAX)
        except BaseException:
            self._close()
            raise
        self._running = asyncio.run_coroutine_threadsafe(self._beat(), self._loop)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._running is not None
        self._loop.call_soon_threadsafe(self._ending.set)
        try:
            self._running.result()
        finally:
            self._close()

    def are_beating_since(self, since_us: int) -> bool:
        """Return whether each cell has acknowledged a row since this instant."""
        return all(it.last_us() > since_us for it in self.each)

    def lost_count(self) -> int:
        """Return how many acknowledged rows are missing that were not missing at the last call.
        Raises DodonaError."""
        counts = [it.lost_count(self._clients[-1]) for it in self.each]
        return sum(self._run(count, SET_UP_S_MAX) for count in counts)

    def stale_count(self) -> int:
        """Return how many reads of all cells missed a row since the last call."""
        counted, self._stale_count = self._stale_count, sum(it.stale_count for it in self.each)
        return self._stale_count - counted

    def _run(self, work: Coroutine[Any, Any, Result], wait_s_max: float) -> Result:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(wait_s_max)

    def _close(self) -> None:
        for client in self._clients:
            with suppress(DodonaError):
                self._run(client.close(), SET_UP_S_MAX)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    # In the thread

    async def _set_up(self) -> None:
        for _ in range(3):  # writers, readers, and the last look
            self._clients.append(await connect(self._master_url))
        db = self._clients[0]
        count = TABLETS_PER_CELL * self._cell_count
        pivots = [[it * KEYS_PER_TABLET] if it else [] for it in range(count)]
        await db.create_table(self._path, COLUMNS, pivot_keys=pivots, mount=True)
        tablets = (await db.get_table(self._path)).tablets
        first_keys = {
            int(it.cell): at * KEYS_PER_TABLET
            for at, it in enumerate(tablets)
            if it.cell is not None  # all are mounted
        }
        self.each = tuple(Pulse(self._path, *it) for it in sorted(first_keys.items()))

    async def _beat(self) -> None:
        writer, reader, _ = self._clients
        tasks = [asyncio.create_task(it.write(writer)) for it in self.each]
        tasks += [asyncio.create_task(it.read(reader)) for it in self.each]
        ending = asyncio.create_task(self._ending.wait())
        await asyncio.wait([*tasks, ending], return_when=asyncio.FIRST_COMPLETED)
        for task in (*tasks, ending):
            task.cancel()
        for result in await asyncio.gather(*tasks, return_exceptions=True):
            if isinstance(result, Exception):
                raise result
