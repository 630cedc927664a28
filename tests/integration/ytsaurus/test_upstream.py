"""What YTsaurus's own tests of its client check of dynamic tables, in our words: each test here is
called as the one there. (What they check of ordered tables, replicas and operations is not for us.)
"""

import threading
from typing import Any, Final

import pytest
import yt.wrapper as yt

pytestmark = pytest.mark.integration

COLUMNS: Final = ("x string key", "y string")


@pytest.fixture
def table(make_table: Any) -> str:
    return str(make_table(*COLUMNS))


@pytest.fixture
def unmounted(client: yt.YtClient, table: str) -> str:
    client.unmount_table(table, sync=True)
    return table


@pytest.mark.part("YTsaurus's client")
def test_mount_unmount(client: yt.YtClient, unmounted: str) -> None:
    def check(state: str) -> None:
        assert client.get(f"{unmounted}/@tablet_state") == state
        assert client.get(f"{unmounted}/@tablets/0/state") == state

    client.mount_table(unmounted, sync=True)
    check("mounted")
    client.unmount_table(unmounted, sync=True)
    check("unmounted")
    client.unmount_table(unmounted, sync=True)
    client.mount_table(unmounted, sync=True, freeze=True)
    check("frozen")
    client.unmount_table(unmounted, sync=True)
    check("unmounted")


def test_reshard(client: yt.YtClient, unmounted: str) -> None:
    for options, count, pivots in (
        ({"pivot_keys": [[], ["a"], ["b"]]}, 3, [[], ["a"], ["b"]]),
        ({"tablet_count": 1}, 1, [[]]),
    ):
        client.reshard_table(unmounted, sync=True, **options)
        assert client.get(f"{unmounted}/@tablet_state") == "unmounted"
        assert client.get(f"{unmounted}/@tablet_count") == count
        assert client.get(f"{unmounted}/@pivot_keys") == pivots


def test_reshard_uniform(client: yt.YtClient, make_table: Any) -> None:
    path = make_table("key uint64 key", "value string")
    client.unmount_table(path, sync=True)
    client.reshard_table(path, tablet_count=5, uniform=True, sync=True)
    assert client.get(f"{path}/@tablet_state") == "unmounted"
    assert client.get(f"{path}/@tablet_count") == 5


@pytest.mark.part("YTsaurus's client")
def test_insert_lookup_delete(client: yt.YtClient, table: str) -> None:
    def selected() -> list[dict[str, Any]]:
        return [dict(it) for it in client.select_rows(f"* from [{table}]", raw=False)]

    first, second = {"x": "a", "y": "b"}, {"x": "c", "y": "d"}
    client.insert_rows(table, [first], raw=False)
    assert selected() == [first]
    client.insert_rows(table, [second], raw=False)
    assert list(client.lookup_rows(table, [{"x": "c"}], raw=False)) == [second]
    client.delete_rows(table, [{"x": "a"}], raw=False)
    assert selected() == [second]


@pytest.mark.part("YTsaurus's client")
def test_insert_lookup_delete_with_transaction(
    client: yt.YtClient, other: yt.YtClient, table: str
) -> None:
    """There it is skipped over HTTP."""

    def seen_by_others() -> tuple[list[Any], list[Any]]:
        selected = list(other.select_rows(f"* from [{table}]"))
        return selected, list(other.lookup_rows(table, [{"x": "a"}]))

    row = {"x": "a", "y": "a"}
    assert seen_by_others() == ([], [])
    with client.Transaction(type="tablet"):
        client.insert_rows(table, [row])
        assert seen_by_others() == ([], [])
    assert seen_by_others() == ([row], [row])

    def fail() -> None:
        with client.Transaction(type="tablet"):
            client.insert_rows(table, [{"x": "b", "y": "b"}])
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert seen_by_others() == ([row], [row])
    with client.Transaction(type="tablet"):
        client.lock_rows(table, [{"x": "b"}, {"x": "c"}])


def test_incorrect_dynamic_table_commands(client: yt.YtClient, table: str) -> None:
    with pytest.raises(yt.YtResponseError):
        client.select_rows("* from [//none]")
    with pytest.raises(yt.YtResponseError):
        client.select_rows("abcdef")
    with pytest.raises(yt.YtResponseError):
        client.insert_rows(table, [{"a": "b"}])


def test_get_tablet_infos(client: yt.YtClient, table: str) -> None:
    (info,) = client.get_tablet_infos(table, [0])["tablets"]
    assert info["total_row_count"] == 0


def test_get_tablet_errors(client: yt.YtClient, table: str) -> None:
    for options in ({}, {"limit": 4}):
        errors = client.get_tablet_errors(table, **options)
        assert (len(errors["tablet_errors"]), len(errors["replication_errors"])) == (0, 0)
        assert "incomplete" not in errors


def test_explain_query(client: yt.YtClient, table: str) -> None:
    assert list(client.explain_query(f"* from [{table}]"))


def test_transaction_abort_on_commit_failure(client: yt.YtClient, unmounted: str) -> None:
    before = {*threading.enumerate()}
    begun = client.Transaction(type="tablet")
    with client.Transaction(transaction_id=begun.transaction_id, acquire=False, type="tablet"):
        client.insert_rows(unmounted, [{"x": "a", "y": "b"}])
    with pytest.raises(yt.YtError):
        begun.commit()
    assert before >= {*threading.enumerate()}


def test_retention_timestamp(client: yt.YtClient, table: str) -> None:
    first, second = {"x": "aaa", "y": "bbb"}, {"x": "ccc", "y": "ddd"}
    client.insert_rows(table, [first])
    between = client.generate_timestamp()
    client.insert_rows(table, [second])
    after = client.generate_timestamp()

    def seen(**options: Any) -> list[list[Any]]:
        keys = [{"x": "aaa"}, {"x": "ccc"}]
        query = f"* from [{table}] order by x limit 10"
        looked_up = client.lookup_rows(table, keys, **options)
        return [list(looked_up), list(client.select_rows(query, **options))]

    assert seen(timestamp=after, retention_timestamp=between) == [[second]] * 2
    assert seen(timestamp=after) == [[first, second]] * 2
    assert seen(retention_timestamp=between) == [[second]] * 2
    with client.Transaction(type="tablet"):
        assert seen(retention_timestamp=between) == [[second]] * 2
    for call in (client.lookup_rows, client.select_rows):
        words = (table, [{"x": "a"}]) if call == client.lookup_rows else (f"* from [{table}]",)
        with pytest.raises(yt.YtResponseError, match="retention timestamp"):
            call(*words, timestamp=between, retention_timestamp=after)


# ---- batches


@pytest.mark.part("YTsaurus's client")
def test_commit(client: yt.YtClient, folder: str) -> None:
    batch = client.create_batch_client()
    batch.mkdir(f"{folder}/d/e", recursive=True)
    batch.commit_batch()
    found = batch.exists(f"{folder}/d/e")
    batch.commit_batch()
    batch.commit_batch()
    assert found.get_result()


def test_raise_errors(client: yt.YtClient, folder: str) -> None:
    batch = client.create_batch_client(raise_errors=True)
    batch.mkdir(folder)
    batch.mkdir(f"{folder}/no/parent")
    with pytest.raises(yt.YtBatchRequestFailedError) as refused:
        batch.commit_batch()
    assert len(refused.value.inner_errors) == 2


@pytest.mark.part("YTsaurus's client")
def test_cypress_commands(client: yt.YtClient, folder: str) -> None:
    schema = [{"name": "x", "type": "string", "sort_order": "ascending"}]
    schema.append({"name": "y", "type": "string"})
    table = {"dynamic": True, "schema": schema}
    batch = client.create_batch_client()
    batch.create("map_node", f"{folder}/d", attributes={"attr": 1})
    tables = [f"{folder}/list/table_{it}" for it in range(10)]
    for path in tables:
        batch.create("table", path, recursive=True, attributes=table)
    batch.commit_batch()
    again = batch.mkdir(f"{folder}/d")
    node = batch.get(f"{folder}/d", attributes=["attr", "other_attr"])
    copied, moved = batch.copy(tables[0], tables[0]), batch.move(tables[1], f"{folder}/moved")
    kind, listed = batch.get(f"{tables[0]}/@type"), batch.list(f"{folder}/list")
    batch.commit_batch()
    assert not again.is_ok()
    assert again.get_result() is None
    assert node.get_result().attributes == {"attr": 1}
    assert not copied.is_ok()
    assert moved.is_ok()
    assert kind.get_result() == "table"
    assert len(listed.get_result()) in (9, 10)  # requests of a batch run side by side
    assert set(client.list(f"{folder}/list")) == {f"table_{it}" for it in range(10)} - {"table_1"}


def test_table_commands(client: yt.YtClient, unmounted: str) -> None:
    batch = client.create_batch_client()
    is_sorted = batch.is_sorted(unmounted)
    batch.mount_table(unmounted)
    batch.commit_batch()
    assert is_sorted.get_result()
    while client.get(f"{unmounted}/@tablets/0/state") != "mounted":
        pass
    with pytest.raises(yt.YtError):
        batch.unmount_table(unmounted, sync=True)
    batch.unmount_table(unmounted)
    batch.commit_batch()
    while client.get(f"{unmounted}/@tablets/0/state") != "unmounted":
        pass
