"""Gather what a cell has and did, when a caller asks. Pure.

Owns: the walk over tablets and transactions for a reading. It takes some thousand steps at most for
each thousand of them. Nothing here happens between two readings. Ages are by the oracle's time, as
far as the cell knows it.
"""

from typing import Any, Final, NamedTuple

from dodona_tablets.core.cell.cell import Cell
from dodona_tablets.core.counts import (
    COMMITTED,
    NON_ATOMIC,
    REFUSED,
    UNHAPPY,
    Counts,
    InDoubt,
    NodeStatistics,
)
from dodona_tablets.core.mounting.mounting import Mounting
from dodona_tablets.core.requests.loading import BatchToken, Loading
from dodona_tablets.core.requests.nonatomic import NonAtomicWrites
from dodona_tablets.core.requests.reads import KINDS, Reads
from dodona_tablets.core.requests.staging import SealToken, StageToken
from dodona_tablets.core.tablet.tablet import TABLET_BYTES, Tablet
from dodona_tablets.core.tablet.transaction import State
from dodona_tablets.core.upkeep.caching import Caching
from dodona_tablets.core.upkeep.compaction import Compaction, CompactionToken
from dodona_tablets.core.upkeep.flushing import Flushing, FlushToken
from dodona_wire.cores.counting import ClockWatch
from dodona_wire.types import (
    MIN_TIMESTAMP,
    TIMESTAMP_COUNTER_BITS,
    Now,
    Timestamp,
    unix_us_from_timestamp,
)

MICROSECONDS: Final = 1_000_000
ALIVE_STATES: Final = (State.WAITING, State.LOCKED, State.PREPARED, State.COMMITTED)
JOBS: Final[dict[type[Any], str]] = {
    FlushToken: "flush",
    CompactionToken: "compaction",
    BatchToken: "batch",
    StageToken: "batch",
    SealToken: "seal",
}
"""The name of each kind of work on chunks in the counts."""


class JobCounts:
    """The counts of work on chunks, by kind and outcome."""

    def __init__(self) -> None:
        self._counts = {kind: {"done": 0, "failed": 0} for kind in JOBS.values()}

    def note(self, token: Any, *, has_failed: bool) -> None:
        """Count a job that has ended."""
        self._counts[JOBS[type(token)]]["failed" if has_failed else "done"] += 1

    def read(self) -> dict[str, Counts]:
        return {kind: dict(outcomes) for kind, outcomes in self._counts.items()}


class Parts(NamedTuple):
    """The parts of a node that count something."""

    cell: Cell
    reads: Reads
    caching: Caching
    writes: NonAtomicWrites
    loading: Loading
    flushing: Flushing
    compaction: Compaction
    mounting: Mounting
    jobs: JobCounts
    oracle_clock: ClockWatch


def statistics_of(parts: Parts) -> NodeStatistics:
    """Return the current statistics."""
    cell, reads, writes, loading = parts.cell, parts.reads, parts.writes, parts.loading
    tablets = _tablets_by_state(cell)
    alive = _alive_by_state(cell)
    compacting = parts.compaction.progress()
    chunks = compacting.get("chunks", 0)
    oldest_retained, newest_retained = _retained(cell)
    refused_count = writes.refused_count + loading.refused_count
    non_atomic = dict.fromkeys((COMMITTED, *UNHAPPY), 0)
    non_atomic[COMMITTED] = writes.done_count + loading.done_count
    non_atomic[REFUSED] = refused_count
    return NodeStatistics(
        tablets=tablets["served"],
        tablets_stored=tablets["stored"],
        tablets_by_state=tablets,
        tablets_dropped=parts.mounting.dropped_count,
        rows=sum(tablet.stores.row_count for tablet in cell.tablets.values()),
        transactions_alive=len(cell.transactions),
        transactions_prepared=alive["prepared"],
        transactions_by_state=alive,
        oldest_prepared_us=_oldest_prepared_us(cell),
        lock_waits=cell.counts.lock_waits,
        early_locks_by_state=_owners_by_state(cell),
        early_grants=cell.counts.early_grants,
        refreshes=cell.counts.refreshes,
        reads_waiting=len(reads),
        reads_waited=reads.waited_count,
        reads_by_kind={KINDS[kind]: count for kind, count in reads.count_by_type.items()},
        readers=len(cell.readers),
        oldest_reader_us=_age_us(cell, cell.readers.oldest_held()),
        oldest_retained_us=oldest_retained,
        newest_retained_us=newest_retained,
        loads=len(cell.loads.open),
        chunks_staged=sum(1 for _ in cell.loads.staged),
        outcomes_remembered=len(cell.outcomes),
        committed=cell.counts.applied,
        commits={**cell.counts.commits(), NON_ATOMIC: non_atomic},
        participations=cell.counts.participations(),
        conflicts_by_kind=dict(cell.counts.conflicts),
        protocol_violations=cell.counts.protocol_violation_count,
        last_protocol_violation=cell.counts.last_protocol_violation,
        refused_by_kind=dict(cell.counts.refused_count_by_kind),
        non_atomic_rows=writes.row_count + loading.row_count,
        stores_by_state=_stores_by_state(cell),
        memory_bytes=cell.room.memory_bytes,
        tablet_bytes=TABLET_BYTES * len(cell.tablets),
        memory_bytes_max=cell.limits.memory_bytes_max,
        batch_bytes=cell.chunks.batch_bytes,
        batch_bytes_max=cell.limits.batch_bytes_max,
        chunks=len(cell.chunks.open),
        chunk_bytes=sum(it.info.size_bytes for it in cell.chunks.open.values()),
        chunk_misses=parts.caching.missed_count,
        flushed=parts.flushing.flushed_count,
        compacted=parts.compaction.compacted_count,
        compacting=compacting,
        compacting_chunks=chunks if isinstance(chunks, int) else 0,
        jobs=parts.jobs.read(),
        jobs_failed=parts.flushing.failed_count + parts.compaction.failed_count,
        last_failure=cell.chunks.last_failure,
        latest_timestamp=cell.latest,
        latest_us=unix_us_from_timestamp(cell.latest),
        oracle_clock=parts.oracle_clock.read(),
        client_clock=cell.client_clock.read(MICROSECONDS, TIMESTAMP_COUNTER_BITS),
        client_clock_refused=writes.clock_refused_count,
    )


def in_doubt(cell: Cell, now: Now) -> list[InDoubt]:
    """Return the transactions that are prepared and undecided here, oldest first."""
    prepared = [it for it in cell.transactions.values() if it.state is State.PREPARED]
    return [
        InDoubt(
            it.id,
            it.coordinator,
            it.participants,
            it.prepare_timestamp,
            max(now.instant_us - it.since_us, 0) // 1000,
        )
        for it in sorted(prepared, key=lambda it: it.id)
    ]


def _tablets_by_state(cell: Cell) -> Counts:
    served_count = sum(1 for tablet in cell.tablets.values() if tablet.is_mounted)
    return {"served": served_count, "stored": len(cell.tablets) - served_count}


def _alive_by_state(cell: Cell) -> Counts:
    counts = {state.value: 0 for state in ALIVE_STATES}
    for alive in cell.transactions.values():
        counts[alive.state.value] += 1
    return counts


def _owners_by_state(cell: Cell) -> Counts:
    owners = [it for it in cell.early.requests.values() if it.transaction is None]
    granted_count = sum(1 for it in owners if it.is_granted)
    return {"granted": granted_count, "waiting": len(owners) - granted_count}


def _oldest_prepared_us(cell: Cell) -> int:
    """Return the longest time since a prepared transaction came here, or since the cell's start."""
    now_us = cell.now.instant_us
    prepared = [it for it in cell.transactions.values() if it.state is State.PREPARED]
    return max([now_us - it.since_us for it in prepared], default=0)


def _stores_by_state(cell: Cell) -> Counts:
    passive = [it for tablet in cell.tablets.values() for it in tablet.stores.passive]
    flushed_count = sum(1 for it in passive if it.is_flushed)
    return {
        "active": len(cell.tablets),
        "unflushed": len(passive) - flushed_count,
        "flushed": flushed_count,
    }


def _retained(cell: Cell) -> tuple[int | None, int | None]:
    """Return the ages of the oldest and the newest retained timestamp."""
    found = [it.retained_timestamp for it in cell.tablets.values() if _lets_go(it)]
    return _age_us(cell, min(found, default=None)), _age_us(cell, max(found, default=None))


def _lets_go(tablet: Tablet) -> bool:
    return tablet.is_mounted and tablet.retained_timestamp > MIN_TIMESTAMP


def _age_us(cell: Cell, timestamp: Timestamp | None) -> int | None:
    if timestamp is None:
        return None
    return max(0, unix_us_from_timestamp(cell.latest) - unix_us_from_timestamp(timestamp))
