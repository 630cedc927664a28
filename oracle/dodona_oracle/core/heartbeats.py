"""Heartbeats whose answer waits for news.

Owns: which answers are held back, and for how long. Some heartbeats report nothing new. The master
answers such a heartbeat when it has news for the cell, or when the time that the heartbeat gives is
over. So a cell learns of a mount without delay, and an idle cell sends few heartbeats. The master
holds at most one heartbeat of each cell. If the cell's process has news, it sends the next
heartbeat, and that one answers the held one.
"""

from collections.abc import Iterable
from typing import Final, NamedTuple

from dodona_oracle.core.catalog import Catalog
from dodona_wire.cores.effects import Effect, ReplyTo, Route
from dodona_wire.messages.catalog import Assignment, Heartbeat
from dodona_wire.messages.families import Reply
from dodona_wire.types import CellId, Now

HOLD_MS_MAX: Final = 1_000
"""The limit of `hold_ms`. A cell that is silent for longer may have crashed."""


class _Held(NamedTuple):
    route: Route
    heartbeat: Heartbeat
    until_us: int


class Heartbeats:
    """The heartbeats that one master holds back."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._held: dict[CellId, _Held] = {}
        self._answered: list[_Held] = []
        self._news = catalog.news
        self._is_closed = False

    def hold(self, route: Route, heartbeat: Heartbeat, reply: Reply, now: Now) -> bool:
        """Hold back the answer to a heartbeat that was taken. Return whether it is held back."""
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
        """Return the answers that are due, because there is news or their time is over."""
        news = self._catalog.news
        is_new, self._news = news != self._news, news
        held = self._held.items()
        self._let_go([cell for cell, it in held if is_new or it.until_us <= now.instant_us])
        return self._take_answers()

    def next_deadline(self) -> int | None:
        """Return when to call `answers` at the latest, as an instant in microseconds."""
        return min([it.until_us for it in self._held.values()], default=None)

    def close(self) -> list[Effect]:
        """Return all held answers. From now on no answer is held back."""
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
