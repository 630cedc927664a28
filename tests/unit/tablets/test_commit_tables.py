"""The two tables of the commit protocol: complete, and entry by entry those of the document."""

import re
from pathlib import Path
from typing import Any, Final

import pytest

from dodona_tablets.core.commit import coordinator, participant
from dodona_tablets.core.commit.coordinator import CoordinatorEvent
from dodona_tablets.core.commit.participant import ParticipantEvent
from dodona_tablets.core.tablet.transaction import State

DOCUMENT: Final = (
    Path(__file__).resolve().parents[3] / "docs" / "explanation" / "commit-protocol.md"
)
TABLES: Final[dict[str, tuple[Any, Any]]] = {
    "event at a participant": (ParticipantEvent, participant.TABLE),
    "event at the coordinator": (CoordinatorEvent, coordinator.TABLE),
}
WORDS: Final = {
    "ignored": {"_ignore"},
    "violation": {"_violation", "_answer_violation"},
    "undecided": {"_peek_undecided"},
}
"""What an entry of the document says in one word, and who may do it in the code."""


def documented(title: str) -> dict[str, list[str]]:
    """A table of the document: its entries, from left to right, by event."""
    lines = DOCUMENT.read_text().splitlines()
    at = next(at for at, line in enumerate(lines) if line.startswith(f"| {title} |"))
    rows: dict[str, list[str]] = {}
    for line in [lines[at], *lines[at + 2 :]]:
        if not line.startswith("|"):
            break
        name, *entries = [cell.strip() for cell in re.split(r"\|", line)[1:-1]]
        rows[name] = entries
    return rows


@pytest.mark.parametrize("title", TABLES)
def test_every_event_has_an_entry_for_every_state(title: str) -> None:
    events, table = TABLES[title]
    for event in events:
        for state in State:
            assert callable(table[event][state]), (event, state)
    assert list(table) == list(events)
    assert all(list(row) == list(State) for row in table.values())


@pytest.mark.parametrize("title", TABLES)
def test_the_document_has_the_same_events_and_states_in_the_same_order(title: str) -> None:
    events, _ = TABLES[title]
    header, *rows = documented(title).items()
    assert header == (title, [state.value for state in State])
    assert [name for name, _ in rows] == [event.value for event in events]
    assert all(all(entries) for _, entries in rows)


@pytest.mark.parametrize("title", TABLES)
def test_the_code_and_the_document_agree_on_ignored_and_impossible_events(title: str) -> None:
    events, table = TABLES[title]
    rows = documented(title)
    for event in events:
        for state, entry in zip(State, rows[event.value], strict=True):
            does = table[event][state].__name__
            for word, doers in WORDS.items():
                assert (entry == word) == (does in doers), (event, state, entry, does)


@pytest.mark.parametrize("title", TABLES)
def test_equal_entries_of_a_row_are_done_by_the_same_handler(title: str) -> None:
    events, table = TABLES[title]
    rows = documented(title)
    for event in events:
        handlers: dict[str, set[str]] = {}
        for state, entry in zip(State, rows[event.value], strict=True):
            handlers.setdefault(entry, set()).add(table[event][state].__name__)
        assert all(len(names) == 1 for names in handlers.values()), handlers
