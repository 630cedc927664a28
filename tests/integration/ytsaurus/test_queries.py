"""Queries and batches through the real client. (What the language means is tested elsewhere.)"""

from typing import Any

import pytest
import yt.wrapper as yt

pytestmark = pytest.mark.integration


@pytest.fixture
def table(client: yt.YtClient, make_table: Any) -> str:
    path = make_table("k int64 key", "l int64 key", "v string", "n uint64", "a any")
    rows = [
        {"k": k, "l": k % 3, "v": f"v{k}" if k % 2 else None, "n": k, "a": {"k": [k]}}
        for k in range(10)
    ]
    client.insert_rows(path, rows)
    return str(path)


def select(client: yt.YtClient, query: str, **options: Any) -> list[dict[str, Any]]:
    return [dict(it) for it in client.select_rows(query, **options)]


def test_the_common_part_of_the_language(any_client: yt.YtClient, table: str) -> None:
    def found(query: str) -> list[dict[str, Any]]:
        return select(any_client, query.format(f"[{table}]"))

    assert found("k from {} where k between 3 and 4") == [{"k": 3}, {"k": 4}]
    assert found("k, v from {} where (k, l) in ((1, 1), (2, 2))") == [
        {"k": 1, "v": "v1"},
        {"k": 2, "v": None},
    ]
    assert found("k + l as s from {} order by s desc limit 2") == [{"s": 10}, {"s": 9}]
    assert found("l, sum(n) as total from {} group by l order by l limit 10") == [
        {"l": 0, "total": 18},
        {"l": 1, "total": 12},
        {"l": 2, "total": 15},
    ]
    assert found("k from {} where is_null(v) and k > 5") == [{"k": 6}, {"k": 8}]
    assert found("a.k as x, b.v as y from {0} as a join {0} as b on a.k = b.k where a.k < 2") == [
        {"x": 0, "y": None},
        {"x": 1, "y": "v1"},
    ]
    assert found('a from {} where v = "v3"') == [{"a": {"k": [3]}}]
    assert found("n from {} where n = 7u") == [{"n": 7}]
    assert found("k from {} where k > 100") == []


def test_queries_at_a_timestamp_and_in_a_transaction(
    client: yt.YtClient, other: yt.YtClient, table: str
) -> None:
    before = client.generate_timestamp()
    count = f"sum(1) as c from [{table}] group by 1"
    with client.Transaction(type="tablet"):
        other.delete_rows(table, [{"k": 0, "l": 0}])
        client.insert_rows(table, [{"k": 100, "l": 0}])
        assert select(client, count) == [{"c": 10}]
    assert select(client, count) == [{"c": 10}]
    client.delete_rows(table, [{"k": 1, "l": 1}])
    assert select(client, count) == [{"c": 9}]
    assert select(client, count, timestamp=before) == [{"c": 10}]


@pytest.mark.parametrize("any_client", ["default", "json"], indirect=True)
def test_a_query_of_a_hundred_kilobytes(any_client: yt.YtClient, table: str) -> None:
    keys = ", ".join(str(10**6 + it) for it in range(12_000))
    query = f"k from [{table}] where k in (5, {keys}, 7)"
    assert len(query) > 100_000
    assert select(any_client, query) == [{"k": 5}, {"k": 7}]


def test_a_query_that_is_too_long_is_refused_with_the_limit(
    client: yt.YtClient, table: str
) -> None:
    query = f'k from [{table}] where v = "{"x" * (2 << 20)}"'
    with pytest.raises(yt.YtResponseError, match="at most"):
        client.select_rows(query)


def test_a_query_with_non_ascii_text(any_client: yt.YtClient, table: str) -> None:
    any_client.insert_rows(table, [{"k": 50, "l": 0, "v": "Ж\U0001f600"}])
    assert select(any_client, f'k from [{table}] where v = "Ж\U0001f600"') == [{"k": 50}]


def test_placeholders(client: yt.YtClient, table: str) -> None:
    query = f"k from [{table}] where k = {{one}} or v = {{text}} or k in {{many}}"
    values = {"one": 1, "text": "v3", "many": [5, 7]}
    found = select(client, query, placeholder_values=values)
    assert found == [{"k": 1}, {"k": 3}, {"k": 5}, {"k": 7}]
    with pytest.raises(yt.YtResponseError, match="has no value"):
        client.select_rows(query, placeholder_values={"one": 1, "text": "x"})


def test_output_row_limit_refuses_or_truncates_a_result(client: yt.YtClient, table: str) -> None:
    query = f"k from [{table}]"
    with pytest.raises(yt.YtResponseError, match="10 rows, and output_row_limit is 3"):
        client.select_rows(query, output_row_limit=3)
    part = select(client, query, output_row_limit=3, fail_on_incomplete_result=False)
    assert part == [{"k": 0}, {"k": 1}, {"k": 2}]
    assert len(select(client, query, output_row_limit=10)) == 10
    with pytest.raises(yt.YtResponseError, match="output_row_limit"):
        client.select_rows(query, output_row_limit=-1, fail_on_incomplete_result=False)


def test_hints_are_left_alone_and_the_rest_is_refused(client: yt.YtClient, table: str) -> None:
    query = f"k from [{table}] where k = 1"
    hints = {
        "input_row_limit": 10**6,
        "allow_full_scan": True,
        "allow_join_without_index": True,
        "max_subqueries": 10,
        "verbose_logging": True,
        "enable_code_cache": False,
        "workload_descriptor": {"category": "user_interactive"},
        "syntax_version": 1,
        "execution_pool": "p",
    }
    assert select(client, query, **hints) == [{"k": 1}]
    answer: dict[str, Any] = {}
    client.select_rows(query, response_parameters=answer)
    assert answer == {}
    for options in (
        {"with_timestamps": True},
        {"udf_registry_path": "//udfs"},
    ):
        with pytest.raises(yt.YtResponseError):
            client.select_rows(query, **options)


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("garbage", "FROM"),
        ("k from [//nothing/there]", "There is no table"),
        ("zzz from [{}]", "zzz"),
        ("k from [{}] where", "end of the query"),
        ("k from [{}]; drop table x", ";"),
        ("k from read_csv('x')", "path|table"),
    ],
)
def test_queries_that_make_no_sense(
    client: yt.YtClient, table: str, query: str, words: str
) -> None:
    for call in (client.select_rows, client.explain_query):
        with pytest.raises(yt.YtResponseError, match=words):
            call(query.format(table))


def test_a_query_is_explained(any_client: yt.YtClient, table: str) -> None:
    (plan,) = any_client.explain_query(f"* from [{table}] where k = 1")
    assert plan["dialect"] == "duckdb"
    assert f"[{table}]" in plan["query"]


def test_timestamps_rise(any_client: yt.YtClient) -> None:
    stamps = [any_client.generate_timestamp() for _ in range(10)]
    assert stamps == sorted(set(stamps))
    assert stamps[0] >> 62 == 0


# ---- batches


def test_a_batch_answers_each_by_itself(
    any_client: yt.YtClient, client: yt.YtClient, folder: str
) -> None:
    client.mkdir(f"{folder}/d")
    schema = [
        {"name": "k", "type": "int64", "sort_order": "ascending"},
        {"name": "v", "type": "string"},
    ]
    client.create("table", f"{folder}/t", attributes={"dynamic": True, "schema": schema})
    batch = any_client.create_batch_client()
    asked = [
        batch.get(f"{folder}/d/@type"),
        batch.get(f"{folder}/nothing"),
        batch.list(folder),
        batch.exists(f"{folder}/nothing"),
        batch.create("map_node", f"{folder}/e"),
        batch.set(f"{folder}/d/@mine", {"ж": [1]}),
        batch.remove(f"{folder}/nothing", force=True),
        batch.generate_timestamp() if hasattr(batch, "generate_timestamp") else batch.exists("/"),
        batch.mount_table(f"{folder}/t"),
        batch.get(f"{folder}/t"),
    ]
    batch.commit_batch()
    assert [it.is_ok() for it in asked] == [True, False] + [True] * 8
    assert asked[0].get_result() == "map_node"
    assert yt.YtResponseError(asked[1].get_error()).is_resolve_error()
    assert set(asked[2].get_result()) >= {"d", "t"}
    assert not asked[3].get_result()
    assert client.get(f"{folder}/e/@id") == asked[4].get_result()
    assert client.get(f"{folder}/d/@mine") == {"ж": [1]}
    assert asked[9].get_result() in (None, yt.yson.YsonEntity())


def test_a_batch_of_hundreds(client: yt.YtClient, folder: str) -> None:
    batch = client.create_batch_client()
    made = [batch.create("map_node", f"{folder}/n{it}") for it in range(250)]
    batch.commit_batch()
    assert all(it.is_ok() for it in made)
    assert len(client.list(folder)) == 250


def test_a_batch_that_raises(client: yt.YtClient, folder: str) -> None:
    batch = client.create_batch_client(raise_errors=True)
    batch.get(f"{folder}/nothing")
    with pytest.raises(yt.YtBatchRequestFailedError):
        batch.commit_batch()


def test_a_batch_in_a_master_transaction(
    client: yt.YtClient, other: yt.YtClient, folder: str
) -> None:
    with client.Transaction():
        batch = client.create_batch_client()
        batch.create("map_node", f"{folder}/d")
        batch.commit_batch()
        assert client.exists(f"{folder}/d")
        assert not other.exists(f"{folder}/d")
    assert other.exists(f"{folder}/d")
