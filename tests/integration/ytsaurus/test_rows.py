"""Rows through the real client: written, looked up, deleted, in every form that it can send."""

import math
from typing import Any, Final

import pytest
import yt.wrapper as yt
from yt.yson import YsonUint64, get_bytes

pytestmark = pytest.mark.integration

ALL: Final = (
    "k int64 key",
    "s string",
    "t utf8",
    "d double",
    "b boolean",
    "u uint64",
    "a any",
)
FULL: Final = {
    "k": -(2**63),
    "s": "Жук",
    "t": "é\U0001f600",
    "d": 1.5,
    "b": True,
    "u": 2**64 - 1,
    "a": {"list": [1, 2.5, None, "ж"], "map": {"x": False}},
}
EMPTY: Final = {"k": 7, "s": None, "t": None, "d": None, "b": None, "u": None, "a": None}


def found(rows: Any) -> list[Any]:
    """Rows as plain Python."""
    return [None if row is None else dict(row) for row in rows]


# ---- in all configurations


def test_all_types_come_back_as_they_were(any_client: yt.YtClient, make_table: Any) -> None:
    path = make_table(*ALL)
    any_client.insert_rows(path, [FULL, EMPTY])
    keys = [{"k": 7}, {"k": 1}, {"k": -(2**63)}]
    assert found(any_client.lookup_rows(path, keys)) == [EMPTY, FULL]
    kept = any_client.lookup_rows(path, keys, keep_missing_rows=True)
    assert found(kept) == [EMPTY, None, FULL]
    assert found(any_client.select_rows(f"* from [{path}]")) == [FULL, EMPTY]
    any_client.delete_rows(path, [{"k": 7}, {"k": 1}])
    assert found(any_client.select_rows(f"* from [{path}]")) == [FULL]


def test_columns_are_chosen_in_their_order(any_client: yt.YtClient, make_table: Any) -> None:
    path = make_table(*ALL)
    any_client.insert_rows(path, [FULL])
    (row,) = any_client.lookup_rows(path, [{"k": FULL["k"]}], column_names=["u", "k"])
    assert list(row.items()) == [("u", 2**64 - 1), ("k", -(2**63))]


def test_thousands_of_rows_go_in_and_out(any_client: yt.YtClient, make_table: Any) -> None:
    path = make_table("k int64 key", "l string key", "v string", "n uint64")
    rows = [{"k": k, "l": f"ж{k}", "v": "v" * (k % 50), "n": k} for k in range(12_000)]
    any_client.insert_rows(path, rows)
    assert found(any_client.select_rows(f"* from [{path}] limit 20000")) == rows
    keys = [{"k": it["k"], "l": it["l"]} for it in reversed(rows)]
    assert found(any_client.lookup_rows(path, keys)) == rows[::-1]


def test_nothing_is_written_and_looked_up(any_client: yt.YtClient, make_table: Any) -> None:
    path = make_table("k int64 key", "v string")
    any_client.insert_rows(path, [])
    any_client.delete_rows(path, [])
    assert found(any_client.lookup_rows(path, [])) == []
    assert found(any_client.select_rows(f"* from [{path}]")) == []


def test_calls_on_rows_of_an_unmounted_table_raise_tablet_not_mounted(
    any_client: yt.YtClient, make_table: Any
) -> None:
    path = make_table("k int64 key", "v string")
    any_client.unmount_table(path, sync=True)
    for call in (
        lambda: any_client.insert_rows(path, [{"k": 1, "v": "x"}]),
        lambda: any_client.delete_rows(path, [{"k": 1}]),
        lambda: list(any_client.lookup_rows(path, [{"k": 1}])),
        lambda: list(any_client.select_rows(f"* from [{path}]")),
    ):
        with pytest.raises(yt.errors.YtTabletNotMounted):
            call()


# ---- writes


def test_bytes_that_are_no_text(client: yt.YtClient, make_table: Any) -> None:
    path = make_table("k string key", "v string")
    client.insert_rows(path, [{"k": b"\xff\x00", "v": b"\x80;}=#"}])
    (row,) = client.lookup_rows(path, [{"k": b"\xff\x00"}])
    assert get_bytes(row["v"]) == b"\x80;}=#"
    (row,) = client.select_rows(f'v from [{path}] where k = "\\xff\\x00"')
    assert get_bytes(row["v"]) == b"\x80;}=#"


def test_doubles_that_are_no_numbers(client: yt.YtClient, make_table: Any) -> None:
    path = make_table("k int64 key", "v double")
    client.insert_rows(path, [{"k": 1, "v": math.inf}, {"k": 2, "v": -math.inf}, {"k": 3, "v": 5}])
    rows = client.lookup_rows(path, [{"k": 1}, {"k": 2}, {"k": 3}])
    assert [it["v"] for it in rows] == [math.inf, -math.inf, 5.0]


def test_integers_of_either_kind_fit_where_their_value_does(
    client: yt.YtClient, make_table: Any
) -> None:
    path = make_table("k uint64 key", "v int64", "a any")
    client.insert_rows(path, [{"k": 1, "v": YsonUint64(2), "a": 2**63}])
    client.insert_rows(path, [{"k": YsonUint64(3), "v": 4, "a": YsonUint64(5)}])
    rows = found(client.lookup_rows(path, [{"k": YsonUint64(1)}, {"k": 3}]))
    assert rows == [{"k": 1, "v": 2, "a": 2**63}, {"k": 3, "v": 4, "a": 5}]


def test_an_insert_writes_whole_rows_and_an_update_some_columns(
    client: yt.YtClient, make_table: Any
) -> None:
    path = make_table("k int64 key", "v string", "w string")
    client.insert_rows(path, [{"k": 1, "v": "a", "w": "b"}])
    client.insert_rows(path, [{"k": 1, "v": "c"}], update=True)
    assert found(client.lookup_rows(path, [{"k": 1}])) == [{"k": 1, "v": "c", "w": "b"}]
    client.insert_rows(path, [{"k": 1, "v": "d"}])
    assert found(client.lookup_rows(path, [{"k": 1}])) == [{"k": 1, "v": "d", "w": None}]


def test_a_row_with_only_key_columns_becomes_a_row_of_nulls(
    client: yt.YtClient, make_table: Any
) -> None:
    path = make_table("k int64 key", "l int64 key", "v string required", "w string", name="strict")
    with pytest.raises(yt.YtResponseError) as refused:
        client.insert_rows(path, [{"k": 1, "l": 2}])
    assert refused.value.contains_code(307)
    path = make_table("k int64 key", "v string", "w string", name="free")
    client.insert_rows(path, [{"k": 1, "v": "x", "w": "y"}])
    client.insert_rows(path, [{"k": 1}, {"k": 2}])
    rows = found(client.select_rows(f"* from [{path}]"))
    assert rows == [{"k": 1, "v": None, "w": None}, {"k": 2, "v": None, "w": None}]
    with pytest.raises(yt.YtResponseError):
        client.insert_rows(path, [{"k": 3}], update=True)


def test_missing_key_columns_are_null(client: yt.YtClient, make_table: Any) -> None:
    path = make_table("k int64 key", "l int64 key", "v string")
    client.insert_rows(path, [{"l": 1, "v": "x"}])
    row = {"k": None, "l": 1, "v": "x"}
    assert found(client.lookup_rows(path, [{"k": None, "l": 1}])) == [row]
    assert found(client.lookup_rows(path, [{"l": 1}])) == [row]
    client.delete_rows(path, [{"l": 1}])
    assert found(client.lookup_rows(path, [{"l": 1}])) == []


def test_aggregates_add_up_or_are_set(client: yt.YtClient, make_table: Any) -> None:
    path = make_table("k int64 key", "n int64 aggregate=sum", "m int64 aggregate=max")
    for _ in range(3):
        client.insert_rows(path, [{"k": 1, "n": 5, "m": 5}], update=True, aggregate=True)
    client.insert_rows(path, [{"k": 1, "n": 1}], update=True, aggregate=True)
    assert found(client.lookup_rows(path, [{"k": 1}])) == [{"k": 1, "n": 16, "m": 5}]
    client.insert_rows(path, [{"k": 1, "n": 1}], update=True)
    assert found(client.lookup_rows(path, [{"k": 1}])) == [{"k": 1, "n": 1, "m": 5}]


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ({"k": "s", "s": "x"}, "takes an int"),
        ({"k": 1, "zz": 1}, "no such column"),
        ({"k": 1, "s": 5}, "takes bytes or str"),
        ({"k": 1, "u": -5}, "does not fit in uint64"),
        ({"k": 2**63, "s": "x"}, "does not fit in int64"),
        ({"k": 1, "t": b"\xff"}, "takes a str"),
        ({"k": 1, "b": 1}, "takes a bool"),
    ],
)
def test_a_row_that_does_not_fit_is_a_schema_violation(
    client: yt.YtClient, make_table: Any, row: Any, words: str
) -> None:
    path = make_table(*ALL)
    with pytest.raises(yt.YtResponseError, match=words) as refused:
        client.insert_rows(path, [row])
    assert refused.value.contains_code(307)
    assert found(client.select_rows(f"* from [{path}]")) == []


def test_calls_on_rows_of_a_directory_or_a_missing_path_are_refused(
    client: yt.YtClient, folder: str
) -> None:
    for path in (folder, f"{folder}/nothing"):
        for call in (client.insert_rows, client.delete_rows, client.lookup_rows):
            with pytest.raises(yt.errors.YtResolveError):
                call(path, [{"k": 1}])
        with pytest.raises(yt.errors.YtResolveError):
            client.select_rows(f"* from [{path}]")


# ---- modes


def test_a_non_atomic_table_takes_non_atomic_writes_only(
    client: yt.YtClient, make_table: Any
) -> None:
    path = make_table("k int64 key", "v string", atomicity="none")
    with pytest.raises(yt.YtResponseError, match="tomicity"):
        client.insert_rows(path, [{"k": 1, "v": "x"}])
    with pytest.raises(yt.YtResponseError, match="tomicity"):
        client.delete_rows(path, [{"k": 1}])
    client.insert_rows(path, [{"k": 1, "v": "x"}, {"k": 2, "v": "y"}], atomicity="none")
    client.insert_rows(path, [{"k": 3, "v": "z"}], atomicity="none", durability="async")
    client.delete_rows(path, [{"k": 1}], atomicity="none", durability="async")
    rows = found(client.select_rows(f"k from [{path}]"))
    assert rows == [{"k": 2}, {"k": 3}]


def test_an_atomic_table_takes_atomic_writes_only(client: yt.YtClient, make_table: Any) -> None:
    path = make_table("k int64 key", "v string")
    with pytest.raises(yt.YtResponseError, match="tomicity"):
        client.insert_rows(path, [{"k": 1, "v": "x"}], atomicity="none")
    with pytest.raises(yt.YtResponseError, match="Durability"):
        client.insert_rows(path, [{"k": 1, "v": "x"}], durability="async")
    with pytest.raises(yt.YtResponseError, match="Atomicity"):
        client.insert_rows(path, [{"k": 1, "v": "x"}], atomicity="half")
    assert found(client.select_rows(f"* from [{path}]")) == []


def test_hints_are_left_alone(client: yt.YtClient, make_table: Any) -> None:
    path = make_table("k int64 key", "v string")
    client.insert_rows(path, [{"k": 1, "v": "x"}], require_sync_replica=False)
    rows = client.lookup_rows(path, [{"k": 1}], use_lookup_cache=True, enable_partial_result=True)
    assert found(rows) == [{"k": 1, "v": "x"}]


# ---- versions and time


def test_reads_at_a_timestamp(any_client: yt.YtClient, make_table: Any) -> None:
    path = make_table("k int64 key", "v string")
    before = any_client.generate_timestamp()
    any_client.insert_rows(path, [{"k": 1, "v": "old"}])
    between = any_client.generate_timestamp()
    any_client.insert_rows(path, [{"k": 1, "v": "new"}])
    query = f"v from [{path}]"

    def values(**options: Any) -> list[list[str]]:
        looked_up = any_client.lookup_rows(path, [{"k": 1}], **options)
        selected = any_client.select_rows(query, **options)
        return [[it["v"] for it in looked_up], [it["v"] for it in selected]]

    assert values(timestamp=before) == [[], []]
    assert values(timestamp=between) == [["old"], ["old"]]
    assert values(timestamp=yt.SYNC_LAST_COMMITTED_TIMESTAMP) == [["new"], ["new"]]
    assert values(timestamp=yt.ASYNC_LAST_COMMITTED_TIMESTAMP) == [["new"], ["new"]]
    with pytest.raises(yt.YtResponseError, match="Invalid read timestamp"):
        values(timestamp=0)


def test_a_retention_timestamp_hides_older_values(client: yt.YtClient, make_table: Any) -> None:
    path = make_table("k int64 key", "v string", "w string")
    client.insert_rows(path, [{"k": 1, "v": "a", "w": "b"}, {"k": 2, "v": "a"}])
    since = client.generate_timestamp()
    client.insert_rows(path, [{"k": 1, "v": "c"}], update=True)

    def look_up() -> list[Any]:
        keys = [{"k": 1}, {"k": 2}]
        return found(client.lookup_rows(path, keys, retention_timestamp=since))

    assert look_up() == [{"k": 1, "v": "c", "w": None}]
    with client.Transaction(type="tablet"):
        assert look_up() == [{"k": 1, "v": "c", "w": None}]
    for options in ({"versioned": True}, {"with_timestamps": True}):
        with pytest.raises(yt.YtResponseError, match="retention_timestamp"):
            client.lookup_rows(path, [{"k": 1}], retention_timestamp=since, **options)
    with pytest.raises(yt.YtResponseError, match="retention timestamp"):
        client.lookup_rows(path, [{"k": 1}], retention_timestamp=since, timestamp=since - 1)


def test_versioned_rows_are_histories(client: yt.YtClient, make_table: Any) -> None:
    path = make_table("k int64 key", "v string", "n int64 aggregate=sum")
    client.insert_rows(path, [{"k": 1, "v": "a", "n": 1}])
    client.insert_rows(path, [{"k": 1, "n": 2}], update=True, aggregate=True)
    client.delete_rows(path, [{"k": 1}])
    client.insert_rows(path, [{"k": 1, "v": "b"}], update=True)
    (row,) = client.lookup_rows(path, [{"k": 1}], versioned=True)
    assert row["k"] == 1
    assert [str(it) for it in row["v"]] == ["b", "a"]
    assert [int(it) for it in row["n"]] == [2, 1]
    assert [it.attributes.get("aggregate", False) for it in row["n"]] == [True, False]
    last, added, first = row.attributes["write_timestamps"]
    (deleted,) = row.attributes["delete_timestamps"]
    assert first < added < deleted < last
    stamps = [it.attributes["timestamp"] for it in (*row["v"], *row["n"])]
    assert stamps == [last, first, added, first]
    (row,) = client.lookup_rows(path, [{"k": 1}], versioned=True, column_names=["v"])
    assert list(row) == ["v"]
    assert len(row.attributes["write_timestamps"]) == 3
    (row,) = client.lookup_rows(path, [{"k": 1}], versioned=True, timestamp=first)
    assert [str(it) for it in row["v"]] == ["a"]
    rows = client.lookup_rows(path, [{"k": 2}, {"k": 1}], versioned=True, keep_missing_rows=True)
    assert [it is None for it in rows] == [True, False]


def test_versioned_rows_in_json(url: str, connect: Any, make_table: Any) -> None:
    json = yt.JsonFormat(control_attributes_mode="none", encoding="utf-8")
    client = connect(url, tabular_data_format=json)
    path = make_table("k int64 key", "v string")
    client.insert_rows(path, [{"k": 1, "v": "ж"}])
    (row,) = client.lookup_rows(path, [{"k": 1}], versioned=True)
    (written,) = row["$attributes"]["write_timestamps"]
    version = {"$attributes": {"timestamp": written}, "$value": "ж"}
    assert row["$value"] == {"k": 1, "v": [version]}


def test_rows_with_timestamps(client: yt.YtClient, make_table: Any) -> None:
    path = make_table("k int64 key", "v string", "w string")
    client.insert_rows(path, [{"k": 1, "v": "a", "w": "b"}, {"k": 2, "v": "a"}])
    client.insert_rows(path, [{"k": 1, "v": "c"}], update=True)
    client.delete_rows(path, [{"k": 2}])
    client.insert_rows(path, [{"k": 3, "v": "a"}], update=True)
    (history,) = client.lookup_rows(path, [{"k": 1}], versioned=True)
    updated, written = history.attributes["write_timestamps"]
    keys = [{"k": 1}, {"k": 2}, {"k": 4}]
    row = {"k": 1, "v": "c", "w": "b", "$timestamp:v": updated, "$timestamp:w": written}
    assert found(client.lookup_rows(path, keys, with_timestamps=True)) == [row]
    kept = client.lookup_rows(path, keys, with_timestamps=True, keep_missing_rows=True)
    assert found(kept) == [row, None, None]
    (row,) = client.lookup_rows(path, [{"k": 1}], with_timestamps=True, column_names=["w", "k"])
    assert list(row.items()) == [("w", "b"), ("k", 1), ("$timestamp:w", written)]
    (row,) = client.lookup_rows(path, [{"k": 3}], with_timestamps=True)
    assert (row["w"], row["$timestamp:w"]) == (None, None)
    plain = client.lookup_rows(path, [{"k": 1}], with_timestamps=False)
    assert found(plain) == [{"k": 1, "v": "c", "w": "b"}]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"versioned": True, "with_timestamps": True}, "versioned or read_mode, not both"),
        ({"versioned_read_options": {"read_mode": "other"}}, "read_mode must be default or"),
        ({"column_names": []}, "column_names is empty"),
        ({"column_names": ["zz"]}, "no such column"),
    ],
)
def test_lookups_that_make_no_sense(
    client: yt.YtClient, make_table: Any, options: Any, words: str
) -> None:
    path = make_table("k int64 key", "v string")
    for keys in ([{"k": 1}], []):
        with pytest.raises(yt.YtResponseError, match=words):
            client.lookup_rows(path, keys, **options)


def test_a_path_that_chooses_rows_or_columns_is_refused(
    client: yt.YtClient, make_table: Any
) -> None:
    path = make_table("k int64 key", "v string")
    for text in (f"{path}{{v}}", f"{path}[1:2]"):
        with pytest.raises(yt.YtResponseError, match="A path can't select rows or columns"):
            client.lookup_rows(text, [{"k": 1}])


def test_rows_are_written_raw(client: yt.YtClient, make_table: Any) -> None:
    path = make_table("k int64 key", "v string")
    yson = b'{k=1;v="a"};{"v"=b;k=2u;};'
    client.insert_rows(path, yson, format="yson", raw=True)
    client.insert_rows(path, b'{"k":3,"v":"c"}\n{"k":4,"v":null}\n', format="json", raw=True)
    answer = client.select_rows(f"* from [{path}]", format="<format=text>yson", raw=True)
    expected = b'{"k"=1;"v"="a";};\n{"k"=2;"v"="b";};\n{"k"=3;"v"="c";};\n{"k"=4;"v"=#;};\n'
    assert answer.read() == expected
