"""The catalog's tree: making, removing, moving and copying directories and tables."""

from typing import Any

import msgspec
import pytest

from dodona.errors import (
    DataCorrupted,
    InvalidRequest,
    InvalidTabletState,
    LimitExceeded,
    NodeLocked,
    NodeNotFound,
    TableExists,
    TableNotFound,
)
from dodona.errors import NodeExists as NodeExistsError
from dodona_oracle.core import tree as tree_module
from dodona_oracle.core.records import (
    Group,
    StoredTable,
    put_table,
)
from dodona_wire.messages.catalog import GetTable, ListTables, MountTable, TableList, UnmountTable
from dodona_wire.messages.tree import (
    AbortTreeTransaction,
    BeginTreeTransaction,
    CommitTreeTransaction,
    CopyNode,
    CreateDirectory,
    GetNode,
    ListNodes,
    LockNode,
    MoveNode,
    NodeExists,
    RemoveNode,
    SetNode,
)
from unit.oracle.realm import COLUMNS, Realm, create


@pytest.fixture
def realm() -> Realm:
    return Realm()


def get(realm: Realm, path: str) -> Any:
    return msgspec.msgpack.decode(realm.ask(GetNode(path)).value)


def exists(realm: Realm, path: str) -> Any:
    return msgspec.msgpack.decode(realm.ask(NodeExists(path)).value)


def names(realm: Realm, path: str) -> tuple[str, ...]:
    listed: tuple[str, ...] = realm.ask(ListNodes(path)).names
    return listed


def mounted(realm: Realm, path: str) -> None:
    realm.beat(0)
    realm.ask(MountTable(path))
    realm.serve(0)


# Making and listing


@pytest.mark.parametrize("root", ["/", "//"])
def test_the_root_is_there_from_the_start(realm: Realm, root: str) -> None:
    assert names(realm, root) == ()
    assert exists(realm, root) is True
    assert get(realm, root) == {}
    assert get(realm, "//@type") == get(realm, "/@type") == "directory"
    assert realm.records == []


def test_creating_a_table_creates_the_directories_above_the_table(realm: Realm) -> None:
    realm.ask(create("//bank/old/accounts"))
    realm.ask(create("//bank/new"))
    assert names(realm, "//") == ("bank",)
    assert names(realm, "//bank") == ("new", "old")
    assert get(realm, "/") == {"bank": {"new": None, "old": {"accounts": None}}}
    assert get(realm, "//bank/new") is None


def test_directories_are_made_one_by_one_or_all_that_are_missing(realm: Realm) -> None:
    with pytest.raises(NodeNotFound, match="no directory //a"):
        realm.ask(CreateDirectory("//a/b"))
    assert realm.records == []
    realm.ask(CreateDirectory("//a/b/c", is_recursive=True))
    realm.ask(CreateDirectory("//a/d"))
    assert get(realm, "//a") == {"b": {"c": {}}, "d": {}}


def test_creating_an_existing_directory_fails_unless_ignore_existing_is_set(realm: Realm) -> None:
    realm.ask(CreateDirectory("//a"))
    with pytest.raises(NodeExistsError, match="directory //a"):
        realm.ask(CreateDirectory("//a", is_recursive=True))
    realm.ask(CreateDirectory("//a", ignore_existing=True))
    realm.ask(create("//t"))
    with pytest.raises(TableExists):
        realm.ask(CreateDirectory("//t", ignore_existing=True))


def test_nothing_can_be_in_a_table(realm: Realm) -> None:
    realm.ask(create("//t"))
    for request in (create("//t/a"), CreateDirectory("//t/a/b", is_recursive=True)):
        with pytest.raises(InvalidRequest, match="//t is a table"):
            realm.ask(request)
    with pytest.raises(InvalidRequest, match="Only a directory has a list"):
        names(realm, "//t")


def test_a_directory_is_no_table(realm: Realm) -> None:
    realm.ask(create("//d/t"))
    for request in (GetTable("//d"), MountTable("//d")):
        with pytest.raises(TableNotFound, match="//d is a directory"):
            realm.ask(request)


def test_the_error_for_a_missing_node_names_the_path(realm: Realm) -> None:
    realm.ask(CreateDirectory("//a"))
    assert exists(realm, "//a/b") is False
    for request in (ListNodes("//a/b"), GetNode("//a/b"), SetNode("//a/b/@x", b"\xc0")):
        with pytest.raises(NodeNotFound, match="//a/b") as caught:
            realm.ask(request)
        assert not isinstance(caught.value, TableNotFound)
    with pytest.raises(TableNotFound, match="//a/b"):
        realm.ask(RemoveNode("//a/b"))


# Removing


def test_a_directory_that_is_not_empty_is_removed_only_recursively(realm: Realm) -> None:
    realm.ask(create("//d/e/t"))
    record_count = len(realm.records)
    with pytest.raises(InvalidRequest, match="not empty"):
        realm.ask(RemoveNode("//d"))
    assert len(realm.records) == record_count
    realm.ask(RemoveNode("//d", is_recursive=True))
    assert get(realm, "/") == {}
    assert realm.ask(ListTables("//")) == TableList(())
    statistics = realm.catalog.statistics()
    assert (statistics.node_count, statistics.table_count, statistics.tablet_count) == (1, 0, 0)
    realm.ask(CreateDirectory("//d"))
    realm.ask(RemoveNode("//d"))


def test_a_forced_remove_of_a_missing_path_is_no_error(realm: Realm) -> None:
    realm.ask(RemoveNode("//a", is_forced=True))
    realm.ask(CreateDirectory("//a"))
    realm.ask(RemoveNode("//a/@x", is_forced=True))
    with pytest.raises(NodeNotFound, match="attribute"):
        realm.ask(RemoveNode("//a/@x"))


@pytest.mark.parametrize(
    "request_", [RemoveNode("/", True), MoveNode("//", "//a"), CopyNode("/", "//a")]
)
def test_the_root_cannot_be_removed_moved_or_copied(realm: Realm, request_: Any) -> None:
    with pytest.raises(InvalidRequest, match="root"):
        realm.ask(request_)


# Moving and copying


def test_moving_takes_all_that_is_below_along(realm: Realm) -> None:
    realm.ask(create("//a/b/t", tablet_count=2))
    table = realm.ask(GetTable("//a/b/t"))
    realm.ask(SetNode("//a/@owner", msgspec.msgpack.encode("me")))
    realm.ask(MoveNode("//a", "//x/y", is_recursive=True))
    moved = realm.ask(GetTable("//x/y/b/t"))
    assert moved == msgspec.structs.replace(table, path="//x/y/b/t")
    assert get(realm, "/") == {"x": {"y": {"b": {"t": None}}}}
    assert get(realm, "//x/y/@owner") == "me"
    realm.restart()
    assert realm.ask(ListTables("//")) == TableList(("//x/y/b/t",))
    realm.beat(0)
    realm.ask(MountTable("//x/y/b/t"))
    assert {each.path for each in realm.beat(0).tablets} == {"//x/y/b/t"}


def test_a_copy_is_independent_of_its_source(realm: Realm) -> None:
    realm.ask(create("//a/t", tablet_count=2))
    realm.ask(SetNode("//a/t/@", msgspec.msgpack.encode({"mine": 1, "max_data_ttl": 5})))
    realm.ask(CopyNode("//a", "//b"))
    source, copied = realm.ask(GetTable("//a/t")), realm.ask(GetTable("//b/t"))
    assert copied.columns == source.columns
    assert copied.settings.max_data_ttl == 5
    assert get(realm, "//b/t/@mine") == 1
    ids = [each.tablet for table in (source, copied) for each in table.tablets]
    assert len(set(ids)) == 4
    realm.ask(RemoveNode("//a", is_recursive=True))
    realm.restart()
    assert realm.ask(GetTable("//b/t")) == copied


@pytest.mark.parametrize("verb", [MoveNode, CopyNode])
def test_a_move_or_copy_of_a_mounted_table_is_refused(realm: Realm, verb: Any) -> None:
    realm.ask(create("//a/t"))
    mounted(realm, "//a/t")
    for source in ("//a/t", "//a"):
        with pytest.raises(InvalidTabletState, match="not all tablets are unmounted"):
            realm.ask(verb(source, "//b"))
    realm.ask(UnmountTable("//a/t"))
    realm.serve(0)
    realm.ask(verb("//a", "//b"))
    assert exists(realm, "//b/t") is True


@pytest.mark.parametrize("verb", [MoveNode, CopyNode])
def test_where_a_node_can_not_go(realm: Realm, verb: Any) -> None:
    realm.ask(create("//a/t"))
    realm.ask(create("//b/t"))
    record_count = len(realm.records)
    with pytest.raises(InvalidRequest, match="into itself"):
        realm.ask(verb("//a", "//a/t2/a", is_recursive=True))
    with pytest.raises(TableExists):
        realm.ask(verb("//a/t", "//b/t"))
    with pytest.raises(NodeExistsError):
        realm.ask(verb("//a", "//a"))
    with pytest.raises(NodeNotFound, match="no directory //c"):
        realm.ask(verb("//a", "//c/d"))
    with pytest.raises(NodeNotFound, match="//c"):
        realm.ask(verb("//c", "//d"))
    with pytest.raises(InvalidRequest, match="not of a node"):
        realm.ask(verb("//a/@x", "//d"))
    assert len(realm.records) == record_count


def test_a_move_that_makes_a_path_too_long_is_refused(realm: Realm) -> None:
    name = "n" * 255
    realm.ask(create(f"//{name}/{name}/t"))
    realm.ask(CreateDirectory(f"//{'m' * 255}/{name}", is_recursive=True))
    with pytest.raises(LimitExceeded, match="1024"):
        realm.ask(MoveNode(f"//{name}", f"//{'m' * 255}/{name}/{name}"))
    deep = "/".join("d" * 62)
    realm.ask(CreateDirectory(f"//{deep}", is_recursive=True))
    realm.ask(create("//e/e/e"))
    with pytest.raises(LimitExceeded, match="64 names"):
        realm.ask(MoveNode("//e", f"//{deep}/e"))
    realm.ask(MoveNode("//e/e", f"//{deep}/e"))
    assert exists(realm, f"//{deep}/e/e") is True


def test_nodes_are_limited(realm: Realm, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tree_module, "NODES_MAX", 4)
    realm.ask(CreateDirectory("//a/b", is_recursive=True))
    with pytest.raises(LimitExceeded, match="4 nodes"):
        realm.ask(CreateDirectory("//c/d/e", is_recursive=True))
    realm.ask(RemoveNode("//a", is_recursive=True))
    realm.ask(CreateDirectory("//c/d", is_recursive=True))


def assert_room(realm: Realm, count: int) -> None:
    """The tree has room for so many nodes and no more. Leaves it as it was."""
    for number in range(count):
        realm.ask(CreateDirectory(f"//more{number}"))
    with pytest.raises(LimitExceeded):
        realm.ask(CreateDirectory("//over"))
    for number in range(count):
        realm.ask(RemoveNode(f"//more{number}"))


def test_a_node_takes_room_until_it_is_removed_and_after_a_restart_too(
    realm: Realm, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tree_module, "NODES_MAX", 6)
    assert_room(realm, 4)
    realm.ask(CreateDirectory("//a"))
    realm.ask(CreateDirectory("//b"))
    realm.ask(SetNode("//b/@x", b"\x01"))
    assert_room(realm, 2)
    realm.restart()
    assert_room(realm, 2)
    realm.ask(RemoveNode("//a"))
    assert_room(realm, 3)


def test_a_change_takes_room_until_its_transaction_ends(
    realm: Realm, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tree_module, "NODES_MAX", 7)
    realm.ask(CreateDirectory("//a"))
    for is_committed in (False, True):
        mine = realm.ask(BeginTreeTransaction(5000)).transaction
        realm.ask(SetNode("//a/@x", b"\x01", mine))
        realm.ask(SetNode("//a/@y", b"\x01", mine))
        realm.ask(CreateDirectory("//a/b", transaction=mine))
        realm.ask(RemoveNode("//a/b", transaction=mine))
        assert_room(realm, 3)
        realm.restart()
        assert_room(realm, 3)
        realm.ask((CommitTreeTransaction if is_committed else AbortTreeTransaction)(mine))
        assert_room(realm, 4)


@pytest.mark.parametrize(
    ("request_", "changed_count"),
    [
        (SetNode("//a/@x", b"\x01"), 1),
        (CreateDirectory("//c/d", is_recursive=True), 3),
        (MoveNode("//a/b", "//c/d", is_recursive=True), 4),
        (CopyNode("//a", "//c/d", is_recursive=True), 4),
    ],
)
def test_a_call_needs_room_for_each_node_that_it_may_change(
    realm: Realm, monkeypatch: pytest.MonkeyPatch, request_: Any, changed_count: int
) -> None:
    realm.ask(CreateDirectory("//a/b", is_recursive=True))
    mine = realm.ask(BeginTreeTransaction(5000)).transaction
    inside = msgspec.structs.replace(request_, transaction=mine)
    node_count = realm.catalog.statistics().node_count
    monkeypatch.setattr(tree_module, "NODES_MAX", node_count + changed_count - 1)
    with pytest.raises(LimitExceeded, match="nodes"):
        realm.ask(inside)
    monkeypatch.setattr(tree_module, "NODES_MAX", node_count + changed_count)
    realm.ask(inside)


def test_the_error_for_a_locked_child_has_the_path_of_its_directory(realm: Realm) -> None:
    realm.ask(CreateDirectory("//a/b/c", is_recursive=True))
    mine = realm.ask(BeginTreeTransaction(5000)).transaction
    realm.ask(LockNode("//a/b", "shared", mine, child="c"))
    for request in (RemoveNode("//a/b/c"), MoveNode("//a/b/c", "//d")):
        with pytest.raises(NodeLocked) as caught:
            realm.ask(request)
        assert caught.value.attributes["path"] == "//a/b"


def test_a_path_has_at_most_1024_characters_after_a_move(realm: Realm) -> None:
    target = f"//{'m' * 255}/{'n' * 255}/{'o' * 255}"
    realm.ask(CreateDirectory(f"//a/{'x' * 255}", is_recursive=True))
    with pytest.raises(LimitExceeded, match="1024 characters"):
        realm.ask(MoveNode("//a", target, is_recursive=True))
    realm.ask(CreateDirectory(f"//b/{'x' * 254}", is_recursive=True))
    realm.ask(MoveNode("//b", target, is_recursive=True))
    assert exists(realm, f"{target}/{'x' * 254}") is True


def test_the_error_for_a_directory_that_is_not_empty_counts_what_is_in_it(realm: Realm) -> None:
    realm.ask(create("//a/b/t"))
    with pytest.raises(InvalidRequest, match="not empty") as caught:
        realm.ask(RemoveNode("//a"))
    assert caught.value.attributes["count"] == 2


@pytest.mark.parametrize(
    ("request_of", "verb"),
    [
        (lambda: MoveNode("/", "//b"), "moved"),
        (lambda: CopyNode("/", "//b"), "copied"),
        (lambda: RemoveNode("/", is_recursive=True), "removed"),
    ],
)
def test_the_root_stays_where_it_is(realm: Realm, request_of: Any, verb: str) -> None:
    with pytest.raises(InvalidRequest, match=verb):
        realm.ask(request_of())


def test_a_copy_in_new_directories_has_the_last_name_and_is_counted(realm: Realm) -> None:
    realm.ask(create("//a/t"))
    realm.ask(CopyNode("//a", "//x/y/z", is_recursive=True))
    assert get(realm, "/") == {"a": {"t": None}, "x": {"y": {"z": {"t": None}}}}
    assert realm.catalog.statistics().table_count == 2


def test_a_table_has_the_path_that_its_transaction_gave_it(realm: Realm) -> None:
    realm.ask(create("//a/t"))
    mine = realm.ask(BeginTreeTransaction(5000)).transaction
    realm.ask(MoveNode("//a", "//b", transaction=mine))
    assert realm.ask(GetTable("//b/t", mine)).path == "//b/t"
    assert realm.ask(GetTable("//a/t")).path == "//a/t"


# Records


def test_each_change_is_one_record(realm: Realm) -> None:
    for request in (
        create("//a/b/t"),
        CreateDirectory("//c"),
        SetNode("//c/@x", b"\x01"),
        CopyNode("//a", "//d"),
        MoveNode("//a", "//c/a"),
        RemoveNode("//c", is_recursive=True),
    ):
        before = len(realm.records)
        realm.ask(request)
        assert len(realm.records) == before + 1
    assert isinstance(realm.records[0], Group)


def test_a_stored_table_without_a_node_is_refused(realm: Realm) -> None:
    realm.ask(create("//t"))
    realm.append(put_table(StoredTable(9, "//lost", COLUMNS, "full", ())))
    with pytest.raises(DataCorrupted, match="no node in the tree") as caught:
        realm.restart()
    assert caught.value.attributes["path"] == "//lost"


# Names that web clients take out of an address

STEPS = ("//.", "//..", "//a/.", "//../a", "//a/./b", "//a/../b")
WORDS = r"node can't be named \. or \.\."


@pytest.mark.parametrize("path", STEPS)
def test_no_node_is_called_dot_or_dots(realm: Realm, path: str) -> None:
    realm.ask(CreateDirectory("//a"))
    realm.ask(create("//t"))
    realm.records.clear()
    for request in (
        create(path),
        CreateDirectory(path, is_recursive=True),
        CreateDirectory(path, is_recursive=True, ignore_existing=True),
        MoveNode("//t", path, is_recursive=True),
        CopyNode("//t", path, is_recursive=True),
    ):
        with pytest.raises(InvalidRequest, match=WORDS) as caught:
            realm.ask(request)
        assert caught.value.attributes["path"] == path
        assert caught.value.attributes["name"] in (".", "..")
    assert realm.records == []
    assert exists(realm, path) is False
