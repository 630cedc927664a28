"""Bring the rows of chunks to this machine when work needs them, and let old ones go.

Owns: the work that waits for chunks, which chunks are being fetched, and which go. The index of
each chunk is always here, so only work that reads rows waits. It meets `ChunkAway`, and begins
again once the chunks are here. An object store has each chunk that the log names. A cell without an
object store has all rows here, and nothing waits or goes.

Invariants:
- Rows that work waits for, or reads in a thread, are held: they stay. Work that meets another
  missing chunk keeps those that it has. So it gets on even where the limit is smaller than its
  chunks.
- Requests hold no more than the limit together, and one of them may hold what it needs besides.
  Long work holds its chunks besides.
- At most `chunk_waits_max` requests wait, with `chunk_waits_bytes_max` bytes of keys, and each for
  `chunk_wait_ms_max` at most.
- At most `FETCHES_MAX` chunks are being fetched. A chunk that no work misses any more is not begun.
- One event resumes a few requests. Others have their turn in between.
"""

from collections import Counter, deque
from collections.abc import Callable, Iterable
from typing import Any, Final

from dodona_tablets.core.cell.cell import Cell
from dodona_tablets.core.cell.outbox import Outbox
from dodona_tablets.core.rows.chunks.chunk import Chunk
from dodona_wire.cores.effects import EvictChunks, FetchChunk, TouchChunks
from dodona_wire.errors import DataCorrupted, DodonaError, Overloaded, Unavailable
from dodona_wire.messages.base import Failure, failure_of

FETCHES_MAX: Final = 4
"""How many chunks come side by side. One of them is for long work if any waits: requests come
first, but do not keep a compaction waiting for ever."""
RESUMED_MAX: Final = 16
"""How many requests one event resumes. A page of rows takes some ms."""
SLICE_PERIOD_MS: Final = 1
"""The pause after that, in which the cell handles other events."""
LOOK_MS: Final = 1_000
"""How often the cell looks which chunks were read. Uses within this time have no order."""
TOUCH_MS: Final = 60_000
"""How often the shell gets to know which chunks were read, so that a restart knows their order."""
SHORTAGE_SHARE: Final = 8
"""While the disk is full, one in so many bytes of copies goes at each look."""


class Need:
    """The chunks that some work needs here. Once they are here, `resume` gets this need: it begins
    the work again. If they can't be had, `refuse` gets the failure."""

    __slots__ = (
        "chunks",
        "held",
        "is_long",
        "missing",
        "refuse",
        "resume",
        "since_us",
        "size_bytes",
    )

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
        self.held: dict[int, Chunk] = {}
        self.missing: dict[int, None] = {}


class Caching:
    """The rows of chunks on this machine, and the work that waits for others. A cell has one
    instance."""

    def __init__(self, cell: Cell, outbox: Outbox) -> None:
        self._cell = cell
        self._outbox = outbox
        self._queue: dict[Need, None] = {}
        """The requests whose turn has not come."""
        self._extending: dict[Need, None] = {}
        """Those among them that hold chunks already, and need more. They come first."""
        self._begun: dict[Need, None] = {}
        """The work that waits for chunks to come."""
        self._ready: deque[Need] = deque()
        """The requests whose chunks are here, until they are resumed."""
        self._over: Need | None = None
        """The request that may hold more than the limit."""
        self._fetching: dict[int, Chunk] = {}
        self._requested: Counter[int] = Counter()
        """How many requests hold each chunk."""
        self._requested_bytes = 0
        self._waiting_bytes = 0
        self._work_at_us = self._look_at_us = self._touch_at_us = 0
        self._untold: dict[int, None] = {}
        """The chunks that were read since the shell last heard of it, in order of their use."""
        self.missed_count = 0
        """The requests that had to wait for a chunk."""

    @property
    def request_count(self) -> int:
        """The number of requests that wait for chunks."""
        begun_count = sum([not it.is_long for it in self._begun])
        return len(self._queue) + len(self._extending) + begun_count + len(self._ready)

    @property
    def is_quiet(self) -> bool:
        return not (self._queue or self._extending or self._begun or self._ready)

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
            refuse(failure_of(self._replaced()))
            return
        now_us = self._cell.now.instant_us
        if after is None:
            self.missed_count += 1
            if self._is_full(size_bytes):
                text = "Too many requests wait for chunks of the object store in this cell."
                refuse(failure_of(Overloaded(text, cell=self._cell.id)))
                return
            need = Need(wanted, resume, refuse, now_us, size_bytes)
            self._queue[need] = None
        else:
            need = Need(after.held | wanted, resume, refuse, after.since_us, size_bytes)
            self._hold(need, after.held)
            self._over = need if self._over is after else self._over
            self._extending[need] = None
        self._waiting_bytes += size_bytes
        self._begin_next()
        self.work()

    def _is_full(self, more_bytes: int) -> bool:
        limits = self._cell.limits
        is_full = self.request_count >= limits.chunk_waits_max
        return is_full or self._waiting_bytes + more_bytes > limits.chunk_waits_bytes_max

    def prepare(
        self,
        chunks: Iterable[Chunk],
        resume: Callable[[Need], None],
        refuse: Callable[[Failure], None],
    ) -> None:
        """Bring the chunks of long work here, and hold them until `end`. The work is resumed within
        this call if nothing is missing. It is refused if one of its chunks goes out of use
        meanwhile. A need that is refused has ended."""
        wanted = {it.info.number: it for it in chunks}
        now_us = self._cell.now.instant_us
        self._begin(Need(wanted, resume, refuse, now_us, is_long=True))

    def end(self, need: Need) -> None:
        """End the hold of long work."""
        for number in need.held:
            self._cell.chunks.release(number)

    def _begin_next(self) -> None:
        """Begin the requests whose chunks have room beside those that other requests hold. Those
        that need no more room have their turn now, also behind one that waits for room."""
        limit = self._cell.limits.chunk_cache_bytes_max
        is_full = False
        for need in [*self._extending, *self._queue]:
            more_bytes = sum(
                [it.info.size_bytes for it in need.chunks.values() if not self._is_requested(it)]
            )
            if more_bytes and limit is not None:
                is_over = self._requested_bytes + more_bytes > limit
                is_full = is_full or (is_over and self._over not in (None, need))
                if is_full:
                    continue
                self._over = need if is_over else self._over
            self._leave_queue(need)
            self._begin(need)

    def _leave_queue(self, need: Need) -> None:
        self._queue.pop(need, None)
        self._extending.pop(need, None)

    def _is_requested(self, chunk: Chunk) -> bool:
        return chunk.info.number in self._requested

    def _begin(self, need: Need) -> None:
        self._hold(need, need.chunks)
        need.missing = {
            number: None
            for number, chunk in need.chunks.items()
            if chunk.is_away and self._is_open(chunk)
        }
        if need.missing:
            self._begun[need] = None
            self._fetch_next()
        elif need.is_long:
            need.resume(need)
        else:
            self._ready.append(need)

    def _hold(self, need: Need, chunks: dict[int, Chunk]) -> None:
        for number, chunk in chunks.items():
            if number in need.held:
                continue
            need.held[number] = chunk
            self._cell.chunks.hold(number)
            if not need.is_long:
                self._requested_bytes += 0 if self._is_requested(chunk) else chunk.info.size_bytes
                self._requested[number] += 1

    def _is_open(self, chunk: Chunk) -> bool:
        return self._cell.chunks.get(chunk.info.number) is chunk

    def _replaced(self) -> DodonaError:
        text = "A chunk was replaced while work waited for it. Repeat the request."
        return Unavailable(text, cell=self._cell.id)

    # Work that goes on

    def work(self) -> bool:
        """Resume some requests whose chunks are here, if it is time. Return whether it was."""
        now_us = self._cell.now.instant_us
        if not self._ready or now_us < self._work_at_us:
            return False
        self._work_at_us = now_us + SLICE_PERIOD_MS * 1000
        for _ in range(min(RESUMED_MAX, len(self._ready))):
            need = self._ready.popleft()
            need.resume(need)
            self._release(need)
        self._begin_next()
        return True

    def work_at_us(self) -> int | None:
        """Return when `work` must be called at the latest, or None if it would find nothing to do.
        The caller asks after every event."""
        return self._work_at_us if self._ready else None

    def _refuse(self, need: Need, failure: Failure) -> None:
        if need in self._begun:
            del self._begun[need]
        else:
            self._leave_queue(need)
        self._release(need)
        need.refuse(failure)

    def _release(self, need: Need) -> None:
        self.end(need)
        if need.is_long:
            return
        self._waiting_bytes -= need.size_bytes
        self._over = None if self._over is need else self._over
        for number, chunk in need.held.items():
            self._requested[number] -= 1
            if not self._requested[number]:
                del self._requested[number]
                self._requested_bytes -= chunk.info.size_bytes

    # What the shell brings

    def _fetch_next(self) -> None:
        """Ask for chunks that work misses, as many as may come side by side."""
        while len(self._fetching) < FETCHES_MAX and (chunk := self._next_missing()) is not None:
            self._fetching[chunk.info.number] = chunk
            self._outbox.send(FetchChunk(chunk.info))

    def _next_missing(self) -> Chunk | None:
        requests = [it for it in self._begun if not it.is_long]
        long_work = [it for it in self._begun if it.is_long]
        comes = any(it in self._fetching for need in long_work for it in need.missing)
        is_last = len(self._fetching) == FETCHES_MAX - 1
        order = [*long_work, *requests] if is_last and not comes else [*requests, *long_work]
        for need in order:
            for number in need.missing:
                if number not in self._fetching:
                    return need.chunks[number]
        return None

    def handle(self, number: int, result: Any) -> None:
        """Take the bytes of a chunk, or the failure to fetch it."""
        chunk = self._fetching.pop(number)
        failure: Failure | None = None
        if not self._is_open(chunk):  # requests that waited for it look again
            self._outbox.send(EvictChunks((number,)))
        elif isinstance(result, Failure):
            failure = result
        else:
            failure = self._bring(chunk, result)
        for need in [it for it in self._begun if number in it.missing]:
            self._note_end(need, chunk, failure)
        self._fetch_next()
        self._begin_next()
        self.work()

    def _note_end(self, need: Need, chunk: Chunk, failure: Failure | None) -> None:
        """Note for a need that the fetch of a chunk has ended."""
        number = chunk.info.number
        del need.missing[number]
        if failure is not None:
            about = {"cell": self._cell.id, "chunk": number, **failure.attributes}
            self._refuse(need, Failure(failure.kind, failure.message, about))
        elif need.is_long and not self._is_open(chunk):
            self._refuse(need, failure_of(self._replaced()))
        elif not need.missing:
            del self._begun[need]
            if need.is_long:
                need.resume(need)
            else:
                self._ready.append(need)

    def _bring(self, chunk: Chunk, data: Any) -> Failure | None:
        try:
            chunk.bring(data)
        except DataCorrupted as error:
            return failure_of(error)
        self._cell.chunks.note_here(chunk)
        return None

    # Chunks that go

    def trim(self) -> None:
        """Let chunks go until the rest is within the limit, if it may have been passed."""
        limit, chunks = self._cell.limits.chunk_cache_bytes_max, self._cell.chunks
        if limit is not None and chunks.may_be_over:
            chunks.may_be_over = False
            self._let_go(limit)

    def _let_go(self, limit_bytes: int) -> None:
        """Let chunks go until the rest has so many bytes. Those that were read long ago go first,
        and no chunk that is held."""
        chunks = self._cell.chunks
        if chunks.here_bytes <= limit_bytes:
            return
        self._look()
        gone: list[int] = []
        maps: list[Any] = []
        for chunk in chunks.by_last_use():
            if chunks.here_bytes <= limit_bytes:
                break
            if not chunks.is_held(chunk.info.number):
                maps.append(chunks.let_go(chunk))
                gone.append(chunk.info.number)
        if gone:
            self._outbox.send(EvictChunks(tuple(gone), tuple(maps)))

    def _look(self) -> None:
        """Note which chunks were read since the last look."""
        for chunk in self._cell.chunks.take_used():
            self._untold.pop(chunk.info.number, None)
            self._untold[chunk.info.number] = None

    def tick(self) -> None:
        """End the waits that have lasted too long, and note which chunks were read."""
        now_us, limits = self._cell.now.instant_us, self._cell.limits
        for need in [*self._begun, *self._extending, *self._queue]:
            waited_ms = (now_us - need.since_us) // 1000
            if not need.is_long and waited_ms >= limits.chunk_wait_ms_max:
                self._refuse(need, self._late(need, waited_ms))
        self._begin_next()
        self.work()
        if limits.has_object_store and now_us >= self._look_at_us:
            self._look_at_us = now_us + LOOK_MS * 1000
            self._look_around()

    def _look_around(self) -> None:
        now_us, chunks = self._cell.now.instant_us, self._cell.chunks
        self._look()
        if self._untold and now_us >= self._touch_at_us:
            self._touch_at_us = now_us + TOUCH_MS * 1000
            self._outbox.send(TouchChunks(tuple(self._untold)))
            self._untold.clear()
        if self._cell.room.disk_shortage is not None:  # the store has what goes
            self._let_go(chunks.here_bytes - max(1, chunks.here_bytes // SHORTAGE_SHARE))

    def _late(self, need: Need, waited_ms: int) -> Failure:
        if need not in self._begun:
            text = (
                f"Other requests need all the room for copies of chunks, for {waited_ms} ms now. "
                "If this lasts, raise chunk-cache-mib-max."
            )
            return failure_of(Overloaded(text, cell=self._cell.id))
        number = next(iter(need.missing))
        text = f"The object store has not given chunk {number} in {waited_ms} ms. Repeat later."
        return failure_of(Unavailable(text, cell=self._cell.id, chunk=number))
