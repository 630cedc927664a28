"""The isolation of a table: what the catalog keeps, refuses and sends to cells."""

from typing import Any

import msgspec
import pytest

from dodona.errors import InvalidRequest, NodeLocked
from dodona.types import TableSettings
from dodona_wire.messages.catalog import GetTable, MountTable, RemountTable, Table
from dodona_wire.messages.tree import CopyNode, CreateDirectory, ListNodes, MoveNode, SetNode
from unit.oracle.realm import create
from unit.oracle.tree_realm import Tree

ISOLATION = "//t/@isolation"
ATOMICITY = "//t/@atomicity"


@pytest.fixture
def realm() -> Tree:
    realm = Tree()
    realm.make_table("//t")
    return realm


def isolation_of(realm: Tree, path: str = "//t") -> str | None:
    """What clients get with the table's route."""
    settings: TableSettings = realm.ask(GetTable(path)).settings
    return settings.isolation


# ---- ways in and out


def test_a_table_has_no_isolation_until_it_is_set(realm: Tree) -> None:
    assert realm.get(ISOLATION) is isolation_of(realm) is None
    assert realm.exists(ISOLATION)
    assert "isolation" in realm.ask(ListNodes("//t/@")).names


@pytest.mark.parametrize("value", ["snapshot", "serializable"])
def test_isolation_can_be_given_at_creation(realm: Tree, value: str) -> None:
    packed = msgspec.msgpack.encode({"isolation": value, "owner": "me"})
    made = realm.ask(msgspec.structs.replace(create("//u"), attributes=packed))
    assert made.settings == TableSettings(isolation=value)  # type: ignore[arg-type]
    assert realm.get("//u/@isolation") == isolation_of(realm, "//u") == value
    realm.restart()
    assert realm.get("//u/@isolation") == value


def test_isolation_can_be_set_while_the_table_is_mounted(realm: Tree) -> None:
    realm.beat(0)
    realm.ask(MountTable("//t"))
    realm.serve(0)
    assert realm.states("//t") == ["mounted"]
    for value in ("serializable", "snapshot", None):
        realm.put(ISOLATION, value)
        assert realm.get(ISOLATION) == isolation_of(realm) == realm.get("//t/@")["isolation"]
        assert isolation_of(realm) == value


def test_setting_all_attributes_sets_the_isolation_and_keeps_it(realm: Tree) -> None:
    realm.put("//t/@", {"isolation": "serializable", "mine": 1})
    realm.put("//t/@", {"mine": 2})
    assert isolation_of(realm) == "serializable"


def test_cells_never_get_the_isolation(realm: Tree) -> None:
    realm.put("//t/@", {"isolation": "serializable", "max_data_versions": 3})
    realm.beat(0)
    realm.ask(MountTable("//t"))
    realm.serve(0)
    realm.put("//t/@", {"isolation": "snapshot", "max_data_versions": 4})
    realm.ask(RemountTable("//t"))
    (assigned,) = realm.beat(0).tablets
    assert assigned.settings == TableSettings(max_data_versions=4)


def test_a_copy_and_a_moved_table_keep_the_isolation(realm: Tree) -> None:
    realm.put(ISOLATION, "serializable")
    realm.ask(CopyNode("//t", "//copy"))
    realm.ask(MoveNode("//t", "//moved"))
    assert isolation_of(realm, "//copy") == isolation_of(realm, "//moved") == "serializable"
    realm.restart()
    assert isolation_of(realm, "//copy") == isolation_of(realm, "//moved") == "serializable"


# ---- what is refused


@pytest.mark.parametrize("value", ["", "Serializable", "read committed", 1, True, [], {}, 1.5])
def test_another_isolation_is_refused_with_the_two_that_exist(realm: Tree, value: Any) -> None:
    record_count = len(realm.records)
    packed = msgspec.msgpack.encode({"isolation": value})
    for request in (
        SetNode(ISOLATION, msgspec.msgpack.encode(value)),
        SetNode("//t/@", packed),
        msgspec.structs.replace(create("//u"), attributes=packed),
    ):
        with pytest.raises(InvalidRequest) as caught:
            realm.ask(request)
        path = getattr(request, "path", "").partition("/@")[0]
        text = f'Table {path}: isolation must be "snapshot" or "serializable", not '
        assert caught.value.message.startswith(text)
        assert caught.value.attributes == {"table": path, "attribute": "isolation"}
    assert len(realm.records) == record_count


def test_a_directory_refuses_an_isolation(realm: Tree) -> None:
    packed = msgspec.msgpack.encode({"isolation": "snapshot"})
    realm.make("//d")
    for request in (CreateDirectory("//e", packed), SetNode("//d/@", packed)):
        with pytest.raises(InvalidRequest, match="'isolation' is a setting of tables"):
            realm.ask(request)


def test_a_misspelt_isolation_is_refused_with_the_correct_name(realm: Tree) -> None:
    with pytest.raises(InvalidRequest, match="Did you mean 'isolation'"):
        realm.put("//t/@isolaton", "snapshot")


# ---- tables without atomicity


def refused(realm: Tree, path: str, value: Any) -> None:
    record_count = len(realm.records)
    with pytest.raises(InvalidRequest, match=r'Table //t: isolation "\w+" needs atomicity') as it:
        realm.put(path, value)
    assert it.value.attributes["table"] == "//t"
    assert it.value.attributes["attribute"] == "isolation"
    assert it.value.attributes["atomicity"] == "none"
    assert len(realm.records) == record_count


@pytest.mark.parametrize("value", ["snapshot", "serializable"])
def test_a_table_without_atomicity_refuses_an_isolation(realm: Tree, value: str) -> None:
    realm.put(ATOMICITY, "none")
    refused(realm, ISOLATION, value)
    refused(realm, "//t/@", {"isolation": value})
    realm.put(ISOLATION, None)
    packed = msgspec.msgpack.encode({"isolation": value})
    wanted = msgspec.structs.replace(create("//u"), atomicity="none", attributes=packed)
    with pytest.raises(InvalidRequest, match="needs atomicity"):
        realm.ask(wanted)


@pytest.mark.parametrize("value", ["snapshot", "serializable"])
def test_a_table_with_an_isolation_keeps_its_atomicity(realm: Tree, value: str) -> None:
    realm.put(ISOLATION, value)
    refused(realm, ATOMICITY, "none")
    realm.put(ATOMICITY, "full")
    realm.put(ISOLATION, None)
    realm.put(ATOMICITY, "none")
    assert realm.get(ATOMICITY) == "none"


@pytest.mark.parametrize("names", [("atomicity", "isolation"), ("isolation", "atomicity")])
def test_atomicity_and_isolation_set_together_are_judged_together(
    realm: Tree, names: tuple[str, str]
) -> None:
    def put(**values: str | None) -> None:
        realm.put("//t/@", {name: values[name] for name in names})

    put(atomicity="full", isolation="serializable")
    put(atomicity="none", isolation=None)
    assert (realm.get(ATOMICITY), realm.get(ISOLATION)) == ("none", None)
    put(atomicity="full", isolation="serializable")
    assert (realm.get(ATOMICITY), realm.get(ISOLATION)) == ("full", "serializable")
    with pytest.raises(InvalidRequest, match="needs atomicity"):
        put(atomicity="none", isolation="serializable")


# ---- master transactions


def test_a_master_transaction_sets_the_isolation_when_it_commits(realm: Tree) -> None:
    one = realm.begin()
    realm.put(ISOLATION, "serializable", one)
    assert realm.get(ISOLATION, one) == "serializable"
    assert isolation_of(realm) is None
    with pytest.raises(InvalidRequest, match="needs atomicity"):
        realm.put(ATOMICITY, "none", one)
    realm.commit(one)
    assert isolation_of(realm) == "serializable"


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ((ISOLATION, "serializable"), (ATOMICITY, "none")),
        ((ATOMICITY, "none"), (ISOLATION, "serializable")),
    ],
)
def test_two_master_transactions_never_set_what_contradicts(
    realm: Tree, first: tuple[str, str], second: tuple[str, str]
) -> None:
    one, other = realm.begin(), realm.begin()
    realm.put(*first, one)
    for rival in (other, realm.begin(other)):
        with pytest.raises(NodeLocked, match="its attribute 'atomicity'"):
            realm.put(*second, rival)
    with pytest.raises(NodeLocked):
        realm.put(*second)
    realm.put("//t/@max_data_versions", 2, other)
    realm.commit(other)
    realm.commit(one)
    assert realm.get(first[0]) == first[1]


# ---- bytes


def test_an_unset_isolation_changes_no_byte(realm: Tree) -> None:
    encode = msgspec.msgpack.encode
    assert encode(TableSettings()) == b"\x80"
    assert encode(TableSettings(max_data_versions=5)) == b"\x81\xb1max_data_versions\x05"
    before = encode(realm.ask(GetTable("//t")))
    assert b"isolation" not in before
    realm.put(ISOLATION, "serializable")
    settings_at = len(before) - 2  # the id of the table follows
    assert before[settings_at:] == b"\x80\x01"
    changed = b"\x81\xa9isolation\xacserializable\x01"
    assert encode(realm.ask(GetTable("//t"))) == before[:settings_at] + changed
    realm.put(ISOLATION, None)
    assert encode(realm.ask(GetTable("//t"))) == before
    assert not any(b"isolation" in value for value in realm.values.values())


def test_settings_of_an_earlier_release_have_no_isolation(realm: Tree) -> None:
    sent = msgspec.msgpack.encode(realm.ask(GetTable("//t")))
    assert msgspec.msgpack.decode(sent, type=Table).settings.isolation is None
    assert msgspec.msgpack.decode(b"\x80", type=TableSettings) == TableSettings()
