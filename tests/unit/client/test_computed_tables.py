"""Tables with computed key columns, in an embedded database: every call that takes rows or keys.

Owns: that keys and rows may leave out computed columns, that a wrong value is refused by each call,
and how few rows a query reads. test_computed_columns.py has the expressions.
"""

import math
from collections.abc import Callable, Iterator
from datetime import date, timedelta
from itertools import product
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dodona
from dodona._core.protocol import steps
from dodona._core.protocol.limits import SessionLimits
from dodona._core.sql.pushdown import RANGES_MAX
from dodona.errors import SchemaViolation
from dodona.schema import Column, TableSchema
from dodona_wire.expressions.farm_hash import farm_hash
from dodona_wire.messages.data import ArrowPage
from dodona_wire.rows.computed_column import Computed
from suite.levels import examples, share

KEY = {"sort_order": "ascending"}
SCHEMA: list[dict[str, Any]] = [
    {"name": "hash", "type": "uint64", "expression": "farm_hash(user) % 16", **KEY},
    {"name": "user", "type": "utf8", **KEY},
    {"name": "n", "type": "int64", **KEY},
    {"name": "v", "type": "int64"},
]
EVENTS: list[dict[str, Any]] = [
    {"name": "month", "type": "date", "expression": "timestamp_floor_month(day)", **KEY},
    {
        "name": "hash",
        "type": "uint64",
        "expression": "farm_hash(kind, day) % 4",
        **KEY,
    },
    {"name": "kind", "type": "string", **KEY},
    {"name": "day", "type": "date", **KEY},
    {"name": "v", "type": "int64"},
]


def hash_of(user: str | None) -> int:
    return farm_hash(None if user is None else user.encode()) % 16


def whole(user: str | None, at: int, v: int | None) -> dict[str, Any]:
    return {"hash": hash_of(user), "user": user, "n": at, "v": v}


@pytest.fixture
def db(tmp_path: Path) -> Iterator[dodona.Client]:
    with dodona.open(tmp_path / "db") as opened:
        opened.create_table("//t", SCHEMA, pivot_keys=[[], [4], [8], [12]], mount=True)
        yield opened


def test_rows_of_a_transaction_leave_out_a_computed_column(db: dodona.Client) -> None:
    with db.begin() as tx:
        tx.insert_rows("//t", [{"user": "x", "n": 1, "v": 1}, {"user": None, "n": 1, "v": 2}])
    found = db.lookup_rows("//t", [{"user": "x", "n": 1}, {"user": None, "n": 1}])
    assert found == [whole("x", 1, 1), whole(None, 1, 2)]
    with db.begin() as tx:
        (row,) = tx.lookup_rows("//t", [{"user": "x", "n": 1}])
        tx.insert_rows("//t", [{**row, "v": 5}])
        tx.lock_rows("//t", [{"user": None, "n": 1}])
        tx.delete_rows("//t", [{"user": None, "n": 1}])
    assert db.lookup_rows("//t", [{"user": "x", "n": 1}]) == [whole("x", 1, 5)]
    assert list(db.select("//t")) == [whole("x", 1, 5)]
    (versions,) = db.lookup_versions("//t", [{"user": None, "n": 1}])
    assert versions.key == {"hash": hash_of(None), "user": None, "n": 1}
    assert len(versions.delete_timestamps) == 1


def test_own_writes_are_found_by_a_key_without_the_computed_column(db: dodona.Client) -> None:
    with db.begin(read_own_writes=True) as tx:
        tx.insert_rows("//t", [{"user": "x", "n": 1, "v": 1}])
        assert tx.lookup_rows("//t", [{"user": "x", "n": 1}]) == [whole("x", 1, 1)]


GIVEN: list[Any] = [
    pa.table({"user": ["x", None], "n": [1, 1], "v": [1, 2]}),
    pa.table({"v": [1, 2], "n": [1, 1], "user": ["x", None]}),
    [{"user": "x", "n": 1, "v": 1}, {"user": None, "n": 1, "v": 2}],
    [whole("x", 1, 1), {"user": None, "n": 1, "v": 2}],
    {"user": ["x", None], "n": [1, 1], "v": [1, 2]},
]


@pytest.mark.parametrize("data", GIVEN, ids=lambda it: type(it).__name__)
@pytest.mark.parametrize("mode", ["upsert", "insert"])
def test_a_frame_leaves_out_a_computed_column(db: dodona.Client, data: Any, mode: Any) -> None:
    db.write("//t", data, mode=mode)
    rows = sorted([whole("x", 1, 1), whole(None, 1, 2)], key=lambda it: it["hash"])
    assert list(db.select("//t")) == rows
    back = db.query("select * from [//t]")
    db.write("//t", back)
    db.write("//t", back.select(["user", "n", "v"]), mode="update")
    db.write("//t", back.select(["user", "n"]), mode="delete")
    assert list(db.select("//t")) == []


def wrong_calls(db: dodona.Client) -> list[Callable[[], Any]]:
    bad = {**whole("x", 1, 1), "hash": hash_of("x") ^ 1}
    key = {name: bad[name] for name in ("hash", "user", "n")}
    good = whole("y", 1, 1)
    table = pa.Table.from_pylist([good, bad])
    load = db.loads.begin(["//t"])
    return [
        lambda: db.insert_rows("//t", [good, bad]),
        lambda: db.insert_rows("//t", [good, bad], update=True),
        lambda: db.lookup_rows("//t", [{"user": "y", "n": 1}, key]),
        lambda: db.delete_rows("//t", [{"user": "y", "n": 1}, key]),
        lambda: db.lookup_versions("//t", [{"user": "y", "n": 1}, key]),
        lambda: db.write("//t", table),
        lambda: db.write("//t", [good, bad]),
        lambda: db.write("//t", [{"user": "y", "n": 1, "v": 1}, bad]),
        lambda: db.write("//t", table.select(["hash", "user", "n"]), mode="delete"),
        lambda: load.write("//t", table),
    ]


@pytest.mark.parametrize("place", range(10))
def test_each_call_refuses_a_wrong_value(db: dodona.Client, place: int) -> None:
    with pytest.raises(SchemaViolation, match=r"'hash' is .* its expression gives") as error:
        wrong_calls(db)[place]()
    assert error.value.attributes["row_index"] == 1
    assert error.value.attributes["computed"] == str(hash_of("x"))
    assert list(db.select("//t")) == []


def test_a_row_without_a_value_is_named(db: dodona.Client) -> None:
    schema = [{**SCHEMA[2], "name": "c", "expression": "100 / n"}, SCHEMA[2], SCHEMA[3]]
    db.create_table("//d", schema, mount=True)
    rows = [{"n": 5, "v": 1}, {"n": 0, "v": 1}]
    for call in (db.insert_rows, db.write):
        with pytest.raises(SchemaViolation, match="divides by zero") as error:
            call("//d", rows)
        assert error.value.attributes["row_index"] == 1


def test_an_expression_that_no_row_can_compute_is_refused(db: dodona.Client) -> None:
    schema = [{**SCHEMA[2], "name": "c", "expression": "if(n > 5, n % 0, n)"}, *SCHEMA[2:]]
    db.unmount_table("//t")
    calls: list[Callable[[], Any]] = [
        lambda: db.create_table("//d", schema),
        lambda: db.create_table("//d", TableSchema(tuple(Column(**it) for it in schema))),
        lambda: db.alter_table("//t", schema),
    ]
    for call in calls:
        with pytest.raises(SchemaViolation, match=r"'c' is wrong.*divides by zero") as error:
            call()
        assert error.value.attributes["column"] == "c"
        assert error.value.attributes["expression"] == "'if(n > 5, n % 0, n)'"
    assert not db.exists("//d")


def test_a_stored_table_with_an_impossible_expression_opens(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    schema = [{**SCHEMA[2], "name": "c", "expression": "n / 0"}, *SCHEMA[2:]]
    with monkeypatch.context() as older:
        older.setattr(Computed, "check_possible", lambda self: None)
        with dodona.open(tmp_path / "older") as db:
            db.create_table("//d", schema, mount=True)
            db.insert_rows("//d", [{"n": None, "v": 1}])
    with dodona.open(tmp_path / "older") as db:
        assert list(db.select("//d")) == [{"c": None, "n": None, "v": 1}]
        assert db.query("select v from [//d]").to_pylist() == [{"v": 1}]
        with pytest.raises(SchemaViolation, match="divides by zero"):
            db.insert_rows("//d", [{"n": 1, "v": 1}])
        db.unmount_table("//d")
        db.alter_table("//d", [*schema, {"name": "w", "type": "int64"}])
        db.mount_table("//d")
        assert list(db.select("//d")) == [{"c": None, "n": None, "v": 1, "w": None}]


def test_a_schema_keeps_its_expressions(db: dodona.Client) -> None:
    schema = db.get_table("//t").schema
    assert schema.columns[0].expression == "farm_hash(user) % 16"
    assert "expression=farm_hash(user) % 16" in repr(db.get_table("//t"))
    assert "farm_hash(user) % 16" in db.get_table("//t")._repr_html_()
    db.create_table("//copy", schema, mount=True)
    assert db.get_table("//copy").schema == schema


def test_an_expression_never_changes(db: dodona.Client) -> None:
    db.unmount_table("//t")
    for expression in ("farm_hash(user) % 17", None):
        changed = [{**SCHEMA[0], "expression": expression}, *SCHEMA[1:]]
        with pytest.raises(SchemaViolation, match="The expression of a column can't change"):
            db.alter_table("//t", changed)
    added = {"name": "c", "type": "int64", "expression": "n + 1", **KEY}
    with pytest.raises(SchemaViolation, match="A new column can't be computed"):
        db.alter_table("//t", [*SCHEMA[:3], added, SCHEMA[3]])
    db.alter_table("//t", [*SCHEMA, {"name": "w", "type": "int64"}])
    db.mount_table("//t")
    db.insert_rows("//t", [{"user": "x", "n": 1, "w": 2}])
    assert db.lookup_rows("//t", [{"user": "x", "n": 1}]) == [{**whole("x", 1, None), "w": 2}]


# ---- what queries read


@pytest.fixture
def filled(db: dodona.Client) -> dodona.Client:
    users = [f"u{it}" for it in range(50)]
    db.write("//t", [{"user": it, "n": at, "v": at} for it in users for at in range(4)])
    db.create_table("//e", EVENTS, mount=True)
    days = [date(2024, 1, 1) + timedelta(it) for it in range(120)]
    db.write("//e", [{"kind": it, "day": day, "v": 1} for it in (b"a", b"b") for day in days])
    return db


def rows_read(db: dodona.Client, text: str, **how: Any) -> tuple[int, pa.Table]:
    """How many rows the query reads, and its result."""
    counts, found = pages_read(db, text, **how)
    return sum(map(sum, counts)), found


def pages_read(db: dodona.Client, text: str, **how: Any) -> tuple[list[list[int]], pa.Table]:
    """How many rows each page of each step has that reads rows, and the result of the query."""
    run, counts = db._run, []

    def watched(protocol: steps.Protocol[Any]) -> steps.Protocol[Any]:
        replies: Any = None
        while True:
            try:
                step = protocol.send(replies)
            except StopIteration as stop:
                return stop.value
            replies = yield step
            pages = [it.row_count for it in replies or () if isinstance(it, ArrowPage)]
            counts.extend([pages] if pages else [])

    db._run = lambda protocol, *timeout: run(watched(protocol), *timeout)
    try:
        found = db.query(text, **how)
    finally:
        db._run = run
    return counts, found


def test_the_rows_of_several_values_are_read_side_by_side(filled: dodona.Client) -> None:
    users = [f"u{it}" for it in range(RANGES_MAX)]
    text = "select user, n, v from [//t] where user in $users order by user, n"
    steps, found = pages_read(filled, text, parameters={"users": users})
    assert [len(it) for it in steps] == [SessionLimits().requests_in_flight_max] * 2
    assert [sum(it) for it in steps] == [64, 64]
    assert found.to_pylist() == [
        {"user": user, "n": n, "v": n} for user in sorted(users) for n in range(4)
    ]
    with filled.begin(read_own_writes=True) as tx:
        tx.insert_rows("//t", [{"user": "u7", "n": 9, "v": 9}])
        tx.delete_rows("//t", [{"user": "u3", "n": 0}])
        rows = tx.query(text, {"users": ["u3", "u7"]}).to_pylist()
    assert [(it["user"], it["n"]) for it in rows] == [
        *[("u3", it) for it in (1, 2, 3)],
        *[("u7", it) for it in (0, 1, 2, 3, 9)],
    ]


@pytest.mark.parametrize(
    ("condition", "most"),
    [
        ("user = 'u7' and n = 2", 1),
        ("user = 'u7'", 4),
        ("'u7' = user and n >= 2", 2),
        ("user = 'u7' and v > 100", 4),
        ("user in ('u7', 'u9')", 8),
        ("user in ('u7', 'u9', 'u7') and n = 1", 2),
        ("(user = 'u7' or user = 'u9') and n in (1, 3)", 6),
        ("user = 'u7' and hash = 3", 4),
        ("user = 'none'", 0),
        (f"user in ({', '.join(repr(f'u{it}') for it in range(RANGES_MAX + 1))})", 200),
        ("user > 'u7'", 200),
        ("user like 'u7%'", 200),
        ("user is null", 200),
    ],
)
def test_a_query_reads_the_rows_of_its_values_alone(
    filled: dodona.Client, condition: str, most: int
) -> None:
    # A long list of values becomes a join, whose rows come in any order.
    text = f"select * from [//t] where {condition} order by hash, user, n"
    count, found = rows_read(filled, text)
    assert found.num_rows <= count <= most
    everything = filled.query("select * from [//t]").to_pylist()
    filled.create_table("//plain", [{**SCHEMA[0], "expression": None}, *SCHEMA[1:]], mount=True)
    filled.write("//plain", everything)
    assert found.to_pylist() == filled.query(text.replace("//t", "//plain")).to_pylist()


def test_a_negative_zero_has_the_computed_value_of_zero(db: dodona.Client) -> None:
    """They are one key, but `1.0 / d` would tell them apart."""
    inverse = {"name": "inverse", "type": "double", "expression": "1.0 / d", **KEY}
    schema = [inverse, {"name": "d", "type": "double", **KEY}, {"name": "v", "type": "int64"}]
    db.create_table("//z", schema, mount=True)
    db.insert_rows("//z", [{"d": -0.0, "v": 1}])
    assert db.lookup_rows("//z", [{"d": 0.0}]) == db.lookup_rows("//z", [{"d": -0.0}]) != []
    db.write("//z", pa.table({"d": [-0.0], "v": [2]}))
    for zero in ("0.0", "-0.0", "0.0::double", "'-0.0'::double"):
        found = db.query(f"select inverse, v from [//z] where d = {zero}").to_pylist()
        assert found == [{"inverse": math.inf, "v": 2}]
    db.delete_rows("//z", [{"d": -0.0}])
    assert list(db.select("//z")) == []


ORDERS = list(product(["descending", "ascending"], repeat=3))


@pytest.mark.parametrize("orders", share(ORDERS[:-1], one_in=3))
def test_a_query_reads_few_rows_in_each_order_of_the_columns(
    db: dodona.Client, orders: tuple[str, ...]
) -> None:
    keys = [{**it, "sort_order": order} for it, order in zip(SCHEMA[:3], orders, strict=True)]
    db.create_table("//o", [*keys, SCHEMA[3]], mount=True)
    rows = [whole(f"u{user}", at, at) for user in range(30) for at in range(4)]
    given = [{name: it[name] for name in ("user", "n", "v")} for it in rows]
    db.insert_rows("//o", given[:20])
    db.write("//o", given[20:])
    for condition, most, is_wanted in (
        ("user = 'u7'", 4, lambda it: it["user"] == "u7"),
        ("user = 'u7' and n <= 1", 2, lambda it: it["user"] == "u7" and it["n"] < 2),
        ("user in ('u7', 'u9')", 8, lambda it: it["user"] in ("u7", "u9")),
        ("hash > 3 and n = 2", 120, lambda it: it["hash"] > 3 and it["n"] == 2),
    ):
        count, found = rows_read(db, f"select * from [//o] where {condition}")
        wanted = [it for it in rows if is_wanted(it)]
        for key, order in reversed(list(zip(("hash", "user", "n"), orders, strict=True))):
            wanted.sort(key=lambda it: it[key], reverse=order == "descending")
        assert found.to_pylist() == wanted
        assert len(wanted) <= count <= most


@pytest.mark.parametrize(
    ("condition", "most"),
    [
        ("kind = 'a'::blob and day = date '2024-02-03'", 1),
        ("day = date '2024-02-03'", 58),
        ("day between date '2024-02-03' and date '2024-02-05'", 58),
        ("day > date '2024-03-30' and day < date '2024-04-02'", 120),
        ("day >= date '2024-04-02'", 60),
        ("kind = 'a'::blob and day in (date '2024-02-03', date '2024-03-03')", 2),
    ],
)
def test_a_range_of_days_is_a_range_of_months(
    filled: dodona.Client, condition: str, most: int
) -> None:
    count, found = rows_read(filled, f"select * from [//e] where {condition}")
    assert 0 < found.num_rows <= count <= most
    rows = filled.query("select * from [//e]")
    assert found.num_rows == _expected(rows, condition)


def _expected(rows: pa.Table, condition: str) -> int:
    import duckdb

    with duckdb.connect() as connection:
        connection.register("rows", rows)
        found = connection.execute(f"select count(*) from rows where {condition}").fetchone()
    assert found is not None
    return int(found[0])


USERS = st.sampled_from([f"u{it}" for it in range(6)])
ATOMS = st.one_of(
    st.builds("user = '{}'".format, USERS),
    st.lists(USERS, min_size=1, max_size=3).map(
        lambda its: f"user in ({', '.join(map(repr, its))})"
    ),
    st.builds("user {} '{}'".format, st.sampled_from(["<", ">=", "!="]), USERS),
    st.just("user is null"),
    st.builds("n {} {}".format, st.sampled_from(["=", "<", ">"]), st.integers(0, 3)),
    st.builds("hash {} {}".format, st.sampled_from(["=", "<", ">"]), st.integers(0, 15)),
    st.builds("v = {}".format, st.integers(0, 3)),
)
CONDITIONS = st.recursive(
    ATOMS,
    lambda its: st.one_of(
        st.builds("({} and {})".format, its, its),
        st.builds("({} or {})".format, its, its),
        st.builds("(not {})".format, its),
    ),
    max_leaves=6,
)


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dodona.Client]:
    with dodona.open(tmp_path_factory.mktemp("small") / "db") as opened:
        opened.create_table("//t", SCHEMA, mount=True)
        users = [None, *[f"u{it}" for it in range(6)]]
        opened.write("//t", [{"user": it, "n": at, "v": at} for it in users for at in range(4)])
        yield opened


@settings(max_examples=examples(150), deadline=None)
@given(condition=CONDITIONS)
def test_a_narrow_range_misses_no_row(small: dodona.Client, condition: str) -> None:
    found = small.query(f"select * from [//t] where {condition}")
    rows = small.query("select * from [//t]")
    assert found.num_rows == _expected(rows, condition)
