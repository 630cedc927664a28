"""Bring the rows of chunks to this machine when work needs them, and let old ones go.

Owns: the work that waits for chunks, which chunks are being fetched, and which go. The index of
each chunk is always here, so only work that reads rows waits. It meets `ChunkAway`, and begins
again once the chunks are here. An object store has each chunk that the log names. A cell without an
object store has all rows here, and nothing waits or goes.

Invariants:
- Rows that work waits for, or reads in a thread, are held: they stay. Work that meets another
  missing chunk keeps those that it has. So it ends also where the limit is smaller than its chunks.
- Requests hold no more than the limit together, but one of them may hold what it needs. Long work
  holds its chunks besides.
- At most `chunk_waits_max` requests wait, with `chunk_waits_bytes_max` bytes of keys, and each for
  `chunk_wait_ms_max` at most.
"""

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any, Final

from dodona_tablets.core.cell.cell import Cell, failure_of
from dodona_tablets.core.cell.outbox import Outbox
from dodona_tablets.core.rows.chunks.chunk import Chunk
from dodona_wire.cores.effects import EvictChunks, FetchChunk, TouchChunks
from dodona_wire.errors import DataCorrupted, Overloaded, Unavailable
from dodona_wire.messages.base import Failure

LOOK_MS: Final = 1_000
"""How often the cell looks which chunks were read. Uses within this time have no order."""
TOUCH_MS: Final = 60_000
"""How often the shell gets to know which chunks were read, so that a restart knows their order."""


class Need:
    """The chunks that some work needs here. Once they are here, `resume` gets this need: it begins
    the work again. If they can't be had, `refuse` gets the failure."""

    __slots__ = ("chunks", "is_long", "missing", "refuse", "resume", "since_us", "size_bytes")

    def __init__(
        self,
        chunks: dict[int, Chunk],
        resume: Callable[["Need"], None],
        refuse: Callable[[Failure], None],
        since_us: int,
        size_bytes: int = 0,
        *,
        is_long: bool = False,
    ) -> None:
        self.chunks = chunks
        self.resume = resume
        self.refuse = refuse
        self.since_us = since_us
        self.size_bytes = size_bytes
        """The size of the keys of a request that waits."""
        self.is_long = is_long
        """Whether this is long work, which holds its chunks until `end`. It is no request."""
        self.missing: dict[int, None] = {}


class Caching:
    """The rows of chunks on this machine, and the work that waits for others. A cell has one
    instance."""

    def __init__(self, cell: Cell, outbox: Outbox) -> None:
        self._cell = cell
        self._outbox = outbox
        self._queue: dict[Need, None] = {}
        """The requests whose turn has not come."""
        self._begun: dict[Need, None] = {}
        """The work that waits for chunks which are being fetched."""
        self._fetching: dict[int, Chunk] = {}
        self._requested: Counter[int] = Counter()
        """How many requests hold each chunk."""
        self._requested_bytes = 0
        self._waiting_bytes = 0
        self._look_at_us = self._touch_at_us = 0
        self._untold: dict[int, None] = {}
        """The chunks that were read since the shell last heard of it, in order of their use."""
        self.missed_count = 0
        """The requests that had to wait for a chunk."""

    @property
    def request_count(self) -> int:
        """The number of requests that wait for chunks."""
        return len(self._queue) + sum([not it.is_long for it in self._begun])

    @property
    def is_quiet(self) -> bool:
        return not self._queue and not self._begun

    # Work that needs chunks

    def wait(
        self,
        chunks: Iterable[Chunk],
        resume: Callable[[Need], None],
        refuse: Callable[[Failure], None],
        size_bytes: int = 0,
        after: Need | None = None,
    ) -> None:
        """Let a request wait for chunks that are away. `after` is the need for which it has waited
        already: the request keeps those chunks, and its time."""
        wanted = {it.info.number: it for it in chunks}
        if any(it.is_away and not self._is_open(it) for it in wanted.values()):
            text = "A chunk was replaced while the request waited. Repeat it."
            refuse(failure_of(Unavailable(text, cell=self._cell.id)))
            return
        if after is not None:
            need = Need(after.chunks | wanted, resume, refuse, after.since_us, size_bytes)
            self._waiting_bytes += size_bytes
            self._begin(need)
            return
        self.missed_count += 1
        limits = self._cell.limits
        is_full = self.request_count >= limits.chunk_waits_max
        if is_full or self._waiting_bytes + size_bytes > limits.chunk_waits_bytes_max:
            text = "Too many requests wait for chunks of the object store in this cell."
            refuse(failure_of(Overloaded(text, cell=self._cell.id)))
            return
        need = Need(wanted, resume, refuse, self._cell.now.instant_us, size_bytes)
        self._waiting_bytes += size_bytes
        self._queue[need] = None
        self._begin_next()

    def prepare(
        self,
        chunks: Iterable[Chunk],
        resume: Callable[[Need], None],
        refuse: Callable[[Failure], None],
    ) -> None:
        """Bring the chunks of long work here, and hold them until `end`. The work is resumed within
        this call if nothing is missing. A need that is refused has ended."""
        wanted = {it.info.number: it for it in chunks}
        now_us = self._cell.now.instant_us
        self._begin(Need(wanted, resume, refuse, now_us, is_long=True))

    def end(self, need: Need) -> None:
        """End the hold of long work."""
        for number in need.chunks:
            self._cell.chunks.release(number)

    def _begin_next(self) -> None:
        """Begin the requests whose chunks have room beside those that other requests hold."""
        limit = self._cell.limits.chunk_cache_bytes_max
        for need in list(self._queue):
            more_bytes = sum(
                [it.info.size_bytes for it in need.chunks.values() if not self._is_requested(it)]
            )
            is_over = limit is not None and self._requested_bytes + more_bytes > limit
            if is_over and self._requested:
                return
            del self._queue[need]
            self._begin(need)

    def _is_requested(self, chunk: Chunk) -> bool:
        return chunk.info.number in self._requested

    def _begin(self, need: Need) -> None:
        for number, chunk in need.chunks.items():
            self._cell.chunks.hold(number)
            if not need.is_long:
                self._requested_bytes += 0 if self._is_requested(chunk) else chunk.info.size_bytes
                self._requested[number] += 1
            if chunk.is_away and self._is_open(chunk):
                need.missing[number] = None
                if number not in self._fetching:
                    self._fetching[number] = chunk
                    self._outbox.send(FetchChunk(chunk.info))
        self._begun[need] = None
        if not need.missing:
            self._resume(need)

    def _is_open(self, chunk: Chunk) -> bool:
        return self._cell.chunks.get(chunk.info.number) is chunk

    def _resume(self, need: Need) -> None:
        del self._begun[need]
        need.resume(need)
        if not need.is_long:
            self._release(need)

    def _refuse(self, need: Need, failure: Failure) -> None:
        if need in self._begun:
            del self._begun[need]
            self._release(need)
        else:
            del self._queue[need]
            self._waiting_bytes -= need.size_bytes
        need.refuse(failure)

    def _release(self, need: Need) -> None:
        self.end(need)
        self._waiting_bytes -= need.size_bytes
        if need.is_long:
            return
        for number, chunk in need.chunks.items():
            self._requested[number] -= 1
            if not self._requested[number]:
                del self._requested[number]
                self._requested_bytes -= chunk.info.size_bytes

    # What the shell brings

    def handle(self, number: int, result: Any) -> None:
        """Take the bytes of a chunk, or the failure to fetch it."""
        chunk = self._fetching.pop(number)
        failure = None
        if not self._is_open(chunk):  # it was replaced: what waited for it looks again
            self._outbox.send(EvictChunks((number,)))
        elif isinstance(result, Failure):
            failure = result
        else:
            failure = self._bring(chunk, result)
        for need in [it for it in self._begun if number in it.missing]:
            del need.missing[number]
            if failure is not None:
                self._refuse(need, self._named(failure, number))
            elif not need.missing:
                self._resume(need)
        self._begin_next()
        self.trim()

    def _bring(self, chunk: Chunk, data: Any) -> Failure | None:
        try:
            chunk.bring(data)
        except DataCorrupted as error:
            return failure_of(error)
        self._cell.chunks.note_here(chunk)
        return None

    def _named(self, failure: Failure, number: int) -> Failure:
        about = {"cell": self._cell.id, "chunk": number, **failure.attributes}
        return Failure(failure.kind, failure.message, about)

    # Chunks that go

    def trim(self) -> None:
        """Let chunks go until the rest is within the limit. Those that were read long ago go first,
        and no chunk that is held."""
        limit, chunks = self._cell.limits.chunk_cache_bytes_max, self._cell.chunks
        if limit is None or chunks.here_bytes <= limit:
            return
        self._look()
        gone: list[int] = []
        for chunk in chunks.by_last_use():
            if chunks.here_bytes <= limit:
                break
            if not chunks.is_held(chunk.info.number):
                chunks.let_go(chunk)
                gone.append(chunk.info.number)
        if gone:
            self._outbox.send(EvictChunks(tuple(gone)))

    def _look(self) -> None:
        """Note which chunks were read since the last look."""
        for chunk in self._cell.chunks.take_used():
            self._untold.pop(chunk.info.number, None)
            self._untold[chunk.info.number] = None

    def tick(self) -> None:
        """End the waits that have lasted too long, and note which chunks were read."""
        now_us, limits = self._cell.now.instant_us, self._cell.limits
        for need in [*self._begun, *self._queue]:
            waited_ms = (now_us - need.since_us) // 1000
            if not need.is_long and waited_ms >= limits.chunk_wait_ms_max:
                self._refuse(need, self._late(need, waited_ms))
        self._begin_next()
        if limits.chunk_cache_bytes_max is None or now_us < self._look_at_us:
            return
        self._look_at_us = now_us + LOOK_MS * 1000
        self._look()
        if self._untold and now_us >= self._touch_at_us:
            self._touch_at_us = now_us + TOUCH_MS * 1000
            self._outbox.send(TouchChunks(tuple(self._untold)))
            self._untold.clear()
        self.trim()

    def _late(self, need: Need, waited_ms: int) -> Failure:
        number = next(iter(need.missing or need.chunks))
        text = f"The object store has not given chunk {number} in {waited_ms} ms"
        return failure_of(Unavailable(text, cell=self._cell.id, chunk=number))
