"""The life of tables: `dodona create`, `describe`, `mount` and the like.

Owns: their arguments. What each does is the client's to say (`dodona.catalog`).
"""

import enum
from typing import Annotated, Final

import typer

from dodona_local.cli.extras import require_extras
from dodona_local.cli.options import (
    MASTER_URL,
    Attributes,
    DataDir,
    Form,
    Format,
    TablePath,
    Url,
)
from dodona_local.cli.running import client_of

PANEL: Final = "Tables"
TIMEOUT_MS: Final = 60_000

commands = typer.Typer()


class Atomicity(enum.StrEnum):
    """Of a table, for good."""

    FULL = "full"
    NONE = "none"


Schema = Annotated[
    str,
    typer.Option(
        help="A file, JSON, or like 'id:int64:key,name:utf8:required,balance:int64:sum'.",
        show_default=False,
    ),
]
PivotKeys = Annotated[
    str | None,
    typer.Option(help="Where tablets begin: a JSON list of lists, the first empty: '[[], [10]]'."),
]
TabletCount = Annotated[
    int | None, typer.Option(min=1, help="So many tablets, which divide all keys evenly.")
]
First = Annotated[int | None, typer.Option("--first", min=0, help="Its first tablet concerned.")]
Last = Annotated[int | None, typer.Option("--last", min=0, help="Its last tablet concerned.")]
Timeout = Annotated[int, typer.Option("--timeout-ms", min=1, help="How long to wait for it.")]


@commands.command(rich_help_panel=PANEL)
def create(
    path: TablePath,
    schema: Schema,
    atomicity: Annotated[
        Atomicity, typer.Option(help="none: no transactions, and writes in bulk.")
    ] = Atomicity.FULL,
    pivot_keys: PivotKeys = None,
    tablet_count: TabletCount = None,
    mount: Annotated[bool, typer.Option(help="Have it served at once.")] = True,
    attribute: Attributes = None,
    url: Url = MASTER_URL,
    data_dir: DataDir = None,
) -> None:
    """Make a table, and the directories above it."""
    require_extras("server")
    from dodona_local.cli.words import attributes_of, pivots_of, schema_of

    columns = schema_of(schema)
    pivots = None if pivot_keys is None else pivots_of(columns, pivot_keys)
    attributes = attributes_of(attribute or ())
    with client_of(url, data_dir, is_made=True) as db:
        db.create_table(path, columns, atomicity.value, pivots, tablet_count, mount, attributes)


@commands.command(rich_help_panel=PANEL)
def describe(
    path: TablePath,
    schema: Annotated[bool, typer.Option("--schema", help="Its columns only.")] = False,
    tablets: Annotated[bool, typer.Option("--tablets", help="Its tablets only.")] = False,
    url: Url = MASTER_URL,
    data_dir: DataDir = None,
    form: Form = Format.TABLE,
) -> None:
    """Show a table's columns, its tablets and where they are, and its settings."""
    require_extras("server")
    if schema and tablets:
        raise typer.BadParameter("give --schema or --tablets, or neither")
    from dodona_local.cli.tables_screen import ShownPart, show_table_info

    part = ShownPart.SCHEMA if schema else ShownPart.TABLETS if tablets else ShownPart.ALL
    with client_of(url, data_dir) as db:
        show_table_info(db.get_table(path), part, form)


@commands.command(rich_help_panel=PANEL)
def mount(
    path: TablePath,
    freeze: Annotated[bool, typer.Option("--freeze", help="For reading only.")] = False,
    first: First = None,
    last: Last = None,
    timeout_ms: Timeout = TIMEOUT_MS,
    url: Url = MASTER_URL,
    data_dir: DataDir = None,
) -> None:
    """Have a table served, and wait until it is."""
    with client_of(url, data_dir) as db:
        db.mount_table(path, freeze, first, last, timeout_ms)


@commands.command(rich_help_panel=PANEL)
def unmount(
    path: TablePath,
    first: First = None,
    last: Last = None,
    timeout_ms: Timeout = TIMEOUT_MS,
    url: Url = MASTER_URL,
    data_dir: DataDir = None,
) -> None:
    """Have a table served no more, and wait until transactions there have ended."""
    with client_of(url, data_dir) as db:
        db.unmount_table(path, first, last, timeout_ms)


@commands.command(rich_help_panel=PANEL)
def freeze(
    path: TablePath,
    first: First = None,
    last: Last = None,
    timeout_ms: Timeout = TIMEOUT_MS,
    url: Url = MASTER_URL,
    data_dir: DataDir = None,
) -> None:
    """Have a mounted table refuse writes, and wait until it does."""
    with client_of(url, data_dir) as db:
        db.freeze_table(path, first, last, timeout_ms)


@commands.command(rich_help_panel=PANEL)
def unfreeze(
    path: TablePath,
    first: First = None,
    last: Last = None,
    timeout_ms: Timeout = TIMEOUT_MS,
    url: Url = MASTER_URL,
    data_dir: DataDir = None,
) -> None:
    """Have a frozen table take writes again, and wait until it does."""
    with client_of(url, data_dir) as db:
        db.unfreeze_table(path, first, last, timeout_ms)


@commands.command(rich_help_panel=PANEL)
def remount(
    path: TablePath,
    first: First = None,
    last: Last = None,
    timeout_ms: Timeout = TIMEOUT_MS,
    url: Url = MASTER_URL,
    data_dir: DataDir = None,
) -> None:
    """Have a mounted table go by its settings as they are now."""
    with client_of(url, data_dir) as db:
        db.remount_table(path, first, last, timeout_ms)


@commands.command(rich_help_panel=PANEL)
def reshard(
    path: TablePath,
    pivot_keys: PivotKeys = None,
    tablet_count: TabletCount = None,
    first: First = None,
    last: Last = None,
    url: Url = MASTER_URL,
    data_dir: DataDir = None,
) -> None:
    """Cut an unmounted table anew. Its rows stay."""
    require_extras("server")
    from dodona_local.cli.words import pivots_of

    with client_of(url, data_dir) as db:
        keys = None
        if pivot_keys is not None:
            keys = pivots_of(db.get_table(path).schema, pivot_keys)
        db.reshard_table(path, keys, tablet_count, first, last)


@commands.command(rich_help_panel=PANEL)
def alter(path: TablePath, schema: Schema, url: Url = MASTER_URL, data_dir: DataDir = None) -> None:
    """Give an unmounted table another schema: all its columns, and new ones."""
    require_extras("server")
    from dodona_local.cli.words import schema_of

    columns = schema_of(schema)
    with client_of(url, data_dir) as db:
        db.alter_table(path, columns)
