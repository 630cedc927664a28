"""The disk of the simulator: what a crash leaves, and how a disk is slow or full."""

from collections import Counter

import pytest

from simulator.disk import Disk, DiskOptions
from simulator.world import World


class Owner:
    """A process with a disk, which counts what it is told."""

    def __init__(self, seed: int = 1, options: DiskOptions | None = None) -> None:
        self.world = World(seed)
        self.disk = Disk(self.world, "d", options or DiskOptions(flush_us_mean=1_000))
        self.durable_counts: list[int] = []
        self.refusal_count = 0
        self.start()

    def start(self) -> None:
        self.disk.open(self.durable_counts.append, self._end)

    def append(self, *records: str) -> None:
        for record in records:
            self.disk.append(record)

    def wait(self, duration_us: int = 1_000_000) -> None:
        self.world.run_until(self.world.now_us + duration_us)

    def _end(self) -> None:
        self.refusal_count += 1
        self.disk.crash()


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


def found_after_a_crash(power_cut_rate: float) -> tuple[set[str], Counter[str]]:
    """What forty restarts find where b and c were being flushed and d waited, and the counts."""
    found, counts = set(), Counter[str]()
    for seed in range(40):
        owner = Owner(seed, DiskOptions(flush_us_mean=1_000, power_cut_rate=power_cut_rate))
        owner.append("a")
        owner.wait()
        owner.append("b", "c")
        owner.wait(10)
        owner.append("d")
        owner.disk.crash()
        found.add("".join(owner.disk.records))
        owner.wait()
        assert owner.durable_counts == [1], "a dead process is told nothing"
        counts += owner.disk.fault_counts
    return found, counts


def test_a_process_crash_leaves_all_or_nothing_of_the_last_flush() -> None:
    found, counts = found_after_a_crash(power_cut_rate=0.0)
    assert found == {"a", "abc"}
    assert counts["crash with disk kept"] == 40
    assert counts["crash with unsynced lost"] == counts["flush lost"] == 0
    kept_count = 40 - counts["flush torn"]
    assert 10 < kept_count < 30
    assert counts["record lost"] == 40 * 3 - 2 * kept_count


def test_a_power_cut_takes_all_that_was_not_synced() -> None:
    found, counts = found_after_a_crash(power_cut_rate=1.0)
    assert found == {"a"}
    assert counts["crash with unsynced lost"] == 40
    assert counts["flush torn"] + counts["flush lost"] == 40
    assert min(counts["flush torn"], counts["flush lost"]) > 10
    assert counts["record lost"] == 40 * 3


def test_a_torn_flush_that_stays_on_the_disk_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The storage engine's promise is what makes it nothing: without it, this is what was there."""
    monkeypatch.setattr("simulator.disk.found_of_torn", lambda written: written)
    assert found_after_a_crash(power_cut_rate=1.0)[0] == {"a", "ab"}


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


# A slow disk


def test_a_disk_that_stalls_ends_no_flush_before_the_stall_is_over() -> None:
    owner = Owner()
    owner.append("a")
    owner.disk.stall(5_000_000)
    owner.wait(4_999_999)
    assert owner.disk.records == []
    owner.wait(1)
    assert owner.disk.records == ["a"]
    assert owner.disk.fault_counts["flush stalled"] == 1
    owner.append("b")
    owner.wait()
    assert owner.durable_counts == [1, 1]


def test_a_calm_disk_ends_a_stall_and_does_no_flush_twice() -> None:
    owner = Owner(options=DiskOptions(1_000, stall_rate=1.0, stall_us_max=60_000_000))
    owner.disk.stall(50_000_000)
    owner.append("a")
    owner.wait()
    assert owner.disk.records == []
    owner.disk.calm()
    owner.wait()
    owner.append("b")
    owner.wait(100_000_000)
    assert owner.disk.records == ["a", "b"]
    assert owner.durable_counts == [1, 1]


# A full disk


def test_a_full_disk_refuses_a_flush_and_ends_the_process() -> None:
    owner = Owner()
    owner.append("a")
    owner.wait()
    owner.disk.fill(3_000_000)
    owner.append("b")
    owner.wait(1)
    owner.append("c")
    owner.wait()
    assert owner.refusal_count == 1
    assert owner.disk.records == ["a"], "nothing of the refused flush, nor of what waited behind it"
    assert owner.durable_counts == [1]
    assert owner.disk.fault_counts["flush refused"] == 1
    assert owner.disk.fault_counts["record lost"] == 2
    assert "crash with disk kept" not in owner.disk.fault_counts, "it ended by itself"


def test_a_full_disk_also_refuses_the_next_process_until_space_is_free() -> None:
    owner = Owner()
    owner.disk.fill(3_000_000)
    for _ in range(2):
        owner.append("a")
        owner.wait()
        owner.start()
    owner.wait()
    owner.append("b")
    owner.wait()
    assert owner.refusal_count == 2
    assert owner.disk.records == ["b"]


def test_a_calm_disk_has_room() -> None:
    owner = Owner()
    owner.disk.fill(3_000_000)
    owner.append("a")
    owner.disk.calm()
    owner.wait()
    assert owner.disk.records == ["a"]
    assert owner.refusal_count == 0
