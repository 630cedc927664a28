"""What the conformance suite runs against: embedded, real processes, and a simulated cluster.

Owns: the one face that all three show to a test: a blocking client, more clients whose clocks can
be set, protocols that run beside the test, time that passes, servers that crash and come back. The
simulated one runs the production cores of a whole cluster under virtual time, without faults.
"""

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import permutations
from pathlib import Path
from random import Random
from typing import Any, Final, Generic, Protocol, TypeVar

from dodona._core.protocol import steps
from dodona._core.protocol.context import DEFAULT_ACKNOWLEDGEMENT, Acknowledgement
from dodona._core.protocol.limits import SessionLimits
from dodona._core.protocol.routing import Routing
from dodona._core.session import Session
from dodona._io.drivers import BlockingDriver
from dodona._io.pinger import Chores, Item, Pinger
from dodona.catalog import Driver
from dodona.client import Client
from dodona.errors import DodonaError, InvalidRequest
from dodona.types import CellId
from dodona_loadtest.histories.history import Acquisition
from dodona_local.embedded import EmbeddedDriver
from dodona_local.launcher import LocalCluster
from dodona_tablets.core.cell.limits import CellLimits
from dodona_tablets.core.node import NodeCore
from dodona_wire.cores.fault_points import FaultAt
from simulator.cluster import Cluster
from simulator.disk import DiskOptions
from simulator.driver import ClientProcess, Task
from simulator.faults import ClockOptions, Options
from simulator.network import NetworkOptions
from simulator.world import World

Result = TypeVar("Result")
Result_co = TypeVar("Result_co", covariant=True)

REAL_PAUSE_MS_MAX: Final = 300
"""Nothing may need more real time than this to be seen."""
ANSWER_S_MAX: Final = 60.0
VIRTUAL_S_MAX: Final = 300
REMOUNT_ATTEMPTS_MAX: Final = 50
QUANTUM_US: Final = 500


class ClientClock:
    """By how much a client's clocks are ahead of those of its machine."""

    def __init__(self) -> None:
        self.instant_skew_ms = 0
        self.unix_skew_ms = 0


class Started(Protocol[Result_co]):
    """A protocol that runs beside the test."""

    @property
    def is_over(self) -> bool: ...

    def result(self) -> Result_co:
        """Wait for its end. → its result, or raises its error."""
        ...


class Backend(ABC):
    """A database of one of the three kinds. `db` is a client of it that lives as long."""

    cell_count: int
    db: Client

    def new_client(
        self,
        *,
        clock: ClientClock | None = None,
        limits: SessionLimits | None = None,
        acknowledgement: Acknowledgement = DEFAULT_ACKNOWLEDGEMENT,
    ) -> Client:
        """A client that shares nothing with `db` but the servers. Closed with the backend."""
        driver, routing, instant_us, unix_us = self._new_driver()
        skew = clock or ClientClock()
        session = Session(
            instant_us=lambda: instant_us() + skew.instant_skew_ms * 1000,
            unix_us=lambda: unix_us() + skew.unix_skew_ms * 1000,
            dice=Random(0).random,
            routing=routing,
            limits=limits,
            acknowledgement=acknowledgement,
        )
        return Client(driver, session, type(self).__name__)

    @abstractmethod
    def _new_driver(self) -> "tuple[Driver, Routing, Clock, Clock]": ...

    @abstractmethod
    def start(self, client: Client, protocol: steps.Protocol[Result]) -> Started[Result]:
        """Run it beside the test."""

    @abstractmethod
    def unix_us(self) -> int:
        """The wall clock of the servers' machine."""

    @abstractmethod
    def let_pass(self, duration_ms: int) -> None:
        """Let so much time pass: what is to happen at once has happened then."""

    @abstractmethod
    def restart_cells(self) -> None:
        """Every cell crashes and recovers. All that clients hold stays as it is."""

    @abstractmethod
    def restart_master(self) -> None:
        """The master crashes and recovers."""

    @abstractmethod
    def close(self) -> None: ...


Clock = Callable[[], int]


def until_it_works(backend: Backend, call: Callable[[], None]) -> None:
    """Repeat what is refused until tablets go by settings of a moment ago: a remount is not waited
    for by whoever asks for it."""
    for _ in range(REMOUNT_ATTEMPTS_MAX):
        try:
            call()
        except InvalidRequest:
            backend.let_pass(100)
        else:
            return
    call()


class _Thread(Generic[Result]):
    """A protocol in a thread of its own."""

    def __init__(self, client: Client, protocol: steps.Protocol[Result]) -> None:
        self._results: list[Result] = []
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, args=(client, protocol), daemon=True)
        self._thread.start()

    def _run(self, client: Client, protocol: steps.Protocol[Result]) -> None:
        try:
            self._results.append(client._driver.run(protocol))
        except BaseException as error:  # noqa: BLE001 - it is raised in the thread of the test
            self._error = error

    @property
    def is_over(self) -> bool:
        return not self._thread.is_alive()

    def result(self) -> Result:
        self._thread.join(ANSWER_S_MAX)
        assert self.is_over, "it does not come to an end"
        if self._error is not None:
            raise self._error
        return self._results[0]


class _RealTime(Backend):
    """A database under the machine's clocks."""

    def start(self, client: Client, protocol: steps.Protocol[Result]) -> Started[Result]:
        return _Thread(client, protocol)

    def unix_us(self) -> int:
        return _unix_us()

    def let_pass(self, duration_ms: int) -> None:
        assert duration_ms <= REAL_PAUSE_MS_MAX, "for long times there is the simulator"
        time.sleep(duration_ms / 1000)


def _monotonic_us() -> int:
    return time.monotonic_ns() // 1000


def _unix_us() -> int:
    return time.time_ns() // 1000


# ---- embedded


class Embedded(_RealTime):
    """`dodona.open`: one cell."""

    cell_count = 1

    def __init__(self, folder: Path) -> None:
        self._driver = _Reopened(str(folder))
        self.db = self.new_client()

    def _new_driver(self) -> tuple[Driver, Routing, Clock, Clock]:
        return self._driver, Routing(), _monotonic_us, _unix_us

    def restart_cells(self) -> None:
        self._driver.reopen()

    def restart_master(self) -> None:
        self._driver.reopen()

    def close(self) -> None:
        self._driver.close()


def _opened(folder: str) -> EmbeddedDriver:
    driver = EmbeddedDriver(folder)
    driver.open()
    return driver


class _Reopened:
    """The folder's driver, and after a restart its next one: clients outlive both."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._now = _opened(folder)

    def run(self, protocol: steps.Protocol[Result], timeout_ms: int | None = None) -> Result:
        return self._now.run(protocol, timeout_ms)

    def reopen(self) -> None:
        self._now.close()
        self._now = _opened(self._folder)

    def close(self) -> None:
        self._now.close()


# ---- real processes


class Processes(_RealTime):
    """Master, proxy and a node for each cell, as `dodona up` starts them."""

    def __init__(self, folder: Path, cell_count: int = 2) -> None:
        self.cell_count = cell_count
        self._cluster = LocalCluster(folder, node_count=cell_count).__enter__()
        self.url = self._cluster.master_url
        self._drivers: list[BlockingDriver] = []
        self.db = self.new_client()

    def _new_driver(self) -> tuple[Driver, Routing, Clock, Clock]:
        routing = Routing()
        driver = BlockingDriver(self._cluster.master_url, routing)
        self._drivers.append(driver)
        return driver, routing, _monotonic_us, _unix_us

    def restart_cells(self) -> None:
        self._restart([f"node {cell}" for cell in range(self.cell_count)])

    def restart_master(self) -> None:
        self._restart(["master"])

    def _restart(self, names: list[str]) -> None:
        start_counts = {name: self._cluster.processes[name].start_count for name in names}
        for name in names:
            self._cluster.kill(name)
        for name, count in start_counts.items():
            self._cluster.wait_until_ready(name, start_count=count + 1)

    def close(self) -> None:
        for driver in self._drivers:
            driver.close()
        self._cluster.__exit__(None, None, None)


# ---- simulated


class Simulated(Backend):
    """The production cores in one thread under virtual time. Nothing fails by itself."""

    def __init__(self, cell_count: int = 2) -> None:
        self.cell_count = cell_count
        self.world = World(seed=1)
        acquisitions: list[Acquisition] = []
        self._cluster = Cluster(self.world, _calm(cell_count), acquisitions, _make_core)
        self._client_count = 0
        self._cluster.start()
        self._run_until(self._is_serving)
        self.db = self.new_client()

    def _new_driver(self) -> tuple[Driver, Routing, Clock, Clock]:
        self._client_count += 1
        name = f"conformance-{self._client_count}"
        proxies = [proxy.address for proxy in self._cluster.proxies]
        timeout_us = self._cluster.options.call_timeout_us
        process = ClientProcess(self._cluster.transport, name, proxies, timeout_us)
        driver = _SimulatedDriver(self, process)
        return driver, process.routing, process.instant_us, process.unix_us

    def new_client(
        self,
        *,
        clock: ClientClock | None = None,
        limits: SessionLimits | None = None,
        acknowledgement: Acknowledgement = DEFAULT_ACKNOWLEDGEMENT,
    ) -> Client:
        client = super().new_client(clock=clock, limits=limits, acknowledgement=acknowledgement)
        session = client._session
        client._pinger = _VirtualPinger(self, client, session.pings)
        client._holder = _VirtualPinger(self, client, session.holds)
        client.loads._keeper = client._keeper = _VirtualPinger(self, client, session.leases)
        return client

    def start(self, client: Client, protocol: steps.Protocol[Result]) -> Started[Result]:
        assert isinstance(client._driver, _SimulatedDriver)
        return _Virtual(self, client._driver.process, protocol)

    def unix_us(self) -> int:
        return self._cluster.master.clock.now().unix_us

    def let_pass(self, duration_ms: int) -> None:
        self.world.run_until(self.world.now_us + duration_ms * 1000)

    def restart_cells(self) -> None:
        self._cluster.restart_nodes()
        self._run_until(self._is_serving)

    def restart_master(self) -> None:
        self._cluster.master.crash()
        self._cluster.master.start()

    @contextmanager
    def cell_is_down(self, cell: CellId) -> Iterator[None]:
        """For the length of a block."""
        node = self._cluster.nodes[cell]
        node.crash()
        yield
        node.start()
        self._run_until(self._is_serving)

    @contextmanager
    def cells_are_apart(self) -> Iterator[None]:
        """For the length of a block what they send to each other is lost."""
        names = [node.name for node in self._cluster.nodes]
        for pair in permutations(names, 2):
            self._cluster.network.cut(*pair)
        yield
        for pair in permutations(names, 2):
            self._cluster.network.mend(*pair)

    @contextmanager
    def cells_stand_still(self) -> Iterator[None]:
        """For the length of a block: what is sent to them waits."""
        for node in self._cluster.nodes:
            node.pause(VIRTUAL_S_MAX * 1_000_000)
        yield
        for node in self._cluster.nodes:
            node.spare()

    def _is_serving(self) -> bool:
        return not self._cluster.starting()

    def _run_until(self, is_so: Callable[[], bool]) -> None:
        deadline_us = self.world.now_us + VIRTUAL_S_MAX * 1_000_000
        while not is_so():
            assert self.world.now_us < deadline_us, "it does not come to an end"
            self.world.run_until(self.world.now_us + QUANTUM_US)

    def close(self) -> None:
        """A simulated cluster holds nothing that would have to be let go of."""


class _SimulatedDriver:
    """Runs a protocol by letting virtual time pass until it is over."""

    def __init__(self, backend: Simulated, process: ClientProcess) -> None:
        self.process = process
        self._backend = backend

    def run(self, protocol: steps.Protocol[Result], timeout_ms: int | None = None) -> Result:
        del timeout_ms  # virtual time is bounded by the protocols' own patience
        return _Virtual(self._backend, self.process, protocol).result()

    def close(self) -> None:
        """A simulated client holds no sockets."""


class _Virtual(Generic[Result]):
    """A protocol that goes on whenever virtual time does."""

    def __init__(
        self, backend: Simulated, process: ClientProcess, protocol: steps.Protocol[Result]
    ) -> None:
        self._backend = backend
        self._results: list[Result] = []
        self._error: DodonaError | None = None
        self._task = Task(process, self._note(protocol))

    def _note(self, protocol: steps.Protocol[Result]) -> steps.Protocol[None]:
        try:
            self._results.append((yield from protocol))
        except DodonaError as error:
            self._error = error

    @property
    def is_over(self) -> bool:
        return self._task.is_over

    def result(self) -> Result:
        self._backend._run_until(lambda: self.is_over)
        if self._error is not None:
            raise self._error
        return self._results[0]


class _VirtualPinger(Pinger[Item]):
    """Does a client's chores as virtual time goes on: there are no threads."""

    def __init__(self, backend: Simulated, client: Client, chores: Chores[Item]) -> None:
        super().__init__(client._driver.run, chores)
        self._backend = backend
        self._client = client
        self._running: Started[None] | None = None

    def watch(self, item: Item) -> None:
        self._chores.add(item)
        if self._running is None or self._running.is_over:
            self._running = self._backend.start(self._client, self._ping())

    def _ping(self) -> steps.Protocol[None]:
        while (wait_ms := self._chores.wait_ms()) is not None:
            yield steps.Pause(wait_ms)
            yield from self._chores.do_due()


def _make_core(cell: CellId, address: str, _: CellLimits, __: FaultAt) -> NodeCore:
    """With production's limits, where the simulator's own runs keep every version for ever."""
    return NodeCore(cell, address, CellLimits())


def _calm(cell_count: int) -> Options:
    """No faults, and production's own bounds."""
    values: dict[str, Any] = {
        "cell_count": cell_count,
        "proxy_count": 1,
        "client_count": 0,
        "session_count": 0,
        "call_timeout_us": 10_000_000,
        "think_us_mean": 1,
        "patience_ms": 10_000,
        "acknowledgement": DEFAULT_ACKNOWLEDGEMENT,
        "session_life_us_mean": 0,
        "commit_death_rate": 0.0,
        "transaction_life_s_max": 60,
        "page_rows_max": 10_000,
        "is_ceiling_tight": False,
        "master_clock_rate": 1.0,
        "has_one_question": True,
        "remount_us_mean": 0,
        "moves_rate": 0.0,
        "network": NetworkOptions(),
        "client_skew_us_max": 0,
        "disk": DiskOptions(),
        "clocks": ClockOptions(),
        "faults": (),
    }
    return Options(**values)
