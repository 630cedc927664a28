"""The faults of a cluster, and when they come: drawn from a seed. The machine decides the rest.

Owns: the draws. Must not import: anything that has processes or clocks.
"""

from collections.abc import Iterator, Sequence
from random import Random
from typing import Final, Literal, NamedTuple

Role = Literal["master", "proxy", "node", "client", "replica", "etcd"]
ROLES: Final[tuple[Role, ...]] = ("master", "proxy", "node", "client", "replica", "etcd")
WEIGHTS: Final = {"master": 3, "proxy": 2, "node": 5, "client": 3, "replica": 3, "etcd": 2}
"""Nodes have most to lose, and there are several of them."""
STANDBY: Final = "standby"
PAUSE_MS_MAX: Final = 4_000
PATIENT_RATE: Final = 0.6


class Fault(NamedTuple):
    """A fault of some processes together, after a while. `pause_ms` is 0 for a kill. A patient
    fault waits until all servers are back. Otherwise none would ever work on a slow machine."""

    after_ms: int
    targets: tuple[str, ...]
    is_patient: bool
    pause_ms: int = 0


def role_of(name: str) -> Role:
    """Return the role of a process: the first word of its name. A node that stands by is a node."""
    word = name.partition(" ")[0]
    return "node" if word == STANDBY else next(role for role in ROLES if role == word)


def draw_faults(seed: float, names: Sequence[str], after_ms_mean: float) -> Iterator[Fault]:
    """Draw one fault after another, without end. They depend on this seed alone, not on how often
    clients come back, nor on their own draws."""
    random = Random(seed)
    while True:
        yield _draw_fault(random, names, after_ms_mean)


def _draw_fault(random: Random, names: Sequence[str], after_ms_mean: float) -> Fault:
    """Draw the next fault. Two processes that it hits have any roles."""
    after_ms = int(random.expovariate(1 / after_ms_mean))
    there = {role_of(name) for name in names}
    roles = [role for role in ROLES if role in there]
    role = random.choices(roles, [WEIGHTS[role] for role in roles])[0]
    first = random.choice([name for name in names if role_of(name) == role])
    is_patient = random.random() < PATIENT_RATE
    dice = random.random()
    if dice < 0.15:
        pause_ms = int(PAUSE_MS_MAX ** random.uniform(0.5, 1))
        return Fault(after_ms, (first,), is_patient, pause_ms)
    if dice < 0.4:
        second = random.choice([name for name in names if name != first])
        return Fault(after_ms, (first, second), is_patient)
    return Fault(after_ms, (first,), is_patient)
