"""What goes wrong in a run: drawn from its seed, all of it, before it begins.

Owns: the options of a run (a swarm: each seed has its own rates, many of them zero) and the
schedule of crashes, pauses, cuts and clock steps. When the safety phase is over, all of it ends.
Must not import: any core.
"""

from dataclasses import dataclass, field
from random import Random
from typing import Literal

from dodona._core.context import Acknowledgement
from simulator.disk import DiskOptions
from simulator.network import NetworkOptions

FaultKind = Literal[
    "crash", "fuse", "append", "verdict", "pause", "cut", "clock_step", "takeover", "absent_disk"
]
"""crash: now; fuse, append, verdict: in the middle of its work (see `doom`); pause: stands still;
cut: a link loses everything; clock_step: the wall clock jumps, either way; takeover: another
process takes the master's store over while this one still runs, or pauses; absent_disk: a node is
started with an empty disk, until it has its own again."""
FAULTS_MAX = 1_000
PERIOD_US = 20_000_000
"""Counts of faults are drawn for so long a run, and a longer one has as many more."""


@dataclass(frozen=True, slots=True)
class Fault:
    """At an instant, to a process (for a cut: to a link), for a while."""

    at_us: int
    kind: FaultKind
    target: str
    duration_us: int
    other: str = ""


@dataclass(frozen=True, slots=True)
class Options:
    """Everything that a seed decides about a run but the order of its events.

    Numbers with a fraction are rates of something that goes wrong, and 0.0 is never; where it is
    otherwise, `calm` says at which value nothing goes wrong.
    """

    cell_count: int
    proxy_count: int
    client_count: int
    session_count: int
    call_timeout_us: int
    think_us_mean: int
    patience_ms: int
    """How long a client repeats a call, or asks for an outcome, before its caller is told."""
    acknowledgement: Acknowledgement
    session_life_us_mean: int = field(metadata={"calm": 0})
    """How long a session lives before its caller vanishes; 0: for ever."""
    commit_death_rate: float
    """How often a session's caller vanishes while its transaction commits."""
    transaction_life_s_max: int
    """A short life lets the forget watermark pass over transactions that are still under way."""
    page_rows_max: int
    """How many rows, or keys, a client asks for in one request."""
    is_ceiling_tight: bool
    """Whether the master keeps so little ahead of need that callers often wait for its disk."""
    master_clock_rate: float = field(metadata={"calm": 1.0})
    """How fast the master's wall clock goes; standing still, it leaves all to the ceiling."""
    has_one_question: bool
    """Whether a node has one question to the oracle in flight, as production has, or many."""
    remount_us_mean: int = field(metadata={"calm": 0})
    """How long an operator waits before unmounting and mounting a table again; 0: for ever."""
    moves_rate: float
    """How often a restarted node comes back at another address."""
    network: NetworkOptions
    disk: DiskOptions
    faults: tuple[Fault, ...]
    client_skew_us_max: int = field(metadata={"calm": 0})
    """How far the clients' wall clocks are off, either way. Above a minute some are refused."""
    mischief_rate: float = 0.0
    """How many of the points at which cores may misbehave are active, from 0 to 1."""


def draw_options(random: Random, duration_us: int) -> Options:
    """The swarm: half of the fault kinds are absent from any one run."""
    cell_count = random.choice((2, 3, 3, 4))
    proxy_count = random.choice((1, 2))
    client_count = random.choice((2, 3))
    cells = [f"cell-{index}" for index in range(cell_count)]
    proxies = [f"proxy-{index}" for index in range(proxy_count)]
    clients = [f"client-{index}" for index in range(client_count)]
    return Options(
        cell_count=cell_count,
        proxy_count=proxy_count,
        client_count=client_count,
        session_count=random.choice((4, 6, 10)),
        call_timeout_us=random.choice((50_000, 200_000, 1_000_000, 5_000_000)),
        think_us_mean=random.choice((20_000, 40_000, 100_000)),
        patience_ms=random.choice((1, 5, 30, 200, 10_000)),
        acknowledgement=random.choice(("decided", "prepared")),
        session_life_us_mean=random.choice((0, 2_000_000, 8_000_000)),
        commit_death_rate=random.choice((0.0, 0.02, 0.1)),
        transaction_life_s_max=random.choice((60, 60, 3)),
        page_rows_max=random.choice((2, 5, 10_000)),
        is_ceiling_tight=random.random() < 0.4,
        master_clock_rate=random.choice((1.0, 1.0, 1.0, 0.0, 2.0)),
        has_one_question=random.random() < 0.5,
        remount_us_mean=random.choice((0, 0, 2_000_000, 5_000_000)),
        moves_rate=random.choice((0.0, 0.3)),
        network=_draw_network(random),
        disk=_draw_disk(random),
        faults=_draw_faults(random, duration_us, cells, proxies, clients),
        mischief_rate=random.choice((0.0, 0.15, 0.35)),
        client_skew_us_max=random.choice((0, 5_000, 2_000_000, 30_000_000, 120_000_000)),
    )


def _draw_network(random: Random) -> NetworkOptions:
    return NetworkOptions(
        loss_rate=_maybe(random, (0.001, 0.01, 0.05)),
        repeat_rate=_maybe(random, (0.01, 0.1, 0.3)),
        slow_rate=_maybe(random, (0.005, 0.03, 0.15)),
        late_rate=_maybe(random, (0.3, 0.9)),
        delay_us_mean=random.choice((100, 300, 2_000)),
        slow_us_max=random.choice((20_000, 500_000, 4_000_000, 4_000_000)),
    )


def _draw_disk(random: Random) -> DiskOptions:
    return DiskOptions(
        flush_us_mean=random.choice((200, 1_000, 8_000)),
        stall_rate=_maybe(random, (0.001, 0.02)),
        stall_us_max=random.choice((100_000, 1_500_000)),
    )


def _maybe(random: Random, rates: tuple[float, ...]) -> float:
    """One of the rates, or none at all."""
    return random.choice(rates) if random.random() < 0.5 else 0.0


def _draw_faults(
    random: Random, duration_us: int, cells: list[str], proxies: list[str], clients: list[str]
) -> tuple[Fault, ...]:
    faults: list[Fault] = []
    for target in cells:
        faults += _draw_times(random, duration_us, "crash", target, (0, 0, 2, 4), 3_000_000)
        faults += _draw_times(random, duration_us, "fuse", target, (0, 0, 4), 1_000_000)
        faults += _draw_times(random, duration_us, "append", target, (0, 0, 4), 1_000_000)
        faults += _draw_times(random, duration_us, "verdict", target, (0, 0, 4), 1_000_000)
    for target in proxies:
        faults += _draw_times(random, duration_us, "crash", target, (0, 0, 0, 3), 2_000_000)
    faults += _draw_times(random, duration_us, "crash", "master", (0, 0, 2, 4), 2_000_000)
    faults += _draw_times(random, duration_us, "fuse", "master", (0, 0, 3), 1_000_000)
    faults += _draw_times(random, duration_us, "append", "master", (0, 0, 4), 1_000_000)
    faults += _draw_times(random, duration_us, "takeover", "master", (0, 0, 0, 2, 5), 4_000_000)
    for target in cells:
        faults += _draw_times(
            random, duration_us, "absent_disk", target, (0, 0, 0, 0, 2), 5_000_000
        )
    for target in ["master", *cells]:
        faults += _draw_times(random, duration_us, "pause", target, (0, 0, 0, 3), 3_000_000)
    if random.random() < 0.4:
        faults += _draw_cuts(random, duration_us, ["master", *cells, *proxies, *clients])
    if random.random() < 0.3:
        faults += _draw_times(random, duration_us, "clock_step", "master", (2, 6), 3_600_000_000)
    return tuple(sorted(faults, key=lambda fault: (fault.at_us, fault.target))[:FAULTS_MAX])


def _draw_times(
    random: Random,
    duration_us: int,
    kind: FaultKind,
    target: str,
    counts: tuple[int, ...],
    length_us_max: int,
) -> list[Fault]:
    """A clock step may go back: its length is drawn from both sides of zero."""
    faults = []
    for _ in range(random.choice(counts) * _period_count(duration_us)):
        length_us = int(length_us_max ** random.random() ** 0.3)
        if kind == "clock_step" and random.random() < 0.5:
            length_us = -length_us
        faults.append(Fault(random.randrange(duration_us), kind, target, length_us))
    return faults


def _period_count(duration_us: int) -> int:
    return max(1, duration_us // PERIOD_US)


def _draw_cuts(random: Random, duration_us: int, names: list[str]) -> list[Fault]:
    faults = []
    for _ in range(random.choice((3, 10)) * _period_count(duration_us)):
        source, target = random.sample(names, 2)
        at_us, length_us = random.randrange(duration_us), random.randrange(3_000_000)
        faults.append(Fault(at_us, "cut", source, length_us, target))
        if random.random() < 0.5:  # both ways
            faults.append(Fault(at_us, "cut", target, length_us, source))
    return faults
