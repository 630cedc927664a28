"""Post flights into the totals: one atomic transaction for each batch, exactly once.

Owns: the transaction (read the totals, add, write, and write a marker row), and the book of
acknowledged commits. The marker row makes each post exactly once. After a conflict, an unknown
outcome or a crash of any process, the next attempt sees the marker and adds nothing.
"""

import asyncio
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Final

import dodona
import dodona.aio
from dodona_local.demo_data import Batch, Totals
from dodona_local.demo_tables import CARRIER_DAY, POSTED
from dodona_wire.errors import CommitOutcomeUnknown
from dodona_wire.types import Timestamp

WORKERS: Final = 32
DEADLINE_MS: Final = 60_000
"""The time for one batch in ms: enough to restart any one process."""

Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """A batch whose commit was confirmed: its transaction, and the totals that it added.

    `timestamp` is None if the confirmation was lost, and the marker proved the commit.
    """

    transaction: int
    timestamp: Timestamp | None
    totals: Totals


class Book:
    """The commits that the workers know. Usable by any thread."""

    def __init__(self, on_acknowledged: Callable[[int], None] = lambda count: None) -> None:
        self.acknowledged: dict[int, Acknowledged] = {}
        self.attempt_count = 0
        self._on_acknowledged = on_acknowledged
        self._lock = threading.Lock()

    def note_attempt(self) -> None:
        with self._lock:
            self.attempt_count += 1

    def note_acknowledged(self, batch: Batch, entry: Acknowledged) -> None:
        with self._lock:
            assert batch.number not in self.acknowledged, "a batch was posted by two workers"
            self.acknowledged[batch.number] = entry
            count = len(self.acknowledged)
        self._on_acknowledged(count)

    @property
    def retry_count(self) -> int:
        """Return the number of attempts beyond the first of each batch, after conflicts and
        crashes."""
        return max(0, self.attempt_count - len(self.acknowledged))


def marker_key(batch: Batch) -> list[Row]:
    return [{"batch": batch.number}]


def totals_keys(batch: Batch) -> list[Row]:
    return [{"carrier": carrier, "day": day} for carrier, day in sorted(batch.totals)]


def totals_rows(batch: Batch, found: Sequence[Row]) -> list[Row]:
    """Return the rows of `carrier_day` after the batch, from the rows before it."""
    before = {(row["carrier"], row["day"]): totals_of(row) for row in found}
    return [
        {"carrier": carrier, "day": day, **row_of(added + before.get((carrier, day), Totals()))}
        for (carrier, day), added in sorted(batch.totals.items())
    ]


def marker_row(batch: Batch, transaction: int) -> Row:
    return {"batch": batch.number, "transaction": transaction, **row_of(batch.sum())}


def totals_of(row: Mapping[str, Any]) -> Totals:
    return Totals(row["flights"], row["landed"], row["minutes"])


def row_of(totals: Totals) -> Row:
    return {"flights": totals.flights, "landed": totals.landed, "minutes": totals.minutes}


def post_by_threads(db: dodona.Client, batches: Sequence[Batch], book: Book) -> None:
    """Post every batch, `WORKERS` at a time, each in a thread."""
    pool = ThreadPoolExecutor(WORKERS, "post")
    try:
        for done in [pool.submit(_post, db, batch, book) for batch in batches]:
            done.result()
    finally:
        pool.shutdown(cancel_futures=True)  # after an error, or Ctrl-C, start no more


def post_by_tasks(url: str, batches: Sequence[Batch], book: Book) -> None:
    """Post every batch, `WORKERS` at a time, each in an asyncio task of one client."""
    asyncio.run(_post_all(url, batches, book))


async def _post_all(url: str, batches: Sequence[Batch], book: Book) -> None:
    left = iter(batches)
    async with await dodona.aio.connect(url) as db, asyncio.TaskGroup() as workers:
        for _ in range(WORKERS):
            workers.create_task(_work(db, left, book))


async def _work(db: dodona.aio.AsyncClient, left: Iterator[Batch], book: Book) -> None:
    for batch in left:
        await _post_async(db, batch, book)


class Attempts:
    """The attempts at one batch, with the result of the last one. Both kinds of client use it."""

    def __init__(self, batch: Batch, book: Book) -> None:
        self._batch = batch
        self._book = book
        self._deadline = time.monotonic() + DEADLINE_MS / 1000
        self._last: Any = None
        self.writer = 0
        """The transaction that posted the batch, as far as the last attempt knows."""

    def is_posted(self, transaction: Any, markers: Sequence[Row]) -> bool:
        """Note that an attempt began. Return whether an earlier attempt has committed."""
        self._book.note_attempt()
        self._last = transaction
        self.writer = markers[0]["transaction"] if markers else transaction.id
        return bool(markers)

    def raise_if_late(self, error: CommitOutcomeUnknown) -> None:
        """Raise the error of a commit with an unknown outcome if the deadline has passed. Before
        that, the next attempt looks for the marker."""
        if time.monotonic() > self._deadline:
            raise error

    def note_acknowledged(self) -> None:
        is_writer = self.writer == self._last.id
        timestamp = self._last.commit_timestamp if is_writer else None
        entry = Acknowledged(self.writer, timestamp, self._batch.sum())
        self._book.note_acknowledged(self._batch, entry)


def _post(db: dodona.Client, batch: Batch, book: Book) -> None:
    """Post one batch with the blocking client. `_post_async` is the twin, line by line."""
    attempts = Attempts(batch, book)

    def attempt(tx: dodona.Transaction) -> None:
        if not attempts.is_posted(tx, tx.lookup_rows(POSTED, marker_key(batch))):
            found = tx.lookup_rows(CARRIER_DAY, totals_keys(batch))
            tx.insert_rows(CARRIER_DAY, totals_rows(batch, found))
            tx.insert_rows(POSTED, [marker_row(batch, attempts.writer)])

    while True:
        try:
            db.run_in_transaction(attempt, deadline_ms=DEADLINE_MS)
            return attempts.note_acknowledged()
        except CommitOutcomeUnknown as error:
            attempts.raise_if_late(error)


async def _post_async(db: dodona.aio.AsyncClient, batch: Batch, book: Book) -> None:
    attempts = Attempts(batch, book)

    async def attempt(tx: dodona.aio.AsyncTransaction) -> None:
        if not attempts.is_posted(tx, await tx.lookup_rows(POSTED, marker_key(batch))):
            found = await tx.lookup_rows(CARRIER_DAY, totals_keys(batch))
            await tx.insert_rows(CARRIER_DAY, totals_rows(batch, found))
            await tx.insert_rows(POSTED, [marker_row(batch, attempts.writer)])

    while True:
        try:
            await db.run_in_transaction(attempt, deadline_ms=DEADLINE_MS)
            return attempts.note_acknowledged()
        except CommitOutcomeUnknown as error:
            attempts.raise_if_late(error)
