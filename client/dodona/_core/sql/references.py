"""Find the tables that a query names as `[//path]`, where SQL expects a table. Pure text.

Owns: the difference between such a reference and the same characters in a string, a quoted name or
a comment.
Invariant: a rewritten query is as long as the original, so that DuckDB's messages show the right
place. DuckDB reports other mistakes in the text.
"""

import re
from typing import Final

from dodona_wire.errors import InvalidRequest

_TOKEN: Final = re.compile(
    r"""
    (?<![\w$]) [eE] ' (?: [^'\\] | \\. | '' )* (?: ' | \Z )  # a string with escapes
    | ' [^']* (?: ' | \Z )            # a string; a doubled quote makes two of them, side by side
    | " [^"]* (?: " | \Z )
    | (?<![\w$]) (?P<tag> \$ (?: [^\W\d] \w* )? \$ ) .*? (?: (?P=tag) | \Z )
    | -- [^\n]*
    | (?P<comment> /\* )
    | \[ (?P<path> // [^\]\s"]* ) \]
    """,
    re.VERBOSE | re.DOTALL,
)
_COMMENT_EDGE: Final = re.compile(r"/\*|\*/")


def find_tables(text: str) -> tuple[list[str], str]:
    """Return the paths, each once, in order of appearance, and the text with quoted names in their
    places. Raises InvalidRequest if DuckDB takes two of the paths for one name."""
    paths: dict[str, str] = {}
    pieces: list[str] = []
    copied = at = 0
    while (found := _TOKEN.search(text, at)) is not None:
        at = found.end()
        if found["comment"]:
            at = _end_of_comment(text, at)
        elif (path := found["path"]) is not None:
            twin = paths.setdefault(path.lower(), path)
            if twin != path:
                raise InvalidRequest(
                    f"SQL ignores case, so {twin} and {path} are the same name. Use two queries."
                )
            pieces += [text[copied : found.start()], f'"{path}"']
            copied = at
    return list(paths.values()), "".join([*pieces, text[copied:]])


def _end_of_comment(text: str, at: int) -> int:
    """Return the place behind a comment, which may contain comments."""
    depth = 1
    while depth:
        edge = _COMMENT_EDGE.search(text, at)
        if edge is None:
            return len(text)
        depth += 1 if edge[0] == "/*" else -1
        at = edge.end()
    return at
