"""Make Arrow tables from Python rows, for callers that write in bulk but have single rows. Pure.

Owns: the checks of each column, whose errors name the row and the column. pyarrow is imported on
first use.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from dodona_wire.errors import SchemaViolation
from dodona_wire.rows.arrow import table_of_columns
from dodona_wire.rows.logical_values import store_of
from dodona_wire.rows.row_rules import missing_key_column
from dodona_wire.rows.schema import Column, TableSchema


def table_of_rows(
    schema: TableSchema, rows: Sequence[Mapping[str, Any]], first_row: int, *, is_update: bool
) -> Any:
    """Return a `pyarrow.Table` of the columns that the rows name, in the table's order. It has all
    key columns but computed ones, which each row may leave out. Other columns are null in rows that
    do not name them. In an update, such a null would be a change, so there all rows name the same
    columns. `first_row` is the index of the first row in the whole data. Raises SchemaViolation."""
    names = dict.fromkeys(name for row in rows for name in row)
    _check_names(schema, rows, names, first_row)
    for name in schema.computed_by_name:
        if name in names and not all(name in row for row in rows):
            _check_computed(schema, name, rows, first_row)
            del names[name]
    columns = [it for it in schema.columns if it.name in names]
    if is_update:
        _check_alike(rows, len(columns), first_row)
    values = [checked_values(it, [row.get(it.name) for row in rows], first_row) for it in columns]
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
        if column.expression is not None:
            continue
        for place, row in enumerate(rows):
            if column.name not in row:
                error = missing_key_column(column.name, column.required)
                error.attributes["row_index"] = first_row + place
                raise error


def _check_computed(
    schema: TableSchema, name: str, rows: Sequence[Mapping[str, Any]], first_row: int
) -> None:
    """Check a computed column that only some of the rows name."""
    for place, row in enumerate(rows):
        if name in row:
            try:
                schema.key_of({key: row[key] for key in schema.key_names if key in row})
            except SchemaViolation as error:
                error.attributes["row_index"] = first_row + place
                raise


def _check_alike(rows: Sequence[Mapping[str, Any]], count: int, first_row: int) -> None:
    for place, row in enumerate(rows):
        if len(row) != count:
            text = "In an update, all rows of one body must name the same columns."
            raise SchemaViolation(text, row_index=first_row + place)


def checked_values(column: Column, values: list[Any], first_row: int = 0) -> list[Any]:
    """Return the values of a column as they are stored, in the same list. Raises
    SchemaViolation."""
    name, check = column.name, store_of(column.logical)
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
