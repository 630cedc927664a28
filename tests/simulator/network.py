"""A network that loses, repeats, delays, clogs and so reorders what is sent.

Owns: each datagram's fate, drawn from one seeded stream, and the links that are cut or clogged. It
is worse than the connections that production uses, on purpose: the protocol promises to survive it.
Must not import: any core.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, NamedTuple

from simulator.world import World

DELAY_US_MIN: Final = 30


@dataclass(frozen=True, slots=True)
class NetworkOptions:
    """Rates are of datagrams, from 0 to 1."""

    loss_rate: float = 0.0
    repeat_rate: float = 0.0
    slow_rate: float = 0.0
    reorder_rate: float = 0.0
    """Of those that are not slow: they do not wait for what was sent before them on their link."""
    late_rate: float = 0.0
    """Of what finds nobody listening: it is tried again after a while."""
    delay_us_mean: int = 300
    slow_us_max: int = 0


Deliver = Callable[[str, str, bytes], None]
"""Takes source, target and payload."""


class _Datagram(NamedTuple):
    source: str
    target: str
    payload: bytes
    deliver: Deliver
    number: int
    """Rises on each link as it was sent; 0: a repeat."""


class Links:
    """Links, from a source to a target, with something wrong. Wrongs may overlap on one link: it
    is well again when the last of them is over."""

    def __init__(self) -> None:
        self._counts: dict[tuple[str, str], int] = {}

    def __contains__(self, link: tuple[str, str]) -> bool:
        return link in self._counts

    def add(self, source: str, target: str) -> None:
        self._counts[source, target] = self._counts.get((source, target), 0) + 1

    def remove(self, source: str, target: str) -> None:
        """One wrong less; none is left if all were cleared meanwhile."""
        count = self._counts.pop((source, target), 0)
        if count > 1:
            self._counts[source, target] = count - 1

    def clear(self) -> None:
        self._counts.clear()


class Network:
    """Hands payloads over: each zero, one or two times, each after a delay of its own.

    Calm in the beginning."""

    def __init__(self, world: World, delay_us_mean: int) -> None:
        self._world = world
        self._random = world.stream("network")
        self._options = NetworkOptions(delay_us_mean=delay_us_mean)
        self._cuts = Links()
        self._clogs = Links()
        self._held: list[_Datagram] = []
        self._last_arrival_us: dict[tuple[str, str], int] = {}
        self._newest: dict[tuple[str, str], int] = {}
        self.empty_at_us = 0
        """By then everything sent so far has arrived, but for what clogs hold up."""
        self.sent_count = 0
        self.delivered_count = 0
        self.fault_counts: Counter[str] = Counter()

    @property
    def late_rate(self) -> float:
        return self._options.late_rate

    def storm(self, options: NetworkOptions) -> None:
        """From now on these rates hold."""
        self._options = options

    def calm(self) -> None:
        """From now on nothing is lost, repeated or slow, and no link is cut or clogged."""
        self._options = NetworkOptions(delay_us_mean=self._options.delay_us_mean)
        self._cuts.clear()
        self._clogs.clear()
        self._release()

    def cut(self, source: str, target: str) -> None:
        """What `source` sends to `target` is lost; the other direction is another link."""
        self._cuts.add(source, target)

    def mend(self, source: str, target: str) -> None:
        self._cuts.remove(source, target)

    def clog(self, source: str, target: str) -> None:
        """What was to arrive waits until the clog ends."""
        self._clogs.add(source, target)

    def unclog(self, source: str, target: str) -> None:
        """What waited arrives in a burst, unless another clog holds it up."""
        self._clogs.remove(source, target)
        self._release()

    def is_silent(self, source: str, target: str) -> bool:
        """Whether neither end can learn now from the network how the other fares."""
        there, back = (source, target), (target, source)
        return any(link in wrong for link in (there, back) for wrong in (self._cuts, self._clogs))

    def send(
        self,
        source: str,
        target: str,
        payload: bytes,
        deliver: Deliver,
        *,
        may_repeat: bool = True,
    ) -> None:
        options, random = self._options, self._random
        self.sent_count += 1
        if (source, target) in self._cuts:
            self.fault_counts["datagram cut off"] += 1
            return
        if random.random() < options.loss_rate:
            self.fault_counts["datagram lost"] += 1
            return
        datagram = _Datagram(source, target, payload, deliver, self.sent_count)
        self._launch(datagram, self._delay_us(source, target))
        if random.random() < options.repeat_rate and may_repeat:
            self.fault_counts["datagram repeated"] += 1
            # Repeats that come long after are those that find a restarted or forgetful receiver.
            delay_us = self._fresh_delay_us() + random.randrange(1 + options.slow_us_max)
            self._launch(datagram._replace(number=0), delay_us)

    def _launch(self, datagram: _Datagram, delay_us: int) -> None:
        self.empty_at_us = max(self.empty_at_us, self._world.now_us + delay_us)
        self._world.after(delay_us, lambda: self._arrive(datagram))

    def _fresh_delay_us(self) -> int:
        return DELAY_US_MIN + int(self._random.expovariate(1 / self._options.delay_us_mean))

    def _delay_us(self, source: str, target: str) -> int:
        options, random = self._options, self._random
        delay_us = self._fresh_delay_us()
        if random.random() < options.slow_rate:
            self.fault_counts["datagram slow"] += 1
            return delay_us + random.randrange(1 + options.slow_us_max)
        if random.random() < options.reorder_rate:
            return delay_us
        now_us, link = self._world.now_us, (source, target)
        arrival_us = max(now_us + delay_us, self._last_arrival_us.get(link, 0))
        self._last_arrival_us[link] = arrival_us
        return arrival_us - now_us

    def _release(self) -> None:
        """What no clog holds up any more arrives now, in the order in which it was to come."""
        held, self._held = self._held, []
        for datagram in held:
            if (datagram.source, datagram.target) in self._clogs:
                self._held.append(datagram)
            else:
                self._launch(datagram, 0)

    def _arrive(self, datagram: _Datagram) -> None:
        source, target, payload, deliver, number = datagram
        if (source, target) in self._clogs:
            self.fault_counts["datagram clogged"] += 1
            self._held.append(datagram)
            return
        if number < self._newest.get((source, target), 0):
            if number:
                self.fault_counts["datagram overtaken"] += 1
        else:
            self._newest[source, target] = number
        self.delivered_count += 1
        self._world.trace.update(
            b"%d %s %s " % (self._world.now_us, source.encode(), target.encode())
        )
        self._world.trace.update(payload)
        deliver(source, target, payload)
