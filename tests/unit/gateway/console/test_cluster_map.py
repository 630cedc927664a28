"""The map, doubts and the tree: what is put together, and what is not shown to whom."""

import pytest

from dodona.errors import InvalidRequest
from dodona.types import CellId, TabletId, Timestamp, TransactionId
from dodona_gateway.core.console import cluster
from dodona_gateway.core.console.cluster import (
    OTHERS,
    map_cells,
    merge_doubts,
    room_for,
    stuck,
    unheard_cells,
)
from dodona_gateway.core.console.server_pages import (
    Doubt,
    DoubtPage,
    ReportedCluster,
    ReportedTablets,
    Server,
    TabletCounts,
    TabletsPage,
)
from dodona_gateway.core.console.tree import Entry, crumbs_of, entries_of

ZERO, ONE, TWO = CellId(0), CellId(1), CellId(2)
REPORTED = ReportedCluster(
    0,
    (
        Server("master", "m", "ready"),
        Server("cell", "b", "silent", cell=ONE),
        Server("cell", "a", "ready", cell=ZERO),
    ),
)


def tablet(number: int, table: str, rows: int = 10) -> TabletCounts:
    return TabletCounts(TabletId(number), table, "mounted", rows, rows * 100, 1, rows * 10)


def reported_of(
    *tablets: TabletCounts, count: int | None = None, reported_us: int = 0
) -> ReportedTablets:
    return ReportedTablets(
        reported_us, TabletsPage(len(tablets) if count is None else count, tablets)
    )


def test_the_map_groups_the_tablets_of_a_cell_by_table() -> None:
    page = reported_of(tablet(1, "//t/b"), tablet(2, "//t/a"), tablet(3, "//t/b", 5))
    zero, one = map_cells(REPORTED, {ZERO: page}, lambda _: True)
    assert (zero.server.cell, one.server.cell, one.reported_us) == (0, 1, None)
    assert [(it.path, it.tablet_count, it.rows) for it in zero.shares] == [
        ("//t/a", 1, 10),
        ("//t/b", 2, 15),
    ]
    assert (zero.shares[1].memory_bytes, zero.shares[1].chunks) == (1500, 2)


def test_tables_that_may_not_be_read_have_no_name() -> None:
    page = reported_of(tablet(1, "//mine/a"), tablet(2, "//his/b"), tablet(3, "//his/c", 4))
    (zero, _) = map_cells(REPORTED, {ZERO: page}, lambda path: path.startswith("//mine/"))
    assert [(it.path, it.tablet_count, it.rows) for it in zero.shares] == [
        ("//mine/a", 1, 10),
        (OTHERS, 2, 14),
    ]
    assert "his" not in repr([it.path for it in zero.shares])


def test_the_map_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "SQUARES_MAX", 2)
    monkeypatch.setattr(cluster, "TABLES_MAX", 3)
    tablets = [tablet(number, f"//t/{number % 5}") for number in range(20)]
    (zero, _) = map_cells(REPORTED, {ZERO: reported_of(*tablets)}, lambda _: True)
    assert [it.path for it in zero.shares] == ["//t/0", "//t/1", "//t/2"]
    assert (zero.shares[0].tablet_count, len(zero.shares[0].tablets)) == (4, 2)
    assert zero.hidden_count == 2


def test_the_map_marks_old_and_incomplete_reports_of_cells() -> None:
    reported = REPORTED._replace(at_us=9_000_000)
    tablets = {ZERO: reported_of(tablet(1, "//t"), count=7, reported_us=8_000_000)}
    tablets[ONE] = reported_of(tablet(2, "//t"), reported_us=8_000_000)
    zero, one = map_cells(reported, tablets, lambda _: True)
    assert (zero.reported_us, zero.is_old, zero.listed_count, zero.tablet_count) == (
        8_000_000,
        0,
        1,
        7,
    )
    assert (one.is_old, one.listed_count, one.tablet_count) == (True, 1, 1), "it is silent"
    tablets[ZERO] = reported_of(tablet(1, "//t"), reported_us=1_000_000)
    assert map_cells(reported, tablets, lambda _: True)[0].is_old, "it tells other things only"


@pytest.mark.parametrize("cell_count", [0, 1, 2, 8, 64, 1000])
def test_where_there_are_many_cells_each_has_less_room(cell_count: int) -> None:
    tables, squares = room_for(cell_count)
    assert (tables > 0, squares > 0) == (True, True)
    assert cell_count * tables <= max(cell_count, cluster.LINES_MAX)
    assert cell_count * tables * squares <= max(cell_count, cluster.ALL_SQUARES_MAX)
    assert room_for(1) == (cluster.TABLES_MAX, cluster.SQUARES_MAX)


def doubt(transaction: int, age_ms: int, *participants: CellId) -> Doubt:
    return Doubt(TransactionId(transaction), participants[0], participants, Timestamp(9), age_ms)


def doubts_of(*doubts: Doubt, count: int | None = None) -> DoubtPage:
    return DoubtPage(len(doubts) if count is None else count, doubts)


def test_only_a_long_transaction_in_doubt_counts_as_stuck_and_only_once() -> None:
    both = {it: doubts_of(doubt(7, 900, ZERO, ONE)) for it in (ZERO, ONE)}
    assert stuck(REPORTED, both) == (0, False, 2)
    both = {it: doubts_of(doubt(7, 1_100, ZERO, ONE), doubt(8, 3, ZERO)) for it in (ZERO, ONE)}
    assert stuck(REPORTED, both) == (1, False, 2)
    assert stuck(REPORTED, {ZERO: doubts_of(doubt(7, 2_000, ZERO), count=1_001)}) == (1, True, 1)
    assert stuck(REPORTED, {}) == (0, False, 0)


def test_unheard_cells_are_those_without_a_report_of_transactions_in_doubt() -> None:
    assert [it.cell for it in unheard_cells(REPORTED, {})] == [ONE, ZERO]
    assert [it.cell for it in unheard_cells(REPORTED, {ZERO: DoubtPage()})] == [ONE]


def test_a_transaction_in_doubt_in_several_cells_is_one_line() -> None:
    found = merge_doubts(
        REPORTED,
        {
            TWO: doubts_of(doubt(7, 400, ZERO, TWO)),
            ZERO: doubts_of(doubt(9, 100, ZERO, ONE), doubt(7, 500, ZERO, TWO)),
        },
    )
    assert [(it.doubt.transaction, it.cells, it.silent, it.age_ms) for it in found] == [
        (7, (ZERO, TWO), (), 500),
        (9, (ZERO,), (ONE,), 100),
    ]


# ---- the tree

TABLES = ["//a/b/t", "//a/t", "//a/u", "//z"]


def test_entries_of_lists_directories_from_the_paths_of_tables() -> None:
    assert entries_of("/", TABLES) == [
        Entry("a", "//a", False, 3),
        Entry("z", "//z", True, 1),
    ]
    assert entries_of("//a", TABLES, ["empty", "t"]) == [
        Entry("b", "//a/b", False, 1),
        Entry("empty", "//a/empty", False, 0),
        Entry("t", "//a/t", True, 1),
        Entry("u", "//a/u", True, 1),
    ]
    assert entries_of("//none", TABLES) == []


def test_crumbs_lead_back_to_the_root() -> None:
    assert [(it.name, it.path) for it in crumbs_of("//a/b")] == [
        ("//", "/"),
        ("a", "//a"),
        ("b", "//a/b"),
    ]
    assert [it.path for it in crumbs_of("/")] == ["/"]
    for path in ("//a/../b", "nonsense", "//<script>", ""):
        with pytest.raises(InvalidRequest):
            crumbs_of(path)
