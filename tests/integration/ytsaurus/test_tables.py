"""The life of tables through the real client: made, mounted, frozen, resharded, altered."""

import time
from contextlib import suppress
from typing import Any, Final

import pytest
import yt.type_info as type_info
import yt.wrapper as yt
from yt.yson import YsonEntity

pytestmark = pytest.mark.integration

SCHEMA: Final = [
    {"name": "k", "type": "int64", "sort_order": "ascending"},
    {"name": "v", "type": "string"},
]


def create(client: yt.YtClient, path: str, **attributes: Any) -> str:
    """A table that is not mounted. → its id."""
    made = {"dynamic": True, "schema": SCHEMA, **attributes}
    return str(client.create("table", path, attributes=made))


def tablets(client: yt.YtClient, path: str) -> list[tuple[str, list[Any]]]:
    return [(it["state"], list(it["pivot_key"])) for it in client.get(f"{path}/@tablets")]


def test_a_table_is_mounted_and_unmounted(any_client: yt.YtClient, folder: str) -> None:
    path = f"{folder}/table"
    its_id = create(any_client, path)
    assert any_client.get(f"{path}/@id") == its_id
    assert any_client.get(f"{path}/@tablet_state") == "unmounted"
    any_client.mount_table(path, sync=True)
    assert any_client.get(f"{path}/@tablet_state") == "mounted"
    (tablet,) = any_client.get(f"{path}/@tablets")
    assert tablet["state"] == "mounted"
    assert tablet["cell_id"] in any_client.list("//sys/tablet_cells")
    any_client.mount_table(path, sync=True)  # which changes nothing
    any_client.insert_rows(path, [{"k": 1, "v": "x"}])
    any_client.unmount_table(path, sync=True)
    with pytest.raises(yt.errors.YtTabletNotMounted):
        any_client.lookup_rows(path, [{"k": 1}])
    any_client.mount_table(path, sync=True)
    assert list(any_client.lookup_rows(path, [{"k": 1}])) == [{"k": 1, "v": "x"}]


def test_a_frozen_table_is_read_only(client: yt.YtClient, folder: str) -> None:
    path = f"{folder}/table"
    create(client, path)
    client.mount_table(path, sync=True)
    client.insert_rows(path, [{"k": 1, "v": "x"}])
    client.freeze_table(path, sync=True)
    assert client.get(f"{path}/@tablet_state") == "frozen"
    assert list(client.lookup_rows(path, [{"k": 1}])) == [{"k": 1, "v": "x"}]
    with pytest.raises(yt.errors.YtTabletNotMounted):
        client.insert_rows(path, [{"k": 2, "v": "y"}])
    client.unfreeze_table(path, sync=True)
    client.insert_rows(path, [{"k": 2, "v": "y"}])
    client.unmount_table(path, sync=True)
    client.mount_table(path, freeze=True, sync=True)
    assert client.get(f"{path}/@tablet_state") == "frozen"
    client.unmount_table(path, sync=True)


def test_calls_that_the_state_of_a_table_forbids_are_refused(
    client: yt.YtClient, folder: str
) -> None:
    path = f"{folder}/table"
    create(client, path)
    for call in (client.freeze_table, client.unfreeze_table):
        with pytest.raises(yt.YtResponseError) as refused:
            call(path)
        assert refused.value.contains_code(1706)
    client.mount_table(path, sync=True)
    with pytest.raises(yt.YtResponseError) as refused:
        client.reshard_table(path, [[], [10]])
    assert refused.value.contains_code(1706)
    with pytest.raises(yt.YtResponseError, match="force"):
        client.unmount_table(path, force=True)


def test_some_tablets_of_a_table_are_mounted(client: yt.YtClient, folder: str) -> None:
    path = f"{folder}/table"
    create(client, path, pivot_keys=[[], [10], [20]])
    client.mount_table(path, first_tablet_index=1, last_tablet_index=1, sync=True)
    assert [state for state, _ in tablets(client, path)] == ["unmounted", "mounted", "unmounted"]
    client.insert_rows(path, [{"k": 15, "v": "x"}])
    with pytest.raises(yt.errors.YtTabletNotMounted):
        client.insert_rows(path, [{"k": 5, "v": "x"}])
    client.unmount_table(path, first_tablet_index=1, last_tablet_index=1, sync=True)
    assert [state for state, _ in tablets(client, path)] == ["unmounted"] * 3
    with pytest.raises(yt.YtResponseError):
        client.mount_table(path, first_tablet_index=1, last_tablet_index=3)


def test_rows_stay_when_a_table_is_resharded(any_client: yt.YtClient, folder: str) -> None:
    path = f"{folder}/table"
    create(any_client, path)
    any_client.mount_table(path, sync=True)
    rows = [{"k": k, "v": str(k)} for k in range(30)]
    any_client.insert_rows(path, rows)
    any_client.unmount_table(path, sync=True)
    any_client.reshard_table(path, [[], [10], [20]], sync=True)
    assert any_client.get(f"{path}/@tablet_count") == 3
    assert any_client.get(f"{path}/@pivot_keys") == [[], [10], [20]]
    any_client.reshard_table(path, [[10]], first_tablet_index=1, last_tablet_index=2, sync=True)
    assert [pivot for _, pivot in tablets(any_client, path)] == [[], [10]]
    any_client.mount_table(path, sync=True)
    assert list(any_client.select_rows(f"* from [{path}]")) == rows


@pytest.mark.parametrize(
    ("pivot_keys", "words"),
    [
        ([[1]], "irst pivot key|index"),
        ([[], [5], [5]], "increasing"),
        ([[], ["s"]], "int"),
        ([[], 5], "pivot_keys must be a list of keys"),
        ({"a": 1}, "pivot_keys must be a list of keys"),
    ],
)
def test_pivot_keys_that_make_no_sense(
    client: yt.YtClient, folder: str, pivot_keys: Any, words: str
) -> None:
    path = f"{folder}/table"
    with pytest.raises(yt.YtResponseError, match=words):
        create(client, path, pivot_keys=pivot_keys)
    create(client, path)
    with pytest.raises(yt.YtResponseError, match=words):
        client.reshard_table(path, pivot_keys)
    assert client.get(f"{path}/@tablet_count") == 1


def test_a_table_is_divided_evenly(client: yt.YtClient, folder: str) -> None:
    path = f"{folder}/table"
    hashed = [{"name": "h", "type": "uint64", "sort_order": "ascending"}, SCHEMA[1]]
    create(client, path, schema=hashed)
    client.reshard_table(path, tablet_count=5, uniform=True, sync=True)
    pivots = [pivot for _, pivot in tablets(client, path)]
    assert pivots == [[]] + [[at * 2**64 // 5] for at in range(1, 5)]
    create(client, f"{folder}/other", schema=hashed, tablet_count=2)
    assert client.get(f"{folder}/other/@pivot_keys") == [[], [2**63]]
    real = [{"name": "d", "type": "double", "sort_order": "ascending"}, SCHEMA[1]]
    create(client, f"{folder}/real", schema=real)
    with pytest.raises(yt.YtResponseError, match="pivot_keys"):
        client.reshard_table(f"{folder}/real", tablet_count=5, uniform=True)


def test_settings_are_in_force_after_a_remount(client: yt.YtClient, folder: str) -> None:
    path = f"{folder}/table"
    create(client, path)
    client.mount_table(path, sync=True)

    def write_shared() -> None:
        row = {"k": 1, "v": "x"}
        client.insert_rows(path, [row], update=True, lock_type="shared_write")

    with pytest.raises(yt.YtResponseError, match="Shared write locks are not allowed"):
        write_shared()
    client.set(f"{path}/@enable_shared_write_locks", True)
    client.remount_table(path)
    for _ in range(600):  # it comes to the tablets a moment later
        with suppress(yt.YtResponseError):
            write_shared()
            break
        time.sleep(0.05)
    write_shared()


def test_settings_may_come_as_a_mount_config(client: yt.YtClient, folder: str) -> None:
    path = f"{folder}/table"
    create(client, path, mount_config={"min_data_versions": 0, "max_data_versions": 3})
    assert client.get(f"{path}/@min_data_versions") == 0
    assert client.get(f"{path}/@max_data_versions") == 3
    client.set(f"{path}/@mount_config/min_data_ttl", 5)
    assert client.get(f"{path}/@min_data_ttl") == 5
    with pytest.raises(yt.YtResponseError, match="mount_config has no 'enable_magic'"):
        client.set(f"{path}/@mount_config/enable_magic", True)
    with pytest.raises(yt.YtResponseError, match="mount_config has no 'enable_magic'"):
        create(client, f"{folder}/other", mount_config={"enable_magic": True})


def test_the_isolation_of_a_table_is_an_attribute(client: yt.YtClient, folder: str) -> None:
    path = f"{folder}/table"
    create(client, path, isolation="serializable")
    assert client.get(f"{path}/@isolation") == "serializable"
    assert client.get(path, attributes=["isolation"]).attributes == {"isolation": "serializable"}
    client.set(f"{path}/@isolation", "snapshot")
    assert client.get(f"{path}/@")["isolation"] == "snapshot"
    client.set(f"{path}/@mount_config/isolation", None)
    assert isinstance(client.get(f"{path}/@isolation"), YsonEntity)
    with pytest.raises(yt.YtResponseError, match='isolation must be "snapshot" or "serializable"'):
        client.set(f"{path}/@isolation", "serial")
    client.set(f"{path}/@atomicity", "none")
    with pytest.raises(yt.YtResponseError, match='needs atomicity "full"'):
        client.set(f"{path}/@isolation", "serializable")
    with pytest.raises(yt.YtResponseError, match="setting of tables"):
        client.set(f"{folder}/@isolation", "serializable")


def test_a_table_gets_another_column(client: yt.YtClient, folder: str) -> None:
    path = f"{folder}/table"
    create(client, path)
    client.mount_table(path, sync=True)
    client.insert_rows(path, [{"k": 1, "v": "x"}])
    wider = [*SCHEMA, {"name": "w", "type": "any"}]
    with pytest.raises(yt.YtResponseError):
        client.alter_table(path, schema=wider)  # it is mounted
    client.unmount_table(path, sync=True)
    client.alter_table(path, schema=wider)
    with pytest.raises(yt.YtResponseError):
        client.alter_table(path, schema=SCHEMA)
    with pytest.raises(yt.YtResponseError, match="dynamic"):
        client.alter_table(path, dynamic=False)
    client.alter_table(path, dynamic=True)
    client.mount_table(path, sync=True)
    assert list(client.lookup_rows(path, [{"k": 1}])) == [{"k": 1, "v": "x", "w": None}]


def test_a_schema_is_shown_as_it_was_created(any_client: yt.YtClient, folder: str) -> None:
    path = f"{folder}/table"
    schema = yt.schema.TableSchema(strict=True, unique_keys=True)
    schema.add_column("k", type_info.Int64, sort_order="ascending")
    schema.add_column("s", type_info.Optional[type_info.String], lock="a")
    schema.add_column("n", type_info.Optional[type_info.Uint64], aggregate="sum")
    any_client.create("table", path, attributes={"dynamic": True, "schema": schema})
    assert any_client.get_table_schema(path) == schema
    shown = any_client.get(f"{path}/@schema")
    assert [(it["name"], it["type"], it["required"]) for it in shown] == [
        ("k", "int64", True),
        ("s", "string", False),
        ("n", "uint64", False),
    ]
    assert shown[1]["lock"] == "a"
    assert shown[2]["aggregate"] == "sum"
    assert any_client.get(f"{path}/@key_columns") == ["k"]
    assert any_client.get(f"{path}/@sorted_by") == ["k"]


def test_a_descending_column_is_kept_and_orders_the_rows(client: yt.YtClient, folder: str) -> None:
    path = f"{folder}/table"
    schema = [
        {"name": "k", "type": "int64", "sort_order": "ascending"},
        {"name": "at", "type": "int64", "sort_order": "descending"},
        {"name": "v", "type": "int64"},
    ]
    create(client, path, schema=schema)
    assert [it.get("sort_order") for it in client.get(f"{path}/@schema")] == [
        *("ascending", "descending", None),
    ]
    assert client.get(f"{path}/@sorted_by") == ["k", {"name": "at", "sort_order": "descending"}]
    client.reshard_table(path, [[], [1, 5]], sync=True)
    client.mount_table(path, sync=True)
    client.insert_rows(path, [{"k": 1, "at": it, "v": it} for it in (3, 9, 5, 7)])
    assert [row["at"] for row in client.select_rows(f"at from [{path}] where at > 4")] == [9, 7, 5]
    assert [row["v"] for row in client.lookup_rows(path, [{"k": 1, "at": 7}])] == [7]


@pytest.mark.parametrize(
    ("column", "words"),
    [
        ({"name": "c", "type": "int31"}, "type"),
        (
            {"name": "c", "type_v3": {"type_name": "tuple", "elements": [{"type": "int64"}]}},
            "type_v3",
        ),
        ({"name": "c", "type": "int64", "expression": "k + 1"}, "only a key column"),
        ({"name": "c", "type": "int64", "sort_order": "upwards"}, "sort_order"),
        ({"name": "k", "type": "int64"}, "k"),
        ({"type": "int64"}, "name"),
        (5, "map"),
    ],
)
def test_a_schema_that_can_not_be_kept_is_refused(
    client: yt.YtClient, folder: str, column: Any, words: str
) -> None:
    with pytest.raises(yt.YtResponseError, match=words) as refused:
        create(client, f"{folder}/table", schema=[*SCHEMA, column])
    assert refused.value.contains_code(307)
    assert not client.exists(f"{folder}/table")


@pytest.mark.parametrize("name", ["strict", "unique_keys"])
def test_a_schema_is_strict_and_has_unique_keys(
    client: yt.YtClient, folder: str, name: str
) -> None:
    schema = yt.yson.to_yson_type(SCHEMA, attributes={name: False})
    with pytest.raises(yt.YtResponseError, match=f"{name}=%true"):
        create(client, f"{folder}/table", schema=schema)


def test_tables_are_dynamic_and_sorted(client: yt.YtClient, folder: str) -> None:
    with pytest.raises(yt.YtResponseError, match="dynamic"):
        client.create("table", f"{folder}/table")
    with pytest.raises(yt.YtResponseError, match="dynamic"):
        client.create("table", f"{folder}/table", attributes={"schema": SCHEMA})
    with pytest.raises(yt.YtResponseError):
        create(client, f"{folder}/table", schema=[SCHEMA[1]])
    assert not client.exists(f"{folder}/table")


def test_tablets_say_how_they_are(client: yt.YtClient, folder: str) -> None:
    path = f"{folder}/table"
    create(client, path, pivot_keys=[[], [10]])
    client.mount_table(path, sync=True)
    before = client.generate_timestamp()
    infos = client.get_tablet_infos(path, [1, 0])["tablets"]
    assert [it["total_row_count"] for it in infos] == [0, 0]
    assert [it["trimmed_row_count"] for it in infos] == [0, 0]
    assert all(before < it["barrier_timestamp"] < client.generate_timestamp() for it in infos)
    with pytest.raises(yt.YtResponseError, match="there are 2 tablets"):
        client.get_tablet_infos(path, [2])
    errors = client.get_tablet_errors(path)
    assert errors == {"tablet_errors": {}, "replication_errors": {}}
    with pytest.raises(yt.errors.YtResolveError):
        client.get_tablet_infos(folder, [0])
    with pytest.raises(yt.errors.YtResolveError):
        client.get_tablet_errors(folder)


def test_unsupported_options_of_table_commands_are_refused(
    client: yt.YtClient, folder: str
) -> None:
    path = f"{folder}/table"
    create(client, path)
    cell = client.list("//sys/tablet_cells")[0]
    with pytest.raises(yt.YtResponseError, match="cell_id"):
        client.mount_table(path, cell_id=cell)
    with pytest.raises(yt.YtResponseError, match="target_cell_ids"):
        client.mount_table(path, target_cell_ids=[cell])
    with pytest.raises(yt.YtResponseError, match="trimmed_row_counts"):
        client.reshard_table(path, tablet_count=2, trimmed_row_counts=[1, 1])
    client.mount_table(path, sync=True)
    with pytest.raises(yt.YtResponseError, match="ordered"):
        client.trim_rows(path, 0, 1)


def test_cells_are_where_ytsaurus_has_them(client: yt.YtClient, folder: str) -> None:
    cells = client.list("//sys/tablet_cells")
    assert len(cells) == 2
    assert client.get("//sys/tablet_cells/@count") == 2
    for cell in cells:
        assert client.exists(f"//sys/tablet_cells/{cell}")
        assert client.get(f"//sys/tablet_cells/{cell}/@health") == "good"
        assert client.get(f"//sys/tablet_cells/{cell}/@peers/0/state") == "leading"
    assert not client.exists("//sys/tablet_cells/0-63-2bc-0")
    with pytest.raises(yt.errors.YtResolveError):
        client.get(f"//sys/tablet_cells/{cells[0]}/@nothing")
