"""The faults of a run: how they are drawn, carried out, counted and healed."""

from collections import Counter
from functools import cache
from random import Random
from typing import Any, get_args

import pytest

from dodona.types import TransactionId
from dodona_wire.messages.base import Failure
from dodona_wire.messages.data import Aborted, AskOutcome
from dodona_wire.messages.families import Reply
from simulator.cluster import Cluster
from simulator.disk import DiskOptions
from simulator.drawing import FAULTS_MAX, draw_options
from simulator.faults import (
    LINK_FAULTS,
    ClockOptions,
    DiskFault,
    Fault,
    HostFault,
    LinkFault,
    Options,
)
from simulator.network import NetworkOptions
from simulator.simulation import simulate
from simulator.world import UNIX_US_AT_START, World

KINDS = (*get_args(HostFault), *get_args(DiskFault), *get_args(LinkFault))
SECONDS = 20
DURATION_US = SECONDS * 1_000_000

# What a seed draws


def drawn(seed: int) -> Options:
    return draw_options(Random(seed), DURATION_US)


RUNS = [drawn(seed) for seed in range(300)]


def faults_of(*kinds: str) -> list[Fault]:
    return [fault for run in RUNS for fault in run.faults if fault.kind in kinds]


def test_a_seed_always_draws_the_same() -> None:
    assert drawn(5) == drawn(5)
    assert drawn(5) != drawn(6)


@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_of_fault_is_in_many_runs_and_absent_from_many(kind: str) -> None:
    count = sum(any(fault.kind == kind for fault in run.faults) for run in RUNS)
    # Crashes and the like are drawn for each kind of process by itself.
    assert 0.4 * len(RUNS) < count < 0.95 * len(RUNS)


@pytest.mark.parametrize(
    "rate",
    [
        "network.loss_rate",
        "network.repeat_rate",
        "network.slow_rate",
        "network.reorder_rate",
        "network.late_rate",
        "disk.stall_rate",
        "disk.power_cut_rate",
        "clocks.wall_drift_max",
        "clocks.instant_drift_max",
    ],
)
def test_each_rate_is_zero_in_about_half_of_the_runs(rate: str) -> None:
    part, name = rate.split(".")
    count = sum(getattr(getattr(run, part), name) > 0 for run in RUNS)
    assert 0.4 * len(RUNS) < count < 0.6 * len(RUNS)


def test_faults_come_in_order_and_in_time() -> None:
    for run in RUNS:
        instants = [fault.at_us for fault in run.faults]
        assert instants == sorted(instants)
        assert all(0 <= at_us < DURATION_US for at_us in instants)
        assert len(run.faults) <= FAULTS_MAX


def test_a_longer_run_has_more_faults() -> None:
    longer = [draw_options(Random(seed), 3 * DURATION_US) for seed in range(len(RUNS))]
    count = sum(len(run.faults) for run in RUNS)
    assert 2 * count < sum(len(run.faults) for run in longer) < 4 * count


def test_clocks_of_every_kind_of_process_step_either_way_by_up_to_an_hour() -> None:
    steps = faults_of("clock_step")
    assert {fault.shape for fault in steps} == {"master", "cell", "proxy", "client"}
    assert -3_600_000_000 < min(fault.duration_us for fault in steps) < -600_000_000
    assert 600_000_000 < max(fault.duration_us for fault in steps) < 3_600_000_000


@pytest.mark.parametrize("kind", ["cut", "partition", "clog", "half_open", "unanswered"])
def test_faults_of_links_befall_one_link_a_process_or_groups(kind: str) -> None:
    faults = faults_of(kind)
    assert {fault.shape for fault in faults} == {"link", "process", "group"}
    for fault in faults:
        names = [fault.target, *fault.allies, *fault.others]
        assert len(set(names)) == len(names)
        assert fault.others
        assert len(set(fault.links)) == len(fault.links)


def test_a_cut_can_stop_a_process_from_receiving_or_from_sending() -> None:
    cuts = [fault for fault in faults_of("cut") if fault.shape == "process"]
    for is_heard in (True, False):
        assert sum(bool(fault.allies) == is_heard for fault in cuts) > 20


def test_the_clogs_of_a_swizzle_usually_end_in_another_order_than_they_began() -> None:
    orders = Counter[bool]()
    for run in RUNS:
        swizzled = [fault for fault in run.faults if fault.kind == "swizzle"]
        if len(swizzled) > 2 and len({fault.target for fault in swizzled}) == len(swizzled):
            last_began = swizzled[-1].at_us
            ends = [fault.at_us + fault.duration_us for fault in swizzled]
            assert min(ends) > last_began, "all of them are clogged at one time"
            orders[ends == sorted(ends)] += 1
    assert orders[False] > orders[True]


def test_a_cut_is_one_way_and_a_partition_both_ways() -> None:
    cut = Fault(0, "cut", "a", 1, others=("c",), allies=("b",))
    assert cut.links == [("a", "c"), ("b", "c")]
    partition = Fault(0, "partition", "a", 1, others=("c",), allies=("b",))
    assert partition.links == [("a", "c"), ("b", "c"), ("c", "a"), ("c", "b")]


# What they do: a cluster in which nothing goes wrong but the given


class Bench:
    """A cluster under the given faults, asked through the port of its first client."""

    def __init__(self, *faults: Fault, **changed: Any) -> None:
        values = {name: getattr(drawn(1), name) for name in Options.__dataclass_fields__}
        values |= {
            "cell_count": 2,
            "proxy_count": 1,
            "client_count": 2,
            "call_timeout_us": 1_000_000,
            "master_clock_rate": 1.0,
            "moves_rate": 0.0,
            "network": NetworkOptions(),
            "clocks": ClockOptions(),
            "client_skew_us_max": 0,
            "fault_point_rate": 0.0,
            "faults": faults,
        }
        self.world = World(1)
        self.cluster = Cluster(self.world, Options(**values | changed), [])
        self.cluster.start()
        self.wait(1_000)
        self.cluster.schedule_faults()
        self.replies: list[Reply] = []

    def wait(self, duration_us: int) -> None:
        self.world.run_until(self.world.now_us + duration_us)

    def ask(self, client: int = 0, cell: int = 0) -> None:
        """For an outcome that the cell never heard of; it answers at once."""
        port, address = self.cluster.clients[client].port, self.cluster.nodes[cell].address
        port.call(address, AskOutcome(TransactionId(1 << 40)), self.replies.append)
        self.wait(50_000)

    def is_answered(self, client: int = 0, cell: int = 0) -> bool:
        before = len(self.replies)
        self.ask(client, cell)
        return any(not isinstance(reply, Failure) for reply in self.replies[before:])


def test_without_faults_each_cell_answers_each_client() -> None:
    bench = Bench()
    bench.wait(3_000_000)
    assert all(bench.is_answered(client, cell) for client in (0, 1) for cell in (0, 1))
    assert bench.cluster.fault_counts == {}


@pytest.mark.parametrize("kind", LINK_FAULTS)
def test_a_link_fault_affects_only_its_link_for_its_duration(kind: LinkFault) -> None:
    at_us = 3_000_000
    bench = Bench(Fault(at_us, kind, "client-0", 500_000, ("cell-0",)))
    bench.wait(at_us)
    assert not bench.is_answered(0, 0)
    assert bench.is_answered(1, 0)
    assert bench.is_answered(0, 1)
    bench.wait(500_000)
    assert bench.is_answered(0, 0)
    assert bench.cluster.fault_counts[f"{kind} link"] == 1
    assert bench.cluster.scheduled_counts.total() == 1


@pytest.mark.parametrize("kind", LINK_FAULTS)
def test_faults_of_links_are_over_when_the_cluster_is_healed(kind: LinkFault) -> None:
    fault = Fault(3_000_000, kind, "client-0", 900_000_000, ("cell-0", "cell-1"))
    bench = Bench(fault, Fault(5_000_000, kind, "client-1", 1_000_000, ("cell-1",)))
    bench.wait(4_000_000)
    assert not bench.is_answered(0, 1)
    bench.cluster.heal()
    assert bench.is_answered(0, 1)
    bench.wait(2_000_000)
    assert bench.is_answered(1, 1), "no fault begins any more"
    assert bench.cluster.fault_counts[f"{kind} process"] == 1


def test_a_clog_delays_a_request_and_does_not_lose_the_request() -> None:
    bench = Bench(Fault(3_000_000, "clog", "client-0", 500_000, ("cell-0",)))
    bench.wait(3_000_000)
    assert not bench.is_answered()
    bench.wait(500_000)
    assert [type(reply) for reply in bench.replies] == [Aborted]


def test_a_request_over_a_cut_link_is_lost() -> None:
    bench = Bench(Fault(3_000_000, "cut", "client-0", 500_000, ("cell-0",)))
    bench.wait(3_000_000)
    assert not bench.is_answered()
    bench.wait(2_000_000)
    assert [type(reply) for reply in bench.replies] == [Failure]
    assert bench.cluster.fault_counts["datagram cut off"] == 1


def test_a_partition_separates_groups_and_no_processes_within_a_group() -> None:
    fault = Fault(
        3_000_000, "partition", "client-0", 900_000, ("cell-1", "client-1"), ("cell-0", "master")
    )
    bench = Bench(fault)
    bench.wait(3_000_000)
    assert bench.is_answered(0, 0)
    assert bench.is_answered(1, 1)
    assert not bench.is_answered(0, 1)
    assert not bench.is_answered(1, 0)
    assert bench.cluster.scheduled_counts == {"partition group": 1}


def test_a_crash_is_counted_together_with_its_effect_on_the_disk() -> None:
    bench = Bench(Fault(3_000_000, "crash", "cell-0", 500_000), disk=drawn(1).disk)
    bench.wait(3_000_000)
    node = bench.cluster.nodes[0]
    assert not node.is_up
    bench.wait(500_000)
    assert node.is_up
    counts = bench.cluster.fault_counts
    assert counts["crash cell"] == 1
    assert counts.get("crash with disk kept", 0) + counts.get("crash with unsynced lost", 0) == 1


def test_disk_faults_last_as_long_as_other_faults_also_on_an_empty_disk() -> None:
    wrong = DiskOptions(flush_us_mean=300, stall_rate=0.1, stall_us_max=9, power_cut_rate=0.5)
    bench = Bench(Fault(3_000_000, "absent_disk", "cell-0", 900_000_000), disk=wrong)
    not_stormed = Cluster(World(1), bench.cluster.options, [])
    assert options_of_disks(not_stormed) == {DiskOptions(flush_us_mean=300)}
    assert options_of_disks(bench.cluster) == {wrong}
    bench.wait(4_000_000)
    assert bench.cluster.nodes[0].has_empty_disk
    assert options_of_disks(bench.cluster) == {wrong}
    bench.cluster.heal()
    assert not bench.cluster.nodes[0].has_empty_disk
    assert options_of_disks(bench.cluster) == {DiskOptions(flush_us_mean=300)}


def options_of_disks(cluster: Cluster) -> set[DiskOptions]:
    return {host.disk.options for host in cluster.hosts.values() if host.disk is not None}


def test_a_fault_that_could_not_be_carried_out_is_not_counted() -> None:
    faults = [Fault(3_000_000, "crash", "cell-0", 500_000) for _ in range(3)]
    bench = Bench(*faults, Fault(3_100_000, "pause", "cell-0", 10), Fault(1, "fuse", "proxy-0", 1))
    bench.wait(3_200_000)
    assert bench.cluster.scheduled_counts["crash cell"] == 1
    assert bench.cluster.scheduled_counts["pause cell"] == 0


def test_a_fuse_fault_is_counted_only_after_it_takes_effect() -> None:
    bench = Bench(Fault(40, "fuse", "proxy-0", 100_000), Fault(41, "verdict", "cell-0", 1))
    bench.wait(1_000)
    assert bench.cluster.scheduled_counts.total() == 0
    for _ in range(100):
        bench.cluster.clients[0].oracle.ask(1, lambda _: None)
        bench.wait(10_000)
    assert bench.cluster.scheduled_counts == {"fuse proxy": 1}


def test_a_disk_stalls_or_is_full_for_the_duration_of_the_fault() -> None:
    bench = Bench(
        Fault(1_000, "stall", "master", 2_000_000),
        Fault(1_000, "full_disk", "cell-1", 3_000_000),
    )
    bench.wait(5_000)
    master, node = bench.cluster.master, bench.cluster.nodes[1]
    flush_count = master.disk.flush_count
    bench.wait(1_990_000)
    assert master.disk.flush_count == flush_count
    bench.wait(3_000_000)
    assert master.disk.flush_count > flush_count
    assert node.is_up
    counts = bench.cluster.scheduled_counts
    assert counts == {"stall master": 1, "full_disk cell": 1}


def test_a_disk_is_well_when_the_cluster_is_healed() -> None:
    bench = Bench(
        Fault(1_000, "stall", "master", 900_000_000),
        Fault(1_000, "full_disk", "cell-0", 900_000_000),
        Fault(1_000, "full_disk", "cell-1", 900_000_000),
    )
    bench.wait(5_000_000)
    flush_count = bench.cluster.master.disk.flush_count
    bench.cluster.heal()
    bench.wait(3_000_000)
    assert bench.cluster.master.disk.flush_count > flush_count
    assert bench.is_answered(0, 0)
    assert bench.is_answered(0, 1)
    assert bench.cluster.starting() == []


@pytest.mark.parametrize("name", ["master", "cell-0", "proxy-0", "client-0"])
def test_any_process_s_clock_may_step_and_stays_there(name: str) -> None:
    bench = Bench(Fault(1_000, "clock_step", name, -3_600_000_000))
    bench.wait(2_000)
    bench.cluster.heal()
    bench.wait(98_000)
    unix_us = UNIX_US_AT_START + bench.world.now_us
    for other, process in bench.cluster.processes.items():
        stepped_us = -3_600_000_000 if other == name else 0
        assert process.clock.now().unix_us == unix_us + stepped_us


def test_clocks_drift_until_the_cluster_is_healed() -> None:
    options = ClockOptions(wall_drift_max=0.1, instant_drift_max=0.01)
    bench = Bench(clocks=options, master_clock_rate=0.9, client_count=12)
    clocks = [process.clock for process in bench.cluster.processes.values()]

    def elapsed(duration_us: int) -> list[tuple[int, int]]:
        before = [clock.now() for clock in clocks]
        bench.wait(duration_us)
        after = [clock.now() for clock in clocks]
        return [
            (new.instant_us - old.instant_us, new.unix_us - old.unix_us)
            for old, new in zip(before, after, strict=True)
        ]

    passed = elapsed(1_000_000)
    assert {instant_us for instant_us, _ in passed} == {990_000, 1_000_000, 1_010_000}
    assert {unix_us for _, unix_us in passed} == {900_000, 1_000_000, 1_100_000}
    assert passed[0][1] == 900_000, "the master's"
    counts = bench.cluster.fault_counts
    assert counts["wall clock drifts"] == sum(unix_us != 1_000_000 for _, unix_us in passed)
    assert counts["monotonic clock drifts"] == sum(it != 1_000_000 for it, _ in passed)
    bench.cluster.heal()
    assert set(elapsed(1_000_000)) == {(1_000_000, 1_000_000)}


def test_a_paused_client_is_spared_when_the_cluster_is_healed() -> None:
    bench = Bench(Fault(1_000, "pause", "client-0", 900_000_000))
    bench.wait(2_000)
    assert bench.cluster.clients[0].pause_left_us() > 0
    assert bench.cluster.clients[1].pause_left_us() == 0
    bench.cluster.heal()
    assert bench.cluster.clients[0].pause_left_us() == 0


# Whole runs


@cache
def counts_of(seed: int) -> Counter[str]:
    """What went wrong in one run."""
    result = simulate(seed, SECONDS)
    assert result.violations == [], f"replay: {result.command}"
    scheduled = sum(count for kind, count in result.fault_counts.items() if is_scheduled(kind))
    assert result.scheduled_fault_count == scheduled
    return Counter(result.fault_counts)


@pytest.mark.slow("many seeds")
@pytest.mark.parametrize("first", range(100, 160, 10))
def test_runs_count_what_is_scheduled(first: int) -> None:
    assert all(counts_of(seed) for seed in range(first, first + 10))


@pytest.mark.slow("many seeds")
def test_runs_count_all_that_goes_wrong_by_kind() -> None:
    counts: Counter[str] = Counter()
    for seed in range(100, 160):  # a flush that is lost on its way is rare
        counts += counts_of(seed)
    assert {kind.split()[0] for kind in counts if is_scheduled(kind)} == set(KINDS)
    for kind in (
        "answer lost",
        "crash with disk kept",
        "crash with unsynced lost",
        "datagram clogged",
        "datagram cut off",
        "datagram late",
        "datagram lost",
        "datagram overtaken",
        "datagram repeated",
        "datagram slow",
        "flush lost",
        "flush refused",
        "flush stalled",
        "flush torn",
        "monotonic clock drifts",
        "record lost",
        "request unheard",
        "wall clock drifts",
    ):
        assert counts[kind] > 0, kind


def is_scheduled(kind: str) -> bool:
    """A fault of the schedule is counted by its kind and what it befell."""
    first, _, rest = kind.partition(" ")
    return first in KINDS and " " not in rest


@pytest.mark.slow("long seeds")
def test_the_same_seed_goes_wrong_in_the_same_way() -> None:
    first, second = simulate(6, 10), simulate(6, 10)
    assert first.digest == second.digest
    assert first.fault_counts == second.fault_counts
