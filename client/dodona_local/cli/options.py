"""Define options that many commands have, and the formats of output.

Owns: their names, defaults and help texts.
"""

import enum
import sys
from pathlib import Path
from typing import Annotated, Final

import typer

from dodona_local.files.formats import FileFormat

CALL_TIMEOUT_MS_MAX: Final = 86_400_000
"""The same as in `dodona._core.protocol.deadline`, which `--help` need not load."""
MASTER_URL: Final = "http://127.0.0.1:8500"


class Format(enum.StrEnum):
    """The format in which rows and lists are printed."""

    TABLE = "table"
    JSON = "json"
    CSV = "csv"
    ARROW = "arrow"


def _check_format(form: Format) -> Format:
    if form is Format.ARROW and sys.stdout.isatty():
        raise typer.BadParameter("arrow is a binary format: send the output to a file or a pipe")
    return form


def folder_word(text: str) -> Path:
    """Return the folder that a command was given. An empty text is refused: it often is a variable
    of a script that was never set, and would mean the current folder."""
    if not text:
        raise typer.BadParameter("the path is empty: name a folder, or . for the current folder")
    return Path(text)


Url = Annotated[str, typer.Option(envvar="DODONA_URL", help="URL of the cluster's master.")]
DataDir = Annotated[
    Path | None,
    typer.Option(
        parser=folder_word,
        metavar="FOLDER",
        help="Use the embedded database in this folder, instead of a cluster.",
        show_default=False,
    ),
]
Form = Annotated[
    Format,
    typer.Option(
        "--format",
        callback=_check_format,
        help="Print as table for people, or as json, csv or arrow for programs.",
    ),
]
Tables = Annotated[
    list[str] | None,
    typer.Argument(
        help="Paths of tables. Default: all tables.", metavar="TABLES", show_default=False
    ),
]
TablePath = Annotated[str, typer.Argument(help="Path of the table, such as //bank/accounts.")]
InputFormat = Annotated[
    FileFormat | None,
    typer.Option("--input-format", help="Format of the file. Default: by its suffix."),
]
Columns = Annotated[
    str | None, typer.Option(help="Names of columns, with commas between them. Default: all.")
]
ReadTimestamp = Annotated[
    str | None,
    typer.Option(
        "--timestamp", help="Read as of this timestamp, or time with its zone. Default: now."
    ),
]
Attributes = Annotated[
    list[str] | None,
    typer.Option(
        "--attribute", metavar="NAME=VALUE", help="Set an attribute. VALUE is JSON, or one word."
    ),
]
