"""Launch a whole cluster on one machine: its processes, their ports and their folders.

Owns: the layout (master, proxies, gateways, nodes), and its two forms: `run_cluster` for a terminal
and `LocalCluster` for programs and tests. `replicas` has the processes for logs with copies, and
`supervisor` keeps all running.
Must not import: the servers. They start by module name, in separate processes.
"""

import asyncio
import os
import signal
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Final, NamedTuple, Self

from msgspec.structs import replace as replace_fields

from dodona_local.errors import LaunchFailed
from dodona_local.folder import DataFolder
from dodona_local.ports import HOST, PortReservation, reserve_ports
from dodona_local.replicas import Replicas
from dodona_local.replicated_folder import ReplicatedFolder
from dodona_local.restart import BACK_OFF_S_MAX
from dodona_local.supervisor import Plan, ProcessStatus, Report, Supervisor
from dodona_local.supervisor_thread import SupervisorThread

NODES_MAX: Final = 64
POLL_S: Final = 0.02
FORK_MODULES: Final = {
    "dodona_oracle": (
        "dodona_oracle.shell.master",
        "dodona_oracle.shell.master_pages",
        "dodona_oracle.shell.proxy",
        "dodona_oracle.shell.proxy_pages",
    ),
    "dodona_gateway": (
        "dodona._core.loads.one_call",
        "dodona._core.loads.session",
        "dodona_gateway.shell.gateway",
    ),
    "dodona_tablets": ("dodona_tablets.shell.pages", "dodona_tablets.shell.service"),
}
"""The imports of servers, by their modules: all that they need, so that no fork imports a module
again."""

Arrange = Callable[[list[Plan]], list[Plan]]
"""Takes the plans before anything starts, and returns the plans to carry out."""


class Layout(NamedTuple):
    """The number of processes of each kind besides the one master."""

    node_count: int
    proxy_count: int = 1
    gateway_count: int = 0
    is_insecure: bool = False
    """Whether the gateways need no tokens."""
    has_key: bool = False
    """Whether the processes, and their clients, show each other the folder's key."""
    replicas: Replicas | None = None
    """The log replicas, if the logs of cells have copies."""

    @property
    def port_count(self) -> int:
        others = 0 if self.replicas is None else self.replicas.port_count
        return 1 + self.proxy_count + self.gateway_count + self.node_count + others


def cluster_plans(
    folder: DataFolder, ports: Sequence[int], layout: Layout, cluster: str = ""
) -> list[Plan]:
    """Return the plans: the master on the first port, then the proxies, the gateways and the nodes,
    and what log replicas need. `cluster` is the name that these have for it."""
    free = iter(ports)
    master_port = next(free)
    master_url = f"http://{HOST}:{master_port}"
    master = _plan("master", "dodona_oracle", "master", port=master_port, data_dir=folder.master)
    plans = [replace(master, is_essential=True)]
    plans += [
        _plan(name, "dodona_oracle", "proxy", port=next(free), master_url=master_url)
        for name in _names("proxy", layout.proxy_count)
    ]
    for name in _names("gateway", layout.gateway_count):
        options: dict[str, object] = {"master_url": master_url, "audit_log": folder.audit_log(name)}
        if layout.is_insecure:
            options["insecure"] = True
        else:
            options["first_token_file"] = folder.admin_token
        plans.append(_plan(name, "dodona_gateway", port=next(free), **options))
    node_ports = [next(free) for _ in range(layout.node_count)]
    others: list[Plan] = []
    more: dict[str, object] = {"master_url": master_url}
    if layout.replicas is not None:
        others = layout.replicas.plans(folder, cluster, free)
        more |= layout.replicas.node_options(folder, cluster, others)
    for cell, port in enumerate(node_ports):
        options = {"cell": cell, "data_dir": folder.node(cell), **more}
        plans.append(_plan(f"node {cell}", "dodona_tablets", port=port, **options))
    if layout.replicas is not None:
        for index, name in enumerate(_names("standby", layout.replicas.standby_count)):
            options = {"data_dir": folder.standby(index), **more}
            plans.append(_plan(name, "dodona_tablets", port=next(free), **options))
    plans += others
    return with_key(plans, folder) if layout.has_key else plans


def with_key(plans: Sequence[Plan], folder: DataFolder) -> list[Plan]:
    """Let the processes show each other the folder's key."""
    key_file = str(folder.cluster_key)
    is_ours = [it.module in FORK_MODULES for it in plans]
    return [
        it.with_option("--cluster-key-file", key_file) if ours else it
        for it, ours in zip(plans, is_ours, strict=True)
    ]


def _names(kind: str, count: int) -> list[str]:
    return [f"{kind} {index}" if index else kind for index in range(count)]


def _plan(name: str, module: str, *words: str, port: int, **options: object) -> Plan:
    arguments = list(words)
    for option, value in {"host": HOST, "port": port, **options}.items():
        flag = f"--{option.replace('_', '-')}"
        arguments += [flag] if value is True else [flag, str(value)]
    return Plan(name, module, tuple(arguments), f"http://{HOST}:{port}")


def _fork_modules(plans: Sequence[Plan]) -> list[str]:
    """Return the modules that a fork server has to import for these plans."""
    modules = dict.fromkeys(plan.module for plan in plans)
    return [name for module in modules for name in FORK_MODULES.get(module, ())]


class _Launch:
    """The state of both forms while a cluster runs: the folder, the ports, the plans."""

    def __init__(
        self, data_dir: Path, layout: Layout, port_base: int, arrange: Arrange = list
    ) -> None:
        assert layout.proxy_count > 0
        if not 0 < layout.node_count <= NODES_MAX:
            text = f"the number of nodes must be 1 to {NODES_MAX}, not {layout.node_count}"
            raise LaunchFailed(text)
        self.folder = DataFolder(data_dir)
        try:
            self.folder.check_node_count(layout.node_count)
            self.replicated = self._check_copies(layout)
            self.folder.check_master()
            if layout.has_key:
                self.folder.make_key()
            self.ports: PortReservation = reserve_ports(port_base, layout.port_count)
        except LaunchFailed:
            self.folder.close()
            raise
        try:
            name = "" if self.replicated is None else self.replicated.name
            self.plans = arrange(cluster_plans(self.folder, self.ports.ports, layout, name))
            self._note_copies()
        except BaseException:
            self.close()
            raise

    def _check_copies(self, layout: Layout) -> ReplicatedFolder | None:
        """Return what the folder has if its logs have copies."""
        if layout.replicas is None:
            self.folder.check_unreplicated()
            return None
        return layout.replicas.check(self.folder, layout.node_count)

    def _note_copies(self) -> None:
        """Note in the folder that its logs have copies, if they have. From now on it can't be
        started without them, so this is the last step before the processes start."""
        if self.replicated is not None:
            self.replicated.write(self.folder.path)

    def note_ready(self) -> None:
        """Note that all processes have been ready once."""
        if self.replicated is not None and not self.replicated.has_been_ready:
            self.replicated = replace_fields(self.replicated, has_been_ready=True)
            self.replicated.write(self.folder.path)

    def close(self) -> None:
        self.ports.release()
        self.folder.close()


def run_cluster(
    data_dir: Path,
    node_count: int,
    port_base: int,
    *,
    is_insecure: bool = False,
    replicas: Replicas | None = None,
    say: Report,
    warn: Report,
) -> None:
    """Run a cluster until Ctrl-C or SIGTERM. `say` gets the addresses, then `ready`. With
    `replicas`, the logs of cells have copies.

    Must be called in the main thread. Raises LaunchFailed if the cluster can't start or be kept
    running.
    """
    layout = Layout(
        node_count, gateway_count=1, is_insecure=is_insecure, has_key=True, replicas=replicas
    )
    launch = _Launch(data_dir, layout, port_base)
    try:
        asyncio.run(_run_in_terminal(launch, is_insecure, say, warn))
    finally:
        launch.close()


async def _run_in_terminal(launch: _Launch, is_insecure: bool, say: Report, warn: Report) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)

    def announce() -> None:
        for plan in launch.plans:
            say(f"{plan.name} {plan.url}")
        for url in [it.url for it in launch.plans if it.module == "dodona_gateway"]:
            say(f"console {url}/console")
        if is_insecure:
            warn("the gateway asks for no tokens: every user of this machine may do everything")
        elif launch.folder.admin_token.exists():
            say(f"admin token in {launch.folder.admin_token}")
        failing = supervisor.failures()
        if not failing:
            launch.note_ready()
        say(f"ready, except {', '.join(failing)}" if failing else "ready")

    modules = _fork_modules(launch.plans)
    supervisor = Supervisor(launch.plans, launch.folder, warn, fork_modules=modules)
    await supervisor.run(announce, stop)


class LocalCluster:
    """A cluster for the length of a `with` block, supervised by a thread of this process.

    `port_base=0` takes any free ports. Gateways need tokens unless `is_insecure`. With `has_key`
    all other servers need the folder's key, which clients on this machine find by themselves. With
    `replicas`, the logs of cells have copies, and their chunks are in an object store.
    `warn` gets a sentence when a process was restarted, which happens at most `back_off_s_max`
    seconds after its end. `arrange` may change the plans. Raises LaunchFailed on entry if the
    cluster can't start, and on exit if it could not be kept running.
    """

    def __init__(
        self,
        data_dir: Path | str,
        *,
        node_count: int = 2,
        proxy_count: int = 1,
        gateway_count: int = 0,
        is_insecure: bool = False,
        has_key: bool = False,
        port_base: int = 0,
        warn: Report = lambda sentence: None,
        back_off_s_max: float = BACK_OFF_S_MAX,
        replicas: Replicas | None = None,
        arrange: Arrange = list,
    ) -> None:
        self._layout = Layout(
            node_count, proxy_count, gateway_count, is_insecure, has_key, replicas
        )
        self._arguments = (Path(data_dir), self._layout, port_base, arrange)
        self._warn = warn
        self._back_off_s_max = back_off_s_max

    def __enter__(self) -> Self:
        launch = self._launch = _Launch(*self._arguments)
        self._thread = SupervisorThread(
            launch.plans,
            launch.folder,
            self._warn,
            self._back_off_s_max,
            fork_modules=_fork_modules(launch.plans),
            on_ready=launch.note_ready,
            on_end=launch.close,
        )
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._thread.end()
        if error is None:
            self._thread.check()

    @property
    def folder(self) -> Path:
        """Return the data folder."""
        return self._launch.folder.path

    @property
    def master_url(self) -> str:
        """Return the address for `dodona.connect`."""
        return self._launch.plans[0].url

    @property
    def proxy_url(self) -> str:
        return self._launch.plans[1].url

    @property
    def node_urls(self) -> tuple[str, ...]:
        """Return the addresses of the nodes, by cell id."""
        return tuple(it.url for it in self._launch.plans if it.name.startswith("node "))

    @property
    def admin_token(self) -> str:
        """Return the first token of a cluster whose gateways need tokens."""
        return self._launch.folder.admin_token.read_text().strip()

    @property
    def gateway_urls(self) -> tuple[str, ...]:
        first = 1 + self._layout.proxy_count
        return tuple(it.url for it in self._launch.plans[first:][: self._layout.gateway_count])

    @property
    def processes(self) -> dict[str, ProcessStatus]:
        """Return the status of each process by name: `master`, `proxy`, `proxy 1`, ..., `gateway`,
        ..., `node 0`, ..."""
        return self._thread.statuses()

    def kill(self, name: str) -> None:
        """Kill a process with `kill -9`, as a crash would. The cluster restarts it by itself."""
        self._signal(name, signal.SIGKILL)

    def pause(self, name: str) -> None:
        """Stop a process until `resume`, as on a machine that is too busy."""
        self._signal(name, signal.SIGSTOP)

    def resume(self, name: str) -> None:
        """Let a process go on. Harmless if it runs."""
        self._signal(name, signal.SIGCONT)

    def _signal(self, name: str, number: signal.Signals) -> None:
        pid = self.processes[name].pid
        if pid is not None:
            with suppress(ProcessLookupError):  # the process has just ended
                os.kill(pid, number)

    def wait_until_ready(self, name: str, *, start_count: int = 1, wait_s_max: float = 60) -> None:
        """Wait until the process was started `start_count` times and answers.

        Raises LaunchFailed after `wait_s_max` seconds.
        """
        deadline = time.monotonic() + wait_s_max
        while True:
            status = self.processes[name]
            if status.start_count >= start_count and status.is_ready:
                return
            if time.monotonic() > deadline:
                raise LaunchFailed(f"{name} is not ready after {wait_s_max:g} s")
            time.sleep(POLL_S)
