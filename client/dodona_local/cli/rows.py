"""Write and read rows: `dodona insert`, `delete`, `lookup`, `select`, `query`, `export`.

Owns: their arguments, and their last lines of output.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from dodona_local.cli.extras import require_extras
from dodona_local.cli.options import (
    MASTER_URL,
    Columns,
    DataDir,
    Form,
    Format,
    InputFormat,
    ReadTimestamp,
    TablePath,
    Url,
)
from dodona_local.cli.running import client_of, say
from dodona_local.cli.streams import input_text
from dodona_local.files.formats import FileFormat, format_of

if TYPE_CHECKING:
    from dodona.client import Client
    from dodona_local.exporting import Selection
    from dodona_local.inserting import Bringing, How, Written
    from dodona_wire.rows.schema import TableSchema
    from dodona_wire.types import BatchKind

PANEL: Final = "Rows"
BATCH_ROWS_MAX: Final = 100_000

commands = typer.Typer()

Atomic = Annotated[
    bool,
    typer.Option("--atomic", help="Use one bulk load, even for few rows."),
]
BatchRows = Annotated[
    int | None,
    typer.Option(
        min=1,
        max=BATCH_ROWS_MAX,
        help="Use a separate transaction for each batch of this many rows.",
    ),
]
IfVersion = Annotated[
    int | None,
    typer.Option(min=1, help="Write only if this timestamp is the version of each row."),
]
Expect = Annotated[
    str | None,
    typer.Option(help="Write only if each row has these values: JSON, or a=1,b=x."),
]
Lower = Annotated[
    str | None, typer.Option(help="Begin at this key: JSON, or id=7. Leading columns are enough.")
]
Upper = Annotated[str | None, typer.Option(help="End before this key, which is not included.")]
FILE_HELP: Final = "- is standard input."


@commands.command(rich_help_panel=PANEL)
def insert(
    path: TablePath,
    file: Annotated[Path, typer.Argument(help=f"File in CSV, JSON, Parquet or Arrow. {FILE_HELP}")],
    input_format: InputFormat = None,
    update: Annotated[
        bool, typer.Option("--update", help="Keep the values of columns that the file lacks.")
    ] = False,
    atomic: Atomic = False,
    batch_rows: BatchRows = None,
    create: Annotated[
        bool,
        typer.Option(
            "--create",
            help="Create the table with the columns of the file: Parquet or Arrow. Needs --keys. A "
            "table that exists must have these columns. A new table is removed if the command "
            "fails and writes no row.",
        ),
    ] = False,
    keys: Annotated[
        str | None,
        typer.Option(help="Names of the key columns for --create, with commas between them."),
    ] = None,
    if_absent: Annotated[
        bool, typer.Option("--if-absent", help="Write only if none of the rows exists.")
    ] = False,
    if_version: IfVersion = None,
    expect: Expect = None,
    url: Url = MASTER_URL,
    data_dir: DataDir = None,
) -> None:
    """Write the rows of a file: all or none, except with --batch-rows."""
    if create != (keys is not None):
        raise typer.BadParameter("give --create and --keys together, or neither")
    required = _required(if_absent, if_version, expect, atomic or batch_rows is not None)
    how = _how(atomic, batch_rows)
    kind: BatchKind = "update" if update else "write"
    bringing = _bringing(path, file, input_format, kind, how, batch_rows)
    written = _bring(bringing, url, data_dir, keys, required)
    _tell("updated in" if update else "inserted into", path, written)


@commands.command(rich_help_panel=PANEL)
def delete(
    path: TablePath,
    file: Annotated[
        Path | None, typer.Argument(help=f"File of keys, with the key columns only. {FILE_HELP}")
    ] = None,
    key: Annotated[
        list[str] | None,
        typer.Option(help="Delete this key: JSON, or id=7,name=x. May be repeated."),
    ] = None,
    input_format: InputFormat = None,
    atomic: Atomic = False,
    batch_rows: BatchRows = None,
    if_version: IfVersion = None,
    expect: Expect = None,
    url: Url = MASTER_URL,
    data_dir: DataDir = None,
) -> None:
    """Delete rows by key, if they exist: all or none, except with --batch-rows."""
    if (file is None) == (not key):
        raise typer.BadParameter("give the keys either with --key or in a file")
    required = _required(False, if_version, expect, atomic or batch_rows is not None)
    how = _how(atomic, batch_rows)
    if file is not None:
        bringing = _bringing(path, file, input_format, "delete", how, batch_rows)
        written = _bring(bringing, url, data_dir, required=required)
        _tell("deleted from", path, written)
        return
    require_extras("server")
    from dodona_local.cli.words import keys_of

    with client_of(url, data_dir) as db:
        schema = db.get_table(path).schema
        keys = keys_of(schema, key or ())
        timestamp = db.delete_rows(path, keys, **_conditions(schema, required))
    say(f"{_rows(len(keys))} deleted from {path} at timestamp {timestamp}")


def _required(
    if_absent: bool, if_version: int | None, expect: str | None, is_divided: bool
) -> dict[str, Any]:
    """Return the conditions that the options name. They need one transaction."""
    given = {"if_absent": if_absent, "if_version": if_version, "expect": expect}
    required = {name: it for name, it in given.items() if it not in (False, None)}
    if required and is_divided:
        text = "conditions need one transaction: leave out --atomic and --batch-rows"
        raise typer.BadParameter(text)
    return required


def _conditions(schema: "TableSchema", required: dict[str, Any]) -> dict[str, Any]:
    """Return the conditions as arguments of the client."""
    from dodona_local.cli.words import values_of

    if "expect" not in required:
        return required
    return {**required, "expect": values_of(schema, required["expect"])}


def _how(atomic: bool, batch_rows: int | None) -> "How":
    require_extras("server")
    from dodona_local.inserting import How

    if atomic and batch_rows is not None:
        raise typer.BadParameter("give --atomic or --batch-rows, not both")
    if atomic:
        return How.LOAD
    return How.WHOLE if batch_rows is None else How.BATCHES


def _bringing(
    path: str,
    file: Path,
    given: FileFormat | None,
    kind: "BatchKind",
    how: "How",
    rows: int | None,
) -> "Bringing":
    from dodona_local.inserting import Bringing

    return Bringing(path, file, format_of(file, given, "--input-format"), kind, how, rows)


def _bring(
    bringing: "Bringing",
    url: str,
    data_dir: Path | None,
    keys: str | None = None,
    required: dict[str, Any] | None = None,
) -> "Written":
    from dodona_local.cli.words import names_of
    from dodona_local.files.reading import schema_of_file
    from dodona_local.inserting import bring
    from dodona_local.new_table import new_table
    from dodona_local.progress_screen import Screen

    like = None if keys is None else schema_of_file(bringing.file, bringing.form)
    with client_of(url, data_dir, is_made=keys is not None) as db, Screen() as screen:
        if like is None:
            return bring(db, _with_conditions(db, bringing, required), screen)
        with new_table(db, bringing.path, like, names_of(keys) or ()):
            return bring(db, _with_conditions(db, bringing, required), screen)


def _with_conditions(
    db: "Client", bringing: "Bringing", required: dict[str, Any] | None
) -> "Bringing":
    if not required:
        return bringing
    schema = db.get_table(bringing.path).schema
    return bringing._replace(conditions=_conditions(schema, required))


def _tell(what: str, path: str, written: "Written") -> None:
    """Print the result. Without atomicity, or after several batches, no timestamp applies to all
    rows."""
    at = f" at timestamp {written.timestamp}" if written.is_whole and written.timestamp else ""
    say(f"{_rows(written.row_count)} {what} {path}{at}")


def _rows(count: int) -> str:
    return f"{count:,} row{'' if count == 1 else 's'}"


@commands.command(rich_help_panel=PANEL)
def lookup(
    path: TablePath,
    key: Annotated[
        list[str], typer.Argument(help="A key: JSON, or id=7,name=x.", metavar="KEY...")
    ],
    columns: Columns = None,
    timestamp: ReadTimestamp = None,
    url: Url = MASTER_URL,
    data_dir: DataDir = None,
    form: Form = Format.TABLE,
) -> None:
    """Print the rows of these keys, in this order. Missing rows are left out."""
    require_extras("server")
    from dodona._core.reading.reading import Projection
    from dodona_local.cli.printing import print_rows
    from dodona_local.cli.words import keys_of, names_of, timestamp_of
    from dodona_local.files.formatting import Shape
    from dodona_wire.rows.arrow import arrow_of_tuples
    from dodona_wire.types import SYNC_LAST_COMMITTED

    at = SYNC_LAST_COMMITTED if timestamp is None else timestamp_of(timestamp)
    with client_of(url, data_dir) as db:
        schema = db.get_table(path).schema
        projection = Projection(schema, names_of(columns))
        rows = db.lookup_rows(path, keys_of(schema, key), projection.names, timestamp=at)
    tuples = [tuple([row[name] for name in projection.names]) for row in rows]
    batches = arrow_of_tuples(projection.columns, tuples).to_batches()
    print_rows(form, Shape.of_columns(projection.columns), batches)


@commands.command(rich_help_panel=PANEL)
def select(
    path: TablePath,
    lower: Lower = None,
    upper: Upper = None,
    columns: Columns = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Print at most this many rows.")] = None,
    timestamp: ReadTimestamp = None,
    url: Url = MASTER_URL,
    data_dir: DataDir = None,
    form: Form = Format.TABLE,
) -> None:
    """Print any number of rows in key order, all at one timestamp."""
    require_extras("server")
    from dodona_local.cli.printing import print_rows
    from dodona_local.exporting import limited, scan

    with client_of(url, data_dir) as db:
        schema = db.get_table(path).schema
        selection = _selection(path, schema, lower, upper, columns, timestamp)
        with scan(db, selection) as (_, batches):
            print_rows(form, selection.shape, limited(batches, limit))


def _selection(
    path: str,
    schema: "TableSchema",
    lower: str | None,
    upper: str | None,
    columns: str | None,
    timestamp: str | None,
) -> "Selection":
    from dodona_local.cli.words import bound_of, names_of, timestamp_of
    from dodona_local.exporting import Selection

    first, last = [None if it is None else bound_of(schema, it) for it in (lower, upper)]
    at = None if timestamp is None else timestamp_of(timestamp)
    return Selection(path, schema, first, last, names_of(columns), at)


@commands.command(rich_help_panel=PANEL)
def query(
    sql: Annotated[str, typer.Argument(help=f"One SELECT, with tables as [//path]. {FILE_HELP}")],
    param: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=TEXT", help="The text for $NAME in the SQL. May be repeated."),
    ] = None,
    param_json: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=JSON",
            help="Another value for $NAME: a number, null, a list, an object. May be repeated.",
        ),
    ] = None,
    timestamp: ReadTimestamp = None,
    url: Url = MASTER_URL,
    data_dir: DataDir = None,
    form: Form = Format.TABLE,
) -> None:
    """Run a query in DuckDB's SQL, over tables at one timestamp."""
    require_extras("server", "sql")
    from dodona_local.cli.printing import print_rows
    from dodona_local.cli.words import parameters_of, timestamp_of
    from dodona_local.files.formatting import Shape
    from dodona_wire.types import SYNC_LAST_COMMITTED

    at = SYNC_LAST_COMMITTED if timestamp is None else timestamp_of(timestamp)
    parameters = parameters_of(param or (), param_json or ())
    text = input_text() if sql == "-" else sql
    with client_of(url, data_dir) as db:
        found = db.query(text, parameters, at)
    print_rows(form, Shape(found.schema), found.to_batches())


@commands.command(rich_help_panel=PANEL)
def export(
    path: TablePath,
    file: Annotated[Path, typer.Argument(help="File to write, in Parquet, Arrow, CSV or JSON.")],
    output_format: Annotated[
        FileFormat | None,
        typer.Option("--output-format", help="Format of the file. Default: by its suffix."),
    ] = None,
    lower: Lower = None,
    upper: Upper = None,
    columns: Columns = None,
    timestamp: ReadTimestamp = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace an existing file.")
    ] = False,
    url: Url = MASTER_URL,
    data_dir: DataDir = None,
) -> None:
    """Write rows to a file, all at one timestamp. The file has all rows, or does not exist. A
    device or a named pipe gets the rows directly."""
    require_extras("server")
    from dodona_local.exporting import export
    from dodona_local.progress_screen import Screen

    form = format_of(file, output_format, "--output-format")
    with client_of(url, data_dir) as db, Screen() as screen:
        schema = db.get_table(path).schema
        selection = _selection(path, schema, lower, upper, columns, timestamp)
        done = export(db, selection, file, form, screen, is_overwriting=overwrite)
    say(f"{_rows(done.row_count)} of {path} as of timestamp {done.timestamp}: {file}")
