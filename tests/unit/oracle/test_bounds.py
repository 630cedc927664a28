"""Small parts of the master at their bounds: clock, presence, paths, counters, lock table."""

from typing import Any

import pytest

from dodona.errors import InvalidRequest, LimitExceeded
from dodona.types import NO_CLUSTER, CellId, Now, TreeTransactionId
from dodona_oracle.core import cells as cells_module
from dodona_oracle.core.cells import CELL_ALIVE_US, CELL_ID_MAX, PROXY_ALIVE_US, Presence
from dodona_oracle.core.clock_guard import DAY_US, HOUR_US, LAST_UNIX_US, ClockGuard
from dodona_oracle.core.journal import Journal
from dodona_oracle.core.membership import Membership
from dodona_oracle.core.paths import (
    DEPTH_MAX,
    NAME_LENGTH_MAX,
    PATH_LENGTH_MAX,
    TreePath,
    check_name,
    check_new_path,
    parse_node_path,
    parse_path,
)
from dodona_oracle.core.records import (
    COUNTERS,
    LAST_ID,
    LAST_REVISION,
    Group,
    MasterState,
    Put,
    Record,
    StoredLock,
    encode_number,
    put_cell,
)
from dodona_oracle.core.tree_locks import LockTable, locked

START_US = 1_700_000_000_000_000
JUMP_US, START_JUMP_US = HOUR_US, 30 * DAY_US


def at(instant_us: int, ahead_us: int = 0) -> Now:
    return Now(instant_us, START_US + instant_us + ahead_us)


# The clock


def guard(newest_us: int = START_US) -> ClockGuard:
    return ClockGuard(newest_us, JUMP_US, START_JUMP_US)


def test_a_clock_may_jump_by_exactly_its_limit_while_the_master_runs() -> None:
    for ahead_us, is_believed in ((JUMP_US, True), (JUMP_US + 1, False)):
        it = guard()
        assert it.is_believed(at(5))
        assert it.is_believed(at(900, ahead_us)) is is_believed


def test_a_believed_jump_is_the_base_of_the_next_one_and_a_step_back_is_not() -> None:
    it = guard()
    assert it.is_believed(at(0))
    assert it.is_believed(at(1, JUMP_US))
    assert it.is_believed(at(2, -JUMP_US))
    assert it.is_believed(at(3, 2 * JUMP_US))
    assert not it.is_believed(at(4, 3 * JUMP_US + 1))
    assert it.is_believed(at(5, 3 * JUMP_US))


def test_a_clock_may_be_ahead_of_the_last_timestamp_by_exactly_its_limit_at_a_start() -> None:
    for ahead_us, is_believed in ((START_JUMP_US, True), (START_JUMP_US + 1, False)):
        assert guard().is_believed(at(0, ahead_us)) is is_believed
        assert guard(newest_us=0).is_believed(at(0, ahead_us)), "there is no timestamp yet"
    assert not guard(newest_us=1).is_believed(at(0))


def test_a_clock_past_the_end_of_all_timestamps_is_never_believed() -> None:
    assert guard(0).is_believed(Now(0, LAST_UNIX_US))
    it = guard(0)
    assert not it.is_believed(Now(0, LAST_UNIX_US + 1))
    assert "past the year 2106" in it.complaint(Now(0, LAST_UNIX_US + 1))
    assert "past the year 2106" not in it.complaint(Now(0, LAST_UNIX_US))
    assert LAST_UNIX_US == (1 << 32) * 1_000_000 - 1


def test_a_complaint_says_how_far_the_clock_is_ahead_and_what_to_do() -> None:
    text = guard().complaint(at(0, 40 * DAY_US + 5))
    assert "is 40 days ahead of the last timestamp, more than clock-start-days-max: " in text
    assert "DODONA_MASTER_CLOCK_START_DAYS_MAX=42)" in text
    it = guard()
    it.is_believed(at(7, HOUR_US // 2))
    text = it.complaint(at(50 * HOUR_US, 4 * HOUR_US))
    assert "jumped 3.5 hours ahead, more than clock-jump-hours-max: " in text
    assert "restart the master" in text


# Cells and proxies


def test_a_cell_is_alive_for_exactly_so_long_after_its_last_word() -> None:
    presence = Presence()
    presence.see_cell(CellId(3), "http://a", 0, at(100))
    assert presence.is_alive(CellId(3), at(100 + CELL_ALIVE_US))
    assert not presence.is_alive(CellId(3), at(101 + CELL_ALIVE_US))
    assert not presence.is_alive(CellId(4), at(100))
    with pytest.raises(InvalidRequest, match="alive at http://a"):
        presence.check_cell(CellId(3), "http://b", 0, at(100 + CELL_ALIVE_US))
    presence.check_cell(CellId(3), "http://a", 0, at(100 + CELL_ALIVE_US))
    presence.check_cell(CellId(3), "http://b", 0, at(101 + CELL_ALIVE_US))


def test_a_proxy_is_alive_for_exactly_so_long_after_its_last_word() -> None:
    presence = Presence()
    for address, seen_us in (("http://b", 100), ("http://a", 101)):
        presence.see_proxy(address, at(seen_us))
    assert presence.proxies(at(100 + PROXY_ALIVE_US)) == ["http://a", "http://b"]
    assert presence.proxies(at(101 + PROXY_ALIVE_US)) == ["http://a"]


def test_a_move_is_counted_once_for_each_new_address() -> None:
    presence = Presence()
    assert presence.move_count == 0
    for cell, address, count in ((2, "a", 1), (2, "a", 1), (1, "a", 2), (2, "b", 3)):
        presence.see_cell(CellId(cell), address, 0, at(0))
        assert presence.move_count == count
    assert presence.addresses() == {1: "a", 2: "b"}
    assert presence.cells() == presence.cells_alive(at(0)) == [1, 2]
    assert presence.address(CellId(7)) is None


@pytest.mark.parametrize(
    ("cell", "is_good"), [(0, True), (CELL_ID_MAX, True), (-1, False), (CELL_ID_MAX + 1, False)]
)
def test_the_id_of_a_cell_has_31_bits(cell: int, is_good: bool) -> None:
    assert CELL_ID_MAX == (1 << 31) - 1
    if is_good:
        Presence().check_cell(CellId(cell), "http://a", 0, at(0))
    else:
        with pytest.raises(InvalidRequest, match="id of a cell"):
            Presence().check_cell(CellId(cell), "http://a", 0, at(0))


@pytest.mark.parametrize(
    ("address", "is_good"),
    [
        ("x", True),
        ("x" * 256, True),
        ("x" * 257, False),
        ("", False),
        ("é", False),
        ("a b", False),
        ("a\n", False),
    ],
)
def test_an_address_is_printable_ascii_without_blanks(address: str, is_good: bool) -> None:
    if is_good:
        Presence().see_proxy(address, at(0))
        return
    with pytest.raises(InvalidRequest, match="at most 256 characters"):
        Presence().check_cell(CellId(1), address, 0, at(0))
    with pytest.raises(InvalidRequest, match="at most 256 characters"):
        Presence().see_proxy(address, at(0))


def test_there_are_so_many_cells_and_living_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cells_module, "CELLS_MAX", 2)
    monkeypatch.setattr(cells_module, "PROXIES_MAX", 2)
    presence = Presence()
    for cell in (1, 2):
        presence.check_cell(CellId(cell), "a", 0, at(0))
        presence.see_cell(CellId(cell), "a", 0, at(0))
    presence.check_cell(CellId(2), "a", 0, at(0))
    with pytest.raises(LimitExceeded, match="2 cells already"):
        presence.check_cell(CellId(3), "a", 0, at(0))
    for address in ("a", "b", "a"):
        presence.see_proxy(address, at(0))
    with pytest.raises(LimitExceeded, match="2 proxies already"):
        presence.see_proxy("c", at(PROXY_ALIVE_US))
    presence.see_proxy("a", at(PROXY_ALIVE_US))
    presence.see_proxy("c", at(PROXY_ALIVE_US + 1))
    assert presence.proxies(at(PROXY_ALIVE_US + 1)) == ["a", "c"]


# Paths


@pytest.mark.parametrize(
    ("path", "parsed", "node_path"),
    [
        ("/", TreePath(()), "/"),
        ("//", TreePath(()), "/"),
        ("//a/b", TreePath(("a", "b")), "//a/b"),
        ("//a/@", TreePath(("a",), ""), "//a"),
        ("//a/@x", TreePath(("a",), "x"), "//a"),
        ("//@x", TreePath((), "x"), "/"),
        ("/@x", TreePath((), "x"), "/"),
        ("/@", TreePath((), ""), "/"),
    ],
)
def test_a_path_has_these_parts(path: str, parsed: TreePath, node_path: str) -> None:
    assert parse_path(path) == parsed
    assert parsed.node_path == node_path
    if parsed.attribute is None:
        assert parse_node_path(path) == parsed
    else:
        with pytest.raises(InvalidRequest, match="path of an attribute"):
            parse_node_path(path)


@pytest.mark.parametrize("path", ["", "a", "/a", "///", "//a/", "//a//b", "//a b", "//a/@x/y", "@"])
def test_other_texts_are_no_paths(path: str) -> None:
    with pytest.raises(InvalidRequest):
        parse_path(path)


def long_path(length: int) -> str:
    """Of names that are short enough."""
    return ("//" + "/".join(["x" * 200] * 6))[:length]


@pytest.mark.parametrize(
    ("good", "bad"),
    [
        (long_path(PATH_LENGTH_MAX), long_path(PATH_LENGTH_MAX + 1)),
        ("//" + "x" * NAME_LENGTH_MAX, "//" + "x" * (NAME_LENGTH_MAX + 1)),
        ("//a/@" + "x" * NAME_LENGTH_MAX, "//a/@" + "x" * (NAME_LENGTH_MAX + 1)),
        ("/" + "/a" * DEPTH_MAX, "/" + "/a" * (DEPTH_MAX + 1)),
    ],
)
def test_a_path_and_its_names_have_exactly_these_limits(good: str, bad: str) -> None:
    parse_path(good)
    with pytest.raises(LimitExceeded):
        parse_path(bad)


def test_the_longest_path_may_have_the_longest_attribute() -> None:
    path = f"{long_path(PATH_LENGTH_MAX)}/@{'x' * NAME_LENGTH_MAX}"
    assert parse_path(path).attribute == "x" * NAME_LENGTH_MAX
    with pytest.raises(LimitExceeded) as caught:
        parse_path(" " * (len(path) + 1))
    assert caught.value.attributes == {"path": " " * 80, "length": len(path) + 1}
    with pytest.raises(InvalidRequest):
        parse_path("/@" + " " * (len(path) - 2))


def test_no_node_may_be_named_like_a_step() -> None:
    check_new_path(("a", "..."), "//a/...")
    for name in (".", ".."):
        check_name(name, "//a")
        with pytest.raises(InvalidRequest, match=r"named \. or \.\."):
            check_new_path(("a", name), "//a")


# Counters


def test_ids_and_revisions_go_on_and_are_written_once() -> None:
    records: list[Record] = []
    journal = Journal(MasterState(last_id=5, last_revision=7), records.append)
    assert (journal.is_empty, journal.next_id) == (True, 6)
    assert (journal.last_revision, journal.next_revision) == (7, 8)
    journal.flush()
    assert records == []
    assert (journal.take_ids(), journal.take_ids(3), journal.take_ids()) == (6, 7, 10)
    assert not journal.is_empty
    journal.flush()
    counted = Put(COUNTERS, LAST_ID, encode_number(10))
    assert records == [counted], "a single change is not a group"
    assert journal.is_empty
    assert (journal.take_ids(), journal.take_revision()) == (11, 8)
    assert (journal.next_id, journal.last_revision, journal.next_revision) == (12, 8, 9)
    journal.flush()
    later = Put(COUNTERS, LAST_ID, encode_number(11))
    assert records[1:] == [Group((later, Put(COUNTERS, LAST_REVISION, encode_number(8))))]


def test_a_cluster_is_named_by_its_first_clock_and_a_cell_joins_once() -> None:
    records: list[Record] = []
    for unix_us, name in ((0, 1), (1, 1), (77, 77)):
        journal = Journal(MasterState(), records.append)
        assert Membership(MasterState(), journal, Now(0, unix_us)).cluster == name != NO_CLUSTER
        journal.flush()
    assert len(records) == 3
    state = MasterState(cluster=Membership(MasterState(), journal, at(0)).cluster)
    journal = Journal(state, records.append)
    membership = Membership(state, journal, at(9))
    assert journal.is_empty, "it has its name"
    for _ in range(2):
        membership._join(CellId(4))
    journal.flush()
    assert records[3:] == [put_cell(CellId(4))]
    assert membership.cells == (4,)


# Locks


def lock(transaction: int, mode: Any, node: int = 1, **part: Any) -> StoredLock:
    return StoredLock(TreeTransactionId(transaction), node, mode, **part)


def test_locks_are_counted_by_mode_until_they_are_dropped() -> None:
    table = LockTable([lock(1, "shared"), lock(1, "snapshot"), lock(2, "snapshot", 5)])
    assert (table.count, table.snapshot_count) == (3, 2)
    table.add(lock(1, "snapshot"))
    assert (table.count, table.snapshot_count) == (3, 2), "it was held already"
    assert table.drop(TreeTransactionId(1)) == [lock(1, "shared"), lock(1, "snapshot")]
    assert (table.count, table.snapshot_count) == (1, 1)
    assert [*table.on_node(1)] == []
    assert table.drop(TreeTransactionId(1)) == []
    assert table.find_holder(5) is None
    table.add(lock(3, "shared", 5))
    assert table.find_holder(5) == lock(3, "shared", 5)


@pytest.mark.parametrize(
    ("wanted", "is_needed"),
    [
        (lock(1, "exclusive"), False),
        (lock(1, "shared"), False),
        (lock(1, "shared", child="a"), False),
        (lock(1, "snapshot"), True),
        (lock(1, "shared", 2), False),
        (lock(1, "exclusive", 2), True),
        (lock(1, "shared", 2, child="a"), True),
        (lock(2, "shared"), True),
    ],
)
def test_an_exclusive_lock_includes_all_but_snapshots(wanted: StoredLock, is_needed: bool) -> None:
    table = LockTable([lock(1, "exclusive"), lock(1, "shared", 2)])
    assert table.needs(wanted) is is_needed


@pytest.mark.parametrize(
    ("wanted", "held", "is_barred"),
    [
        (lock(1, "exclusive"), lock(2, "exclusive"), True),
        (lock(1, "exclusive"), lock(2, "shared"), True),
        (lock(1, "shared"), lock(2, "exclusive"), True),
        (lock(1, "shared"), lock(2, "shared"), False),
        (lock(1, "snapshot"), lock(2, "exclusive"), False),
        (lock(1, "exclusive"), lock(2, "snapshot"), False),
        (lock(1, "shared", child="a"), lock(2, "shared", child="a"), True),
        (lock(1, "shared", child="a"), lock(2, "shared", child="b"), False),
        (lock(1, "shared", child="a"), lock(2, "shared", attribute="a"), False),
        (lock(1, "shared", attribute="a"), lock(2, "shared", attribute="a"), True),
        (lock(1, "shared", attribute="a"), lock(2, "shared", attribute="b"), False),
        (lock(1, "shared", attribute="a"), lock(2, "shared"), False),
    ],
)
def test_which_locks_bar_each_other(wanted: StoredLock, held: StoredLock, is_barred: bool) -> None:
    table = LockTable([held])
    assert table.find_bar(wanted, (wanted.transaction,)) == (held if is_barred else None)
    assert table.find_bar(wanted, (wanted.transaction, TreeTransactionId(3))) == (
        held if is_barred else None
    )
    if held.mode != "snapshot":
        assert table.find_bar(wanted, (held.transaction,)) is None, "of a parent"


def test_a_transaction_with_a_snapshot_of_a_node_changes_it_no_more() -> None:
    table = LockTable([lock(1, "snapshot")])
    assert table.find_bar(lock(1, "snapshot"), (TreeTransactionId(1),)) is None
    with pytest.raises(InvalidRequest, match="snapshot lock on this node"):
        table.find_bar(lock(1, "shared"), (TreeTransactionId(1),))


def test_the_error_of_a_lock_names_its_part() -> None:
    for held, text, attributes in (
        (lock(7, "shared", child="a"), " on its child 'a'.", {"child": "a"}),
        (lock(7, "shared", attribute="x"), " on its attribute 'x'.", {"attribute": "x"}),
        (lock(7, "exclusive"), "of mode exclusive.", {}),
    ):
        error = locked("//p", held, "load")
        assert error.message.endswith(text)
        common = {"path": "//p", "mode": held.mode, "transaction": 7, "title": "load"}
        assert error.attributes == {**common, **attributes}
