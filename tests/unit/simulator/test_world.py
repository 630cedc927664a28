"""Virtual time, dice, disk and network of the simulator."""

from simulator.disk import Disk, DiskOptions
from simulator.network import Network, NetworkOptions
from simulator.world import UNIX_US_AT_START, Clock, World

# Time and dice


def test_events_run_in_the_order_of_their_instants_and_of_their_making() -> None:
    world, seen = World(1), list[tuple[str, int]]()

    def see(name: str) -> None:
        seen.append((name, world.now_us))

    world.after(20, lambda: see("late"))
    world.after(10, lambda: see("first"))
    world.after(10, lambda: see("second"))
    world.after(10, lambda: world.after(0, lambda: see("third")))
    world.run_until(15)
    assert seen == [("first", 10), ("second", 10), ("third", 10)]
    assert world.now_us == 15
    world.run_until(20)
    assert seen[-1] == ("late", 20)


def test_streams_depend_on_seed_and_name_only() -> None:
    world = World(1)
    before = World(1).stream("b").random()
    world.stream("a").random()
    assert world.stream("b").random() == before
    assert world.stream("a").random() != before
    assert World(2).stream("b").random() != before


def test_a_clock_steps_its_wall_time_only() -> None:
    world = World(1)
    clock = Clock(world, instant_base_us=1_000)
    world.run_until(5)
    assert clock.now() == (1_005, UNIX_US_AT_START + 5)
    clock.step(-100)
    assert clock.now() == (1_005, UNIX_US_AT_START - 95)
    assert clock.delay_until(1_010) == 5
    assert clock.delay_until(3) == 0
    clock.restart(7)
    assert clock.now().instant_us == 12


def test_a_wall_clock_may_stand_still_or_hurry() -> None:
    world = World(1)
    clock = Clock(world, instant_base_us=0)
    world.run_until(10)
    clock.set_rate(0.0)
    world.run_until(30)
    assert clock.now() == (30, UNIX_US_AT_START + 10)
    clock.set_rate(2.0)
    world.run_until(35)
    assert clock.now() == (35, UNIX_US_AT_START + 20)
    clock.step(-5)
    clock.set_rate(1.0)
    world.run_until(36)
    assert clock.now().unix_us == UNIX_US_AT_START + 16


# Network


def deliveries(options: NetworkOptions, seed: int = 1, count: int = 400) -> list[tuple[int, bytes]]:
    """(instant, payload) of everything that arrives of what is sent at once."""
    world, arrived = World(seed), list[tuple[int, bytes]]()
    network = Network(world, options.delay_us_mean)
    network.storm(options)

    def deliver(source: str, target: str, payload: bytes) -> None:
        assert (source, target) == ("a", "b")
        arrived.append((world.now_us, payload))

    for index in range(count):
        network.send("a", "b", b"%d" % index, deliver)
    world.run_until(60_000_000)
    return arrived


def test_a_calm_network_delivers_everything_once_but_reorders() -> None:
    arrived = deliveries(NetworkOptions())
    payloads = [int(payload) for _, payload in arrived]
    assert sorted(payloads) == list(range(400))
    assert payloads != sorted(payloads)
    assert all(at_us > 0 for at_us, _ in arrived)


def test_rates_are_about_what_they_say() -> None:
    assert 150 < len(deliveries(NetworkOptions(loss_rate=0.5))) < 250
    assert 550 < len(deliveries(NetworkOptions(repeat_rate=0.5))) < 650
    slow = deliveries(NetworkOptions(slow_rate=0.5, slow_us_max=4_000_000))
    assert 150 < sum(at_us > 10_000 for at_us, _ in slow) < 250


def test_equal_seeds_deliver_equally() -> None:
    options = NetworkOptions(loss_rate=0.1, repeat_rate=0.1, slow_rate=0.1, slow_us_max=1_000)
    assert deliveries(options) == deliveries(options)
    assert deliveries(options) != deliveries(options, seed=2)


def test_a_cut_link_loses_everything_in_one_direction_until_it_is_mended() -> None:
    world, arrived = World(1), list[str]()
    network = Network(world, 300)
    network.cut("a", "b")

    def deliver(source: str, target: str, _: bytes) -> None:
        arrived.append(source + target)

    network.send("a", "b", b"", deliver)
    network.send("b", "a", b"", deliver)
    network.mend("a", "b")
    network.send("a", "b", b"", deliver)
    network.cut("a", "b")
    network.calm()
    network.send("a", "b", b"", deliver)
    world.run_until(1_000_000)
    assert sorted(arrived) == ["ab", "ab", "ba"]


# Disk


class Owner:
    """A process with a disk, which counts what it is told."""

    def __init__(self, seed: int = 1) -> None:
        self.world = World(seed)
        self.disk = Disk(self.world, "d", DiskOptions(flush_us_mean=1_000))
        self.durable_counts: list[int] = []
        self.disk.open(self.durable_counts.append)

    def append(self, *records: str) -> None:
        for record in records:
            self.disk.append(record)


def test_records_become_durable_in_order_and_in_groups() -> None:
    owner = Owner()
    owner.append("a", "b")  # at one instant: one flush
    owner.world.run_until(10)
    owner.append("c")
    owner.append("d")
    assert owner.disk.records == []
    owner.world.run_until(1_000_000)
    assert owner.disk.records == ["a", "b", "c", "d"]
    assert owner.durable_counts == [2, 2]
    assert owner.disk.flush_count == 2


def test_a_crash_keeps_finished_flushes_and_all_or_nothing_of_the_last() -> None:
    found = set()
    for seed in range(40):
        owner = Owner(seed)
        owner.append("a")
        owner.world.run_until(1_000_000)
        owner.append("b", "c")
        owner.world.run_until(owner.world.now_us + 10)
        owner.append("d")
        owner.disk.crash()
        found.add("".join(owner.disk.records))
        owner.world.run_until(3_000_000)
        assert owner.durable_counts == [1], "a dead process is told nothing"
    assert found == {"a", "abc"}


def test_a_disk_serves_the_next_process() -> None:
    owner = Owner()
    owner.append("a")
    owner.disk.crash()
    owner.disk.open(owner.durable_counts.append)
    owner.append("b")
    owner.world.run_until(1_000_000)
    assert owner.disk.records[-1] == "b"
    assert owner.durable_counts == [1]


def test_a_stall_delays_a_flush() -> None:
    world = World(1)
    disk = Disk(world, "d", DiskOptions(flush_us_mean=100, stall_rate=1.0, stall_us_max=1_000_000))
    disk.open(lambda _: None)
    disk.append("a")
    world.run_until(20_000)
    assert disk.records == []
    disk.calm()
    world.run_until(2_000_000)
    assert disk.records == ["a"]
