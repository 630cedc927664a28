"""From a tree to SQL: names and types of results, what does not fit, and the bounds on it."""

import re
import time

import pytest

from dodona.errors import DodonaError, InvalidRequest, LimitExceeded, TableNotFound
from dodona.schema import TableSchema
from dodona_ytsaurus.query.functions import AGGREGATES, FUNCTIONS, NOT_TAKEN
from dodona_ytsaurus.query.parser import parse
from dodona_ytsaurus.query.translation import ResultColumn, Translated, to_sql, translate

T = TableSchema.parse(
    [
        {"name": "k", "type": "int64", "sort_order": "ascending"},
        {"name": "u", "type": "uint64"},
        {"name": "d", "type": "double"},
        {"name": "b", "type": "boolean"},
        {"name": "s", "type": "string"},
        {"name": "t", "type": "utf8"},
        {"name": "j", "type": "any"},
        {"name": 'odd "name".x', "type": "int64"},
    ]
)
U = TableSchema.parse(
    [
        {"name": "k", "type": "int64", "sort_order": "ascending"},
        {"name": "x", "type": "string"},
        {"name": "Name", "type": "int64"},
        {"name": "name", "type": "int64"},
    ]
)
V = TableSchema.parse(
    [
        {"name": "k", "type": "int64", "sort_order": "ascending"},
        {"name": "y", "type": "int64", "required": True},
    ]
)
SCHEMAS = {"//t": T, "//u": U, "//v": V}


def translated(text: str) -> Translated:
    return translate(text, SCHEMAS)


def columns(text: str) -> list[tuple[str, str]]:
    return [(it.name, it.type) for it in translated(text).columns]


def refusal(text: str) -> InvalidRequest:
    with pytest.raises(InvalidRequest) as refused:
        translated(text)
    return refused.value


def test_a_query_becomes_one_select() -> None:
    found = translated("k, x from [//u] where k > 1 and k < 5 order by x limit 2")
    assert found.sql == (
        'select t0."k" as r0, t0."x" as r1 from [//u] t0'
        ' where ((t0."k" > (1)::bigint) and (t0."k" < (5)::bigint))'
        ' order by t0."x" asc nulls first limit 2'
    )
    assert found.columns == (ResultColumn("k", "int64"), ResultColumn("x", "string"))
    query = parse("k from [//u] where {x} = x", {"x": b"\xff"})
    assert query.paths == ("//u",)
    assert r"'\xFF'::blob = " in to_sql(query, {"//u": U}).sql


# ---- names and types of results


@pytest.mark.parametrize(
    ("select", "type_"),
    [
        ("k", "int64"), ("u", "uint64"), ("d", "double"), ("b", "boolean"), ("s", "string"),
        ("t", "string"), ("j", "any"),
        ("1", "int64"), ("1u", "uint64"), ("1.0", "double"), ("true", "boolean"), ("'x'", "string"),
        ("null", "int64"),
        ("k + 1", "int64"), ("u + 1", "uint64"), ("1 + u", "uint64"), ("d + 1", "double"),
        ("1 + 1", "int64"), ("1 + 1u", "uint64"), ("1u / 2.0", "double"), ("null + 1", "int64"),
        ("-u", "uint64"), ("~u", "uint64"), ("u << 1", "uint64"), ("s || 'x'", "string"),
        ("k = 1", "boolean"), ("k is null", "boolean"), ("not b", "boolean"),
        ("b and k > 1", "boolean"),
        ("if(b, 1, u)", "uint64"), ("if(b, null, s)", "string"), ("if_null(d, 0)", "double"),
        ("coalesce(null, 1u, 2)", "uint64"), ("if(b, j, null)", "any"),
        ("greatest(1, d)", "double"),
        ("case when b then 1 else d end", "double"), ("case k when 1 then 's' end", "string"),
        ("transform(k, (1, 2), (1u, 2))", "uint64"), ("transform(k, (1), (2), d)", "double"),
        ("int64(d)", "int64"), ("uint64(1)", "uint64"), ("double(k)", "double"),
        ("string(j)", "string"), ("boolean(j)", "boolean"), ("abs(u)", "uint64"),
        ("length(s)", "int64"), ("lower(t)", "string"), ("floor(d)", "int64"), ("sqrt(k)", None),
        ("is_nan(d)", "boolean"), ("try_get_any(j, '/a')", "any"),
        ("get_string(j, '/a')", "string"), ("timestamp_floor_day(k)", "int64"),
    ],
)  # fmt: skip
def test_the_type_of_an_expression(select: str, type_: str | None) -> None:
    if type_ is None:  # YTsaurus converts literals, and never columns
        assert (
            "Argument 1 of sqrt must be double, not int64."
            in refusal(f"{select} from [//t]").message
        )
        return
    assert [it for _, it in columns(f"{select} from [//t]")] == [type_]


@pytest.mark.parametrize(
    ("select", "type_"),
    [
        ("sum(k)", "int64"), ("sum(u)", "uint64"), ("sum(d)", "double"), ("sum(1)", "int64"),
        ("avg(k)", "double"), ("min(s)", "string"), ("max(b)", "boolean"), ("first(j)", "any"),
        ("cardinality(s)", "uint64"), ("argmin(s, k)", "string"), ("argmax(j, d)", "any"),
        ("sum(u) + 1", "uint64"), ("x", "int64"), ("x = 1", "boolean"),
    ],
)  # fmt: skip
def test_the_type_of_an_aggregate(select: str, type_: str) -> None:
    assert [it for _, it in columns(f"{select} from [//t] group by k % 2 as x")] == [type_]


def test_the_names_of_results() -> None:
    assert [it for it, _ in columns("* from [//t]")] == [it.name for it in T.columns]
    assert [it for it, _ in columns("* from [//v] as v limit 1")] == ["v.k", "v.y"]
    both = columns("t.k, u.k as k, t.k + u.k from [//t] t join [//u] u on t.k = u.k")
    assert [it for it, _ in both] == ["t.k", "k", "(t.k)+(u.k)"]
    assert [it for it, _ in columns("k, x from [//t] join [//u] using k")] == ["k", "x"]
    assert [it for it, _ in columns("k % 2, sum(u) from [//t] group by k % 2")] == [
        "(k)%(2)", "sum(u)",
    ]  # fmt: skip
    assert [it for it, _ in columns("* from [//t] group by k % 2 as a, s")] == ["a", "s"]
    assert [it for it, _ in columns("k, k, k as K from [//t]")] == ["k", "k", "K"]
    assert [it for it, _ in columns('[odd "name".x], [odd "name".x] + 1 from [//t]')] == [
        'odd "name".x', '([odd "name".x])+(1)',
    ]  # fmt: skip
    long = columns(f"k in ({', '.join(['1'] * 10_000)}) from [//t]")
    assert len(long[0][0]) == 4096


# ---- names of columns


def test_names_are_qualified_as_in_ytsaurus() -> None:
    assert "Use x.k." in refusal("k from [//t] as x").message
    assert refusal("nope from [//t]").attributes["column"] == "nope"
    assert refusal("t.k from [//t]").attributes["offset"] == 0
    assert "no column y.k" in refusal("y.k from [//t] as x").message
    assert "Name the tables" in refusal("k from [//t] join [//u] on s = x").message
    assert "no column K" in refusal("K from [//t]").message
    with pytest.raises(TableNotFound) as missing:
        translated("k from [//nope]")
    assert missing.value.attributes["path"] == "//nope"


def test_columns_that_differ_in_case_alone_are_not_mixed_up() -> None:
    assert columns("Name from [//u]") == [("Name", "int64")]
    assert "Queries do not tell them apart" in refusal("name from [//u]").message


def test_the_sides_of_a_join_condition_are_checked_and_translated() -> None:
    on = translated("t.k from [//t] t join [//u] u on (t.k, 1) = (u.k, u.Name) and u.k > 0").sql
    assert '(t0."k" = t1."k") and ((1)::bigint = t1."Name") and (t1."k" > (0)::bigint)' in on
    assert "no column u.k" in refusal("t.k from [//t] as t join [//u] as u on u.k = t.k").message
    assert (
        "no column t.s"
        in refusal("t.k from [//t] t join [//u] u on t.k = u.k and t.s = ''").message
    )
    assert "no column s" in refusal("k from [//t] join [//u] using s").message
    assert "no column x" in refusal("k from [//t] join [//u] using x").message
    assert "The types do not match" in refusal("t.k from [//t] t join [//u] u on t.k = u.x").message
    assert "Tuples" in refusal("t.k from [//t] t join [//u] u on (t.k, t.s) = u.k").message
    assert "needs a boolean" in refusal("k from [//t] join [//u] using k and 1").message


# ---- types


@pytest.mark.parametrize(
    ("where", "message"),
    [
        ("k", "WHERE needs a boolean, not int64"),
        ("k + u = 1", "The operator + takes operands of one type"),
        ("k = u", "The types do not match: int64 = uint64."),
        ("k = 1u", "int64 = uint64 or double"),
        ("u = 1.5", "uint64 = double"),
        ("s = 1", "string = int64"),
        ("k = 'x'", "int64 = string"),
        ("d % 2 = 1", "% takes operands of one type (int64 or uint64)"),
        ("d | 1 = 1", "| takes operands of one type (int64 or uint64)"),
        ("s + 'x' = 'y'", "+ takes operands of one type (int64 or uint64 or double)"),
        ("k || 'x' = 'y'", "|| takes operands of one type (string)"),
        ("-s = 1", "- takes"),
        ("not k", "NOT needs a boolean"),
        ("b and k", "AND needs a boolean"),
        ("b or s", "OR needs a boolean"),
        ("j = 1", "type any"),
        ("j < j", "type any"),
        ("j in (1)", "IN, BETWEEN and TRANSFORM do not take values of type any"),
        ("k in (1, 'x')", "The types do not match: string and int64"),
        ("k in (1.5)", "The type int64 can't hold 1.5 exactly"),
        ("k in (18446744073709551615u)", "is too large for int64"),
        ("u in (-1.0)", "The type uint64 can't hold -1.0 exactly"),
        ("d = 4611686018427387905", "The type double can't hold 4611686018427387905 exactly"),
        ("(k, s) in ((1, 'x'), (2))", "Expected a tuple of 2, found one value"),
        ("k in ((1, 2))", "Expected one value, found a tuple of 2"),
        ("k between (1, 2) and (3, 4)", "Tuples of 1 and of 2"),
        ("(k, s) between ((1, 'a', 2) and 3)", "Expected a tuple of 2, found a tuple of 3"),
        ("(k, s) = (1, 'x', 2)", "Tuples of 2 and of 3"),
        ("(k, s)", "A tuple can't be used here"),
        ("(k, s) + 1 = 2", "A tuple can't be used here"),
        ("s like 5", "Argument 2 of LIKE must be string"),
        ("s like t", "must be a literal"),
        ("s like 'a' escape t", "must be a literal"),
        ("s like 'a' escape 'xy'", "must be one character"),
        ("s like 'a\\\\'", "ends with its escape"),
        ("s like '\\xff'", "the pattern must be a text"),
        ("s rlike 'a' escape 'b'", "ESCAPE is for LIKE"),
        ("if(k, true, false)", "Argument 1 of if must be boolean"),
        ("if(b, 1, 'x') = 1", "must have one type"),
        ("if(b, 1) = 1", "if takes 3 arguments, not 2"),
        ("length() = 1", "length takes 1 argument, not 0"),
        ("coalesce() = 1", "coalesce takes 1 or more arguments, not 0"),
        ("is_null(k, s)", "is_null takes 1 argument, not 2"),
        ("length(k) = 1", "Argument 1 of length must be string, not int64"),
        ("case when k then 1 end = 1", "WHEN needs a boolean"),
        ("case k when 's' then 1 end = 1", "The types do not match"),
        ("case when b then 1 else 's' end = 1", "results must have one type"),
        ("transform(k, (1, 2), (3)) = 1", "two lists of one size"),
        ("transform(k, (1), ((3, 4))) = 1", "A tuple can't be used here"),
        ("transform(k, (1, 2), (3, 's')) = 1", "results must have one type"),
        ("get_int64(j, s) = 1", "must be a literal"),
        ("get_int64(j, 'a') = 1", "must begin with /"),
        ("get_int64(j, '/a/@b') = 1", "without @"),
        ("1 / 0 = 1", "divides by zero"),
        ("1u % 0 = 1", "divides by zero"),
        ("-9223372036854775808 / -1 = 1", "can't be divided by -1"),
        ("1 << 64 = 1", "shift by 64"),
        ("sum(k) > 1", "sum needs GROUP BY"),
        ("nope(k) = 1", "no function nope"),
        ("count(k) = 1", "Use sum(1) to count rows"),
    ],
)
def test_operands_of_a_wrong_type_or_form_are_refused_with_the_reason(
    where: str, message: str
) -> None:
    error = refusal(f"k from [//t] where {where}")
    assert message in error.message
    assert 0 <= error.attributes["offset"] - 19 <= len(where)


@pytest.mark.parametrize(
    ("rest", "message"),
    [
        ("s from [//t] group by k", "The column s is not in GROUP BY"),
        ("sum(sum(k)) from [//t] group by k", "is inside another aggregate"),
        ("k from [//t] group by sum(k)", "needs GROUP BY"),
        ("k from [//t] group by j", "must be int64"),
        ("k from [//t] group by k having s = ''", "The column s is not in GROUP BY"),
        ("k from [//t] group by k having sum(u)", "HAVING needs a boolean"),
        ("k from [//t] group by k order by u limit 1", "The column u is not in GROUP BY"),
        ("k from [//t] order by j limit 1", "must be int64"),
        ("sum(s) from [//t] group by k", "Argument 1 of sum"),
        ("k from [//t] where x > 1 group by sum(k) as x", "needs GROUP BY"),
    ],
)
def test_groups_have_rules(rest: str, message: str) -> None:
    assert message in refusal(rest).message


@pytest.mark.parametrize("name", ["bigb_hash", "BIGB_HASH", "format_timestamp", "hll_8", "to_any"])
def test_functions_that_are_missing_are_named(name: str) -> None:
    error = refusal(f"{name}(k) from [//t]")
    assert error.message == f"Dodona does not support the function {name.lower()}."


def test_no_function_is_both_there_and_missing() -> None:
    assert not NOT_TAKEN.intersection(FUNCTIONS)
    assert not NOT_TAKEN.intersection(AGGREGATES)
    assert not set(FUNCTIONS).intersection(AGGREGATES)


# ---- aliases


def test_an_alias_stands_for_its_expression_in_each_clause() -> None:
    rest = "where y > 5 and z < 3 order by u + 1 as z limit 1"
    found = columns(f"k + 1 as x, x * 2 as y from [//t] {rest}")
    assert found == [("x", "int64"), ("y", "int64")]
    assert "// (10)" in translated("k / 10 as k from [//t] where k = 3").sql.split("where")[1]
    assert re.search(r"no column y", refusal("y + 1 as x from [//t]").message)


def test_an_alias_of_itself_is_a_column() -> None:
    assert translated("k as k, k + 1 as u from [//t]").columns[1] == ResultColumn("u", "int64")
    assert "no column" in refusal("y as x, x as y from [//t]").message


# ---- bounds


@pytest.mark.slow("large queries")
def test_aliases_within_aliases_are_bounded() -> None:
    text = "k as a0, " + ", ".join(f"a{it} + a{it} as a{it + 1}" for it in range(60))
    begun = time.monotonic()
    with pytest.raises(LimitExceeded, match="alias"):
        translated(f"{text} from [//t]")
    assert time.monotonic() - begun < 20
    chain = "k as a0, " + ", ".join(f"a{it} + 1 as a{it + 1}" for it in range(200))
    with pytest.raises(LimitExceeded, match="alias"):
        translated(f"{chain} from [//t]")


def test_operands_that_are_repeated_are_bounded() -> None:
    text = "b"
    for _ in range(40):
        text = f"if({text}, b, b)"
    with pytest.raises(LimitExceeded, match="SQL"):
        translated(f"{text} as x from [//t]")


def test_the_number_of_result_columns_is_bounded() -> None:
    with pytest.raises(LimitExceeded, match="columns"):
        translated(", ".join(["k"] * 5_000) + " from [//t]")


@pytest.mark.slow("large queries")
def test_long_lists_are_translated_in_good_time() -> None:
    begun = time.monotonic()
    numbers = ", ".join(map(str, range(30_000)))
    translated(f"k from [//t] where k in ({numbers})")
    translated("k from [//t] where " + " or ".join(f"k = {it}" for it in range(15_000)))
    keys = ", ".join(f"k + {it} as x{it}" for it in range(1_000))
    sums = ", ".join(f"x{it}" for it in range(1_000))
    translated(f"{sums} from [//t] group by {keys}")
    assert time.monotonic() - begun < 20


def test_the_sql_is_no_longer_than_the_engine_takes() -> None:
    texts = ", ".join([f"'{'x' * 100}{it}'" for it in range(9_500)])
    with pytest.raises(LimitExceeded):
        translated(
            f"k from [//t] where s in ({texts}) or s in ({texts[:20_000].rsplit(',', 1)[0]})"
        )


def test_every_error_is_ours() -> None:
    for text in (
        "k from [//t] where k = {x}",
        "\0",
        "k from [//t] where s = '\0'",
        "[\0] from //t",
    ):
        try:
            translated(text)
        except DodonaError:
            continue
        assert "\0" not in translated(text).sql
