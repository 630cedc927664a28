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
from threading import Lock
from typing import Any, Final

from dodona_server.logs import tell
from dodona_tablets.core.rows.chunks.info import ChunkInfo
from dodona_tablets.shell.chunk_cache import ChunkCache, ChunkGone
from dodona_wire.cores.effects import EvictChunks, FetchChunk, TouchChunks
from dodona_wire.errors import DataCorrupted, DodonaError, Unavailable
from dodona_wire.messages.base import Failure, failure_of
from dodona_wire.net.pools import Pool

FETCHED_AT_ONCE_MAX: Final = 4
TOLD_SECONDS_MIN: Final = 5.0
"""The time between two log lines about chunks that were not fetched."""

LOST_SECONDS_MIN: Final = 60.0
"""The time between two log lines about the same lost chunk."""
LOST_MAX: Final = 1_000
"""So many lost chunks are remembered for that."""

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
        self._lock = Lock()
        self._evicting: dict[int, object] = {}
        """The chunks whose copies are to go, each with what tells the wishes apart. One that is
        fetched again stays."""
        self._told_at_s = -TOLD_SECONDS_MIN
        self._lost_at_s: dict[int, float] = {}
        """When each lost chunk was named in the log the last time."""

    def handlers(self) -> dict[type[Any], Callable[[Any], None]]:
        """Return what carries out each effect."""
        return {FetchChunk: self.fetch, EvictChunks: self.evict, TouchChunks: self.touch}

    def fetch(self, effect: FetchChunk) -> None:
        with self._lock:
            self._evicting.pop(effect.info.number, None)
        self._fetches.submit(self._fetch, effect.info)

    def evict(self, effect: EvictChunks) -> None:
        with self._lock:
            self._evicting |= dict.fromkeys(effect.numbers, effect.numbers)
        self._evictions.submit(self._evict, effect)

    def touch(self, effect: TouchChunks) -> None:
        self._evictions.submit(self._touch, effect)

    def close(self) -> None:
        """Drop what has not begun, and wait for the threads."""
        self._cache.close()
        for threads in (self._fetches, self._evictions):
            threads.close(wait=True)

    # In the threads

    def _fetch(self, info: ChunkInfo) -> None:
        try:
            result: Any = self._cache.fetch(info)
        except ChunkGone as error:
            result = Failure(Unavailable.kind, str(error))
        except DodonaError as error:
            self._tell(info, error)
            result = failure_of(error)
        except BaseException as error:  # noqa: BLE001 - what was asked for did not happen
            self._fail(error)
            return
        self._deliver(info.number, result)

    def _tell(self, info: ChunkInfo, error: DodonaError) -> None:
        now_s = time.monotonic()
        if isinstance(error, DataCorrupted):
            if now_s - self._lost_at_s.get(info.number, -LOST_SECONDS_MIN) >= LOST_SECONDS_MIN:
                if len(self._lost_at_s) >= LOST_MAX:
                    self._lost_at_s.clear()
                self._lost_at_s[info.number] = now_s
                tell(_logger, logging.ERROR, "chunk_lost", error.message, chunk=info.number)
            return
        if now_s - self._told_at_s >= TOLD_SECONDS_MIN:
            self._told_at_s = now_s
            text = "a chunk could not be fetched"
            about = {"chunk": info.number, "kind": error.kind, "reason": error.message}
            tell(_logger, logging.WARNING, "chunk_not_fetched", text, **about)

    def _evict(self, effect: EvictChunks) -> None:
        """Remove copies. The last reference to their maps ends with this call."""
        with self._lock:
            wishes = dict(self._evicting)
        try:
            done = self._cache.evict(effect.numbers, self._evicting.__contains__)
        except BaseException as error:  # noqa: BLE001 - the disk failed
            self._fail(error)
            return
        with self._lock:
            for number in done:
                if self._evicting.get(number) is wishes.get(number):
                    self._evicting.pop(number, None)

    def _touch(self, effect: TouchChunks) -> None:
        """Note the order of use, and try again to remove the copies that could not go."""
        try:
            self._cache.touch(effect.numbers)
        except BaseException as error:  # noqa: BLE001 - the disk failed
            self._fail(error)
            return
        self._evict(EvictChunks(()))
