"""A disk that keeps the one law: durable is what a finished flush wrote, and nothing else.

Owns: group commit (records appended during a flush are the next one), what a crash leaves, and how
a disk is slow or full. A crash leaves all finished flushes, and of the one under way everything or
nothing, as the storage engine's transactions do. An append that a full disk refuses ends its
process, as in production: what the file holds is found out by a restart. Must not import: any core.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from simulator.world import World


@dataclass(frozen=True, slots=True)
class DiskOptions:
    """A flush takes about `flush_us_mean`; some stall for up to `stall_us_max` more."""

    flush_us_mean: int = 800
    stall_rate: float = 0.0
    stall_us_max: int = 0
    power_cut_rate: float = 0.0
    """Of crashes: they take what was not synced. In all others the process dies alone, and what it
    had written stays."""

    @property
    def calm(self) -> "DiskOptions":
        """As quick a disk, and nothing goes wrong."""
        return DiskOptions(self.flush_us_mean)


class Disk:
    """One process's log. `records` is what a restart finds, `options` the rates that hold now."""

    def __init__(self, world: World, name: str, options: DiskOptions) -> None:
        self._world = world
        self._random = world.stream(f"disk/{name}")
        self.options = options
        self._gathering: list[Any] = []
        self._in_flight: list[Any] = []
        self._flush_number = 0
        self._stalled_until_us = 0
        self._full_until_us = 0
        self._on_durable: Callable[[int], None] | None = None
        self._on_refusal: Callable[[], None] | None = None
        self.records: list[Any] = []
        self.files: dict[int, Any] = {}
        """Durable files beside the log, by number; None for one that a crash left half written."""
        self.flush_count = 0
        self.fault_counts: Counter[str] = Counter()

    def open(
        self, on_durable: Callable[[int], None], on_refusal: Callable[[], None] | None = None
    ) -> None:
        """A process takes the disk; it is told how many more records are durable, or that it must
        end since some can't be."""
        self._on_durable = on_durable
        self._on_refusal = on_refusal

    def stall(self, duration_us: int) -> None:
        """No flush ends before that time is over."""
        self._stalled_until_us = max(self._stalled_until_us, self._world.now_us + duration_us)

    def fill(self, duration_us: int) -> None:
        """There is no room for a while: every flush is refused."""
        self._full_until_us = max(self._full_until_us, self._world.now_us + duration_us)

    def storm(self, options: DiskOptions) -> None:
        """From now on these rates hold."""
        self.options = options

    def calm(self) -> None:
        """No more stalls, and room for everything. A flush that stalls ends soon."""
        self.options = self.options.calm
        self._stalled_until_us = self._full_until_us = self._world.now_us
        if self._in_flight:
            self._finish_later(self.options.flush_us_mean)

    @property
    def is_full(self) -> bool:
        return self._world.now_us < self._full_until_us

    def file_duration_us(self) -> int:
        """How long it takes from now to make a file durable."""
        stalled_us = max(self._stalled_until_us - self._world.now_us, 0)
        spent_us = int(self._random.expovariate(1 / (4 * self.options.flush_us_mean)))
        return stalled_us + 200 + spent_us

    def leave_unfinished(self, number: int) -> None:
        """A process ends while it writes a file: some of it may be there."""
        if number not in self.files and self._random.random() < 0.5:
            self.fault_counts["file torn"] += 1
            self.files[number] = None

    def truncate(self, is_first: Callable[[Any], bool]) -> None:
        """Forget the records before this one, if it is there."""
        for place, record in enumerate(self.records):
            if is_first(record):
                del self.records[:place]
                return

    def append(self, record: Any) -> None:
        self._gathering.append(record)
        if not self._in_flight:
            self._flush()

    def crash(self) -> None:
        """The process is gone, and with it what its memory gathered for the next flush."""
        if self._on_durable is None:
            return  # it has ended already, by a refusal
        is_power_cut = self._random.random() < self.options.power_cut_rate
        what_stays = "unsynced lost" if is_power_cut else "disk kept"
        self.fault_counts[f"crash with {what_stays}"] += 1
        if self._in_flight:
            self._end_in_flight(is_power_cut)
        self._let_go()

    def _end_in_flight(self, is_power_cut: bool) -> None:
        records, self._in_flight = self._in_flight, []
        if self._random.random() < 0.5:
            self.fault_counts["flush torn"] += 1
            found = found_of_torn(records[: len(records) // 2])
        elif is_power_cut:
            self.fault_counts["flush lost"] += 1
            found = []
        else:
            found = records
        self.records.extend(found)
        self.fault_counts["record lost"] += len(records) - len(found)

    def _let_go(self) -> None:
        self.fault_counts["record lost"] += len(self._in_flight) + len(self._gathering)
        self._in_flight, self._gathering = [], []
        self._on_durable = self._on_refusal = None
        self._flush_number += 1

    def detach(self) -> int:
        """As a crash, for the process; it goes on. → how many records were written nevertheless."""
        count = len(self.records)
        self.crash()
        return len(self.records) - count

    def _flush(self) -> None:
        self._in_flight, self._gathering = self._gathering, []
        self._flush_number += 1
        options, random = self.options, self._random
        duration_us = 50 + int(random.expovariate(1 / options.flush_us_mean))
        if random.random() < options.stall_rate:
            self.fault_counts["flush stalled"] += 1
            duration_us += random.randrange(1 + options.stall_us_max)
        number = self._flush_number
        # A record appended at this very instant comes along: the flush begins behind this event.
        self._world.after(0, lambda: self._join(number))
        self._finish_later(duration_us)

    def _join(self, number: int) -> None:
        if number == self._flush_number:
            self._in_flight.extend(self._gathering)
            self._gathering = []

    def _finish_later(self, delay_us: int) -> None:
        number = self._flush_number
        self._world.after(delay_us, lambda: self._finish(number))

    def _finish(self, number: int) -> None:
        now_us = self._world.now_us
        if number != self._flush_number or not self._in_flight:
            return
        if now_us < self._stalled_until_us:
            self.fault_counts["flush stalled"] += 1
            self._finish_later(self._stalled_until_us - now_us)
        elif now_us < self._full_until_us:
            self._refuse()
        else:
            self._succeed()

    def _refuse(self) -> None:
        """The engine takes back what it had begun to write: nothing of the flush is there."""
        assert self._on_refusal is not None, "a disk is full, and nobody ends of it"
        on_refusal = self._on_refusal
        self.fault_counts["flush refused"] += 1
        self._let_go()
        on_refusal()

    def _succeed(self) -> None:
        finished, self._in_flight = self._in_flight, []
        self.records.extend(finished)
        self.flush_count += 1
        assert self._on_durable is not None, "a flush ended for nobody"
        self._on_durable(len(finished))
        if self._gathering and not self._in_flight:
            self._flush()


def found_of_torn(_: list[Any]) -> list[Any]:
    """What a restart finds of a flush of which this much was written: nothing. The engine writes
    last what makes a transaction part of the file."""
    return []
