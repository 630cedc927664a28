"""One round of failovers: as a round of kills, but each fault has its turn alone.

Owns: which processes a failover hits, and when it is over. Before each one, all processes are ready
and each cell acknowledges. Afterwards all processes come back, and each cell acknowledges again.
Meanwhile writers of single rows measure the longest pause (see `pulses`).
"""

import shutil
import time
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from random import Random
from typing import Final

import httpx

from dodona_loadtest.chaos.cluster import Targets
from dodona_loadtest.chaos.failovers import (
    Failover,
    FailoverResult,
    draw_failovers,
    longest_pause_us,
)
from dodona_loadtest.chaos.faults import STANDBY, Fault
from dodona_loadtest.chaos.pulses import Pulses
from dodona_loadtest.chaos.round import Round
from dodona_loadtest.live.phases import NotLive
from dodona_loadtest.live.session_group import now_us
from dodona_local.status import list_copies

SETTLED_S_MAX: Final = 30.0
"""How long a failover may take until all processes are ready and each cell acknowledges."""
QUIET_MS: Final = 300
"""How long all goes on without a fault, after all is settled."""
POLL_MS: Final = 20
ANSWER_S_MAX: Final = 2.0
LEADER: Final = "etcd_server_is_leader 1"
FOLDER_STILL_MS: Final = 10_000
"""Longer than the removal of a folder takes: a kill follows."""


class FailoverRound(Round):
    """One round of failovers."""

    def _strike(self, targets: Targets) -> None:
        plan, cells = self._plan, range(len(self._cluster.node_urls))
        self.result.kills, self.result.pauses = targets.kills, targets.pauses
        drawn = draw_failovers(self._faults_seed, cells, plan.after_ms_mean)
        path = f"//pulses/r{plan.number}"
        targets.wait_until_ready()
        with Pulses(self._cluster.master_url, path, len(cells)) as pulses:
            self._settle(targets, pulses)
            for failover in islice(drawn, plan.kills):
                self.result.failovers.append(self._fail(failover, targets, pulses))
        self._driver.run(self._db.session.catalog.remove_table(path))

    def _fail(self, failover: Failover, targets: Targets, pulses: Pulses) -> FailoverResult:
        targets.wait(failover.after_ms)
        names = self._names_of(failover)
        before = self._owners()
        began_us = now_us()
        self._inflict(failover, names, targets)
        self._settle(targets, pulses)
        ended_us, after = now_us(), self._owners()
        pauses_us = [
            longest_pause_us([at for at, _ in it.acknowledged], began_us, ended_us)
            for it in pulses.each
        ]
        return FailoverResult(
            failover,
            max(pauses_us),
            sum(before[cell] != owner for cell, owner in after.items()),
            pulses.lost_count(),
            pulses.stale_count(),
        )

    def _inflict(self, failover: Failover, names: tuple[str, ...], targets: Targets) -> None:
        if failover.kind == "owner stands still":
            targets.strike(Fault(0, names, is_patient=True, pause_ms=failover.still_ms))
            targets.wait(failover.still_ms)
            return
        if failover.kind == "owner loses its folder":
            targets.strike(Fault(0, names, is_patient=True, pause_ms=FOLDER_STILL_MS))
            for name in names:
                shutil.rmtree(self._folder_of(name), ignore_errors=True)
        targets.strike(Fault(0, names, is_patient=True))

    def _settle(self, targets: Targets, pulses: Pulses) -> None:
        """Wait until all servers are ready, and each cell has acknowledged for a while. Raises
        NotLive, LaunchFailed."""
        deadline = time.monotonic() + SETTLED_S_MAX
        targets.heal()
        while True:
            since_us = now_us()
            targets.wait(QUIET_MS)
            is_ready = all(it.is_ready for it in self._cluster.processes.values())
            if is_ready and pulses.are_beating_since(since_us):
                return
            if time.monotonic() > deadline:
                silent = [it.cell for it in pulses.each if it.last_us() <= since_us]
                raise NotLive(
                    f"{SETTLED_S_MAX:g} s after a fault, these cells are silent: {silent}"
                )

    # ---- who is who

    def _names_of(self, failover: Failover) -> tuple[str, ...]:
        """Return the names of the processes that fail."""
        match failover.kind:
            case "replica killed":
                return (self._replica(failover),)
            case "etcd leader killed":
                return (self._leader(),)
            case "two together":
                return (self._owners()[failover.cell], self._other(failover))
            case _:
                return (self._owners()[failover.cell],)

    def _other(self, failover: Failover) -> str:
        owners = self._owners()
        match failover.other:
            case "owner":
                return _chosen(
                    (it for cell, it in owners.items() if cell != failover.cell), failover
                )
            case "replica":
                return self._replica(failover)
            case "etcd leader":
                return self._leader()
            case "standby":
                owning = {*owners.values()}
                nodes = [it for it in self._cluster.processes if it.startswith(("node", STANDBY))]
                return _chosen((it for it in nodes if it not in owning), failover)

    def _replica(self, failover: Failover) -> str:
        """Return a member of the set of a cell's log."""
        for _ in self._tries(f"the owner of cell {failover.cell} does not say which copies it has"):
            copies, _silent = list_copies(self._cluster.master_url)
            members = [it for it in copies if it.cell == failover.cell and it.role == "member"]
            names = self._names_by_url()
            if known := [names[it.address] for it in members if it.address in names]:
                return _chosen(known, failover)
        raise AssertionError("unreachable")

    def _owners(self) -> Mapping[int, str]:
        """Return the process that owns each cell. Waits until the master knows all of them."""
        for _ in self._tries("the master does not say which process has a cell"):
            cluster = self._driver.run(self._db.session.catalog.get_cluster())
            names = self._names_by_url()
            owners = {int(it.cell): names.get(it.address) for it in cluster.cells}
            known = {cell: name for cell, name in owners.items() if name is not None}
            if len(known) == len(self._cluster.node_urls):
                return known
        raise AssertionError("unreachable")

    def _leader(self) -> str:
        """Return the member of etcd that leads."""
        for _ in self._tries("no member of etcd leads"):
            for name, status in self._cluster.processes.items():
                if name.startswith("etcd") and LEADER in _page(f"{status.url}/metrics"):
                    return name
        raise AssertionError("unreachable")

    def _tries(self, text: str) -> Iterator[None]:
        """Yield again and again, for so long as a failover may take. Raises NotLive then."""
        deadline = time.monotonic() + SETTLED_S_MAX
        while time.monotonic() < deadline:
            yield
            time.sleep(POLL_MS / 1e3)
        raise NotLive(f"{text} within {SETTLED_S_MAX:g} s")

    def _names_by_url(self) -> dict[str, str]:
        return {it.url: name for name, it in self._cluster.processes.items()}

    def _folder_of(self, name: str) -> Path:
        """Return the folder of a node, by the name of its process."""
        kind, _, number = name.partition(" ")
        return self._cluster.folder / f"{kind}-{number or 0}"


def _chosen(names: Iterable[str], failover: Failover) -> str:
    return Random(failover.dice).choice(sorted(names))


def _page(url: str) -> str:
    try:
        return httpx.get(url, timeout=ANSWER_S_MAX, trust_env=False).text
    except httpx.HTTPError:
        return ""
