"""A cluster whose connections all pass through relays, a relay for each pair that talks.

Owns: which processes talk to each other, and the relay between them. Servers listen at their own
addresses. The answers of the master pass through a relay, which puts relays in the place of
servers. So even two nodes meet through a link of their own. Must not import: the servers.
"""

from collections.abc import Sequence
from pathlib import Path
from random import Random
from types import TracebackType
from typing import Final, Literal, NamedTuple, Self
from urllib.parse import urlsplit

from dodona_loadtest.chaos.faults import role_of
from dodona_loadtest.harness.relay import FAIR, Condition, Direction, Relay, Relays
from dodona_local.launcher import LocalCluster
from dodona_local.supervisor import Plan

CLIENT: Final = "client"
Kind = Literal["reset", "slow", "narrow", "mute", "deaf", "cut"]
"""reset: all connections end. slow, narrow: delayed, throttled. mute, deaf: nothing passes up, or
down, as with a half-open connection. cut: nothing passes either way."""
KINDS: Final[tuple[Kind, ...]] = ("reset", "slow", "narrow", "mute", "deaf", "cut", "cut")
TROUBLE_MS_MAX: Final = 3_000
DELAY_MS_MAX: Final = 300
BYTES_PER_S_MIN: Final = 3_000


class Link(NamedTuple):
    """A process that connects, and its target, by their names; all clients are `client`."""

    source: str
    target: str

    def __str__(self) -> str:
        return f"{self.source} to {self.target}"


class Trouble(NamedTuple):
    """A trouble of some links together, after a while, for some time. Then the held-back bytes
    arrive late, or a reset loses them."""

    after_ms: int
    kind: Kind
    links: tuple[Link, ...]
    duration_ms: int
    strength: float
    is_reset_after: bool


class LinkedCluster:
    """A local cluster and its links. Use as a context manager."""

    def __init__(self, data_dir: Path, node_count: int = 3) -> None:
        self._relays = Relays()
        self._ports: dict[str, int] = {}
        self.links: dict[Link, Relay] = {}
        self.cluster = LocalCluster(data_dir, node_count=node_count, arrange=self._arrange)

    def __enter__(self) -> Self:
        self._relays.__enter__()
        try:
            self.cluster.__enter__()
        except BaseException:
            self._relays.__exit__()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            self.cluster.__exit__(kind, error, trace)
        finally:
            self._relays.__exit__()

    @property
    def master_url(self) -> str:
        """The URL of the master for clients."""
        return f"http://{self.links[Link(CLIENT, 'master')].address}"

    def begin(self, trouble: Trouble) -> None:
        for link in trouble.links:
            relay = self.links[link]
            if trouble.kind == "reset":
                relay.reset()
            for direction, condition in _conditions(trouble).items():
                relay.disturb(direction, condition)

    def end(self, trouble: Trouble) -> None:
        for link in trouble.links:
            if trouble.is_reset_after:
                self.links[link].reset()
            self.links[link].heal()

    def heal(self) -> None:
        for relay in self.links.values():
            relay.heal()

    def _arrange(self, plans: list[Plan]) -> list[Plan]:
        """Let each process find the master through a relay, and others through its answers."""
        self._ports = {plan.name: urlsplit(plan.url).port or 0 for plan in plans}
        nodes = [plan.name for plan in plans if role_of(plan.name) == "node"]
        proxies = [plan.name for plan in plans if role_of(plan.name) == "proxy"]
        self._connect(CLIENT, [*proxies, *nodes])
        arranged = []
        for plan in plans:
            if plan.name != "master":
                self._connect(plan.name, nodes if plan.name in nodes else [])
                master = self.links[Link(plan.name, "master")]
                plan = plan.with_option("--master-url", f"http://{master.address}")
            arranged.append(plan)
        return arranged

    def _connect(self, source: str, targets: Sequence[str]) -> None:
        rewrites = {}
        for target in targets:
            if target == source:
                continue
            relay = self._relays.open(self._ports[target])
            self.links[Link(source, target)] = relay
            rewrites[f"127.0.0.1:{self._ports[target]}".encode()] = relay.address.encode()
        to_master = self._relays.open(self._ports["master"], rewrites)
        self.links[Link(source, "master")] = to_master


def draw_trouble(random: Random, links: Sequence[Link], after_ms_mean: float) -> Trouble:
    """Draw the next trouble: of one link, of both directions, or of all links of a process."""
    after_ms = int(random.expovariate(1 / after_ms_mean))
    kind = random.choice(KINDS)
    chosen = [random.choice(links)]
    dice = random.random()
    if dice < 0.3:  # one process loses touch with all others
        chosen = [link for link in links if chosen[0].source in link]
    elif dice < 0.6:
        chosen += [link for link in links if link == (chosen[0].target, chosen[0].source)]
    duration_ms = int(TROUBLE_MS_MAX ** random.uniform(0.6, 1))
    return Trouble(
        after_ms, kind, tuple(chosen), duration_ms, random.random(), random.random() < 0.5
    )


def _conditions(trouble: Trouble) -> dict[Direction, Condition]:
    clogged = Condition(is_clogged=True)
    match trouble.kind:
        case "slow":
            condition = Condition(delay_ms=1 + trouble.strength * DELAY_MS_MAX)
            return {"up": condition, "down": condition}
        case "narrow":
            condition = Condition(bytes_per_s=BYTES_PER_S_MIN * (1 + 9 * trouble.strength))
            return {"up": condition, "down": condition}
        case "mute":
            return {"up": clogged}
        case "deaf":
            return {"down": clogged}
        case "cut":
            return {"up": clogged, "down": clogged}
        case _:
            return {"up": FAIR, "down": FAIR}
