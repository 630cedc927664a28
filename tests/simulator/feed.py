"""Somebody who follows a run's tables by what has changed, and is given every version once.

Owns: the follower, and how what it was given is judged by the final dump. It reads on from where it
was, under the same faults as everybody. It uses sessions' protocols, and writes nothing.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final

from dodona._core.protocol.steps import Pause, Protocol
from dodona._core.session import Session
from dodona.errors import DodonaError
from dodona_loadtest.checkers.violation import Violation
from dodona_loadtest.histories.history import RowKey, Version
from dodona_loadtest.histories.shape import TableShape

PAUSE_MS: Final = 150

Fed = tuple[RowKey, int, tuple[str, ...] | None]
"""A row, when it was changed, and the names of the columns that were set; None for a deletion."""


class Follower:
    """Of all tables of one run."""

    def __init__(self, tables: Sequence[TableShape]) -> None:
        self._tables = tables
        self._until = {table.path: 1 for table in tables}
        self._fed: list[Fed] = []
        self.page_count = 0

    def follow(self, session: Session, is_ending: Callable[[], bool]) -> Protocol[None]:
        """Until the faults end. What can't be read now is read later."""
        while not is_ending():
            yield Pause(PAUSE_MS)
            try:
                yield from self.catch_up(session)
            except DodonaError:
                continue

    def catch_up(self, session: Session) -> Protocol[None]:
        """Everything up to now."""
        for table in self._tables:
            pages = yield from session.read_changes(table.path, self._until[table.path])
            fed: list[Fed] = []
            while not pages.is_over:
                fed += _fed_of(table, (yield from pages.next()))
                self.page_count += 1
            self._fed += fed
            self._until[table.path] = pages.timestamp

    def check(self, dump: Iterable[Version]) -> list[Violation]:
        """What was given must be what there is."""
        kept = [it for it in dump if it.timestamp <= self._until[it.row.table]]
        there = Counter(map(_as_fed, kept))
        given = Counter(self._fed)
        return [
            *_violations("was never given to who follows", there - given),
            *_violations("was given to who follows, and is not there so often", given - there),
        ]


def _violations(text: str, found: Counter[Fed]) -> Iterator[Violation]:
    for row, timestamp, columns in found:
        yield Violation("FEED", f"the change of {row} at {timestamp} ({columns}) {text}")


def _as_fed(version: Version) -> Fed:
    columns = version.columns
    names = None if columns is None else tuple([name for name, _ in columns])
    return version.row, version.timestamp, names


def _fed_of(table: TableShape, page: Any) -> Iterator[Fed]:
    everything = sorted([column.name for column in table.value_columns])
    for row in page.to_pylist():
        names = everything if row["$columns"] is None else sorted(row["$columns"])
        is_deletion = row["$change_type"] == "delete"
        yield table.row_key(row), row["$timestamp"], None if is_deletion else tuple(names)
