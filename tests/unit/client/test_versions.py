"""Versioned lookups: what is asked of which cell, and the histories that come of the answers."""

from typing import Any

import pytest

from dodona import SYNC_LAST_COMMITTED, VersionedRow, VersionedValue
from dodona._core.protocol.steps import MASTER, Target
from dodona._core.session import Session
from dodona.errors import InvalidRequest, SchemaViolation
from dodona.schema import Column
from dodona.types import Key, Timestamp
from dodona_wire.messages.data import LookupVersions, RowVersion, VersionedRows
from dodona_wire.messages.families import Reply, Request
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


def test_lookup_versions_returns_the_versions_of_a_row_newest_first() -> None:
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


def test_lookup_versions_follows_a_moved_tablet() -> None:
    clock, session = fresh()
    it = Play(clock, session.lookup_versions(PATH, [{"id": 1}]))
    it.answer(MOVED)
    it.wait()
    assert it.call[0] == MASTER
    it.answer(table(columns=COUNTED))
    it.answer(VersionedRows((HISTORY,)))
    assert it.result == [EXPECTED]


def versions_of(count: int, first: int = 1) -> tuple[RowVersion, ...]:
    """Newest first."""
    return tuple(
        [RowVersion(Timestamp(at), 0b1, (at,)) for at in range(first, first + count)][::-1]
    )


def paged(page_size: int, histories: dict[Key, tuple[RowVersion, ...]]) -> Any:
    """Answers as a tablet's, so many versions at a time. Notes how many pages there were."""

    def answer(_: Target, body: Request) -> Reply:
        assert isinstance(body, LookupVersions)
        room, rows, cut = page_size, [], []
        for place, one in enumerate(body.keys):
            below = min([it for it in (body.below, body.first_below * (place == 0)) if it] or [999])
            found = [it for it in histories[one] if body.since < it.timestamp < below]
            shown = found[: min(room, body.count_max or room)]
            rows.append(tuple(shown))
            room -= len(shown)
            if len(shown) < len(found) and len(shown) == body.count_max:
                cut.append(place)
            elif len(shown) < len(found):
                return VersionedRows(tuple(rows), True, tuple(cut), True)
            if not room:
                break
        return VersionedRows(tuple(rows), False, tuple(cut), True)

    return answer


@pytest.mark.parametrize("page_size", [1, 2, 3, 7, 100])
@pytest.mark.parametrize("limit", [None, 1, 4, 5, 50])
def test_pages_of_versions_are_put_together(page_size: int, limit: int | None) -> None:
    clock, session = fresh()
    histories = {key(1): versions_of(10), key(2): versions_of(1, 50), key(3): versions_of(4, 20)}
    keys = [{"id": 1}, {"id": 2}, {"id": 3}, {"id": 1}]
    lookup = session.lookup_versions(PATH, keys, limit=limit)
    found = play(clock, lookup, paged(page_size, histories))
    for row, given in zip(found, keys, strict=True):
        stamps = [version.timestamp for version in histories[key(given["id"])]]
        assert row.write_timestamps == stamps[:limit]
        is_cut = limit is not None and limit < len(stamps)
        assert row.more_below == (stamps[limit - 1] if is_cut and limit else None)


def test_bounds_of_versions_are_passed_on_and_checked() -> None:
    clock, session = fresh()
    it = Play(clock, session.lookup_versions(PATH, [{"id": 1}], since=3, below=9, limit=2))  # type: ignore[arg-type]
    _, body = it.call
    assert isinstance(body, LookupVersions)
    assert (body.since, body.below, body.count_max, body.first_below) == (3, 9, 2, 0)
    for wrong in ({"since": "x"}, {"since": -1}, {"below": 0}, {"limit": 0}, {"limit": True}):
        with pytest.raises(InvalidRequest):
            play(clock, session.lookup_versions(PATH, [{"id": 1}], **wrong), nobody)


def test_a_cell_of_an_older_release_is_not_asked_for_a_part_of_a_history() -> None:
    """It would answer with all of it."""
    cell = answering({key(1): HISTORY})

    def answer(target: Target, body: Request) -> Reply:
        return table(columns=COUNTED) if target == MASTER else cell(target, body)

    for bounds in ({"since": 15}, {"below": 15}, {"limit": 1}):
        clock, session = fresh()
        assert play(clock, session.lookup_versions(PATH, [{"id": 1}]), answer) == [EXPECTED]
        lookup = session.lookup_versions(PATH, [{"id": 1}], **bounds)  # type: ignore[arg-type]
        with pytest.raises(InvalidRequest, match="Upgrade the nodes"):
            play(clock, lookup, answer)
