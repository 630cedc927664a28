"""An object store under virtual time: what it has, and what goes wrong with its calls.

Owns: the objects of all nodes, and the outcome of each call. A call has its outcome at the instant
of the call; its caller waits before. An answer gets lost after the call was done, or the call is
done later, when its caller has given up. The store refuses, or it is away for a while. It says of
an object that it is missing, or gives other bytes. It may ignore the condition of a put.
Must not import: any core.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from dodona_tablets.shell.objects import ObjectMissing, never, taken
from dodona_wire.errors import Unavailable
from simulator.world import World

LATE_US_MAX: Final = 6_000_000
"""How long after its call a put or a removal may still be done."""
CALL_US_MEAN: Final = 20_000
CALM_CALL_US_MEAN: Final = 2_000
"""That of calls after the faults: checks then read all rows many times, with room for one chunk."""


@dataclass(frozen=True, slots=True)
class ObjectStoreOptions:
    """Whether nodes keep their chunks in an object store, and what goes wrong there."""

    is_there: bool = False
    cache_bytes_max: int = 0
    """How much of its chunks a node keeps; 0: all."""
    knows_conditions: bool = True
    lost_answer_rate: float = 0.0
    late_rate: float = 0.0
    """Of puts and removals: there is no answer, and they are done later."""
    refused_rate: float = 0.0
    missing_rate: float = 0.0
    """Of gets: the store says that there is no such object."""
    damaged_rate: float = 0.0
    """Of gets: other bytes come."""
    slow_rate: float = 0.0
    slow_us_max: int = field(default=0, metadata={"calm": 0})
    new_machine_rate: float = 0.0
    """Of starts of a node: its folder is empty."""


class Killed(BaseException):
    """The process that made the call has ended."""


class SimulatedObjects:
    """The store of a whole cluster: `Objects`, for nodes that wait by themselves."""

    place = "simulated"

    def __init__(self, world: World) -> None:
        self._world = world
        self._random = world.stream("objects")
        self._options = ObjectStoreOptions()
        self._is_quiet = False
        self._puts_left: int | None = None
        self.contents: dict[str, bytes] = {}
        self.settled_at_us = 0
        """From then on, nothing is done that was asked for before."""
        self.fault_counts: Counter[str] = Counter()

    def storm(self, options: ObjectStoreOptions) -> None:
        """From now on these rates hold."""
        self._options = options

    def calm(self) -> None:
        """Nothing goes wrong any more, but for what is late already."""
        self._options = ObjectStoreOptions(knows_conditions=self._options.knows_conditions)

    @contextmanager
    def quietly(self) -> Iterator[None]:
        """Within the block, all is done and answered: for starts, which can't wait here."""
        before, self._is_quiet = self._is_quiet, True
        try:
            yield
        finally:
            self._is_quiet = before

    @contextmanager
    def dying(self, put_count: int) -> Iterator[None]:
        """Within the block, the process ends after so many puts: see `Killed`."""
        self._puts_left = put_count
        try:
            with self.quietly():
                yield
        except Killed:
            self.fault_counts["process ended at a put"] += 1
        finally:
            self._puts_left = None

    def call_us(self) -> int:
        """How long the next call takes."""
        random, options = self._random, self._options
        mean_us = CALL_US_MEAN if options.is_there else CALM_CALL_US_MEAN
        duration_us = 100 + int(random.expovariate(1 / mean_us))
        if random.random() < options.slow_rate:
            self.fault_counts["object call slow"] += 1
            duration_us += random.randrange(1 + options.slow_us_max)
        return duration_us

    def _happens(self, rate: float, what: str) -> bool:
        if self._is_quiet or self._random.random() >= rate:
            return False
        self.fault_counts[what] += 1
        return True

    def _change(self, what: str, change: Callable[[], None]) -> None:
        """Do a put or a removal, at some time or never. Raises Unavailable without an answer."""
        options = self._options
        if self._happens(options.refused_rate, f"{what} refused"):
            raise Unavailable("503")
        if self._happens(options.late_rate, f"{what} late"):
            delay_us = self._random.randrange(LATE_US_MAX)
            self.settled_at_us = max(self.settled_at_us, self._world.now_us + delay_us)
            self._world.after(delay_us, change)
            raise Unavailable("no answer")
        change()
        if self._happens(options.lost_answer_rate, f"{what} unanswered"):
            raise Unavailable("no answer")

    # ---- Objects

    def put(self, name: str, path: Path) -> None:
        if self._puts_left is not None:
            if not self._puts_left:
                raise Killed
            self._puts_left -= 1
        content = path.read_bytes()
        known = self.contents.get(name)
        if self._options.knows_conditions and known is not None and known != content:
            raise taken(self.place, name)
        self._change("put", lambda: self.contents.update({name: content}))

    def get(self, name: str, path: Path, is_over: Callable[[], bool] = never) -> None:
        if self._happens(self._options.refused_rate, "get refused"):
            raise Unavailable("503")
        content = self.contents.get(name)
        if content is None or self._happens(self._options.missing_rate, "get of nothing"):
            raise ObjectMissing(name)
        if self._happens(self._options.damaged_rate, "get damaged"):
            at = self._random.randrange(len(content))
            content = content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :]
        path.write_bytes(content)

    def remove(self, names: Iterable[str]) -> None:
        some = tuple(names)

        def remove_all() -> None:
            for name in some:
                self.contents.pop(name, None)

        self._change("removal", remove_all)

    def names(self, prefix: str) -> Iterator[str]:
        if self._random.random() < self._options.refused_rate:
            self.fault_counts["list refused"] += 1
            raise Unavailable("503")
        yield from [it for it in self.contents if it.startswith(f"{prefix}/")]
