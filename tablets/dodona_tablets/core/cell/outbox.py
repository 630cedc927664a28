"""Gather the effects of a cell, in order, until the shell takes them.

Owns: the order of effects, and the number of records that were appended. A part that has the outbox
may append records and send messages. Code without it only changes state, so replay may run it.
"""

from typing import Any

from dodona_tablets.core.records import Record
from dodona_wire.cores.effects import Append, Effect, ReplyTo
from dodona_wire.messages.families import Reply


class Outbox:
    """The effects of one cell that the shell has not taken yet."""

    def __init__(self) -> None:
        self._effects: list[Effect] = []
        self.appended_count = 0
        """The records that were appended since the start."""

    def send(self, effect: Effect) -> None:
        """Add an effect of any kind, except a record: see `append`."""
        self._effects.append(effect)

    def reply(self, route: Any, body: Reply) -> None:
        """Answer a request. The answer leaves when all records before it are durable."""
        self._effects.append(ReplyTo(route, body))

    def append(self, record: Record) -> None:
        """Append a record to the log. Effects behind it wait until it is durable."""
        self.appended_count += 1
        self._effects.append(Append(record))

    def take(self) -> list[Effect]:
        """Take all effects, in order, and leave the outbox empty."""
        effects, self._effects = self._effects, []
        return effects
