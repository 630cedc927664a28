"""Attributes of nodes: what the catalog says of them, and what users may set."""

from datetime import date, timedelta
from typing import Any

import msgspec
import pytest

from dodona.errors import (
    DataCorrupted,
    InvalidRequest,
    InvalidTabletState,
    LimitExceeded,
    NodeNotFound,
)
from dodona.keys import encode_key
from dodona.schema import Column
from dodona.types import KEY_MIN, MAX_TIMESTAMP, Key, Revision, TableSettings, TabletId, Timestamp
from dodona_oracle.core import attribute_calls
from dodona_oracle.core.attributes import instant_text
from dodona_oracle.core.records import put_table
from dodona_wire.messages.attribute_names import SETTINGS
from dodona_wire.messages.catalog import (
    CreateTable,
    GetTable,
    MountedTablet,
    MountTable,
    ReshardTable,
    UnmountTable,
)
from dodona_wire.messages.tree import (
    CreateDirectory,
    GetNode,
    ListNodes,
    NodeExists,
    RemoveNode,
    SetNode,
)
from unit.oracle.realm import COLUMNS, Realm, create, pivot

NOON_US = 1_700_000_000_123_456
BYTE_COLUMNS = (
    Column("k", "string", sort_order="ascending"),
    Column("d", "double", sort_order="ascending"),
    Column("v", "any"),
)


@pytest.fixture
def realm() -> Realm:
    realm = Realm()
    realm.unix_us = NOON_US
    return realm


def get(realm: Realm, path: str) -> Any:
    return msgspec.msgpack.decode(realm.ask(GetNode(path)).value)


def put(realm: Realm, path: str, value: Any) -> None:
    realm.ask(SetNode(path, msgspec.msgpack.encode(value)))


def test_the_attributes_of_a_node_show_its_type_path_and_times(realm: Realm) -> None:
    realm.ask(create("//a/t"))
    assert get(realm, "//a/@") == {
        "type": "directory",
        "id": 3,
        "path": "//a",
        "parent": "/",
        "creation_time": "2023-11-14T22:13:20.123456Z",
        "modification_time": "2023-11-14T22:13:20.123456Z",
        "lock_count": 0,
        "locks": [],
        "count": 1,
    }
    assert get(realm, "//a/t/@parent") == "//a"
    assert get(realm, "//@parent") is None
    assert get(Realm(), "//@creation_time") == "1970-01-01T00:00:00.000000Z"
    assert get(Realm(), "//@modification_time") == "1970-01-01T00:00:00.000000Z"


def test_the_attributes_of_a_table_show_its_schema_settings_and_tablets(realm: Realm) -> None:
    realm.beat(0)
    realm.ask(create("//t", tablet_count=2))
    assert get(realm, "//t/@dynamic") is get(realm, "//t/@sorted") is True
    assert get(realm, "//t/@unique_keys") is True
    assert get(realm, "//t/@key_columns") == ["k", "name"]
    assert get(realm, "//t/@schema")[2] == {"name": "v", "type": "any"}
    assert get(realm, "//t/@atomicity") == "full"
    assert get(realm, "//t/@in_memory_mode") == "none"
    assert get(realm, "//t/@max_data_versions") == 1
    assert get(realm, "//t/@tablet_count") == 2
    assert get(realm, "//t/@tablet_state") == "unmounted"
    realm.ask(MountTable("//t"))
    assert get(realm, "//t/@tablet_state") == "mounting"
    assert get(realm, "//t/@tablets")[1] == {
        "index": 1,
        "id": 3,
        "state": "mounting",
        "cell": 0,
        "pivot_key": [1],
        "revision": 1,
        "retained_timestamp": 1,
    }


def retained(realm: Realm) -> list[int]:
    """Of the table, then of its tablets."""
    tablets = [it["retained_timestamp"] for it in get(realm, "//t/@tablets")]
    return [get(realm, "//t/@retained_timestamp"), *tablets]


def test_a_list_of_a_table_or_of_an_attribute_is_refused_with_the_reason(realm: Realm) -> None:
    realm.ask(create("//a/t"))
    for path, what in (("//a/t", "a table"), ("//a/@id", "an attribute")):
        with pytest.raises(InvalidRequest, match=f"is {what}, not a directory"):
            realm.ask(ListNodes(path))


def test_a_read_of_a_directory_with_too_many_nodes_is_refused(
    realm: Realm, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attribute_calls, "SHOWN_MAX", 3)
    realm.ask(create("//a/b/t"))
    assert get(realm, "//a") == {"b": {"t": None}}
    realm.ask(CreateDirectory("//a/c"))
    with pytest.raises(LimitExceeded, match="More than 3 nodes are below //a"):
        get(realm, "//a")


def test_a_table_shows_the_newest_retained_timestamp_of_its_tablets(realm: Realm) -> None:
    realm.beat(0)
    realm.ask(create("//t", tablet_count=2))
    assert retained(realm) == [1, 1, 1]
    first, second = realm.ask(MountTable("//t")).tablets
    old, new = Timestamp(70 << 30), Timestamp(80 << 30)
    realm.beat(0, MountedTablet(first.tablet, first.revision, "mounted", new))
    realm.beat(
        0,
        MountedTablet(first.tablet, first.revision, "mounted", old),  # comes late
        MountedTablet(second.tablet, second.revision, "mounted", old),
    )
    assert retained(realm) == [new, new, old]
    realm.ask(UnmountTable("//t"))
    realm.beat(0)
    assert retained(realm) == [new, new, old]
    realm.restart()
    assert retained(realm) == [1, 1, 1]  # until its cell is heard


def test_the_master_ignores_invalid_retained_timestamps(realm: Realm) -> None:
    realm.beat(0)
    realm.ask(create("//t"))
    for tablet, timestamp in ((2, 1 << 70), (2, -1), (99, 5)):
        word = MountedTablet(TabletId(tablet), Revision(1), "mounted", Timestamp(timestamp))
        realm.beat(0, word)
    assert retained(realm) == [1, 1]
    realm.beat(0, MountedTablet(TabletId(2), Revision(1), "mounted", MAX_TIMESTAMP))
    assert retained(realm) == [MAX_TIMESTAMP, MAX_TIMESTAMP]
    pivots = (KEY_MIN, pivot(1))
    realm.ask(ReshardTable("//t", pivots))
    realm.beat(0, MountedTablet(TabletId(2), Revision(1), "mounted", Timestamp(5)))
    assert retained(realm) == [1, 1, 1]


def test_a_stored_pivot_key_that_does_not_fit_is_reported_with_its_table(realm: Realm) -> None:
    realm.ask(create("//t", tablet_count=2))
    (stored,) = realm.state().tables
    first, second = stored.tablets
    damaged = msgspec.structs.replace(second, pivot_key=Key(b"\x99"))
    realm.append(put_table(msgspec.structs.replace(stored, tablets=(first, damaged))))
    realm.restart()
    with pytest.raises(DataCorrupted, match="does not fit the schema of its table") as caught:
        get(realm, "//t/@pivot_keys")
    assert caught.value.attributes["table"] == "//t"


def test_pivot_keys_are_shown_as_values_that_json_knows(realm: Realm) -> None:
    keys = [(b"\xff\x00a",), (b"\xff\x01", 0.5), (b"\xff\x02", float("inf"))]
    pivots = tuple(encode_key(key, ["string", "double"][: len(key)]) for key in keys)
    realm.ask(CreateTable("//t", BYTE_COLUMNS, "full", (KEY_MIN, *pivots)))
    shown = get(realm, "//t/@pivot_keys")
    assert shown == [[], ["ÿ\x00a"], ["ÿ\x01", 0.5], ["ÿ\x02", "inf"]]
    realm.ask(CreateTable("//u", COLUMNS, "full", (KEY_MIN, pivot(None), pivot(1, "ä"))))
    assert get(realm, "//u/@pivot_keys") == [[], [None], [1, "ä"]]


@pytest.mark.parametrize("value", [None, True, -5, 1.5, "ä", [], {"a": [{}, [1]]}, (1 << 64) - 1])
def test_a_user_attribute_keeps_its_value_after_a_restart(realm: Realm, value: Any) -> None:
    realm.ask(CreateDirectory("//a"))
    put(realm, "//a/@mine", value)
    assert get(realm, "//a/@mine") == value
    assert msgspec.msgpack.decode(realm.ask(NodeExists("//a/@mine")).value) is True
    assert "mine" in realm.ask(ListNodes("//a/@")).names
    realm.restart()
    assert get(realm, "//a/@")["mine"] == value
    realm.ask(RemoveNode("//a/@mine"))
    assert msgspec.msgpack.decode(realm.ask(NodeExists("//a/@mine")).value) is False
    with pytest.raises(NodeNotFound, match="//a/@mine"):
        get(realm, "//a/@mine")


@pytest.mark.parametrize(
    "name", ["in_memory_mode", "isolation", "max_data_ttl", "atomicity", "mine"]
)
def test_an_attribute_value_that_is_nested_too_deeply_is_refused(realm: Realm, name: str) -> None:
    realm.ask(create("//t"))
    for depth in (*range(33, 60), *range(900, 1100)):
        value = b"\x91" * depth + b"\x01"
        with pytest.raises((LimitExceeded, InvalidRequest), match=r"nested|MessagePack"):
            realm.ask(SetNode(f"//t/@{name}", value))
        attributes = b"\x81" + msgspec.msgpack.encode(name) + value
        with pytest.raises((LimitExceeded, InvalidRequest), match=r"nested|MessagePack"):
            realm.ask(msgspec.structs.replace(create("//u"), attributes=attributes))


def test_attributes_can_be_set_when_a_node_is_created(realm: Realm) -> None:
    packed = msgspec.msgpack.encode({"owner": "me", "max_data_ttl": 7, "atomicity": "none"})
    realm.ask(msgspec.structs.replace(create("//t"), attributes=packed))
    table = realm.ask(GetTable("//t"))
    assert (table.settings, table.atomicity) == (TableSettings(max_data_ttl=7), "none")
    assert get(realm, "//t/@owner") == "me"
    realm.ask(CreateDirectory("//d", msgspec.msgpack.encode({"pivot_keys": "no table's"})))
    assert get(realm, "//d/@pivot_keys") == "no table's"


def test_setting_all_attributes_replaces_user_attributes_and_keeps_table_settings(
    realm: Realm,
) -> None:
    realm.ask(create("//t"))
    put(realm, "//t/@", {"a": 1, "b": 2, "min_data_versions": 3})
    realm.unix_us += 1_000_000
    put(realm, "//t/@", {"b": 4, "c": 5})
    attributes = get(realm, "//t/@")
    assert "a" not in attributes
    assert (attributes["b"], attributes["c"], attributes["min_data_versions"]) == (4, 5, 3)
    assert attributes["modification_time"] == "2023-11-14T22:13:21.123456Z"


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("path", "//b", "'path' is a system attribute. It can't be set"),
        ("schema", [], "'schema' is a system attribute. It can't be set"),
        ("tablet_state", "mounted", "'tablet_state' is a system attribute. It can't be set"),
        ("atomicity", "half", "Atomicity"),
        ("max_data_versions", "1", "max_data_versions"),
        ("max_data_versions", -1, "max_data_versions"),
        ("max_data_versions", 1 << 63, "max_data_versions must be 0 to 9223372036854775807"),
        ("in_memory_mode", "sometimes", 'in_memory_mode must be "none" or'),
        ("enable_shared_write_locks", 1, "enable_shared_write_locks"),
        ("x/y", 1, "part of an attribute"),
        ("x y", 1, "letters"),
    ],
)
def test_an_invalid_change_of_an_attribute_is_refused_with_the_reason(
    realm: Realm, name: str, value: Any, reason: str
) -> None:
    realm.ask(create("//t"))
    record_count = len(realm.records)
    with pytest.raises(InvalidRequest, match=reason):
        put(realm, f"//t/@{name}", value)
    assert len(realm.records) == record_count


@pytest.mark.parametrize(
    "packed",
    [b"", b"\xc1", b"\xc4\x01a", b"\x81\x01\x02", b"\xcb\x7f\xf8" + bytes(6), b"\xd4\x05a"],
)
def test_an_attribute_value_that_json_cannot_hold_is_refused(realm: Realm, packed: bytes) -> None:
    realm.ask(CreateDirectory("//a"))
    with pytest.raises(InvalidRequest, match="value"):
        realm.ask(SetNode("//a/@x", packed))


@pytest.mark.parametrize("packed", [b"\x90", b"\x01", b"\x81\x01\x02", b"\x81\xa3a/b\x01"])
def test_attributes_are_a_map_of_names(realm: Realm, packed: bytes) -> None:
    realm.ask(CreateDirectory("//a"))
    for request in (SetNode("//a/@", packed), CreateDirectory("//b", packed)):
        with pytest.raises(InvalidRequest, match=r"map|letters"):
            realm.ask(request)


def test_values_names_and_their_number_are_limited(realm: Realm) -> None:
    realm.ask(CreateDirectory("//a"))
    header_bytes = 3
    put(realm, "//a/@x", "x" * (65_536 - header_bytes))
    with pytest.raises(LimitExceeded, match="65536 bytes"):
        put(realm, "//a/@x", "x" * (65_537 - header_bytes))
    deep: Any = 1
    for _ in range(32):
        deep = [deep]
    put(realm, "//a/@x", deep)
    with pytest.raises(LimitExceeded, match="32 deep"):
        put(realm, "//a/@x", [deep])
    with pytest.raises(LimitExceeded, match="256 characters"):
        put(realm, f"//a/@{'x' * 257}", 1)
    put(realm, "//a/@", {f"n{number}": 1 for number in range(256)})
    with pytest.raises(LimitExceeded, match="256 attributes"):
        put(realm, "//a/@more", 1)
    put(realm, "//a/@n7", 2)


def test_some_settings_change_while_mounted_and_others_only_while_unmounted(
    realm: Realm,
) -> None:
    realm.ask(create("//t"))
    put(realm, "//t/@atomicity", "none")
    put(realm, "//t/@in_memory_mode", "compressed")
    realm.beat(0)
    realm.ask(MountTable("//t"))
    put(realm, "//t/@max_data_ttl", 5)
    assert get(realm, "//t/@max_data_ttl") == 5
    for name, value in (("atomicity", "full"), ("in_memory_mode", "none")):
        with pytest.raises(InvalidTabletState, match="not all tablets are unmounted"):
            put(realm, f"//t/@{name}", value)
        put(realm, f"//t/@{name}", get(realm, f"//t/@{name}"))  # as it is
    put(realm, "//t/@max_data_ttl", None)
    assert get(realm, "//t/@max_data_ttl") == 1_800_000


@pytest.mark.parametrize("value", [0, (1 << 63) - 1])
def test_a_setting_may_have_the_smallest_and_the_largest_value(realm: Realm, value: int) -> None:
    realm.ask(create("//t"))
    put(realm, "//t/@max_data_ttl", value)
    assert get(realm, "//t/@max_data_ttl") == value


def test_the_catalog_s_own_attributes_stay(realm: Realm) -> None:
    realm.ask(create("//t"))
    for name in ("type", "atomicity", "max_data_ttl"):
        with pytest.raises(InvalidRequest, match="system attribute"):
            realm.ask(RemoveNode(f"//t/@{name}"))
    with pytest.raises(InvalidRequest, match="Name one attribute"):
        realm.ask(RemoveNode("//t/@"))
    with pytest.raises(InvalidRequest, match="Only attributes can be set"):
        put(realm, "//t", {})


@pytest.mark.parametrize(
    ("unix_us", "text"),
    [
        (0, "1970-01-01T00:00:00.000000Z"),
        (951_782_399_999_999, "2000-02-28T23:59:59.999999Z"),
        (951_782_400_000_000, "2000-02-29T00:00:00.000000Z"),
        (1_709_251_199_000_001, "2024-02-29T23:59:59.000001Z"),
        (4_107_542_400_000_000, "2100-03-01T00:00:00.000000Z"),
        (4_294_967_295_000_000, "2106-02-07T06:28:15.000000Z"),
    ],
)
def test_instants_are_shown_as_text(unix_us: int, text: str) -> None:
    assert instant_text(unix_us) == text


def test_the_date_of_an_instant_is_that_of_the_calendar() -> None:
    firsts = [date(year, month, 1) for year in range(1970, 2402) for month in range(1, 13)]
    days = [*firsts, *[it - timedelta(1) for it in firsts[1:]]]
    for day in days:
        days_since = day.toordinal() - date(1970, 1, 1).toordinal()
        assert instant_text(days_since * 86_400_000_000).startswith(f"{day.isoformat()}T00:00:00.")


MISSPELLED = {
    "min_data_tll": "min_data_ttl",
    "max_data_version": "max_data_versions",
    "Atomicity": "atomicity",
    "merge-rows-on-flush": "merge_rows_on_flush",
    "dynamic_store_auto_flush_perod": "dynamic_store_auto_flush_period",
}


@pytest.mark.parametrize(("name", "setting"), MISSPELLED.items())
def test_a_misspelled_setting_of_a_table_is_refused_with_the_name_that_was_meant(
    realm: Realm, name: str, setting: str
) -> None:
    realm.ask(create("//t"))
    packed = msgspec.msgpack.encode({name: 1})
    asked: list[CreateTable | SetNode] = [
        msgspec.structs.replace(create("//u"), attributes=packed),
        SetNode(f"//t/@{name}", msgspec.msgpack.encode(1)),
        SetNode("//t/@", packed),
    ]
    for request in asked:
        with pytest.raises(InvalidRequest, match=f"Did you mean '{setting}'"):
            realm.ask(request)
    assert not msgspec.msgpack.decode(realm.ask(NodeExists("//u")).value)
    assert not msgspec.msgpack.decode(realm.ask(NodeExists(f"//t/@{name}")).value)


@pytest.mark.parametrize("name", ["owner", "_min_data_tll", "x", "forced_compaction_revision"])
def test_attributes_of_a_users_own_are_kept(realm: Realm, name: str) -> None:
    packed = msgspec.msgpack.encode({name: 1})
    realm.ask(msgspec.structs.replace(create("//t"), attributes=packed))
    assert get(realm, f"//t/@{name}") == 1


def test_a_directory_has_no_settings_to_be_misspelled(realm: Realm) -> None:
    realm.ask(CreateDirectory("//d", msgspec.msgpack.encode({"min_data_tll": 1})))
    assert get(realm, "//d/@min_data_tll") == 1


@pytest.mark.parametrize("name", SETTINGS)
def test_a_setting_of_tables_is_refused_for_a_directory(realm: Realm, name: str) -> None:
    """It would have no effect on the tables in the directory."""
    packed = msgspec.msgpack.encode({name: 1})
    realm.ask(CreateDirectory("//d"))
    asked: list[CreateDirectory | SetNode] = [
        CreateDirectory("//e", packed),
        SetNode(f"//d/@{name}", msgspec.msgpack.encode(1)),
        SetNode("//d/@", packed),
    ]
    for request in asked:
        with pytest.raises(InvalidRequest, match="is a setting of tables, but this is a directory"):
            realm.ask(request)
    assert not msgspec.msgpack.decode(realm.ask(NodeExists("//e")).value)
    realm.ask(SetNode(f"//d/@_{name}", msgspec.msgpack.encode(1)))
    assert get(realm, f"//d/@_{name}") == 1
