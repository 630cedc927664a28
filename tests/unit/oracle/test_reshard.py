"""Tablets divided anew, copied, and tables altered: what the catalog makes of them."""

import time

import pytest
from msgspec.structs import replace

from dodona.errors import InvalidTabletState, LimitExceeded, SchemaViolation, Unavailable
from dodona.schema import Column
from dodona.types import KEY_MAX, KEY_MIN, CellId, Key, Revision, TableSettings, TabletId
from dodona_oracle.core import definitions, mounting
from dodona_oracle.core.records import StoredTable, StoredTablet
from dodona_wire.messages.catalog import TabletSource
from unit.oracle.realm import COLUMNS, pivot


def table(count: int, *, cell: int | None = 0, state: str = "unmounted") -> StoredTable:
    """Tablets 10, 11, … that begin at 0, 10, 20, …, each in a cell of its own from `cell` on."""
    tablets = tuple(
        StoredTablet(
            TabletId(10 + at),
            pivot(10 * at) if at else KEY_MIN,
            state,
            None if cell is None else CellId(cell + at),
            Revision(5),
        )
        for at in range(count)
    )
    return StoredTable(9, "//t", COLUMNS, "full", tablets, TableSettings(min_data_versions=2))


def source(number: int, lower: Key = KEY_MIN, upper: Key = KEY_MAX) -> TabletSource:
    return TabletSource(TabletId(10 + number), CellId(number), lower, upper)


def test_new_tablets_take_over_from_all_that_they_overlap() -> None:
    before = table(4)
    pivots = (pivot(10), pivot(15), pivot(25))
    after = mounting.reshard(before, pivots, 1, 2, 100)
    assert [it.tablet for it in after.tablets] == [10, 100, 101, 102, 13]
    assert [it.pivot_key for it in after.tablets] == [KEY_MIN, *pivots, pivot(30)]
    assert [it.sources for it in after.tablets] == [
        (),
        (source(1, pivot(10), pivot(15)),),
        (source(1, pivot(15), pivot(20)), source(2, pivot(20), pivot(25))),
        (source(2, pivot(25), pivot(30)),),
        (),
    ]
    new = after.tablets[1]
    assert (new.state, new.cell, new.revision) == ("unmounted", None, 0)
    assert after.tablets[0] is before.tablets[0]
    assert before == table(4)


def test_a_tablet_that_never_had_a_cell_has_no_rows_to_take_over() -> None:
    after = mounting.reshard(table(2, cell=None), (KEY_MIN,), None, None, 100)
    assert [(it.tablet, it.sources) for it in after.tablets] == [(100, ())]


def test_resharding_again_before_a_mount_keeps_the_first_sources() -> None:
    once = mounting.reshard(table(3), (KEY_MIN, pivot(15)), None, None, 100)
    twice = mounting.reshard(once, (KEY_MIN,), None, None, 200)
    (tablet,) = twice.tablets
    assert tablet.sources == (
        source(0, upper=pivot(10)),
        source(1, pivot(10), pivot(15)),
        source(1, pivot(15), pivot(20)),
        source(2, pivot(20)),
    )


def test_rows_that_a_tablet_took_over_come_only_from_that_tablet() -> None:
    """The others' old source has them too, as they were before."""
    once = mounting.reshard(table(1), (KEY_MIN, pivot(5), pivot(7)), None, None, 100)
    had = replace(once.tablets[1], cell=CellId(4), sources=())
    once = replace(once, tablets=(once.tablets[0], had, once.tablets[2]))
    (tablet,) = mounting.reshard(once, (KEY_MIN,), None, None, 200).tablets
    assert tablet.sources == (
        source(0, upper=pivot(5)),
        TabletSource(TabletId(101), CellId(4), pivot(5), pivot(7)),
        source(0, lower=pivot(7)),
    )


def test_resharded_tablets_get_new_cells_and_take_over_each_range_once() -> None:
    once = mounting.reshard(table(2), (KEY_MIN, pivot(5)), None, None, 100)
    mounted = mounting.mount(
        once,
        None,
        None,
        is_frozen=False,
        revision=Revision(8),
        place=lambda count: [CellId(7)] * count,
    )
    assert [it.cell for it in mounted.tablets] == [7, 7]
    first, second = mounting.assignments(mounted, CellId(7))
    assert first.sources == (source(0, upper=pivot(5)),)
    assert second.sources == (source(0, pivot(5), pivot(10)), source(1, pivot(10)))
    assert first.upper == second.lower == pivot(5)


@pytest.mark.parametrize(
    ("pivots", "reason"),
    [
        ((), "First pivot key must equal"),
        ((pivot(11),), "First pivot key must equal the pivot key of the first replaced tablet"),
        ((pivot(10), pivot(10)), "strictly increasing"),
        ((pivot(10), pivot(12), pivot(11)), "strictly increasing"),
        ((pivot(10), pivot(30)), "must be less than the pivot key of the next tablet"),
        ((pivot(10), pivot(11) + b"\x99"), "values of the first key columns"),
    ],
)
def test_pivot_keys_that_do_not_fit_are_refused(pivots: tuple[bytes, ...], reason: str) -> None:
    with pytest.raises(SchemaViolation, match=reason):
        mounting.reshard(table(4), pivots, 1, 2, 100)  # type: ignore[arg-type]


def test_the_error_for_the_last_pivot_key_has_its_place() -> None:
    with pytest.raises(SchemaViolation) as told:
        mounting.reshard(table(4), (pivot(10), pivot(11), pivot(30)), 1, 2, 100)
    assert told.value.attributes["index"] == 2


def test_the_first_tablet_begins_below_every_key() -> None:
    with pytest.raises(SchemaViolation, match="First pivot key must be empty"):
        mounting.reshard(table(2), (pivot(1),), None, None, 100)


@pytest.mark.parametrize("state", ["mounted", "frozen", "mounting", "unmounting", "freezing"])
def test_only_unmounted_tablets_are_resharded(state: str) -> None:
    it = table(3)
    it = replace(it, tablets=(it.tablets[0], replace(it.tablets[1], state=state), it.tablets[2]))
    text = "Cannot reshard table since tablet 11 is not unmounted"
    with pytest.raises(InvalidTabletState, match=text):
        mounting.reshard(it, (KEY_MIN,), None, None, 100)
    after = mounting.reshard(it, (pivot(20), pivot(25)), 2, 2, 100)  # the others may be mounted
    assert [tablet.tablet for tablet in after.tablets] == [10, 11, 100, 101]


def test_a_reshard_above_the_tablet_limit_of_a_table_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(definitions, "TABLETS_PER_TABLE_MAX", 4)
    mounting.reshard(table(3), (pivot(20), pivot(21)), 2, 2, 100)
    with pytest.raises(LimitExceeded, match="at most 4 tablets") as told:
        mounting.reshard(table(3), (pivot(20), pivot(21), pivot(22)), 2, 2, 100)
    assert told.value.attributes["tablet_count"] == 5


# Copies


def test_a_reshard_of_thousands_of_tablets_is_fast() -> None:
    """The master hands out timestamps meanwhile."""
    count = definitions.TABLETS_PER_TABLE_MAX
    tablets = tuple(
        StoredTablet(
            TabletId(10 + at), pivot(at) if at else KEY_MIN, "unmounted", CellId(0), Revision(5)
        )
        for at in range(count)
    )
    once = replace(table(1), tablets=tablets)
    between = (KEY_MIN, *(pivot(at, "m") for at in range(1, count)))
    started_s = time.process_time()
    once = mounting.reshard(once, between, None, None, 100_000)
    assert sum(len(it.sources) for it in once.tablets) == 2 * count - 1
    merged = mounting.reshard(once, (KEY_MIN,), None, None, 200_000)
    again = mounting.reshard(merged, tuple(it.pivot_key for it in tablets), None, None, 300_000)
    assert [it.sources[0].tablet for it in again.tablets] == [it.tablet for it in tablets]
    assert time.process_time() - started_s < 1.5


def test_a_copy_has_the_cells_of_its_source_and_takes_over_the_rows() -> None:
    original = table(2)
    copy = mounting.copied(original, "//copy", 50)
    assert (copy.table, copy.path, copy.columns) == (50, "//copy", COLUMNS)
    assert copy.settings == original.settings
    assert [it.tablet for it in copy.tablets] == [51, 52]
    assert [it.pivot_key for it in copy.tablets] == [it.pivot_key for it in original.tablets]
    assert [(it.cell, it.state, it.revision) for it in copy.tablets] == [
        (0, "unmounted", 0),
        (1, "unmounted", 0),
    ]
    assert [it.sources for it in copy.tablets] == [
        (source(0, upper=pivot(10)),),
        (source(1, lower=pivot(10)),),
    ]


def test_a_copy_of_a_table_that_never_was_mounted_is_empty() -> None:
    copy = mounting.copied(table(2, cell=None), "//copy", 50)
    assert [(it.cell, it.sources) for it in copy.tablets] == [(None, ()), (None, ())]


def test_a_copy_of_resharded_tablets_takes_its_rows_from_the_old_tablets() -> None:
    resharded = mounting.reshard(table(2), (KEY_MIN,), None, None, 100)
    (tablet,) = mounting.copied(resharded, "//copy", 50).tablets
    assert tablet.cell is None
    assert tablet.sources == (source(0, upper=pivot(10)), source(1, lower=pivot(10)))


def test_a_tablet_that_waits_for_its_rows_cannot_be_copied_or_resharded() -> None:
    copy = mounting.copied(table(1), "//copy", 50)
    with pytest.raises(Unavailable, match="still being copied"):
        mounting.copied(copy, "//other", 60)
    with pytest.raises(Unavailable, match="still being copied"):
        mounting.reshard(copy, (KEY_MIN,), None, None, 60)


# Schemas

NUMBER = Column("n", "int64")
BASE = (
    Column("k", "int64", sort_order="ascending", required=True),
    Column("t", "utf8", required=True),
    NUMBER,
    Column("s", "int64", aggregate="sum"),
)
KEY, TEXT, _, SUM = BASE


def altered(*columns: Column) -> tuple[Column, ...]:
    it = replace(table(1), columns=BASE)
    after = mounting.alter(it, columns)
    assert after.tablets is it.tablets
    return after.columns


@pytest.mark.parametrize(
    "columns",
    [
        (KEY, TEXT, NUMBER, Column("new", "any"), SUM),
        (KEY, Column("k2", "utf8", sort_order="ascending"), TEXT, NUMBER, SUM),
        (KEY, Column("k2", "utf8", sort_order="descending"), TEXT, NUMBER, SUM),
        (KEY, SUM, NUMBER, TEXT),
        (KEY, replace(TEXT, required=False), NUMBER, SUM),
        (replace(KEY, required=False), TEXT, NUMBER, SUM),
        (KEY, TEXT, replace(NUMBER, lock="a"), SUM),
        (KEY, TEXT, replace(NUMBER, aggregate="max"), SUM),
        (KEY, replace(TEXT, type="string"), NUMBER, SUM),
    ],
)
def test_an_allowed_change_of_a_schema_is_applied(columns: tuple[Column, ...]) -> None:
    assert altered(*columns) == columns


def test_the_same_schema_changes_nothing() -> None:
    it = table(1)
    assert mounting.alter(it, COLUMNS) is it


@pytest.mark.parametrize(
    ("columns", "reason"),
    [
        ((KEY, TEXT, SUM), "can't be removed or renamed"),
        ((KEY, TEXT, replace(NUMBER, name="m"), SUM), "can't be removed or renamed"),
        ((KEY, TEXT, replace(NUMBER, type="uint64"), SUM), "from int64 to uint64"),
        ((KEY, replace(TEXT, type="any"), NUMBER, SUM), "from utf8 to any"),
        ((KEY, TEXT, replace(NUMBER, required=True), SUM), "can't become required"),
        ((KEY, TEXT, NUMBER, SUM, Column("new", "int64", required=True)), "can't be required"),
        (
            (KEY, Column("k2", "int64", sort_order="ascending", required=True), TEXT, NUMBER, SUM),
            "can't be required",
        ),
        (
            (KEY, TEXT, NUMBER, replace(SUM, aggregate=None)),
            "aggregate sum of a column can't change",
        ),
        (
            (KEY, TEXT, NUMBER, replace(SUM, aggregate="min")),
            "aggregate sum of a column can't change",
        ),
        ((Column("k2", "int64", sort_order="ascending"), KEY, TEXT, NUMBER, SUM), "key columns"),
        ((KEY, replace(NUMBER, sort_order="ascending"), TEXT, SUM), "can't become a key column"),
        ((replace(KEY, sort_order=None), TEXT, NUMBER, SUM), "needs a key column"),
        (
            (replace(KEY, sort_order="descending"), TEXT, NUMBER, SUM),
            "order of a key column can't change from ascending to descending",
        ),
        (
            (KEY, replace(NUMBER, sort_order="descending"), TEXT, SUM),
            "can't become a key column",
        ),
        ((KEY,), "at least one column that is not a key"),
        ((KEY, TEXT, NUMBER, SUM, SUM), "two columns have the same name"),
        ((KEY, replace(TEXT, aggregate="sum"), NUMBER, SUM), "sum aggregates int64"),
    ],
)
def test_a_forbidden_change_of_a_schema_is_refused_with_the_reason(
    columns: tuple[Column, ...], reason: str
) -> None:
    with pytest.raises(SchemaViolation, match=reason):
        altered(*columns)
