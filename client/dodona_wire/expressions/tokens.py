"""Split a query into tokens: keywords, names, literals, operators. Pure.

Owns: the lexer, the escapes of string literals, and what a placeholder `{name}` stands for.
Keywords are the same in upper and in lower case; names are not. A name in brackets or backquotes
may be any text. After FROM and JOIN a path needs no brackets, although YTsaurus demands them.

Invariant: the last token is END, so that a parser which looks one token ahead never runs out.
"""

import difflib
import math
import re
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any, Final, NamedTuple

from dodona_wire.expressions.source import Source

TOKENS_MAX: Final = 100_000
NEAR_COUNT_MAX: Final = 1_000
NEAR_LENGTH_MAX: Final = 100
"""Among how many names, of at most how many characters, an error looks for a similar one."""
INT64_END: Final = 1 << 63
UINT64_END: Final = 1 << 64
END: Final = "the end of the query"
NAME: Final = "a name"
INT64: Final = "an int64 literal"
UINT64: Final = "a uint64 literal"
DOUBLE: Final = "a double literal"
STRING: Final = "a string literal"

_WORDS: Final = (
    "SELECT FROM WHERE HAVING OFFSET LIMIT JOIN ARRAY USING ASC DESC LEFT AS ON UNNEST AND OR IS"
    " NOT NULL BETWEEN IN TRANSFORM LIKE ILIKE RLIKE REGEXP ESCAPE FALSE TRUE CASE WHEN THEN ELSE"
    " END INF CAST"
)
_KEYWORDS: Final = frozenset(_WORDS.split())
_PATH_FOLLOWS: Final = ("FROM", "JOIN")
_TOKEN: Final = re.compile(
    r"""
    (?P<space> \s+ )
    | (?P<double> (?: \d+\.\d* | \.\d+ ) (?: [eE][+-]?\d+ )? | \d+[eE][+-]?\d+ )
    | (?P<uint64> \d+u )
    | (?P<int64> \d+ )
    | (?P<string> '[^'\\]*(?:\\.[^'\\]*)*' | "[^"\\]*(?:\\.[^"\\]*)*" )
    | (?P<quoted> `[^`\\]*(?:\\.[^`\\]*)*` )
    | \{ (?P<placeholder> [A-Za-z_]\w* ) \}
    | % (?P<truth> (?i: true | false ) ) (?!\w)
    | (?P<phrase> (?i: (?: group | order ) \s+ by | with \s+ (?: totals | index | hint ) ) ) (?!\w)
    | (?P<word> [A-Za-z_]\w* )
    | (?P<operator> <= | >= | != | <> | << | >> | \|\| | [()*,<=>+\-/%.|&~\#] )
    | (?P<bracket> \[ )
    """,
    re.VERBOSE | re.DOTALL | re.ASCII,
)
_BRACKETS: Final = re.compile(r"[\[\]]")
_BARE_PATH: Final = re.compile(r"//[^\s,()\[\]'\"`]*")
_ESCAPE: Final = re.compile(
    r"\\(?: x([0-9A-Fa-f]{1,2}) | ([0-3][0-7]{0,2} | [4-7][0-7]?)"
    r" | u([0-9A-Fa-f]{4}) | U([0-9A-Fa-f]{8}) | (.) )",
    re.VERBOSE | re.DOTALL,
)
_CONTROLS: Final = {
    "a": b"\a", "b": b"\b", "f": b"\f", "n": b"\n", "r": b"\r", "t": b"\t", "v": b"\v",
}  # fmt: skip


class Token(NamedTuple):
    """One token of a query."""

    kind: str
    """A keyword in upper case, an operator, or one of the constants above."""
    value: Any
    """A str for a name; an int, float or bytes for a literal; otherwise None."""
    at: int


def tokenize(source: Source, placeholders: Mapping[str, Any]) -> list[Token]:
    """Return all tokens, END last. Raises InvalidRequest, LimitExceeded."""
    tokens: list[Token] = []
    at = 0
    while at < len(source.text):
        found, at = _next(source, at, tokens, placeholders)
        tokens += found
        if len(tokens) > TOKENS_MAX:
            message = f"The {source.noun} has more than {TOKENS_MAX} words. Make it shorter."
            raise source.limit(at, message, words_max=TOKENS_MAX)
    return [*tokens, Token(END, None, at)]


def _next(
    source: Source, at: int, before: list[Token], placeholders: Mapping[str, Any]
) -> tuple[list[Token], int]:
    """Return the tokens that begin at an offset, and the place where they end."""
    text = source.text
    if before and before[-1].kind in _PATH_FOLLOWS and (path := _BARE_PATH.match(text, at)):
        return [Token(NAME, path[0], at)], path.end()
    found = _TOKEN.match(text, at)
    if found is None:
        raise _unknown(source, at)
    group, part = str(found.lastgroup), found[str(found.lastgroup)]
    if group == "space":
        return [], found.end()
    if group == "bracket":
        end = _bracket_end(source, at)
        return [Token(NAME, text[at + 1 : end - 1], at)], end
    if group == "placeholder":
        return list(_stand_in(source, part, placeholders, at)), found.end()
    return [_token(source, group, part, at)], found.end()


def _token(source: Source, group: str, part: str, at: int) -> Token:
    match group:
        case "phrase":
            return Token(" ".join(part.upper().split()), None, at)
        case "truth":
            return Token(part.upper(), None, at)
        case "word":
            keyword = part.upper()
            return Token(keyword, None, at) if keyword in _KEYWORDS else Token(NAME, part, at)
        case "operator":
            return Token("!=" if part == "<>" else part, None, at)
        case "string":
            return Token(STRING, _unescaped(source, part[1:-1], at), at)
        case "quoted":
            return Token(NAME, _name_of(source, _unescaped(source, part[1:-1], at), at), at)
    return _number(source, group, part, at)


def _number(source: Source, group: str, part: str, at: int) -> Token:
    if group == "double":
        return Token(DOUBLE, float(part), at)
    digits = part.rstrip("u").lstrip("0") or "0"
    if len(digits) > len(str(UINT64_END)) or int(digits) >= UINT64_END:
        raise source.error(at, "The number is too large. The largest is 18446744073709551615u.")
    return Token(UINT64 if group == "uint64" else INT64, int(digits), at)


def _bracket_end(source: Source, at: int) -> int:
    depth = 0
    for found in _BRACKETS.finditer(source.text, at):
        depth += 1 if found[0] == "[" else -1
        if not depth:
            return found.end()
    raise source.error(at, "The name in brackets has no end. Add the missing ].")


def _unknown(source: Source, at: int) -> Exception:
    character = source.text[at]
    if character in "'\"`":
        return source.error(at, f"The text in quotes has no end. Add the missing {character}.")
    return source.error(at, f"A word of the {source.noun} can't begin with {character!r}.")


# ---- strings


def _unescaped(source: Source, text: str, at: int) -> bytes:
    """Return the bytes of a literal: its text as UTF-8, its escapes as in C."""
    pieces: list[bytes] = []
    copied = 0
    for found in _ESCAPE.finditer(text):
        pieces += [text[copied : found.start()].encode(), _escape(source, found, at)]
        copied = found.end()
    return b"".join([*pieces, text[copied:].encode()])


def _escape(source: Source, found: re.Match[str], at: int) -> bytes:
    hexadecimal, octal, short, long, other = found.groups()
    if hexadecimal is not None:
        return bytes([int(hexadecimal, 16)])
    if octal is not None:
        return bytes([int(octal, 8)])
    if other is not None:
        return _CONTROLS.get(other) or other.encode()
    try:
        return chr(int(short or long, 16)).encode()
    except (ValueError, OverflowError) as error:
        raise source.error(at, f"{found[0]} is not a Unicode character.") from error


def _name_of(source: Source, name: bytes, at: int) -> str:
    try:
        return name.decode()
    except UnicodeDecodeError as error:
        raise source.error(at, "The name in backquotes is not valid UTF-8.") from error


# ---- placeholders


def _stand_in(
    source: Source, name: str, placeholders: Mapping[str, Any], at: int
) -> Iterator[Token]:
    if name not in placeholders:
        given = [it for it in islice(placeholders, NEAR_COUNT_MAX) if len(it) <= NEAR_LENGTH_MAX]
        near = difflib.get_close_matches(name[:NEAR_LENGTH_MAX], given, 1)
        hint = f"Did you mean {{{near[0]}}}?" if near else "Pass one for it."
        message = f"The placeholder {{{name}}} has no value. {hint}"
        raise source.error(at, message, placeholder=name)
    return _tokens_of(source, name, placeholders[name], at, 0)


def _tokens_of(source: Source, name: str, value: Any, at: int, depth: int) -> Iterator[Token]:
    """Yield a value as literals. A list becomes a tuple."""
    if isinstance(value, list | tuple) and value and depth < 2 and len(value) <= TOKENS_MAX:
        for place, it in enumerate(value):
            yield Token("," if place else "(", None, at)
            yield from _tokens_of(source, name, it, at, depth + 1)
        yield Token(")", None, at)
        return
    token = _token_of(value, at)
    if token is None:
        raise source.error(
            at,
            f"The placeholder {{{name}}} must be a null, a boolean, a number, a text, or a list of"
            " these (or of such lists).",
            placeholder=name,
        )
    yield token


def _token_of(value: Any, at: int) -> Token | None:
    match value:
        case None:
            return Token("NULL", None, at)
        case bool():
            return Token("TRUE" if value else "FALSE", None, at)
        case int() if -INT64_END <= value < INT64_END:
            return Token(INT64, int(value), at)
        case int() if 0 <= value < UINT64_END:
            return Token(UINT64, int(value), at)
        case float() if not math.isnan(value):
            return Token(DOUBLE, float(value), at)
        case bytes():
            return Token(STRING, bytes(value), at)
        case str() if value.isascii() or _is_unicode(value):
            return Token(STRING, value.encode(), at)
    return None


def _is_unicode(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True
