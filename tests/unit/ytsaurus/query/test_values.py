"""What expressions are worth, null above all, over an embedded database."""

from collections.abc import Callable
from typing import Any

import pytest

from dodona.errors import InvalidRequest

Ask = Callable[..., list[tuple[Any, ...]]]
ACCENT = "é".encode()
BIG = 2**63 + 5


def values(ask: Ask, expression: str, rest: str = "where k = 1") -> list[Any]:
    return [value for (value,) in ask(f"{expression} as it from [//t] {rest}")]


def together(ask: Ask, expressions: list[str], rest: str) -> dict[str, list[Any]]:
    """The values of many, of one query."""
    named = ", ".join([f"{it} as x{at}" for at, it in enumerate(expressions)])
    found = zip(*ask(f"{named} from [//t] {rest}"), strict=True)
    return dict(zip(expressions, map(list, found), strict=True))


# ---- nulls


NULLS: list[tuple[str, list[Any]]] = [
    ("k < 1", [None, -7]),
    ("k <= 1", [None, -7, 1]),
    ("k > 1", [2]),
    ("k >= 1", [1, 2]),
    ("k = 1", [1]),
    ("k != 1", [None, -7, 2]),
    ("1 > k", [None, -7]),
    ("k = null", [None]),
    ("k != #", [-7, 1, 2]),
    ("k > null", [-7, 1, 2]),
    ("k >= null", [None, -7, 1, 2]),
    ("k < null", []),
    ("null <= k", [None, -7, 1, 2]),
    ("k is null", [None]),
    ("k is not null", [-7, 1, 2]),
    ("not k > 1", [None, -7, 1]),
    ("not (k > 1 and b)", [None, -7, 1]),
    ("not (k > 1 or b)", [1]),
    ("not is_null(k)", [-7, 1, 2]),
    ("not (not k = 1)", [1]),
    ("k > -10 and k < 2", [-7, 1]),
    ("k < 2 and d < 0", [None, -7]),
    ("b", [-7]),
    ("not b", [1]),
    ("b = false or b = null", [None, 1, 2]),
    ("b < true", [None, 1, 2]),
    ("(k < 2) = (d < 0)", [None, -7]),
    ("(k < 2) != (d < 0)", [1, 2]),
    ("(k < 2) in (false)", [2]),
    ("k in (1, 2)", [1, 2]),
    ("k in (1, null)", [None, 1]),
    ("k not in (1, 2)", [None, -7]),
    ("not k in (1, null)", [-7, 2]),
    ("(k, b) in ((1, false), (-7, true), (2, true))", [-7, 1]),
    ("(k, b) not in ((1, false), (-7, true))", [None, 2]),
    ("(k, b) in ((1, false), (2, null), (null, null))", [None, 1, 2]),
    ("(k, d) < (1, 2.0)", [None, -7]),
    ("(k, d) <= (1, 2)", [None, -7, 1]),
    ("(k, d) >= (1, 2.0)", [1, 2]),
    ("(k, d) = (1, 2)", [1]),
    ("(k, d) != (2, null)", [None, -7, 1]),
    ("k between -7 and 1", [-7, 1]),
    ("k between null and 1", [None, -7, 1]),
    ("(k, d) between ((-7) and (-7), (1, 2) and (1, 3))", [-7, 1]),
    ("k between (null and -7, 2 and 9)", [None, -7, 2]),
    ("s = t and s < 'z'", [2]),
    ("(d > 100 or k = 2) and d < 5", [2]),
    ("if(k < 0, d < 0, d > 0)", [None, -7, 1]),
    ("null", []),
    ("null or k = 1", [1]),
    ("true and not (null and k = 1)", [None, -7, 2]),
    ("u > 9223372036854775807u", [None, 1]),
    ("u = 18446744073709551615u", [None]),
    ("u < 5", [-7, 2]),
]
"""Conditions, and the keys of the rows for which they are true."""


@pytest.mark.parametrize(("where", "expected"), NULLS)
def test_null_is_smaller_than_all(ask: Ask, where: str, expected: list[Any]) -> None:
    assert values(ask, "k", f"where {where}") == expected


def test_a_condition_is_worth_the_same_as_a_value(ask: Ask) -> None:
    found = together(ask, [where for where, _ in NULLS], "")
    for where, expected in NULLS:
        chosen = [key for key, flag in zip([None, -7, 1, 2], found[where], strict=True) if flag]
        assert (where, chosen) == (where, expected)


def test_operators_and_functions_pass_nulls_on(ask: Ask) -> None:
    nulls = ["d + 1", "-d", "s || 'x'", "length(s)", "lower(t)", "abs(d)", "s like '%'"]
    nulls += ["if(b, 1, 2)", "u + 1", "int64(d)", "is_prefix('a', s)", "s rlike '.*'"]
    nulls += ["if(null, 1, 2)", "b and true", "b or false"]
    assert together(ask, nulls, "where k = 2") == {it: [None] for it in nulls}
    others = {
        "if(b or true, 1, null)": [1],
        "case when b then 1 else 2 end": [2],
        "b and false": [False],
        "is_nan(d)": [False],
    }
    assert together(ask, list(others), "where k = 2") == others


# ---- values


EXPRESSIONS: list[tuple[str, object]] = [
    ("-7 / 2", -3),
    ("k - 8 / 3", -1),
    ("(k - 8) / 2", -3),
    ("(k - 8) % 2", -1),
    ("7 / 2.0", 3.5),
    ("d / 4", 0.5),
    ("1.0 / 0.0", float("inf")),
    ("d / 0", float("inf")),
    ("1u - 2", 2**64 - 1),
    ("9223372036854775807 + 1", -(2**63)),
    ("-9223372036854775808", -(2**63)),
    ("~k", -2),
    ("~0u", 2**64 - 1),
    ("k << 3 | 4 & 6", 12),
    ("(k - 8) >> 1", -4),
    ("u >> 63", 1),
    ("u", BIG),
    ("u + 1", BIG + 1),
    ("u / 2", BIG // 2),
    ("u % 10", BIG % 10),
    ("int64(u)", BIG - 2**64),
    ("uint64(k - 2)", 2**64 - 1),
    ("double(k)", 1.0),
    ("int64(-1.9)", -1),
    ("uint64(2.9)", 2),
    ("double(18446744073709551615u / 3)", 6148914691236517205.0),
    ("boolean(k)", True),
    ("abs(-5)", 5),
    ("abs(k - 5)", 4),
    ("abs(u)", BIG),
    ("abs(-1.5)", 1.5),
    ("floor(-1.5)", -2),
    ("ceil(1.2)", 2),
    ("round(2.5)", 3),
    ("trunc(-1.7)", -1),
    ("sign(-2)", -1),
    ("sqrt(16)", 4.0),
    ("pow(2, 10)", 1024.0),
    ("log2(8)", 3.0),
    ("log(100)", 2.0),
    ("exp(0)", 1.0),
    ("is_finite(1 / 0.0)", False),
    ("is_inf(1 / 0.0)", True),
    ("is_nan(1)", False),
    ("greatest(1, k, 7)", 7),
    ("coalesce(null, k)", 1),
    ("if_null(null, 'x')", b"x"),
    ("'a' || 'b'", b"ab"),
    ("concat(s, '!')", b"ab\x00\xff!"),
    ("length(s)", 4),
    ("length('é')", 2),
    ("lower('ÀB')", "àb".encode()),
    ("upper('àb\\'')", "ÀB'".encode()),
    ("upper(t)", b"IT'S"),
    ("lower('A\\\\B\\xff')", b"a\\b\xff"),
    ("upper('a\\\\b\\xff\\'')", b"A\\B\xff'"),
    ("is_prefix('ab', s)", True),
    ("is_prefix('b', s)", False),
    ("is_prefix('', s)", True),
    ("is_prefix('\\xff', '\\xff\\xff')", True),
    ("is_prefix(s, s || 'x')", True),
    ("is_prefix(s, 'a')", False),
    ("is_prefix('it', t)", True),
    ("is_prefix('é', 'éa')", True),
    ("is_substr('\\x00\\xff', s)", True),
    ("is_substr('b', s)", True),
    ("is_substr('', s)", True),
    ("is_substr('\\x61\\x11', '\\x16\\x11\\x10')", False),
    ("is_substr('s', t)", True),
    ("is_substr(s, 'xab\\x00\\xffy')", True),
    ("s like 'ab%'", False),
    ("t like 'it_s'", True),
    ("t like 'IT%'", False),
    ("t ilike 'IT%'", True),
    ("'é' like '_'", True),
    ("'a%' like 'a\\\\%'", True),
    ("'ab' like 'a\\\\%'", False),
    ("'a_' like 'a!_' escape '!'", True),
    ("'a\\\\b' like 'a\\\\\\\\b'", True),
    ("'a\nb' like 'a%b'", True),
    ("t not like 'x%'", True),
    ("t rlike 'it.s'", True),
    ("t rlike 'it'", False),
    ("t regexp '.*'", True),
    ("regex_full_match('i.*', t)", True),
    ("regex_partial_match('t.s', t)", True),
    ("t like null", None),
    ("transform(k, (1, 2), ('a', 'b'))", b"a"),
    ("transform(k, (5), ('a'))", None),
    ("transform((k, b), ((1, true), (1, false)), (10u, 20))", 20),
    ("transform(k, (5), (1.5), d)", 2.0),
    ("case k when 2 then 'two' when 1 then 'one' end", b"one"),
    ("case k when 3 then 3 end", None),
    ("case when k > 1 then 'a' when k > 0 then 'b' else 'c' end", b"b"),
    ("timestamp_floor_hour(k + 3700)", 3600),
    ("timestamp_floor_day(1700000000 + k)", 1699920000),
    ("timestamp_floor_week(1700000000)", 1699833600),
    ("timestamp_floor_month(1700000000)", 1698796800),
    ("timestamp_floor_quarter(1700000000)", 1696118400),
    ("timestamp_floor_year(1700000000)", 1672531200),
    ("timestamp_floor_week(-1)", -259200),
]


def test_the_value_of_an_expression(ask: Ask) -> None:
    found = together(ask, [it for it, _ in EXPRESSIONS], "where k = 1")
    for expression, expected in EXPRESSIONS:
        (value,) = found[expression]
        assert (expression, type(value), value) == (expression, type(expected), expected)


COLUMNS: list[tuple[str, list[Any]]] = [
    ("s", [b"", ACCENT, b"ab\x00\xff", None]),
    ("t", [None, "Éa".encode(), b"it's", None]),
    ("lower(s)", [b"", ACCENT, b"ab\x00\xff", None]),
    ("lower(t)", [None, "éa".encode(), b"it's", None]),
    ("s = 'é'", [False, True, False, False]),
    ("t > 'it'", [False, True, True, False]),
    ("s < t", [False, False, True, False]),
    ("s like '%'", [True, True, False, None]),
    ("k > 0 and k < 5", [False, False, True, True]),
    ("not (k > 0 and k < 5)", [True, True, False, False]),
    ("case when k < 0 then 'a' else 'b' end", [b"a", b"a", b"b", b"b"]),
    ("j", ['{"a":[1,2.5,"x",null],"b/c":true}', "-3", "1.75", '"text"']),
    ("try_get_int64(j, '/a/0')", [1, None, None, None]),
    ("try_get_double(j, '/a/1')", [2.5, None, None, None]),
    ("try_get_string(j, '/a/2')", [b"x", None, None, None]),
    ("try_get_string(j, '/a/0')", [None, None, None, None]),
    ("try_get_uint64(j, '/a/9')", [None, None, None, None]),
    ("try_get_any(j, '/a/3')", ["null", None, None, None]),
    ("try_get_int64(j, '')", [None, -3, None, None]),
    ("try_get_string(j, '')", [None, None, None, b"text"]),
]


def test_the_values_of_a_column(ask: Ask) -> None:
    found = together(ask, [it for it, _ in COLUMNS], "")
    for expression, expected in COLUMNS:
        assert (expression, found[expression]) == (expression, expected)


def test_bytes_and_unusual_doubles_in_values_of_type_any(ask: Ask) -> None:
    """They are objects in JSON, and what they stand for in a query."""
    path = "from [//any] where k = 1"
    for key, expected in (("s", b"\xff"), ("t", b"text"), ("e", b"")):
        assert ask(f"get_string(j, '/{key}') {path}") == [(expected,)]
    for key, number in (("n", "nan"), ("i", "-inf"), ("d", "1.5")):
        assert repr(ask(f"get_double(j, '/{key}') {path}")) == f"[({number},)]"
    for text in ("get_string(j, '/o')", "get_double(j, '/s')", "get_string(j, '/n')"):
        with pytest.raises(InvalidRequest, match="the path has no value"):
            ask(f"{text} {path}")
    assert ask("string(j) from [//any] where k = 2") == [(b"\xff",)]


def test_values_of_type_any_are_converted(ask: Ask) -> None:
    assert values(ask, "int64(j)", "where k in (-7, 1)") == [-3, 1]
    assert values(ask, "double(j)", "where k in (-7, 1)") == [-3.0, 1.75]
    assert values(ask, "string(j)", "where k = 2") == [b"text"]
    assert values(ask, "get_any(j, '/a')", "where k = null") == ['[1,2.5,"x",null]']
    assert values(ask, "get_int64(j, '/a/0')", "where k = null") == [1]
    for text in ("int64(j)", "boolean(j)", "get_int64(j, '/a/0')", "get_any(j, '/a')"):
        with pytest.raises(InvalidRequest, match=r"of type any|no value of type int64"):
            values(ask, text, "where k = 2")


@pytest.mark.parametrize(
    "expression",
    [
        "1 / (k - 1)",
        "u % (u - u)",
        "9223372036854775807 + k",
        "u - u - 1",
        "-9223372036854775808 / (k - 2)",
        "u * 2",
        "int64(1e300)",
        "int64(1 / 0.0)",
        "t rlike '('",
        "k << 63",
    ],
)
def test_an_expression_without_a_valid_value_is_refused(ask: Ask, expression: str) -> None:
    with pytest.raises(InvalidRequest):
        values(ask, expression)


def test_placeholders(ask: Ask) -> None:
    assert ask("k from [//t] where k = {k} and s = {s}", k=-7, s="é") == [(-7,)]
    assert ask("k from [//t] where k in {ks}", ks=[1, 2, None]) == [(None,), (1,), (2,)]
    assert ask("k from [//t] where (k, b) in {it}", it=[[1, False], [2, True]]) == [(1,)]
    assert ask("{x} as x from [//t] limit {n}", x=b"'\xff", n=1) == [(b"'\xff",)]
