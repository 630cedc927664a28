"""Queries of callers: computed in processes with bounds, which no query gets out of, and which
never outlive whoever asked."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pyarrow
import pytest

import dodona.aio
from dodona.errors import InvalidRequest, LimitExceeded
from dodona_gateway.core.content import ARROW_TYPE
from dodona_gateway.core.query_work import Encoded, FirstRows, Shape, Shown, TypedRows
from dodona_gateway.shell.queries import MEMORY_FACTOR, Queries, QueryBounds
from dodona_gateway.shell.settings import GatewaySettings
from dodona_local.launcher import LocalCluster
from dodona_wire.expressions.farm_hash import farm_hash
from integration.gateway.rest import Rest, problem_of
from integration.ytsaurus.plain import ask as ask_yt
from suite.programs import program
from suite.waiting import WAIT_S_MAX, until

pytestmark = [pytest.mark.integration, pytest.mark.anyio]

BOUNDS = QueryBounds(answer_bytes_max=1 << 20, cpu_seconds_max=3, memory_mib_max=128)
SCHEMA = [{"name": "k", "type": "int64", "sort_order": "ascending"}, {"name": "v", "type": "utf8"}]
YT_JSON = {"output_format": "json"}
ENDLESS = "select sum(a.i ^ b.i) from range(10000000) a(i), range(10000000) b(i)"

SHAPES: list[Shape] = [
    Encoded("json"),
    Encoded("msgpack"),
    Encoded("arrow"),
    FirstRows(10, 10),
    TypedRows(("any",), None, is_cut=False),
]

TOO_MUCH = [
    "select repeat('x', 2000000000)",  # folded while it is explained
    "select unnest(range(1, 100000000))",
    "select string_agg(repeat('y', 100000), '') from range(100000)",
    "select list_transform(range(100000000), lambda x: x % 2 = 0)",
    "select rpad('x', 500000000, v) from [//t]",
    "with recursive t as (select repeat('z', 1000000) s union all select s || s from t) from t",
    "select array_agg(a.i) from range(10000) a(i), range(10000) b(i)",
    ENDLESS,
]

SQL_TYPES = [
    *("bigint", "ubigint", "integer", "uinteger", "smallint", "usmallint", "tinyint", "utinyint"),
    *("hugeint", "uhugeint", "decimal(4, 1)", "decimal(9, 2)", "decimal(18, 3)", "decimal(38, 4)"),
    *("double", "float", "boolean", "varchar", "blob", "bit", "uuid", "json"),
    *("date", "time", "time_ns", "timestamp", "timestamp_s", "timestamp_ms", "timestamp_ns"),
    *("timestamptz", "timetz", "interval", "integer[]", "integer[2]", "struct(a integer)"),
    *("map(integer, varchar)", "enum('a', 'b')", "union(n integer, t varchar)"),
]


class Asker:
    """A caller of queries over one embedded table."""

    def __init__(self, db: dodona.aio.AsyncClient, queries: Queries) -> None:
        self.db = db
        self.queries = queries

    async def __call__(
        self, sql: str, shape: Shape, rows_max: int | None = None, parameters: Any = None
    ) -> bytes:
        run, session = self.db._run, self.db._session
        query = await run(session.prepare_query(sql, parameters))
        return await self.queries.run(run, session, query, shape, rows_max=rows_max)


@pytest.fixture
async def ask(tmp_path: Path) -> AsyncIterator[Asker]:
    async with await dodona.aio.open(tmp_path / "db") as db:
        await db.create_table("//t", SCHEMA, mount=True)
        await db.insert_rows("//t", [{"k": it, "v": str(it)} for it in range(100)])
        queries = Queries(BOUNDS)
        try:
            yield Asker(db, queries)
        finally:
            await queries.close()
            assert not queries.pids


def is_gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    except OSError:
        return True


async def test_a_query_has_the_same_result_in_every_format(ask: Asker) -> None:
    sql = "select k, v from [//t] where k between 3 and 4"
    rows = [[3, "3"], [4, "4"]]
    assert msgspec.json.decode(await ask(sql, Encoded("json")))["rows"] == rows
    assert msgspec.msgpack.decode(await ask(sql, Encoded("msgpack")))["rows"] == rows
    table = pyarrow.ipc.open_stream(await ask(sql, Encoded("arrow"))).read_all()
    assert table.to_pylist() == [{"k": 3, "v": "3"}, {"k": 4, "v": "4"}]
    typed = await ask(sql, TypedRows(("int64", "utf8"), None, is_cut=False))
    assert msgspec.msgpack.decode(typed) == rows
    shown = msgspec.msgpack.decode(await ask(sql, FirstRows(1, 1), 2), type=Shown)
    assert (shown.rows, shown.row_count, shown.column_count) == ([[3]], 2, 2)
    assert len(ask.queries.pids) == 1, "one process after the other had the same queries"


@pytest.mark.part("parameters pass into the process of a query")
async def test_a_query_process_gets_the_parameters(ask: Asker) -> None:
    given = {"keys": [3, 4], "text": "3' or true", "raw": b"\xff", "null": None, "high": 2**64 - 1}
    moment = datetime(2013, 1, 2, tzinfo=UTC)
    names = ", ".join(f"${name} as {name}_" for name in [*given, "moment"])
    sql = f"select k, {names} from [//t] where k in $keys and v != $text order by k"
    content = await ask(sql, Encoded("arrow"), parameters={**given, "moment": moment})
    rows = pyarrow.ipc.open_stream(content).read_all().to_pylist()
    expected = {f"{name}_": value for name, value in given.items()}
    assert rows == [{"k": k, **expected, "moment_": moment} for k in (3, 4)]
    shown = await ask("select k from [//t] where k > ?;", FirstRows(9, 9), 2, parameters=[5])
    assert msgspec.msgpack.decode(shown, type=Shown).rows == [[6], [7]]
    nested = {"of": {"k": [7, 2**64 - 1], "raw": b"\xff", "at": moment}, "map": {5: 1.5, 7: 2}}
    content = await ask("select $of as of_, $map[7] as m", Encoded("arrow"), parameters=nested)
    rows = pyarrow.ipc.open_stream(content).read_all().to_pylist()
    assert rows == [{"of_": nested["of"], "m": 2.0}]
    sql = "select farm_hash(k, v, $raw) as h from [//t] where k = 7"
    content = await ask(sql, Encoded("arrow"), parameters={"raw": b"\xff"})
    rows = pyarrow.ipc.open_stream(content).read_all().to_pylist()
    assert rows == [{"h": farm_hash(7, b"7", b"\xff")}]
    for rows_max in (None, 3):
        with pytest.raises(InvalidRequest, match="Did you mean 'key'") as caught:
            await ask("select $key", Encoded("json"), rows_max, parameters={"kye": 1})
        assert caught.value.attributes == {"missing": ["key"], "unknown": ["kye"]}
    with pytest.raises(InvalidRequest, match="The parameter key is the str 'x'") as caught:
        await ask("select k from [//t] where k = $key", Encoded("json"), 3, parameters={"key": "x"})
    assert caught.value.attributes == {"parameter": "key"}
    assert len(ask.queries.pids) == 1, "a mistake is no reason to begin anew"


@pytest.mark.parametrize("sql", TOO_MUCH)
async def test_a_query_over_its_limits_fails_and_the_next_query_succeeds(
    sql: str, ask: Asker
) -> None:
    with pytest.raises(LimitExceeded):
        await asyncio.wait_for(ask(sql, Encoded("arrow")), WAIT_S_MAX)
    assert msgspec.json.decode(await ask("select 1 as it", Encoded("json")))["rows"] == [[1]]


@pytest.mark.parametrize("shape", SHAPES)
async def test_a_result_is_no_longer_than_an_answer_may_be(shape: Shape, ask: Asker) -> None:
    text = f"select to_json(repeat('x', {BOUNDS.answer_bytes_max}))"
    with pytest.raises(LimitExceeded, match=str(BOUNDS.answer_bytes_max)):
        await ask(text, shape)


async def test_rows_that_cost_their_reader_more_than_their_bytes_are_refused(ask: Asker) -> None:
    few = "select true from range(1000)"
    many = "select true from range(400000)"
    shape = TypedRows(("boolean",), None, is_cut=False)
    assert len(msgspec.msgpack.decode(await ask(few, shape))) == 1000
    with pytest.raises(LimitExceeded):
        await ask(many, shape)


@pytest.mark.parametrize("rows_max", [None, 3])
async def test_a_query_error_quotes_the_text_that_the_caller_wrote(
    rows_max: int | None, ask: Asker
) -> None:
    with pytest.raises(InvalidRequest, match="select nothing") as caught:
        await ask("select nothing from [//t]", Encoded("json"), rows_max)
    assert "limit" not in str(caught.value)
    with pytest.raises(InvalidRequest):
        await ask("select v::int + 'x' from [//t]", Encoded("json"), rows_max)
    assert len(ask.queries.pids) == 1, "a mistake is no reason to begin anew"


async def test_a_query_process_ends_when_the_caller_cancels_the_query(ask: Asker) -> None:
    asking = asyncio.create_task(ask(ENDLESS, Encoded("json")))
    await until(lambda: bool(ask.queries.pids))
    (pid,) = ask.queries.pids
    await asyncio.sleep(0.3)
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    await until(lambda: is_gone(pid))
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(ask(ENDLESS, Encoded("json")), 0.5)
    await until(lambda: not ask.queries.pids)


async def test_one_process_waits_for_the_next_query(ask: Asker) -> None:
    warming = asyncio.create_task(ask.queries.stay_warm())
    try:
        await until(lambda: len(ask.queries.pids) == 1)
        (first,) = ask.queries.pids
        await ask("select 1", Encoded("json"))
        assert ask.queries.pids == [first]
        os.kill(first, signal.SIGKILL)
        with suppress(LimitExceeded):  # unless its end was noticed before
            await ask("select 1", Encoded("json"))
        await until(lambda: [it for it in ask.queries.pids if it != first] != [])
    finally:
        warming.cancel()


async def test_a_query_process_has_resource_limits_and_no_secrets(
    ask: Asker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DODONA_CLUSTER_KEY", "a-key-that-nobody-else-has")
    await ask("select 1", Encoded("json"))
    (pid,) = ask.queries.pids
    process = Path(f"/proc/{pid}")
    assert b"DODONA" not in (process / "environ").read_bytes()
    limits = (process / "limits").read_text()
    bounds = {line[:25].strip(): line[26:46].strip() for line in limits.splitlines()}
    assert bounds["Max file size"] == "0"
    assert bounds["Max core file size"] == "0"
    added = int(bounds["Max address space"]) - (BOUNDS.memory_mib_max * MEMORY_FACTOR << 20)
    assert 0 < added < 4 << 30
    assert int(bounds["Max cpu time"]) <= 60
    sockets = [it for it in (process / "fd").iterdir() if "socket" in os.readlink(it)]
    assert len(sockets) <= 2, "its two pipes may be sockets"


_ORPHAN = """
import asyncio, sys
from dodona._core.protocol.limits import QueryLimits
from dodona._core.reading.query import Query
from dodona_gateway.shell.queries import QueryBounds, QueryProcess
async def main():
    process = await QueryProcess.start(QueryBounds(1 << 20, 60, 256))
    print(process.pid, flush=True)
    query = Query(sys.argv[1], [], QueryLimits())
    await process.plan(query, None)
    print("planned", flush=True)
    from dodona_gateway.core.query_work import Encoded
    await process.compute(query, Encoded("json"))
asyncio.run(main())
"""


async def test_a_query_process_ends_when_its_gateway_dies() -> None:
    with program(
        [sys.executable, "-c", _ORPHAN, ENDLESS], stdout=subprocess.PIPE, text=True
    ) as gateway:
        assert gateway.stdout is not None
        pid = int(gateway.stdout.readline())
        assert gateway.stdout.readline() == "planned\n"
        await asyncio.sleep(0.3)
        assert not is_gone(pid)
        gateway.kill()
    await until(lambda: is_gone(pid))


# ---- over HTTP


def test_every_type_of_sql_leaves_in_every_form(rest: Rest) -> None:
    transaction = rest("begin_transaction")["transaction"]
    texts = [f"null::{it} as c{place}" for place, it in enumerate(SQL_TYPES)]
    values = "1::bigint as a, 'x' as b, [1.5] as c, {'d': 'e'::blob} as d, interval '1 day' as e"
    for sql in (f"select {', '.join(texts)}", f"select {values}", "select 1 as it where false"):
        for operation, its_id in (("query_rows", ""), ("query_rows_in_transaction", transaction)):
            answer = ask_for(rest, operation, its_id, sql, ARROW_TYPE)
            assert answer.status_code == 200, answer.text
            assert answer.headers["content-type"] == ARROW_TYPE
            table = pyarrow.ipc.open_stream(answer.content).read_all()
            as_json = ask_for(rest, operation, its_id, sql, "application/json").json()
            packed = ask_for(rest, operation, its_id, sql, "application/msgpack").content
            assert table.column_names == as_json["columns"]
            assert msgspec.msgpack.decode(packed)["types"] == as_json["types"]
            assert table.num_rows == len(as_json["rows"])


def test_a_gateway_survives_every_query(rest: Rest) -> None:
    problem = problem_of(
        ask_for(rest, "query_rows", "", "select repeat('x', 500000000)", ARROW_TYPE)
    )
    assert problem.kind == "limit_exceeded"
    assert rest("query_rows", sql="select 1 as it")["rows"] == [[1]]


CALLERS_PER_SLOT = 3


def test_more_callers_than_there_may_be_queries_get_their_own_answers(
    gateways: LocalCluster,
) -> None:
    """Over both interfaces; what is too much for one of them is not theirs."""
    url = gateways.gateway_urls[0]
    with Rest(url) as rest:
        rest("create_table", path="//callers", schema=SCHEMA, mount=True)
        rest("insert_rows", table="//callers", rows=[{"k": it, "v": "x"} for it in range(100)])

    def over_rest(number: int) -> list[Any]:
        with Rest(url) as rest:
            found = rest("query_rows", sql=f"select k from [//callers] where k = {number}")
        return [tuple(it) for it in found["rows"]]

    def over_yt(number: int) -> list[Any]:
        answer = ask_yt(
            url, "select_rows", {"query": f"k from [//callers] where k = {number}", **YT_JSON}
        )
        assert answer.status_code == 200, answer.text
        return [(json.loads(it)["k"],) for it in answer.text.splitlines()]

    def too_much(number: int) -> list[Any]:
        with Rest(url) as rest:
            assert rest.refused("query_rows", sql=TOO_MUCH[0]).kind == "limit_exceeded"
        return [(number,)]

    ways = [over_rest, over_yt, over_rest, too_much]
    count = CALLERS_PER_SLOT * GatewaySettings.model_fields["query_count_max"].default
    with ThreadPoolExecutor(count) as pool:
        found = pool.map(lambda it: ways[it % len(ways)](it), range(4 * count))
    assert list(found) == [[(it,)] for it in range(4 * count)]


def ask_for(rest: Rest, operation: str, its_id: str, sql: str, form: str) -> Any:
    path = "/v1/query" if not its_id else f"/v1/transactions/{its_id}/query"
    return rest.http.post(path, json={"sql": sql}, headers={"accept": form})
