"""Compaction: what is copied, what is held, what is handed over row by row, and what is damaged."""

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import pytest

from dodona.errors import DataCorrupted
from dodona.schema import Column, TableSchema
from dodona.types import KEY_MAX, KEY_MIN, MAX_TIMESTAMP, TableSettings, Timestamp
from dodona_tablets.core.rows import retention
from dodona_tablets.core.rows.chunks import retiring
from dodona_tablets.core.rows.chunks.compacting import compacted
from dodona_tablets.core.rows.chunks.layout import layout_of
from dodona_tablets.core.rows.retention import Terms
from dodona_tablets.core.rows.version import Version
from unit.tablets.chunks.making import (
    SCHEMA,
    at,
    batches_of,
    deletion,
    key,
    made,
    made_of,
    rows_of_batches,
)

A, B, SUM = 1, 2, 4


def terms(retained: int, *, expired: int = 0, major: int = MAX_TIMESTAMP, least: int = 1) -> Terms:
    settings = TableSettings(min_data_versions=least, max_data_versions=1)
    return Terms(Timestamp(retained), Timestamp(expired), settings, Timestamp(major))


def versions_of(found: Sequence[pa.RecordBatch], schema: TableSchema = SCHEMA) -> dict[Any, Any]:
    """Timestamp, mask and values of each version, newest first, by key."""
    rows: dict[Any, Any] = {}
    for number, newest in rows_of_batches(schema, found):
        version: Any = newest
        row = rows.setdefault(schema.decode_key(number)[0], [])
        while version is not None:
            row.append(version[:3])
            version = version[3]
    return rows


def stamps(found: Sequence[pa.RecordBatch]) -> dict[Any, list[int]]:
    return {number: [it[0] for it in row] for number, row in versions_of(found).items()}


def partial(timestamp: int, mask: int, *values: Any, deltas: int = 0, shared: int = 0) -> Version:
    if deltas or shared:
        return Timestamp(timestamp), mask, values, None, deltas, shared
    return Timestamp(timestamp), mask, values, None


@pytest.fixture
def by_hand(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many versions each row had that was retired alone."""
    found: list[int] = []

    def retire_all(versions: list[Any], *arguments: Any) -> bool:
        found.append(len(versions))
        return retention.retire_all(versions, *arguments)

    monkeypatch.setattr(retiring, "retire_all", retire_all)
    return found


# ---- nothing is copied


@pytest.mark.parametrize("limits", [None, terms(1), terms(99), terms(99, expired=99)])
def test_rows_of_one_write_pass_as_they_are(limits: Terms | None) -> None:
    source = batches_of({key(number): [at(5)] for number in range(10)}, 4)
    found = list(compacted(SCHEMA, [source], limits))
    assert len(found) == len(source)
    for new, old in zip(found, source, strict=True):
        for mine, theirs in zip(new.columns, old.columns, strict=True):
            assert [it and it.address for it in mine.buffers()] == [
                it and it.address for it in theirs.buffers()
            ]


def test_a_compaction_does_not_copy_young_versions() -> None:
    source = batches_of({key(1): [deletion(7), at(6)]})
    (found,) = compacted(SCHEMA, [source], terms(6))
    assert found is source[0] or found.column("a").buffers()[1].address == (
        source[0].column("a").buffers()[1].address
    )


# ---- what is held


def test_sources_are_taken_one_batch_ahead() -> None:
    taken = []

    def source(stamp: int) -> Iterator[pa.RecordBatch]:
        for batch in batches_of({key(number): [at(stamp)] for number in range(100)}, 10):
            taken.append(batch.num_rows)
            yield batch

    row_count = 0
    for batch in compacted(SCHEMA, [source(1), source(2)]):
        row_count += batch.num_rows
        assert sum(taken) <= row_count + 2 * 2 * 10
    assert row_count == 200


# ---- what stays


def test_by_default_the_newest_old_version_and_all_younger_versions_stay() -> None:
    old = {key(1): [at(3), at(2)], key(2): [deletion(3), at(2)], key(3): [at(2)]}
    new = {key(1): [at(9), at(8), at(4)], key(2): [at(9)], key(4): [deletion(4)]}
    found = list(compacted(SCHEMA, [batches_of(old), batches_of(new)], terms(8)))
    assert stamps(found) == {1: [9, 8, 4], 2: [9], 3: [2]}


def test_a_deletion_stays_while_other_chunks_may_have_the_deleted_versions() -> None:
    new = {key(1): [deletion(5), at(4)], key(2): [deletion(3)]}
    assert stamps(list(compacted(SCHEMA, [batches_of(new)], terms(8, major=2)))) == {1: [5], 2: [3]}
    assert stamps(list(compacted(SCHEMA, [batches_of(new)], terms(8, major=4)))) == {1: [5]}
    assert stamps(list(compacted(SCHEMA, [batches_of(new)], terms(8, major=6)))) == {}


def test_an_expired_version_stays_while_it_may_hide_another_version() -> None:
    limits = {"expired": 7, "least": 0}
    source = [batches_of({key(1): [at(5)], key(2): [at(7)]})]
    assert stamps(list(compacted(SCHEMA, source, terms(8, **limits)))) == {2: [7]}
    assert stamps(list(compacted(SCHEMA, source, terms(8, major=3, **limits)))) == {1: [5], 2: [7]}


def test_a_version_that_younger_changes_may_need_does_not_expire() -> None:
    rows = {key(1): [partial(9, SUM, 2.0, deltas=SUM), at(4)], key(2): [at(9), at(4)]}
    source = batches_of({**rows, key(3): [at(4)]}, has_specials=True)
    found = list(compacted(SCHEMA, [source], terms(8, expired=7, least=0)))
    assert versions_of(found)[1] == [(9, SUM, (2.0,)), (4, SUM, (0.5,))]
    assert stamps(found) == {1: [9, 4], 2: [9, 4]}


# ---- row by row


def test_whole_and_partial_writes_are_retired_together(by_hand: list[int]) -> None:
    rows = {key(1): [partial(5, A | B, 1, "n"), partial(4, B, "o"), at(3, b="p", c=1.5)]}
    found = list(compacted(SCHEMA, [batches_of(rows)], terms(8)))
    assert versions_of(found) == {1: [(5, A | B, (1, "n")), (3, SUM, (1.5,))]}
    assert by_hand == []


def test_only_rows_with_old_changes_are_retired_alone(by_hand: list[int]) -> None:
    changed = partial(5, SUM, 2.0, deltas=SUM)
    rows = {
        key(1): [at(4), at(2)],
        key(2): [changed, at(4, c=1.0), at(3)],
        key(3): [partial(9, SUM, 2.0, deltas=SUM), at(4), at(3)],
        key(4): [partial(5, A, 7, shared=1), at(4)],
    }
    found = list(compacted(SCHEMA, [batches_of(rows, has_specials=True)], terms(8)))
    assert by_hand == [3]
    assert versions_of(found)[2] == [(5, SUM, (3.0,)), (4, A | B, (0, "x"))]
    assert stamps(found) == {1: [4], 2: [5, 4], 3: [9, 4], 4: [5, 4]}
    deltas = [it for batch in found for it in batch.column("$delta").to_pylist()]
    shared = [it for batch in found for it in batch.column("$shared").to_pylist()]
    assert deltas == [0, 0, 0, SUM, 0, 0, 0]
    assert shared == [0] * 7


def test_changes_stay_changes_while_other_chunks_may_have_the_changed_values() -> None:
    rows = {key(1): [partial(5, SUM, 2.0, deltas=SUM), at(4, c=1.0)]}
    found = list(compacted(SCHEMA, [batches_of(rows, has_specials=True)], terms(8, major=3)))
    assert stamps(found) == {1: [5, 4]}
    assert found[0].column("$delta").to_pylist() == [SUM, 0]


def test_versions_from_before_a_column_was_added_are_no_exception(by_hand: list[int]) -> None:
    old = made_of({key(1): [at(4), at(3)], key(2): [at(4)]})
    wider = TableSchema.parse([*SCHEMA.columns, Column("new", "int64")])
    view = old.view(wider)
    found = list(compacted(wider, [view.batches(KEY_MIN, KEY_MAX)], terms(8)))
    assert versions_of(found, wider) == {
        1: [(4, SCHEMA.full_mask, (0, "x", 0.5))],
        2: [(4, SCHEMA.full_mask, (0, "x", 0.5))],
    }
    assert by_hand == []


# ---- layout and damage


def test_all_batches_have_the_specialities_that_any_has() -> None:
    plain = batches_of({key(1): [at(5)], key(9): [at(5)]}, 1)
    special = batches_of({key(9): [partial(8, SUM, 2.0, deltas=SUM, shared=4)]}, has_specials=True)
    found = list(compacted(SCHEMA, [plain, special]))
    assert [layout_of(it.schema.names) for it in found] == ["special"] * len(found)
    whole = pa.Table.from_batches(found)
    assert whole.column("$shared").to_pylist() == [0, 4, 0]


def test_the_result_of_a_compaction_can_be_written_as_a_chunk() -> None:
    first = made_of({key(number): [at(5)] for number in range(0, 50, 2)})
    second = made_of({key(number): [at(6), at(4)] for number in range(0, 50, 3)})
    views = [it.view() for it in (first, second)]
    sources = [view.batches(KEY_MIN, KEY_MAX) for view in views]
    both = made(compacted(SCHEMA, sources, terms(5))).view()
    assert [it[0] for it in both.versions(key(6), MAX_TIMESTAMP)] == [6, 5, 4]
    assert both.chunk.info.row_count == 25 + 2 * 17


def test_a_version_in_two_chunks_is_damage() -> None:
    source = batches_of({key(1): [at(5)], key(2): [at(5)]})
    other = batches_of({key(2): [at(6), at(5)]})
    with pytest.raises(DataCorrupted) as caught:
        list(compacted(SCHEMA, [source, other], terms(9)))
    assert caught.value.attributes == {"key": (2,), "timestamp": 5}


def test_nothing_comes_of_nothing() -> None:
    assert list(compacted(SCHEMA, [])) == list(compacted(SCHEMA, [[], []], terms(5))) == []
