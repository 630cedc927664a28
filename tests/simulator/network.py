"""A network that loses, repeats, delays and so reorders what is sent.

Owns: each datagram's fate, drawn from one seeded stream, and the links that are cut. It is worse
than the connections that production uses, on purpose: the protocol promises to survive it.
Must not import: any core.
"""

from collections.abc import Callable
from dataclasses import dataclass

from simulator.world import World

DELAY_US_MIN = 30


@dataclass(frozen=True, slots=True)
class NetworkOptions:
    """Rates are of datagrams, from 0 to 1."""

    loss_rate: float = 0.0
    repeat_rate: float = 0.0
    slow_rate: float = 0.0
    late_rate: float = 0.0
    """Of what finds nobody listening: it is tried again after a while."""
    delay_us_mean: int = 300
    slow_us_max: int = 0


Deliver = Callable[[str, str, bytes], None]
"""Takes source, target and payload."""


class Network:
    """Hands payloads over: each zero, one or two times, each after a delay of its own.

    Calm in the beginning."""

    def __init__(self, world: World, delay_us_mean: int) -> None:
        self._world = world
        self._random = world.stream("network")
        self._options = NetworkOptions(delay_us_mean=delay_us_mean)
        self._cut_links: dict[tuple[str, str], None] = {}
        self.empty_at_us = 0
        """By then everything sent so far has arrived."""
        self.sent_count = 0
        self.delivered_count = 0
        self.lost_count = 0
        self.repeated_count = 0

    @property
    def late_rate(self) -> float:
        return self._options.late_rate

    def storm(self, options: NetworkOptions) -> None:
        """From now on these rates hold."""
        self._options = options

    def calm(self) -> None:
        """From now on nothing is lost, repeated or slow, and no link is cut."""
        self._options = NetworkOptions(delay_us_mean=self._options.delay_us_mean)
        self._cut_links.clear()

    def cut(self, source: str, target: str) -> None:
        """What `source` sends to `target` is lost; the other direction is another link."""
        self._cut_links[source, target] = None

    def mend(self, source: str, target: str) -> None:
        self._cut_links.pop((source, target), None)

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
        if (source, target) in self._cut_links or random.random() < options.loss_rate:
            self.lost_count += 1
            return
        delays_us = [self._delay_us()]
        if random.random() < options.repeat_rate and may_repeat:
            self.repeated_count += 1
            # Repeats that come long after are those that find a restarted or forgetful receiver.
            delays_us.append(self._delay_us() + random.randrange(1 + options.slow_us_max))
        self.empty_at_us = max(self.empty_at_us, self._world.now_us + max(delays_us))
        for delay_us in delays_us:
            self._world.after(delay_us, lambda: self._arrive(source, target, payload, deliver))

    def _delay_us(self) -> int:
        options, random = self._options, self._random
        delay_us = DELAY_US_MIN + int(random.expovariate(1 / options.delay_us_mean))
        if random.random() < options.slow_rate:
            delay_us += random.randrange(1 + options.slow_us_max)
        return delay_us

    def _arrive(self, source: str, target: str, payload: bytes, deliver: Deliver) -> None:
        self.delivered_count += 1
        self._world.trace.update(
            b"%d %s %s " % (self._world.now_us, source.encode(), target.encode())
        )
        self._world.trace.update(payload)
        deliver(source, target, payload)
