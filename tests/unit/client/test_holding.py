"""Holding a snapshot: who is asked, how often, and what is concluded from the answers."""

import gc
from collections.abc import Sequence
from typing import Any

import pytest

from dodona._core.protocol.steps import Post, Target
from dodona._core.reading.holding import AGAIN_MS, LEASE_MS, ROUNDS_PER_LEASE, Hold
from dodona._core.session import Session
from dodona.errors import (
    InvalidRequest,
    MetadataChanged,
    Overloaded,
    SnapshotTooOld,
    TableNotFound,
    TableNotMounted,
    Unavailable,
)
from dodona.types import SYNC_LAST_COMMITTED, TabletId, Timestamp
from dodona_wire.messages.base import Failure
from dodona_wire.messages.data import ArrowPage, ScanArrow, SnapshotHeld, TimestampRange
from dodona_wire.messages.families import Reply
from dodona_wire.rows.arrow import arrow_from_rows
from unit.client.holding_cells import FRESH, HELD, TOO_OLD, Cells
from unit.client.protocols import (
    LOST,
    PATH,
    SCHEMA,
    Clock,
    Play,
    key,
    new_session,
    nobody,
    play,
    table,
    tablet,
)

PERIOD_MS = LEASE_MS // ROUNDS_PER_LEASE
ONE_CELL = table((tablet(10, 0, None), tablet(11, 0, 100)))
MOVED = table((tablet(10, 0, None), tablet(12, 2, 100)))


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def cells() -> Cells:
    return Cells(table())


@pytest.fixture
def session(clock: Clock) -> Session:
    return new_session(clock)


def hold(clock: Clock, session: Session, cells: Cells, at: int | None = 77) -> Hold:
    stamp = None if at is None else Timestamp(at)
    found = play(clock, session.hold_snapshot([PATH], stamp), cells.answer)
    session.holds.add(found)
    return found


def renew(clock: Clock, session: Session, cells: Cells) -> dict[Target, list[int]]:
    """Let time pass until a renewal is due, and play it."""
    wait_ms = session.holds.wait_ms()
    assert wait_ms is not None
    clock.now_us += wait_ms * 1000
    cells.take()
    play(clock, session.holds.do_due(), cells.answer)
    return cells.take()


# ---- the beginning


def test_a_hold_sends_each_cell_the_list_of_its_tablets(
    clock: Clock, session: Session, cells: Cells
) -> None:
    held = hold(clock, session, cells)
    assert held.timestamp == 77
    assert cells.take() == {0: [10], 1: [11]}


def test_without_a_timestamp_a_fresh_one_is_held(
    clock: Clock, session: Session, cells: Cells
) -> None:
    assert hold(clock, session, cells, None).timestamp == FRESH


def test_one_cell_is_asked_once(clock: Clock, session: Session) -> None:
    cells = Cells(ONE_CELL)
    hold(clock, session, cells)
    assert cells.take() == {0: [10, 11]}


def test_a_hold_refused_as_too_old_is_released_in_all_cells(
    clock: Clock, session: Session, cells: Cells
) -> None:
    cells.replies[1] = TOO_OLD
    with pytest.raises(SnapshotTooOld) as caught:
        hold(clock, session, cells)
    assert caught.value.attributes["retained_timestamp"] == 900
    it = Play(clock, session.hold_snapshot([PATH], Timestamp(77)))
    it.answer(TimestampRange(FRESH, 1))
    it.answer(HELD, TOO_OLD)
    assert isinstance(it.step, Post)
    assert [(cell, body.lease_ms) for cell, body in it.step.requests] == [(0, 0), (1, 0)]  # type: ignore[union-attr]
    with pytest.raises(SnapshotTooOld):
        it.posted()


def test_a_tablet_that_moved_is_looked_for(clock: Clock, session: Session, cells: Cells) -> None:
    session.routing.learn(table())
    cells.tables[PATH] = MOVED
    cells.replies[1] = SnapshotHeld(LEASE_MS, (TabletId(11),))
    held = hold(clock, session, cells)
    assert cells.take() == {0: [10], 1: [11], 2: [12]}
    assert set(held.cells) == {0, 1, 2}


@pytest.mark.parametrize(
    ("reply", "kind"),
    [
        (LOST, Unavailable),
        (Failure("overloaded", "too many readers"), Overloaded),
        (SnapshotHeld(LEASE_MS, (TabletId(11),)), Unavailable),
    ],
)
def test_a_hold_retries_temporary_errors_until_the_timeout(
    clock: Clock, session: Session, cells: Cells, reply: Reply, kind: type[Exception]
) -> None:
    cells.replies[1] = reply
    began_us = clock.now_us
    with pytest.raises(kind):
        hold(clock, session, cells)
    assert 9_000_000 < clock.now_us - began_us < 11_000_000


def test_a_hold_on_a_table_with_an_unmounted_tablet_is_refused(
    clock: Clock, session: Session
) -> None:
    cells = Cells(table((tablet(10, 0, None), tablet(11, 1, 100, state="unmounted"))))
    with pytest.raises(TableNotMounted):
        hold(clock, session, cells)


def test_a_table_that_is_being_mounted_is_waited_for(clock: Clock, session: Session) -> None:
    cells = Cells(table((tablet(10, 0, None), tablet(11, 1, 100, state="mounting"))))
    it = Play(clock, session.hold_snapshot([PATH], None))
    while it.step is not None:
        if hasattr(it.step, "requests"):
            it.answer(*[cells.answer(target, body) for target, body in it.calls])
        else:
            it.wait()
            cells.tables[PATH] = table()
    assert it.result.is_open


def test_a_route_from_before_the_mount_is_not_believed(
    clock: Clock, session: Session, cells: Cells
) -> None:
    session.routing.learn(table((tablet(10, 0, None, state="unmounted"),)))
    hold(clock, session, cells)


def test_a_table_that_is_not_there(clock: Clock, session: Session) -> None:
    with pytest.raises(TableNotFound):
        hold(clock, session, Cells())


@pytest.mark.parametrize("paths", ["//t", b"//t", {"//t": 1}, 7, [], [7], ["\ud800"]])
def test_paths_are_a_list_of_some(clock: Clock, session: Session, paths: Any) -> None:
    with pytest.raises(InvalidRequest):
        play(clock, session.hold_snapshot(paths), nobody)


@pytest.mark.parametrize("at", [0, -1, SYNC_LAST_COMMITTED, 1.5, "now", True])
def test_a_timestamp_is_one_of_the_oracle_s(clock: Clock, session: Session, at: Any) -> None:
    with pytest.raises(InvalidRequest):
        play(clock, session.hold_snapshot([PATH], at), nobody)


# ---- renewals


def test_the_client_renews_a_hold_several_times_within_its_lease(
    clock: Clock, session: Session, cells: Cells
) -> None:
    held = hold(clock, session, cells)
    for _ in range(10):
        began_us = clock.now_us
        assert renew(clock, session, cells) == {0: [10], 1: [11]}
        assert clock.now_us - began_us == PERIOD_MS * 1000
        held.check(clock.now_us)


def test_a_cell_that_grants_less_is_asked_more_often(
    clock: Clock, session: Session, cells: Cells
) -> None:
    cells.replies[1] = SnapshotHeld(4_000)
    held = hold(clock, session, cells)
    assert session.holds.wait_ms() == 1_000
    clock.now_us += 3_700_000
    with pytest.raises(SnapshotTooOld):
        held.check(clock.now_us)


def test_a_released_hold_is_not_renewed_and_refuses_reads(
    clock: Clock, session: Session, cells: Cells
) -> None:
    held = hold(clock, session, cells)
    it = Play(clock, session.release_hold(held))
    assert [(cell, body.lease_ms) for cell, body in it.posted()] == [(0, 0), (1, 0)]  # type: ignore[union-attr]
    assert session.holds.wait_ms() is None
    play(clock, session.release_hold(held), nobody)
    with pytest.raises(InvalidRequest, match="snapshot was released"):
        held.check(clock.now_us)


def test_a_hold_without_references_is_not_renewed(
    clock: Clock, session: Session, cells: Cells
) -> None:
    held = hold(clock, session, cells)
    assert session.holds.wait_ms() is not None
    del held
    gc.collect()
    assert session.holds.wait_ms() is None


def test_all_that_is_due_is_one_step(clock: Clock, session: Session, cells: Cells) -> None:
    holds = [hold(clock, session, cells) for _ in range(3)]
    clock.now_us += PERIOD_MS * 1000
    it = Play(clock, session.holds.do_due())
    assert [cell for cell, _ in it.calls] == [0, 1] * 3
    it.answer(*[HELD] * 5, TOO_OLD)
    for held in holds[1:]:
        held.check(clock.now_us)
    with pytest.raises(SnapshotTooOld, match="it has gone"):
        holds[0].check(clock.now_us)


def test_a_round_without_an_answer_is_soon_repeated(
    clock: Clock, session: Session, cells: Cells
) -> None:
    held = hold(clock, session, cells)
    cells.replies[1] = LOST
    renew(clock, session, cells)
    for _ in range(20):
        began_us = clock.now_us
        renew(clock, session, cells)
        assert clock.now_us - began_us == AGAIN_MS * 1000
    held.check(clock.now_us)
    cells.replies.clear()
    renew(clock, session, cells)
    held.check(clock.now_us + (LEASE_MS * 9 // 10) * 1000)


def test_a_hold_that_was_not_renewed_in_time_stays_lost(
    clock: Clock, session: Session, cells: Cells
) -> None:
    held = hold(clock, session, cells)
    cells.replies[1] = LOST
    while clock.now_us < 1_000_000 + LEASE_MS * 900:
        held.check(clock.now_us)
        renew(clock, session, cells)
    cells.replies.clear()
    if session.holds.wait_ms() is not None:
        renew(clock, session, cells)
    with pytest.raises(SnapshotTooOld, match="in time") as caught:
        held.check(clock.now_us)
    assert caught.value.attributes == {"timestamp": 77}
    assert session.holds.wait_ms() is None, "there is no use in renewing it"


def test_a_late_renewal_does_not_restore_a_lost_hold(
    clock: Clock, session: Session, cells: Cells
) -> None:
    held = hold(clock, session, cells)
    clock.now_us += LEASE_MS * 1000  # the process stood still
    play(clock, session.holds.do_due(), cells.answer)
    with pytest.raises(SnapshotTooOld):
        held.check(clock.now_us)


def test_the_lease_of_a_hold_counts_from_the_start_of_a_renewal(
    clock: Clock, session: Session, cells: Cells
) -> None:
    """The cell may have taken it at once, and the answer have been long on its way."""
    held = hold(clock, session, cells)
    clock.now_us += PERIOD_MS * 1000
    it = Play(clock, session.holds.do_due())
    clock.now_us += 20_000_000
    it.answer(HELD, HELD)
    held.check(clock.now_us)
    clock.now_us += (LEASE_MS * 9 // 10 - 20_000) * 1000
    held.check(clock.now_us)
    with pytest.raises(SnapshotTooOld):
        held.check(clock.now_us + 1)


def test_tablets_are_followed_where_they_go(clock: Clock, session: Session, cells: Cells) -> None:
    held = hold(clock, session, cells)
    cells.tables[PATH] = MOVED
    cells.replies[1] = SnapshotHeld(LEASE_MS, (TabletId(11),))
    assert renew(clock, session, cells) == {0: [10], 1: [11]}
    assert renew(clock, session, cells) == {0: [10], 2: [12]}
    held.check(clock.now_us)


def test_a_table_that_is_gone_needs_nothing(clock: Clock, session: Session) -> None:
    cells = Cells(table(), table((tablet(20, 2, None),), path="//other"))
    held = play(clock, session.hold_snapshot([PATH, "//other"]), cells.answer)
    session.holds.add(held)
    del cells.tables[PATH]
    cells.reply = LOST
    renew(clock, session, cells)
    cells.reply = HELD
    assert renew(clock, session, cells) == {2: [20]}
    held.check(clock.now_us)


def test_while_the_master_is_away_cells_are_asked_where_they_were(
    clock: Clock, session: Session, cells: Cells
) -> None:
    held = hold(clock, session, cells)
    cells.replies[1] = LOST
    renew(clock, session, cells)
    cells.replies.clear()
    cells.master_reply = LOST
    assert renew(clock, session, cells) == {0: [10], 1: [11]}
    assert session.holds.wait_ms() == PERIOD_MS
    held.check(clock.now_us)


def test_an_unmounted_table_is_waited_for(clock: Clock, session: Session, cells: Cells) -> None:
    held = hold(clock, session, cells)
    cells.replies[1] = SnapshotHeld(LEASE_MS, (TabletId(11),))
    cells.tables[PATH] = table((tablet(10, 0, None), tablet(11, 1, 100, state="unmounted")))
    renew(clock, session, cells)
    assert renew(clock, session, cells) == {0: [10]}
    cells.tables[PATH] = table()
    cells.replies.clear()
    assert renew(clock, session, cells) == {0: [10], 1: [11]}
    held.check(clock.now_us)
    assert session.holds.wait_ms() == PERIOD_MS


# ---- pages


def page(ids: Sequence[int], resume: int | None = None) -> ArrowPage:
    rows = [(number, None) for number in ids]
    batch = arrow_from_rows(SCHEMA, SCHEMA.full_mask, [key(it) for it in ids], rows)
    return ArrowPage(batch, len(ids), None if resume is None else key(resume))


def test_pages_come_one_at_a_time_across_tablets(
    clock: Clock, session: Session, cells: Cells
) -> None:
    held = hold(clock, session, cells)
    pages = session.read_pages(held, PATH, [5])
    stories: list[tuple[int, int, ArrowPage]] = [
        (10, 5, page([5, 6], 7)),
        (10, 7, page([])),
        (11, 100, page([100])),
    ]
    seen = []
    for number, lower, reply in stories:
        assert not pages.is_over
        it = Play(clock, pages.next())
        _, body = it.call
        assert isinstance(body, ScanArrow)
        assert (body.tablet, body.lower, body.timestamp) == (number, key(lower), 77)
        it.answer(reply)
        seen += it.result.to_pylist()
    assert pages.is_over
    assert [row["id"] for row in seen] == [5, 6, 100]


def test_an_empty_range_is_one_page_without_rows(
    clock: Clock, session: Session, cells: Cells
) -> None:
    held = hold(clock, session, cells)
    pages = session.read_pages(held, PATH, [5], [5], ["value"])
    found = play(clock, pages.next(), nobody)
    assert pages.is_over
    assert (found.num_rows, found.schema.names) == (0, ["value"])


def test_a_page_of_a_snapshot_that_is_no_longer_held_is_refused(
    clock: Clock, session: Session, cells: Cells
) -> None:
    held = hold(clock, session, cells)
    pages = session.read_pages(held, PATH)
    it = Play(clock, pages.next())
    clock.now_us += LEASE_MS * 1000
    with pytest.raises(SnapshotTooOld):
        it.answer(page([1]))
    with pytest.raises(SnapshotTooOld):
        play(clock, session.read_pages(held, PATH).next(), nobody)


@pytest.mark.parametrize(("at", "seen"), [(None, SYNC_LAST_COMMITTED), (77, 77)])
def test_without_atomicity_the_newest_is_read_unless_a_timestamp_was_given(
    clock: Clock, session: Session, at: int | None, seen: int
) -> None:
    cells = Cells(table(atomicity="none"))
    held = hold(clock, session, cells, at)
    it = Play(clock, session.read_pages(held, PATH).next())
    _, body = it.call
    assert isinstance(body, ScanArrow)
    assert body.timestamp == seen


@pytest.mark.parametrize("lease_ms", [3_600_001, 7_200_000, 1 << 62, 0, -1])
def test_a_hold_with_an_invalid_lease_is_refused_without_a_request(
    session: Session, clock: Clock, lease_ms: int
) -> None:
    """As that of a load is: sync, asyncio and Spark come this way."""
    with pytest.raises(InvalidRequest, match=r"lease_ms is a number (from 1|up to 3600000),"):
        play(clock, session.hold_snapshot([PATH], lease_ms=lease_ms), nobody)


def test_a_read_uses_the_new_schema_if_the_table_is_altered_before_page_one(
    clock: Clock, session: Session, cells: Cells
) -> None:
    """Nothing was handed out yet: so nobody has to begin anew."""
    held = hold(clock, session, cells)
    it = Play(clock, session.read_pages(held, PATH).next())
    it.answer(Failure("tablet_moved", "The tablet was mounted again."))
    it.wait()
    it.answer(table(columns=SCHEMA.columns[:2]))
    _, body = it.call
    assert isinstance(body, ScanArrow)
    assert body.column_mask == 1


def test_a_read_by_pages_fails_if_the_table_is_altered_between_pages(
    clock: Clock, session: Session, cells: Cells
) -> None:
    held = hold(clock, session, cells)
    pages = session.read_pages(held, PATH)
    it = Play(clock, pages.next())
    it.answer(page([1], 2))
    session.routing.learn(table(columns=SCHEMA.columns[:2]))
    with pytest.raises(MetadataChanged, match="was altered since this read began") as caught:
        play(clock, pages.next(), nobody)
    assert caught.value.action == "look"
    assert caught.value.attributes == {
        "table": PATH,
        "removed": [it.name for it in SCHEMA.columns[2:]],
    }
