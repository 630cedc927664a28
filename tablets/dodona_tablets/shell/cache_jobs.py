"""Fetch chunks for a cell, and let old copies go, in threads.

Owns: these threads, and how many chunks come side by side. The core bounds how much is requested.

Invariants:
- The bytes of a chunk are delivered after they were checked and their file is durable.
- The object store may fail, and the disk may be full: then the core gets a failure. Any other
  failure of the disk has to end the process.
"""

import logging
import time
from collections.abc import Callable
from typing import Any, Final

from dodona_server.logs import tell
from dodona_tablets.core.rows.chunks.info import ChunkInfo
from dodona_tablets.shell.chunk_cache import ChunkCache
from dodona_wire.cores.effects import EvictChunks, FetchChunk, TouchChunks
from dodona_wire.errors import DataCorrupted, DodonaError
from dodona_wire.messages.base import Failure
from dodona_wire.net.pools import Pool

FETCHED_AT_ONCE_MAX: Final = 4
TOLD_SECONDS_MIN: Final = 5.0
"""The time between two log lines about chunks that were not fetched."""

_logger: Final = logging.getLogger("dodona.node")

Deliver = Callable[[int, Any], object]


class CacheJobs:
    """The threads that carry out `FetchChunk`, `EvictChunks` and `TouchChunks`."""

    def __init__(
        self, cache: ChunkCache, deliver: Deliver, fail: Callable[[BaseException], object]
    ) -> None:
        """Pass the bytes of each chunk, or a failure, with its number to `deliver`, and fatal
        errors to `fail`."""
        self._cache = cache
        self._deliver = deliver
        self._fail = fail
        self._fetches = Pool(FETCHED_AT_ONCE_MAX, "dodona-fetch")
        self._evictions = Pool(1, "dodona-eviction")
        self._told_at_s = -TOLD_SECONDS_MIN

    def handlers(self) -> dict[type[Any], Callable[[Any], None]]:
        """Return what carries out each effect."""
        return {FetchChunk: self.fetch, EvictChunks: self.evict, TouchChunks: self.touch}

    def fetch(self, effect: FetchChunk) -> None:
        self._fetches.submit(self._fetch, effect.info)

    def evict(self, effect: EvictChunks) -> None:
        self._evictions.submit(self._aside, self._cache.evict, effect.numbers)

    def touch(self, effect: TouchChunks) -> None:
        self._evictions.submit(self._aside, self._cache.touch, effect.numbers)

    def close(self) -> None:
        """Drop what has not begun, and wait for the threads."""
        for threads in (self._fetches, self._evictions):
            threads.close(wait=True)

    # In the threads

    def _fetch(self, info: ChunkInfo) -> None:
        try:
            result: Any = self._cache.fetch(info)
        except DodonaError as error:
            self._tell(info, error)
            result = Failure(error.kind, error.message, error.attributes)
        except BaseException as error:  # noqa: BLE001 - what was asked for did not happen
            self._fail(error)
            return
        self._deliver(info.number, result)

    def _tell(self, info: ChunkInfo, error: DodonaError) -> None:
        if isinstance(error, DataCorrupted):
            tell(_logger, logging.ERROR, "chunk_lost", error.message, chunk=info.number)
            return
        now_s = time.monotonic()
        if now_s - self._told_at_s >= TOLD_SECONDS_MIN:
            self._told_at_s = now_s
            text = "a chunk could not be fetched"
            about = {"chunk": info.number, "kind": error.kind, "reason": error.message}
            tell(_logger, logging.WARNING, "chunk_not_fetched", text, **about)

    def _aside(self, work: Callable[..., None], *arguments: Any) -> None:
        try:
            work(*arguments)
        except OSError as error:
            self._fail(error)
