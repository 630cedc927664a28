"""Tables' life, the tree and master transactions through both clients of an embedded database."""

import asyncio
import gc
import inspect
import threading
import time
import warnings
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import dodona
import dodona.aio
from dodona._io.aio_writes import TreeWrites
from dodona.errors import (
    DodonaWarning,
    InvalidRequest,
    InvalidTabletState,
    NodeLocked,
    NodeNotFound,
    TableNotFound,
    TableNotMounted,
    TransactionClosed,
    TransactionNotFound,
)
from suite.waiting import wait_until, with_enough_time

SCHEMA: list[dict[str, Any]] = [
    {"name": "id", "type": "int64", "sort_order": "ascending"},
    {"name": "value", "type": "int64"},
]
TABLE = "//bank/accounts"
ROWS = [{"id": 1, "value": 10}, {"id": 200, "value": 20}]
SHORT_MS = 1_000


@pytest.fixture
def db(tmp_path: Path) -> Iterator[dodona.Client]:
    with dodona.open(str(tmp_path / "data")) as client:
        client.create_table(TABLE, SCHEMA, pivot_keys=[[], [100]], mount=True)
        client.insert_rows(TABLE, ROWS)
        yield client


def states(db: dodona.Client) -> list[str]:
    return [tablet.state for tablet in db.get_table(TABLE).tablets]


def pivots(db: dodona.Client) -> list[tuple[Any, ...]]:
    return [tablet.pivot_key for tablet in db.get_table(TABLE).tablets]


# ---- the life of a table


def test_a_table_is_frozen_and_thawed(db: dodona.Client) -> None:
    db.freeze_table(TABLE)
    assert states(db) == ["frozen", "frozen"]
    assert db.select(TABLE) == ROWS
    with pytest.raises(TableNotMounted) as caught:
        db.insert_rows(TABLE, ROWS)
    assert caught.value.attributes["state"] == "frozen"
    db.unfreeze_table(TABLE)
    assert db.insert_rows(TABLE, ROWS) is not None
    assert db.get_table(TABLE).is_mounted


def test_tablets_live_one_by_one(db: dodona.Client) -> None:
    db.unmount_table(TABLE, first_tablet_index=1)
    assert states(db) == ["mounted", "unmounted"]
    assert db.lookup_rows(TABLE, [{"id": 1}]) == ROWS[:1]
    with pytest.raises(TableNotMounted):
        db.lookup_rows(TABLE, [{"id": 200}])
    db.mount_table(TABLE, freeze=True, first_tablet_index=1, last_tablet_index=1)
    assert states(db) == ["mounted", "frozen"]
    assert db.lookup_rows(TABLE, [{"id": 200}]) == ROWS[1:]
    with pytest.raises(InvalidTabletState):
        db.mount_table(TABLE)


def test_a_reshard_keeps_the_rows(db: dodona.Client) -> None:
    with pytest.raises(InvalidTabletState):
        db.reshard_table(TABLE, tablet_count=4)
    db.unmount_table(TABLE)
    db.reshard_table(TABLE, [[], [2], [150]])
    assert pivots(db) == [(), (2,), (150,)]
    db.reshard_table(TABLE, [[2]], first_tablet_index=1, last_tablet_index=2)
    assert pivots(db) == [(), (2,)]
    db.mount_table(TABLE)
    assert db.select(TABLE) == ROWS


def test_a_schema_is_altered_and_rows_are_read_and_written_by_the_new_one(
    db: dodona.Client,
) -> None:
    db.unmount_table(TABLE)
    db.alter_table(TABLE, [*SCHEMA, {"name": "note", "type": "utf8"}])
    db.mount_table(TABLE)
    db.insert_rows(TABLE, [{"id": 1, "note": "new"}], update=True)
    assert db.select(TABLE) == [{**ROWS[0], "note": "new"}, {**ROWS[1], "note": None}]


def test_removing_a_mounted_table_removes_its_rows(db: dodona.Client) -> None:
    db.remove_table(TABLE)
    with pytest.raises(TableNotFound):
        db.select(TABLE)
    db.create_table(TABLE, SCHEMA, mount=True)
    assert db.select(TABLE) == []


def test_settings_are_attributes(db: dodona.Client) -> None:
    db.set(f"{TABLE}/@max_data_ttl", 5)
    assert db.get_table(TABLE).settings.max_data_ttl == 5
    db.remount_table(TABLE)
    assert db.select(TABLE) == ROWS
    with pytest.raises(InvalidTabletState):
        db.set(f"{TABLE}/@in_memory_mode", "compressed")
    db.unmount_table(TABLE)
    db.set(f"{TABLE}/@in_memory_mode", "compressed")
    assert db.get_table(TABLE).settings.in_memory_mode == "compressed"


# ---- the tree


def test_the_tree_is_walked_and_changed(db: dodona.Client) -> None:
    db.create_directory("//a/b", {"owner": ["me", None]}, recursive=True)
    assert db.list("//") == ["a", "bank"]
    assert db.get("//") == {"a": {"b": {}}, "bank": {"accounts": None}}
    assert db.get("//a/b/@owner") == ["me", None]
    assert [db.exists(it) for it in ("//a/b", "//a/b/@owner", "//a/c", TABLE)] == [
        True,
        True,
        False,
        True,
    ]
    db.unmount_table(TABLE)
    db.copy(TABLE, "//a/b/copy")
    db.move(TABLE, "//a/b/moved")
    with pytest.raises(TableNotFound):
        db.insert_rows(TABLE, ROWS)
    for name in ("copy", "moved"):
        db.mount_table(f"//a/b/{name}")
        assert db.select(f"//a/b/{name}") == ROWS
    with pytest.raises(TableNotFound):
        db.remove_table("//bank")
    with pytest.raises(InvalidRequest, match="not empty"):
        db.remove("//a")
    db.remove("//a", recursive=True)
    db.remove("//a", force=True)
    with pytest.raises(NodeNotFound):
        db.remove("//a")
    assert db.list_tables() == []


# ---- master transactions


def test_a_master_transaction_takes_effect_as_one(db: dodona.Client) -> None:
    with db.begin_master(title="all or nothing") as tx:
        tx.create_table("//new/t", SCHEMA)
        tx.set("//new/@done", True)
        assert tx.exists("//new/t")
        assert not db.exists("//new")
    assert tx.state is dodona.TransactionState.COMMITTED
    assert db.get("//new/@done") is True
    db.mount_table("//new/t")
    with pytest.raises(TransactionClosed):
        tx.get("//new")


def test_an_exception_leaves_nothing_behind(db: dodona.Client) -> None:
    def fail() -> None:
        with db.begin_master() as tx:
            tx.create_directory("//new")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert not db.exists("//new")


def test_a_nested_transaction_hands_over_to_the_outer_one(db: dodona.Client) -> None:
    with db.begin_master() as outer:
        with outer.begin(title="inner") as inner:
            inner.create_directory("//kept")
            assert not outer.exists("//kept")
        assert outer.exists("//kept")
        dropped = outer.begin()
        dropped.create_directory("//dropped")
        dropped.abort()
    assert db.list("//") == ["bank", "kept"]


def test_a_lock_keeps_others_out(db: dodona.Client) -> None:
    with db.begin_master() as tx:
        assert tx.lock("//bank") == db.get("//bank/@id")
        with pytest.raises(NodeLocked) as caught:
            db.set("//bank/@x", 1)
        assert caught.value.is_retryable
        assert str(tx.id) in repr(tx)
    db.set("//bank/@x", 1)


def test_rows_are_not_written_in_a_master_transaction(db: dodona.Client) -> None:
    with db.begin_master() as tx:
        for call in (tx.insert_rows, tx.delete_rows, tx.lock_rows, tx.lookup_rows):
            with pytest.raises(InvalidRequest, match="change the tree only"):
                call(TABLE, ROWS)


def test_an_open_master_transaction_outlives_its_timeout(db: dodona.Client) -> None:
    def hold(timeout_ms: int) -> None:
        with db.begin_master(timeout_ms) as tx:
            tx.create_directory("//new")
            time.sleep(1.5 * timeout_ms / 1000)

    with_enough_time(hold, SHORT_MS, TransactionNotFound)
    assert db.exists("//new")


def test_a_master_transaction_ends_when_the_pings_of_its_client_stop(db: dodona.Client) -> None:
    tx = db.begin_master(SHORT_MS)
    tx.lock("//bank")
    db._pinger.close()  # as a client does that stops for long

    def is_free() -> bool:
        try:
            db.set("//bank/@x", 1)
        except NodeLocked:
            return False
        return True

    wait_until(is_free, pause_s=0.05)
    for _ in range(2):
        with pytest.raises(TransactionNotFound, match="no ping arrived in time"):
            tx.commit()


def test_closing_a_client_stops_its_ping_thread(tmp_path: Path) -> None:
    others = {*threading.enumerate()}
    db = dodona.open(str(tmp_path / "data"))
    tx = db.begin_master()
    started = {*threading.enumerate()} - others
    (pinger,) = [it for it in started if it.name == "dodona-pinger"]
    db.close()
    assert not pinger.is_alive()
    with pytest.raises(InvalidRequest, match="closed"):
        tx.commit()


@pytest.mark.anyio
async def test_the_twin_does_the_same(tmp_path: Path) -> None:
    async with await dodona.aio.open(str(tmp_path / "data")) as db:
        await db.create_table(TABLE, SCHEMA, mount=True, attributes={"owner": "me"})
        await db.freeze_table(TABLE)
        await db.unfreeze_table(TABLE)
        await db.remount_table(TABLE)
        await db.unmount_table(TABLE)
        await db.reshard_table(TABLE, [[], [5]])
        await db.alter_table(TABLE, [*SCHEMA, {"name": "note", "type": "utf8"}])
        await db.mount_table(TABLE, freeze=True)
        assert {it.state for it in (await db.get_table(TABLE)).tablets} == {"frozen"}
        assert len((await db.get_cluster()).cells) == 1
        async with db.begin_master() as tx:
            await tx.create_directory("//a")
            await tx.copy("//a", "//b")
            await tx.move("//b", "//c")
            await tx.set("//a/@x", 1)
            assert await tx.lock("//a", "shared", attribute="x") > 0
            inner = await tx.begin(title="inner")
            await inner.remove("//c")
            await inner.ping()
            await inner.commit()
            with pytest.raises(InvalidRequest, match="change the tree only"):
                tx.insert_rows(TABLE, ROWS)
            assert not await db.exists("//a")
        assert await db.list("//") == ["a", "bank"]
        assert await db.get("//a/@x") == 1
        assert "committed" in repr(tx)
        aborted = await db.begin_master()
        await aborted.remove_table(TABLE)
        await aborted.abort()
        assert aborted.state is dodona.TransactionState.ABORTED
        assert await db.list_tables() == [TABLE]


def test_an_open_asyncio_master_transaction_outlives_its_timeout(tmp_path: Path) -> None:
    async def hold(timeout_ms: int) -> None:
        async with (
            await dodona.aio.open(str(tmp_path / "data")) as db,
            db.begin_master(timeout_ms) as tx,
        ):
            await tx.create_directory("//new")
            await asyncio.sleep(1.5 * timeout_ms / 1000)

    with_enough_time(lambda it: asyncio.run(hold(it)), SHORT_MS, TransactionNotFound)
    with dodona.open(str(tmp_path / "data")) as db:
        assert db.exists("//new")


@pytest.mark.anyio
async def test_an_exception_aborts_the_twin_too(tmp_path: Path) -> None:
    async with await dodona.aio.open(str(tmp_path / "data")) as db:

        async def fail() -> None:
            async with db.begin_master() as tx:
                await tx.create_directory("//new")
                raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            await fail()
        assert not await db.exists("//new")


# ---- calls of a master transaction that nobody awaits


def forgotten(call: Any) -> None:
    """As by somebody who forgets to await it."""
    assert call is not None


@pytest.mark.anyio
async def test_changes_without_await_are_committed_in_order(tmp_path: Path) -> None:
    async with await dodona.aio.open(str(tmp_path / "data")) as db:
        async with db.begin_master() as tx:
            forgotten(tx.create_directory("//a"))
            forgotten(tx.set("//a/@x", 1))
            forgotten(tx.copy("//a", "//b"))
            forgotten(tx.move("//b", "//c"))
            forgotten(tx.lock("//a", "shared", attribute="x"))
            assert await tx.get("//c/@x") == 1
            forgotten(tx.create_table(TABLE, SCHEMA, attributes={"owner": "me"}))
            inner = await tx.begin()
            assert await inner.exists(TABLE)
            forgotten(inner.remove("//c"))
            await inner.commit()
            forgotten(tx.set("//a/@x", 2))
        assert await db.list("//") == ["a", "bank"]
        assert await db.get("//a/@x") == 2


@pytest.mark.anyio
@pytest.mark.parametrize("is_left", [True, False], ids=["left", "committed"])
async def test_a_failed_change_without_await_aborts_the_master_transaction(
    tmp_path: Path, is_left: bool
) -> None:
    async with await dodona.aio.open(str(tmp_path / "data")) as db:
        begun = []

        async def change() -> None:
            async with db.begin_master() as tx:
                begun.append(tx)
                await tx.create_directory("//a")
                forgotten(tx.remove("//b"))
                if not is_left:
                    await tx.commit()

        with pytest.raises(NodeNotFound, match="//b"):
            await change()
        assert begun[0].state is dodona.TransactionState.ABORTED
        assert await db.list("//") == []


@pytest.mark.anyio
async def test_a_caught_error_of_a_change_does_not_prevent_the_commit(tmp_path: Path) -> None:
    async with await dodona.aio.open(str(tmp_path / "data")) as db:
        async with db.begin_master() as tx:
            with pytest.raises(NodeNotFound):
                await tx.remove("//b")
            task = asyncio.create_task(tx.create_directory("//a"))
            await asyncio.gather(task, tx.create_directory("//b"))
        assert await db.list("//") == ["a", "b"]


@pytest.mark.anyio
@pytest.mark.filterwarnings("error")
async def test_an_abort_discards_changes_without_await(tmp_path: Path) -> None:
    async with await dodona.aio.open(str(tmp_path / "data")) as db:
        tx = await db.begin_master()
        for name in "abc":
            forgotten(tx.create_directory(f"//{name}"))
        await tx.abort()
        with suppress(ZeroDivisionError):
            async with db.begin_master() as tx:
                forgotten(tx.create_directory("//d"))
                raise ZeroDivisionError
        gc.collect()
        assert await db.list("//") == []


@pytest.mark.anyio
async def test_changes_keep_their_order_across_transactions_in_one_another(tmp_path: Path) -> None:
    async with await dodona.aio.open(str(tmp_path / "data")) as db:
        async with db.begin_master() as tx:
            inner = await tx.begin()
            forgotten(tx.create_directory("//a"))
            assert await inner.exists("//a")
            forgotten(inner.create_directory("//a/b"))
            assert await inner.exists("//a/b")
            await inner.commit()
        assert await db.list("//a") == ["b"]


@pytest.mark.anyio
async def test_a_change_that_is_cancelled_leaves_the_order_of_others(tmp_path: Path) -> None:
    order: list[str] = []

    async def change(name: str) -> None:
        order.append(f"begin {name}")
        await asyncio.sleep(0.05)
        order.append(f"end {name}")

    writes = TreeWrites()
    first, second = writes.begin(change("1")), writes.begin(change("2"))
    waiting = asyncio.create_task(second)
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.wait([waiting])
    await writes.begin(change("3"))
    await first
    assert order == ["begin 1", "end 1", "begin 3", "end 3"]


@pytest.mark.anyio
async def test_an_error_reaches_only_the_call_that_failed(tmp_path: Path) -> None:
    async with await dodona.aio.open(str(tmp_path / "data")) as db, db.begin_master() as tx:
        calls = (tx.remove("//none"), tx.exists("//"))
        refused, found = await asyncio.gather(*calls, return_exceptions=True)
        assert isinstance(refused, NodeNotFound)
        assert found is True


@pytest.mark.anyio
async def test_an_abort_raises_no_cancelled_error_in_waiting_calls(tmp_path: Path) -> None:
    async with await dodona.aio.open(str(tmp_path / "data")) as db:
        tx = await db.begin_master()
        waiting = [asyncio.create_task(tx.create_directory(f"//{it}")) for it in "ab"]
        await asyncio.sleep(0)
        await tx.abort()
        outcomes = await asyncio.gather(*waiting, return_exceptions=True)
        assert not any(isinstance(it, asyncio.CancelledError) for it in outcomes)
        assert await db.list("//") == []


def test_methods_of_asyncio_s_client_are_coroutine_functions() -> None:
    """So that stand-ins that are made of it can be awaited."""
    for name in ("create_table", "set", "move", "get"):
        assert inspect.iscoroutinefunction(getattr(dodona.aio.AsyncClient, name))


@pytest.mark.anyio
async def test_a_warning_names_the_line_of_the_asyncio_call(tmp_path: Path) -> None:
    idle = {"account": "x"}
    async with await dodona.aio.open(str(tmp_path / "data")) as db:
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always", DodonaWarning)
            await db.create_directory("//a", idle)
            async with db.begin_master() as tx:
                awaited = tx.create_directory("//b", idle)
                await awaited
                _ = tx.create_table(TABLE, SCHEMA, attributes=idle)
                _ = tx.set("//a/@account", "y")
                async with tx.begin() as inner:
                    _ = inner.create_directory("//c", idle)
    lines = [Path(it.filename).read_text("utf-8").splitlines()[it.lineno - 1] for it in seen]
    assert [line.split("(")[0].split()[-1] for line in lines] == [
        "db.create_directory",
        "tx.create_directory",
        "tx.create_table",
        "tx.set",
        "inner.create_directory",
    ]


@pytest.mark.anyio
async def test_a_line_in_a_loop_warns_once(tmp_path: Path) -> None:
    async with await dodona.aio.open(str(tmp_path / "data")) as db:
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("default")
            async with db.begin_master() as tx:
                for name in "abc":
                    _ = tx.create_directory(f"//{name}", {"account": "x"})
    assert len(seen) == 1
