"""One snapshot that several processes hold: under one reader's name, by leases of any length."""

from typing import Any

import pytest

from dodona._core.protocol.steps import ORACLE
from dodona._core.reading.holding import LEASE_MS, RENEWAL_MS_MAX
from dodona._core.session import Session
from dodona.errors import InvalidRequest, SnapshotTooOld
from dodona.types import ReaderId, TabletId, Timestamp
from dodona_wire.messages.data import HoldSnapshot, SnapshotHeld
from unit.client.holding_cells import FRESH, TOO_OLD, Cells
from unit.client.protocols import PATH, Clock, Play, new_session, nobody, play, table


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def cells() -> Cells:
    return Cells(table())


@pytest.fixture
def session(clock: Clock) -> Session:
    return new_session(clock)


def test_a_reader_that_is_named_is_renewed(clock: Clock, session: Session, cells: Cells) -> None:
    reader, at = ReaderId(FRESH), Timestamp(77)
    begun = session.hold_snapshot([PATH], at, 600_000, reader)
    held = play(clock, begun, cells.answer)
    assert (held.reader, held.timestamp, held.is_fresh) == (reader, at, False)
    requests = [body for _, body in cells.asked if isinstance(body, HoldSnapshot)]
    assert requests == [
        HoldSnapshot(reader, at, (TabletId(10),), 600_000),
        HoldSnapshot(reader, at, (TabletId(11),), 600_000),
    ]
    assert not any(target == ORACLE for target, _ in cells.asked), "nothing fresh is needed"


def test_a_failed_hold_of_a_shared_snapshot_releases_no_lease(
    clock: Clock, session: Session, cells: Cells
) -> None:
    cells.replies[1] = TOO_OLD
    it = Play(clock, session.hold_snapshot([PATH], Timestamp(77), LEASE_MS, ReaderId(FRESH)))
    it.answer(cells.answer(*it.call))  # where the table is
    with pytest.raises(SnapshotTooOld):  # and without a word to the cells
        it.answer(*[cells.answer(target, body) for target, body in it.calls])


def test_a_long_lease_is_renewed_as_often_as_a_short_one(
    clock: Clock, session: Session, cells: Cells
) -> None:
    cells.reply = SnapshotHeld(600_000)
    held = play(clock, session.hold_snapshot([PATH], None, 600_000), cells.answer)
    session.holds.add(held)
    assert session.holds.wait_ms() == RENEWAL_MS_MAX
    clock.now_us += 500_000_000
    held.check(clock.now_us)
    clock.now_us += 100_000_000
    with pytest.raises(SnapshotTooOld):
        held.check(clock.now_us)


@pytest.mark.parametrize(
    ("timestamp", "lease_ms", "reader"),
    [(None, LEASE_MS, 5), (77, 0, None), (77, "1", None), (77, LEASE_MS, 0), (77, LEASE_MS, "5")],
)
def test_invalid_arguments_of_hold_snapshot_are_refused(
    clock: Clock, session: Session, timestamp: Any, lease_ms: Any, reader: Any
) -> None:
    with pytest.raises(InvalidRequest):
        play(clock, session.hold_snapshot([PATH], timestamp, lease_ms, reader), nobody)
