"""Read words of the command line as values: schemas, keys, ends of ranges, attributes.

Owns: the short forms. JSON always works too. Values have the same text form as in files (see
`dodona_wire.rows.text_format`).

- A schema is `name:type`, then `:key` or `:descending` for a key column, `:required`, `:sum` and
  the other aggregates, `:lock=NAME`, in any order. Columns have commas between them. It may also be
  a list of columns in JSON, or a file with either form.
- A key, or an end of a range, is `name=value,name=value`. Values with a comma, and null, need JSON:
  an object, or a list of values in the order of the key columns.
- An attribute is `name=value`. The value is JSON, or one word, which is text.
- A parameter of a query is `name=value`. The option says whether the value is text or JSON.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import msgspec

from dodona.timestamps import check_plausible, timestamp_from_datetime
from dodona_wire.errors import InvalidRequest, SchemaViolation
from dodona_wire.rows.columns import AGGREGATE_TYPES, Column
from dodona_wire.rows.json_text import decode_json
from dodona_wire.rows.schema import TableSchema
from dodona_wire.rows.text_format import read_value, unmarked, value_of_text
from dodona_wire.shown import shown
from dodona_wire.types import Timestamp

DIGITS: Final = re.compile("[0-9]{1,20}")
WORD: Final = re.compile(r"[^\W\d][\w./-]*")
SCHEMA_BYTES_MAX: Final = 16 << 20
_KEY_WORDS: Final = ("key", "descending")
_OPENING: Final = re.compile(r"\b(?:(?:list|struct|dict|optional)\s*<|decimal\s*\()")
_QUOTED: Final = re.compile(r'"(?:[^"]|"")*"')
_MARKS: Final = re.compile(r"""[(),]|'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*\"""")
"""Commas, and what keeps a comma from being behind an expression: brackets and literals."""
_EXPRESSION: Final = ":expression="
"""Comes before the expression of a computed column, at the end of the column."""


def json_word(text: str, what: str) -> Any:
    """Return the value of JSON text; `what` names it in errors. Raises InvalidRequest."""
    try:
        return decode_json(text)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise InvalidRequest(f"{what} is not JSON: {error}: {text[:100]}") from error


def value_word(text: str) -> Any:
    """Return the value of JSON text, or of one word. Raises InvalidRequest."""
    if WORD.fullmatch(text) and text not in ("null", "true", "false"):
        return text
    return json_word(text, "a value, unless it is one word,")


def attributes_of(words: Iterable[str]) -> dict[str, Any]:
    """Return attributes from words of the form name=value. Raises InvalidRequest."""
    found: dict[str, Any] = {}
    for word in words:
        name, separator, value = word.partition("=")
        if not (name and separator):
            raise InvalidRequest(f"write an attribute as name=value, not as {word!r}")
        if name in found:
            raise InvalidRequest(f"the attribute {name} is given twice")
        found[name] = value_word(value)
    return found


def parameters_of(texts: Iterable[str], json_words: Iterable[str]) -> dict[str, Any]:
    """Return the parameters of a query, from words of the form name=text and name=JSON. Raises
    InvalidRequest, SchemaViolation."""
    found: dict[str, Any] = {}
    for option, words in (("--param", texts), ("--param-json", json_words)):
        for word in words:
            name, separator, value = word.partition("=")
            name = name.removeprefix("$")  # as in the SQL
            if not (name and separator):
                raise InvalidRequest(f"write {option} name=value, not {shown(word)}")
            if name in found:
                raise InvalidRequest(f"the parameter {name} is given twice")
            is_json = option == "--param-json"
            found[name] = _unmarked_word(name, value) if is_json else value
    return found


def _unmarked_word(name: str, text: str) -> Any:
    place = f"the parameter {name}"
    return unmarked(json_word(text, place), place)


# ---- schemas


def schema_of(text: str) -> TableSchema:
    """Return the schema that a text gives or names. Raises SchemaViolation, InvalidRequest."""
    if text.lstrip().startswith("["):
        return TableSchema.parse(json_word(text, "a schema"))
    file = Path(text)
    if ":" not in text or _is_there(file):
        return schema_of(_read(file))
    return TableSchema.parse([_column_of(it) for it in _split(text.strip(), ",")])


def _is_there(file: Path) -> bool:
    """Return whether a text that may be a schema names a file. A very long text names none."""
    try:
        return file.exists()
    except (OSError, ValueError):
        return False


def _read(file: Path) -> str:
    try:
        with file.open(encoding="utf-8-sig") as opened:
            text = opened.read(SCHEMA_BYTES_MAX).strip()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InvalidRequest(f"the schema in {file} can't be read: {reason}") from error
    if not (text.startswith("[") or ":" in text):
        raise InvalidRequest(
            f"{file} has no schema: write a list of columns in JSON, or id:int64:key,v:int64"
        )
    return text


def _split(text: str, separator: str) -> list[str]:
    """Return the parts of a schema. Commas and colons within decimal(10,2), struct<a:int64>, quotes
    and expressions separate nothing."""
    parts, start, depth, at = [], 0, 0, 0
    while at < len(text):
        if text.startswith(_EXPRESSION, at) and not depth:
            at = _end_of_expression(text, at + len(_EXPRESSION))
            continue
        found = _OPENING.match(text, at) or (_QUOTED.match(text, at) if depth else None)
        if found is not None:
            depth += found[0][-1] in "<("
            at = found.end()
            continue
        depth -= depth > 0 and text[at] in ">)"
        if text[at] == separator and not depth:
            parts.append(text[start:at])
            start = at + 1
        at += 1
    return [*parts, text[start:]]


def _end_of_expression(text: str, at: int) -> int:
    """Return the place of the first comma that is outside of brackets and literals, or the end."""
    depth = 0
    for mark in _MARKS.finditer(text, at):
        depth += {"(": 1, ")": -1}.get(mark[0], 0)
        if mark[0] == "," and depth <= 0:
            return mark.start()
    return len(text)


def _column_of(text: str) -> dict[str, Any]:
    text, separator, expression = text.partition(_EXPRESSION)
    name, *words = (it.strip() for it in _split(text, ":"))
    if not words:
        raise SchemaViolation(f"write a column as name:type, not {text!r}")
    fields: dict[str, Any] = {"name": name, "type": words[0]}
    if separator:
        fields["expression"] = expression.strip()
    for word in words[1:]:
        if word in _KEY_WORDS:
            # A key column is ascending unless it says otherwise, as `key:descending` does.
            fields["sort_order"] = "descending" if "descending" in words else "ascending"
        elif word == "required":
            fields["required"] = True
        elif word in AGGREGATE_TYPES:
            fields["aggregate"] = word
        elif word.startswith("lock="):
            fields["lock"] = word.removeprefix("lock=")
        else:
            given = [*_KEY_WORDS, "required", "lock=NAME", *AGGREGATE_TYPES]
            known = ", ".join([*given, f"{_EXPRESSION[1:]}TEXT"])
            text = f"{word!r} is none of {known}, which may follow a column's type"
            raise SchemaViolation(text, column=name)
    return fields


# ---- keys and ranges


def keys_of(schema: TableSchema, words: Sequence[str]) -> list[dict[str, Any]]:
    """Return whole keys. Raises SchemaViolation, InvalidRequest."""
    return [key_of(schema, word) for word in words]


def key_of(schema: TableSchema, text: str) -> dict[str, Any]:
    """Return one whole key. Raises SchemaViolation, InvalidRequest."""
    if text.startswith("["):
        given = json_word(text, "a list of key column values")
        needed = schema.needed_key_names
        if isinstance(given, list) and len(given) == len(needed) < len(schema.key_columns):
            columns = [it for it in schema.key_columns if it.name in needed]
            return {
                it.name: read_value(it, value) for it, value in zip(columns, given, strict=True)
            }
        values = list_of(schema, given)
        if len(values) < len(schema.key_columns):
            raise SchemaViolation("a key needs a value for each key column", key=text)
        return dict(zip(schema.key_names, values, strict=True))
    return _named(schema.key_columns, text)


def values_of(schema: TableSchema, text: str) -> dict[str, Any]:
    """Return values of columns that are no key columns. Raises SchemaViolation, InvalidRequest."""
    return _named(schema.value_columns, text)


def bound_of(schema: TableSchema, text: str) -> list[Any]:
    """Return values of leading key columns. Raises SchemaViolation, InvalidRequest."""
    if text.startswith("["):
        return list_of(schema, json_word(text, "a list of key column values"))
    named = _named(schema.key_columns, text)
    leading = schema.key_names[: len(named)]
    if set(named) != set(leading):
        raise SchemaViolation(
            f"the end of a range needs the first key columns, {leading}", end=text
        )
    return [named[name] for name in leading]


def list_of(schema: TableSchema, values: Any) -> list[Any]:
    """Return values of leading key columns, from JSON values. Raises SchemaViolation."""
    if not isinstance(values, list) or len(values) > len(schema.key_columns):
        raise SchemaViolation(f"write key values as a list of {len(schema.key_columns)} at most")
    return [read_value(*it) for it in zip(schema.key_columns, values, strict=False)]


def pivots_of(schema: TableSchema, text: str) -> list[list[Any]]:
    """Return pivot keys, from a JSON list of lists. Raises SchemaViolation, InvalidRequest."""
    pivots = json_word(text, "pivot keys")
    if not isinstance(pivots, list):
        raise InvalidRequest("write pivot keys as a list of lists of key values: [[], [10]]")
    return [list_of(schema, pivot) for pivot in pivots]


def _named(columns: Sequence[Column], text: str) -> dict[str, Any]:
    what = "a key" if columns and columns[0].sort_order else "values"
    if text.startswith("{"):
        found = json_word(text, what)
        return _read_named(columns, found, read_value)
    pairs = [it.partition("=") for it in text.split(",")]
    if any(not separator for _, separator, _ in pairs):
        raise InvalidRequest(f"write {what} as JSON, or as name=value,name=value, not as {text!r}")
    if len({name for name, _, _ in pairs}) < len(pairs):
        raise InvalidRequest(f"name each column of {what} once, not as in {text!r}")
    return _read_named(columns, {name: value for name, _, value in pairs}, value_of_text)


def _read_named(
    columns: Sequence[Column], found: dict[str, Any], read: Callable[[Column, Any], Any]
) -> dict[str, Any]:
    by_name = {column.name: column for column in columns}
    strangers = [name for name in found if name not in by_name]
    if strangers:
        kind = "key " if columns and columns[0].sort_order else ""
        raise SchemaViolation(f"no such {kind}column", columns=strangers, known=[*by_name])
    return {name: read(by_name[name], value) for name, value in found.items()}


# ---- columns and times


def names_of(text: str | None) -> list[str] | None:
    """Return the names in a text with commas; None for all."""
    return None if text is None else [name.strip() for name in text.split(",")]


def timestamp_of(text: str) -> Timestamp:
    """Return a timestamp, or the first one of a time. Raises InvalidRequest if the text is neither.
    A 0 is allowed here: the reader of the value checks it."""
    return check_plausible(int(text)) if DIGITS.fullmatch(text) else moment_of(text)


def moment_of(text: str) -> Timestamp:
    """Return the first timestamp of a time. Raises InvalidRequest."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise InvalidRequest(
            f"{text!r} is not a time such as 2026-07-01T12:00:00Z: {error}"
        ) from error
    return timestamp_from_datetime(moment)
