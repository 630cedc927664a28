"""Change the tree of tables: `dodona list`, `get`, `set`, `move` and others.

Owns: their arguments, and how a value of the tree is printed.
"""

from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from dodona_local.cli.extras import require_extras
from dodona_local.cli.options import MASTER_URL, Attributes, DataDir, Form, Format, Url
from dodona_local.cli.running import FAILED, client_of, say

if TYPE_CHECKING:
    import dodona

PANEL: Final = "Tree"
ROOT: Final = "//"

commands = typer.Typer()

NodePath = Annotated[
    str,
    typer.Argument(
        help="Path of a table, a directory, or an attribute, such as //bank/accounts/@owner."
    ),
]
Source = Annotated[str, typer.Argument(help="Path of the table or directory.")]
Destination = Annotated[str, typer.Argument(help="New path, which must not exist.")]
Recursive = Annotated[
    bool, typer.Option("--recursive", "-r", help="Create the directories above it too.")
]


@commands.command("list", rich_help_panel=PANEL)
def list_names(
    path: Annotated[str, typer.Argument(help="Path of the directory.")] = ROOT,
    is_long: Annotated[
        bool, typer.Option("--long", "-l", help="Show types too, and the states of tables.")
    ] = False,
    url: Url = MASTER_URL,
    data_dir: DataDir = None,
    form: Form = Format.TABLE,
) -> None:
    """List the names in a directory, or with PATH/@ those of all attributes."""
    require_extras("server")
    from dodona_local.cli.printing import print_json, print_list
    from dodona_wire.rows.schema import Column

    with client_of(url, data_dir) as db:
        names = db.list(path)
        if is_long:
            columns = [Column(name, "utf8") for name in ("name", "type", "state")]
            rows = [_long(db, path, name) for name in names]
            print_list(form, [*columns, Column("tablets", "int64")], rows)
        elif form is Format.TABLE:
            for name in names:
                say(name)
        elif form is Format.JSON:
            print_json(names)
        else:
            print_list(form, [Column("name", "utf8")], [(name,) for name in names])


def _long(db: "dodona.Client", directory: str, name: str) -> tuple[Any, ...]:
    from dodona_wire.errors import NodeNotFound

    path = f"{ROOT if directory == ROOT else directory + '/'}{name}"
    try:
        kind = db.get(f"{path}/@type")
        if kind != "table":
            return name, kind, None, None
        tablets = db.get_table(path).tablets
    except NodeNotFound:  # it was removed meanwhile
        return name, None, None, None
    states = sorted({tablet.state for tablet in tablets})
    return name, kind, ", ".join(states), len(tablets)


@commands.command(rich_help_panel=PANEL)
def get(
    path: NodePath,
    url: Url = MASTER_URL,
    data_dir: DataDir = None,
    form: Form = Format.TABLE,
) -> None:
    """Print an attribute, all attributes (PATH/@), the content of a directory, or a table as in
    `describe`."""
    require_extras("server")
    from dodona_local.cli.tables_screen import ShownPart, show_table_info

    with client_of(url, data_dir) as db:
        if "@" not in path and path != ROOT and db.get(f"{path}/@type") == "table":
            is_list = form in (Format.CSV, Format.ARROW)
            show_table_info(
                db.get_table(path), ShownPart.TABLETS if is_list else ShownPart.ALL, form
            )
        else:
            _show_value(db.get(path), form)


def _show_value(value: Any, form: Format) -> None:
    from dodona_local.cli.printing import print_json, print_list
    from dodona_local.files.formatting import shown
    from dodona_wire.rows.schema import Column

    if form is Format.JSON or (form is Format.TABLE and isinstance(value, dict | list)):
        print_json(value)
    elif form is Format.TABLE:
        say(shown(value))
    elif isinstance(value, dict):
        print_list(form, [Column("name", "utf8"), Column("value", "any")], list(value.items()))
    else:
        print_list(form, [Column("value", "any")], [(value,)])


@commands.command("set", rich_help_panel=PANEL)
def set_value(
    path: NodePath,
    value: Annotated[str, typer.Argument(help="Value as JSON, or as one word, which is text.")],
    url: Url = MASTER_URL,
    data_dir: DataDir = None,
) -> None:
    """Set an attribute, or with PATH/@ all of your own attributes."""
    from dodona_local.cli.words import value_word

    found = value_word(value)
    with client_of(url, data_dir) as db:
        db.set(path, found)


@commands.command(rich_help_panel=PANEL)
def exists(path: NodePath, url: Url = MASTER_URL, data_dir: DataDir = None) -> None:
    """Print whether a path exists: true, or false with exit code 1."""
    with client_of(url, data_dir) as db:
        is_there = db.exists(path)
    say("true" if is_there else "false")
    if not is_there:
        raise typer.Exit(FAILED)


@commands.command(rich_help_panel=PANEL)
def remove(
    path: NodePath,
    recursive: Annotated[
        bool, typer.Option("--recursive", "-r", help="Remove a directory with its whole content.")
    ] = False,
    force: Annotated[
        bool, typer.Option("--force", "-f", help="Accept a path that does not exist.")
    ] = False,
    url: Url = MASTER_URL,
    data_dir: DataDir = None,
) -> None:
    """Remove a table with all its rows, mounted or not, a directory, or an attribute."""
    with client_of(url, data_dir) as db:
        db.remove(path, recursive, force)


@commands.command(rich_help_panel=PANEL)
def move(
    source: Source,
    destination: Destination,
    recursive: Recursive = False,
    url: Url = MASTER_URL,
    data_dir: DataDir = None,
) -> None:
    """Move a directory or an unmounted table."""
    with client_of(url, data_dir) as db:
        db.move(source, destination, recursive)


@commands.command(rich_help_panel=PANEL)
def copy(
    source: Source,
    destination: Destination,
    recursive: Recursive = False,
    url: Url = MASTER_URL,
    data_dir: DataDir = None,
) -> None:
    """Copy a directory, or an unmounted table with its rows."""
    with client_of(url, data_dir) as db:
        db.copy(source, destination, recursive)


@commands.command(rich_help_panel=PANEL)
def mkdir(
    path: Annotated[str, typer.Argument(help="Path of the directory.")],
    recursive: Recursive = False,
    ignore_existing: Annotated[
        bool, typer.Option("--ignore-existing", help="Accept a directory that exists.")
    ] = False,
    attribute: Attributes = None,
    url: Url = MASTER_URL,
    data_dir: DataDir = None,
) -> None:
    """Create a directory."""
    from dodona_local.cli.words import attributes_of

    attributes = attributes_of(attribute or ())
    with client_of(url, data_dir, is_made=True) as db:
        db.create_directory(path, attributes, recursive, ignore_existing)
