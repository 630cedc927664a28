"""Candidates that wait until the owner of a log is silent.

Owns: `Silences`. A candidate waits at a replica for the silence of an owner, and then takes over. A
heap has the waiters by the time of their answer at the earliest, so a log without waiters costs
nothing. A message of the owner changes no waiter: it is looked at again when its time has come. A
silence proves nothing: the compare of the take-over decides.

Must not import: any shell.
"""

from collections import deque
from collections.abc import Iterator
from heapq import heappop, heappush
from typing import Final

from dodona_wire.cores.effects import ReplyAtOnce, Route
from dodona_wire.messages.replicas import LogSilence

OWNERS_MS: Final = 30_000
"""For so long a replica counts the owners of a log that followed each other."""
OWNERS_MAX: Final = 16
"""More of them are not counted."""
MS: Final = 1_000
"""One millisecond in microseconds."""


class _Waiter:
    __slots__ = ("give_up_us", "is_answered", "log", "route", "silence_us")

    def __init__(self, log: str, route: Route, silence_us: int, give_up_us: int) -> None:
        self.log = log
        self.route = route
        self.silence_us = silence_us
        self.give_up_us = give_up_us
        self.is_answered = False


class Owner:
    """The owner of a log, as a replica hears it."""

    __slots__ = ("_began_us", "epoch", "heard_us")

    def __init__(self, epoch: int, heard_us: int) -> None:
        self.epoch = epoch
        self.heard_us = heard_us
        """When the last request of this epoch came, as an instant."""
        self._began_us: deque[int] = deque(maxlen=OWNERS_MAX)
        """When each of the last owners was heard first."""

    def follow(self, epoch: int, now_us: int) -> None:
        """Note that another owner follows."""
        self.epoch = epoch
        self._began_us.append(now_us)

    def silence(self, now_us: int) -> LogSilence:
        """Return for how long it has been silent."""
        recent = [it for it in self._began_us if now_us - it < OWNERS_MS * MS]
        return LogSilence(self.epoch, (now_us - self.heard_us) // MS, len(recent))


class Silences:
    """The waiters of all logs, and when each owner was last heard."""

    def __init__(self) -> None:
        self.owners: dict[str, Owner] = {}
        self._heap: list[tuple[int, int, _Waiter]] = []
        self._waiters_by_log: dict[str, dict[int, _Waiter]] = {}
        self._number = 0
        self.waiting_count = 0

    def wait(self, log: str, route: Route, silence_us: int, wait_us: int, now_us: int) -> None:
        """Add a waiter for the owner of a log, which is known and not silent for so long yet."""
        self._number += 1
        waiter = _Waiter(log, route, silence_us, now_us + wait_us)
        self._waiters_by_log.setdefault(log, {})[self._number] = waiter
        self.waiting_count += 1
        self._push(self._number, waiter)

    def hear(self, log: str, epoch: int, now_us: int) -> list[ReplyAtOnce]:
        """Note a request of the owner of this epoch. Return the answers to those who wait for the
        owner of another epoch."""
        owner = self.owners.get(log)
        if owner is None:
            self.owners[log] = Owner(epoch, now_us)
            return []
        owner.heard_us = now_us
        if owner.epoch == epoch:
            return []
        owner.follow(epoch, now_us)
        numbers = list(self._waiters_by_log.get(log, ()))
        return [self._answer(log, number, now_us) for number in numbers]

    def due(self, now_us: int) -> Iterator[ReplyAtOnce]:
        """Yield the answers whose time has come."""
        while self._heap and self._heap[0][0] <= now_us:
            _, number, waiter = heappop(self._heap)
            if waiter.is_answered:
                continue
            silent_us = now_us - self.owners[waiter.log].heard_us
            if now_us >= waiter.give_up_us or silent_us >= waiter.silence_us:
                yield self._answer(waiter.log, number, now_us)
            else:
                self._push(number, waiter)

    def close(self, now_us: int) -> Iterator[ReplyAtOnce]:
        """Yield the answers to all who wait, because the process stops."""
        for log, waiters in list(self._waiters_by_log.items()):
            for number in list(waiters):
                yield self._answer(log, number, now_us)

    def next_deadline(self) -> int | None:
        """Return when to ask for the answers that are due, as an instant in microseconds."""
        while self._heap and self._heap[0][2].is_answered:
            heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def _push(self, number: int, waiter: _Waiter) -> None:
        silent_at_us = self.owners[waiter.log].heard_us + waiter.silence_us
        heappush(self._heap, (min(silent_at_us, waiter.give_up_us), number, waiter))

    def _answer(self, log: str, number: int, now_us: int) -> ReplyAtOnce:
        waiters = self._waiters_by_log[log]
        waiter = waiters.pop(number)
        if not waiters:
            del self._waiters_by_log[log]
        waiter.is_answered = True
        self.waiting_count -= 1
        return ReplyAtOnce(waiter.route, self.owners[log].silence(now_us))
