"""Benches whose chunks are in an object store, and are not on this machine."""

from typing import Any

from dodona.types import (
    KEY_MAX,
    KEY_MIN,
    SYNC_LAST_COMMITTED,
    CellId,
    TableSettings,
    Timestamp,
)
from dodona_tablets.core.cell.limits import CellLimits
from dodona_tablets.core.rows.chunks.info import ChunkInfo
from dodona_wire.messages.data import (
    CountVersions,
    Lookup,
    LookupVersions,
    Scan,
    ScanArrow,
    ScanVersions,
)
from unit.tablets.cells import ATOMIC, REVISION, Bench, key, put

CELL = CellId(0)
FIRST = Timestamp(1)
NOW = SYNC_LAST_COMMITTED
SOON = TableSettings(dynamic_store_auto_flush_period=1_000)
NO_COMPACTION = TableSettings(
    dynamic_store_auto_flush_period=1_000, enable_compaction_and_partitioning=False
)


def let_time_pass(bench: Bench, seconds: float) -> None:
    for _ in range(int(seconds)):
        bench.pass_time(1)
        bench.answer_oracle()


def filled(
    *groups: tuple[int, ...], limits: CellLimits | None = None, settings: TableSettings = SOON
) -> Bench:
    """Each group of rows in a chunk of its own, whose rows are no longer in memory."""
    bench = Bench(settings=settings, limits=limits)
    for group in groups:
        bench.commit(*[put(number, number * 10) for number in group])
        let_time_pass(bench, 2)
    let_time_pass(bench, 90)
    assert not bench.nodes[CELL].cell.tablets[ATOMIC].stores.passive
    return bench


def cold(*groups: tuple[int, ...], **options: Any) -> Bench:
    """The same after a restart on a machine that has none of the rows."""
    bench = filled(*groups, **options)
    restart_cold(bench)
    return bench


def restart_cold(bench: Bench) -> None:
    bench.is_cold = bench.holds_fetches = True
    bench.start(CELL)
    assert bench.fetches == [], "a start needs no rows"


def numbers(fetches: list[tuple[CellId, ChunkInfo]]) -> list[int]:
    return [info.number for _, info in fetches]


def size_of(bench: Bench) -> int:
    """The size of any of the chunks, which are about equal."""
    return max(len(it) for it in bench.objects.values())


def here(bench: Bench) -> list[int]:
    chunks = bench.nodes[CELL].cell.chunks
    found = [number for number, chunk in chunks.open.items() if not chunk.is_away]
    assert sum(chunks.open[it].info.size_bytes for it in found) == chunks.here_bytes
    return found


def small(chunk_count: float, size_bytes: int = 1_700) -> CellLimits:
    return limited(int(size_bytes * chunk_count))


def limited(size_bytes: int) -> CellLimits:
    return CellLimits(has_object_store=True, chunk_cache_bytes_max=size_bytes)


READS: dict[str, Any] = {
    "scan": Scan(ATOMIC, REVISION, NOW, KEY_MIN, KEY_MAX, 3, 100),
    "scan_arrow": ScanArrow(ATOMIC, REVISION, NOW, KEY_MIN, KEY_MAX, 3, 100),
    "lookup": Lookup(ATOMIC, REVISION, NOW, (key(1), key(12)), 3),
    "lookup_versions": LookupVersions(ATOMIC, REVISION, NOW, (key(1), key(12)), 3),
    "scan_versions": ScanVersions(ATOMIC, REVISION, FIRST, NOW, KEY_MIN, KEY_MAX, 3, 100),
    "count_versions": CountVersions(ATOMIC, REVISION, FIRST, NOW, KEY_MIN, KEY_MAX),
}


def let_go(bench: Bench) -> None:
    chunks = bench.nodes[CELL].cell.chunks
    for chunk in chunks.by_last_use():
        chunks.let_go(chunk)
    bench.holds_fetches = True
