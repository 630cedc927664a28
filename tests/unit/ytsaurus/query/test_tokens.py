"""The words of a query: literals and their escapes, names, keywords, placeholders."""

import math
from typing import Any

import pytest

from dodona.errors import InvalidRequest, LimitExceeded
from dodona_wire.expressions.source import TEXT_LENGTH_MAX, Source
from dodona_wire.expressions.tokens import (
    DOUBLE,
    END,
    INT64,
    NAME,
    STRING,
    TOKENS_MAX,
    UINT64,
    tokenize,
)


def words(text: str, **placeholders: Any) -> list[tuple[str, Any]]:
    """All but the end."""
    *found, end = tokenize(Source(text), placeholders)
    assert end.kind == END
    return [(it.kind, it.value) for it in found]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0", (INT64, 0)),
        ("007", (INT64, 7)),
        ("18446744073709551615", (INT64, 2**64 - 1)),
        ("5u", (UINT64, 5)),
        ("18446744073709551615u", (UINT64, 2**64 - 1)),
        ("1.5", (DOUBLE, 1.5)),
        ("1.", (DOUBLE, 1.0)),
        (".5", (DOUBLE, 0.5)),
        ("1e3", (DOUBLE, 1000.0)),
        ("1.5E-3", (DOUBLE, 0.0015)),
        ("1e999", (DOUBLE, math.inf)),
        ("'it'", (STRING, b"it")),
        ('"it\'s"', (STRING, b"it's")),
        ("'é'", (STRING, "é".encode())),
        (r"'\n\t\r\a\b\f\v'", (STRING, b"\n\t\r\a\b\f\v")),
        (r"'\\\'\"\?\q'", (STRING, b"\\'\"?q")),
        (r"'\x41\xe9\x4'", (STRING, b"A\xe9\x04")),
        (r"'\101\0\477\18'", (STRING, b"A\x00'7\x018")),
        (r"'\u00e9\U0001F600'", (STRING, "é\U0001f600".encode())),
        (r"'\xzz\u12'", (STRING, b"xzzu12")),
        ("'a\nb'", (STRING, b"a\nb")),
        ("name_1", (NAME, "name_1")),
        ("[a.b c]", (NAME, "a.b c")),
        ("[a[b]c]", (NAME, "a[b]c")),
        (r"`a b\x41`", (NAME, "a bA")),
        ("[from]", (NAME, "from")),
        ("fRom", ("FROM", None)),
        ("group \n By", ("GROUP BY", None)),
        ("WITH  totals", ("WITH TOTALS", None)),
        ("%true", ("TRUE", None)),
        ("%False", ("FALSE", None)),
        ("<>", ("!=", None)),
        ("||", ("||", None)),
        ("#", ("#", None)),
    ],
)
def test_each_kind_of_word_becomes_one_token(text: str, expected: tuple[str, Any]) -> None:
    assert words(text) == [expected]


@pytest.mark.parametrize(
    ("text", "kinds"),
    [
        ("a%true_", [NAME, "%", NAME]),
        ("groupby", [NAME]),
        ("group byte", [NAME, NAME]),
        ("group", [NAME]),
        ("a<=b>>c", [NAME, "<=", NAME, ">>", NAME]),
        ("from //tmp/t where", ["FROM", NAME, "WHERE"]),
        ("join//tmp/t,a", ["JOIN", NAME, ",", NAME]),
        ("a//b", [NAME, "/", "/", NAME]),
        ("5ux", [UINT64, NAME]),
        ("", []),
        (" \n\t", []),
    ],
)
def test_query_text_is_split_into_the_expected_tokens(text: str, kinds: list[str]) -> None:
    assert [kind for kind, _ in words(text)] == kinds


@pytest.mark.parametrize(
    ("text", "offset", "line", "character", "part"),
    [
        ("a from 'x", 7, 1, 8, "no end"),
        ('a\n  "x', 4, 2, 3, "no end"),
        ("`a", 0, 1, 1, "no end"),
        ("a, [b[c]", 3, 1, 4, "Add the missing ]."),
        ("a ; b", 2, 1, 3, "';'"),
        ("a é", 2, 1, 3, "'é'"),
        ("1 + 18446744073709551616", 4, 1, 5, "too large"),
        ("9" * 10_000, 0, 1, 1, "too large"),
        (r"'\ud800'", 0, 1, 1, "is not a Unicode character"),
        (r"'\UFFFFFFFF'", 0, 1, 1, "is not a Unicode character"),
        (r"`\xff`", 0, 1, 1, "not valid UTF-8"),
        ("{a}", 0, 1, 1, "{a} has no value"),
    ],
)
def test_an_invalid_word_is_reported_with_its_position(
    text: str, offset: int, line: int, character: int, part: str
) -> None:
    with pytest.raises(InvalidRequest) as refused:
        words(text)
    assert part in refused.value.message
    where = refused.value.attributes
    assert (where["offset"], where["line"], where["character"]) == (offset, line, character)
    assert text[offset:].startswith(where["near"])


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, [("NULL", None)]),
        (True, [("TRUE", None)]),
        (-5, [(INT64, -5)]),
        (2**64 - 1, [(UINT64, 2**64 - 1)]),
        (1.5, [(DOUBLE, 1.5)]),
        ("é'", [(STRING, "é'".encode())]),
        (b"\xff", [(STRING, b"\xff")]),
        ([1, "b"], [("(", None), (INT64, 1), (",", None), (STRING, b"b"), (")", None)]),
    ],
)
def test_a_placeholder_is_replaced_by_its_value(value: object, expected: list[Any]) -> None:
    assert words("{it}", it=value) == expected


@pytest.mark.parametrize(
    "value", [{}, [], [[[1]]], 2**64, -(2**63) - 1, math.nan, "\ud800", object(), [{}]]
)
def test_a_placeholder_has_a_value_that_literals_have(value: object) -> None:
    with pytest.raises(InvalidRequest, match=r"\{it\} must be"):
        words("a = {it}", it=value)


def test_a_placeholder_without_a_value_is_refused_with_a_name_that_is_near() -> None:
    with pytest.raises(InvalidRequest, match=r"\{day\} has no value\. Did you mean \{dya\}\?"):
        words("{day}", dya=1, other=2)
    with pytest.raises(InvalidRequest, match=r"\{day\} has no value\. Pass one for it"):
        words("{day}", other=2)


def test_a_query_is_a_text_of_bounded_length() -> None:
    with pytest.raises(LimitExceeded, match="characters"):
        Source("a" * (TEXT_LENGTH_MAX + 1))
    with pytest.raises(LimitExceeded, match="words"):
        words("," * (TOKENS_MAX + 1))
    with pytest.raises(LimitExceeded, match="words"):
        words("{a}" * 5, a=[1] * (TOKENS_MAX // 4))
    with pytest.raises(InvalidRequest, match="UTF-8"):
        Source(b"\xff")
    with pytest.raises(InvalidRequest, match="UTF-8"):
        Source("\ud800")
    with pytest.raises(InvalidRequest, match="not int"):
        Source(5)  # type: ignore[arg-type]
    assert Source("é".encode()).text == "é"
