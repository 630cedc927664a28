"""Tablet transactions through the real client: what they see, conflicts, leases, ends."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

import pytest
import yt.wrapper as yt

from suite.waiting import with_enough_time

pytestmark = pytest.mark.integration

GROUPS: Final = ("k int64 key", "v string lock=a", "w string lock=b", "x string")
Conflict = yt.errors.YtTabletTransactionLockConflict
Gone = yt.errors.YtNoSuchTransaction


@contextmanager
def transaction(client: yt.YtClient, **options: Any) -> Iterator[Any]:
    with client.Transaction(type="tablet", **options) as begun:
        yield begun


def rows(client: yt.YtClient, path: str) -> list[dict[str, Any]]:
    return [dict(it) for it in client.select_rows(f"* from [{path}]")]


@pytest.fixture
def table(make_table: Any) -> str:
    """With two lock groups besides the main one."""
    return str(make_table(*GROUPS, enable_shared_write_locks=True))


# ---- what is seen


def test_no_client_sees_writes_before_the_commit(
    any_client: yt.YtClient, other: yt.YtClient, table: str
) -> None:
    client = any_client
    client.insert_rows(table, [{"k": 1, "v": "old"}, {"k": 2}])
    with transaction(client):
        client.insert_rows(table, [{"k": 1, "v": "new"}])
        client.delete_rows(table, [{"k": 2}])
        for one in (client, other):
            (row,) = one.lookup_rows(table, [{"k": 1}], column_names=["v"])
            assert dict(row) == {"v": "old"}
            assert len(rows(one, table)) == 2
    for one in (client, other):
        assert [it["v"] for it in rows(one, table)] == ["new"]


def test_a_transaction_reads_the_snapshot_of_its_start(
    client: yt.YtClient, other: yt.YtClient, table: str
) -> None:
    client.insert_rows(table, [{"k": 1, "v": "old"}])
    with transaction(client):
        other.insert_rows(table, [{"k": 1, "v": "new"}])
        now = other.generate_timestamp()
        for options in ({}, {"timestamp": now}):  # as in YTsaurus its own wins
            (row,) = client.lookup_rows(table, [{"k": 1}], **options)
            assert row["v"] == "old"
        (row,) = client.lookup_rows(table, [{"k": 1}], versioned=True)
        assert [str(it) for it in row["v"]] == ["old"]
        (row,) = client.lookup_rows(table, [{"k": 1}], with_timestamps=True)
        assert row["v"] == "old"
        (row,) = client.select_rows(f"v, sum(1) as n from [{table}] group by v")
        assert dict(row) == {"v": "old", "n": 1}
    assert [it["v"] for it in rows(client, table)] == ["new"]


def test_an_exception_in_the_block_aborts(client: yt.YtClient, table: str) -> None:
    def fail() -> None:
        with transaction(client):
            client.insert_rows(table, [{"k": 1}])
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert rows(client, table) == []


def test_several_tables_are_written_at_once(client: yt.YtClient, make_table: Any) -> None:
    paths = [make_table("k int64 key", "v string", name=name) for name in "abc"]
    with transaction(client):
        for path in paths:
            client.insert_rows(path, [{"k": 1, "v": "x"}])
    stamps = [
        row.attributes["write_timestamps"]
        for path in paths
        for row in client.lookup_rows(path, [{"k": 1}], versioned=True)
    ]
    assert len(stamps) == 3
    assert len({tuple(it) for it in stamps}) == 1


# ---- conflicts

Act = Callable[[yt.YtClient, str], Any]


def updating(name: str, **options: Any) -> Act:
    def update(client: yt.YtClient, path: str) -> None:
        client.insert_rows(path, [{"k": 1, name: "x"}], update=True, **options)

    return update


def insert(client: yt.YtClient, path: str) -> None:
    client.insert_rows(path, [{"k": 1, "v": "x"}])


def delete(client: yt.YtClient, path: str) -> None:
    client.delete_rows(path, [{"k": 1}])


def locking(lock_type: str | None, *locks: str) -> Act:
    def lock(client: yt.YtClient, path: str) -> None:
        client.lock_rows(path, [{"k": 1}], locks=list(locks), lock_type=lock_type)

    return lock


def relying(lock_type: str | None, *locks: str) -> Act:
    """Lock the row, and write another."""

    def act(client: yt.YtClient, path: str) -> None:
        locking(lock_type, *locks)(client, path)
        client.insert_rows(path, [{"k": 2, "v": "x"}])

    return act


SHARED: Final = updating("v", lock_type="shared_write")


@pytest.mark.parametrize(
    ("mine", "theirs", "is_conflict"),
    [
        pytest.param(insert, insert, True, id="two inserts"),
        pytest.param(insert, delete, True, id="an insert and a delete"),
        pytest.param(delete, updating("v"), True, id="a delete and an update"),
        pytest.param(updating("v"), updating("v"), True, id="updates of one group"),
        pytest.param(updating("v"), updating("w"), False, id="updates of two groups"),
        pytest.param(updating("v"), updating("x"), True, id="a group and the main lock"),
        pytest.param(updating("x"), updating("v"), True, id="the main lock and a group"),
        pytest.param(insert, updating("w"), True, id="an insert takes all groups"),
        pytest.param(SHARED, SHARED, False, id="shared writes"),
        pytest.param(SHARED, updating("v"), True, id="a shared write and another"),
        pytest.param(
            relying("shared_strong", "a"),
            updating("v"),
            True,
            id="strong, written",
        ),
        pytest.param(relying(None, "a"), updating("v"), True, id="strong is the default"),
        pytest.param(relying("shared_weak", "a"), updating("v"), True, id="weak, written"),
        pytest.param(
            relying("shared_strong", "b"),
            updating("v"),
            False,
            id="of another group",
        ),
        pytest.param(
            relying("exclusive", "a"),
            updating("v"),
            True,
            id="exclusive, written",
        ),
        pytest.param(updating("v"), locking("shared_strong", "a"), True, id="written, strong"),
        pytest.param(updating("v"), locking("shared_weak", "a"), False, id="written, weak"),
        pytest.param(updating("v"), locking("exclusive", "a"), True, id="written, exclusive"),
        pytest.param(
            locking("shared_strong", "a"), locking("shared_strong", "a"), False, id="two readers"
        ),
    ],
)
def test_conflicts_come_out_at_the_commit(
    client: yt.YtClient,
    other: yt.YtClient,
    table: str,
    mine: Act,
    theirs: Act,
    is_conflict: bool,
) -> None:
    client.insert_rows(table, [{"k": 1, "v": "0", "w": "0"}])
    begun = client.Transaction(type="tablet")
    with yt_attached(client, begun):
        mine(client, table)
    with transaction(other):
        theirs(other, table)
    if is_conflict:
        with pytest.raises(Conflict) as refused:
            begun.commit()
        assert refused.value.is_tablet_transaction_lock_conflict()
    else:
        begun.commit()


@contextmanager
def yt_attached(client: yt.YtClient, begun: Any) -> Iterator[None]:
    """Calls in a transaction that goes on behind the block."""
    with client.Transaction(transaction_id=begun.transaction_id, acquire=False, type="tablet"):
        yield


def test_a_conflict_leaves_nothing_behind(
    client: yt.YtClient, other: yt.YtClient, table: str
) -> None:
    begun = client.Transaction(type="tablet")
    with yt_attached(client, begun):
        client.insert_rows(table, [{"k": 1, "v": "mine"}, {"k": 2, "v": "mine"}])
    other.insert_rows(table, [{"k": 1, "v": "theirs"}])
    with pytest.raises(Conflict):
        begun.commit()
    assert [(it["k"], it["v"]) for it in rows(client, table)] == [(1, "theirs")]


def test_locks_that_make_no_sense(client: yt.YtClient, table: str) -> None:
    with pytest.raises(yt.YtResponseError, match="needs a tablet transaction"):
        client.lock_rows(table, [{"k": 1}])
    with transaction(client):
        with pytest.raises(yt.YtResponseError, match='"nope" not found in schema'):
            client.lock_rows(table, [{"k": 1}], locks=["nope"])
        with pytest.raises(yt.YtResponseError, match='"bad"'):
            client.lock_rows(table, [{"k": 1}], lock_type="bad")
        client.lock_rows(table, [{"k": 1}], locks=[])


# ---- ends


def test_a_write_to_an_unmounted_table_fails_at_the_commit(client: yt.YtClient, table: str) -> None:
    client.unmount_table(table, sync=True)
    before = {*threading.enumerate()}
    with pytest.raises(yt.YtResponseError) as refused, transaction(client):
        client.insert_rows(table, [{"k": 1}])
    assert refused.value.is_tablet_not_mounted()
    assert before >= {*threading.enumerate()}  # nobody pings any more


def test_an_invalid_write_fails_immediately_and_the_transaction_can_commit(
    client: yt.YtClient, table: str
) -> None:
    with transaction(client):
        with pytest.raises(yt.YtResponseError, match="no such column"):
            client.insert_rows(table, [{"k": 1, "nope": 1}])
        with pytest.raises(yt.errors.YtResolveError):
            client.insert_rows(f"{table}.none", [{"k": 1}])
        client.insert_rows(table, [{"k": 2, "v": "x"}])
    assert [it["k"] for it in rows(client, table)] == [2]


def test_a_transaction_ends_once(client: yt.YtClient, table: str) -> None:
    begun = client.Transaction(type="tablet")
    with yt_attached(client, begun):
        client.insert_rows(table, [{"k": 1}])
    begun.commit()
    for call in (client.commit_transaction, client.ping_transaction, client.abort_transaction):
        with pytest.raises(Gone):
            call(begun.transaction_id)
    with pytest.raises(Gone), yt_attached(client, begun):
        client.insert_rows(table, [{"k": 2}])
    assert [it["k"] for it in rows(client, table)] == [1]


def test_an_aborted_transaction_stays_aborted(client: yt.YtClient, table: str) -> None:
    begun = client.Transaction(type="tablet")
    with yt_attached(client, begun):
        client.insert_rows(table, [{"k": 1}])
    begun.abort()
    client.abort_transaction(begun.transaction_id)
    for call in (client.commit_transaction, client.ping_transaction):
        with pytest.raises(Gone):
            call(begun.transaction_id)
    assert rows(client, table) == []


def test_pings_keep_a_transaction(client: yt.YtClient, table: str) -> None:
    def hold(timeout_ms: int) -> None:
        with transaction(client, timeout=timeout_ms) as begun:
            client.insert_rows(table, [{"k": 1}])
            time.sleep(3 * timeout_ms / 1000)
        assert begun.is_pinger_alive()

    with_enough_time(hold, 600, Gone)
    assert [it["k"] for it in rows(client, table)] == [1]


def test_a_transaction_is_aborted_when_its_lease_ends(client: yt.YtClient, table: str) -> None:
    its_id, lease_ms = "", 0

    def write(timeout_ms: int) -> None:
        nonlocal its_id, lease_ms
        lease_ms = timeout_ms
        its_id = client.start_transaction(type="tablet", timeout=timeout_ms)
        with client.Transaction(transaction_id=its_id, acquire=False, type="tablet"):
            client.insert_rows(table, [{"k": 1}])

    with_enough_time(write, 300, Gone)
    time.sleep(3 * lease_ms / 1000)  # it is over by the gateway's clock, however late one looks
    for call in (client.ping_transaction, client.commit_transaction):
        with pytest.raises(Gone):
            call(its_id)
    assert rows(client, table) == []


def test_a_lost_transaction_interrupts_the_program(
    url: str, connect: Any, client: yt.YtClient, table: str
) -> None:
    """As the real client does by default, when its ping finds the transaction gone."""
    impatient = connect(url, ping_failed_mode="interrupt_main")

    def lose() -> None:
        with transaction(impatient, timeout=500) as begun:
            client.abort_transaction(begun.transaction_id)
            for _ in range(1_200):
                time.sleep(0.05)

    with pytest.raises(KeyboardInterrupt):
        lose()


def test_a_transaction_is_found_by_its_id_until_its_end(
    client: yt.YtClient, other: yt.YtClient, table: str
) -> None:
    with transaction(client, timeout=5_000) as begun:
        its_id = begun.transaction_id
        for one in (client, other):
            assert one.get(f"#{its_id}/@timeout") == 5_000
            assert one.exists(f"#{its_id}")
            assert one.exists(f"//sys/transactions/{its_id}")
        with other.Transaction(transaction_id=its_id, ping=True, type="tablet"):
            other.insert_rows(table, [{"k": 1}])
    assert not client.exists(f"#{its_id}")
    with pytest.raises(yt.errors.YtResolveError):
        client.get(f"#{its_id}/@timeout")
    with pytest.raises(yt.YtResponseError, match="by id"):
        client.get("#1-2-3/@timeout")
    assert [it["k"] for it in rows(client, table)] == [1]


@pytest.mark.parametrize("its_id", ["1-2-30002-4", "1-2-10001-4"])
def test_transactions_that_are_none(client: yt.YtClient, table: str, its_id: str) -> None:
    for call in (client.commit_transaction, client.ping_transaction, client.abort_transaction):
        with pytest.raises(Gone):
            call(its_id)


@pytest.mark.parametrize("its_id", ["17", "a-b", "1-2-10004-3", "x-y-z-0", "1-2-30002-4-5", ""])
def test_ids_that_are_none(client: yt.YtClient, its_id: str) -> None:
    with pytest.raises(yt.YtResponseError, match="not a transaction's id"):
        client.commit_transaction(its_id)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"type": "tablet", "timeout": -1}, "lease_ms"),
        ({"type": "tablet", "timeout": 0}, "lease_ms"),
        ({"type": "other"}, "master or tablet"),
        ({"type": "tablet", "deadline": "2030-01-01T00:00:00Z"}, "deadline"),
        ({"type": "tablet", "prerequisite_transaction_ids": ["1-2-3-4"]}, "prerequisite"),
        ({"type": "tablet", "parent_transaction": "1-2-10001-4"}, "cannot have a parent"),
    ],
)
def test_transactions_that_make_no_sense(client: yt.YtClient, options: Any, words: str) -> None:
    with pytest.raises(yt.YtResponseError, match=words):
        client.start_transaction(**options)


def test_a_tablet_transaction_has_neither_parent_nor_nodes(
    client: yt.YtClient, table: str, folder: str
) -> None:
    with transaction(client):
        with pytest.raises(yt.YtResponseError, match="cannot have a parent"):
            client.start_transaction(type="tablet")
        assert client.get(f"{table}/@tablet_state") == "mounted"
        assert client.list(folder) == ["table"]
        for change in (
            lambda: client.mkdir(f"{folder}/d"),
            lambda: client.set(f"{table}/@mine", 1),
            lambda: client.remove(table),
            client.start_transaction,
        ):
            with pytest.raises(yt.YtResponseError, match="changes rows, not nodes"):
                change()
    assert client.exists(table)


def test_a_long_lease_is_cut_to_the_longest(client: yt.YtClient) -> None:
    its_id = client.start_transaction(type="tablet", timeout=10**9)
    assert client.get(f"#{its_id}/@timeout") == 60_000
    client.abort_transaction(its_id)


def test_a_non_atomic_transaction(client: yt.YtClient, make_table: Any) -> None:
    path = make_table("k int64 key", "v string", atomicity="none")
    with pytest.raises(yt.YtResponseError, match="tomicity"), transaction(client):
        client.insert_rows(path, [{"k": 1, "v": "x"}])
    assert rows(client, path) == []
