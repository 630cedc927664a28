"""The schema of a new table that is made like data, and how two tables differ. Pure.

Owns: the place of key columns in such a schema. `column_types` has the column type of each column.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from dodona._core.catalog.tables import TableInfo, column_words
from dodona_wire.errors import InvalidRequest, SchemaViolation, TableExists
from dodona_wire.rows.schema import Column, ColumnType, TableSchema
from dodona_wire.shown import named, shown
from dodona_wire.types import Atomicity

DIFFERENCES_MAX: Final = 20
"""How many differences of two schemas an error names."""

Columns = Iterable[Column | Mapping[str, Any]] | TableSchema


def schema_for(schema: Columns | None, like: Any, keys: Sequence[str] | None) -> TableSchema:
    """Return the schema of a new table: the given one, or one like the columns of data, in which
    `keys` come first. Raises SchemaViolation, InvalidRequest."""
    if like is None:
        if keys is not None:
            raise InvalidRequest("keys are for a table that is made like data: pass like, too.")
        if schema is None:
            raise SchemaViolation(
                "a schema is a list of columns, not one NoneType: pass schema, or like and keys"
            )
        return TableSchema.parse(schema)
    if schema is not None:
        raise InvalidRequest("Pass schema, or like and keys, not both.")
    return _schema_like(like, keys)


def _schema_like(like: Any, keys: Sequence[str] | None) -> TableSchema:
    if isinstance(keys, str | bytes | Mapping) or not isinstance(keys, Sequence) or not keys:
        text = "Pass the names of the key columns as a list, such as keys=['id']."
        raise InvalidRequest(text, keys=shown(keys))
    from dodona._core.writing.tabular import fields_of

    fields = fields_of(like)
    names = [name for name, _, _ in fields]
    repeated = sorted({named(it) for it in names if names.count(it) > 1})
    if repeated:
        raise SchemaViolation("two columns have the same name", columns=repeated)
    _check_keys(keys, names)
    columns = {
        name: Column(name, _type_of(name, it), required=not is_nullable)
        for name, it, is_nullable in fields
    }
    ordered = [
        *(_key_column(columns.pop(name)) for name in keys),
        *columns.values(),
    ]
    return TableSchema.parse(ordered)


def _check_keys(keys: Sequence[str], names: Sequence[str]) -> None:
    for key in keys:
        if key not in names:
            text = f"The key column {shown(key)} is not in the data."
            raise SchemaViolation(text, column=named(key), known=names)
    if len(set(keys)) != len(keys):
        raise SchemaViolation("A key column is named twice.", keys=[*keys])


def _key_column(column: Column) -> Column:
    return Column(column.name, column.type, "ascending", required=column.required)


def _type_of(name: str, values: Any) -> ColumnType:
    """Return the column type for an Arrow type, or for a list of Python values."""
    from dodona._core.writing.column_types import advice_for, column_type_of, type_of_values

    if isinstance(values, list):
        return type_of_values(values, name)
    found = column_type_of(values)
    if found is None:
        text = f"no column type holds Arrow's {values}, which column {shown(name)} has"
        if advice := advice_for(values):
            text = f"{text}. {advice}"
        raise SchemaViolation(text, column=named(name))
    return found


# ---- a table that exists already


def check_same(found: TableInfo, schema: TableSchema, atomicity: Atomicity) -> None:
    """Check that a table that exists has this schema and this atomicity. Raises TableExists, which
    lists the differences."""
    differences = list(_differences(found.schema, schema))
    if found.atomicity != atomicity:
        differences.append(f"its atomicity is {found.atomicity}, not {atomicity}")
    if differences:
        text = "; ".join(differences[:DIFFERENCES_MAX])
        if len(differences) > DIFFERENCES_MAX:
            text = f"{text}; and {len(differences) - DIFFERENCES_MAX} more"
        raise TableExists(
            f"There is a table {found.path} already, and it differs: {text}.",
            table=found.path,
            differences=differences[:DIFFERENCES_MAX],
        )


def _differences(found: TableSchema, wanted: TableSchema) -> Iterable[str]:
    theirs = {column.name: column for column in found.columns}
    ours = {column.name: column for column in wanted.columns}
    for name, column in ours.items():
        if name not in theirs:
            yield f"it has no column {name!r}"
        elif theirs[name] != column:
            yield f"it has {column_words(theirs[name])}, not {column_words(column)}"
    yield from (f"it also has a column {name!r}" for name in theirs if name not in ours)
    if found.key_names != wanted.key_names and set(found.key_names) == set(wanted.key_names):
        yield f"its key is {[*found.key_names]}, not {[*wanted.key_names]}"
    elif theirs == ours and found != wanted:
        yield f"its columns are in the order {[*theirs]}, not {[*ours]}"
