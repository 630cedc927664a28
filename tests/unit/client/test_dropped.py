"""Embedded databases that their user has dropped: the folder is free at once, with all rows in it.

As in a notebook, whose cell failed and is run again. Without the help of the garbage collector, but
where it is the user's own objects that lead back to a client. Reports of the same kind elsewhere:
jnwatson/py-lmdb #129 and #300, duckdb/duckdb #13079.
"""

import asyncio
import gc
import threading
import time
import weakref
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import uvloop

import dodona
import dodona.aio
from dodona.errors import DodonaError, FolderInUse
from dodona_wire.net.pools import Pool
from suite.waiting import WAIT_S_MAX
from unit.client.cluster import PATH, SCHEMA, FakeCluster
from unit.client.interrupting import in_time

ENDS_S_MAX = 20.0
ROWS = [{"id": number, "balance": 100} for number in range(3)]


@pytest.fixture(autouse=True)
def no_collector() -> Iterator[None]:
    """Nothing is freed but by its own last reference."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    with dodona.open(tmp_path / "data") as db:
        db.create_table(PATH, SCHEMA, mount=True)
        db.insert_rows(PATH, ROWS)
    monkeypatch.setattr(gc, "collect", lambda: pytest.fail("the collector is not to be needed"))
    return tmp_path / "data"


def check(folder: Path) -> None:
    with dodona.open(folder) as db:
        assert [dict(it) for it in db.select(PATH)] == ROWS


def just_open(db: dodona.Client) -> None:
    db.generate_timestamp()


def query(db: dodona.Client) -> None:
    db.query(f"select * from [{PATH}]")


def transaction(db: dodona.Client) -> None:
    with db.begin() as tx:
        tx.lookup_rows(PATH, [{"id": 1}])
    db.begin().insert_rows(PATH, [{"id": 9, "balance": 1}])


def master_transaction(db: dodona.Client) -> None:
    db.begin_master()


def held_snapshot(db: dodona.Client) -> None:
    held = db.hold_snapshot([PATH])
    next(iter(held.read_batches(PATH)))


def load(db: dodona.Client) -> None:
    db.loads.begin([PATH])


def refused_path(db: dodona.Client) -> None:
    with pytest.raises(DodonaError):
        db.insert_rows("//nothing/here", ROWS)


def refused_row(db: dodona.Client) -> None:
    with pytest.raises(DodonaError), db.begin() as tx:
        tx.insert_rows(PATH, [{"id": "one"}])


def refused_query(db: dodona.Client) -> None:
    with pytest.raises(DodonaError):
        db.query(f"select 1 from [{PATH}] where")


def refused_open(db: dodona.Client) -> None:
    with pytest.raises(DodonaError):
        dodona.open(str(db._place) + "/dodona.lock")


def user_error(db: dodona.Client) -> None:
    with pytest.raises(ZeroDivisionError), db.begin() as tx:
        tx.insert_rows(PATH, [{"id": 1 // 0}])


@pytest.mark.parametrize(
    "use",
    [
        just_open, query, transaction, master_transaction, held_snapshot, load, refused_path,
        refused_row, refused_query, refused_open, user_error,
    ],
)  # fmt: skip
def test_the_folder_is_free_immediately_after_a_client_is_dropped(
    use: Callable[[dodona.Client], None], folder: Path
) -> None:
    use(dodona.open(folder))
    check(folder)


def test_the_folder_is_free_once_an_exception_of_the_client_is_dropped(folder: Path) -> None:
    def cell() -> None:
        db = dodona.open(folder)
        db.insert_rows("//nothing/here", ROWS)

    kept: DodonaError | None = None
    try:
        cell()
    except DodonaError as error:
        kept = error
    assert kept is not None
    del kept
    check(folder)


async def use_a_little(db: dodona.aio.AsyncClient) -> None:
    await db.generate_timestamp()
    await asyncio.gather(*[db.lookup_rows(PATH, [{"id": it}]) for it in range(20)])


async def use_chores(db: dodona.aio.AsyncClient) -> None:
    await db.begin_master()
    await db.hold_snapshot([PATH])


async def use_badly(db: dodona.aio.AsyncClient) -> None:
    with pytest.raises(DodonaError):
        await db.insert_rows("//nothing/here", ROWS)
    with pytest.raises(DodonaError):
        async with db.begin() as tx:
            await tx.insert_rows(PATH, [{"id": "one"}])


@pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop])
@pytest.mark.parametrize("use", [use_a_little, use_chores, use_badly])
def test_the_folder_is_free_immediately_after_an_asyncio_client_is_dropped(
    use: Callable[[dodona.aio.AsyncClient], Awaitable[None]],
    new_loop: Callable[[], asyncio.AbstractEventLoop],
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.undo()  # loops have cycles of their own

    async def run() -> None:
        for _ in range(3):
            await use(await dodona.aio.open(folder))

    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(run())
    check(folder)


def test_the_folder_is_free_even_if_a_thread_is_faster_than_the_event_loop(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It opens the folder again before the task that met an error has waited for anything."""
    ask = Pool.ask

    def ask_and_stand_still(pool: Pool, work: Callable[[], Any]) -> Any:
        done = threading.Event()

        def run() -> Any:
            try:
                return work()
            finally:
                done.set()

        asked = ask(pool, run)
        assert done.wait(WAIT_S_MAX)
        return asked

    monkeypatch.undo()
    monkeypatch.setattr(Pool, "ask", ask_and_stand_still)

    async def run() -> None:
        for _ in range(3):
            await use_badly(await dodona.aio.open(folder))

    asyncio.run(run())
    check(folder)


def test_async_writes_of_a_dropped_client_become_durable(folder: Path) -> None:
    db = dodona.open(folder)
    db.create_table("//log", SCHEMA, atomicity="none", mount=True)
    db.insert_rows("//log", ROWS, durability="async")
    del db
    with dodona.open(folder) as again:
        assert [dict(it) for it in again.select("//log")] == ROWS


def test_the_thread_of_chores_does_not_outlive_the_client(folder: Path) -> None:
    db = dodona.open(folder)
    held = db.begin_master(timeout_ms=1_000)
    pinger = db._pinger
    del db, held
    until_s = time.monotonic() + ENDS_S_MAX
    while pinger._doers and time.monotonic() < until_s:
        time.sleep(0.01)
    assert not pinger._doers


def test_open_frees_a_folder_whose_client_is_in_a_reference_cycle(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()
    knot: list[Any] = [dodona.open(folder)]
    knot.append(knot)
    del knot
    check(folder)


def test_the_error_for_a_folder_in_use_names_the_line_that_opened_the_folder(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()
    db = dodona.open(folder)
    (folder.parent / "link").symlink_to(folder)
    for path in (folder, str(folder) + "/", folder.parent / "link"):
        with pytest.raises(FolderInUse, match=r"opened at .*test_dropped\.py, line \d+") as caught:
            dodona.open(path)
        assert caught.value.attributes["opened_at"].startswith(f"{__file__}, line ")
    db.close()
    check(folder)


@pytest.mark.anyio
async def test_the_asyncio_error_for_a_folder_in_use_names_the_line_that_opened_it(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()
    async with await dodona.aio.open(folder):
        with pytest.raises(FolderInUse, match=r"opened at .*test_dropped\.py, line \d+"):
            await dodona.aio.open(folder)
        with pytest.raises(FolderInUse, match=r"opened at .*test_dropped\.py, line \d+"):
            dodona.open(folder)


def test_the_driver_of_a_dropped_cluster_client_is_released_immediately(
    cluster: FakeCluster,
) -> None:
    db = dodona.connect(cluster.url)
    db.create_table(PATH, SCHEMA, mount=True)
    for use in (refused_row, refused_path, user_error):
        use(db)
    gone = weakref.ref(db._driver)
    del db
    assert gone() is None


def test_a_finalizer_may_open_the_folder_while_another_call_opens_it(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The collector that `open` calls runs the user's finalizers, too."""
    monkeypatch.undo()

    class Holder:
        def __init__(self) -> None:
            self.me = self
            self.db = dodona.open(folder)

        def __del__(self) -> None:
            check(folder)

    Holder()
    in_time(lambda: check(folder))
