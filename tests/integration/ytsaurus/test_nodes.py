"""The tree through the real client: nodes, attributes, what is inside them, errors."""

from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Final

import pytest
import yt.wrapper as yt

pytestmark = pytest.mark.integration

TABLE: Final = {
    "dynamic": True,
    "schema": [
        {"name": "k", "type": "int64", "sort_order": "ascending"},
        {"name": "v", "type": "string"},
    ],
}


def test_directories_are_made_listed_and_removed(any_client: yt.YtClient, folder: str) -> None:
    client = any_client
    client.mkdir(f"{folder}/a/b", recursive=True)
    client.mkdir(f"{folder}/a/b", recursive=True)
    client.create("map_node", f"{folder}/c")
    assert client.list(folder) == ["a", "c"]
    assert client.list(f"{folder}/a", absolute=True) == [f"{folder}/a/b"]
    assert client.exists(f"{folder}/a/b")
    assert not client.exists(f"{folder}/a/d")
    assert client.get(folder) == {"a": {"b": {}}, "c": {}}
    with pytest.raises(yt.YtResponseError):
        client.remove(f"{folder}/a")  # it is not empty
    client.remove(f"{folder}/a", recursive=True)
    client.remove(f"{folder}/c")
    assert client.list(folder) == []
    with pytest.raises(yt.errors.YtResolveError):
        client.remove(f"{folder}/c")
    client.remove(f"{folder}/c", force=True)


def test_an_existing_node_is_not_created_again(client: yt.YtClient, folder: str) -> None:
    its_id = client.create("table", f"{folder}/t", attributes=TABLE)
    with pytest.raises(yt.YtResponseError) as refused:
        client.create("table", f"{folder}/t", attributes=TABLE)
    assert refused.value.is_already_exists()
    with pytest.raises(yt.YtResponseError) as refused:
        client.create("map_node", f"{folder}/t", ignore_existing=True)
    assert refused.value.is_already_exists()
    found = client.create("table", f"{folder}/t", attributes=TABLE, ignore_existing=True)
    assert found == its_id
    found = client.create(
        "map_node", f"{folder}/t", ignore_existing=True, ignore_type_mismatch=True
    )
    assert found == its_id
    with pytest.raises(yt.YtResponseError, match="lock_existing"):
        client.create("map_node", f"{folder}/t", ignore_existing=True, lock_existing=True)


def test_missing_parents_are_created_only_with_recursive(client: yt.YtClient, folder: str) -> None:
    for kind, attributes in (("map_node", {}), ("table", TABLE)):
        with pytest.raises(yt.errors.YtResolveError):
            client.create(kind, f"{folder}/no/such/node", attributes=attributes)
    client.create("table", f"{folder}/no/such/node", attributes=TABLE, recursive=True)
    with pytest.raises(yt.YtResponseError):
        client.create("map_node", f"{folder}/no/such/node/below")


def test_many_make_one_directory_at_the_same_time(
    url: str, connect: Any, client: yt.YtClient, folder: str
) -> None:
    clients = [connect(url) for _ in range(8)]
    for round in range(5):
        path = f"{folder}/{round}/inner"
        with ThreadPoolExecutor(8) as pool:
            made = list(pool.map(partial(_make, path), clients))
        assert len(set(made)) == 1


def _make(path: str, client: yt.YtClient) -> str:
    return str(client.mkdir(path, recursive=True))


def test_create_with_force_replaces_a_node_or_changes_nothing(
    client: yt.YtClient, folder: str
) -> None:
    client.mkdir(f"{folder}/d/inner", recursive=True)
    bad = {"dynamic": True, "schema": [{"name": "v", "type": "nonsense"}]}
    with pytest.raises(yt.YtResponseError):
        client.create("table", f"{folder}/d", attributes=bad, force=True)
    assert client.exists(f"{folder}/d/inner")
    its_id = client.create("table", f"{folder}/d", attributes=TABLE, force=True)
    assert client.get(f"{folder}/d/@type") == "table"
    assert client.get(f"{folder}/d/@id") == its_id
    client.create("table", f"{folder}/new", attributes=TABLE, force=True)


@pytest.mark.parametrize("kind", ["file", "document", "list_node", "tablet_cell", "link"])
def test_other_kinds_of_nodes_are_refused(client: yt.YtClient, folder: str, kind: str) -> None:
    with pytest.raises(yt.YtResponseError, match=f"not {kind}"):
        client.create(kind, f"{folder}/node")


def test_nodes_are_copied_and_moved(client: yt.YtClient, folder: str) -> None:
    client.create("table", f"{folder}/t", attributes={**TABLE, "mine": 1})
    client.mount_table(f"{folder}/t", sync=True)
    client.insert_rows(f"{folder}/t", [{"k": 1, "v": "x"}])
    with pytest.raises(yt.YtResponseError):
        client.copy(f"{folder}/t", f"{folder}/u")  # it is mounted
    client.unmount_table(f"{folder}/t", sync=True)
    copied = client.copy(f"{folder}/t", f"{folder}/u")["node_id"]
    assert copied == client.get(f"{folder}/u/@id") != client.get(f"{folder}/t/@id")
    assert client.get(f"{folder}/u/@mine") == 1
    client.mount_table(f"{folder}/u", sync=True)
    assert list(client.lookup_rows(f"{folder}/u", [{"k": 1}])) == [{"k": 1, "v": "x"}]
    with pytest.raises(yt.YtResponseError) as refused:
        client.move(f"{folder}/t", f"{folder}/u")
    assert refused.value.is_already_exists()
    assert client.copy(f"{folder}/t", f"{folder}/u", ignore_existing=True)["node_id"] == copied
    moved = client.move(f"{folder}/t", f"{folder}/below/t", recursive=True)["node_id"]
    assert moved == client.get(f"{folder}/below/t/@id")
    assert client.list(folder) == ["below", "u"]
    with pytest.raises(yt.errors.YtResolveError):
        client.copy(f"{folder}/t", f"{folder}/v")


def test_a_forced_copy_that_fails_takes_nothing_away(client: yt.YtClient, folder: str) -> None:
    client.mkdir(f"{folder}/target/inner", recursive=True)
    for act in (client.copy, client.move):
        with pytest.raises(yt.errors.YtResolveError):
            act(f"{folder}/nothing", f"{folder}/target", force=True)
    assert client.exists(f"{folder}/target/inner")
    client.mkdir(f"{folder}/source/new", recursive=True)
    client.copy(f"{folder}/source", f"{folder}/target", force=True)
    assert client.get(f"{folder}/target") == {"new": {}}
    client.move(f"{folder}/source", f"{folder}/target", force=True)
    assert client.get(folder) == {"target": {"new": {}}}


# ---- attributes


def test_attributes_of_a_users_own(any_client: yt.YtClient, folder: str) -> None:
    client = any_client
    value = {"n": 1, "f": 1.5, "t": "ж", "l": [True, None, {"x": []}], "m": {}}
    client.set(f"{folder}/@mine", value)
    assert client.get(f"{folder}/@mine") == value
    assert client.get(f"{folder}/@mine/l/2/x") == []
    assert client.get(f"{folder}/@mine/l/-1") == {"x": []}
    assert client.exists(f"{folder}/@mine/l/2")
    assert not client.exists(f"{folder}/@mine/l/3")
    assert not client.exists(f"{folder}/@mine/nothing")
    assert not client.exists(f"{folder}/@other")
    client.set(f"{folder}/@mine/m/new", 5)
    client.set(f"{folder}/@mine/l/0", "changed")
    client.set(f"{folder}/@mine/l/end", "added")
    client.remove(f"{folder}/@mine/f")
    client.remove(f"{folder}/@mine/l/1")
    assert client.get(f"{folder}/@mine") == {
        "n": 1,
        "t": "ж",
        "l": ["changed", {"x": []}, "added"],
        "m": {"new": 5},
    }
    assert client.get_attribute(folder, "mine")["n"] == 1
    assert client.has_attribute(folder, "mine")
    client.set_attribute(folder, "mine", 7)
    assert client.get(f"{folder}/@mine") == 7
    client.remove(f"{folder}/@mine")
    assert not client.exists(f"{folder}/@mine")
    assert client.get_attribute(folder, "mine", default=None) is None


def test_places_in_attributes_that_are_not_there(client: yt.YtClient, folder: str) -> None:
    client.set(f"{folder}/@mine", {"a": {"b": 1}, "l": [1]})
    for path in ("nothing", "mine/x", "mine/a/b/c", "mine/l/1", "mine/l/x"):
        with pytest.raises(yt.errors.YtResolveError):
            client.get(f"{folder}/@{path}")
    for path in ("nothing/x", "mine/x/y", "mine/a/b/c", "mine/l/1", "mine/l/x"):
        with pytest.raises(yt.errors.YtResolveError):
            client.set(f"{folder}/@{path}", 1)
    with pytest.raises(yt.errors.YtResolveError):
        client.remove(f"{folder}/@mine/x")
    assert client.get(f"{folder}/@mine") == {"a": {"b": 1}, "l": [1]}


def test_changes_inside_one_attribute_do_not_lose_each_other(
    url: str, connect: Any, client: yt.YtClient, folder: str
) -> None:
    client.set(f"{folder}/@mine", {})
    clients = [connect(url) for _ in range(4)]

    def change(place: int) -> None:
        for key in range(5):
            while True:
                try:
                    clients[place].set(f"{folder}/@mine/{place}.{key}", key)
                    break
                except yt.errors.YtCypressTransactionLockConflict:
                    continue

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(change, range(4)))
    assert len(client.get(f"{folder}/@mine")) == 20


def test_attributes_that_go_with_nodes(any_client: yt.YtClient, folder: str) -> None:
    client = any_client
    client.create("table", f"{folder}/t", attributes={**TABLE, "mine": 1})
    client.create("map_node", f"{folder}/d", attributes={"mine": 2, "schema": "of a user"})
    shown = client.list(folder, attributes=["type", "mine", "nothing"])
    assert [(str(it), dict(it.attributes)) for it in shown] == [
        ("d", {"type": "map_node", "mine": 2}),
        ("t", {"type": "table", "mine": 1}),
    ]
    table = client.get(f"{folder}/t", attributes=["type", "key", "path"])
    assert isinstance(table, yt.yson.YsonEntity)
    assert table.attributes == {"type": "table", "key": "t", "path": f"{folder}/t"}
    nested = client.get(folder, attributes=["key"])
    assert nested["d"].attributes == {"key": "d"}
    assert nested["t"].attributes == {"key": "t"}
    assert client.get(f"{folder}/d/@schema") == "of a user"
    assert sorted(client.search(folder, node_type="table")) == [f"{folder}/t"]


def test_a_table_is_an_entity(any_client: yt.YtClient, folder: str) -> None:
    any_client.create("table", f"{folder}/t", attributes=TABLE)
    found = any_client.get(f"{folder}/t")
    assert found is None or isinstance(found, yt.yson.YsonEntity)
    assert any_client.exists(f"{folder}/t&")
    with pytest.raises(yt.YtResponseError):
        any_client.list(f"{folder}/t")


def test_a_long_list_is_cut_as_was_asked(client: yt.YtClient, folder: str) -> None:
    for name in "abc":
        client.mkdir(f"{folder}/{name}")
    whole = client.list(folder, max_size=3)
    assert list(whole) == ["a", "b", "c"]
    assert "incomplete" not in whole.attributes
    part = client.list(folder, max_size=2)
    assert list(part) == ["a", "b"]
    assert part.attributes["incomplete"]


def test_system_attributes_cannot_be_set(client: yt.YtClient, folder: str) -> None:
    client.create("table", f"{folder}/t", attributes=TABLE)
    for name in ("id", "type", "tablet_state", "schema", "acl", "owner", "inherit_acl"):
        with pytest.raises(yt.YtResponseError):
            client.set(f"{folder}/t/@{name}", "x")
    with pytest.raises(yt.YtResponseError, match="The grants of tokens control access"):
        client.create("map_node", f"{folder}/d", attributes={"acl": []})
    for path in (folder, f"{folder}/t"):
        with pytest.raises(yt.YtResponseError, match="Only attributes can be set"):
            client.set(path, {})
    with pytest.raises(yt.YtResponseError, match="does not keep attributes inside the value"):
        client.set(f"{folder}/@mine", yt.yson.to_yson_type(1, attributes={"a": 1}))
    with pytest.raises(yt.YtResponseError):
        client.set(f"{folder}/@mine", b"\xff")


@pytest.mark.parametrize(
    "path", ["//", "//a//b", "//a/", "//a b", "//a/../b", "//ж", "#1-2-3-4", "//a/b\\/c"]
)
def test_paths_that_are_none(client: yt.YtClient, path: str) -> None:
    with pytest.raises(yt.YtResponseError):
        client.mkdir(path)
    with pytest.raises(yt.YtResponseError):
        client.remove(path, recursive=True)


def test_the_root(client: yt.YtClient, folder: str) -> None:
    top = folder.split("/")[2]
    assert top in client.list("/")
    assert client.get("//@type") == "map_node"
    shown = client.list("/", attributes=["type"])
    assert {str(it): it.attributes["type"] for it in shown}[top] == "map_node"
    assert client.get("/", attributes=["type"]).attributes == {"type": "map_node"}
    with pytest.raises(yt.YtResponseError):
        client.remove("/", recursive=True, force=True)


def test_a_command_with_prerequisites_is_refused(client: yt.YtClient, folder: str) -> None:
    client.COMMAND_PARAMS["prerequisite_transaction_ids"] = ["1-2-10001-4"]
    with pytest.raises(yt.YtResponseError, match="prerequisite_transaction_ids"):
        client.mkdir(f"{folder}/d")
    del client.COMMAND_PARAMS["prerequisite_transaction_ids"]
    assert not client.exists(f"{folder}/d")


def test_rows_are_counted_when_they_are_asked_for(
    any_client: yt.YtClient, folder: str, request: pytest.FixtureRequest
) -> None:
    client, path = any_client, f"{folder}/t"
    client.create("table", path, attributes=TABLE)
    client.mount_table(path, sync=True)
    assert client.row_count(path) == 0
    assert client.is_empty(path)
    client.insert_rows(path, [{"k": number, "v": "x"} for number in range(5)])
    client.delete_rows(path, [{"k": 3}])
    assert client.row_count(path) == 4
    assert not client.is_empty(path)
    with pytest.raises(yt.errors.YtResolveError):
        client.row_count(f"{folder}/nothing")


def test_a_static_read_is_refused_with_the_call_to_use(
    any_client: yt.YtClient, folder: str
) -> None:
    client = any_client
    client.create("table", f"{folder}/t", attributes=TABLE)
    with pytest.raises(yt.YtResponseError, match="Use select_rows"):
        list(client.read_table(f"{folder}/t"))
    with pytest.raises(yt.YtResponseError, match="no accounts"):
        client.list(folder, attributes=["resource_usage"])
