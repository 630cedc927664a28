"""The tables of `docs/reference/types.md`, made of the table of types.

Owns: their form. What a type is, `dodona_wire.rows.logical_types` says.
"""

from collections.abc import Iterator
from typing import Final

from documents.tables import table
from dodona_wire.rows.columns import Column
from dodona_wire.rows.logical_types import TYPES, LogicalType, decimal_type, logical_type
from dodona_wire.rows.logical_values import load_of, text_of
from pyspark_dodona.columns import spark_type

_DECIMAL: Final = decimal_type(10, 2)
_NESTED: Final = [
    logical_type(it) for it in ("list<optional<int8>>", "struct<a:int8,b:utf8>", "dict<utf8,int8>")
]


def types_text() -> str:
    """Return one table of what each type is, and one of its types elsewhere."""
    kinds = [*TYPES.values(), _DECIMAL, *_NESTED]
    first = table(
        ("type", "Python", "JSON and CSV", "range", "stored as"), [[*_meaning(it)] for it in kinds]
    )
    second = table(
        ("type", "Arrow", "pandas", "SQL", "Spark", "`type_v3` of YTsaurus"),
        [[*_elsewhere(it)] for it in kinds],
    )
    return f"## Values\n\n{first}\n\n## Types elsewhere\n\n{second}"


def _meaning(kind: LogicalType) -> Iterator[str]:
    yield _name(kind)
    yield kind.python
    yield kind.text
    yield _range(kind)
    yield f"`{kind.stored}`"


def _range(kind: LogicalType) -> str:
    match kind.form:
        case "decimal":
            return "p digits, s of them behind the point"
        case "float":
            return "numbers of 32 bits"
    if kind.lowest is None:
        return ""
    lowest, highest = (text_of(kind, load_of(kind)(it)) for it in (kind.lowest, kind.highest))
    return f"{lowest:,} to {highest:,}" if isinstance(lowest, int) else f"{lowest} to {highest}"


def _elsewhere(kind: LogicalType) -> Iterator[str]:
    yield _name(kind)
    spark = spark_type(Column("", kind.name)).simpleString()
    for text in (kind.arrow, kind.pandas, kind.sql, spark):
        yield f"`{_general(kind, text)}`"
    yield _V3.get(kind.form, f"`{kind.type_v3}`")


_V3: Final = {
    "decimal": "`decimal`, with precision and scale",
    "list": "`list`, with item",
    "struct": "`struct`, with members",
    "dict": "`dict`, with key and value",
}


def _name(kind: LogicalType) -> str:
    return f"`{_general(kind, kind.name)}`"


def _general(kind: LogicalType, text: str) -> str:
    """Return a decimal's name with p and s."""
    if kind is not _DECIMAL:
        return text
    return text.replace("10, 2", "p, s").replace("10,2", "p,s")
