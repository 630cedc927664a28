"""Items 27, 28 and 35: what a client may conclude, and may send again."""

from typing import Any

import pytest

from dodona._core.protocol.context import Context
from dodona._core.protocol.steps import Calls, Pause, Protocol
from dodona._core.writing import committing
from dodona._core.writing.transaction import TransactionBuffer
from dodona.errors import TransactionConflict
from dodona.types import CellId, Timestamp, TransactionId
from dodona_tablets.core.commit.participant import Participant
from dodona_tablets.core.tablet.transaction import State
from dodona_wire.messages.base import Failure
from dodona_wire.messages.data import Aborted, AskOutcome, CommitOne, Decide, Prepare, Prepared
from dodona_wire.messages.families import Reply
from negative.bug import BUSY, PlantedBug, Where

ATTEMPTS = 3


def try_again_under_the_same_name(patch: pytest.MonkeyPatch) -> None:
    """After a refusal the client sends the same once more, and no cell holds the refusal against
    it. Whoever is still prepared from the first attempt says so, until the abort reaches it."""
    commit_many, prepare = committing._commit_many, Participant.prepare

    def planted_many(*asked: Any) -> Protocol[Timestamp]:
        for _ in range(ATTEMPTS):
            try:
                return (yield from commit_many(*asked))
            except TransactionConflict:
                yield Pause(5)
        return (yield from commit_many(*asked))

    def planted(self: Participant, route: Any, body: CommitOne | Prepare) -> None:
        if self._cell.state_of(body.transaction) is State.REFUSED:
            for bucket in self._cell.outcomes._buckets.values():
                bucket.pop(body.transaction, None)
        prepare(self, route, body)

    patch.setattr(committing, "_commit_many", planted_many)
    patch.setattr(Participant, "prepare", planted)


def _go_on(protocol: Protocol[Timestamp], replies: list[Reply]) -> Protocol[Timestamp]:
    try:
        while True:
            replies = yield protocol.send(replies)
    except StopIteration as end:
        result: Timestamp = end.value
        return result


def take_silence_for_an_abort(patch: pytest.MonkeyPatch) -> None:
    def ask_once(_: Context, cell: CellId, question: AskOutcome | Decide) -> Protocol[Reply]:
        (reply,) = yield Calls(((cell, question),))
        return Aborted(question.transaction) if isinstance(reply, Failure) else reply

    patch.setattr(committing, "ask_until_answered", ask_once)


def retry_with_stale_writes(patch: pytest.MonkeyPatch) -> None:
    """The same writes once more, from a new start."""
    commit = committing.commit_atomic

    def planted(
        context: Context, transaction: TransactionBuffer, *answered: Any
    ) -> Protocol[Timestamp]:
        while True:
            try:
                return (yield from commit(context, transaction, *answered))
            except TransactionConflict:
                if transaction.is_blind:
                    raise
                transaction.id = TransactionId((yield from context.generate_timestamp()))

    patch.setattr("dodona._core.row_session.commit_atomic", planted)


def decide_without_all(patch: pytest.MonkeyPatch) -> None:
    """Whoever does not answer is taken for prepared."""
    commit_many = committing._commit_many

    def planted(*asked: Any) -> Protocol[Timestamp]:
        protocol = commit_many(*asked)
        replies = yield next(protocol)
        prepared = [it for it in replies if isinstance(it, Prepared)]
        silent = [it for it in replies if isinstance(it, Failure) and it.kind == "unavailable"]
        if prepared and len(prepared) + len(silent) == len(replies):
            replies = [prepared[0] if it in silent else it for it in replies]
        return (yield from _go_on(protocol, replies))

    patch.setattr(committing, "_commit_many", planted)


BUGS = (
    PlantedBug(
        27,
        "a commit is tried again under the same id, and what is left of the first try counts",
        try_again_under_the_same_name,
        ("ATOMICITY", "DURABILITY", "GHOST"),
        Where(changes=BUSY, network={"slow_rate": 0.15, "slow_us_max": 100_000}),
    ),
    PlantedBug(
        28,
        "a client takes silence for an abort",
        take_silence_for_an_abort,
        ("GHOST",),
    ),
    PlantedBug(
        35,
        "a client sends the same writes again from a new start after a conflict",
        retry_with_stale_writes,
        ("NOCONFLICT", "INVARIANT"),
    ),
    PlantedBug(
        None,
        "a client decides to commit though a participant has not answered",
        decide_without_all,
        ("ATOMICITY", "DURABILITY"),
        Where(network={"loss_rate": 0.05}),
    ),
)
