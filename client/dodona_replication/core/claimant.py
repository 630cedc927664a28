"""What a take-over and an owner share: how they hear of the document of their log, and their end.

Owns: the effects that wait to be carried out, the ownership, and the one report that it is over.
After the end nothing more is said.

Must not import: any shell.
"""

from abc import ABC, abstractmethod

from dodona_replication.core.coordination import Answer, Compare
from dodona_replication.core.document import Revisioned
from dodona_replication.core.owner_effects import (
    Ended,
    Identity,
    OwnerEffect,
    OwnerLimits,
)
from dodona_replication.core.ownership import Lost, Ownership
from dodona_wire.types import Now


class Claimant(ABC):
    """A process that claims a log, in one epoch."""

    epoch: int

    def __init__(self, identity: Identity, limits: OwnerLimits, ownership: Ownership) -> None:
        self.identity, self.limits, self.ownership = identity, limits, ownership
        self.is_ended = False
        self._effects: list[OwnerEffect] = []

    def take_effects(self) -> list[OwnerEffect]:
        """Return the effects to carry out, in order. Each is returned once."""
        effects, self._effects = self._effects, []
        return effects

    def handle_answer(self, asked: Compare, answer: Answer, now: Now) -> None:
        """Take the coordinator's answer to this compare."""
        try:
            is_over = self.ownership.hear(asked, answer)
        except Lost as error:
            self._end_for(error.current)
            return
        self._change(now, is_over=is_over)

    def handle_document(self, current: Revisioned | None, now: Now) -> None:
        """Take a document that was read or watched."""
        try:
            is_over = self.ownership.see(current)
        except Lost as error:
            self._end_for(error.current)
            return
        self._change(now, is_over=is_over)

    @abstractmethod
    def _change(self, now: Now, *, is_over: bool) -> None:
        """Go on after the document was heard of. `is_over`: the pending change is in force."""

    def _end_for(self, current: Revisioned | None) -> None:
        self._end("another process took the log over", current)

    def _end(
        self, reason: str, current: Revisioned | None = None, *, is_too_old: bool = False
    ) -> None:
        if not self.is_ended:
            self.is_ended = True
            self._effects.append(Ended(reason, current, is_too_old))
