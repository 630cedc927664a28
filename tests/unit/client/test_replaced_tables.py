"""Reads of a path where another table is by now: its rows and those of the one before never mix."""

from typing import Any

import pytest

from dodona._core.protocol.steps import MASTER, Target
from dodona.types import Timestamp
from dodona_wire.messages.data import Lookup, LookupReply, Scan, ScanPage
from dodona_wire.messages.families import Reply, Request
from unit.client.protocols import MOVED, PATH, PIVOT, Clock, key, new_session, play, table, tablet

HERE, THERE, ELSEWHERE = 0, 1, 5
"""Cells: of each half of the table, and of the tablets that the master names when it is asked."""
NEW_HOME = (tablet(20, ELSEWHERE, None), tablet(21, ELSEWHERE, PIVOT))
READ_AT = Timestamp(9)


@pytest.mark.parametrize(
    ("its_id", "found"),
    [(1, [1]), (0, [1]), (2, [])],
    ids=["the same table", "an older master does not say", "another table"],
)
@pytest.mark.parametrize("name", ["select", "lookup"])
def test_a_read_never_mixes_rows_of_a_table_and_its_replacement(
    name: str, its_id: int, found: list[int]
) -> None:
    """The next one is empty: half of the rows was missing."""
    clock = Clock()
    session = new_session(clock, table(its_id=1))

    def answer(target: Target, body: Request) -> Reply:
        if target == MASTER:
            return table(NEW_HOME, its_id=its_id)
        if target == THERE:
            return MOVED
        row = (10, None) if target == HERE else None
        if isinstance(body, Lookup):
            return LookupReply((row,))
        assert isinstance(body, Scan)
        return ScanPage((key(1),), (row,), None) if row else ScanPage((), (), None)

    asked: dict[str, Any] = {
        "select": session.select(PATH, timestamp=READ_AT),
        "lookup": session.lookup_rows(PATH, [{"id": 1}, {"id": PIVOT}], timestamp=READ_AT),
    }
    assert [it["id"] for it in play(clock, asked[name], answer)] == found
