"""Both clients over real sockets, against a pretended cluster: the same calls, the same answers."""

import gc
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

import dodona
import dodona.aio
from dodona._core.protocol.steps import ORACLE, Calls, Protocol
from dodona._io import network
from dodona.errors import (
    CommitOutcomeUnknown,
    InvalidRequest,
    TableNotFound,
    TransactionClosed,
    TransactionConflict,
    Unavailable,
)
from dodona_wire.messages.base import Failure
from dodona_wire.messages.data import CommitOne, GenerateTimestamps, Prepare
from dodona_wire.messages.families import Reply
from suite.waiting import WAIT_S_MAX, wait_until
from unit.client.cluster import (
    CONFLICT,
    HANG,
    PATH,
    SCHEMA,
    FakeCluster,
    account,
    lose_commits,
    refuse_once,
    running_cluster,
)
from unit.client.protocols import key


@pytest.fixture
def db(cluster: FakeCluster) -> Iterator[dodona.Client]:
    with dodona.connect(cluster.url) as client:
        client.create_table(PATH, SCHEMA, pivot_keys=[[], [100]], mount=True)
        yield client


# ---- the blocking client


def test_the_ten_lines_of_the_readme(db: dodona.Client) -> None:
    with db.begin() as tx:
        tx.insert_rows(PATH, [account(1), account(200)])
    assert tx.commit_timestamp is not None
    assert tx.start_timestamp is not None
    assert tx.commit_timestamp > tx.start_timestamp
    with db.begin() as tx:
        rows = tx.lookup_rows(PATH, [{"id": 1}, {"id": 200}, {"id": 3}])
        assert rows == [account(1), account(200)]
        tx.insert_rows(PATH, [account(1, 50)])
        tx.delete_rows(PATH, [{"id": 200}])
        assert tx.select(PATH) == [account(1), account(200)]
    assert db.select(PATH) == [account(1, 50)]
    assert db.outcome(tx.id).state == "committed"  # type: ignore[arg-type]
    assert db.lookup_rows(PATH, [{"id": 9}], keep_missing=True) == [None]


def test_tables_are_described_listed_and_removed(db: dodona.Client) -> None:
    info = db.get_table(PATH)
    assert [tablet.pivot_key for tablet in info.tablets] == [(), (100,)]
    assert db.list_tables("//bank") == [PATH]
    db.remove_table(PATH)
    with pytest.raises(TableNotFound):
        db.get_table("//none")
    assert len(db.get_cluster().cells) == 2


def test_rows_are_written_in_transactions_of_their_own(db: dodona.Client) -> None:
    first = db.insert_rows(PATH, [account(it) for it in range(5)])
    second = db.delete_rows(PATH, [{"id": 0}])
    assert first is not None
    assert second is not None
    assert first < second
    assert [row["id"] for row in db.select(PATH, [1], [3])] == [1, 2]


def test_histories_are_read_in_and_out_of_transactions(db: dodona.Client) -> None:
    db.insert_rows(PATH, [account(1)])
    keys = [{"id": 1}, {"id": 2}]
    history = dodona.VersionedRow(
        {"id": 1},
        [dodona.MIN_TIMESTAMP],
        [],
        {"balance": [dodona.VersionedValue(dodona.MIN_TIMESTAMP, 100)]},
    )
    assert db.lookup_versions(PATH, keys) == [history]
    with db.begin(read_own_writes=True) as tx:
        tx.insert_rows(PATH, [account(2)])
        assert tx.lookup_versions(PATH, keys, keep_missing=True) == [history, None]


def test_a_transaction_locks_rows_and_changes_aggregates(
    db: dodona.Client, cluster: FakeCluster
) -> None:
    summed = [SCHEMA[0], {**SCHEMA[1], "aggregate": "sum"}]
    db.create_table("//sums", summed, mount=True)
    seen: list[Any] = []
    cluster.cell_answers = seen.append
    with db.begin() as tx:
        tx.insert_rows("//sums", [account(1, 5)], aggregate=True, lock_type="shared_write")
        tx.lock_rows("//sums", [{"id": 2}], lock_type="shared_weak")
    db.insert_rows("//sums", [account(3, 7)], aggregate=True)
    (first,), (second,) = [it.modifications for it in seen if isinstance(it, CommitOne)]
    assert first.special == {key(1): (1, 1)}
    assert [lock.lock_type for lock in first.locks] == ["shared_weak"]
    assert second.special == {key(3): (1, 0)}


def test_a_transaction_with_read_own_writes_reads_its_writes(db: dodona.Client) -> None:
    with db.begin(read_own_writes=True) as tx:
        tx.insert_rows(PATH, [account(1), account(200)])
        assert tx.select(PATH) == tx.lookup_rows(PATH, [{"id": 1}, {"id": 200}])
        assert len(tx.select(PATH)) == 2


def test_a_transaction_without_atomicity(db: dodona.Client) -> None:
    db.create_table("//log", SCHEMA, atomicity="none", mount=True)
    with db.begin(atomicity="none", durability="async") as tx:
        tx.insert_rows("//log", [account(1)])
    assert tx.id is None
    assert db.lookup_rows("//log", [{"id": 1}]) == [account(1)]


def test_an_exception_aborts_and_is_not_hidden(db: dodona.Client) -> None:
    tx = db.begin()

    def fail() -> None:
        with tx:
            tx.insert_rows(PATH, [account(1)])
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert tx.state is dodona.TransactionState.ABORTED
    assert db.select(PATH) == []
    with pytest.raises(TransactionClosed):
        tx.insert_rows(PATH, [account(1)])


def test_a_block_that_ended_its_transaction_itself_is_left_alone(db: dodona.Client) -> None:
    with db.begin() as tx:
        tx.insert_rows(PATH, [account(1)])
        tx.abort()
    assert tx.commit_timestamp is None
    with db.begin() as tx:
        tx.insert_rows(PATH, [account(2)])
        committed = tx.commit()
    assert tx.commit_timestamp == committed
    assert db.select(PATH) == [account(2)]


def test_the_repr_of_an_object_hides_the_secret_of_the_url(cluster: FakeCluster) -> None:
    url = cluster.url.replace("http://", "http://user:secret@")
    with dodona.connect(url) as client:
        shown = [repr(client), repr(client.begin())]
    assert not any("secret" in it for it in shown)
    assert cluster.url in shown[0]


@pytest.mark.parametrize(("ids", "kind"), [((1,), CommitOne), ((1, 100), Prepare)])
def test_a_conflict_is_run_again(
    db: dodona.Client, cluster: FakeCluster, ids: tuple[int, ...], kind: type[Any]
) -> None:
    attempts: list[dodona.Transaction] = []

    def transfer(tx: dodona.Transaction) -> int:
        attempts.append(tx)
        tx.insert_rows(PATH, [account(it) for it in ids])
        return len(attempts)

    cluster.cell_answers = refuse_once(kind)
    assert db.run_in_transaction(transfer) == 2
    assert [it.state.value for it in attempts] == ["aborted", "committed"]
    assert len(db.select(PATH)) == len(ids)


def test_run_in_transaction_raises_an_error_of_the_function_without_retry(
    db: dodona.Client,
) -> None:
    attempts: list[int] = []

    def broken(tx: dodona.Transaction) -> None:
        attempts.append(1)
        tx.insert_rows(PATH, [{"id": "x"}])

    with pytest.raises(dodona.SchemaViolation):
        db.run_in_transaction(broken)
    assert len(attempts) == 1


def test_attempts_are_bounded(db: dodona.Client, cluster: FakeCluster) -> None:
    cluster.cell_answers = lambda body: CONFLICT if isinstance(body, CommitOne) else None
    attempts: list[int] = []

    def transfer(tx: dodona.Transaction) -> None:
        attempts.append(1)
        tx.insert_rows(PATH, [account(1)])

    with pytest.raises(TransactionConflict):
        db.run_in_transaction(transfer, attempts_max=3)
    assert len(attempts) == 3


@pytest.mark.parametrize("is_applied", [True, False])
def test_a_lost_connection_in_a_commit_is_cleared_up(
    db: dodona.Client, cluster: FakeCluster, is_applied: bool
) -> None:
    lost = lose_commits(cluster, 1, is_applied=is_applied)
    results: list[int] = []

    def transfer(tx: dodona.Transaction) -> int:
        results.append(1)
        tx.insert_rows(PATH, [account(1)])
        return len(results)

    assert db.run_in_transaction(transfer) == (1 if is_applied else 2)
    assert len(lost) == 1
    assert db.select(PATH) == [account(1)]


def test_threads_share_the_connections(db: dodona.Client, cluster: FakeCluster) -> None:
    count_before = len(cluster.cells[0].paths) + len(cluster.cells[1].paths)

    def work(number: int) -> None:
        for step in range(20):
            db.insert_rows(PATH, [account(number * 100 + step)])

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(db.select(PATH)) == 160
    assert len(cluster.cells[0].paths) + len(cluster.cells[1].paths) - count_before <= 2


def test_a_closed_client_of_a_cluster_refuses_calls(cluster: FakeCluster) -> None:
    client = dodona.connect(cluster.url)
    client.close()
    client.close()
    for call in (client.generate_timestamp, client.list_tables, client.begin):
        with pytest.raises(InvalidRequest, match="closed"):
            call()


def test_closing_ends_calls_that_wait(cluster: FakeCluster) -> None:
    client = dodona.connect(cluster.url)
    client.create_table(PATH, SCHEMA, mount=True)
    cluster.cell_answers = lambda body: HANG
    outcome: list[BaseException] = []

    def commit() -> None:
        try:
            client.insert_rows(PATH, [account(1)])
        except dodona.DodonaError as error:
            outcome.append(error)

    thread = threading.Thread(target=commit)
    before = len(cluster.cells[0].frame_sizes)
    thread.start()
    wait_until(lambda: len(cluster.cells[0].frame_sizes) > before)
    client.close()
    thread.join(WAIT_S_MAX)
    assert not thread.is_alive()
    # It was sent, and nobody can be asked any more: neither committed nor aborted is certain.
    assert [type(it) for it in outcome] == [CommitOutcomeUnknown]


def test_a_client_without_references_ends_its_thread(cluster: FakeCluster) -> None:
    others = {*threading.enumerate()}
    client = dodona.connect(cluster.url)
    started = {*threading.enumerate()} - others
    (thread,) = [it for it in started if it.name == "dodona-client"]
    del client
    gc.collect()
    thread.join(WAIT_S_MAX)  # a finalizer waits for nothing
    assert not thread.is_alive()


def test_a_client_refuses_calls_in_a_forked_process(db: dodona.Client) -> None:
    db.generate_timestamp()
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        said = b"nothing"
        try:
            db.generate_timestamp()
        except InvalidRequest as error:
            said = error.message.encode()
        finally:
            os.write(write, said)
            os._exit(0)
    os.waitpid(child, 0)
    assert b"fork" in os.read(read, 1_000)
    os.close(read)
    os.close(write)
    assert db.generate_timestamp() > 0


def test_without_a_proxy_the_master_is_asked_for_timestamps(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(network, "ORACLE_TIMEOUT_MS", 300)
    cluster.has_proxy = False
    with dodona.connect(cluster.url) as client:
        # The pretended master speaks no WebSocket: it is tried all the same, and then named.
        driver, asking = client._driver, Calls(((ORACLE, GenerateTimestamps(1)),))

        def ask() -> Protocol[Reply]:
            (reply,) = yield asking
            return reply

        reply = driver.run(ask())
        assert isinstance(reply, Failure)
        assert cluster.url.removeprefix("http") in reply.message
        cluster.has_proxy = True
        assert client.generate_timestamp() > 0


@pytest.mark.parametrize(
    "url",
    [
        *("", "ftp://host", "http://", "http://host:0", "http://host:x"),
        *("http://[", "http://a\0b", "a\ud800", "http://" + "x" * 70_000, "http://a b\x7f"),
    ],
)
def test_connect_refuses_an_invalid_url(url: str) -> None:
    with pytest.raises(InvalidRequest, match="URL"):
        dodona.connect(url)


def test_a_master_that_is_not_there_is_named() -> None:
    with running_cluster() as gone:
        url = gone.url
    began = time.monotonic()
    with pytest.raises(Unavailable, match=url):
        dodona.connect(url, timeout_ms=200)
    assert time.monotonic() - began < 5


def test_a_path_that_is_not_unicode_is_refused_without_waiting(db: dodona.Client) -> None:
    with pytest.raises(InvalidRequest, match="Unicode"):
        db.list_tables("//\ud800")
    with pytest.raises(InvalidRequest, match="Unicode"):
        db.mount_table("//\ud800")


def test_an_answer_that_is_none_of_a_master_is_unavailable(cluster: FakeCluster) -> None:
    cluster.master_answers = lambda body: Failure("internal", "not ready") if body else None
    with pytest.raises(dodona.DodonaError, match="not ready"):
        dodona.connect(cluster.url, timeout_ms=100)


# ---- the package


def test_importing_dodona_imports_no_network_library_and_no_server() -> None:
    heavy = ("asyncio", "fastapi", "httpx", "lmdb", "pandas", "picows", "pyarrow", "uvicorn")
    code = f"import dodona, sys; print([it for it in {heavy} if it in sys.modules])"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"
