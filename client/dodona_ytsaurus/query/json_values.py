"""Read values of type any in SQL, where they are JSON text. Pure.

Owns: how values are taken from the JSON. JSON does not distinguish int64 from uint64: the requested
type decides. A string is text or bytes, and a double may be NaN or infinite.
`dodona_wire.rows.text_format` says what these look like.

`int64(x)` and similar functions convert, and refuse what they can't convert. `get_int64(x, "/a/0")`
refuses another type, and `try_get_int64` gives null for it.
"""

from collections.abc import Callable, Sequence
from typing import Final

from dodona_wire.expressions.values import Kind
from dodona_wire.rows.text_format import BASE64, DOUBLE
from dodona_ytsaurus.query.calls import Argument, Function
from dodona_ytsaurus.query.sql_values import SQL_TYPES, text_of, text_sql

_TYPES: Final = {
    Kind.INT64: "'BIGINT', 'UBIGINT'",
    Kind.UINT64: "'BIGINT', 'UBIGINT'",
    Kind.DOUBLE: "'DOUBLE'",
    Kind.BOOLEAN: "'BOOLEAN'",
    Kind.STRING: "'VARCHAR'",
}
_OTHER_NUMBERS: Final = {
    Kind.INT64: ("'DOUBLE'", "trunc({0}::double)::bigint"),
    Kind.UINT64: ("'DOUBLE'", "trunc({0}::double)::ubigint"),
    Kind.DOUBLE: ("'BIGINT', 'UBIGINT', 'HUGEINT'", "{0}::double"),
}

_MARKS: Final = {
    Kind.STRING: (BASE64, "from_base64({0})"),
    Kind.DOUBLE: (DOUBLE, "({0})::double"),
}


def converted(it: Argument, kind: Kind) -> str:
    """Return the SQL of the whole value as that kind. A number may become another kind of
    number."""
    otherwise = f"error('a value of type any is not of type {str(kind.name).lower()}')"
    other = ""
    if kind in _OTHER_NUMBERS:
        types, template = _OTHER_NUMBERS[kind]
        other = f" when json_type({it.sql}) in ({types}) then {template.format(it.sql)}"
    return _chosen(it.sql, kind, other, otherwise)


def _chosen(sql: str, kind: Kind, other: str, otherwise: str) -> str:
    """Return the SQL of a JSON text as a value of that kind; null if it is null or missing. Any
    other text gives `otherwise`."""
    found = (
        f"encode(json_extract_string({sql}, ''))"
        if kind == Kind.STRING
        else f"({sql})::{SQL_TYPES[kind]}"
    )
    return (
        f"case when coalesce(json_type({sql}), 'NULL') = 'NULL' then null"
        f" when json_type({sql}) in ({_TYPES[kind]}) then {found}{_marked(sql, kind)}{other}"
        f" else cast({otherwise} as {SQL_TYPES[kind]}) end"
    )


def _marked(sql: str, kind: Kind) -> str:
    """Return the SQL of values that JSON lacks, which are an object with one reserved name."""
    if kind not in _MARKS:
        return ""
    name, template = _MARKS[kind]
    is_marked = f"json_type({sql}) = 'OBJECT' and json_keys({sql}) = ['{name}']"
    held = template.format(f"json_extract_string({sql}, '/{name}')")
    return f" when {is_marked} then {held}"


def _getter(kind: Kind, is_strict: bool) -> Function:
    def render(given: Sequence[Argument]) -> str:
        whole, path = given
        sql = f"json_extract({whole.sql}, {text_sql(_path(path))})::varchar"
        absent = f"error('the path has no value of type {str(kind.name).lower()}')"
        if kind == Kind.ANY:
            return f"coalesce({sql}, cast({absent} as varchar))" if is_strict else sql
        found = _chosen(sql, kind, "", absent if is_strict else "null")
        if not is_strict:
            return found
        return f"case when {sql} is null then cast({absent} as {SQL_TYPES[kind]}) else {found} end"

    return Function((Kind.ANY, Kind.STRING), kind, render, nulls="may be")


def _path(path: Argument) -> str:
    """Return a path such as /a/b/0, which is a JSON pointer too. Raises InvalidRequest."""
    text = None if path.constant is None else text_of(path.constant)
    if text is None:
        raise path.error("the path must be a literal text")
    if text and not text.startswith("/"):
        raise path.error("the path must begin with /")
    if any(it in text for it in "@*\\~"):
        raise path.error("the path must have names and numbers only, without @, *, ~ and escapes")
    return text


def _all() -> dict[str, Function]:
    makers: dict[str, Callable[[Kind], Function]] = {
        "try_get_": lambda kind: _getter(kind, is_strict=False),
        "get_": lambda kind: _getter(kind, is_strict=True),
    }
    return {
        prefix + str(kind.name).lower(): make(kind)
        for prefix, make in makers.items()
        for kind in SQL_TYPES
    }


JSON_FUNCTIONS: Final = _all()
"""The functions get_int64, try_get_int64, and so on for each type."""
