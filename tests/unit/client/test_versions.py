"""Versioned lookups: what is asked of which cell, and the histories that come of the answers."""

from typing import Any

import pytest

from dodona import SYNC_LAST_COMMITTED, VersionedRow, VersionedValue
from dodona._core.messages import LookupVersions, Reply, Request, RowVersion, VersionedRows
from dodona._core.session import Session
from dodona._core.steps import MASTER, Target
from dodona.errors import InvalidRequest, SchemaViolation
from dodona.schema import Column
from dodona.types import Key, Timestamp
from unit.client.protocols import (
    COLUMNS,
    MOVED,
    PATH,
    Clock,
    Play,
    key,
    new_session,
    nobody,
    play,
    table,
    unchanged,
)

COUNTED = (COLUMNS[0], Column("value", "int64", aggregate="sum"), COLUMNS[2])
WRITTEN = RowVersion(Timestamp(10), 0b11, (1, "one"))
CHANGED = RowVersion(Timestamp(20), 0b01, (5,), 0b01)
DELETED = RowVersion(Timestamp(30), 0, (), is_delete=True)
AGAIN = RowVersion(Timestamp(40), 0b11, (2, None))
HISTORY = (AGAIN, DELETED, CHANGED, WRITTEN)
EXPECTED = VersionedRow(
    {"id": 1},
    [Timestamp(40), Timestamp(20), Timestamp(10)],
    [Timestamp(30)],
    {
        "value": [
            VersionedValue(Timestamp(40), 2),
            VersionedValue(Timestamp(20), 5, True),
            VersionedValue(Timestamp(10), 1),
        ],
        "note": [VersionedValue(Timestamp(40), None), VersionedValue(Timestamp(10), "one")],
    },
)


def fresh() -> tuple[Clock, Session]:
    clock = Clock()
    return clock, new_session(clock, table(columns=COUNTED))


def answering(histories: dict[Key, tuple[RowVersion, ...]]) -> Any:
    def answer(target: Target, body: Request) -> Reply:
        assert isinstance(body, LookupVersions)
        return VersionedRows(tuple([histories.get(it, ()) for it in body.keys]))

    return answer


def test_a_row_has_its_history_newest_first() -> None:
    clock, session = fresh()
    found = play(clock, session.lookup_versions(PATH, [{"id": 1}]), answering({key(1): HISTORY}))
    assert found == [EXPECTED]


def test_rows_come_in_the_order_of_their_keys_and_repeated() -> None:
    clock, session = fresh()
    answer = answering({key(1): HISTORY, key(100): (DELETED,)})
    keys = [{"id": it} for it in (100, 7, 1, 1)]
    gone = VersionedRow({"id": 100}, [], [Timestamp(30)], {})
    assert play(clock, session.lookup_versions(PATH, keys), answer) == [gone, EXPECTED, EXPECTED]
    kept = play(clock, session.lookup_versions(PATH, keys, keep_missing=True), answer)
    assert kept == [gone, None, EXPECTED, EXPECTED]


def test_a_choice_of_columns_keeps_the_timestamps() -> None:
    clock, session = fresh()
    it = Play(clock, session.lookup_versions(PATH, [{"id": 1}], ["note"]))
    _, body = it.call
    assert isinstance(body, LookupVersions)
    assert (body.column_mask, body.timestamp) == (0b10, SYNC_LAST_COMMITTED)
    masked = (
        RowVersion(Timestamp(40), 0b10, (None,)),
        DELETED,
        RowVersion(Timestamp(20), 0, ()),
        RowVersion(Timestamp(10), 0b10, ("one",)),
    )
    it.answer(VersionedRows((masked,)))
    (row,) = it.result
    assert row.write_timestamps == EXPECTED.write_timestamps
    assert row.delete_timestamps == EXPECTED.delete_timestamps
    assert row.values == {"note": EXPECTED.values["note"]}
    assert row.key == {"id": 1}


def test_wide_tables_have_their_masks_in_bytes() -> None:
    clock = Clock()
    columns = [Column(f"v{at}", "int64", aggregate="sum") for at in range(70)]
    session = new_session(clock, table(columns=(COLUMNS[0], *columns)))
    it = Play(clock, session.lookup_versions(PATH, [{"id": 1}]))
    mask = (1 << 69).to_bytes(9, "little")
    it.answer(VersionedRows(((RowVersion(Timestamp(9), mask, (5,), mask),),)))
    (row,) = it.result
    assert row.values == {"v69": [VersionedValue(Timestamp(9), 5, True)]}


def test_a_timestamp_is_passed_on_and_checked() -> None:
    clock, session = fresh()
    _, body = Play(clock, session.lookup_versions(PATH, [{"id": 1}], timestamp=Timestamp(7))).call
    assert isinstance(body, LookupVersions)
    assert body.timestamp == 7
    with pytest.raises(InvalidRequest, match="Invalid read timestamp"):
        play(clock, session.lookup_versions(PATH, [], timestamp=Timestamp(0)), nobody)


def test_bad_keys_and_columns_are_refused() -> None:
    (clock, session), master = fresh(), unchanged(table(columns=COUNTED))
    with pytest.raises(SchemaViolation, match="takes an int"):
        play(clock, session.lookup_versions(PATH, [{"id": "x"}]), master)
    with pytest.raises(SchemaViolation, match="no such column"):
        play(
            clock,
            session.lookup_versions(PATH, [{"id": 1}], ["x"]),
            unchanged(table(columns=COUNTED)),
        )


def test_it_follows_a_tablet_that_moved() -> None:
    clock, session = fresh()
    it = Play(clock, session.lookup_versions(PATH, [{"id": 1}]))
    it.answer(MOVED)
    it.wait()
    assert it.call[0] == MASTER
    it.answer(table(columns=COUNTED))
    it.answer(VersionedRows((HISTORY,)))
    assert it.result == [EXPECTED]
