"""Convert rows and histories to the gateway's JSON. Pure.

Owns: which values of a row are converted, by the types of its columns. The text forms are in
`dodona_wire.rows.text_format`, which the command line uses too.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec

from dodona._core.reading.versions import VersionedRow, VersionedValue
from dodona_wire.rows.schema import Column
from dodona_wire.rows.text_format import FORMATTERS

Convert = Callable[[Any], Any]


def converters(columns: Iterable[Column]) -> dict[str, Convert]:
    """Return by column name the conversion of values, for columns whose values JSON may lack."""
    return {it.name: FORMATTERS[it.type] for it in columns if it.type in FORMATTERS}


def convert_rows(
    rows: Iterable[Mapping[str, Any] | None], convert: Mapping[str, Convert]
) -> list[dict[str, Any] | None]:
    """Convert rows to JSON. A None stays None."""
    if not convert:
        return [None if row is None else dict(row) for row in rows]
    return [None if row is None else _row(row, convert) for row in rows]


def _row(row: Mapping[str, Any], convert: Mapping[str, Convert]) -> dict[str, Any]:
    return {
        name: value if value is None or name not in convert else convert[name](value)
        for name, value in row.items()
    }


def convert_history(row: VersionedRow, convert: Mapping[str, Convert]) -> VersionedRow:
    """Convert all versions of a row to JSON."""
    values = {
        name: [_converted(it, convert[name]) for it in items] if name in convert else items
        for name, items in row.values.items()
    }
    return msgspec.structs.replace(row, key=_row(row.key, convert), values=values)


def _converted(item: VersionedValue, convert: Convert) -> VersionedValue:
    value = None if item.value is None else convert(item.value)
    return msgspec.structs.replace(item, value=value)
