"""A process that owns a core: it carries out the core's effects, crashes and recovers.

Owns: the one law (nothing behind an `Append` leaves before it is durable), ticks, pauses and the
end of a process. A surprise in a core ends the run: see `CoreStopped`.
Must not import: any core.
"""

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from typing import Any

from dodona_wire.cores.effects import HELD_EFFECTS, Append, Effect, ReplyAtOnce, ReplyTo
from dodona_wire.messages.cells import CellMessage
from dodona_wire.messages.families import Request
from simulator.disk import Disk
from simulator.doom import Doom
from simulator.transport import Port, Route, Transport
from simulator.world import Clock

RESTART_US_MAX = 1_000_000


class CoreStopped(Exception):
    """A core met a surprise. In production the process stops; here it is a violation."""

    def __init__(self, host: str, error: BaseException) -> None:
        super().__init__(f"{host}: {type(error).__name__}: {error}")


class Host(ABC):
    """One process: its clocks, its port, its core while it is up, its disk if it has one."""

    disk: Disk | None = None
    at_once_age_us_max: int | None = None
    """Once the oldest append that is not durable is older, answers at once wait for it too."""

    def __init__(self, transport: Transport, name: str, address: str, timeout_us: int) -> None:
        self.name = name
        self.address = address
        self.world = transport.world
        self.transport = transport
        self.random = self.world.stream(f"host/{name}")
        self.clock = Clock(self.world, self._draw_instant_base_us())
        self.core: Any = None
        self.crash_count = 0
        self.crash_instants_us: list[int] = []
        self.port: Port | None = None
        self._timeout_us = timeout_us
        self._boot = 0
        self._paused_until_us = 0
        self.doom = Doom(self.world, self.random)
        self._tick_at_us: int | None = None
        self._appended = 0
        self._durable = 0
        self._append_instants: deque[int] = deque()
        self._held: deque[tuple[int, Effect]] = deque()

    @property
    def is_up(self) -> bool:
        return self.core is not None

    def _draw_instant_base_us(self) -> int:
        return self.random.randrange(10**12)

    # Life

    def start(self) -> None:
        """Recover a core from what is durable, and serve."""
        assert not self.is_up
        self._boot += 1
        self.clock.restart(self._draw_instant_base_us())
        self._paused_until_us = 0
        self.doom = Doom(self.world, self.random)
        self._tick_at_us = None
        self._appended = self._durable = 0
        self._append_instants.clear()
        self._held.clear()
        self.port = Port(self.transport, self.name, self._timeout_us)
        try:
            self.core = self._recover()
        except Exception as error:
            raise CoreStopped(self.name, error) from error
        self.transport.bind(self.address, self)
        self.enter(_nothing)

    def crash(self) -> None:
        """The process ends here and now: what is not durable is gone."""
        assert self.is_up
        assert self.port is not None
        self.crash_count += 1
        self.crash_instants_us.append(self.world.now_us)
        self.core = None
        if self.disk is not None:
            self.disk.crash()
        self.port.close()
        self.transport.unbind(self.address, self)
        self._boot += 1

    def stop(self) -> None:
        """The log failed: the process ends by itself, as production's runtime has it. Whoever looks
        after it starts it again."""
        self.crash()
        self.world.after(self.random.randrange(RESTART_US_MAX), self.start_if_down)

    def start_if_down(self) -> None:
        if not self.is_up:
            self.start()

    def pause(self, duration_us: int) -> None:
        """The process stands still: whatever comes waits, clocks and others go on."""
        self._paused_until_us = self.world.now_us + duration_us

    def spare(self) -> None:
        """End a pause early (what it held up still comes when it was to end), and all doom."""
        self._paused_until_us = self.world.now_us
        self.doom.spare()

    @abstractmethod
    def _recover(self) -> Any:
        """A fresh core."""

    # Driving the core

    def receive(self, route: Route, body: Request | CellMessage) -> None:
        """A message from the network."""
        self.enter(self.core.handle, route, body)

    def enter(self, method: Callable[..., None], *arguments: Any) -> None:
        """Run `method(*arguments, now)` of the core and carry out what it asks for."""
        boot = self._boot
        if self.doom.is_dead:
            return
        if self.world.now_us < self._paused_until_us:
            delay_us = self._paused_until_us - self.world.now_us
            self.world.after(delay_us, lambda: self._enter_if(boot, method, arguments))
            return
        try:
            method(*arguments, self.clock.now())
            effects = self.core.take_effects()
        except Exception as error:
            raise CoreStopped(self.name, error) from error
        self._carry_out(effects)
        self._schedule_tick()

    def _enter_if(self, boot: int, method: Callable[..., None], arguments: tuple[Any, ...]) -> None:
        if boot == self._boot and self.is_up:
            self.enter(method, *arguments)

    def _schedule_tick(self) -> None:
        deadline_us = self.core.next_deadline()
        if deadline_us is None:
            return
        tick_at_us = self.world.now_us + self.clock.delay_until(deadline_us)
        if self._tick_at_us is None or tick_at_us < self._tick_at_us:
            self._tick_at_us = tick_at_us
            boot = self._boot
            # At least 1 ms away, as the production runtime has it, and a little late.
            delay_us = max(1_000, tick_at_us - self.world.now_us) + self.random.randrange(300)
            self.world.after(delay_us, lambda: self._tick_if(boot, tick_at_us))

    def _tick_if(self, boot: int, tick_at_us: int) -> None:
        if boot != self._boot or not self.is_up or self._tick_at_us != tick_at_us:
            return
        self._tick_at_us = None
        deadline_us = self.core.next_deadline()
        if deadline_us is not None and self.clock.delay_until(deadline_us) == 0:
            self.enter(self.core.tick)
        else:
            self._schedule_tick()

    # Effects

    def _carry_out(self, effects: list[Effect]) -> None:
        is_behind = self._is_log_behind()
        for effect in effects:
            if self.doom.is_dead:
                return
            if isinstance(effect, Append):
                self._appended += 1
                self._append_instants.append(self.world.now_us)
                self._held.append((self._appended, effect))
                self._append(effect.record)
                self.doom.watch(effect)
            elif self._held and (
                type(effect) in HELD_EFFECTS or (is_behind and isinstance(effect, ReplyAtOnce))
            ):
                self._held.append((self._appended, effect))
            else:
                self._deliver(effect)
        self._finish_effects()

    def _is_log_behind(self) -> bool:
        """Whether an answer given now could be taken back from too far in the past."""
        age_us_max = self.at_once_age_us_max
        if age_us_max is None or not self._append_instants:
            return False
        return self.world.now_us - self._append_instants[0] > age_us_max

    def _deliver(self, effect: Effect) -> None:
        if isinstance(effect, ReplyTo | ReplyAtOnce):
            self.transport.reply(self.name, effect.route, effect.body)
        else:
            self._deliver_other(effect)
        self.doom.watch(effect)

    @abstractmethod
    def _deliver_other(self, effect: Effect) -> None:
        """Carry out what only this kind of process does."""

    def _finish_effects(self) -> None:
        """All effects of one input were carried out. Most processes gather nothing till then."""
        return

    def _append(self, record: Any) -> None:
        assert self.disk is not None, f"{self.name} has no disk"
        self.disk.append(record)

    def _on_durable(self, count: int) -> None:
        self.enter(self._release, count)

    def _release(self, count: int, _: object) -> None:
        """So many more records are durable: what waited behind them leaves, in order."""
        self._durable += count
        for _ in range(count):
            self._append_instants.popleft()
        while self._held and self._held[0][0] <= self._durable:
            if self.doom.is_dead:
                return
            _, effect = self._held.popleft()
            if not isinstance(effect, Append):
                self._deliver(effect)
            elif hasattr(self.core, "handle_durable"):
                self.core.handle_durable(effect.record, self.clock.now())


def _nothing(_: object) -> None:
    """Only to have the core's effects carried out."""
