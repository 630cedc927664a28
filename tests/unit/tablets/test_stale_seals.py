"""Loads whose rows were changed between the seal and the publication."""

import pytest

from dodona.errors import ConcurrentAppend, ProtocolChanged, SnapshotTooOld
from dodona.types import CellId, LoadMode, TableSettings, Timestamp
from dodona_wire.messages.data import Committed
from dodona_wire.messages.loads import LoadSealed
from unit.tablets.cells import Bench, delete, key, put
from unit.tablets.loads import Loading, failure

CELL = CellId(0)


def test_a_seal_survives_a_flush_but_expires_when_changes_are_no_longer_known() -> None:
    settings = TableSettings(dynamic_store_auto_flush_period=1_000)
    bench = Bench(settings=settings)
    load = Loading(bench)
    load.bring({1: 1})
    bench.commit(put(5, 5))
    bench.pass_time(10)
    assert bench.nodes[CELL].cell.chunks.open
    sealed = load.sealed[0]
    for _ in range(9):
        bench.pass_time(10)
        bench.answer_oracle()
        load.open()
    refused = failure(load.publish())
    assert refused.kind == SnapshotTooOld.kind
    assert "sealed again" in refused.message
    load.seal(*sealed.chunks)
    bench.commit(put(6, 6))
    bench.pass_time(10)
    assert isinstance(load.publish(), Committed)
    assert bench.read(1) == (1, None)


@pytest.mark.parametrize("is_deleted", [False, True])
def test_a_load_that_overwrites_must_be_sealed_again_after_a_change(is_deleted: bool) -> None:
    """Somebody may have prepared a row before the seal, and heard of the decision after it."""
    bench = Bench()
    bench.commit(put(3, 3))
    load = Loading(bench, overwrites=True)
    load.erased = ((key(1), key(9)),)
    staged = load.stage({2: 2})
    load.seal(staged)
    bench.commit(delete(3) if is_deleted else put(4, 4))
    refused = failure(load.publish())
    assert refused.kind == SnapshotTooOld.kind
    assert "changed after the seal" in refused.message
    assert load.seal(staged).deleted_count == (0 if is_deleted else 2)
    assert isinstance(load.publish(), Committed)
    assert [bench.read(it) for it in (2, 3, 4)] == [(2, None), None, None]


@pytest.mark.parametrize("mode", ["insert", "update"])
def test_whether_rows_are_there_is_looked_at_again(mode: LoadMode) -> None:
    bench = Bench()
    bench.commit(put(1, 1))
    load = Loading(bench, mode, overwrites=True)
    if mode == "insert":
        staged = load.stage({2: 2})
        load.seal(staged)
        bench.commit(put(2, 9))
    else:
        staged = load.stage({1: 2}, kind="update")
        load.seal(staged)
        bench.commit(delete(1))
    assert failure(load.publish()).kind == SnapshotTooOld.kind
    kind = {"insert": "duplicate_key", "update": "row_not_found"}[mode]
    assert failure(load.try_seal(staged)).kind == kind


def test_a_late_decision_on_a_commit_from_before_the_start_is_no_conflict() -> None:
    bench = Bench()
    load = Loading(bench)
    load.since = Timestamp(load.id + (1 << 40))  # so it began after what is decided only then
    load.seal(load.stage({2: 2, 3: 3}))
    bench.commit(put(2, 9))
    assert isinstance(load.publish(), Committed)
    assert bench.read(2) == (2, None)
    load = Loading(bench)
    load.bring({2: 3})
    bench.commit(put(2, 9))
    assert failure(load.publish()).kind == ConcurrentAppend.kind


def test_a_seal_that_is_asked_for_again_is_made_once() -> None:
    bench = Bench()
    bench.commit(put(1, 1), put(2, 2))
    load = Loading(bench)
    load.erased = ((key(1), key(9)),)
    request = load.seal_request(load.stage({3: 3}))
    bench.holds_jobs = True
    routes = [bench.ask(request), bench.ask(request)]
    assert len(bench.jobs) == 1
    bench.holds_jobs = False
    bench.finish_jobs()
    first, second = (bench.answer(route) for route in routes)
    assert isinstance(first, LoadSealed)
    assert first.deleted_count == 2
    assert first == second
    other = load.ask(request)
    assert isinstance(other, LoadSealed)
    assert other.chunks != first.chunks  # that is a seal of its own


def test_a_seal_that_ends_behind_the_publication_is_refused() -> None:
    bench = Bench()
    load = Loading(bench)
    chunk = load.stage({3: 3})
    load.seal(chunk)
    bench.holds_jobs = True
    route = bench.ask(load.seal_request(chunk))
    assert isinstance(load.publish(), Committed)
    bench.holds_jobs = False
    bench.finish_jobs()
    assert failure(bench.answer(route)).kind == ProtocolChanged.kind
    assert bench.read(3) == (3, None)
