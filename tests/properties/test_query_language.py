"""YTsaurus's query language against a small evaluator of its meaning, and against nonsense.

Expressions are drawn with a kind, as text and as a function of a row, which knows that null is a
value smaller than all. Each example is one query over random rows, run as `db.query` runs it, with
its conditions pushed down.
"""

import functools
import operator
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from hypothesis import given, settings
from hypothesis import strategies as st

from dodona._core.protocol.limits import QueryLimits
from dodona._core.protocol.steps import Protocol
from dodona._core.reading.query import Query, Source
from dodona._core.reading.reading import Ranges, range_of
from dodona._core.sql.references import find_tables
from dodona.errors import DodonaError
from dodona.schema import TableSchema
from dodona.types import MAX_TIMESTAMP
from dodona_wire.rows.arrow import arrow_of_tuples
from dodona_ytsaurus.query.parser import parse
from dodona_ytsaurus.query.translation import to_sql, translate
from suite.levels import examples

Row = tuple[Any, ...]
SCHEMA: Final = TableSchema.parse(
    [
        {"name": "k", "type": "int64", "sort_order": "ascending"},
        {"name": "s", "type": "string", "sort_order": "descending"},
        {"name": "n", "type": "int64", "sort_order": "ascending", "required": True},
        {"name": "u", "type": "uint64"},
        {"name": "d", "type": "double"},
        {"name": "b", "type": "boolean"},
        {"name": "t", "type": "utf8"},
    ]
)
PLACES: Final = {column.name: place for place, column in enumerate(SCHEMA.columns)}
VALUES: Final[dict[str, list[Any]]] = {
    "int64": [-3, -1, 0, 1, 2, 5],
    "uint64": [0, 1, 2, 2**63, 2**64 - 1],
    "double": [-2.5, -0.5, 0.0, 0.25, 3.0],
    "boolean": [False, True],
    "string": [b"", b"a", b"ab", b"b'", b"\\", b"\xff\x00", "é".encode()],
}


class Made(NamedTuple):
    """An expression of one kind: what is written, and what it is worth."""

    text: str
    worth: Callable[[Row], Any]


# ---- the language's meaning


def order_of(value: Any) -> tuple[bool, Any]:
    """Null is smaller than all."""
    return (value is not None, value)


COMPARISONS: Final[dict[str, Callable[[Any, Any], bool]]] = {
    "=": operator.eq, "!=": operator.ne, "<>": operator.ne,
    "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
}  # fmt: skip
ARITHMETIC: Final[dict[str, Callable[[Any, Any], Any]]] = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "|": operator.or_, "&": operator.and_,
}  # fmt: skip


def compared(name: str, one: Any, other: Any) -> bool:
    if one is None or other is None:
        one, other = (one is not None), (other is not None)
    return COMPARISONS[name](one, other)


def strict(compute: Callable[..., Any]) -> Callable[..., Any]:
    """Null if any operand is."""
    return lambda *operands: None if None in operands else compute(*operands)


def truncated(one: int, other: int) -> int:
    quotient = abs(one) // abs(other)
    return quotient if (one < 0) == (other < 0) else -quotient


def logical(name: str, one: bool | None, other: bool | None) -> bool | None:
    decisive = name == "or"
    if decisive in (one, other):
        return decisive
    return None if None in (one, other) else not decisive


# ---- drawing expressions


def literal(value: Any, kind: str) -> str:
    if value is None:
        return "null"
    if kind == "string":
        return "'" + "".join(f"\\x{byte:02x}" for byte in value) + "'"
    if kind == "uint64":
        return f"{value}u"
    return str(value).lower()


def column(name: str) -> Made:
    place = PLACES[name]
    is_text = SCHEMA.columns[place].type == "utf8"

    def worth(row: Row) -> Any:
        value = row[place]
        return value.encode() if is_text and value is not None else value

    return Made(name, worth)


def constants(kind: str) -> st.SearchStrategy[Made]:
    """Literals, as they stand in lists."""
    return st.sampled_from([*VALUES[kind], None]).map(
        lambda it: Made(literal(it, kind), lambda row: it)
    )


def leaf(kind: str) -> st.SearchStrategy[Made]:
    """A null by itself would be of no kind."""
    null = Made(f"if(false, {literal(VALUES[kind][0], kind)}, null)", lambda row: None)
    return st.sampled_from(COLUMNS[kind]).map(column) | constants(kind).map(
        lambda it: null if it.text == "null" else it
    )


def binary(name: str, compute: Callable[[Any, Any], Any], one: Made, other: Made) -> Made:
    return Made(
        f"({one.text} {name} {other.text})", lambda row: compute(one.worth(row), other.worth(row))
    )


COLUMNS: Final = {
    "int64": ["k", "n"], "uint64": ["u"], "double": ["d"], "boolean": ["b"], "string": ["s", "t"],
}  # fmt: skip


def expressions(kind: str, depth: int) -> st.SearchStrategy[Made]:
    return st.deferred(lambda: made(kind, depth))


@functools.cache
def made(kind: str, depth: int) -> st.SearchStrategy[Made]:
    if not depth:
        return leaf(kind)
    below, conditions = expressions(kind, depth - 1), expressions("boolean", depth - 1)
    choices = [
        st.builds(chosen, conditions, below, below),
        st.builds(cased, conditions, below, below),
        st.builds(
            lambda one, other: Made(
                f"if_null({one.text}, {other.text})",
                lambda row: one.worth(row) if one.worth(row) is not None else other.worth(row),
            ),
            below,
            below,
        ),
    ]
    return st.one_of(leaf(kind), *choices, *SPECIAL[kind](depth - 1))


def chosen(condition: Made, one: Made, other: Made) -> Made:
    def worth(row: Row) -> Any:
        truth = condition.worth(row)
        return None if truth is None else (one if truth else other).worth(row)

    return Made(f"if({condition.text}, {one.text}, {other.text})", worth)


def cased(condition: Made, one: Made, other: Made) -> Made:
    return Made(
        f"case when {condition.text} then {one.text} else {other.text} end",
        lambda row: (one if condition.worth(row) else other).worth(row),
    )


def applied(template: str, compute: Callable[[Any], Any], it: Made) -> Made:
    """One operand, and null of null."""
    return Made(template.format(it.text), lambda row: strict(compute)(it.worth(row)))


def arithmetic(kind: str, names: list[str], depth: int) -> list[st.SearchStrategy[Made]]:
    below = expressions(kind, depth)
    computed = st.builds(
        lambda name, one, other: binary(name, strict(ARITHMETIC[name]), one, other),
        st.sampled_from(names),
        below,
        below,
    )
    return [computed]


def int64s(depth: int) -> list[st.SearchStrategy[Made]]:
    below = expressions("int64", depth)
    divisors = st.sampled_from([-3, -1, 2, 7])
    return [
        *arithmetic("int64", ["+", "-", "|", "&"], depth),
        st.builds(
            lambda it, by: applied(f"({{}} / {by})", lambda a: truncated(a, by), it),
            below, divisors,
        ),
        st.builds(
            lambda it, by: applied(f"({{}} % {by})", lambda a: a - truncated(a, by) * by, it),
            below, divisors,
        ),
        below.map(lambda it: applied("(-{})", operator.neg, it)),
        below.map(lambda it: applied("(~{})", operator.inv, it)),
        expressions("string", depth).map(lambda it: applied("length({})", len, it)),
        below.map(
            lambda it: Made(
                f"transform({it.text}, (1, null, -1), (5, 7, null), {it.text})",
                lambda row: {1: 5, None: 7, -1: None}.get(it.worth(row), it.worth(row)),
            )
        ),
    ]  # fmt: skip


def uint64s(depth: int) -> list[st.SearchStrategy[Made]]:
    return [
        *arithmetic("uint64", ["|", "&"], depth),
        expressions("int64", depth).map(lambda it: applied("uint64({})", lambda a: a % 2**64, it)),
    ]


def doubles(depth: int) -> list[st.SearchStrategy[Made]]:
    return arithmetic("double", ["+", "-"], depth)


def strings(depth: int) -> list[st.SearchStrategy[Made]]:
    below = expressions("string", depth)
    return [
        st.builds(lambda one, other: binary("||", strict(operator.add), one, other), below, below)
    ]


def booleans(depth: int) -> list[st.SearchStrategy[Made]]:
    below = expressions("boolean", depth)
    pairs = st.sampled_from(sorted(VALUES)).flatmap(
        lambda kind: st.tuples(expressions(kind, depth), expressions(kind, depth))
    )
    names = st.sampled_from(sorted(COMPARISONS))
    return [
        st.builds(
            lambda name, pair: binary(name, lambda a, b: compared(name, a, b), *pair), names, pairs
        ),
        st.builds(compared_tuples, names, pairs, pairs),
        st.builds(
            lambda name, one, other: binary(name, lambda a, b: logical(name, a, b), one, other),
            st.sampled_from(["and", "or"]), below, below,
        ),
        below.map(lambda it: applied("(not {})", operator.not_, it)),
        pairs.map(lambda it: Made(f"is_null({it[0].text})", lambda row: it[0].worth(row) is None)),
        st.sampled_from(sorted(VALUES)).flatmap(lambda kind: members(kind, depth)),
        st.builds(
            lambda part, whole: Made(
                f"is_prefix({part.text}, {whole.text})",
                lambda row: strict(lambda a, b: b.startswith(a))(part.worth(row), whole.worth(row)),
            ),
            expressions("string", 0), expressions("string", depth),
        ),
        st.builds(
            lambda part, whole: Made(
                f"is_substr({part.text}, {whole.text})",
                lambda row: strict(operator.contains)(whole.worth(row), part.worth(row)),
            ),
            expressions("string", 0), expressions("string", depth),
        ),
    ]  # fmt: skip


def compared_tuples(name: str, first: tuple[Made, Made], second: tuple[Made, Made]) -> Made:
    sides = list(zip(first, second, strict=True))

    def worth(row: Row) -> bool:
        one, other = [tuple([order_of(it.worth(row)) for it in side]) for side in sides]
        pairs = zip(one, other, strict=True)
        differing = next(((a, b) for a, b in pairs if a != b), (one[0], one[0]))
        return compared(name, differing[0][1], differing[1][1])

    one, other = [f"({', '.join(it.text for it in side)})" for side in sides]
    return Made(f"({one} {name} {other})", worth)


def members(kind: str, depth: int) -> st.SearchStrategy[Made]:
    """IN and BETWEEN."""
    values = st.lists(constants(kind), min_size=1, max_size=4)

    def among(it: Made, found: list[Made]) -> Made:
        listed = ", ".join(value.text for value in found)
        return Made(
            f"({it.text} in ({listed}))",
            lambda row: any(compared("=", it.worth(row), value.worth(row)) for value in found),
        )

    def between(it: Made, low: Made, high: Made) -> Made:
        return Made(
            f"({it.text} between {low.text} and {high.text})",
            lambda row: (
                compared(">=", it.worth(row), low.worth(row))
                and compared("<=", it.worth(row), high.worth(row))
            ),
        )

    below = expressions(kind, depth)
    return st.one_of(
        st.builds(among, below, values),
        st.builds(between, below, constants(kind), constants(kind)),
    )


SPECIAL: Final[dict[str, Callable[[int], list[st.SearchStrategy[Made]]]]] = {
    "int64": int64s,
    "uint64": uint64s,
    "double": doubles,
    "boolean": booleans,
    "string": strings,
}


# ---- running


def rows_of(schema: TableSchema) -> st.SearchStrategy[list[Row]]:
    texts = [it.decode() for it in VALUES["string"] if b"\xff" not in it]
    values = [
        st.sampled_from(
            [*(texts if it.type == "utf8" else VALUES[it.type]), *([] if it.required else [None])]
        )
        for it in schema.columns
    ]
    return st.lists(st.tuples(*values), min_size=1, max_size=8, unique_by=lambda row: row[:3])


def run(sql: str, rows: list[Row]) -> list[Row]:
    """As `db.query` runs it, over rows in memory that are read as tablets are."""

    def read(path: str, ranges: Ranges, columns: Any, timestamp: Any) -> Protocol[Any]:
        ends = [range_of(SCHEMA, *it) for it in ranges]
        keyed = sorted((SCHEMA.bound_of(row[:3]), row) for row in rows)
        inside = [row for first, end in ends for key, row in keyed if first <= key < end]
        return arrow_of_tuples(SCHEMA.columns, inside).select(list(columns))
        yield

    paths, text = find_tables(sql)
    sources = [Source(path, SCHEMA, MAX_TIMESTAMP) for path in paths]
    query = Query(text, sources, QueryLimits(threads_max=1))
    query.plan()
    for _ in query.fetch(read):
        raise AssertionError("nothing here takes a step")
    table = query.answer()
    return list(zip(*[it.to_pylist() for it in table.columns], strict=True))


@given(st.data())
@settings(max_examples=examples(60), deadline=None)
def test_conditions_and_expressions_equal_those_of_the_model(data: st.DataObject) -> None:
    rows = data.draw(rows_of(SCHEMA))
    where = data.draw(expressions("boolean", 3))
    kinds = data.draw(st.lists(st.sampled_from(sorted(VALUES)), min_size=1, max_size=4))
    drawn = [data.draw(expressions(kind, 2)) for kind in kinds]
    listed = ", ".join([f"{it.text} as x{at}" for at, it in enumerate(drawn)])
    found = translate(f"k, s, n, {listed} from [//t] where {where.text}", {"//t": SCHEMA})
    assert [it.type for it in found.columns[3:]] == kinds
    expected = [
        (*row[:3], *[it.worth(row) for it in drawn]) for row in rows if where.worth(row) is True
    ]
    assert sorted(run(found.sql, rows), key=repr) == sorted(expected, key=repr)


@given(st.data())
@settings(max_examples=examples(30), deadline=None)
def test_groups_and_their_aggregates_equal_those_of_the_model(data: st.DataObject) -> None:
    rows = data.draw(rows_of(SCHEMA))
    key = data.draw(expressions(data.draw(st.sampled_from(sorted(VALUES))), 1))
    value = data.draw(expressions("int64", 1))
    text = f"g, sum({value.text}), sum(1), max({value.text}) from [//t] group by {key.text} as g"
    groups: dict[Any, list[Any]] = {}
    for row in rows:
        groups.setdefault(key.worth(row), []).append(value.worth(row))
    expected = []
    for it, values in groups.items():
        present = [value for value in values if value is not None]
        expected.append(
            (it, sum(present) if present else None, len(values), max(present, default=None))
        )
    found = run(translate(text, {"//t": SCHEMA}).sql, rows)
    assert sorted(found, key=repr) == sorted(expected, key=repr)


@given(st.data())
@settings(max_examples=examples(30), deadline=None)
def test_order_is_that_of_keys(data: st.DataObject) -> None:
    rows = data.draw(rows_of(SCHEMA))
    kind = data.draw(st.sampled_from(sorted(VALUES)))
    by = data.draw(expressions(kind, 1))
    is_descending = data.draw(st.booleans())
    skipped, taken = data.draw(st.tuples(st.integers(0, 3), st.integers(0, 5)))
    text = f"{by.text} as x from [//t] order by x {'desc' if is_descending else 'asc'}"
    found = run(translate(f"{text} offset {skipped} limit {taken}", {"//t": SCHEMA}).sql, rows)
    values = sorted([by.worth(row) for row in rows], key=order_of, reverse=is_descending)
    assert [value for (value,) in found] == values[skipped : skipped + taken]


# ---- nonsense

WORDS: Final = (
    "select from where group by having order by offset limit join left using on and or is not null"
    " between in like escape case when then else end transform if sum(1) first(k) with totals asc"
    " desc true %false # k s n u d b t t0 t.k [//t] //t as x ( ) ( ) , , * + - / % << >> | & ~ = !="
    " < <= > >= || . 1 -1 2u 1.5 1e400 'a' '\\xff' \"é\" `k` [k] {p} { [ ] ' \" ` ; \\ \0 é 9"
    + "9"
    * 20
).split(" ")
VALID: Final = [
    "k, s || 'x' as y from [//t] where k > 1 and not (s = 'é' or b) order by y desc limit 5",
    "* from [//t] join [//t] using k, s, n, u, d, b, t",
    "a.k, b.u from [//t] as a left join [//t] as b on (a.k, a.s) = (b.k, b.s) and b.n in (1, 2)",
    "k % 2 as g, sum(u | 1) as v, avg(n) from [//t] group by g with totals having v > 1u",
    "case k when 1 then 'a' else t end, transform((k, b), ((1, true)), (2)) from [//t] limit 3",
    "if(is_null(d), 1, int64(d)) from [//t] where (k, n) between ((1) and (2, 3)) and t like '_%'",
]  # fmt: skip


def ours_or_fine(text: str) -> None:
    """A text is understood, and then runs or is refused by the engine; or it is refused."""
    try:
        query = parse(text, {"p": [1, "a"]})
        sql = to_sql(query, dict.fromkeys(query.paths, SCHEMA)).sql
        run(sql, [(1, b"a", 2, 3, 4.0, True, "b")])
    except DodonaError:
        return


@given(st.text(max_size=60) | st.lists(st.sampled_from(WORDS), max_size=25).map(" ".join))
@settings(max_examples=examples(400), deadline=None)
def test_random_text_runs_as_a_query_or_raises_a_dodona_error(text: str) -> None:
    ours_or_fine(text)


@given(st.data())
@settings(max_examples=examples(150), deadline=None)
def test_a_mutated_query_runs_or_raises_a_dodona_error(data: st.DataObject) -> None:
    text = data.draw(st.sampled_from(VALID))
    for _ in range(data.draw(st.integers(1, 3))):
        begin = data.draw(st.integers(0, len(text)))
        end = min(len(text), begin + data.draw(st.integers(0, 8)))
        word = data.draw(st.sampled_from(["", *WORDS]) | st.characters())
        text = text[:begin] + word + text[end:]
    ours_or_fine(text)


def test_the_queries_to_mutate_are_valid() -> None:
    for text in VALID:
        run(translate(text, {"//t": SCHEMA}).sql, [(1, b"a", 2, 3, 4.0, True, "b")])
