"""Do long work on chunks in threads.

Owns: the threads, and how fast compaction may write. Flushes, bulk batches, compactions and seals
of loads do not wait for one another. While they run, other threads can run Python: Arrow's kernels
and system calls allow it by themselves, Python code allows it between two batches. An event loop
that is busy with Python anyway can take over the Python part of flushes (see `turns`).

Invariants:
- A result is delivered after its files are durable, from one of these threads. The receiver brings
  it to the thread of the core.
- A full disk is an answer. Any other failure to write has to end the process, as a failure of the
  log does.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any, Final

from dodona_server.logs import tell
from dodona_tablets.core.rows.chunks.info import ChunkInfo
from dodona_tablets.core.rows.chunks.jobs import (
    Batches,
    BatchJob,
    Built,
    CompactionJob,
    FlushJob,
    Job,
    Make,
    SealJob,
    batches_of,
)
from dodona_tablets.shell.node_chunks import NodeChunks
from dodona_tablets.shell.node_log import NodeLog
from dodona_tablets.shell.turns import GivenUp, Turns
from dodona_wire.cores.effects import RemoveChunks, RunJob, TruncateLog
from dodona_wire.errors import DataCorrupted, DodonaError, Unavailable
from dodona_wire.messages.base import Failure, failure_of
from dodona_wire.net.pools import Pool

BATCH_THREADS: Final = 2
"""One thread writes while the other encodes."""

NAMES: Final[dict[type[Job], str]] = {
    FlushJob: "flush",
    BatchJob: "batch",
    CompactionJob: "compaction",
    SealJob: "seal",
}
"""The names of the kinds of work in log lines."""
TOLD_SECONDS_MIN: Final = 5.0
"""The time between two log lines about one kind: bulk data may be refused many times a second."""

_logger: Final = logging.getLogger("dodona.node")

Result = Built | Failure | None
Deliver = Callable[[Any, Result], object]


class Jobs:
    """The threads that carry out `RunJob`, `RemoveChunks` and `TruncateLog`. They start when there
    is work."""

    def __init__(
        self,
        chunks: NodeChunks,
        compaction_bytes_per_s: int,
        deliver: Deliver,
        fail: Callable[[BaseException], object],
        *,
        shares_loop: bool = False,
    ) -> None:
        """Pass results with their token to `deliver`, and fatal errors to `fail`. With
        `shares_loop`, the event loop that carries out effects takes part in flushes."""
        self._chunks = chunks
        self._bytes_per_s = compaction_bytes_per_s
        self._deliver = deliver
        self._fail = fail
        self._threads: dict[type[Job], Pool] = {
            FlushJob: Pool(1, "dodona-flush"),
            BatchJob: Pool(BATCH_THREADS, "dodona-batch"),
            CompactionJob: Pool(1, "dodona-compaction"),
            SealJob: Pool(1, "dodona-seal"),
        }
        self._removals = Pool(1, "dodona-removal")
        self._told_at_s: dict[type[Job], float] = {}
        self._shares_loop = shares_loop
        self._turns: Turns[Any] | None = None
        """The turns of the flush in progress, or of the last flush."""
        self._is_closing = False
        self._failure: BaseException | None = None

    def run(self, effect: RunJob) -> None:
        make: Make = iter
        if self._shares_loop:
            make = partial(self._by_turns, asyncio.get_running_loop())
        self._threads[type(effect.job)].submit(self._work, effect, make)

    def remove(self, effect: RemoveChunks) -> None:
        """Remove the files of chunks. A reader that has mapped a file may go on reading it."""
        self._removals.submit(self._aside, self._chunks.remove, effect.numbers)

    def truncate(self, log: NodeLog, effect: TruncateLog) -> None:
        """Truncate the log in a thread, because unlinking a long file takes time."""
        self._threads[FlushJob].submit(self._aside, log.truncate_before, effect.checkpoint)

    def close(self) -> None:
        """Cancel the work in progress, whose results have no receiver any more, and wait for the
        threads. Raises the fatal error of a thread, if there was one: `fail` may have no receiver
        either."""
        self._is_closing = True
        if self._turns is not None:
            self._turns.give_up()
        for threads in (*self._threads.values(), self._removals):
            threads.close(wait=True)
        if self._failure is not None:
            raise self._failure

    # In the threads

    def _work(self, effect: RunJob, make: Make) -> None:
        try:
            result = self._built(effect.job, make)
        except GivenUp:
            return
        except BaseException as error:  # noqa: BLE001 - what was asked for did not happen
            self._end(error)
        else:
            self._deliver(effect.token, result)

    def _by_turns(self, loop: asyncio.AbstractEventLoop, items: Batches) -> Batches:
        if _runs(loop):  # this is the loop's thread, which can't wait for itself
            return items
        self._turns = Turns(loop, items)
        if self._is_closing:  # `close` may have come before
            self._turns.give_up()
        return self._turns

    def _built(self, job: Job, make: Make) -> Result:
        try:
            batches = self._courteous(batches_of(job, make), job)
            result = self._made(job.number, self._chunks.write(job.number, job.schema, batches))
        except DodonaError as error:
            self._tell(job, error)
            return failure_of(error)
        return result

    def _made(self, number: int, info: ChunkInfo | None) -> Built | None:
        """Return a chunk that exists and is open. If it can't be opened, remove it, and raise the
        error."""
        try:
            return None if info is None else Built(info, self._chunks.open(info))
        except DodonaError:
            self._chunks.remove([number])
            raise

    def _tell(self, job: Job, error: DodonaError) -> None:
        """Log an error of the disk, or of the object store. An error in bulk data goes only to its
        sender."""
        if not isinstance(error, Unavailable | DataCorrupted):
            return
        now_s, kind = time.monotonic(), type(job)
        if now_s - self._told_at_s.get(kind, -TOLD_SECONDS_MIN) < TOLD_SECONDS_MIN:
            return
        self._told_at_s[kind] = now_s
        about = {"work": NAMES[kind], "kind": error.kind, "reason": error.message}
        path = error.attributes.get("path")
        text = "a chunk could not be made"
        tell(_logger, logging.WARNING, "chunk_work_failed", text, **about, path=path)

    def _aside(self, work: Callable[..., None], *arguments: Any) -> None:
        try:
            work(*arguments)
        except OSError as error:
            self._end(error)

    def _end(self, error: BaseException) -> None:
        self._failure = error
        self._fail(error)

    def _courteous(self, batches: Iterable[Any], job: Job) -> Iterator[Any]:
        """Let other threads run after each batch, and keep to the limit of compaction."""
        is_compaction = isinstance(job, CompactionJob)
        began, size_bytes = time.monotonic(), 0
        for batch in batches:
            yield batch
            size_bytes += batch.nbytes
            ahead_s = 0.0
            if is_compaction:
                ahead_s = size_bytes / self._bytes_per_s - (time.monotonic() - began)
            time.sleep(max(ahead_s, 0))
            if self._is_closing:
                raise GivenUp


def _runs(loop: asyncio.AbstractEventLoop) -> bool:
    """Return whether the caller is in the thread of this loop."""
    try:
        return asyncio.get_running_loop() is loop
    except RuntimeError:
        return False
