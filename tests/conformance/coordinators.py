"""The coordinators that the suite runs against: a folder, a real etcd, and a simulated one.

Owns: the one face that all three show to a test: coordinators of several processes, answers that
get lost, and restarts in between.
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final, TypeVar, cast

import pytest

from dodona_loadtest.harness.relay import FAIR, Condition, Relay, Relays
from dodona_replication.core.coordination import Answer
from dodona_replication.core.document import Document, Revisioned, check_name, encode
from dodona_replication.shell.coordinator import Coordinator
from dodona_replication.shell.folder import FolderCoordinator
from dodona_wire.errors import DodonaError, Unavailable
from simulator.coordinator import CoordinatorPort, SimulatedEtcd
from simulator.network import Network
from simulator.world import World
from suite.etcd import EtcdCluster, Member

Result = TypeVar("Result")

CLUSTER: Final = "c1"
ATTEMPT_MS: Final = 400
"""A test that loses an answer waits for so long."""
VIRTUAL_US_MAX: Final = 300_000_000
STEP_US: Final = 500


class Backend(ABC):
    """Where the documents are. Close what `open` returned before the test ends."""

    may_share: bool
    """Whether several coordinators can be open at a time."""

    @abstractmethod
    async def open(self) -> Coordinator:
        """The coordinator of one more process. Raises FolderInUse."""

    @abstractmethod
    def lose_answers(self, coordinator: Coordinator) -> Any:
        """In the block, what the coordinator asks is done, and it gets no answer."""

    @abstractmethod
    async def restart(self) -> None:
        """What keeps the documents ends and begins again. Of a folder: nothing does."""


class FolderBackend(Backend):
    """One process at a time has the folder."""

    may_share = False

    def __init__(self, path: Path, patch: pytest.MonkeyPatch) -> None:
        self._path = path
        self._patch = patch

    async def open(self) -> Coordinator:
        return FolderCoordinator.open(self._path)

    @asynccontextmanager
    async def lose_answers(self, coordinator: Coordinator) -> AsyncIterator[None]:
        """The disk fails behind the new name of a file."""

        def fail(_folder: Path | int) -> None:
            raise OSError(5, "Input/output error")

        with self._patch.context() as patch:
            patch.setattr("dodona_wire.net.folder.sync_folder", fail)
            yield

    async def restart(self) -> None:
        pass


class EtcdBackend(Backend):
    """A real etcd of one member, through a relay."""

    may_share = True

    def __init__(self, cluster: EtcdCluster, relays: Relays) -> None:
        self._cluster = cluster
        self._relays = relays
        self._relay_by_id: dict[int, Relay] = {}

    async def open(self) -> Coordinator:
        from dodona_replication.shell.etcd import EtcdCoordinator
        from dodona_replication.shell.etcd_options import EtcdOptions

        relay = self._relays.open(self._member.port)
        options = EtcdOptions([relay.address], CLUSTER, attempt_ms_max=ATTEMPT_MS)
        coordinator = EtcdCoordinator(options)
        self._relay_by_id[id(coordinator)] = relay
        return coordinator

    @asynccontextmanager
    async def lose_answers(self, coordinator: Coordinator) -> AsyncIterator[None]:
        relay = self._relay_by_id[id(coordinator)]
        await asyncio.to_thread(relay.disturb, "down", Condition(is_clogged=True))
        yield
        await asyncio.to_thread(relay.disturb, "down", FAIR)
        await asyncio.to_thread(relay.reset)

    async def restart(self) -> None:
        await asyncio.to_thread(self._cluster.restart, self._member)

    @property
    def _member(self) -> Member:
        return self._cluster.members[0]


class SimulatedBackend(Backend):
    """A simulated etcd. Its time passes while a test waits."""

    may_share = True

    def __init__(self) -> None:
        self._world = World(1)
        self._network = Network(self._world, delay_us_mean=500)
        self._etcd = SimulatedEtcd(self._world, self._network)
        self._count = 0

    async def open(self) -> Coordinator:
        self._count += 1
        port = CoordinatorPort(self._world, self._etcd, f"process-{self._count}")
        return SimulatedCoordinator(self._world, port)

    @asynccontextmanager
    async def lose_answers(self, coordinator: Coordinator) -> AsyncIterator[None]:
        name = cast(SimulatedCoordinator, coordinator).port.name
        self._network.cut("etcd", name)
        yield
        self._network.mend("etcd", name)

    async def restart(self) -> None:
        self._etcd.lose_leader(1_000_000)
        self._world.run_until(self._world.now_us + 1_000_000)


class SimulatedCoordinator:
    """A port as a `Coordinator`: a caller that waits makes time pass."""

    def __init__(self, world: World, port: CoordinatorPort) -> None:
        self.port = port
        self._world = world

    async def read(self, log: str) -> Revisioned | None:
        check_name(log, "log")
        found: Revisioned | None = await self._call(lambda receive: self.port.read(log, receive))
        return found

    async def documents(self) -> dict[str, Revisioned]:
        found: dict[str, Revisioned] = await self._call(self.port.read_all)
        return found

    async def compare(self, log: str, revision: int | None, document: Document) -> Answer:
        check_name(log, "log")
        encode(log, document)
        answer: Answer = await self._call(
            lambda receive: self.port.compare(log, revision, document, receive)
        )
        return answer

    async def watch(self, log: str, after_revision: int) -> AsyncGenerator[Revisioned]:
        seen: list[Revisioned] = []
        self.port.watch(log, after_revision, seen.append)
        while await self._pass_until(lambda: bool(seen)):
            yield seen.pop(0)

    def silent_us(self) -> int:
        return 0

    async def close(self) -> None:
        self.port.close()

    async def _call(self, send: Callable[[Callable[[Any], None]], object]) -> Any:
        found: list[Any] = []
        if not self.port.is_closed:
            send(found.append)
        if not await self._pass_until(lambda: bool(found)):
            raise Unavailable("this coordinator is closed")
        if isinstance(found[0], DodonaError):
            raise found[0]
        return found[0]

    async def _pass_until(self, is_there: Callable[[], bool]) -> bool:
        """→ whether it is there; not so if the port was closed first."""
        while not is_there() and not self.port.is_closed:
            assert self._world.now_us < VIRTUAL_US_MAX, "it never happens"
            await asyncio.sleep(0)
            self._world.run_until(self._world.now_us + STEP_US)
        return is_there()
