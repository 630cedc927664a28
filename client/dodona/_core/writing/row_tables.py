"""Python rows as Arrow tables, for those who bring rows in bulk and have them one by one. Pure.

Owns: the checks, made column by column, which say which row and column is wrong. pyarrow is
imported on first use.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from dodona_wire.errors import SchemaViolation
from dodona_wire.rows.arrow import table_of_columns
from dodona_wire.rows.row_rules import missing_key_column
from dodona_wire.rows.schema import Column, TableSchema
from dodona_wire.rows.values import CHECKS


def table_of_rows(
    schema: TableSchema, rows: Sequence[Mapping[str, Any]], first_row: int, *, is_update: bool
) -> Any:
    """A `pyarrow.Table` of the columns that the rows name, in the table's order: all key columns,
    and others, which are null in the rows that do not name them. In an update that would be a
    change, so there all rows name the same. `first_row` is the first one's place among all. Raises
    SchemaViolation."""
    names = dict.fromkeys(name for row in rows for name in row)
    _check_names(schema, rows, names, first_row)
    columns = [it for it in schema.columns if it.name in names]
    if is_update:
        _check_alike(rows, len(columns), first_row)
    values = [_checked(column, rows, first_row) for column in columns]
    return table_of_columns(columns, values)


def _check_names(
    schema: TableSchema,
    rows: Sequence[Mapping[str, Any]],
    names: Mapping[str, None],
    first_row: int,
) -> None:
    known = {it.name for it in schema.columns}
    for name in names:
        if name not in known:
            place = next(place for place, row in enumerate(rows) if name in row)
            raise SchemaViolation("no such column", column=name, row_index=first_row + place)
    for column in schema.key_columns:
        for place, row in enumerate(rows):
            if column.name not in row:
                error = missing_key_column(column.name, column.required)
                error.attributes["row_index"] = first_row + place
                raise error


def _check_alike(rows: Sequence[Mapping[str, Any]], count: int, first_row: int) -> None:
    for place, row in enumerate(rows):
        if len(row) != count:
            text = "rows that update others all name the same columns, in one body"
            raise SchemaViolation(text, row_index=first_row + place)


def _checked(column: Column, rows: Sequence[Mapping[str, Any]], first_row: int) -> list[Any]:
    name, check = column.name, CHECKS[column.type]
    values = [row.get(name) for row in rows]
    place = 0
    try:
        for place, value in enumerate(values):
            if value is not None:
                values[place] = check(value, name)
            elif column.required:
                raise SchemaViolation("required column is null or missing", column=name)
    except SchemaViolation as error:
        error.attributes["row_index"] = first_row + place
        raise
    return values
