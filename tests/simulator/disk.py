"""A disk that keeps the one law: durable is what a finished flush wrote, and nothing else.

Owns: group commit (records appended during a flush are the next one) and what a crash leaves: all
finished flushes, and of the one under way everything or nothing, as the storage engine's
transactions do. Must not import: any core.
"""

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


class Disk:
    """One process's log. `records` is what a restart finds."""

    def __init__(self, world: World, name: str, options: DiskOptions) -> None:
        self._world = world
        self._random = world.stream(f"disk/{name}")
        self._options = options
        self._gathering: list[Any] = []
        self._in_flight: list[Any] = []
        self._epoch = 0
        self._on_durable: Callable[[int], None] | None = None
        self.records: list[Any] = []
        self.flush_count = 0
        self.lost_count = 0

    def open(self, on_durable: Callable[[int], None]) -> None:
        """A process takes the disk; it is told how many more records are durable."""
        self._on_durable = on_durable

    def calm(self) -> None:
        """No more stalls."""
        self._options = DiskOptions(flush_us_mean=self._options.flush_us_mean)

    def append(self, record: Any) -> None:
        self._gathering.append(record)
        if not self._in_flight:
            self._flush()

    def crash(self) -> None:
        """The process is gone: of the flush under way all was written, or nothing."""
        if self._random.random() < 0.5:
            self.records.extend(self._in_flight)
        else:
            self.lost_count += len(self._in_flight)
        self.lost_count += len(self._gathering)
        self._in_flight, self._gathering = [], []
        self._on_durable = None
        self._epoch += 1

    def detach(self) -> int:
        """As a crash, for the process; it goes on. → how many records were written nevertheless."""
        count = len(self.records)
        self.crash()
        return len(self.records) - count

    def _flush(self) -> None:
        self._in_flight, self._gathering = self._gathering, []
        options, random = self._options, self._random
        duration_us = 50 + int(random.expovariate(1 / options.flush_us_mean))
        if random.random() < options.stall_rate:
            duration_us += random.randrange(1 + options.stall_us_max)
        epoch = self._epoch
        # A record appended at this very instant comes along: the flush begins behind this event.
        self._world.after(0, lambda: self._join(epoch))
        self._world.after(duration_us, lambda: self._finish(epoch))

    def _join(self, epoch: int) -> None:
        if epoch == self._epoch:
            self._in_flight.extend(self._gathering)
            self._gathering = []

    def _finish(self, epoch: int) -> None:
        if epoch != self._epoch:
            return
        finished, self._in_flight = self._in_flight, []
        self.records.extend(finished)
        self.flush_count += 1
        assert self._on_durable is not None, "a flush ended for nobody"
        self._on_durable(len(finished))
        if self._gathering and not self._in_flight:
            self._flush()
