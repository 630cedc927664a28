"""Create, mount and change tables: `dodona create`, `describe`, `mount` and others.

Owns: their arguments. The client (`dodona.catalog`) defines what each does.
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
    """The atomicity of a table, which never changes."""

    FULL = "full"
    NONE = "none"


Schema = Annotated[
    str,
    typer.Option(
        help="A file, JSON, or columns as 'id:int64:key,name:utf8:required,balance:int64:sum'. "
        "`descending` in place of `key` puts the greatest value first.",
        show_default=False,
    ),
]
PivotKeys = Annotated[
    str | None,
    typer.Option(
        help="Pivot keys: a JSON list of lists, the first one empty, such as '[[], [10]]'."
    ),
]
TabletCount = Annotated[
    int | None, typer.Option(min=1, help="Number of tablets, which divide all keys evenly.")
]
First = Annotated[
    int | None,
    typer.Option("--first", min=0, help="Index of the first tablet to change. Default: 0."),
]
Last = Annotated[
    int | None,
    typer.Option(
        "--last", min=0, help="Index of the last tablet to change. Default: the last one."
    ),
]
Timeout = Annotated[int, typer.Option("--timeout-ms", min=1, help="Wait at most this long, in ms.")]


@commands.command(rich_help_panel=PANEL)
def create(
    path: TablePath,
    schema: Schema,
    atomicity: Annotated[
        Atomicity,
        typer.Option(help="Use full for transactions, or none for fast bulk writes without them."),
    ] = Atomicity.FULL,
    pivot_keys: PivotKeys = None,
    tablet_count: TabletCount = None,
    mount: Annotated[bool, typer.Option(help="Mount the table after its creation.")] = True,
    attribute: Attributes = None,
    url: Url = MASTER_URL,
    data_dir: DataDir = None,
) -> None:
    """Create a table, and the directories above it."""
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
    schema: Annotated[bool, typer.Option("--schema", help="Show only the columns.")] = False,
    tablets: Annotated[bool, typer.Option("--tablets", help="Show only the tablets.")] = False,
    url: Url = MASTER_URL,
    data_dir: DataDir = None,
    form: Form = Format.TABLE,
) -> None:
    """Show a table's columns, its tablets with their cells, and its settings."""
    require_extras("server")
    if schema and tablets:
        raise typer.BadParameter("give --schema or --tablets, not both")
    from dodona_local.cli.tables_screen import ShownPart, show_table_info

    part = ShownPart.SCHEMA if schema else ShownPart.TABLETS if tablets else ShownPart.ALL
    with client_of(url, data_dir) as db:
        show_table_info(db.get_table(path), part, form)


@commands.command(rich_help_panel=PANEL)
def mount(
    path: TablePath,
    freeze: Annotated[
        bool, typer.Option("--freeze", help="Mount the table for reading only.")
    ] = False,
    first: First = None,
    last: Last = None,
    timeout_ms: Timeout = TIMEOUT_MS,
    url: Url = MASTER_URL,
    data_dir: DataDir = None,
) -> None:
    """Mount a table, and wait until cells serve it."""
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
    """Unmount a table. Waits for transactions on it to end."""
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
    """Freeze a mounted table, so that it refuses writes, and wait until it does."""
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
    """Make a frozen table take writes again, and wait until it does."""
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
    """Make a mounted table use its changed settings."""
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
    """Divide an unmounted table into other tablets. Its rows stay."""
    require_extras("server")
    from dodona_local.cli.words import pivots_of

    with client_of(url, data_dir) as db:
        keys = None
        if pivot_keys is not None:
            keys = pivots_of(db.get_table(path).schema, pivot_keys)
        db.reshard_table(path, keys, tablet_count, first, last)


@commands.command(rich_help_panel=PANEL)
def alter(path: TablePath, schema: Schema, url: Url = MASTER_URL, data_dir: DataDir = None) -> None:
    """Change the schema of an unmounted table. Give all its columns, and new ones."""
    require_extras("server")
    from dodona_local.cli.words import schema_of

    columns = schema_of(schema)
    with client_of(url, data_dir) as db:
        db.alter_table(path, columns)
