"""`farm_hash` in queries, in SQL and in YTsaurus's language: what a computed key column has.

Owns: that a query gives the value of the column for each type, and how it meets other types.
test_farm_hash.py has the published results.
"""

import uuid
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dodona
from dodona._core.protocol.limits import QueryLimits
from dodona._core.reading.condition import Filter, plan
from dodona._core.sql.engine import Engine
from dodona.errors import InvalidRequest
from dodona_wire.expressions.farm_hash import farm_hash
from dodona_ytsaurus.query.parser import parse
from dodona_ytsaurus.query.translation import to_sql
from suite.levels import examples

LIMITS = QueryLimits()
KEY = {"sort_order": "ascending"}
EARLY, LATE = datetime(1, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, 23, 59, 59, 999_999, UTC)
INPUTS: dict[str, tuple[Any, ...]] = {
    "int8": (-128, 127),
    "int16": (-(2**15), 2**15 - 1),
    "int32": (-(2**31), 2**31 - 1),
    "int64": (-(2**63), 2**63 - 1),
    "uint8": (0, 255),
    "uint16": (0, 2**16 - 1),
    "uint32": (0, 2**32 - 1),
    "uint64": (0, 2**64 - 1),
    "boolean": (False, True),
    "string": (b"", b"\xff\0'" * 30),
    "utf8": ("", "é'" * 40),
    "json": ('{"a":1}', "[]"),
    "date": (date(1970, 1, 1), date(2105, 12, 31)),
    "date32": (date.min, date.max),
    "interval64": (timedelta(-999_999), timedelta(999_999)),
    "uuid": (uuid.UUID(int=0), uuid.UUID(int=2**128 - 1)),
    "decimal(4,2)": (Decimal("-99.99"), Decimal("0.01")),
    "decimal(18,0)": (Decimal(-1), Decimal(10**17)),
    "decimal(38,4)": (Decimal("-1.5"), Decimal(10**33)),
}
"""By type, values at its ends."""
MOMENTS: dict[str, tuple[Any, ...]] = {
    "interval": (timedelta(microseconds=-1), timedelta(49_672, 1, 1)),
    "datetime": (datetime(1970, 1, 1, tzinfo=UTC), datetime(2105, 12, 31, 23, 59, 59, 0, UTC)),
    "datetime64": (EARLY, LATE.replace(microsecond=0)),
    "timestamp": (datetime(1970, 1, 1, tzinfo=UTC), datetime(2100, 1, 1, 0, 0, 0, 1, UTC)),
    "timestamp64": (EARLY, LATE),
}
"""Moments, since DuckDB does not know which number a column stores for them. Intervals of SQL,
since a long one overflows in Arrow's form."""
ALL = {**INPUTS, **MOMENTS}


def table_of(kind: str) -> str:
    return f"//{kind.translate(str.maketrans('(,)', '___'))}"


@pytest.fixture(scope="module")
def db(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dodona.Client]:
    with dodona.open(tmp_path_factory.mktemp("hashes") / "data") as db:
        for kind, values in ALL.items():
            schema: list[dict[str, Any]] = [
                {"name": "h", "type": "uint64", "expression": "farm_hash(x)", **KEY},
                {"name": "m", "type": "uint64", "expression": "farm_hash(n, x, 'a')", **KEY},
                {"name": "x", "type": kind, **KEY},
                {"name": "n", "type": "int64", **KEY},
                {"name": "v", "type": "int64"},
            ]
            db.create_table(table_of(kind), schema, mount=True)
            rows = [{"x": it, "n": n, "v": 1} for it in (*values, None) for n in (-5, None)]
            db.insert_rows(table_of(kind), rows)
        yield db


def argument(kind: str) -> str:
    if kind not in MOMENTS:
        return "x"
    return "epoch(x)::bigint" if kind.startswith("datetime") else "epoch_us(x)"


@pytest.mark.parametrize("kind", ALL)
def test_sql_gives_the_value_of_the_column(db: dodona.Client, kind: str) -> None:
    it = argument(kind)
    found = db.query(
        f"select h = farm_hash({it}) as one, m = Farm_Hash(n, {it}, 'a') as many"
        f" from [{table_of(kind)}]"
    ).to_pylist()
    assert found == [{"one": True, "many": True}] * 6


@pytest.mark.parametrize("kind", ALL)
def test_ytsauruss_language_gives_the_value_of_the_column(db: dodona.Client, kind: str) -> None:
    path = table_of(kind)
    schema = db.get_table(path).schema
    text = f"h = farm_hash(x) as one, m = FARM_HASH(n, x, 'a') as many from [{path}]"
    query = to_sql(parse(text, {}), {path: schema.stored})
    assert stored_query(db, query.sql) == [(True, True)] * 6


def stored_query(db: dodona.Client, sql: str) -> list[tuple[Any, ...]]:
    """The rows of a query that sees stored values."""
    query = db._run(db._session.prepare_query(sql, is_stored=True))
    query.plan()
    db._run(query.fetch(db._session.read_ranges))
    return [tuple(it.values()) for it in query.answer().to_pylist()]


def test_a_moment_is_refused_with_what_to_pass(db: dodona.Client) -> None:
    with pytest.raises(InvalidRequest, match=r"no TIMESTAMP WITH TIME ZONE\. Pass .*epoch_us"):
        db.query("select farm_hash(x) from [//timestamp]")


def test_a_condition_on_a_hash_bounds_the_range(db: dodona.Client) -> None:
    wanted = plan(db.get_table("//utf8").schema, "h = farm_hash('x')")
    assert [lower[0] for lower, _ in wanted.parts()] == [farm_hash(b"x")]
    text = "select count(*) as n from [//utf8] where h = farm_hash($x)"
    assert db.query(text, {"x": INPUTS["utf8"][1]}).to_pylist() == [{"n": 2}]


def test_a_filter_of_rows_in_memory_has_the_function(db: dodona.Client) -> None:
    schema = db.get_table("//utf8").schema
    rows = db.query("select * from [//utf8]")
    condition = "farm_hash(x) = h and farm_hash(x) % 2 = 0"
    kept = Filter(schema, condition, ("h", "x"))(rows)
    assert kept.num_rows == sum(it % 2 == 0 for it in rows.column("h").to_pylist())


# ---- in DuckDB


def computed(expression: str, **values: Any) -> Any:
    engine = Engine(LIMITS)
    engine.check(f"select {expression} as found")
    found = engine.run(f"select {expression} as found", values)
    return found.column(0).to_pylist()[0]


@pytest.mark.parametrize(
    ("expression", "values"),
    [
        ("farm_hash(5)", (5,)),
        ("farm_hash(null)", (None,)),
        ("farm_hash(-5, null, 'x', true)", (-5, None, b"x", True)),
        ("farm_hash(18446744073709551615)", (2**64 - 1,)),
        ("farm_hash(-9223372036854775808)", (-(2**63),)),
        ("farm_hash('é', encode('é'), '\\xFF'::blob)", ("é".encode(), "é".encode(), b"\xff")),
        ("farm_hash('{\"a\": 1}'::json)", (b'{"a": 1}',)),
        ("main.FARM_HASH(farm_hash(1), 2)", (farm_hash(1), 2)),
        ("(5).farm_hash()", (5,)),
        (f"farm_hash({', '.join(['7'] * 64)})", (7,) * 64),
        ("farm_hash((select max(i) from range(9) t(i)))", (8,)),
    ],
)
def test_arguments_are_hashed_in_their_order(expression: str, values: tuple[Any, ...]) -> None:
    assert computed(expression) == farm_hash(*values)


def test_parameters_are_hashed_as_their_types() -> None:
    given = {"a": 2**64 - 1, "b": b"\xff", "c": None, "d": "x", "e": uuid.UUID(int=7)}
    values = 2**64 - 1, b"\xff", None, b"x", uuid.UUID(int=7).bytes
    assert computed("farm_hash($a, $b, $c, $d, $e)", **given) == farm_hash(*values)


def test_many_vectors_are_hashed_with_their_nulls() -> None:
    engine = Engine(LIMITS)
    text = """select i, farm_hash(i, s, u) as h from (select i, case when i % 3 > 0 then
        repeat('x', i % 90) end as s, case when i % 5 > 0 then i::uint64::varchar end as u
        from range(5000) t(i))"""
    engine.check(text)
    for row in engine.run(text).to_pylist():
        i = row["i"]
        texts = b"x" * (i % 90) if i % 3 else None, str(i).encode() if i % 5 else None
        assert row["h"] == farm_hash(i, *texts)


@given(
    st.lists(
        st.none()
        | st.integers(-(2**63), 2**64 - 1)
        | st.booleans()
        | st.binary(max_size=100)
        | st.text(max_size=40).map(str.encode),
        min_size=1,
        max_size=4,
    )
)
@settings(max_examples=examples(100), deadline=None)
def test_values_have_one_hash_in_sql_and_in_python(values: list[Any]) -> None:
    names = ", ".join([f"$v{at}" for at in range(len(values))])
    given = {f"v{at}": it for at, it in enumerate(values)}
    assert computed(f"farm_hash({names})", **given) == farm_hash(*values)


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ("farm_hash()", "farm_hash takes 1 to 64 arguments, not 0"),
        (f"farm_hash({', '.join(['1'] * 65)})", "farm_hash takes 1 to 64 arguments, not 65"),
        ("farm_hash(1.5::double)", "^farm_hash takes no DOUBLE. It takes integers"),
        ("farm_hash(i) from (select [i] as i from range(3) t(i))", r"no BIGINT\[\]\. It takes"),
        ("farm_hash({'a': 1})", "Convert the value"),
        ("farm_hash(time '01:02:03')", "takes no TIME"),
        ("farm_hash(timestamp '2024-01-01')", "takes no TIMESTAMP"),
        ("farm_hash(interval 1 month)", r"takes no INTERVAL. Pass .*: epoch_us\(i\)"),
        (f"{'farm_hash(' * 5}1{')' * 5}", "up to 4 deep"),
        (
            "farm_hash(170141183460469231731687303715884105727)",
            "takes integers from -92233720368547",
        ),
        ("farm_hash(1), _farm_hash(['x'], 5)", "takes no x"),
        ("_farm_hash(['BIGINT'], 5)", "_farm_hash does not exist"),
        ("farm_hash(distinct 1)", "DISTINCT"),
    ],
)
def test_another_call_is_refused(expression: str, message: str) -> None:
    with pytest.raises(InvalidRequest, match=message):
        computed(expression)
