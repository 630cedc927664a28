"""Reads: their division among tablets, their pages, and what is repeated when a tablet moved."""

from typing import Any

import pytest

from dodona._core.protocol.limits import SessionLimits
from dodona._core.protocol.steps import MASTER, ORACLE, Target
from dodona._core.session import Session
from dodona.errors import (
    InvalidRequest,
    RowBlocked,
    SchemaViolation,
    TableNotFound,
    TableNotMounted,
    TabletMoved,
    TransactionClosed,
    Unavailable,
)
from dodona.types import (
    ASYNC_LAST_COMMITTED,
    MAX_TIMESTAMP,
    SYNC_LAST_COMMITTED,
    Key,
    Timestamp,
)
from dodona_wire.messages.base import Failure
from dodona_wire.messages.catalog import GetTable, Tablet
from dodona_wire.messages.data import (
    CommitOne,
    GenerateTimestamps,
    Lookup,
    LookupReply,
    Scan,
    ScanPage,
    TimestampRange,
)
from dodona_wire.messages.families import Reply, Request
from unit.client.protocols import (
    COLUMNS,
    LOST,
    MOVED,
    PATH,
    PIVOT,
    Clock,
    Play,
    begin,
    key,
    new_session,
    nobody,
    play,
    table,
    tablet,
    unchanged,
)

ROWS = {number: (number * 10, None) for number in (1, 5, 99, 100, 150, 200)}


class Tablets:
    """Two cells that hold `ROWS`, in pages of at most `page_rows`."""

    def __init__(self, page_rows: int = 2) -> None:
        self.page_rows = page_rows
        self.asked: list[tuple[Target, Request]] = []

    def __call__(self, target: Target, body: Request) -> Reply:
        self.asked.append((target, body))
        match body:
            case GetTable():
                return table()
            case GenerateTimestamps():
                assert target == ORACLE
                return TimestampRange(Timestamp(777), 1)
            case Lookup():
                found = {key(it): values for it, values in ROWS.items()}
                return LookupReply(tuple([found.get(it) for it in body.keys]))
            case Scan():
                return self._scan(target, body)
        raise AssertionError(body)

    def _scan(self, target: Target, body: Scan) -> ScanPage:
        here = [it for it in sorted(ROWS) if (it >= PIVOT) == bool(target)]
        wanted = [it for it in here if body.lower <= key(it) < body.upper]
        page = wanted[: self.page_rows]
        resume = key(page[-1] + 1) if len(wanted) > len(page) else None
        masked = [
            tuple([it for bit, it in enumerate(ROWS[row]) if int(body.column_mask) >> bit & 1])
            for row in page
        ]
        return ScanPage(tuple([key(it) for it in page]), tuple(masked), resume)

    def timestamps(self) -> set[int]:
        return {body.timestamp for _, body in self.asked if isinstance(body, Lookup | Scan)}


def fresh() -> tuple[Clock, Session, Tablets]:
    clock = Clock()
    return clock, new_session(clock, table()), Tablets()


def row(number: int) -> dict[str, Any]:
    return {"id": number, "value": number * 10, "note": None}


# ---- by key


def test_rows_come_in_the_order_of_their_keys_from_all_tablets() -> None:
    clock, session, tablets = fresh()
    keys = [{"id": it} for it in (150, 1, 7, 100, 1)]
    found = play(clock, session.lookup_rows(PATH, keys), tablets)
    assert found == [row(150), row(1), row(100), row(1)]
    assert [target for target, _ in tablets.asked] == [1, 0]
    assert tablets.timestamps() == {SYNC_LAST_COMMITTED}


def test_missing_rows_are_kept_as_none_when_asked_for() -> None:
    clock, session, tablets = fresh()
    keys = [{"id": 2}, {"id": 1}]
    assert play(clock, session.lookup_rows(PATH, keys, keep_missing=True), tablets) == [
        None,
        row(1),
    ]


@pytest.mark.parametrize(
    ("columns", "expected"),
    [
        (["value"], {"value": 10}),
        (["id"], {"id": 1}),
        (["value", "id"], {"id": 1, "value": 10}),
        ([], {}),
    ],
)
def test_columns_are_chosen(columns: list[str], expected: dict[str, Any]) -> None:
    clock, session, tablets = fresh()

    def answer(target: Target, body: Request) -> Reply:
        assert isinstance(body, Lookup)
        return LookupReply((tuple([10] * int(body.column_mask).bit_count()),))

    del tablets
    (found,) = play(clock, session.lookup_rows(PATH, [{"id": 1}], columns), answer)
    assert found == expected


def test_a_lookup_of_no_keys_sends_no_request() -> None:
    clock, session, _ = fresh()
    assert play(clock, session.lookup_rows(PATH, []), nobody) == []


@pytest.mark.parametrize(
    ("keys", "error", "said"),
    [
        ([{"id": "x"}], SchemaViolation, "takes an int"),
        ([{"id": 1, "value": 1}], SchemaViolation, "only key columns"),
        ([5], SchemaViolation, "a key is a dict"),
        ({"id": 1}, InvalidRequest, "list of dicts"),
        ("id", InvalidRequest, "list of dicts"),
    ],
)
def test_bad_keys_are_refused(keys: Any, error: type[Exception], said: str) -> None:
    clock, session, _ = fresh()
    with pytest.raises(error, match=said):
        play(clock, session.lookup_rows(PATH, keys), unchanged(table()))


def test_a_wrong_key_is_not_excused_by_a_master_that_is_away() -> None:
    clock, session, _ = fresh()
    with pytest.raises(SchemaViolation, match="takes an int"):
        play(clock, session.lookup_rows(PATH, [{"id": "x"}]), lambda *_: LOST)
    assert clock.now_us == Clock().now_us


def test_an_unknown_column_or_a_lone_name_is_refused() -> None:
    clock, session, _ = fresh()
    with pytest.raises(SchemaViolation, match="no such column"):
        play(clock, session.lookup_rows(PATH, [{"id": 1}], ["nope"]), unchanged(table()))
    with pytest.raises(InvalidRequest, match="list of names"):
        play(clock, session.lookup_rows(PATH, [{"id": 1}], "value"), unchanged(table()))


@pytest.mark.parametrize("timestamp", [0, -1, MAX_TIMESTAMP + 2, 1 << 64, None, "now", 1.5, True])
def test_what_is_no_timestamp_is_refused(timestamp: Any) -> None:
    clock, session, _ = fresh()
    with pytest.raises(InvalidRequest, match="Invalid read timestamp"):
        play(clock, session.lookup_rows(PATH, [], timestamp=timestamp), nobody)
    with pytest.raises(InvalidRequest, match="Invalid read timestamp"):
        play(clock, session.select(PATH, timestamp=timestamp), nobody)


@pytest.mark.parametrize("timestamp", [1, MAX_TIMESTAMP, ASYNC_LAST_COMMITTED])
def test_these_timestamps_can_be_read_at(timestamp: int) -> None:
    clock, session, tablets = fresh()
    at = Timestamp(timestamp)
    play(clock, session.lookup_rows(PATH, [{"id": 1}], timestamp=at), tablets)
    assert len(play(clock, session.select(PATH, timestamp=at), tablets)) == 6
    assert tablets.timestamps() == {timestamp}


def test_many_keys_travel_in_bounded_requests_and_waves() -> None:
    clock = Clock()
    limits = SessionLimits(keys_per_request_max=10, requests_in_flight_max=3)
    session = Session(
        instant_us=clock.instant_us, unix_us=clock.unix_us, dice=lambda: 0.5, limits=limits
    )
    session.routing.learn(table())
    lookup = Play(clock, session.lookup_rows(PATH, [{"id": it} for it in range(95)]))
    sizes = []
    while lookup.step is not None:
        bodies = [body for _, body in lookup.calls]
        sizes.append([len(it.keys) for it in bodies if isinstance(it, Lookup)])
        lookup.answer(
            *[LookupReply((None,) * len(it.keys)) for it in bodies if isinstance(it, Lookup)]
        )
    assert sizes == [[10, 10, 10], [10, 10, 10], [10, 10, 10], [5]]


# ---- without what is old


def test_a_lower_bound_travels_with_every_request() -> None:
    clock, session, tablets = fresh()
    play(clock, session.lookup_rows(PATH, [{"id": 1}], retention_timestamp=Timestamp(7)), tablets)
    play(clock, session.select(PATH, retention_timestamp=Timestamp(7)), tablets)
    asked = [body for _, body in tablets.asked if isinstance(body, Lookup | Scan)]
    assert {body.retention_timestamp for body in asked} == {7}
    assert len(asked) > 2


@pytest.mark.parametrize("bound", [-1, MAX_TIMESTAMP + 1, SYNC_LAST_COMMITTED, None, 1.5, True])
def test_an_invalid_retention_timestamp_is_refused(bound: Any) -> None:
    clock, session, _ = fresh()
    for read in (
        session.lookup_rows(PATH, [], retention_timestamp=bound),
        session.select(PATH, retention_timestamp=bound),
        session.read_arrow(PATH, retention_timestamp=bound),
    ):
        with pytest.raises(InvalidRequest, match="Invalid retention timestamp"):
            play(clock, read, nobody)


def test_a_retention_bound_above_the_timestamp_of_a_read_is_refused() -> None:
    clock, session, tablets = fresh()
    at, above = Timestamp(50), Timestamp(51)
    keys = [{"id": 1}]
    for read in (
        session.lookup_rows(PATH, keys, timestamp=at, retention_timestamp=above),
        session.select(PATH, timestamp=at, retention_timestamp=above),
    ):
        with pytest.raises(InvalidRequest, match="is above the timestamp"):
            play(clock, read, nobody)
    with pytest.raises(InvalidRequest, match="is above the timestamp"):  # of the fresh snapshot
        play(clock, session.select(PATH, retention_timestamp=Timestamp(778)), tablets)
    play(clock, session.lookup_rows(PATH, keys, timestamp=at, retention_timestamp=at), tablets)


# ---- in a transaction


def test_a_transaction_reads_at_its_start_timestamp() -> None:
    clock, session, tablets = fresh()
    transaction = begin(clock, session, 50)
    at = transaction.read_timestamp()
    play(clock, session.lookup_rows(PATH, [{"id": 1}], timestamp=at), tablets)
    play(clock, session.select(PATH, timestamp=at), tablets)
    assert tablets.timestamps() == {50}
    transaction.abort()
    with pytest.raises(TransactionClosed):
        transaction.read_timestamp()


# ---- by range


@pytest.mark.parametrize("page_rows", [1, 2, 100])
def test_a_scan_gives_all_rows_in_key_order(page_rows: int) -> None:
    clock, session, tablets = fresh()
    tablets.page_rows = page_rows
    assert play(clock, session.select(PATH), tablets) == [row(it) for it in sorted(ROWS)]


@pytest.mark.parametrize(
    ("lower", "upper", "expected"),
    [
        ([5], [150], [5, 99, 100]),
        (None, [PIVOT], [1, 5, 99]),
        ([PIVOT], None, [100, 150, 200]),
        ((5,), (6,), [5]),
        ([7], [7], []),
        ([200], [100], []),
        ([], [], []),
    ],
)
def test_a_scan_returns_only_rows_in_its_key_range(
    lower: Any, upper: Any, expected: list[int]
) -> None:
    clock, session, tablets = fresh()
    found = play(clock, session.select(PATH, lower, upper), tablets)
    assert found == [row(it) for it in expected]


@pytest.mark.parametrize("bound", [5, "5", {"id": 5}])
def test_a_bound_is_a_list(bound: Any) -> None:
    clock, session, tablets = fresh()
    with pytest.raises(InvalidRequest, match="list of leading"):
        play(clock, session.select(PATH, bound), tablets)


def test_a_scan_chooses_columns() -> None:
    clock, session, tablets = fresh()
    found = play(clock, session.select(PATH, columns=["value"]), tablets)
    assert found.columns == ("value",)
    assert found.tuples() == [(it * 10,) for it in sorted(ROWS)]


def test_all_pages_of_a_scan_are_of_one_fresh_snapshot() -> None:
    clock, session, tablets = fresh()
    play(clock, session.select(PATH), tablets)
    assert tablets.timestamps() == {777}


def test_a_scan_of_a_non_atomic_table_reads_the_last_committed_rows() -> None:
    clock, _, tablets = fresh()
    session = new_session(clock, table(atomicity="none"))
    play(clock, session.select(PATH), tablets)
    assert tablets.timestamps() == {SYNC_LAST_COMMITTED}


# ---- when a tablet moved


def moved_to(*tablets: Tablet) -> Any:
    """Cell 0 has moved the tablets to elsewhere; the others answer."""
    others = Tablets()

    def answer(target: Target, body: Request) -> Reply:
        if target == MASTER:
            assert body == GetTable(PATH)
            return table(tablets)
        if target == 0:
            return MOVED
        assert not isinstance(body, CommitOne)
        return others(1 if _starts_at_pivot(body) else 0, body)

    return answer


def _starts_at_pivot(body: Request) -> bool:
    first = body.keys[0] if isinstance(body, Lookup) else getattr(body, "lower", Key(b""))
    return first >= key(PIVOT)


NEW_HOME = (tablet(10, 5, None, revision=2), tablet(11, 1, PIVOT))


def test_a_lookup_follows_a_tablet_that_moved() -> None:
    clock, session, _ = fresh()
    keys = [{"id": it} for it in (1, 100)]
    found = play(clock, session.lookup_rows(PATH, keys), moved_to(*NEW_HOME))
    assert found == [row(1), row(100)]


def test_a_scan_follows_a_tablet_that_moved_and_reads_nothing_twice() -> None:
    clock, session, _ = fresh()
    found = play(clock, session.select(PATH, timestamp=Timestamp(9)), moved_to(*NEW_HOME))
    assert found == [row(it) for it in sorted(ROWS)]


def test_a_scan_follows_resharded_tablets() -> None:
    clock, session, _ = fresh()
    cut = (tablet(20, 5, None), tablet(21, 6, 50), tablet(22, 1, PIVOT), tablet(23, 1, 160))
    found = play(clock, session.select(PATH, timestamp=Timestamp(9)), moved_to(*cut))
    assert found == [row(it) for it in sorted(ROWS)]


def gone(failure: Failure) -> Any:
    """Every cell answers so; the master knows no other place."""
    return lambda target, body: table() if target == MASTER else failure


@pytest.mark.parametrize(("failure", "error"), [(MOVED, TabletMoved), (LOST, Unavailable)])
def test_patience_has_an_end(failure: Failure, error: type[Exception]) -> None:
    clock, session, _ = fresh()
    began_us = clock.now_us
    with pytest.raises(error):
        play(clock, session.lookup_rows(PATH, [{"id": 1}]), gone(failure))
    assert 9_000_000 <= clock.now_us - began_us <= 11_000_000


def test_a_blocked_row_was_waited_for_long_enough() -> None:
    clock, session, _ = fresh()
    began_us = clock.now_us
    asked = []

    def blocked(target: Target, body: Request) -> Reply:
        asked.append(target)
        return table() if target == MASTER else Failure("row_blocked", "no")

    for _ in range(2):  # by a route that has to be asked for, and by one that is known
        with pytest.raises(RowBlocked):
            play(clock, session.lookup_rows(PATH, [{"id": 1}]), blocked)
    assert clock.now_us == began_us
    assert len([it for it in asked if it != MASTER]) == 2


def test_an_unmounted_table_is_named() -> None:
    clock = Clock()
    unmounted = table((tablet(10, None, None, state="unmounted"),))
    session = new_session(clock, unmounted)
    with pytest.raises(TableNotMounted, match=PATH):
        play(clock, session.select(PATH, timestamp=Timestamp(9)), lambda target, body: unmounted)


def test_a_lookup_restarts_if_the_schema_changes_during_the_lookup() -> None:
    clock, session, _ = fresh()
    masks: list[int] = []

    def answer(target: Target, body: Request) -> Reply:
        if target == MASTER:
            return table(columns=COLUMNS[:2])
        assert isinstance(body, Lookup)
        masks.append(int(body.column_mask))
        return (
            MOVED if len(masks) <= 2 else LookupReply(((10,) * int(body.column_mask).bit_count(),))
        )

    found = play(clock, session.lookup_rows(PATH, [{"id": 1}]), answer)
    assert found == [{"id": 1, "value": 10}]
    assert masks == [0b11, 0b11, 0b1], "the short way first"


def test_a_scan_restarts_if_the_table_becomes_atomic_during_the_scan() -> None:
    """Its pages are of different moments, which only a table without atomicity may show."""
    clock = Clock()
    session, scans = new_session(clock, table(atomicity="none")), list[Timestamp]()

    def answer(target: Target, body: Request) -> Reply:
        if isinstance(body, GenerateTimestamps):
            return TimestampRange(Timestamp(777), 1)
        assert isinstance(body, Scan)
        scans.append(body.timestamp)
        session.routing.learn(table())
        return ScanPage((), (), None)

    assert list(play(clock, session.select(PATH, None, None, None), answer)) == []
    assert scans == [SYNC_LAST_COMMITTED] * 2 + [Timestamp(777)] * 2


def test_an_unknown_table_is_named() -> None:
    clock = Clock()
    missing = Failure("table_not_found", "there is no table //x", {"path": "//x"})
    with pytest.raises(TableNotFound, match="//x"):
        play(clock, new_session(clock).lookup_rows("//x", []), lambda target, body: missing)


def test_a_path_is_text() -> None:
    clock = Clock()
    path: Any = 5
    with pytest.raises(InvalidRequest, match="path is a str"):
        play(clock, new_session(clock).lookup_rows(path, []), nobody)


def test_the_master_is_asked_once_for_a_route_that_many_need() -> None:
    clock = Clock()
    session = new_session(clock)
    first = Play(clock, session.lookup_rows(PATH, [{"id": 1}]))
    second = Play(clock, session.lookup_rows(PATH, [{"id": 1}]))
    assert first.call == (MASTER, GetTable(PATH))
    second.wait()
    second.wait()
    first.answer(table())
    second.wait()
    assert first.call[0] == second.call[0] == 0


def test_a_cancelled_route_request_does_not_block_other_callers() -> None:
    clock = Clock()
    session = new_session(clock)
    first = Play(clock, session.lookup_rows(PATH, [{"id": 1}]))
    second = Play(clock, session.lookup_rows(PATH, [{"id": 1}]))
    first.give_up()
    second.wait()
    assert second.call == (MASTER, GetTable(PATH))


def test_a_master_that_hangs_is_asked_by_the_others_after_a_second() -> None:
    clock = Clock()
    session = new_session(clock)
    first = Play(clock, session.lookup_rows(PATH, [{"id": 1}]))
    second = Play(clock, session.lookup_rows(PATH, [{"id": 1}]))
    waited_ms = 0
    while waited_ms < 1_000:
        waited_ms += second.wait()
    assert first.call == second.call == (MASTER, GetTable(PATH))
