"""Heartbeats whose answer waits for news.

Owns: which answers are held back, and for how long. A cell that has nothing new to say is answered
as soon as the master has something new to say to it, or at the end of the time that the heartbeat
gives. So a cell hears of a mount at once, and an idle one sends few heartbeats. At most one is held
for each cell: the next one of that cell, from a process that has news, answers it.
"""

from collections.abc import Iterable
from typing import Final, NamedTuple

from dodona_oracle.core.catalog import Catalog
from dodona_wire.cores.effects import Effect, ReplyTo, Route
from dodona_wire.messages.catalog import Assignment, Heartbeat
from dodona_wire.messages.families import Reply
from dodona_wire.types import CellId, Now

HOLD_MS_MAX: Final = 1_000
"""Whatever a heartbeat says. A cell that is silent for longer may be dead."""


class _Held(NamedTuple):
    route: Route
    heartbeat: Heartbeat
    until_us: int


class Heartbeats:
    """See the module. One instance a master."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._held: dict[CellId, _Held] = {}
        self._answered: list[_Held] = []
        self._news = catalog.news
        self._is_closed = False

    def hold(self, route: Route, heartbeat: Heartbeat, reply: Reply, now: Now) -> bool:
        """After a heartbeat was taken. → whether its answer is held back."""
        earlier = self._held.pop(heartbeat.cell, None)
        if earlier is not None:
            self._answered.append(earlier)
        is_empty = isinstance(reply, Assignment) and reply.is_short and not reply.dropped
        if not is_empty or heartbeat.hold_ms <= 0 or self._is_closed:
            return False
        until_us = now.instant_us + min(heartbeat.hold_ms, HOLD_MS_MAX) * 1000
        self._held[heartbeat.cell] = _Held(route, heartbeat, until_us)
        return True

    def answers(self, now: Now) -> list[Effect]:
        """Those that are due: there is something new, or their time is over."""
        news = self._catalog.news
        is_new, self._news = news != self._news, news
        held = self._held.items()
        self._let_go([cell for cell, it in held if is_new or it.until_us <= now.instant_us])
        return self._take_answers()

    def next_deadline(self) -> int | None:
        """When to ask for `answers` at the latest, as an instant in microseconds."""
        return min([it.until_us for it in self._held.values()], default=None)

    def close(self) -> list[Effect]:
        """All of them; from now on none is held."""
        self._is_closed = True
        self._let_go(self._held)
        return self._take_answers()

    def _let_go(self, cells: Iterable[CellId]) -> None:
        self._answered += [self._held.pop(it) for it in list(cells)]

    def _take_answers(self) -> list[Effect]:
        if not self._answered:
            return []
        answered, self._answered = self._answered, []
        return [ReplyTo(it.route, self._catalog.answer_again(it.heartbeat)) for it in answered]
