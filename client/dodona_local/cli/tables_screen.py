"""Print a table on the command line: its columns, its tablets, its settings.

Owns: the columns of these lists. Sends no request.
"""

import enum
from typing import Any, Final

import msgspec
import typer

from dodona._core.catalog.tables import TableInfo
from dodona_local.cli.options import Format
from dodona_local.cli.printing import print_json, print_list
from dodona_local.cli.running import say
from dodona_wire.rows.logical_values import text_of_value
from dodona_wire.rows.schema import Column, TableSchema
from dodona_wire.rows.text_format import format_value

SCHEMA_COLUMNS: Final = (
    Column("name", "utf8"),
    Column("type", "utf8"),
    Column("sort_order", "utf8"),
    Column("required", "boolean"),
    Column("lock", "utf8"),
    Column("aggregate", "utf8"),
)
COMPUTED_COLUMNS: Final = (*SCHEMA_COLUMNS, Column("expression", "utf8"))
"""The list of a schema with computed columns."""
TABLET_COLUMNS: Final = (
    Column("tablet", "uint64"),
    Column("pivot_key", "any"),
    Column("state", "utf8"),
    Column("cell", "uint64"),
    Column("revision", "uint64"),
)


class ShownPart(enum.Enum):
    """The part of a table that is shown."""

    ALL = enum.auto()
    SCHEMA = enum.auto()
    TABLETS = enum.auto()


def show_table_info(table: TableInfo, part: ShownPart, form: Format) -> None:
    """Print the table to standard output."""
    if part is ShownPart.ALL and form is Format.JSON:
        print_json(_document(table))
    elif part is ShownPart.ALL and form is not Format.TABLE:
        raise typer.BadParameter(f"the format {form} needs --schema or --tablets")
    elif part is ShownPart.ALL:
        _show_all(table)
    elif part is ShownPart.TABLETS:
        print_list(form, TABLET_COLUMNS, _tablets(table))
    elif form is Format.JSON:
        print_json(table.schema.columns)
    else:
        _show_columns(table.schema, form)


def _show_all(table: TableInfo) -> None:
    count = len(table.tablets)
    say(f"{table.path}: atomicity {table.atomicity}, {count:,} tablet{'s' if count > 1 else ''}\n")
    _show_columns(table.schema, Format.TABLE)
    say("")
    print_list(Format.TABLE, TABLET_COLUMNS, _tablets(table))
    settings = msgspec.to_builtins(table.settings)  # settings with another value than the default
    if settings:
        say("")
        for name, value in settings.items():
            say(f"{name} = {value}")


def _show_columns(schema: TableSchema, form: Format) -> None:
    heads = COMPUTED_COLUMNS if schema.computed else SCHEMA_COLUMNS
    rows = [tuple([getattr(it, head.name) for head in heads]) for it in schema.columns]
    print_list(form, heads, rows)


def _tablets(table: TableInfo) -> list[tuple[Any, ...]]:
    return [
        (it.tablet, [*map(text_of_value, it.pivot_key)], it.state, it.cell, it.revision)
        for it in table.tablets
    ]


def _document(table: TableInfo) -> dict[str, Any]:
    """Return the whole table as JSON values. A pivot key has the text form of its columns'
    values."""
    columns = table.schema.key_columns
    tablets = [msgspec.structs.asdict(it) for it in table.tablets]
    for tablet in tablets:
        tablet["pivot_key"] = [
            format_value(*it) for it in zip(columns, tablet["pivot_key"], strict=False)
        ]
    return {
        "path": table.path,
        "atomicity": table.atomicity,
        "is_mounted": table.is_mounted,
        "schema": table.schema.columns,
        "tablets": tablets,
        "settings": msgspec.structs.asdict(table.settings),
    }
