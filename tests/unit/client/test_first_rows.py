"""The first rows of a range: as many as asked for, where they go on, and what is not read."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dodona
from dodona._core.protocol.limits import SessionLimits
from dodona._core.protocol.steps import MASTER, Target
from dodona._core.reading.pages import FirstRows
from dodona._core.session import Session
from dodona.errors import InvalidRequest, SchemaViolation
from dodona.schema import Column
from dodona.types import KEY_MIN, SYNC_LAST_COMMITTED, Timestamp
from dodona_wire.messages.data import GenerateTimestamps, Scan, ScanPage, TimestampRange
from dodona_wire.messages.families import Reply, Request
from suite.levels import examples
from unit.client.protocols import (
    COLUMNS,
    MOVED,
    PATH,
    PIVOT,
    Clock,
    key,
    new_session,
    play,
    table,
    tablet,
)

IDS = (1, 5, 99, 100, 150, 200)
PLENTY = 1 << 30
FRESH = Timestamp(777)
OTHERS = (*COLUMNS[:2], Column("text", "utf8"))
MOVED_TABLETS = (tablet(10, 5, None), tablet(11, 1, PIVOT))


class Tablets:
    """Two cells with rows of `IDS`, in pages of at most `page_rows`; what is asked is counted."""

    def __init__(self, page_rows: int = 100, note: str = "") -> None:
        self.page_rows = page_rows
        self.note = note
        self.asked: list[tuple[Target, Scan]] = []

    def __call__(self, target: Target, body: Request) -> Reply:
        if isinstance(body, GenerateTimestamps):
            return TimestampRange(FRESH, 1)
        assert isinstance(body, Scan)
        self.asked.append((target, body))
        here = [it for it in IDS if (it >= PIVOT) == bool(target)]
        wanted = [it for it in here if body.lower <= key(it) < body.upper]
        page = wanted[: min(self.page_rows, body.row_count_max)]
        resume = key(page[-1] + 1) if len(wanted) > len(page) else None
        rows = tuple([(it * 10, self.note) for it in page])
        return ScanPage(tuple(map(key, page)), rows, resume)


def first(
    tablets: Tablets,
    count: int,
    lower: Any = None,
    upper: Any = None,
    *,
    bytes_max: int = PLENTY,
    session: Session | None = None,
    **options: Any,
) -> tuple[list[int], Any, Timestamp]:
    clock = Clock()
    used = session or new_session(clock, table())
    read = used.first_rows(PATH, count, bytes_max, lower, upper, **options)
    found, at = play(clock, read, tablets)
    return [row["id"] for row in found.rows], found.next, at


@pytest.mark.parametrize("page_rows", [1, 2, 100])
@pytest.mark.parametrize("count", range(1, 8))
def test_first_rows_returns_the_requested_count_and_the_next_key(
    count: int, page_rows: int
) -> None:
    ids, behind, at = first(Tablets(page_rows), count)
    assert ids == [*IDS[:count]]
    assert behind == ((IDS[count],) if count < len(IDS) else None)
    assert at == FRESH


@pytest.mark.parametrize(
    ("lower", "upper", "expected"),
    [
        ([5], [150], [5, 99, 100]),
        (None, [PIVOT], [1, 5, 99]),
        ([PIVOT], None, [100, 150, 200]),
        ([7], [7], []),
        ([200], [100], []),
        ([201], None, []),
        ([], [], []),
    ],
)
def test_a_range_is_kept_to(lower: Any, upper: Any, expected: list[int]) -> None:
    assert first(Tablets(), 10, lower, upper)[:2] == (expected, None)
    for count in range(1, len(expected)):
        found = first(Tablets(), count, lower, upper)
        assert found[:2] == (expected[:count], (expected[count],))


def test_no_more_is_read_than_needed() -> None:
    tablets = Tablets()
    first(tablets, 2)
    ((target, asked),) = tablets.asked
    assert (target, asked.row_count_max) == (0, 3)
    tablets = Tablets()
    first(tablets, 3)
    assert [(target, it.row_count_max) for target, it in tablets.asked] == [(0, 4), (1, 1)]
    assert {it.timestamp for _, it in tablets.asked} == {FRESH}


def test_pages_have_the_session_s_bound() -> None:
    clock = Clock()
    limits = SessionLimits(rows_per_page_max=2)
    session = Session(
        instant_us=clock.instant_us, unix_us=clock.unix_us, dice=lambda: 0.5, limits=limits
    )
    session.routing.learn(table())
    tablets = Tablets()
    assert first(tablets, 5, session=session)[:2] == ([*IDS[:5]], (200,))
    assert max(it.row_count_max for _, it in tablets.asked) == 2


@pytest.mark.parametrize("page_rows", [1, 2, 100])
def test_rows_have_a_bound_of_bytes_but_there_is_always_one(page_rows: int) -> None:
    for bytes_max, count in ((1, 1), (1_100, 1), (2_200, 2), (3_300, 3), (7_000, 6)):
        ids, behind, _ = first(Tablets(page_rows, "x" * 1_000), 10, bytes_max=bytes_max)
        assert ids == [*IDS[:count]]
        assert behind == ((IDS[count],) if count < len(IDS) else None)
    tablets = Tablets(1, "x" * 1_000)
    first(tablets, 10, bytes_max=1)
    assert len(tablets.asked) == 2


def test_columns_and_timestamps_are_as_of_a_select() -> None:
    clock, tablets = Clock(), Tablets()
    session = new_session(clock, table())
    read = session.first_rows(PATH, 2, PLENTY, columns=["id"], timestamp=Timestamp(9))
    found, at = play(clock, read, tablets)
    assert isinstance(found, FirstRows)
    assert found.rows.columns == ("id",)
    assert at == 9
    with pytest.raises(SchemaViolation, match="no such column"):
        first(Unmoved(), 1, columns=["nope"])
    with pytest.raises(InvalidRequest, match="Invalid read timestamp"):
        first(tablets, 1, timestamp=0)
    with pytest.raises(InvalidRequest, match="is above the timestamp"):
        first(tablets, 1, timestamp=Timestamp(9), retention_timestamp=Timestamp(10))


class Unmoved(Tablets):
    def __call__(self, target: Target, body: Request) -> Reply:
        return table() if target == MASTER else super().__call__(target, body)


def test_first_rows_of_a_non_atomic_table_reads_the_last_committed_rows() -> None:
    tablets = Tablets(1)
    session = new_session(Clock(), table(atomicity="none"))
    ids, _, at = first(tablets, 10, session=session)
    assert (ids, at) == ([*IDS], SYNC_LAST_COMMITTED)


class Changing(Tablets):
    """The first cell answers one page and is gone then; the master knows the table as it is now."""

    def __init__(self, now: Any) -> None:
        super().__init__(1)
        self.now = now

    def __call__(self, target: Target, body: Request) -> Reply:
        if target == MASTER:
            return self.now  # type: ignore[no-any-return]
        if self.asked and target == 0:
            return MOVED
        if isinstance(body, Scan) and target > 1:
            self.asked.append((target, body))
            return super().__call__(0 if body.lower < key(PIVOT) else 1, body)
        return super().__call__(target, body)


def test_first_rows_follows_tablets_that_move_or_are_resharded() -> None:
    cut = (tablet(20, 5, None), tablet(21, 6, 50), tablet(22, 1, PIVOT), tablet(23, 1, 160))
    for now in (table(MOVED_TABLETS), table(cut)):
        ids, behind, _ = first(Changing(now), 5)
        assert (ids, behind) == ([*IDS[:5]], (200,))


@pytest.mark.parametrize(
    "now",
    [table(MOVED_TABLETS, columns=OTHERS), table(MOVED_TABLETS)],
    ids=["schema", "atomicity"],
)
def test_first_rows_restarts_if_schema_or_atomicity_changes_during_the_read(now: Any) -> None:
    tablets, clock = Changing(now), Clock()
    read = new_session(clock, table(atomicity="none")).first_rows(PATH, 10, PLENTY)
    found, at = play(clock, read, tablets)
    assert at == FRESH
    assert [row["id"] for row in found.rows] == [*IDS], "none is lost, none comes twice"
    assert [*found.rows[0]] == [column.name for column in now.columns]
    assert KEY_MIN in [it.lower for target, it in tablets.asked if target == 5]


# ---- over a database, with own writes

OWN, LOG = "//own", "//log"
SCHEMA: list[dict[str, Any]] = [
    {"name": "id", "type": "int64", "sort_order": "ascending"},
    {"name": "text", "type": "utf8"},
]


@pytest.fixture(scope="module")
def db(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dodona.Client]:
    folder: Path = tmp_path_factory.mktemp("first")
    with dodona.open(str(folder / "data")) as client:
        client.create_table(OWN, SCHEMA, pivot_keys=[[], [3], [7]], mount=True)
        client.insert_rows(OWN, [{"id": it, "text": "x" * 100} for it in range(10)])
        yield client


def ask(db: dodona.Client, count: int, bytes_max: int, **options: Any) -> tuple[FirstRows, int]:
    return db._driver.run(db._session.first_rows(OWN, count, bytes_max, **options))


@pytest.mark.parametrize("count", [1, 3, 10, 11])
def test_page_by_page_all_rows_are_read_at_one_timestamp(db: dodona.Client, count: int) -> None:
    expected = list(db.select(OWN))
    read: list[Any] = []
    lower, at = None, SYNC_LAST_COMMITTED
    while True:
        found, seen_at = ask(db, count, PLENTY, lower=lower, timestamp=at)
        read += found.rows
        at, lower = Timestamp(seen_at), found.next
        if lower is None:
            break
        db.insert_rows(OWN, [{"id": 9, "text": "later" + "x" * len(read)}])
    assert read == expected
    db.insert_rows(OWN, expected[-1:])


writes = st.dictionaries(
    st.integers(-2, 12), st.none() | st.sampled_from(["", "y", "z" * 400]), max_size=12
)
bounds = st.none() | st.integers(-2, 12)


@pytest.mark.slow("large examples")
@settings(max_examples=examples(150), deadline=None)
@given(writes, st.integers(1, 12), st.integers(1, 2_000), bounds, bounds)
def test_own_writes_are_seen_and_the_bounds_are_kept(
    db: dodona.Client,
    written: dict[int, str | None],
    count: int,
    bytes_max: int,
    lower: int | None,
    upper: int | None,
) -> None:
    with db.begin(read_own_writes=True) as tx:
        for number, text in written.items():
            if text is None:
                tx.delete_rows(OWN, [{"id": number}])
            else:
                tx.insert_rows(OWN, [{"id": number, "text": text}])
        first_bound = None if lower is None else [lower]
        end = None if upper is None else [upper]
        expected = list(tx.select(OWN, first_bound, end))
        read: list[Any] = []
        place: Any = first_bound
        while True:
            options = {"timestamp": tx.start_timestamp, "transaction": tx._buffer}
            found, _ = ask(db, count, bytes_max, lower=place, upper=end, **options)
            rows = list(found.rows)
            assert len(rows) <= count
            assert len(rows) <= 1 or sum(len(it["text"]) for it in rows) <= bytes_max
            read += rows
            place = found.next
            if place is None:
                break
            assert rows
            assert expected[len(read)]["id"] == place[0]
        assert read == expected
        tx.abort()
