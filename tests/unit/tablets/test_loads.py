"""Bulk loads in a cell: leases, the fence against late batches, staging, and restarts."""

from typing import Any

import pytest
from msgspec.structs import replace

from dodona.errors import (
    InvalidRequest,
    LoadEnded,
    Overloaded,
    ProtocolChanged,
    SnapshotTooOld,
    Unavailable,
)
from dodona.types import (
    SYNC_LAST_COMMITTED,
    CellId,
    LoadId,
    ReaderId,
    Revision,
    TableSettings,
    Timestamp,
)
from dodona_tablets.core.cell.limits import CellLimits
from dodona_tablets.core.requests.nonatomic import OFF_LIMITS
from dodona_tablets.core.tablet.loads import ENDED_MAX
from dodona_wire.messages.data import Committed, Lookup, LookupReply, WriteArrow, Written
from dodona_wire.messages.loads import (
    CloseLoad,
    LoadHeld,
    OpenLoad,
    PeekLoad,
    RenewLoad,
    SealLoad,
    Staged,
)
from unit.tablets.cells import ATOMIC, NON_ATOMIC, REVISION, SECOND, Bench, key, put
from unit.tablets.loads import LEASE_MS, Loading, batch, failure

CELL = CellId(0)


def chunk_files(bench: Bench) -> set[int]:
    return set(bench.files[CELL])


def statistics(bench: Bench) -> tuple[int, int]:
    found = bench.nodes[CELL].statistics()
    return found.loads, found.chunks_staged


# Leases


def test_a_load_is_open_for_its_lease_which_batches_and_renewals_extend() -> None:
    bench = Bench()
    load = Loading(bench)
    for request in (RenewLoad(load.id), load.request("write", {1: 1}), RenewLoad(load.id)):
        bench.pass_time(50)
        reply = load.ask(request)
        assert isinstance(reply, LoadHeld | Staged), reply
    assert load.ask(PeekLoad(load.id)) == LoadHeld(LEASE_MS)
    bench.pass_time(50)
    assert load.ask(PeekLoad(load.id)) == LoadHeld(LEASE_MS - 50_000)
    assert statistics(bench) == (1, 1)
    bench.pass_time(11)
    assert load.ask(PeekLoad(load.id)) == LoadHeld(0)
    assert statistics(bench) == (0, 0)
    assert not chunk_files(bench)
    assert "was not renewed for 60000 ms" in failure(load.ask(RenewLoad(load.id))).message


def test_a_load_that_ended_takes_nothing_and_never_opens_again() -> None:
    bench = Bench()
    load = Loading(bench)
    chunk = load.stage({1: 1})
    assert load.close() == LoadHeld(0) == load.close()
    assert not chunk_files(bench)
    for request in (load.request("write", {2: 2}), RenewLoad(load.id)):
        assert failure(load.ask(request)).kind == LoadEnded.kind
    assert failure(load.try_seal(chunk)).kind == LoadEnded.kind
    assert failure(load.open()).kind == LoadEnded.kind
    assert failure(load.open()).message == "The load is not open: it was closed."


def test_a_cell_knows_that_a_forgotten_load_has_ended() -> None:
    bench = Bench()
    first = Loading(bench)
    first.close()
    for _ in range(ENDED_MAX):
        Loading(bench).close()
    assert len(bench.nodes[CELL].cell.loads.ended) == ENDED_MAX
    assert failure(first.open()).kind == LoadEnded.kind
    assert isinstance(Loading(bench).open(), LoadHeld)


def test_a_batch_in_progress_when_its_load_ends_is_not_staged() -> None:
    bench = Bench()
    load = Loading(bench)
    bench.holds_jobs = True
    route = bench.ask(load.request("write", {1: 1}))
    load.close()
    bench.finish_jobs()
    assert failure(bench.answer(route)).kind == LoadEnded.kind
    assert not chunk_files(bench)
    assert statistics(bench) == (0, 0)


def test_the_number_of_loads_and_of_staged_batches_is_bounded() -> None:
    bench = Bench(limits=CellLimits(loads_max=2, staged_chunks_max=1))
    load = Loading(bench)
    Loading(bench)
    third = Loading(bench)
    refused = failure(third.open())
    assert refused.kind == Overloaded.kind
    assert "the limit is 2" in refused.message
    load.stage({1: 1})
    assert failure(load.ask(load.request("write", {2: 2}))).kind == Overloaded.kind


def test_the_number_of_chunks_that_seals_leave_is_bounded() -> None:
    """Deletions of an older seal stay until the load ends: it may be published by that seal."""
    bench = Bench(limits=CellLimits(staged_chunks_max=2))
    bench.commit(put(5, 5))
    load = Loading(bench)
    load.erased = ((key(0), key(9)),)
    chunks = [load.stage({number: number}) for number in (1, 2)]
    for _ in range(2):
        load.seal(*chunks)
    assert failure(load.try_seal(*chunks)).kind == Overloaded.kind
    assert statistics(bench) == (1, 4)


def test_the_error_about_too_many_staged_batches_names_the_limit() -> None:
    bench = Bench(limits=CellLimits(staged_chunks_max=2))
    bench.commit(put(5, 5))
    load = Loading(bench)
    load.erased = ((key(0), key(9)),)
    load.seal(*[load.stage({number: number}) for number in (1, 2)])
    assert statistics(bench) == (1, 3)
    refused = failure(load.ask(load.request("write", {3: 3})))
    assert refused.kind == Overloaded.kind
    assert "the limit is 2." in refused.message


def test_bytes_on_their_way_into_chunks_are_bounded_but_for_one_batch() -> None:
    size_bytes = len(batch("write", {1: 1}))
    bench = Bench(limits=CellLimits(batch_bytes_max=2 * size_bytes))
    load = Loading(bench)
    bench.holds_jobs = True
    routes = [bench.ask(load.request("write", {number: number})) for number in (1, 2)]
    refused = failure(load.ask(load.request("write", {3: 3})))
    assert refused.kind == Overloaded.kind
    assert refused.attributes["size_bytes"] == 2 * size_bytes
    bench.finish_jobs()
    assert all(isinstance(bench.answer(route), Staged) for route in routes)
    many = bench.ask(load.request("write", dict.fromkeys(range(4, 1000), 0)))
    assert bench.answer(many) is None, "it would never have room if it had none now"
    assert failure(load.ask(load.request("write", {3: 3}))).kind == Overloaded.kind
    bench.finish_jobs()
    bench.holds_jobs = False
    load.stage({3: 3})


@pytest.mark.parametrize(
    ("changed", "text"),
    [
        ({"lease_ms": 0}, "a positive lease"),
        ({"since": Timestamp(0)}, "a valid start timestamp"),
        ({"load": LoadId((1 << 61) + 5)}, "a timestamp from the oracle"),
    ],
)
def test_a_load_that_makes_no_sense_is_refused(changed: dict[str, Any], text: str) -> None:
    bench = Bench()
    request = OpenLoad(LoadId(bench.timestamp()), "full", 1000, bench.timestamp(), (ATOMIC,))
    refused = failure(bench.answer(bench.ask(replace(request, **changed))))
    assert refused.kind == InvalidRequest.kind
    assert text in refused.message


def test_a_lease_has_a_longest_length() -> None:
    load = Loading(Bench(limits=CellLimits(load_lease_ms_max=LEASE_MS - 1)))
    refused = failure(load.open())
    assert refused.kind == InvalidRequest.kind
    assert refused.message == f"A load has a lease of at most {LEASE_MS - 1} ms, not {LEASE_MS}."
    load = Loading(Bench(limits=CellLimits(load_lease_ms_max=LEASE_MS)))
    assert load.open() == LoadHeld(LEASE_MS)


# Staging


def test_a_repeated_batch_is_staged_once() -> None:
    bench = Bench()
    load = Loading(bench)
    request = load.request("write", {1: 1, 2: 2})
    bench.holds_jobs = True
    routes = [bench.ask(request), bench.ask(request)]
    bench.holds_jobs = False
    bench.finish_jobs()
    first, second = (bench.answer(route) for route in routes)
    assert isinstance(first, Staged)
    assert first.row_count == 2
    assert first == second == load.ask(request)
    assert statistics(bench) == (1, 1)


def test_staged_rows_are_invisible() -> None:
    bench = Bench()
    load = Loading(bench)
    load.bring({1: 1})
    assert bench.read(1) is None
    bench.commit(put(1, 5))
    assert bench.read(1) == (5, None)
    load.close()
    assert bench.read(1) == (5, None)


def test_an_invalid_batch_is_refused_and_not_staged() -> None:
    bench = Bench()
    load = Loading(bench)
    wrong = replace(load.request("write", {1: 1}), batch=b"no stream")
    assert failure(load.ask(wrong)).attributes["table"] == "//test/full"
    assert statistics(bench) == (1, 0)
    load.bring({1: 1})
    assert isinstance(load.publish(), Committed)


def test_an_empty_batch_is_nothing() -> None:
    bench = Bench()
    load = Loading(bench)
    assert load.ask(load.request("write", {})) == Staged(0, 0)


def test_a_batch_can_not_take_the_name_of_a_seals_deletions() -> None:
    """Two chunks of one name: the cell would end when the load is published, and at every start."""
    bench = Bench()
    load = Loading(bench)
    request = replace(load.request("write", {1: 1}), part=(-1, 0, 0, 2))
    refused = failure(load.ask(request))
    assert refused.kind == InvalidRequest.kind
    assert "The partition number is negative" in refused.message
    assert statistics(bench) == (1, 0)


def test_a_table_without_atomicity_stages_nothing() -> None:
    bench = Bench()
    load = Loading(bench)
    wrong = replace(load.request("write", {1: 1}), tablet=NON_ATOMIC)
    assert 'Invalid atomicity mode: "full"' in failure(load.ask(wrong)).message


def test_an_unmount_drops_staged_rows_and_a_later_seal_reports_the_unmount() -> None:
    bench = Bench()
    load = Loading(bench)
    chunk = load.stage({1: 1})
    bench.assign(CELL, bench.tables[1:])
    bench.pass_time(1)
    assert not chunk_files(bench)
    again = [replace(it, revision=Revision(it.revision + 1)) for it in bench.tables]
    bench.assign(CELL, again)
    bench.answer_oracle()
    request = SealLoad(ATOMIC, again[0].revision, load.id, (chunk,), "upsert", load.since)
    refused = failure(load.ask(request))
    assert refused.kind == ProtocolChanged.kind
    assert "was unmounted" in refused.message


def test_an_open_load_holds_a_snapshot_of_its_tablet() -> None:
    bench = Bench()
    bench.commit(put(1, 1))
    load = Loading(bench)
    node = bench.nodes[CELL]
    bench.pass_time(20)
    assert node.cell.readers.oldest(ATOMIC) is not None
    load.close()
    node.cell.readers.tick(1 << 60)
    assert node.cell.readers.oldest(ATOMIC) is None


def test_a_load_does_not_open_if_versions_of_its_start_were_removed() -> None:
    bench = Bench()
    bench.nodes[CELL].cell.tablets[ATOMIC].retained_timestamp = Timestamp(bench.oracle + SECOND)
    load = Loading(bench)
    assert failure(load.open()).kind == SnapshotTooOld.kind


def test_a_load_for_which_nothing_can_be_kept_does_not_open() -> None:
    bench = Bench(limits=CellLimits(readers_max=1))
    Loading(bench)
    second = Loading(bench)
    assert failure(second.open()).kind == Overloaded.kind
    assert statistics(bench) == (1, 0)


def test_a_load_goes_on_where_others_hold_all_snapshots() -> None:
    """It was an error in the middle of a tick, which ends the process."""
    bench = Bench(limits=CellLimits(readers_max=1))
    load = Loading(bench)
    bench.start(CELL)
    bench.assign(CELL, bench.tables)
    readers = bench.nodes[CELL].cell.readers
    readers.let_go(ReaderId(load.id))
    readers.hold(ReaderId(1), bench.timestamp(), (ATOMIC,), 60_000, bench.now.instant_us)
    bench.pass_time(20)
    assert statistics(bench) == (1, 0)


# A restart


def test_a_restart_keeps_loads_and_staged_rows_and_forgets_seals() -> None:
    bench = Bench()
    load, closed = Loading(bench), Loading(bench)
    load.bring({1: 1})
    closed.close()
    bench.pass_time(50)
    bench.start(CELL)
    bench.assign(CELL, bench.tables)
    bench.pass_time(50)  # its lease began anew
    assert statistics(bench) == (1, 1)
    assert failure(closed.open()).kind == LoadEnded.kind
    assert failure(load.publish()).kind == SnapshotTooOld.kind
    load.seal(*load.sealed[0].chunks)
    assert isinstance(load.publish(), Committed)
    assert bench.read(1) == (1, None)
    bench.start(CELL)
    assert bench.read(1) == (1, None)
    assert statistics(bench) == (1, 0)


def test_a_lease_goes_on_when_a_cell_that_started_can_be_asked_again() -> None:
    """It waits for the oracle for longer than a lease: until then nobody can renew it."""
    bench = Bench()
    load = Loading(bench)
    load.stage({1: 1})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bench, "answer_oracle", lambda: None)
        bench.start(CELL)
        bench.pass_time(LEASE_MS / 1000 + 1)
        assert failure(load.ask(RenewLoad(load.id))).kind == Unavailable.kind
    bench.answer_oracle()
    bench.pass_time(1)
    assert load.ask(RenewLoad(load.id)) == LoadHeld(LEASE_MS)
    assert statistics(bench) == (1, 1)


def test_a_log_that_was_cut_still_knows_the_loads() -> None:
    limits = CellLimits(checkpoint_period_ms=1_000)
    bench = Bench(limits=limits, settings=TableSettings(dynamic_store_auto_flush_period=1_000))
    load, closed = Loading(bench), Loading(bench)
    chunk = load.stage({1: 1})
    closed.close()
    bench.commit(put(7, 7))
    for _ in range(4):
        bench.pass_time(45)
        bench.commit(put(7, 7))
        load.ask(RenewLoad(load.id))
    first = bench.logs[CELL][0]
    assert type(first).__name__ == "Checkpoint"
    bench.start(CELL)
    bench.assign(CELL, bench.tables)
    assert failure(closed.open()).kind == LoadEnded.kind
    load.seal(chunk)
    assert isinstance(load.publish(), Committed)
    assert bench.read(1) == (1, None)


# Without atomicity


def non_atomic(bench: Bench, load: LoadId, stamp: int, rows: int = 30_000) -> WriteArrow:
    data = batch("write", {number: number for number in range(rows)})
    return WriteArrow(NON_ATOMIC, REVISION, Timestamp(stamp), True, data, load)


def open_non_atomic(bench: Bench, stamp: int) -> LoadId:
    load = LoadId(bench.timestamp())
    reply = bench.answer(bench.ask(OpenLoad(load, "none", LEASE_MS, Timestamp(stamp))))
    assert isinstance(reply, LoadHeld), reply
    return load


@pytest.mark.parametrize("rows", [10, 30_000])
def test_batches_without_atomicity_are_taken_while_their_load_is_open(rows: int) -> None:
    bench = Bench()
    stamp = bench.oracle
    load = open_non_atomic(bench, stamp)
    request = non_atomic(bench, load, stamp, rows)
    assert isinstance(bench.answer(bench.ask(request)), Written)
    for _ in range(3):  # it goes on for longer than clocks may differ
        bench.pass_time(50)
        bench.answer_oracle()
        assert isinstance(bench.answer(bench.ask(request)), Written)
    assert OFF_LIMITS in failure(bench.answer(bench.ask(replace(request, load=LoadId(0))))).message
    bench.ask(CloseLoad(load))
    assert failure(bench.answer(bench.ask(request))).kind == LoadEnded.kind


def test_a_batch_without_atomicity_that_was_under_way_at_the_end_is_not_written() -> None:
    bench = Bench()
    load = open_non_atomic(bench, bench.oracle)
    bench.holds_jobs = True
    route = bench.ask(non_atomic(bench, load, bench.oracle))
    bench.ask(CloseLoad(load))
    bench.finish_jobs()
    assert failure(bench.answer(route)).kind == LoadEnded.kind
    assert not bench.nodes[CELL].cell.tablets[NON_ATOMIC].dump()


def test_a_clock_that_is_off_is_noticed_when_the_load_begins() -> None:
    bench = Bench()
    load = LoadId(bench.timestamp())
    request = OpenLoad(load, "none", LEASE_MS, Timestamp(bench.oracle + 62 * SECOND))
    assert failure(bench.answer(bench.ask(request))).message == OFF_LIMITS


def test_a_load_is_of_one_mode() -> None:
    bench = Bench()
    atomic = Loading(bench)
    wrong = non_atomic(bench, atomic.id, bench.oracle)
    assert 'begun with atomicity "full"' in failure(bench.answer(bench.ask(wrong))).message


def test_a_load_can_delete_rows_without_atomicity() -> None:
    bench = Bench()
    stamp = bench.oracle
    load = open_non_atomic(bench, stamp)
    bench.ask(non_atomic(bench, load, stamp, 3))
    gone = replace(non_atomic(bench, load, stamp), kind="delete", batch=batch("delete", {1: None}))
    assert bench.answer(bench.ask(gone)) == Written(1, Timestamp(stamp + 1))
    request = Lookup(NON_ATOMIC, REVISION, SYNC_LAST_COMMITTED, (key(0), key(1), key(2)), 1)
    assert bench.answer(bench.ask(request)) == LookupReply(((0,), None, (2,)))
