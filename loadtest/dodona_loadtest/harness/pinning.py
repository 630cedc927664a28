"""Which processor cores the client and the servers of every contender may run on.

On a virtual machine the placement alone changes the latency of one caller tenfold. Waking another
core is slow. Sharing one is quick, but halves the throughput. So all contenders are placed alike,
and the report says how:

- `none`: the kernel places everything, on all cores. This is the default, because users get it. It
  does not hold back a system that has more processes than others.
- `split`: the client process on the first half of the cores, all servers on the others. This is
  steadier, but every request wakes another core.
- `shared`: client and servers together on the first core.

An engine inside the client's process has no servers: under `split` it gets all cores.
"""

import os
from dataclasses import dataclass
from typing import Literal, get_args

PinningName = Literal["split", "shared", "none"]
PINNING_NAMES: tuple[PinningName, ...] = get_args(PinningName)


@dataclass(frozen=True, slots=True)
class Pinning:
    """The core numbers of each side."""

    name: PinningName
    client: frozenset[int]
    servers: frozenset[int]

    @property
    def embedded(self) -> frozenset[int]:
        """The cores of an engine in the client's process."""
        return self.client | self.servers

    def __str__(self) -> str:
        client, servers = (_text(cores) for cores in (self.client, self.servers))
        return f"{self.name} (client on {client}, servers on {servers}, embedded on both)"


def _text(cores: frozenset[int]) -> str:
    noun = "core" if len(cores) == 1 else "cores"
    return f"{noun} {', '.join(str(core) for core in sorted(cores))}"


def choose_pinning(name: PinningName) -> Pinning:
    """Place both sides on the cores that this process may use."""
    cores = sorted(os.sched_getaffinity(0))
    if name == "none":
        return Pinning(name, frozenset(cores), frozenset(cores))
    if name == "shared" or len(cores) == 1:
        return Pinning(name, frozenset(cores[:1]), frozenset(cores[:1]))
    half = len(cores) // 2
    return Pinning(name, frozenset(cores[:half]), frozenset(cores[half:]))


def pin_this_process(cores: frozenset[int]) -> None:
    """Keep this process, and the children that it starts from now on, on these cores."""
    os.sched_setaffinity(0, cores)
