"""What looks like a bug and is none, where commits are acknowledged when they are decided.

Owns: the proof that no promise hangs on it there. Each does nothing that is wrong, or is wrong only
for those who were told of a commit before it was decided.
"""

from typing import get_args

import pytest

from dodona._core.protocol.context import Context
from dodona._core.protocol.steps import Protocol
from dodona._core.writing import committing
from dodona.types import CellId
from dodona_loadtest.checkers.violation import Promise
from dodona_wire.messages.data import AskOutcome, Committed, Decide
from dodona_wire.messages.families import Reply
from negative.bug import BUSY, PlantedBug, Where
from negative.planted.recovery import LOSSY, always_recover_to_abort, answer_without_poison

SEEDS = 12
PROMISES: tuple[Promise, ...] = get_args(Promise)


def take_silence_for_a_commit(patch: pytest.MonkeyPatch) -> None:
    """Nobody says what became of the decision to commit. All are prepared: recovery commits."""
    ask = committing.ask_until_answered

    def planted(context: Context, cell: CellId, question: AskOutcome | Decide) -> Protocol[Reply]:
        reply = yield from ask(context, cell, question)
        at = question.commit_timestamp if isinstance(question, Decide) else None
        return reply if at is None else Committed(question.transaction, at)

    patch.setattr(committing, "ask_until_answered", planted)


HARMLESS = tuple(
    PlantedBug(None, title, plant, PROMISES, Where(changes=BUSY, network=LOSSY), SEEDS)
    for title, plant in (
        ("a client takes silence after its decision for a commit", take_silence_for_a_commit),
        ("recovery does not poison what is not prepared yet", answer_without_poison),
        ("recovery always aborts", always_recover_to_abort),
    )
)
