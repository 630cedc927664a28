"""What the cluster says became of transactions whose callers were told nothing sure.

Owns: the comparison with what is in the tables. Must not import: any core but the client's.
"""

from collections.abc import Iterable
from itertools import islice
from typing import Final

from dodona._core.outcomes import Outcome
from dodona._core.steps import Protocol
from dodona.types import CellId, Key, TransactionId
from dodona_loadtest.checkers.attribution import attribute
from dodona_loadtest.checkers.violation import Violation
from dodona_loadtest.histories.history import History, RowKey, Transaction, Version
from dodona_loadtest.histories.recorder import Recorder
from dodona_loadtest.live.verdict import is_unsure

ASKED_MAX: Final = 300
"""Of one history: each question is a call."""

Answers = list[tuple[Transaction, list[Outcome]]]
"""A blind transaction may have gone out under several names, each with an outcome of its own."""


def ask_outcomes(db: Recorder, history: History) -> Protocol[Answers]:
    """What the coordinators say. Raises DodonaError. The tables' routes must be known."""
    answers: Answers = []
    for t in islice(filter(_is_askable, history.transactions), ASKED_MAX):
        outcomes = []
        for name in t.names if t.is_blind else [t.start]:
            cell = min(cell_of(db, write.row) for write in t.writes)
            outcomes.append((yield from db.session.outcome(TransactionId(name), CellId(cell))))
        answers.append((t, outcomes))
    return answers


def cell_of(db: Recorder, row: RowKey) -> int:
    """Where a row is. The table is not resharded meanwhile."""
    route = db.session.routing.find(row.table)
    assert route is not None, "the table was used a moment ago"
    cell = route.tablet_of(Key(row.key)).cell
    assert cell is not None, "the table is mounted"
    return cell


def check_outcomes(answers: Answers, history: History, dump: Iterable[Version]) -> list[Violation]:
    """Committed are just those whose rows are there. Of what is forgotten nothing is said."""
    found = {t.name: at for t, at in attribute(history.transactions, dump).committed}
    violations = []
    for t, outcomes in answers:
        said = [outcome.timestamp for outcome in outcomes if outcome.state == "committed"]
        is_forgotten = any(outcome.state == "unknown" for outcome in outcomes)
        there = [found[t.name]] if t.name in found else []
        if said != there and not (is_forgotten and not said):
            text = f"{t.name} was committed at {said}, say the cells; the rows say {there}"
            violations.append(Violation("ATOMICITY", text))
    return violations


def _is_askable(t: Transaction) -> bool:
    """Not of those whose deletions might be another's."""
    return is_unsure(t) and any(write.columns is not None for write in t.writes)
