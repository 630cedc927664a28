"""A node whose chunks are in an object store, with production's own cache of them in a folder.

Owns: how long the calls of the cache take, what an end of the process leaves of them, and what a
start on another machine finds. The log stays: it has copies elsewhere. Threads are events here, so
what one call of the cache does is done at one instant.
"""

import shutil
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from dodona.errors import DataCorrupted, DodonaError, Unavailable
from dodona_tablets.core.node import NodeCore
from dodona_tablets.core.rows.chunks.chunk import Chunk
from dodona_tablets.core.rows.chunks.info import ChunkInfo
from dodona_tablets.core.rows.chunks.jobs import Built, Job, batches_of
from dodona_tablets.shell.chunk_cache import ChunkCache, ChunkGone
from dodona_tablets.shell.chunk_names import ChunkNames
from dodona_tablets.shell.recovery import check_orphans
from dodona_wire.cores.effects import Effect, EvictChunks, FetchChunk, RunJob, TouchChunks
from dodona_wire.messages.base import Failure, failure_of
from simulator.host import CoreStopped
from simulator.object_store import ObjectStoreOptions, SimulatedObjects
from simulator.servers import NodeHost

SHARED_MEMORY: Final = Path("/dev/shm")
EVICTION_US_MAX: Final = 30_000
DELIVERY_US_MAX: Final = 10_000


class _Here(Executor):
    """Does all work where it is asked for."""

    def submit(self, work: Callable[..., Any], /, *arguments: Any, **named: Any) -> Future[Any]:
        future: Future[Any] = Future()
        try:
            future.set_result(work(*arguments, **named))
        except Exception as error:  # noqa: BLE001 - it is the asker's
            future.set_exception(error)
        return future


class ObjectNodeHost(NodeHost):
    """A tablet node with a cache of its chunks."""

    objects: SimulatedObjects
    """Set by the cluster before the first start."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        place = SHARED_MEMORY if SHARED_MEMORY.is_dir() else None
        self._folder = TemporaryDirectory(prefix=f"{self.name}-", dir=place)
        self._cache: ChunkCache
        self._effects: dict[int, RunJob] = {}
        self._options = ObjectStoreOptions()

    def storm(self, options: ObjectStoreOptions) -> None:
        """From now on these rates hold."""
        self._options = options

    def calm(self) -> None:
        self._options = ObjectStoreOptions()

    def take_away_disk(self) -> None:
        """The next start is on another machine."""
        assert not self.is_up
        self._empty_folder()

    def _empty_folder(self) -> None:
        self.objects.fault_counts["folder lost"] += 1
        for it in Path(self._folder.name).iterdir():
            shutil.rmtree(it)

    def close(self) -> None:
        """Remove the folder."""
        self._folder.cleanup()

    # Start and end

    def _open_chunks(self, core: NodeCore) -> None:
        if self.random.random() < self._options.new_machine_rate:
            self._empty_folder()
        self._effects = {}
        self._cache = ChunkCache(
            Path(self._folder.name),
            self.objects,
            ChunkNames("simulated", self.cell, self._boot),
            unix_ns=lambda: self.world.now_us * 1000,
            make_pool=_Here,
        )
        with self.objects.quietly():
            found = self._cache.numbers(lambda: core.cell.cluster)
            orphans = check_orphans(core, found, self._cache.place)
            chunks = self._cache.open_all(core.chunks_needed())
        core.open_chunks(chunks, orphans, self._cache.first_number)

    def crash(self) -> None:
        """What was being written may be in the folder, and some of it in the store."""
        for effect in self._effects.values():
            if self.random.random() < 0.5:
                with self.objects.dying(self.random.randrange(3)), suppress(DodonaError):
                    job = effect.job
                    self._cache.write(job.number, job.schema, batches_of(job))
        self._jobs, self._effects = {}, {}
        super().crash()

    # Chunks

    def _deliver_other(self, effect: Effect) -> None:
        match effect:
            case FetchChunk():
                self._later(self.objects.call_us(), lambda: self._fetch(effect.info))
            case EvictChunks():
                self._aside(lambda: self._cache.evict(effect.numbers))
            case TouchChunks():
                self._aside(lambda: self._cache.touch(effect.numbers))
            case _:
                super()._deliver_other(effect)

    def _later(self, delay_us: int, action: Callable[[], object]) -> None:
        boot = self._boot

        def act() -> None:
            if boot == self._boot and self.is_up:
                action()

        self.world.after(delay_us, act)

    def _aside(self, action: Callable[[], object]) -> None:
        self._later(self.random.randrange(EVICTION_US_MAX), action)

    def _fetch(self, info: ChunkInfo) -> None:
        """Fetch a chunk at one instant. The core hears of it later: the chunk may be gone then."""
        try:
            result: Any = self._cache.fetch(info)
        except ChunkGone:
            result = Failure(Unavailable.kind, "gone")
        except DodonaError as error:
            result = failure_of(error)
        self._later(
            self.random.randrange(DELIVERY_US_MAX),
            lambda: self.enter(self.core.handle_chunk, info.number, result),
        )

    def _run(self, effect: RunJob) -> None:
        self._effects[effect.job.number] = effect
        super()._run(effect)

    def _job_us(self) -> int:
        return super()._job_us() + self.objects.call_us()

    def _made(self, job: Job) -> Built | Failure | None:
        del self._effects[job.number]
        try:
            info = self._cache.write(job.number, job.schema, batches_of(job))
            return None if info is None else Built(info, self._cache.open(info))
        except DodonaError as error:
            return failure_of(error)

    def _refused(self, job: Job) -> None:
        del self._effects[job.number]

    def _remove(self, numbers: tuple[int, ...]) -> None:
        self._aside(lambda: self._cache.remove(numbers))

    # A look inside

    def stray_chunks(self) -> list[int]:
        """Copies of rows that the cell does not take for copies."""
        return []

    def stray_objects(self) -> list[int]:
        """Chunks in the store that the log does not name. A start removes them."""
        names = ChunkNames("simulated", self.cell, self._boot)
        cluster = self.core.cell.cluster
        mine = [it for it in self.objects.contents if it.startswith(f"{names.prefix}/")]
        return sorted(names.numbers_of(mine, cluster) - self.core.cell.chunks.open.keys())

    @contextmanager
    def all_rows(self) -> Iterator[None]:
        """Within the block, the rows of all chunks are here, as the store has them."""
        away = [it for it in self.core.cell.chunks.open.values() if it.is_away]
        for chunk in away:
            chunk.bring(self._stored(chunk))
        yield
        for chunk in away:
            chunk.let_go()

    def _stored(self, chunk: Chunk) -> bytes:
        number = chunk.info.number
        names = ChunkNames("simulated", self.cell, self._boot)
        name = names.name_of(self.core.cell.cluster, number, ".arrow")
        content = self.objects.contents.get(name)
        if content is None:
            error = DataCorrupted("the store has no such object", object=name)
            raise CoreStopped(self.name, error)
        return content
