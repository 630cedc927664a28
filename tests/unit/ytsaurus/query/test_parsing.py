"""From words to a tree: what binds how close, the clauses and their order, and what is refused."""

import inspect
import sys

import pytest

from dodona.errors import InvalidRequest, LimitExceeded
from dodona_wire.expressions.tree import Alias, Literal, Node, Reference
from dodona_wire.expressions.values import Constant, Kind
from dodona_ytsaurus.query.names import name_of
from dodona_ytsaurus.query.parser import LIMIT_MAX, parse
from dodona_ytsaurus.query.tree import Query


def selected(text: str) -> Node:
    (found,) = parse(f"{text} from [//t]").select or ()
    return found


def refusal(text: str) -> InvalidRequest:
    with pytest.raises(InvalidRequest) as refused:
        parse(text)
    assert refused.value.attributes["offset"] <= len(text)
    return refused.value


NEGATED = "IN, LIKE, ILIKE, RLIKE or REGEXP after NOT"


# ---- expressions, written as their columns would be called


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("a", "a"),
        ("t.a", "t.a"),
        ("[a.b c]", "a.b c"),
        ("`from`", "from"),
        ("a + b * c", "(a)+((b)*(c))"),
        ("a - b - c", "((a)-(b))-(c)"),
        ("a / b % c", "((a)/(b))%(c)"),
        ("-a * +b + ~c / 100", "((-(a))*(+(b)))+((~(c))/(100))"),
        ("k & a + b << c | l >> m", "((k)&(((a)+(b))<<(c)))|((l)>>(m))"),
        ("a || b + c", "((a)||(b))+(c)"),
        ("c > b != a < b", "((c)>(b))!=((a)<(b))"),
        ("a < b < c", "((a)<(b))<(c)"),
        ("a <> b", "(a)!=(b)"),
        ("not a < b = c or k >= l and k <= m", "(NOT(((a)<(b))=(c)))OR(((k)>=(l))AND((k)<=(m)))"),
        ("a or b or c", "((a)OR(b))OR(c)"),
        ("(a or b) and not c", "((a)OR(b))AND(NOT(c))"),
        ("a is null", "is_null(a)"),
        ("a = b is not null", "NOT(is_null((a)=(b)))"),
        ("a in (1, -2, 3u)", "(a) IN (1, -2, 3u)"),
        ("a + 1 in (1)", "((a)+(1)) IN (1)"),
        ("a not in (null, #)", "NOT((a) IN (null, null))"),
        ("(a, b) in ((1, 'x'), (2, \"y\"))", '(a, b) IN ((1, "x"), (2, "y"))'),
        ("a between 1 and 2", "((a)>=(1))AND((a)<=(2))"),
        ("a between 1 and 2 and b", "(((a)>=(1))AND((a)<=(2)))AND(b)"),
        ("(a, b) between (1, 2) and (3, 4)", "((a, b)>=(1, 2))AND((a, b)<=(3, 4))"),
        ("a between (1 and 2, 5 and 7)", "(a) BETWEEN (1 AND 2, 5 AND 7)"),
        ("(a, b) between ((1, 2) and (3), 4 and 5)", "(a, b) BETWEEN ((1, 2) AND 3, 4 AND 5)"),
        ("a between (1) and (2)", "((a)>=(1))AND((a)<=(2))"),
        ("a like 'x%'", 'a LIKE "x%"'),
        ("a not ilike b || c escape '!'", 'NOT(a ILIKE (b)||(c) ESCAPE "!")'),
        ("a rlike 'x' or a regexp 'y'", '(a REGEX "x")OR(a REGEX "y")'),
        ("(a, b) = (c, d)", "(a, b)=(c, d)"),
        ("((a, b), c) < (1, (2, 3))", "(a, b, c)<(1, 2, 3)"),
        ("f()", "f()"),
        ("F(a, (b, c), 1)", "F(a, b, c, 1)"),
        ("transform(a, (1, 2), ('x', 'y'))", 'TRANSFORM(a, (1, 2), ("x", "y"))'),
        ("transform((a, b), ((1, 2)), (3), c)", "TRANSFORM((a, b), ((1, 2)), (3), c)"),
        ("case when a then 1 when b then 2 end", "CASE WHEN a THEN 1 WHEN b THEN 2 END"),
        ("case a + 1 when 2 then 'x' else 'y' end", 'CASE (a)+(1) WHEN 2 THEN "x" ELSE "y" END'),
        ("(a + 1 as x) * 2", "(x)*(2)"),
        ("[a.b] + [c]", "([a.b])+(c)"),
        ("1.50", "1.5"),
        ("0.1", "0.1"),
        ("inf", "inf"),
        (r"'a\n\"\\\xff'", r'"a\n\"\\\xFF"'),
        ("%true", "true"),
    ],
)
def test_an_expression(text: str, name: str) -> None:
    assert name_of(selected(text)) == name


def test_equal_expressions_are_equal_wherever_they_stand() -> None:
    assert selected("a + 1") == selected("a   + (1)")
    assert selected("a + 1") != selected("a + 1u")
    assert selected("1") != selected("true") != selected("1.0")
    assert hash(selected("f(a, 1)")) == hash(selected(" f(a,1)"))


def test_the_least_int64_can_be_written() -> None:
    assert name_of(selected("-9223372036854775808")) == "-(-9223372036854775808)"
    least = "a from [//t] where a in (-9223372036854775808, --9223372036854775807)"
    assert parse(least).where is not None
    error = refusal("a = 9223372036854775808 from [//t]")
    assert "9223372036854775808u" in error.message


def test_aliases_are_known_to_the_whole_query() -> None:
    query = parse("a + (1 as b) as c from [//t] group by d as e order by f as g limit 1")
    assert sorted(query.aliases) == ["b", "c", "e", "g"]
    assert query.aliases["b"] == Literal(at=0, constant=Constant(Kind.INT64, 1))
    assert isinstance(selected("a as b"), Alias)
    assert "Two expressions are named b" in refusal("a as b, c as b from [//t]").message
    assert "tuple" in refusal("(a, b) as c from [//t]").message


# ---- clauses


def test_a_query_of_all_clauses() -> None:
    query = parse(
        """SELECT a, sum(b) AS s FROM [//home/t] AS t
        LEFT JOIN [//home/u] AS u ON (t.a, 1) = (u.a, u.b) AND u.c > 0 AND u.c < 9
        JOIN //home/v USING d, e
        WHERE a > 1 GROUP BY a, b % 2 AS g WITH TOTALS HAVING s > 0
        ORDER BY s DESC, (a, g) ASC OFFSET 2 LIMIT 3"""
    )
    assert query.paths == ("//home/t", "//home/u", "//home/v")
    assert (query.table.alias, [it.table.alias for it in query.joins]) == ("t", ["u", None])
    left, plain = query.joins
    assert (left.is_left, plain.is_left) == (True, False)
    assert left.predicate is not None
    assert name_of(left.predicate) == "((u.c)>(0))AND((u.c)<(9))"
    assert [it.name for it in plain.using] == ["d", "e"]
    assert [name_of(it) for it in query.group_by or ()] == ["a", "g"]
    assert [(name_of(it), desc) for it, desc in query.order_by] == [
        ("s", True), ("a", False), ("g", False),
    ]  # fmt: skip
    assert (query.offset, query.limit, query.has_totals) == (2, 3, True)


def test_a_query_of_few_clauses() -> None:
    query = parse("* from [//t] x")
    assert isinstance(query, Query)
    assert (query.select, query.table.alias, query.where, query.limit) == (None, "x", None, None)
    assert parse("* from [//t]").paths == ("//t",)
    assert parse("* from `//t`").paths == ("//t",)
    assert parse("* from [//t] a join [//t] b on a.k = b.k").paths == ("//t",)
    assert (
        parse("a from [//t] where {x} = a", {"x": 5}).where == parse("a from //t where 5=a").where
    )
    assert selected("a") == Reference(at=0, name="a")


@pytest.mark.parametrize(
    ("text", "offset", "expected"),
    [
        ("", 0, "an expression"),
        ("from [//t]", 0, "an expression"),
        ("a", 1, "a comma or FROM"),
        ("*, a from [//t]", 1, "FROM"),
        ("a from", 6, "the path of a table"),
        ("a from [//t] where", 18, "an expression"),
        ("a from [//t] where a = ", 23, "an expression"),
        ("a from [//t] where (a = 1", 25, "a comma or )"),
        ("a from [//t] where f(a", 22, "a comma or )"),
        ("a, from [//t]", 3, "an expression"),
        ("a as from [//t]", 5, "a name"),
        ("a from [//t] where a in 1", 24, "("),
        ("a from [//t] where a in (b)", 25, "a literal"),
        ("a from [//t] where a in ((1, b))", 29, "a literal"),
        ("a from [//t] where a between b and c", 29, "a literal"),
        ("a from [//t] where a between 1 or 2", 31, "AND"),
        ("a from [//t] where a between (1, 2 and 3)", 35, "a comma, AND or )"),
        ("a from [//t] where a not 5", 25, NEGATED),
        ("a from [//t] where a not between 1 and 2", 25, NEGATED),
        ("a from [//t] where a is 5", 24, "NULL"),
        ("a from [//t] where a = not b", 23, "an expression"),
        ("a from [//t] where case a end", 26, "WHEN"),
        ("a from [//t] where case when a end", 31, "THEN"),
        ("a from [//t] where case when a then b", 37, "WHEN, ELSE or END"),
        ("a from [//t] where transform(a, 1, 2)", 32, "("),
        ("a from [//t] where t.", 21, "the name of a column"),
        ("a from [//t] join [//u]", 23, "USING or ON"),
        ("a from [//t] join [//u] using 1", 30, "the name of a column"),
        ("a from [//t] join [//u] on a < b", 29, "="),
        ("a from [//t] left where a", 18, "JOIN"),
        ("a from [//t] limit -1", 19, "a number of rows"),
        ("a from [//t] limit 1.5", 19, "a number of rows"),
        ("a from [//t] order by a", 23, "LIMIT, which ORDER BY needs"),
        ("a from [//t] offset 1", 21, "LIMIT, which OFFSET needs"),
    ],
)  # fmt: skip
def test_a_syntax_error_names_the_expected_element_and_the_offset(
    text: str, offset: int, expected: str
) -> None:
    error = refusal(text)
    assert error.attributes["offset"] == offset
    assert error.attributes["expected"] == expected
    assert expected in error.message


@pytest.mark.parametrize(
    "text",
    [
        "a from [//t] limit 1 offset 2",
        "a from [//t] limit 1 where a",
        "a from [//t] a b c",
        "a from [//t] having a",
        "a from [//t], [//u]",
        "a from [//t] 5",
        "a from [//t])",
    ],
)
def test_clauses_have_their_order(text: str) -> None:
    assert "the end of the query" in refusal(text).message or "needs" in refusal(text).message


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("a from (select b from [//t])", "a query in FROM"),
        ("(select a from [//t]) from [//t]", "a query in a query"),
        ("a from [//t] with index [//i]", "WITH INDEX"),
        ("a from [//t] with hint 'x'", "WITH HINT"),
        ("a from [//t] array join b as c", "ARRAY JOIN"),
        ("a from [//t] left array join b as c", "ARRAY JOIN"),
        ("a from [//t] join [//u] with hint 'x' using a", "WITH HINT"),
        ("a from [//t] group by a having a with totals", "WITH TOTALS after HAVING"),
        ("a from [//t] group by a with totals limit 5", "WITH TOTALS and LIMIT without ORDER BY"),
        ("t.a.b from [//t] as t", "access to the members of a column"),
        ("t.a.1 from [//t] as t", "access to the members of a column"),
        ("cast(a as int64) from [//t]", "CAST"),
    ],
)
def test_the_error_names_the_unsupported_construct(text: str, what: str) -> None:
    error = refusal(text)
    assert error.message.startswith(f"Dodona does not support {what}.")
    assert error.attributes["unsupported"] == what


@pytest.mark.parametrize("path", ["t", "/t", "//", "//a b", '//a"b', "//a[1]", "<a=1>//t"])
def test_a_table_is_named_by_a_path(path: str) -> None:
    assert "path" in refusal(f"a from [{path}]").message


# ---- bounds

DEEP = [
    "(" * 10_000 + "1",
    "f(" * 10_000,
    "-" * 10_000 + "1",
    "not (" * 10_000 + "a",
    "case when " * 10_000,
    "transform(" * 10_000,
    "a + " * 10_000 + "a",
    "a = " * 10_000 + "a",
    "a like " * 10_000 + "a",
    "a or b and c = d < e | f & g << h + i * (" * 1_000 + "1",
    "not a or b and not c = d < e | f & g << h + i * -f(" * 1_000 + "1",
    "a " + "is null " * 10_000,
]


@pytest.mark.parametrize("text", DEEP, ids=lambda text: text[:12])
def test_a_query_nested_too_deeply_is_refused(text: str) -> None:
    with pytest.raises(LimitExceeded) as refused:
        parse(f"{text} from [//t]")
    assert refused.value.attributes["depth_max"]


@pytest.mark.parametrize(
    "text",
    [
        "(" * 40 + "1" + ")" * 40,
        "if(a, " * 20 + "1" + ", 2)" * 20,
        " + ".join("a" * 49),
        " and ".join(["a = 1"] * 5_000),
        f"a in ({', '.join(['1'] * 40_000)})",
    ],
    ids=lambda text: text[:12],
)
def test_a_query_nested_within_the_bound_is_parsed(text: str) -> None:
    assert len(parse(f"{text} from [//t]").select or ()) == 1


def test_a_caller_that_is_deep_itself_gets_an_error_of_ours() -> None:
    def dive(depth: int) -> Query:
        return dive(depth - 1) if depth else parse("((((1)))) from [//t]")

    assert dive(5).paths == ("//t",)
    with pytest.raises(LimitExceeded, match="nested"):
        dive(sys.getrecursionlimit() - len(inspect.stack(0)) - 15)


def test_rows_and_joins_are_bounded() -> None:
    with pytest.raises(LimitExceeded, match="LIMIT"):
        parse(f"a from [//t] limit {LIMIT_MAX + 1}")
    assert parse(f"a from [//t] offset {LIMIT_MAX} limit {LIMIT_MAX}").limit == LIMIT_MAX
    with pytest.raises(LimitExceeded, match="joins"):
        parse("a from [//t]" + " join [//u] using a" * 17)
