"""What changed while a load ran: which of it is a conflict, before its seal and behind it."""

from typing import Any

import pytest

from dodona.errors import (
    ConcurrentAppend,
    ConcurrentDeleteDelete,
    ConcurrentDeleteRead,
    DuplicateKey,
    LoadEnded,
    RowNotFound,
    SnapshotTooOld,
)
from dodona.types import KEY_MAX, KEY_MIN, CellId, Key, LoadMode, TableSettings
from dodona_tablets.core.tablet import publishing
from dodona_wire.messages.base import Failure
from dodona_wire.messages.data import Committed
from dodona_wire.messages.loads import LoadHeld
from unit.tablets.cells import ATOMIC, Bench, delete, put
from unit.tablets.loads import Loading, failure

CELL = CellId(0)


def kind_of(reply: Any) -> str:
    return failure(reply).kind


def conflict(
    mode: LoadMode, *, is_sealed_before: bool, is_deleted: bool, **erased: Any
) -> str | None:
    """The kind of error of a load of row 1 and, perhaps, an erased range with rows 1 and 5, when
    one of them is changed after its start."""
    bench = Bench()
    if mode != "insert":
        bench.commit(put(1, 1), put(5, 5))
    load = Loading(bench, mode)
    load.erased = erased.get("ranges", ())
    kinds: Any = {"update": "update", "delete": "delete"}
    chunk = load.stage({1: 10}, kind=kinds.get(mode, "write"))
    number = erased.get("number", 1)
    change = delete(number) if is_deleted else put(number, 99)
    if is_sealed_before:
        load.seal(chunk)
        bench.commit(change)
        reply = load.publish()
    else:
        bench.commit(change)
        reply = load.try_seal(chunk)
    return reply.kind if isinstance(reply, Failure) else None


ALL: tuple[tuple[Key, Key], ...] = ((KEY_MIN, KEY_MAX),)


@pytest.mark.parametrize("is_sealed_before", [False, True])
@pytest.mark.parametrize(
    ("mode", "is_deleted", "erased", "kind"),
    [
        ("upsert", False, {}, ConcurrentAppend.kind),
        ("upsert", True, {}, ConcurrentAppend.kind),
        ("insert", False, {}, ConcurrentAppend.kind),
        ("update", False, {}, ConcurrentAppend.kind),
        ("update", True, {}, ConcurrentDeleteRead.kind),
        ("delete", False, {}, ConcurrentAppend.kind),
        ("delete", True, {}, ConcurrentDeleteDelete.kind),
        ("upsert", False, {"number": 5}, None),
        ("upsert", False, {"number": 5, "ranges": ALL}, ConcurrentAppend.kind),
        ("upsert", False, {"number": 7, "ranges": ALL}, ConcurrentAppend.kind),
        ("upsert", True, {"number": 5, "ranges": ALL}, ConcurrentDeleteRead.kind),
    ],
)
def test_a_row_that_changed_during_a_load_is_a_conflict(
    mode: LoadMode, is_deleted: bool, erased: Any, kind: str | None, is_sealed_before: bool
) -> None:
    found = conflict(mode, is_sealed_before=is_sealed_before, is_deleted=is_deleted, **erased)
    assert found == kind


def test_a_load_conflicts_with_another_published_load_of_the_same_row() -> None:
    bench = Bench()
    first, second, apart = Loading(bench), Loading(bench), Loading(bench)
    first.bring({1: 1, 2: 2})
    second.bring({2: 3, 3: 3})
    apart.bring({7: 7})
    assert isinstance(second.publish(), Committed)
    refused = failure(first.publish())
    assert refused.kind == ConcurrentAppend.kind
    assert refused.attributes["key"] == {"id": 2}
    assert isinstance(apart.publish(), Committed)
    assert kind_of(first.try_seal(*first.sealed[0].chunks)) == ConcurrentAppend.kind


def test_a_load_that_overlaps_a_large_published_load_must_be_sealed_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """To look at its rows one by one would stop the cell for as long as that takes."""
    monkeypatch.setattr(publishing, "COMPARED_MAX", 3)
    bench = Bench()
    first, second = Loading(bench), Loading(bench)
    second.bring({2: 2, 4: 4, 6: 6, 8: 8})
    apart = first.stage({9: 9, 11: 11})
    first.seal(apart)
    assert isinstance(second.publish(), Committed)
    assert isinstance(first.publish(), Committed)
    third, fourth = Loading(bench), Loading(bench)
    fourth.bring({2: 2, 4: 4, 6: 6, 8: 8})
    between = third.stage({3: 3, 5: 5})
    third.seal(between)
    assert isinstance(fourth.publish(), Committed)
    assert kind_of(third.publish()) == SnapshotTooOld.kind
    third.seal(between)
    assert isinstance(third.publish(), Committed)


@pytest.mark.parametrize("change", [put(5, 99), put(7, 7), delete(5)])
def test_a_change_after_the_seal_of_an_erasing_load_requires_a_new_seal(change: Any) -> None:
    """It is no conflict, but the deletions of the seal are not those that are needed now."""
    bench = Bench()
    bench.commit(put(1, 1), put(5, 5))
    load = Loading(bench, overwrites=True)
    load.erased = ALL
    load.bring({1: 10})
    bench.commit(change)
    assert kind_of(load.publish()) == SnapshotTooOld.kind
    load.seal(load.sealed[0].chunks[0])
    assert isinstance(load.publish(), Committed)
    assert [bench.read(it) for it in (1, 5, 7)] == [(10, None), None, None]


def test_the_deletion_of_a_row_that_was_not_there_is_no_conflict_behind_a_seal_either() -> None:
    bench = Bench()
    load = Loading(bench)
    load.erased = ALL
    chunk = load.stage({1: 10})
    load.seal(chunk)
    bench.commit(delete(5))
    assert kind_of(load.publish()) == SnapshotTooOld.kind
    load.seal(chunk)
    assert isinstance(load.publish(), Committed)


def test_a_commit_from_before_the_start_of_a_load_that_arrives_late_is_no_conflict() -> None:
    """The tablet's part of a transaction of several cells was told late of its commit."""
    bench = Bench(2)
    writer = bench.begin()
    for cell in (0, 1):
        bench.prepare(writer, put(1, 1), cell=cell)
    bench.answer_oracle()
    at = bench.timestamp()
    load = Loading(bench)
    chunk = load.stage({1: 10})
    load.seal(chunk)
    bench.decide(writer, at)
    bench.settle()
    assert isinstance(load.publish(), Committed)
    assert bench.read(1) == (10, None)


def test_a_load_that_is_being_published_is_not_over() -> None:
    """Only what is in the log outlasts a restart: until then nobody is told that it is closed."""
    bench = Bench()
    load = Loading(bench)
    load.bring({1: 1})
    late = load.request("write", {2: 2})
    bench.holds_jobs = True
    batch = bench.ask(late)
    route = load.ask_publish()
    assert load.close() != LoadHeld(0)
    bench.finish_jobs()
    assert kind_of(bench.answer(batch)) == LoadEnded.kind
    assert kind_of(load.ask(load.request("write", {3: 3}))) == LoadEnded.kind
    bench.answer_oracle()
    assert isinstance(bench.answer(route), Committed)
    bench.pass_time(1)
    assert load.close() == LoadHeld(0)


def test_nothing_is_a_conflict_for_a_load_that_overwrites() -> None:
    bench = Bench()
    load = Loading(bench, overwrites=True)
    chunk = load.stage({1: 1})
    bench.commit(put(1, 100))
    load.seal(chunk)
    bench.commit(put(1, 200))
    assert isinstance(load.publish(), Committed)
    assert bench.read(1) == (1, None)


@pytest.mark.parametrize(
    ("mode", "there", "kind"),
    [("insert", True, DuplicateKey.kind), ("update", False, RowNotFound.kind)],
)
def test_rows_that_must_not_or_must_be_there(mode: LoadMode, there: bool, kind: str) -> None:
    bench = Bench()
    if there:
        bench.commit(put(1, 1))
    load = Loading(bench, mode, overwrites=True)
    staged = load.stage({1: 1}, kind="update" if mode == "update" else "write")
    assert kind_of(load.try_seal(staged)) == kind
    assert bench.nodes[CELL].cell.tablets[ATOMIC].active_count == 0


def test_rows_that_are_published_are_flushed_and_compacted_like_all() -> None:
    settings = TableSettings(dynamic_store_auto_flush_period=1_000)
    bench = Bench(settings=settings)
    for value in range(8):
        load = Loading(bench, overwrites=True)
        load.bring({1: value, value + 10: value})
        load.publish()
        bench.commit(put(2, value))
        bench.pass_time(15)
        bench.answer_oracle()
    assert bench.nodes[CELL].statistics().compacted
    assert [bench.read(it) for it in (1, 2, 13)] == [(7, None), (7, None), (3, None)]
    bench.start(CELL)
    bench.assign(CELL, bench.tables)
    assert [bench.read(it) for it in (1, 2, 13)] == [(7, None), (7, None), (3, None)]
