"""SQL over an embedded database: what comes out, at which timestamp, and of which types."""

import asyncio
import builtins
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
import pyarrow
import pytest

import dodona
import dodona.aio
from dodona._core.protocol import steps
from dodona._core.protocol.limits import QueryLimits
from dodona._core.sql.engine import Engine
from dodona.errors import InvalidRequest, LimitExceeded, TransactionClosed
from dodona_wire.messages.data import ScanArrow
from dodona_wire.rows.text_format import format_any, read_value

FLIGHTS = "//nyc13/flights"
AIRLINES = "//nyc13/airlines"
Steps = steps.Protocol[Any]


@pytest.fixture
def db(tmp_path: Path) -> Iterator[dodona.Client]:
    with dodona.open(str(tmp_path / "data")) as db:
        make_tables(db)
        yield db


def make_tables(db: dodona.Client) -> None:
    column = dodona.Column
    flights = [
        column("day", "int64", "ascending"),
        column("number", "int64", "ascending"),
        column("carrier", "utf8"),
        column("delay", "int64"),
    ]
    db.create_table(FLIGHTS, flights, pivot_keys=[[], [2]], mount=True)
    db.create_table(
        AIRLINES, [column("carrier", "utf8", "ascending"), column("name", "utf8")], mount=True
    )
    db.insert_rows(FLIGHTS, [flight(1, 1, "AA", 5), flight(1, 2, "UA", None), flight(3, 1, "AA")])
    db.insert_rows(AIRLINES, [{"carrier": "AA", "name": "American"}])


def flight(day: int, number: int, carrier: str, delay: int | None = 10) -> dict[str, Any]:
    return {"day": day, "number": number, "carrier": carrier, "delay": delay}


def before_scan(db: dodona.Client, number: int, act: Callable[[], object]) -> None:
    """Have something happen before the scan of that number, counted from 1, goes out."""
    run, count = db._run, 0

    def watched(protocol: Steps) -> Steps:
        nonlocal count
        replies: Any = None
        while True:
            try:
                step = protocol.send(replies)
            except StopIteration as stop:
                return stop.value
            if isinstance(step, steps.Calls) and isinstance(step.requests[0][1], ScanArrow):
                count += 1
                if count == number:
                    act()
            replies = yield step

    db._run = lambda protocol, *timeout: run(watched(protocol), *timeout)


# ---- what SQL can do


def test_columns_conditions_and_order(db: dodona.Client) -> None:
    found = db.query(f"select number, delay from [{FLIGHTS}] where day = 1 order by number desc")
    assert found.to_pylist() == [{"number": 2, "delay": None}, {"number": 1, "delay": 5}]


def test_rows_come_in_key_order_and_a_limit_takes_the_first(db: dodona.Client) -> None:
    assert db.query(f"select day, number from [{FLIGHTS}] limit 2").to_pydict() == {
        "day": [1, 1],
        "number": [1, 2],
    }


def test_tables_are_joined(db: dodona.Client) -> None:
    found = db.query(f"""
        select a.name, count(*) as flights, sum(f.delay)::bigint as delay
        from [{FLIGHTS}] f left join [{AIRLINES}] a using (carrier)
        group by all order by flights
    """)
    assert found.to_pylist() == [
        {"name": None, "flights": 1, "delay": None},
        {"name": "American", "flights": 2, "delay": 15},
    ]


def test_a_table_joins_itself(db: dodona.Client) -> None:
    found = db.query(
        f"select a.number, b.day from [{FLIGHTS}] a join [{FLIGHTS}] b using (number) "
        "where a.day = 1 and b.day = 3"
    )
    assert found.to_pylist() == [{"number": 1, "day": 3}]


@pytest.mark.parametrize(
    "text",
    [
        "with late as (select * from [//nyc13/flights] where delay > 7) select day from late",
        "select day from (from [//nyc13/flights] where number = 1) where delay = 10",
        "from [//nyc13/flights] f select day where delay > (select 7)",
        "select day from [//nyc13/flights] where number in (select 1) and day >= 2",
        "from [//nyc13/flights] select day where day > 1",
        "select [//nyc13/flights].day from [//nyc13/flights] where [//nyc13/flights].day > 1",
        'select "the flights".DAY as day from [//nyc13/flights] "the flights" where day > 1',
        "select 3::bigint as day",
        "select it::bigint as day from (values (3)) list(it)",
        "select range as day from range(3, 4)",
    ],
)
def test_every_shape_of_a_query(db: dodona.Client, text: str) -> None:
    assert db.query(text).to_pydict() == {"day": [3]}


def test_a_query_with_an_empty_result_returns_all_columns_with_their_types(
    db: dodona.Client,
) -> None:
    for condition in ("1 = 0", "day > 5 and day < 3", "day = 77", "delay is null and delay = 1"):
        found = db.query(f"select *, day + 1 as tomorrow from [{FLIGHTS}] where {condition}")
        assert found.num_rows == 0
        assert found.schema.names == ["day", "number", "carrier", "delay", "tomorrow"]
        assert found.schema.field("carrier").type == pyarrow.string()


def test_an_empty_table(db: dodona.Client) -> None:
    db.create_table(
        "//empty",
        [dodona.Column("k", "uint64", "ascending"), dodona.Column("v", "any")],
        mount=True,
    )
    assert db.query(
        "select count(*) as n, max(k) as k, max(v) as v from [//empty]"
    ).to_pylist() == [{"n": 0, "k": None, "v": None}]
    assert db.query("select * from [//empty]").schema == pyarrow.schema(
        [("k", pyarrow.uint64()), ("v", pyarrow.string())]
    )


# ---- types


@pytest.fixture
def typed(db: dodona.Client) -> dodona.Client:
    types = {"i": "int64", "u": "uint64", "d": "double", "b": "boolean", "s": "string"}
    columns = [
        {"name": name, "type": it} for name, it in {**types, "t": "utf8", "x": "any"}.items()
    ]
    key = {"name": "k", "type": "string", "sort_order": "ascending"}
    db.create_table("//typed", [key, *columns, {"name": 'a "b', "type": "int64"}], mount=True)
    whole = {
        "k": b"\xff\x00",
        "i": -(2**63),
        "u": 2**64 - 1,
        "d": 0.1,
        "b": True,
        "s": b"\x00'\\\xfe",
        "t": "é'\n",
        "x": {"list": [1, None, 2**64 - 1], "text": "é", "bytes": b"\xff"},
        'a "b': 7,
    }
    db.insert_rows("//typed", [whole, {"k": "plain", "s": "plain"}])
    return db


NAN, INF = float("nan"), float("inf")
LIKENESSES: list[Any] = [
    *(None, NAN, "NaN", INF, -INF, "Infinity", 0.0, -0.0, 0, False, "", b"", [], {}, "null"),
    *(b"\xff", "/w==", "\xff", b"text", "text", 1, 1.0, "1", True, (1 << 64) - 1, -(1 << 63)),
    *({"$base64": "/w=="}, {"$double": "NaN"}, {"$dict": {"$base64": "/w=="}}, {"$dict": {}}),
    *({"$base64": "", "b": 1}, ["\xc4\xca", b"\xc4"], {"\x7f\xf0": "\x7f\xf8"}),
]


def test_values_of_type_any_are_spelled_as_everywhere_and_no_two_alike(db: dodona.Client) -> None:
    column = dodona.Column
    db.create_table("//any", [column("k", "int64", "ascending"), column("v", "any")], mount=True)
    values = [*LIKENESSES, *([it] for it in LIKENESSES), *({"a": [it]} for it in LIKENESSES)]
    db.insert_rows("//any", [{"k": key, "v": it} for key, it in enumerate(values)])
    texts = db.query("select v from [//any] order by k").column("v").to_pylist()
    assert texts[0] is None
    assert len({*texts}) == len(values)
    looked_up = [
        row["v"] for row in db.lookup_rows("//any", [{"k": it} for it in range(len(values))])
    ]
    assert texts[1:] == [msgspec.json.encode(format_any(it)).decode() for it in looked_up[1:]]
    read = [read_value(column("v", "any"), msgspec.json.decode(it)) for it in texts[1:]]
    assert repr(read) == repr(looked_up[1:]) == repr(values[1:])


def test_values_come_out_as_they_went_in(typed: dodona.Client) -> None:
    (plain, whole) = typed.query("select * from [//typed]").to_pylist()
    assert whole == {
        "k": b"\xff\x00",
        "i": -(2**63),
        "u": 2**64 - 1,
        "d": 0.1,
        "b": True,
        "s": b"\x00'\\\xfe",
        "t": "é'\n",
        "x": '{"list":[1,null,18446744073709551615],"text":"é","bytes":{"$base64":"/w=="}}',
        'a "b': 7,
    }
    assert plain == {**dict.fromkeys(whole), "k": b"plain", "s": b"plain"}


@pytest.mark.parametrize(
    "condition",
    [
        "i = -9223372036854775808",
        "u = 18446744073709551615",
        "d = 0.1::double",
        "b",
        "t = 'é''\n'",
        r"s = '\x00\x27\x5C\xFE'::blob",
        r"k = '\xFF\x00'",
        "k > 'plain'",
        "u > 1",
        "x->>'text' = 'é'",
        "x->>'$.list[2]' = '18446744073709551615'",
        '"a ""b" = 7',
        "k != 'plain' and k is not null",
    ],
)
def test_a_value_of_each_type_is_found(typed: dodona.Client, condition: str) -> None:
    found = typed.query(f"select k from [//typed] where {condition}")
    assert found.to_pydict() == {"k": [b"\xff\x00"]}


def test_string_columns_compare_with_text(typed: dodona.Client) -> None:
    for condition in (
        "k = 'plain'",
        "k in ('plain', 'other')",
        "k between 'a' and 'z'",
        "s = encode('plain')",
        "k < 'q' and decode(k) like 'pl%'",
    ):
        assert typed.query(f"select k from [//typed] where {condition}").num_rows == 1, condition
    joined = typed.query("select a.k from [//typed] a join (select 'plain' as t) b on a.k = b.t")
    assert joined.to_pydict() == {"k": [b"plain"]}


def test_names_that_differ_in_case_only_stay_apart(db: dodona.Client) -> None:
    key = {"name": "a", "type": "int64", "sort_order": "ascending"}
    db.create_table("//Case", [key, {"name": "A", "type": "int64"}], mount=True)
    db.insert_rows("//Case", [{"a": 1, "A": 2}])
    assert db.query("select * from [//Case]").to_pylist() == [{"a": 1, "A_1": 2}]
    db.create_table("//case", [key, {"name": "A", "type": "int64"}], mount=True)
    with pytest.raises(InvalidRequest, match="//Case"):
        db.query("select * from [//Case] join [//case] using (a)")


# ---- which timestamp


def test_a_query_reads_the_snapshot_of_its_timestamp(
    db: dodona.Client,
) -> None:
    before = db.generate_timestamp()
    db.insert_rows(FLIGHTS, [flight(9, 9, "UA")])
    text = f"select count(*) as n from [{FLIGHTS}]"
    assert db.query(text).to_pydict() == {"n": [4]}
    assert db.query(text, timestamp=before).to_pydict() == {"n": [3]}
    assert db.query(text, None, before).to_pydict() == {"n": [3]}


def test_all_tables_are_read_at_one_timestamp_while_writers_go_on(db: dodona.Client) -> None:
    text = f"select f.day, a.name from [{FLIGHTS}] f full join [{AIRLINES}] a using (carrier)"
    text = f"{text} order by 1, 2"
    expected = db.query(text)

    def write() -> None:
        with db.begin() as tx:
            tx.insert_rows(FLIGHTS, [flight(1, 1, "ZZ"), flight(7, 7, "UA")])
            tx.insert_rows(AIRLINES, [{"carrier": "UA", "name": "United"}])

    before_scan(db, 2, write)
    assert db.query(text).equals(expected)
    assert db.query(text).num_rows == 4, "the writer did write, between the two scans"


def test_a_query_in_a_transaction_reads_the_snapshot_of_its_start(db: dodona.Client) -> None:
    text = f"select day from [{FLIGHTS}] where day >= 3"
    with db.begin() as tx:
        tx.insert_rows(FLIGHTS, [flight(4, 1, "AA")])
        db.insert_rows(FLIGHTS, [flight(5, 1, "AA")])
        assert tx.query(text).to_pydict() == {"day": [3]}
    assert db.query(text).to_pydict() == {"day": [3, 4, 5]}
    with pytest.raises(TransactionClosed):
        tx.query(text)


def test_tables_of_atomicity_none_are_read_at_their_newest(db: dodona.Client) -> None:
    key = {"name": "day", "type": "int64", "sort_order": "ascending"}
    schema = [key, {"name": "seen", "type": "boolean"}]
    db.create_table("//log", schema, atomicity="none", mount=True)
    db.insert_rows("//log", [{"day": 3, "seen": True}])
    text = f"select day, seen from [{FLIGHTS}] join [//log] using (day)"
    before_scan(db, 2, lambda: db.insert_rows("//log", [{"day": 1, "seen": False}]))
    assert db.query(f"{text} order by day").to_pydict() == {
        "day": [1, 1, 3],
        "seen": [False, False, True],
    }
    with db.begin(atomicity="none") as tx:
        assert tx.query("select count(*) as n from [//log]").to_pydict() == {"n": [2]}


def test_a_timestamp_must_be_one(db: dodona.Client) -> None:
    with pytest.raises(InvalidRequest, match="timestamp"):
        db.query("select 1", timestamp=-5)  # type: ignore[arg-type]


def test_the_errors_of_reads_are_those_of_select(db: dodona.Client) -> None:
    db.unmount_table(AIRLINES)
    with pytest.raises(dodona.TableNotMounted):
        db.query(f"select * from [{AIRLINES}]")


# ---- bounds


def bounded(db: dodona.Client, limits: QueryLimits) -> None:
    context = db._session._context
    context.limits = msgspec.structs.replace(context.limits, query=limits)


def test_rows_read_are_bounded(db: dodona.Client) -> None:
    bounded(db, QueryLimits(rows_max=3))
    assert db.query(f"select count(*) as n from [{FLIGHTS}]").to_pydict() == {"n": [3]}
    with pytest.raises(LimitExceeded) as caught:
        db.query(f"select count(*) from [{FLIGHTS}] cross join [{AIRLINES}]")
    assert caught.value.attributes == {"query_rows_max": 3}


def test_rows_of_the_result_are_bounded(db: dodona.Client) -> None:
    bounded(db, QueryLimits(rows_max=500_000))
    assert db.query("from range(500000)").num_rows == 500_000
    with pytest.raises(LimitExceeded, match="The result"):
        db.query("from range(1000000000)")


def test_memory_is_bounded(db: dodona.Client) -> None:
    bounded(db, QueryLimits(memory_mib_max=64))
    with pytest.raises(LimitExceeded, match="64 MiB"):
        db.query("select list(range) from range(100000000)")
    db.insert_rows(AIRLINES, [{"carrier": "big", "name": "x" * 2_000_000}])
    bounded(db, QueryLimits(memory_mib_max=1))
    text = f"select length(name) from [{AIRLINES}]"
    with pytest.raises(LimitExceeded, match="The data that the query reads"):
        db.query(text)
    tx = db.begin(read_own_writes=True)
    tx.delete_rows(AIRLINES, [{"carrier": "AA"}])  # now rows are read, and not Arrow
    with pytest.raises(LimitExceeded, match="The data that the query reads"):
        tx.query(text)


def test_the_text_is_bounded(db: dodona.Client) -> None:
    bounded(db, QueryLimits(text_length_max=10))
    assert db.query("select 123").num_rows == 1
    with pytest.raises(LimitExceeded):
        db.query("select 1234")


# ---- without the extra, and with asyncio


@pytest.mark.parametrize("module", ["duckdb", "pyarrow"])
def test_a_query_without_the_sql_extra_names_the_extra_to_install(
    db: dodona.Client, monkeypatch: pytest.MonkeyPatch, module: str
) -> None:
    imported = builtins.__import__

    def missing(name: str, *rest: Any, **named: Any) -> Any:
        if name == module:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return imported(name, *rest, **named)

    monkeypatch.setattr(builtins, "__import__", missing)
    with pytest.raises(InvalidRequest, match=r"dodona\[sql\]") as caught:
        db.query("select 1")
    assert caught.value.attributes == {"missing": module}


@pytest.mark.anyio
async def test_the_twin_for_asyncio(tmp_path: Path) -> None:
    async with await dodona.aio.open(str(tmp_path / "data")) as db:
        key = {"name": "k", "type": "int64", "sort_order": "ascending"}
        await db.create_table("//t", [key, {"name": "v", "type": "int64"}], mount=True)
        await db.insert_rows("//t", [{"k": 1, "v": 2}])
        before = await db.generate_timestamp()
        async with db.begin() as tx:
            await db.insert_rows("//t", [{"k": 2, "v": 3}])
            assert (await tx.query("select sum(v)::int as v from [//t]")).to_pydict() == {"v": [2]}
        assert (await db.query("select sum(v)::int as v from [//t]")).to_pydict() == {"v": [5]}
        assert (await db.query("from [//t]", None, before)).to_pydict() == {"k": [1], "v": [2]}
        with pytest.raises(InvalidRequest, match="nothing"):
            await db.query("select nothing from [//t]")


@pytest.mark.anyio
async def test_the_loop_goes_on_while_duckdb_computes_and_a_cancelled_query_stops(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended = asyncio.Event()
    loop = asyncio.get_running_loop()
    run = Engine.run

    def watched(engine: Engine, text: str, values: Mapping[str, Any]) -> Any:
        loop.call_soon_threadsafe(started.set)
        try:
            return run(engine, text, values)
        finally:
            loop.call_soon_threadsafe(ended.set)

    started = asyncio.Event()
    monkeypatch.setattr(Engine, "run", watched)
    async with await dodona.aio.open(str(tmp_path / "data")) as db:
        endless = "select count(*) from range(100000000) a, range(100000000) b where a.range != 1"
        query = asyncio.create_task(db.query(endless))
        await started.wait()
        assert await db.generate_timestamp() > 0
        assert not query.done()
        query.cancel()
        with pytest.raises(asyncio.CancelledError):
            await query
        await ended.wait()


def test_a_query_returns_times_with_offset_as_text(db: dodona.Client) -> None:
    """As text, since Arrow's times have no offset."""
    found = db.query(
        "select t, 1 as t, time '01:02:03' as u from (values (timetz '12:00:00+02'), "
        "(null), (timetz '01:00:00-05:30')) v(t)"
    )
    assert found.column(0).to_pylist() == ["12:00:00+02", None, "01:00:00-05:30"]
    assert found.column_names == ["t", "t", "u"]
    for within in ("[timetz '12:00:00+02']", "{'a': timetz '12:00:00+02'}"):
        with pytest.raises(
            InvalidRequest, match=r"offsets would be lost\. Cast the column to text"
        ):
            db.query(f"select {within} as x")
