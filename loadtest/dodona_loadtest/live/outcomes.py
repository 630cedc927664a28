"""Ask for the outcomes of transactions of which the asking session knows only the ids.

Owns: the questions, and the comparison with the rows in the tables. Must not import: any core but
the client's.
"""

from collections.abc import Iterable
from itertools import islice
from typing import Final

from dodona._core.protocol.steps import Protocol
from dodona._core.writing.outcomes import Outcome
from dodona_loadtest.checkers.attribution import attribute
from dodona_loadtest.checkers.violation import Violation
from dodona_loadtest.histories.history import History, Transaction, Version
from dodona_loadtest.histories.recorder import Recorder
from dodona_wire.types import TransactionId

ASKED_MAX: Final = 300
"""Questions about one history: each is a call."""

Answers = list[tuple[Transaction, list[Outcome]]]
"""A blind transaction may have been sent under several names, each with an outcome of its own."""


def ask_outcomes(db: Recorder, transactions: Iterable[Transaction]) -> Protocol[Answers]:
    """Ask the cells, except about deletions that might be another's. Raises DodonaError."""
    answers: Answers = []
    for t in islice(filter(_is_askable, transactions), ASKED_MAX):
        names = t.names if t.is_blind else [*t.names, t.start, *t.again]
        outcomes: list[Outcome] = []
        for name in names:
            outcome = yield from db.session.outcome(TransactionId(name))
            outcomes.append(outcome)
        answers.append((t, outcomes))
    return answers


def check_outcomes(answers: Answers, history: History, dump: Iterable[Version]) -> list[Violation]:
    """Check that just those are committed whose rows are there. Forgotten ones prove nothing."""
    found = {t.name: at for t, at in attribute(history.transactions, dump).committed}
    violations = []
    for t, outcomes in answers:
        said = [outcome.timestamp for outcome in outcomes if outcome.state == "committed"]
        is_forgotten = any(outcome.state == "unknown" for outcome in outcomes)
        there = [found[t.name]] if t.name in found else []
        if said != there and not (is_forgotten and not said):
            text = f"{t.name} was committed at {said}, say the cells; the rows say {there}"
            violations.append(Violation("OUTCOME", text))
    return violations


def _is_askable(t: Transaction) -> bool:
    is_named = t.commit_us is not None and bool(t.names or t.start)
    return is_named and any(write.columns is not None for write in t.writes)
