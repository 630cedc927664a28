"""All that ever became of a row, as far as its tablet keeps it: versioned lookups. Pure.

Owns: the shape of their results, and how it is made of what cells answer. Source: the YTsaurus
document, "Versioned lookup".
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from dodona._core.context import Context
from dodona._core.messages import RowVersion
from dodona._core.reading import LookupQuestion, Projection, ReadAt, encode_keys, look_up
from dodona._core.steps import Protocol
from dodona.types import Key, Timestamp


class VersionedValue(msgspec.Struct, frozen=True, repr_omit_defaults=True):
    """What one commit gave to one column: a value, or with `aggregate` a change of it."""

    timestamp: Timestamp
    """Of that commit."""
    value: Any
    aggregate: bool = False


class VersionedRow(msgspec.Struct, frozen=True):
    """One row's history, everything newest first. Timestamps are those of commits, whatever columns
    were asked for; columns that nobody wrote are not among `values`."""

    key: dict[str, Any]
    """All key columns."""
    write_timestamps: list[Timestamp]
    delete_timestamps: list[Timestamp]
    values: dict[str, list[VersionedValue]]
    """By value column."""


def lookup_versions(
    context: Context,
    path: str,
    keys: Iterable[Mapping[str, Any]],
    columns: Sequence[str] | None,
    timestamp: Timestamp,
) -> Protocol[list[VersionedRow | None]]:
    """The histories of these keys up to a timestamp, in their order; None where there is none."""
    route = yield from context.route(path)
    encoded = encode_keys(route, keys)
    projection = Projection(route.schema, columns)
    question = LookupQuestion(projection.wire_mask, ReadAt(timestamp), is_versioned=True)
    found = yield from look_up(context, route, encoded, question)
    return [
        _row(projection, key, versions) if versions else None
        for key, versions in zip(encoded, found, strict=True)
    ]


def _row(projection: Projection, key: Key, versions: Sequence[RowVersion]) -> VersionedRow:
    schema = projection.schema
    values: dict[str, list[VersionedValue]] = {
        column.name: [] for column in schema.columns_of(projection.mask)
    }
    for version in versions:
        columns = schema.columns_of(schema.plain_mask(version.column_mask))
        deltas = {it.name for it in schema.columns_of(schema.plain_mask(version.delta_mask))}
        for column, value in zip(columns, version.values, strict=True):
            item = VersionedValue(version.timestamp, value, column.name in deltas)
            values[column.name].append(item)
    return VersionedRow(
        dict(zip(schema.key_names, schema.decode_key(key), strict=True)),
        [version.timestamp for version in versions if not version.is_delete],
        [version.timestamp for version in versions if version.is_delete],
        {name: items for name, items in values.items() if items},
    )
