"""LIKE and regular expressions. Pure.

Owns: patterns. A pattern is a literal here, and a text. A string that is no text matches no
pattern. Regular expressions are RE2's in both systems, and must match the whole text. In LIKE, `%`
stands for any text, and `_` for one character. The escape (`\\` by default) makes both of them
plain.
"""

import re
from collections.abc import Callable
from typing import Final

from dodona_wire.errors import InvalidRequest
from dodona_ytsaurus.query.calls import Argument
from dodona_ytsaurus.query.sql_values import text_of, text_sql

_ESCAPE: Final = "\\"
_SPECIAL: Final = re.compile(r"[\\%_]")


def match_sql(
    operator: str, text: Argument, pattern: Argument, escape: Argument | None = None
) -> str:
    """Return SQL that says whether the text matches. It is null if the text or the pattern is null.
    The operator is LIKE, ILIKE, REGEX, or REGEX PART, which may match any part. Raises
    InvalidRequest."""
    if pattern.expression.constant is None or (escape and escape.expression.constant is None):
        raise pattern.error("the pattern must be a literal")
    if pattern.constant is None or (escape and escape.constant is None):
        return "cast(null as boolean)"
    literal = _literal(pattern)
    if operator.startswith("REGEX"):
        function = "regexp_matches" if operator == "REGEX PART" else "regexp_full_match"
        matched = f"{function}({text.text}, {text_sql(literal)})"
    else:
        character = _ESCAPE if escape is None else _literal(escape)
        if len(character) > 1:
            raise pattern.error("the escape must be one character")
        plain = _like(literal, character, pattern.error)
        matched = rf"{text.text} {operator.lower()} {text_sql(plain)} escape '\'"
    if text.expression.text is not None:
        return f"({matched})"
    return f"coalesce({matched}, {text.sql} is null and null)"


def _literal(argument: Argument) -> str:
    found = text_of(argument.constant)
    if found is None:
        raise argument.error("the pattern must be a text without null characters")
    return found


def _like(pattern: str, escape: str, error: Callable[[str], InvalidRequest]) -> str:
    """Return the same pattern, escaped with a backslash."""
    pieces = []
    characters = iter(pattern)
    for it in characters:
        if it != escape:
            pieces.append(r"\\" if it == _ESCAPE else it)
            continue
        escaped = next(characters, None)
        if escaped is None:
            raise error("the pattern ends with its escape: add a character")
        pieces.append(_SPECIAL.sub(r"\\\g<0>", escaped))
    return "".join(pieces)
