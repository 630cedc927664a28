"""What a seed draws: the size of its cluster, its rates, and the faults of its schedule.

Owns: how often each kind of fault happens. A swarm: each kind is absent from about half of the
runs, so that it can't hide what another one shows. Each kind has dice of its own: how one is drawn
does not shift the others. Must not import: any core.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Final

from simulator.disk import DiskOptions
from simulator.faults import ClockOptions, DiskFault, Fault, HostFault, LinkFault, Options
from simulator.network import NetworkOptions

FAULTS_MAX: Final = 200
MINUTE_US: Final = 60_000_000
SECOND_US: Final = 1_000_000
HOUR_US: Final = 3_600 * SECOND_US


@dataclass(frozen=True, slots=True)
class _Cast:
    """Who there is in a run, by name, and how long it takes."""

    cells: tuple[str, ...]
    proxies: tuple[str, ...]
    clients: tuple[str, ...]
    duration_us: int

    @property
    def stores(self) -> tuple[str, ...]:
        """Whoever has a disk. The master counts twice: there is only one."""
        return ("master", "master", *self.cells)

    @property
    def servers(self) -> tuple[str, ...]:
        return (*self.stores, *self.proxies)

    @property
    def everybody(self) -> tuple[str, ...]:
        return ("master", *self.cells, *self.proxies, *self.clients)

    def all_but(self, target: str) -> tuple[str, ...]:
        return tuple(name for name in self.everybody if name != target)


def draw_options(random: Random, duration_us: int) -> Options:
    """Everything about a run that is known before it begins."""
    cell_count = random.choice((2, 3, 3, 4))
    proxy_count = random.choice((1, 2))
    client_count = random.choice((2, 3))
    cast = _Cast(
        tuple(f"cell-{index}" for index in range(cell_count)),
        tuple(f"proxy-{index}" for index in range(proxy_count)),
        tuple(f"client-{index}" for index in range(client_count)),
        duration_us,
    )
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
        master_clock_rate=random.choice((1.0, 1.0, 1.0, 0.0, 0.9, 1.1, 2.0)),
        has_one_question=random.random() < 0.5,
        remount_us_mean=random.choice((0, 0, 2_000_000, 5_000_000)),
        moves_rate=random.choice((0.0, 0.3)),
        network=_draw_network(_dice_of_its_own(random)),
        disk=_draw_disk(_dice_of_its_own(random)),
        clocks=_draw_clocks(_dice_of_its_own(random)),
        faults=_draw_faults(random, cast),
        client_skew_us_max=random.choice((0, 5_000, 2_000_000, 30_000_000, 120_000_000)),
        fault_point_rate=random.choice((0.0, 0.15, 0.35)),
        memory_bytes_max=random.choice((0, 20_000, 60_000)),
    )


def _dice_of_its_own(random: Random) -> Random:
    return Random(random.getrandbits(64))


def _draw_network(random: Random) -> NetworkOptions:
    return NetworkOptions(
        loss_rate=_maybe(random, (0.001, 0.01, 0.05)),
        repeat_rate=_maybe(random, (0.01, 0.1, 0.3)),
        slow_rate=_maybe(random, (0.005, 0.03, 0.15)),
        reorder_rate=_maybe(random, (0.1, 1.0)),
        late_rate=_maybe(random, (0.3, 0.9)),
        delay_us_mean=random.choice((100, 300, 2_000)),
        slow_us_max=random.choice((20_000, 500_000, 4_000_000, 4_000_000)),
    )


def _draw_disk(random: Random) -> DiskOptions:
    return DiskOptions(
        flush_us_mean=random.choice((200, 1_000, 8_000)),
        stall_rate=_maybe(random, (0.001, 0.02)),
        stall_us_max=random.choice((100_000, 1_500_000, 10_000_000)),
        power_cut_rate=_maybe(random, (0.5, 1.0)),
    )


def _draw_clocks(random: Random) -> ClockOptions:
    return ClockOptions(
        wall_drift_max=_maybe(random, (0.01, 0.1)),
        instant_drift_max=_maybe(random, (0.001, 0.01)),
    )


def _maybe(random: Random, rates: tuple[float, ...]) -> float:
    """One of the rates, or none at all."""
    return random.choice(rates) if random.random() < 0.5 else 0.0


# The schedule

_Draw = Callable[[Random, _Cast], list[Fault]]


def _draw_faults(random: Random, cast: _Cast) -> tuple[Fault, ...]:
    """In order. Whoever draws for a kind is not asked at all in about half of the runs."""
    draws: tuple[_Draw, ...] = (
        _to_hosts("crash", cast.cells, (6, 15), 3 * SECOND_US),
        _to_hosts("crash", cast.proxies, (3, 8), 2 * SECOND_US),
        _to_hosts("crash", ("master",), (5, 10), 2 * SECOND_US),
        _to_hosts("fuse", cast.servers, (8, 15), 1 * SECOND_US),
        _to_hosts("append", cast.stores, (8, 15), 1 * SECOND_US),
        _to_hosts("verdict", cast.cells, (8, 15), 1 * SECOND_US),
        _to_hosts("pause", cast.everybody, (4, 12), 8 * SECOND_US),
        _to_hosts("stall", cast.stores, (3, 8), 12 * SECOND_US),
        _to_hosts("full_disk", cast.stores, (2, 6), 5 * SECOND_US),
        _draw_clock_steps,
        _to_links("cut", (4, 12)),
        _to_links("partition", (4, 12)),
        _to_links("clog", (4, 12)),
        _to_links("half_open", (4, 12)),
        _to_links("unanswered", (4, 12)),
        _draw_swizzles,
        _to_hosts("takeover", ("master",), (3, 8), 4 * SECOND_US),
        _to_hosts("absent_disk", cast.cells, (2, 5), 5 * SECOND_US),
    )
    faults: list[Fault] = []
    for draw in draws:
        dice = _dice_of_its_own(random)
        if dice.random() < 0.5:
            faults += draw(dice, cast)
    kept = faults if len(faults) <= FAULTS_MAX else random.sample(faults, FAULTS_MAX)
    return tuple(sorted(kept, key=lambda fault: (fault.at_us, fault.target)))


def _instants(random: Random, cast: _Cast, per_minute: tuple[int, ...]) -> list[int]:
    """When something happens so often: at least once."""
    count = max(1, round(random.choice(per_minute) * cast.duration_us / MINUTE_US))
    return [random.randrange(cast.duration_us) for _ in range(count)]


def _length_us(random: Random, length_us_max: int) -> int:
    """Short ones are as likely as long ones: down to a ten-thousandth."""
    return int(length_us_max * 10 ** (-4 * random.random()))


def _to_hosts(
    kind: HostFault | DiskFault,
    targets: Sequence[str],
    per_minute: tuple[int, ...],
    length_us_max: int,
) -> _Draw:
    def draw(random: Random, cast: _Cast) -> list[Fault]:
        return [
            Fault(at_us, kind, random.choice(targets), _length_us(random, length_us_max))
            for at_us in _instants(random, cast, per_minute)
        ]

    return draw


def _draw_clock_steps(random: Random, cast: _Cast) -> list[Fault]:
    """Of any process, but often the master's: the others' matter less. From microseconds to an
    hour, either way."""
    faults = []
    for at_us in _instants(random, cast, (3, 10)):
        target = "master" if random.random() < 0.4 else random.choice(cast.everybody)
        length_us = int(HOUR_US ** random.random()) * random.choice((-1, 1))
        faults.append(Fault(at_us, "clock_step", target, length_us))
    return faults


def _to_links(kind: LinkFault, per_minute: tuple[int, ...]) -> _Draw:
    """To one link, to one process and everybody else, or between two groups."""

    def draw(random: Random, cast: _Cast) -> list[Fault]:
        faults = []
        for at_us in _instants(random, cast, per_minute):
            target, *others = random.sample(cast.everybody, len(cast.everybody))
            allies: list[str] = []
            shape = random.choice(("link", "link", "process", "group"))
            if shape == "link":
                others = [other for other in others if _do_talk(target, other)][:1]
            elif shape == "group":
                count = random.randrange(1, len(others))
                allies, others = others[:count], others[count:]
            elif random.random() < 0.5:  # a cut that it can't hear through, but speak
                target, allies, others = others[0], others[1:], [target]
            length_us = _length_us(random, 10 * SECOND_US)
            faults.append(Fault(at_us, kind, target, length_us, tuple(others), tuple(allies)))
        return faults

    return draw


def _do_talk(one: str, other: str) -> bool:
    """Whether there is ever a connection between two such processes."""
    kinds = sorted(name.partition("-")[0] for name in (one, other))
    return kinds not in (["cell", "proxy"], ["client", "client"], ["proxy", "proxy"])


def _draw_swizzles(random: Random, cast: _Cast) -> list[Fault]:
    """About half of the processes are clogged one after the other, and let go in another order."""
    faults = []
    for at_us in _instants(random, cast, (1, 3)):
        targets = [target for target in cast.everybody if random.random() < 0.5]
        gap_us = _length_us(random, 2 * SECOND_US)
        begins_us = [at_us + gap_us * index for index in range(len(targets))]
        places = random.sample(range(len(targets)), len(targets))
        ends_us = [at_us + gap_us * (len(targets) + place) for place in places]
        faults += [
            Fault(begin_us, "swizzle", target, until_us - begin_us, cast.all_but(target))
            for target, begin_us, until_us in zip(targets, begins_us, ends_us, strict=True)
            if begin_us < cast.duration_us
        ]
    return faults
