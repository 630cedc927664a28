"""Read where a message of DuckDB points, and correct it. Pure.

Owns: the form of such a place: `LINE 2: …`, and below it marks under a part of the line. And where
the calls begin in a message about a defect in DuckDB.
Must not import: duckdb.
"""

import re
from collections.abc import Mapping
from typing import Final

_PLACE: Final = re.compile(r"\nLINE (\d+): ([^\n]*)\n( *)(\^+) *\Z")
_TRACE: Final = re.compile(r"((?:INTERNAL|FATAL) Error: .*?)\s*\n\s*Stack Trace:.*", re.DOTALL)
_CALLED: Final = re.compile(
    r"Invalid Input Error: Python exception occurred while executing the UDF: \w+: (.*)", re.DOTALL
)
_NAMED: Final = re.compile(r"\$(\w+)")


def without_trace(message: str) -> str:
    """Return the message without the calls inside DuckDB, and the paths of this machine."""
    return _TRACE.sub(r"\1\n\nThis is a defect in DuckDB. Write the query another way.", message)


def without_call(message: str) -> str:
    """Return the message of a function of Dodona without DuckDB's words about its call."""
    found = _CALLED.match(message)
    return message if found is None else found[1]


def moved_up(message: str, line_count: int) -> str:
    """Return the message with a place that is so many lines further up, or without a place that
    would be above the text."""
    found = _PLACE.search(message)
    if found is None or not line_count:
        return message
    if int(found[1]) <= line_count:
        return message[: found.start()].rstrip()
    number = str(int(found[1]) - line_count)
    blanks = found[3][len(found[1]) - len(number) :]
    return f"{message[: found.start()]}\nLINE {number}: {found[2]}\n{blanks}{found[4]}"


def parameter_at(message: str, text: str, names_by_place: Mapping[int, str]) -> str | None:
    """Return the name of the parameter that the message points at, in lower case, or None if it
    points at something else. `names_by_place` has the places of all parameters in the text, in
    bytes."""
    found = _PLACE.search(message)
    column = -1 if found is None else len(found[3]) - len(f"LINE {found[1]}: ")
    if found is None or column < 0:
        return None
    lines = text.split("\n")
    number = int(found[1])
    if number <= len(lines) and lines[number - 1] == found[2]:
        before = "\n".join([*lines[: number - 1], found[2][:column]])
        return names_by_place.get(len(before.encode()))
    named = _NAMED.match(found[2], column)  # DuckDB shows a part of a long line
    return named[1].lower() if named else None
