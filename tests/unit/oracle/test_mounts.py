"""Mounts, cells and proxies: who serves what, who is there, and who says so."""

import pytest

from dodona.errors import (
    DodonaError,
    InvalidRequest,
    InvalidTabletState,
    LimitExceeded,
    Unavailable,
)
from dodona.types import KEY_MAX, KEY_MIN, CellId
from dodona_oracle.core import cells as cells_module
from dodona_oracle.core.catalog import Attendance
from dodona_wire.messages.catalog import (
    CatalogRequest,
    Cell,
    Cluster,
    Done,
    FreezeTable,
    GetCluster,
    GetTable,
    Heartbeat,
    ListTables,
    MountedTablet,
    MountTable,
    RegisterProxy,
    TableList,
    UnfreezeTable,
    UnmountTable,
)
from dodona_wire.messages.tree import RemoveNode
from unit.oracle.realm import COLUMNS, Realm, create, pivot


@pytest.fixture
def cluster() -> Realm:
    return Realm()


def test_mounting_spreads_tablets_evenly_over_the_living_cells(cluster: Realm) -> None:
    for cell in (2, 0, 1):
        cluster.beat(cell)
    cluster.ask(create(tablet_count=7))
    table = cluster.ask(MountTable("//bank/accounts"))
    assert [tablet.cell for tablet in table.tablets] == [0, 1, 2, 0, 1, 2, 0]
    assert {tablet.state for tablet in table.tablets} == {"mounting"}
    assert table.addresses == {cell: f"http://127.0.0.1:{9000 + cell}" for cell in range(3)}
    cluster.ask(create("//other", tablet_count=2))
    cluster.ask(MountTable("//other"))
    assert cluster.cells("//other") == [1, 2]  # the least loaded come first


def test_a_cell_gets_its_assignment_and_reports_when_it_serves_the_tablets(cluster: Realm) -> None:
    cluster.beat(0)
    cluster.beat(1)
    cluster.ask(create(tablet_count=3))
    cluster.ask(MountTable("//bank/accounts"))
    assignment = cluster.beat(0)
    assert assignment.sequence == 7
    assert assignment.addresses == {0: "http://127.0.0.1:9000", 1: "http://127.0.0.1:9001"}
    first, last = assignment.tablets
    assert (first.lower, first.upper) == (KEY_MIN, pivot(1))
    assert (last.lower, last.upper) == (pivot(2), KEY_MAX)
    assert (first.path, first.columns, first.atomicity) == ("//bank/accounts", COLUMNS, "full")
    assert cluster.states() == ["mounting"] * 3
    cluster.serve(0)
    assert cluster.states() == ["mounted", "mounting", "mounted"]
    cluster.serve(1)
    assert cluster.states() == ["mounted"] * 3


def test_unmounting_ends_when_the_cell_serves_no_more(cluster: Realm) -> None:
    cluster.beat(0)
    cluster.ask(create(tablet_count=2))
    cluster.ask(MountTable("//bank/accounts"))
    tablets = cluster.serve(0).tablets
    cluster.ask(UnmountTable("//bank/accounts"))
    assert cluster.states() == ["unmounting"] * 2
    still = MountedTablet(tablets[1].tablet, tablets[1].revision)
    assert cluster.beat(0, still).tablets == ()
    assert cluster.states() == ["unmounted", "unmounting"]
    cluster.beat(0)
    assert cluster.states() == ["unmounted"] * 2
    assert cluster.ask(RemoveNode("//bank/accounts")) == Done()


def test_a_report_completes_an_earlier_command_though_a_later_one_is_under_way(
    cluster: Realm,
) -> None:
    for cell in range(2):
        cluster.beat(cell)
    cluster.ask(create("//x", tablet_count=2))
    cluster.ask(create("//y"))
    mounted = cluster.ask(MountTable("//x")).tablets
    known = cluster.catalog_revision()
    cluster.ask(MountTable("//y"))
    cluster.serve(1)
    assert cluster.states("//x") == ["mounting", "mounted"]
    cluster.beat(0, MountedTablet(mounted[0].tablet, mounted[0].revision), revision=known)
    assert cluster.states("//x") == ["mounted", "mounted"]
    assert cluster.states("//y") == ["mounting"]


def test_only_cells_that_were_heard_of_have_an_address(cluster: Realm) -> None:
    for cell in range(2):
        cluster.beat(cell)
    cluster.ask(create(tablet_count=2))
    cluster.ask(MountTable("//bank/accounts"))
    cluster.restart()
    assert cluster.ask(GetTable("//bank/accounts")).addresses == {}
    cluster.beat(1)
    assert cluster.ask(GetTable("//bank/accounts")).addresses == {1: "http://127.0.0.1:9001"}


def test_each_mount_has_a_new_revision_and_the_same_cell(cluster: Realm) -> None:
    for cell in range(2):
        cluster.beat(cell)
    cluster.ask(create(tablet_count=4))
    revisions = []
    for _ in range(3):
        table = cluster.ask(MountTable("//bank/accounts"))
        assert [tablet.cell for tablet in table.tablets] == [0, 1, 0, 1]
        revisions.append(table.tablets[0].revision)
        for cell in range(2):
            cluster.serve(cell)
        cluster.ask(UnmountTable("//bank/accounts"))
        for cell in range(2):
            cluster.beat(cell)
        cluster.restart()
        cluster.beat(2)  # a new cell with nothing to do draws nothing away
        for cell in range(2):
            cluster.beat(cell)
    assert revisions == sorted(set(revisions))


def test_a_report_of_an_earlier_mount_does_not_complete_a_later_mount(cluster: Realm) -> None:
    cluster.beat(0)
    cluster.ask(create())
    cluster.ask(MountTable("//bank/accounts"))
    (old,) = cluster.serve(0).tablets
    cluster.ask(UnmountTable("//bank/accounts"))
    cluster.beat(0)
    cluster.ask(MountTable("//bank/accounts"))
    cluster.beat(0, MountedTablet(old.tablet, old.revision))  # repeated late
    assert cluster.states() == ["mounting"]
    cluster.serve(0)
    assert cluster.states() == ["mounted"]


@pytest.mark.parametrize("command", [FreezeTable, UnmountTable])
def test_a_report_from_before_a_command_does_not_complete_the_command(
    cluster: Realm, command: type[FreezeTable | UnmountTable]
) -> None:
    """Though it says what the command asked for: it may be from long ago."""
    path = "//bank/accounts"
    cluster.beat(0)
    cluster.ask(create())
    (tablet,) = cluster.ask(MountTable(path)).tablets
    cluster.serve(0)
    cluster.ask(FreezeTable(path))
    frozen = MountedTablet(tablet.tablet, tablet.revision, "frozen")
    late = cluster.beat(0, frozen).revision
    assert cluster.states() == ["frozen"]
    cluster.ask(UnfreezeTable(path))
    cluster.beat(0, MountedTablet(tablet.tablet, tablet.revision))
    assert cluster.states() == ["mounted"]
    (under_way,) = cluster.ask(command(path)).tablets
    words = [frozen] if command is FreezeTable else []
    cluster.restart()
    cluster.beat(0, *words, revision=late)
    assert cluster.states() == [under_way.state]
    known = cluster.beat(0, MountedTablet(tablet.tablet, tablet.revision)).revision
    cluster.beat(0, *words, revision=known)
    assert cluster.states() == ["frozen" if words else "unmounted"]


def test_a_report_of_another_cell_does_not_complete_a_mount(cluster: Realm) -> None:
    cluster.beat(0)
    cluster.ask(create())
    (tablet,) = cluster.ask(MountTable("//bank/accounts")).tablets
    cluster.beat(1, MountedTablet(tablet.tablet, tablet.revision))
    assert cluster.states() == ["mounting"]


def test_mounting_and_unmounting_can_be_repeated(cluster: Realm) -> None:
    cluster.beat(0)
    cluster.ask(create())
    mounted = cluster.ask(MountTable("//bank/accounts"))
    record_count = len(cluster.records)
    assert cluster.ask(MountTable("//bank/accounts")) == mounted
    cluster.serve(0)
    cluster.ask(UnmountTable("//bank/accounts"))
    assert cluster.ask(UnmountTable("//bank/accounts")).tablets[0].state == "unmounting"
    assert len(cluster.records) == record_count + 2  # mounted, unmounting


def test_a_table_that_is_being_unmounted_can_not_be_mounted_yet(cluster: Realm) -> None:
    cluster.beat(0)
    cluster.ask(create())
    cluster.ask(MountTable("//bank/accounts"))
    cluster.serve(0)
    cluster.ask(UnmountTable("//bank/accounts"))
    with pytest.raises(InvalidTabletState, match='Cannot mount tablet 2 in "unmounting" state'):
        cluster.ask(MountTable("//bank/accounts"))


@pytest.mark.parametrize("is_served", [True, False])
def test_a_removed_mounted_table_is_no_longer_assigned_to_its_cell(
    cluster: Realm, is_served: bool
) -> None:
    cluster.beat(0)
    cluster.ask(create())
    (tablet,) = cluster.ask(MountTable("//bank/accounts")).tablets
    if is_served:
        cluster.serve(0)
    cluster.ask(RemoveNode("//bank/accounts"))
    assert cluster.ask(ListTables("//")) == TableList(())
    assert cluster.beat(0, MountedTablet(tablet.tablet, tablet.revision)).tablets == ()
    assert cluster.ask(GetCluster()).cells[0].tablet_count == 0


def test_mounting_needs_a_living_cell(cluster: Realm) -> None:
    cluster.ask(create())
    with pytest.raises(Unavailable, match="No cell is alive"):
        cluster.ask(MountTable("//bank/accounts"))
    cluster.beat(0)
    cluster.instant_us += 2_000_001
    with pytest.raises(Unavailable, match="No cell is alive"):
        cluster.ask(MountTable("//bank/accounts"))
    cluster.beat(0)
    cluster.ask(MountTable("//bank/accounts"))


# Cells and proxies


def test_a_living_cell_can_not_be_claimed_from_another_address(cluster: Realm) -> None:
    cluster.beat(0)
    with pytest.raises(InvalidRequest, match=r"Cell 0 is alive at http://127\.0\.0\.1:9000"):
        cluster.beat(0, port=9500)
    cluster.instant_us += 1_900_000
    cluster.beat(0)
    cluster.instant_us += 1_900_000
    with pytest.raises(InvalidRequest):
        cluster.beat(0, port=9500)
    cluster.instant_us += 200_000
    assert cluster.beat(0, port=9500).addresses == {0: "http://127.0.0.1:9500"}


def test_a_process_with_a_later_epoch_takes_a_living_cell_over(cluster: Realm) -> None:
    cluster.beat(0, epoch=1)
    assert cluster.beat(0, port=9500, epoch=2).addresses == {0: "http://127.0.0.1:9500"}
    earlier = r"The process at http://127\.0\.0\.1:9500 took cell 0 over, in epoch 2 of its log"
    with pytest.raises(InvalidRequest, match=earlier):
        cluster.beat(0, epoch=1)
    with pytest.raises(InvalidRequest, match="Cell 0 is alive"):
        cluster.beat(0, epoch=2)
    assert cluster.beat(0, epoch=3).addresses == {0: "http://127.0.0.1:9000"}
    cluster.instant_us += 2_000_001
    assert cluster.beat(0, port=9500, epoch=1).addresses == {0: "http://127.0.0.1:9500"}


@pytest.mark.parametrize("address", ["", "http://a b", "x" * 257, "http://ä", "http://a\n"])
def test_an_address_that_is_none_is_refused(cluster: Realm, address: str) -> None:
    for request in (Heartbeat(CellId(0), address, (), 1), RegisterProxy(address)):
        with pytest.raises(InvalidRequest, match="address"):
            cluster.ask(request)
    assert cluster.ask(GetCluster()) == Cluster((), ())


@pytest.mark.parametrize("cell", [-1, 1 << 31])
def test_a_cell_id_out_of_bounds_is_refused(cluster: Realm, cell: int) -> None:
    with pytest.raises(InvalidRequest, match="id"):
        cluster.beat(cell)


def test_the_cluster_shows_which_cells_and_proxies_are_alive(cluster: Realm) -> None:
    cluster.beat(1)
    cluster.beat(0)
    cluster.ask(create(tablet_count=3))
    cluster.ask(MountTable("//bank/accounts"))
    cluster.ask(RegisterProxy("http://p2"))
    cluster.ask(RegisterProxy("http://p1"))
    cluster.instant_us += 2_500_000
    cluster.beat(0)
    cells = (
        Cell(CellId(0), "http://127.0.0.1:9000", True, 2),
        Cell(CellId(1), "http://127.0.0.1:9001", False, 1),
    )
    assert cluster.ask(GetCluster()) == Cluster(("http://p1", "http://p2"), cells)
    cluster.instant_us += 3_000_000
    cluster.ask(RegisterProxy("http://p1"))
    assert cluster.ask(GetCluster()).proxies == ("http://p1",)
    cluster.restart()  # cells that hold a tablet are known of, though not where they are
    assert [cell.address for cell in cluster.ask(GetCluster()).cells] == ["", ""]


def test_the_attendance_counts_cells_that_were_heard_of_lately(cluster: Realm) -> None:
    for cell in range(3):
        cluster.beat(cell)
    cluster.ask(RegisterProxy("http://p1"))
    assert cluster.catalog.attendance(cluster.now()) == Attendance({"alive": 3, "silent": 0}, 1)
    cluster.instant_us += 2_500_000
    cluster.beat(0)
    assert cluster.catalog.attendance(cluster.now()) == Attendance({"alive": 1, "silent": 2}, 1)


def test_cells_and_proxies_are_limited(cluster: Realm, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cells_module, "CELLS_MAX", 2)
    monkeypatch.setattr(cells_module, "PROXIES_MAX", 2)
    for number in range(2):
        cluster.beat(number)
        cluster.ask(RegisterProxy(f"http://{number}"))
    with pytest.raises(LimitExceeded):
        cluster.beat(2)
    with pytest.raises(LimitExceeded):
        cluster.ask(RegisterProxy("http://2"))
    cluster.ask(RegisterProxy("http://1"))
    cluster.instant_us += 6_000_000
    cluster.ask(RegisterProxy("http://2"))  # the dead make room
    assert cluster.ask(GetCluster()).proxies == ("http://2",)


def test_an_error_changes_nothing(cluster: Realm) -> None:
    cluster.beat(0)
    cluster.ask(create())
    cluster.ask(MountTable("//bank/accounts"))
    before = (cluster.ask(GetTable("//bank/accounts")), cluster.ask(GetCluster()))
    record_count = len(cluster.records)
    bad: list[CatalogRequest] = [
        create(),
        create("no path"),
        RemoveNode("//bank"),
        RemoveNode("//other"),
        Heartbeat(CellId(0), "http://elsewhere", (), 1),
    ]
    for request in bad:
        with pytest.raises(DodonaError):
            cluster.ask(request)
    assert (cluster.ask(GetTable("//bank/accounts")), cluster.ask(GetCluster())) == before
    assert len(cluster.records) == record_count


def test_statistics_count_the_moving_tablets(cluster: Realm) -> None:
    cluster.beat(0)
    cluster.ask(create(tablet_count=3))
    cluster.ask(MountTable("//bank/accounts"))
    statistics = cluster.catalog.statistics()
    assert (statistics.table_count, statistics.tablet_count) == (1, 3)
    assert statistics.moving_tablet_count == 3
    cluster.serve(0)
    assert cluster.catalog.statistics().moving_tablet_count == 0
