"""The processes under attack, servers and clients, by name: `master`, `node 0`, `client 1`.

Owns: which processes may be hit now, which are paused, and their restart. The supervisor of the
local cluster restarts servers. This module restarts clients, immediately.
"""

import signal
import time
from collections.abc import Callable, Sequence
from typing import Final

from dodona_loadtest.chaos.clients import ClientProcess
from dodona_loadtest.chaos.faults import STANDBY, Fault, Role, role_of
from dodona_loadtest.histories.history import Crash
from dodona_loadtest.live.session_group import now_us
from dodona_local.errors import LaunchFailed
from dodona_local.launcher import LocalCluster

READY_S_MAX: Final = 30.0
POLL_MS: Final = 20
DEATH_US_MAX: Final = 20_000
"""Microseconds that a process may still run after the kernel got its signal to end it."""


def cells_of(cluster: LocalCluster, name: str) -> Sequence[int]:
    """Return the cells that a node may have. With nodes that stand by, that is any cell."""
    if any(it.startswith(STANDBY) for it in cluster.processes):
        return range(len(cluster.node_urls))
    return [int(name.partition(" ")[2])]


class Targets:
    """The processes that may be hit. `new_client(index, incarnation)` starts a client process."""

    def __init__(
        self,
        cluster: LocalCluster,
        client_count: int,
        new_client: Callable[[int, int], ClientProcess],
    ) -> None:
        self._cluster = cluster
        self._new_client = new_client
        self._clients = [new_client(index, 0) for index in range(client_count)]
        self._incarnations = [0] * client_count
        self._paused: dict[str, int] = {}
        self._hit_early: set[str] = set()
        self.ended_early: list[str] = []
        """Clients that ended without a request and without a kill."""
        self.kills: list[tuple[int, str]] = []
        """The time of each kill in µs, and the name of the process."""
        self.crashes: list[Crash] = []
        """Crashes of nodes, with instants from which they surely answered no more."""
        self.pauses: list[tuple[int, str]] = []
        self.death_count = 0
        """Clients that killed themselves in the middle of a commit."""
        self._killed_clients: set[int] = set()

    @property
    def names(self) -> list[str]:
        clients = [f"client {index}" for index in range(len(self._clients))]
        return [*self._cluster.processes, *clients]

    def strike(self, fault: Fault) -> None:
        """Kill or pause all targets of a fault together."""
        for name in fault.targets:
            if fault.pause_ms:
                self._pause(name, fault.pause_ms)
            elif self._may_be_killed(name):
                self._kill(name)

    def wait(self, duration_ms: int) -> None:
        """Let time pass, and resume processes whose pause ends meanwhile."""
        until_us = now_us() + duration_ms * 1000
        while (left_us := until_us - now_us()) > 0:
            time.sleep(min(POLL_MS / 1e3, left_us / 1e6))
            for name, paused_until_us in list(self._paused.items()):
                if now_us() >= paused_until_us:
                    self._resume(name)
            self._revive_clients()

    def heal(self) -> None:
        """Resume all processes, and wait for servers that are down. Raises LaunchFailed."""
        for name in list(self._paused):
            self._resume(name)
        self.wait_until_ready()

    def wait_until_ready(self) -> None:
        """Wait until all servers are up, paused or not. Raises LaunchFailed."""
        deadline = time.monotonic() + READY_S_MAX
        while late := [it.name for it in self._cluster.processes.values() if not it.is_ready]:
            if time.monotonic() > deadline:
                raise LaunchFailed(f"not ready in {READY_S_MAX:g} s: {', '.join(late)}")
            self.wait(POLL_MS)

    def end_clients(self, wait_s_max: float) -> list[str]:
        """Ask all clients to finish, and kill those that are late. Return the names of these."""
        deadline = time.monotonic() + wait_s_max
        self._revive_clients()
        for client in self._clients:
            client.end()
        late = []
        for index, client in enumerate(self._clients):
            if not client.wait(max(0.0, deadline - time.monotonic())):
                late.append(f"client {index}")
            elif client.exit_status == -signal.SIGKILL:
                self.death_count += 1
            elif client.exit_status:
                self.ended_early.append(f"client {index}: exit status {client.exit_status}")
            client.kill()
        self._clients = []
        return late

    def kill_all(self, role: Role) -> None:
        """Kill all servers of a role together, and wait until they are back. They are not among
        `kills`, because no client is at work."""
        names = [name for name in self._cluster.processes if role_of(name) == role]
        starts = {name: self._cluster.processes[name].start_count for name in names}
        for name in names:
            self._kill_server(name)
        for name in names:
            self._cluster.wait_until_ready(
                name, start_count=starts[name] + 1, wait_s_max=READY_S_MAX
            )

    def close(self) -> None:
        """Resume all paused processes, and kill all clients."""
        for name in list(self._paused):
            self._resume(name)
        for client in self._clients:
            client.kill()

    def _may_be_killed(self, name: str) -> bool:
        """Return whether a process may be killed. One that is starting may be hit once, because the
        supervisor abandons a process that never gets to serve."""
        if role_of(name) == "client":
            return self._client(name).is_alive
        status = self._cluster.processes[name]
        if status.is_ready:
            self._hit_early.discard(name)
            return True
        if status.pid is None or name in self._hit_early:
            return False
        self._hit_early.add(name)
        return True

    def _kill(self, name: str) -> None:
        self._paused.pop(name, None)
        self.kills.append((now_us(), name))
        if role_of(name) == "client":
            self._killed_clients.add(int(name.partition(" ")[2]))
            self._client(name).kill()
        else:
            self._kill_server(name)

    def _kill_server(self, name: str) -> None:
        self._cluster.kill(name)
        if role_of(name) == "node":
            self.crashes += [
                Crash(it, now_us() + DEATH_US_MAX) for it in cells_of(self._cluster, name)
            ]

    def _pause(self, name: str, pause_ms: int) -> None:
        if role_of(name) != "client" and self._cluster.processes[name].pid is None:
            return
        self.pauses.append((now_us(), name))
        self._paused[name] = now_us() + pause_ms * 1000
        if role_of(name) == "client":
            self._client(name).pause()
        else:
            self._cluster.pause(name)
            if role_of(name) == "node" and len(cells := cells_of(self._cluster, name)) > 1:
                # Another node may take the cell over meanwhile, without what is not durable.
                self.crashes += [Crash(it, now_us()) for it in cells]

    def _resume(self, name: str) -> None:
        del self._paused[name]
        if role_of(name) == "client":
            self._client(name).resume()
        else:
            self._cluster.resume(name)

    def _client(self, name: str) -> ClientProcess:
        return self._clients[int(name.partition(" ")[2])]

    def _revive_clients(self) -> None:
        for index, client in enumerate(self._clients):
            if client.is_alive:
                continue
            if client.exit_status == -signal.SIGKILL:
                self.death_count += index not in self._killed_clients
            else:
                self.ended_early.append(f"client {index}: exit status {client.exit_status}")
            self._killed_clients.discard(index)
            self._incarnations[index] += 1
            self._clients[index] = self._new_client(index, self._incarnations[index])
