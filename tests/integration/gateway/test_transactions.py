"""Transactions over REST: what a caller is told, whichever gateway he asks, and whatever dies."""

import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from dodona.errors import TransactionNotFound
from dodona_local.launcher import LocalCluster
from integration.gateway.rest import Rest
from suite.waiting import with_enough_time

pytestmark = pytest.mark.integration

SCHEMA = [
    {"name": "id", "type": "int64", "sort_order": "ascending"},
    {"name": "owner", "type": "string", "lock": "names"},
    {"name": "balance", "type": "int64"},
]


@pytest.fixture
def table(rest: Rest, request: pytest.FixtureRequest) -> str:
    """A table of this test's own, over two cells."""
    path = f"//transactions/{request.node.originalname}"
    rest("create_table", path=path, schema=SCHEMA, pivot_keys=[[], [100]], mount=True)
    return path


def begin(rest: Rest, **options: Any) -> str:
    begun = rest("begin_transaction", **options)
    assert begun["gateway"] == rest.url
    its_id: str = begun["transaction"]
    return its_id


def insert(rest: Rest, its_id: str, table: str, *ids: int, **options: Any) -> None:
    rows = [{"id": number, "owner": "ann", "balance": number} for number in ids]
    rest("insert_rows_in_transaction", its_id, table=table, rows=rows, **options)


def rows_of(rest: Rest, table: str) -> list[int]:
    return [row["id"] for row in rest("select_rows", table=table)["rows"]]


def test_a_key_column_that_is_not_named_is_an_error(rest: Rest, table: str) -> None:
    its_id = begin(rest)
    keys: dict[str, Any] = {"keys": [{"id": 1}, {}]}
    calls: dict[str, dict[str, Any]] = {
        "insert_rows": {"rows": [{"id": 1, "balance": 1}, {"balance": 1}]},
        **dict.fromkeys(("delete_rows", "lookup_rows", "lookup_versions", "lock_rows"), keys),
    }
    for operation, rows in calls.items():
        problems = [rest.refused(f"{operation}_in_transaction", its_id, table=table, **rows)]
        if operation != "lock_rows":
            problems.append(rest.refused(operation, table=table, **rows))
        for problem in problems:
            assert (problem.kind, problem.status) == ("schema_violation", 400)
            assert problem.detail.startswith("missing key column 'id': give each row a value")
            assert problem.attributes["column"] == "id"
            assert problem.attributes["row_index"] == 1
    rest("abort_transaction", its_id)
    assert rows_of(rest, table) == []


@pytest.mark.part("transactions over REST")
def test_a_conflict_error_contains_the_commit_timestamp_of_the_winner(
    rest: Rest, table: str
) -> None:
    first, second = begin(rest), begin(rest)
    insert(rest, first, table, 1)
    insert(rest, second, table, 1)
    won = rest("commit_transaction", first)["timestamp"]
    lost = rest.refused("commit_transaction", second)
    assert (lost.status, lost.kind, lost.code, lost.retryable) == (
        409,
        "transaction_conflict",
        1700,
        True,
    )
    assert lost.attributes["key"] == {"id": 1}
    assert lost.attributes["winner_timestamp"] == won
    assert lost.attributes["transaction"] == second
    again = rest.refused("commit_transaction", second)
    assert (again.kind, again.attributes) == (lost.kind, lost.attributes)
    assert rest("get_transaction", second)["state"] == "aborted"
    assert rest("get_transaction", first) == {"state": "committed", "timestamp": won}


@pytest.mark.part("transactions over REST")
def test_a_transaction_reads_as_of_its_start_and_its_own_writes_only_on_request(
    rest: Rest, table: str
) -> None:
    plain, own = begin(rest), begin(rest, read_own_writes=True)
    rest("insert_rows", table=table, rows=[{"id": 5, "balance": 5}])
    for its_id, expected in ((plain, []), (own, [7])):
        insert(rest, its_id, table, 7)
        found = rest("select_rows_in_transaction", its_id, table=table)
        assert [row["id"] for row in found["rows"]] == expected
        keys = [{"id": 5}, {"id": 7}]
        rows = rest("lookup_rows_in_transaction", its_id, table=table, keys=keys)["rows"]
        assert [row["id"] for row in rows] == expected
        sql = f"select count(*) as n from [{table}]"
        assert rest("query_rows_in_transaction", its_id, sql=sql)["rows"] == [[len(expected)]]


def test_rows_are_locked_before_a_transaction_begins(rest: Rest, table: str) -> None:
    locks = {table: [{"id": 1}, {"id": 150}]}
    begun = rest("begin_transaction", locks=locks)
    assert begun["locked_rows"] == locks
    wanted = {table: [{"id": 1}, {"id": 2}, {"id": 150}]}
    for how in ({"wait_ms": 20}, {"nowait": True}):
        blocked = rest.refused("begin_transaction", locks=wanted, **how)
        assert (blocked.kind, blocked.status, blocked.retryable) == ("row_blocked", 503, True)
        assert blocked.attributes["key"] in locks[table], "the lower cell is asked first"
        assert blocked.attributes["table"] == table
    free = rest("begin_transaction", locks=wanted, skip_locked=2)
    assert free["locked_rows"] == {table: [{"id": 2}]}
    rest("abort_transaction", free["transaction"])
    insert(rest, begun["transaction"], table, 1)
    rest("commit_transaction", begun["transaction"])
    later = rest("begin_transaction", locks=wanted)
    assert later["locked_rows"] == wanted
    rest("abort_transaction", later["transaction"])
    assert "locked_rows" not in rest("begin_transaction")


@pytest.mark.parametrize(
    "fields",
    [
        {"locks": {}},
        {"locks": []},
        {"locks": {"//transactions/none": 1}},
        {"nowait": True},
        {"wait_ms": 30_001, "locks": {"//t": []}},
        {"skip_locked": 0, "locks": {"//t": []}},
    ],
)
def test_locks_that_mean_nothing_are_refused(rest: Rest, fields: dict[str, Any]) -> None:
    refused = rest.refused("begin_transaction", **fields)
    assert (refused.kind, refused.status) == ("invalid_request", 400)


def test_a_lease_ends_and_is_renewed(rest: Rest, table: str) -> None:
    dropped = ""

    def hold(lease_ms: int) -> None:
        nonlocal dropped
        kept, dropped = begin(rest, lease_ms=lease_ms), begin(rest, lease_ms=lease_ms)
        rows = [{"id": 1, "owner": "ann", "balance": 1}]
        rest.attempt("insert_rows_in_transaction", dropped, table=table, rows=rows)
        for _ in range(16):
            rest.attempt("ping_transaction", kept)
            time.sleep(lease_ms / 8_000)
        assert rest.attempt("commit_transaction", kept) == {"timestamp": None}

    with_enough_time(hold, 1_500, TransactionNotFound)
    gone = rest.refused("ping_transaction", dropped)
    assert (gone.status, gone.code, gone.retryable) == (404, 11000, True)
    assert "lease" in gone.detail
    assert rest.refused("commit_transaction", dropped).status == 404
    assert rows_of(rest, table) == []


@pytest.mark.part("transactions over REST")
def test_a_wrong_gateway_refuses_a_transaction_and_does_not_abort_the_transaction(
    rest: Rest, other: Rest, table: str
) -> None:
    its_id = begin(rest)
    insert(rest, its_id, table, 1)
    body = {"table": table, "rows": [{"id": 2, "balance": 2}]}
    for operation, fields in (("insert_rows_in_transaction", body), ("commit_transaction", {})):
        lost = other.refused(operation, its_id, **fields)
        assert (lost.status, lost.kind, lost.code) == (421, "wrong_gateway", 11000)
    at = rest("commit_transaction", its_id)["timestamp"]
    assert other("commit_transaction", its_id)["timestamp"] == at
    assert other("get_transaction", its_id) == {"state": "committed", "timestamp": at}
    assert rows_of(other, table) == [1]


def test_a_commit_goes_on_when_its_caller_has_gone(rest: Rest, table: str) -> None:
    """He sends it, and hangs up at once: then he comes back and asks."""
    address = urlsplit(rest.url)
    for number in range(20):
        its_id = begin(rest)
        insert(rest, its_id, table, number, 100 + number)
        with socket.create_connection((address.hostname, address.port or 0)) as connection:
            path = f"/v1/transactions/{its_id}/commit"
            head = f"POST {path} HTTP/1.1\r\nhost: {address.netloc}\r\ncontent-length: 0\r\n\r\n"
            connection.sendall(head.encode())
        assert rest("commit_transaction", its_id)["timestamp"] is not None
    assert rows_of(rest, table) == [*range(20), *range(100, 120)]


def test_an_end_is_an_end(rest: Rest, table: str) -> None:
    its_id = begin(rest)
    insert(rest, its_id, table, 1)
    rest("abort_transaction", its_id)
    rest("abort_transaction", its_id)
    assert rest.refused("commit_transaction", its_id).kind == "transaction_aborted"
    keys = [{"id": 1}]
    closed = rest.refused("delete_rows_in_transaction", its_id, table=table, keys=keys)
    assert (closed.status, closed.kind) == (409, "transaction_closed")
    committed = begin(rest)
    insert(rest, committed, table, 2)
    rest("commit_transaction", committed)
    assert rest.refused("abort_transaction", committed).kind == "transaction_closed"
    assert rows_of(rest, table) == [2]


def test_the_gateway_reports_old_transactions_and_exceeded_limits(rest: Rest, table: str) -> None:
    rest("insert_rows", table=table, rows=[{"id": 1, "balance": 1}])
    its_id = begin(rest)
    long: list[dict[str, Any]] = [{"id": number, "owner": "x" * 1000} for number in range(8000)]
    for _ in range(4):
        rest("insert_rows_in_transaction", its_id, table=table, rows=long[:7000])
        long = [{**row, "id": row["id"] + 10_000} for row in long]
    too_much = rest.refused("insert_rows_in_transaction", its_id, table=table, rows=long[:7000])
    assert (too_much.status, too_much.kind) == (413, "limit_exceeded")
    too_long = rest.refused("insert_rows", table=table, rows=[{"id": 1, "owner": "x" * (9 << 20)}])
    assert (too_long.status, too_long.kind) == (413, "limit_exceeded")
    old = begin(rest)
    insert(rest, old, table, 1)
    rest("unmount_table", path=table)
    unmounted = rest.refused("lookup_rows", table=table, keys=[{"id": 1}])
    assert (unmounted.status, unmounted.kind) == (409, "table_not_mounted")
    rest("mount_table", path=table)
    too_old = rest.refused("commit_transaction", old)
    assert (too_old.status, too_old.kind, too_old.retryable) == (410, "snapshot_too_old", True)


# ---- gateways that die


@pytest.fixture
def mortal(tmp_path: Path) -> Iterator[LocalCluster]:
    with LocalCluster(
        tmp_path / "data", gateway_count=2, is_insecure=True, back_off_s_max=0.1
    ) as cluster:
        yield cluster


def test_other_gateways_know_the_commits_of_a_dead_gateway(mortal: LocalCluster) -> None:
    one, two = mortal.gateway_urls
    with Rest(one) as rest, Rest(two) as other:
        rest("create_table", path="//t", schema=SCHEMA, pivot_keys=[[], [100]], mount=True)
        done, open_one = begin(rest), begin(rest)
        insert(rest, done, "//t", 1, 101)
        insert(rest, open_one, "//t", 2)
        at = rest("commit_transaction", done)["timestamp"]
        mortal.kill("gateway")
        assert other("commit_transaction", done)["timestamp"] == at
        assert other("get_transaction", done) == {"state": "committed", "timestamp": at}
        assert other.refused("commit_transaction", open_one).kind == "wrong_gateway"
        mortal.wait_until_ready("gateway", start_count=2)
    with Rest(one) as rest:  # the same address, and it remembers nothing
        assert rest("commit_transaction", done)["timestamp"] == at
        gone = rest.refused("commit_transaction", open_one)
        assert (gone.status, gone.kind) == (404, "transaction_not_found")
        assert rows_of(rest, "//t") == [1, 101]


READS: dict[str, dict[str, Any]] = {
    "lookup_rows_in_transaction": {"keys": [{"id": 1}, {"id": 150}]},
    "lookup_versions_in_transaction": {"keys": [{"id": 1}, {"id": 150}]},
    "select_rows_in_transaction": {},
    "query_rows_in_transaction": {"sql": "select count(*) from [{table}]"},
}


@pytest.mark.parametrize("isolation", ["snapshot", "serializable"])
@pytest.mark.parametrize("read", READS)
def test_a_serializable_transaction_fails_if_what_it_read_has_changed(
    rest: Rest, isolation: str, read: str
) -> None:
    table = f"//transactions/{isolation}/{read}"
    rest("create_table", path=table, schema=SCHEMA, pivot_keys=[[], [100]], mount=True)
    asked = {name: _with(value, table) for name, value in READS[read].items()}
    if "sql" not in asked:
        asked["table"] = table
    first, second = begin(rest, isolation=isolation), begin(rest, isolation=isolation)
    for its_id, own in ((first, 1), (second, 150)):
        rest(read, its_id, **asked)
        insert(rest, its_id, table, own)
    rest("commit_transaction", first)
    if isolation == "snapshot":
        rest("commit_transaction", second)
        return
    lost = rest.refused("commit_transaction", second)
    assert (lost.status, lost.kind, lost.retryable) == (409, "transaction_conflict", True)
    assert lost.attributes["table"] == table


def _with(value: Any, table: str) -> Any:
    return value.replace("{table}", table) if isinstance(value, str) else value


def test_an_isolation_is_one_of_two_and_needs_atomicity(rest: Rest) -> None:
    assert rest.refused("begin_transaction", isolation="linearizable").status == 400
    lost = rest.refused("begin_transaction", isolation="serializable", atomicity="none")
    assert (lost.status, lost.kind) == (400, "invalid_request")


@pytest.mark.parametrize("read", READS)
def test_a_transaction_with_a_timestamp_reads_the_past_and_writes_nothing(
    rest: Rest, read: str
) -> None:
    table = f"//transactions/past/{read}"
    rest("create_table", path=table, schema=SCHEMA, pivot_keys=[[], [100]], mount=True)
    at = rest("generate_timestamps", count=1)["first"]
    writer = begin(rest)
    insert(rest, writer, table, 1, 150)
    rest("commit_transaction", writer)
    asked = {name: _with(value, table) for name, value in READS[read].items()}
    if "sql" not in asked:
        asked["table"] = table
    past, same, now = begin(rest, timestamp=at), begin(rest, timestamp=at), begin(rest)
    assert past != same
    assert rest(read, past, **asked) == rest(read, same, **asked)
    assert rest(read, past, **asked) != rest(read, now, **asked)
    rows = [{"id": 2, "owner": "ann", "balance": 1}]
    lost = rest.refused("insert_rows_in_transaction", past, table=table, rows=rows)
    assert (lost.status, lost.kind) == (400, "invalid_request")
    assert rest("commit_transaction", past)["timestamp"] is None
    assert rest("commit_transaction", past)["timestamp"] is None


def test_the_timestamp_of_a_transaction_goes_with_no_locks(rest: Rest) -> None:
    at = rest("generate_timestamps", count=1)["first"]
    lost = rest.refused("begin_transaction", timestamp=at, locks={})
    assert (lost.status, lost.kind) == (400, "invalid_request")
    assert rest.refused("begin_transaction", timestamp=0).status == 400


def test_the_id_of_a_transaction_stays_what_it_is(rest: Rest, table: str) -> None:
    """A gateway sends no transaction again under another id: any gateway can tell its outcome."""
    first, second = begin(rest, isolation="serializable"), begin(rest, isolation="serializable")
    for its_id in (first, second):
        insert(rest, its_id, table, 1)
    at = rest("commit_transaction", first)["timestamp"]
    assert rest.refused("commit_transaction", second).kind == "transaction_conflict"
    assert rest("get_transaction", first) == {"state": "committed", "timestamp": at}
    assert rest("get_transaction", second)["state"] == "aborted"
