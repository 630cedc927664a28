"""Locks of master transactions: who is locked out of what, and what a snapshot shows."""

from typing import Any

import msgspec
import pytest

from dodona.errors import (
    InvalidRequest,
    LimitExceeded,
    NodeLocked,
    NodeNotFound,
    TableNotFound,
)
from dodona.types import TreeTransactionId
from dodona_oracle.core import tree as tree_module
from dodona_oracle.core.records import StoredLock, put_lock
from dodona_wire.messages.catalog import (
    AlterTable,
    CatalogRequest,
    FreezeTable,
    GetTable,
    MountTable,
    RemountTable,
    ReshardTable,
    UnfreezeTable,
    UnmountTable,
)
from dodona_wire.messages.tree import (
    CopyNode,
    CreateDirectory,
    ListNodes,
    LockNode,
    MoveNode,
    RemoveNode,
    SetNode,
)
from unit.oracle.realm import COLUMNS
from unit.oracle.tree_realm import ALL, Tree


@pytest.fixture
def tree() -> Tree:
    return Tree()


def test_the_error_for_a_locked_node_names_the_holder_of_the_lock(tree: Tree) -> None:
    tree.make("//a")
    mine = tree.begin(title="nightly load")
    tree.put("//a/@x", 1, mine)
    with pytest.raises(NodeLocked, match="attribute 'x'") as caught:
        tree.put("//a/@x", 2)
    assert caught.value.is_retryable
    assert caught.value.attributes == {
        "path": "//a",
        "mode": "shared",
        "attribute": "x",
        "transaction": mine,
        "title": "nightly load",
    }
    assert tree.get("//a/@lock_count") == 1
    assert tree.get("//a/@locks") == [
        {"transaction": mine, "mode": "shared", "child": None, "attribute": "x"}
    ]
    tree.commit(mine)
    tree.put("//a/@x", 2)
    assert tree.get("//a/@lock_count") == 0


def test_different_children_and_attributes_do_not_conflict(tree: Tree) -> None:
    tree.make("//a")
    one, two = tree.begin(), tree.begin()
    for number, transaction in enumerate((one, two, ALL)):
        tree.make(f"//a/{number}", transaction)
        tree.put(f"//a/@x{number}", number, transaction)
    tree.refused(
        CreateDirectory("//a/0", transaction=two),
        CreateDirectory("//a/1"),
        RemoveNode("//a", True, transaction=one),
        RemoveNode("//a", True),
    )
    tree.commit(two)
    tree.commit(one)
    assert tree.ask(ListNodes("//a")).names == ("0", "1", "2")
    assert [tree.get(f"//a/@x{number}") for number in range(3)] == [0, 1, 2]


def test_a_remove_or_move_locks_the_node_and_all_nodes_below(tree: Tree) -> None:
    tree.make_table("//a/b/t")
    for request in (RemoveNode("//a", True), MoveNode("//a", "//z")):
        mine, other = tree.begin(), tree.begin()
        tree.ask(msgspec.structs.replace(request, transaction=mine))
        tree.refused(
            CreateDirectory("//a/new", transaction=other),
            SetNode("//a/b/@x", b"\x01"),
            SetNode("//a/b/t/@x", b"\x01", other),
            MoveNode("//a/b/t", "//t"),
            CreateDirectory("//a/b/t2"),
            MountTable("//a/b/t"),
        )
        assert tree.exists("//a/b/t", other)
        assert not tree.exists("//a/b/t", mine)
        tree.abort(mine)
        tree.abort(other)


def test_an_exclusive_lock_bars_all_but_those_inside(tree: Tree) -> None:
    tree.make("//a")
    mine, other = tree.begin(), tree.begin()
    nested = tree.begin(mine)
    node = tree.lock("//a", "exclusive", mine)
    assert node == tree.get("//a/@id")
    assert tree.lock("//a", "exclusive", mine) == node  # repeated
    tree.put("//a/@x", 1, nested)
    tree.refused(
        SetNode("//a/@x", b"\x01", mine),  # the nested one's lock bars its parent
        SetNode("//a/@y", b"\x01", other),
        CreateDirectory("//a/b"),
        LockNode("//a", "shared", other),
    )
    tree.lock("//a", "snapshot", other)
    tree.commit(nested)
    tree.put("//a/@x", 2, mine)


def test_the_parent_gets_the_locks_of_a_nested_transaction_after_its_commit(tree: Tree) -> None:
    tree.make("//a")
    mine = tree.begin()
    nested, sibling = tree.begin(mine), tree.begin(mine)
    tree.put("//a/@x", 1, nested)
    tree.lock("//a", "snapshot", nested)
    tree.refused(SetNode("//a/@x", b"\x01", sibling))
    tree.commit(nested)
    assert tree.get("//a/@locks") == [
        {"transaction": mine, "mode": "shared", "child": None, "attribute": "x"}
    ]
    tree.put("//a/@x", 2, sibling)  # its parent's lock does not bar it
    tree.refused(SetNode("//a/@x", b"\x01"))
    tree.abort(mine)
    assert tree.get("//a/@lock_count") == 0
    tree.put("//a/@x", 3)


def test_shared_locks_exclude_each_other_only_on_the_same_name(tree: Tree) -> None:
    tree.make("//a")
    one, two = tree.begin(), tree.begin()
    for transaction in (one, two):
        tree.lock("//a", "shared", transaction)
    tree.lock("//a", "shared", one, child="b")
    tree.lock("//a", "shared", two, attribute="b")
    tree.refused(
        LockNode("//a", "shared", two, child="b"),
        LockNode("//a", "shared", one, attribute="b"),
        LockNode("//a", "exclusive", one),
        CreateDirectory("//a/b"),
    )
    tree.lock("//a", "shared", two, child="c")


@pytest.mark.parametrize(
    ("mode", "part", "reason"),
    [
        ("exclusive", {"child": "b"}, "Only a shared lock"),
        ("snapshot", {"attribute": "b"}, "Only a shared lock"),
        ("shared", {"child": "b", "attribute": "c"}, "not on both"),
        ("shared", {"child": "b/c"}, "letters"),
        ("shared", {"attribute": ""}, "letters"),
    ],
)
def test_a_lock_that_is_none_is_refused(
    tree: Tree, mode: str, part: dict[str, str], reason: str
) -> None:
    tree.make("//a")
    mine = tree.begin()
    with pytest.raises(InvalidRequest, match=reason):
        tree.lock("//a", mode, mine, **part)
    with pytest.raises(InvalidRequest, match=r"needs a master transaction\. Begin one"):
        tree.lock("//a", "shared", ALL)


def test_a_snapshot_lock_shows_the_node_without_later_changes(tree: Tree) -> None:
    tree.make("//a")
    tree.make("//a/b")
    tree.put("//a/@x", 1)
    mine = tree.begin()
    tree.lock("//a", "snapshot", mine)
    tree.put("//a/@x", 2)
    tree.make("//a/c")
    nested = tree.begin(mine)
    for each in (mine, nested):
        assert tree.get("//a/@x", each) == 1
        assert tree.ask(ListNodes("//a", each)).names == ("b",)
    tree.restart()
    assert tree.get("//a/@x", mine) == 1
    tree.ask(RemoveNode("//a", is_recursive=True))
    assert tree.get("//a/@x", mine) == 1
    assert tree.ask(ListNodes("//a", mine)).names == ("b",)
    assert tree.get("//a", mine) == {}  # what was in it was not locked
    with pytest.raises(InvalidRequest, match="snapshot lock"):
        tree.put("//a/@x", 3, nested)
    with pytest.raises(InvalidRequest, match="snapshot lock"):
        tree.ask(RemoveNode("//a", is_recursive=True, transaction=mine))
    tree.commit(mine)
    assert not tree.exists("//a")


def test_all_locks_of_a_transaction_are_there_after_a_restart(tree: Tree) -> None:
    tree.make("//a")
    mine = tree.begin()
    for part in ({"child": "b"}, {"child": "c"}, {"attribute": "b"}, {"attribute": "c"}, {}):
        tree.lock("//a", "shared", mine, **part)
    locks = tree.get("//a/@locks")
    assert len(locks) == 5
    tree.restart()
    assert sorted(map(str, tree.get("//a/@locks"))) == sorted(map(str, locks))
    tree.commit(mine)
    tree.restart()
    assert tree.get("//a/@locks") == []


@pytest.mark.parametrize(
    ("mode", "child", "attribute", "name"),
    [
        ("exclusive", None, None, b"ex"),
        ("shared", None, None, b"sh"),
        ("shared", "b", None, b"sh/b"),
        ("shared", None, "x", b"sh@x"),
        ("snapshot", None, None, b"sn"),
    ],
)
def test_a_lock_has_the_name_that_it_has_in_stores_of_earlier_versions(
    mode: Any, child: str | None, attribute: str | None, name: bytes
) -> None:
    record = put_lock(StoredLock(TreeTransactionId(7), 5, mode, child, attribute))
    assert record.key.endswith(name)
    assert len(record.key) == 16 + len(name)


def test_a_snapshot_lock_hides_attributes_that_came_later(tree: Tree) -> None:
    tree.make("//a")
    mine = tree.begin()
    tree.lock("//a", "snapshot", mine)
    tree.put("//a/@y", 1)
    assert not tree.exists("//a/@y", mine)
    assert tree.exists("//a/@y")


@pytest.mark.parametrize("gone", ["b", "c", "d"])
def test_a_read_under_a_snapshot_lock_leaves_out_nodes_that_are_gone(tree: Tree, gone: str) -> None:
    tree.make("//a")
    for name in "bcd":
        tree.make(f"//a/{name}")
    outer = tree.begin()
    mine, nested = tree.begin(), tree.begin(outer)
    tree.lock("//a", "snapshot", mine)
    tree.lock("//a", "snapshot", nested)
    tree.ask(RemoveNode(f"//a/{gone}", transaction=outer))
    left: dict[str, Any] = {name: {} for name in "bcd" if name != gone}
    assert tree.get("//a", nested) == left
    tree.commit(outer)
    assert tree.get("//a", mine) == left
    assert tree.ask(ListNodes("//a", mine)).names == ("b", "c", "d")


def test_a_node_that_only_a_snapshot_still_names_takes_no_new_node(tree: Tree) -> None:
    tree.make("//a")
    tree.make("//a/b")
    mine = tree.begin()
    tree.lock("//a", "snapshot", mine)
    tree.ask(RemoveNode("//a/b"))
    with pytest.raises(InvalidRequest, match="snapshot lock"):
        tree.make("//a/b", mine)
    with pytest.raises(NodeNotFound, match="no directory //a/b"):
        tree.make("//a/b/c", mine)


def test_a_snapshot_lock_still_shows_a_table_after_a_move(tree: Tree) -> None:
    tree.make_table("//a/t")
    tree.make("//b")
    mine = tree.begin()
    tree.lock("//a/t", "snapshot", mine)
    tree.ask(MoveNode("//a/t", "//b/t"))
    assert tree.ask(GetTable("//a/t", mine)).path == "//a/t"
    assert tree.get("//b", mine) == {"t": None}
    for request in (
        CopyNode("//b", "//c", transaction=mine),
        RemoveNode("//b", True, transaction=mine),
    ):
        with pytest.raises(InvalidRequest, match="snapshot lock"):
            tree.ask(request)
    tree.abort(mine)
    tree.ask(RemoveNode("//b", True))


def test_a_node_that_only_a_snapshot_shows_is_neither_moved_nor_removed(tree: Tree) -> None:
    """It is somewhere else, where others go on with it."""
    tree.make("//a")
    tree.make("//a/b")
    tree.make("//c")
    mine = tree.begin()
    tree.lock("//a", "snapshot", mine)
    tree.ask(MoveNode("//a/b", "//c/d"))
    assert tree.ask(ListNodes("//a", mine)).names == ("b",)
    for request in (
        MoveNode("//a/b", "//e", transaction=mine),
        RemoveNode("//a/b", transaction=mine),
    ):
        with pytest.raises(NodeNotFound, match="only a snapshot shows it"):
            tree.ask(request)
    tree.commit(mine)
    assert tree.get("/") == {"a": {}, "c": {"d": {}}}


@pytest.mark.parametrize("mode", ["exclusive", "shared"])
def test_the_life_of_a_table_waits_for_no_lock_and_needs_none_there(tree: Tree, mode: str) -> None:
    tree.beat(0)
    tree.make_table("//t")
    mine = tree.begin()
    tree.lock("//t", mode, mine)
    requests: list[CatalogRequest] = [
        kind("//t") for kind in (MountTable, UnmountTable, FreezeTable, UnfreezeTable, RemountTable)
    ]
    requests += [ReshardTable("//t", (tree.ask(GetTable("//t")).tablets[0].pivot_key,))]
    requests += [AlterTable("//t", COLUMNS)]
    tree.refused(*requests)
    tree.commit(mine)
    tree.lock("//t", "snapshot", tree.begin())
    tree.ask(AlterTable("//t", COLUMNS))
    tree.ask(MountTable("//t"))


def test_a_table_that_is_not_committed_can_not_be_mounted(tree: Tree) -> None:
    tree.beat(0)
    mine = tree.begin()
    tree.make_table("//t", mine)
    with pytest.raises(TableNotFound):
        tree.ask(MountTable("//t"))
    tree.commit(mine)
    tree.ask(MountTable("//t"))


def test_locks_are_limited(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tree_module, "LOCKS_MAX", 2)
    monkeypatch.setattr(tree_module, "SNAPSHOTS_MAX", 1)
    mine = tree.begin()
    tree.make("//a", mine)
    tree.lock("/", "snapshot", tree.begin())
    with pytest.raises(LimitExceeded, match="2 locks"):
        tree.make("//b", mine)
    tree.abort(mine)
    with pytest.raises(LimitExceeded, match="1 snapshot"):
        tree.lock("/", "snapshot", tree.begin())
    tree.make("//b")
