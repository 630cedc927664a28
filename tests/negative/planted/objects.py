"""Bugs of chunks in an object store, and of the copies that nodes have of them."""

from collections.abc import Container
from contextlib import suppress
from typing import Any, Final

import pytest

from dodona_tablets.core.cell.chunks import Chunks
from dodona_tablets.core.rows.chunks.chunk import Chunk
from dodona_tablets.core.upkeep.caching import Caching
from dodona_tablets.shell import chunk_cache
from dodona_tablets.shell.chunk_cache import ChunkCache
from dodona_wire.errors import Unavailable
from negative.bug import PlantedBug, Where
from simulator.object_store import ObjectStoreOptions

LOST: Final = ("DURABILITY", "CRASH", "LIVENESS")
STORM: Final = ObjectStoreOptions(
    is_there=True,
    cache_bytes_max=2_000,
    lost_answer_rate=0.1,
    late_rate=0.1,
    refused_rate=0.1,
    damaged_rate=0.1,
    new_machine_rate=0.3,
)
SMALL: Final[dict[str, Any]] = {
    "objects": STORM,
    "fault_point_rate": 1.0,
    "transaction_life_s_max": 3,
    "memory_bytes_max": 20_000,
}
HERE: Final = Where(changes=SMALL, crash_count=5)


def evict_what_is_not_uploaded(patch: pytest.MonkeyPatch) -> None:
    """A chunk counts as stored when its upload was tried, and its copy may go."""
    upload = ChunkCache._upload

    def planted(self: ChunkCache, number: int, stored: Container[str] = ()) -> None:
        with suppress(Unavailable):
            upload(self, number, stored)

    patch.setattr(ChunkCache, "_upload", planted)


def use_files_that_were_not_checked(patch: pytest.MonkeyPatch) -> None:
    """What the store sent is a chunk, whatever its bytes are."""
    patch.setattr(chunk_cache, "check_sums", lambda _: None)


def delete_after_an_unknown_outcome(patch: pytest.MonkeyPatch) -> None:
    """An upload without an answer is taken back, and made again under its name."""
    upload = ChunkCache._upload

    def planted(self: ChunkCache, number: int, stored: Container[str] = ()) -> None:
        try:
            upload(self, number, stored)
        except Unavailable:
            with suppress(Unavailable):
                self._objects.remove([name for name, _ in self._places(number)])
            upload(self, number, stored)

    patch.setattr(ChunkCache, "_upload", planted)


def evict_what_is_read(patch: pytest.MonkeyPatch) -> None:
    """Chunks go while a compaction or a request needs them."""
    patch.setattr(Chunks, "is_held", lambda *_: False)


def forget_who_waits(patch: pytest.MonkeyPatch) -> None:
    """A chunk that comes late wakes no request that waits for it, and no wait ends."""
    bring = Caching._bring

    def planted(self: Caching, chunk: Chunk, data: Any) -> Any:
        failure = bring(self, chunk, data)
        for need in self._begun:
            if not need.is_long:
                need.missing[-1] = None
        return failure

    patch.setattr(Caching, "_bring", planted)
    patch.setattr(Caching, "tick", lambda _: None)


BUGS = (
    PlantedBug(
        None,
        "a copy of a chunk goes before the object store is known to have it",
        evict_what_is_not_uploaded,
        LOST,
        HERE,
    ),
    PlantedBug(
        None,
        "a chunk is used although its checksums were not compared",
        use_files_that_were_not_checked,
        LOST,
        HERE,
    ),
    PlantedBug(
        None,
        "an upload without an answer is deleted and repeated under its name",
        delete_after_an_unknown_outcome,
        LOST,
        HERE,
    ),
    PlantedBug(
        None,
        "a chunk goes while a compaction reads it",
        evict_what_is_read,
        LOST,
        HERE,
    ),
    PlantedBug(
        None,
        "a chunk that arrives wakes nothing that waits for it",
        forget_who_waits,
        LOST,
        HERE,
    ),
)
