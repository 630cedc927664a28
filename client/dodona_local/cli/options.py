"""Options that many commands have, and how lists are printed.

Owns: their names, defaults and texts.
"""

import enum
import sys
from pathlib import Path
from typing import Annotated, Final

import typer

from dodona_local.files.formats import FileFormat

CALL_TIMEOUT_MS_MAX: Final = 86_400_000
"""As `dodona._core.protocol.deadline` has it, which `--help` need not load."""
MASTER_URL: Final = "http://127.0.0.1:8500"


class Format(enum.StrEnum):
    """How rows and lists are printed."""

    TABLE = "table"
    JSON = "json"
    CSV = "csv"
    ARROW = "arrow"


def _check_format(form: Format) -> Format:
    if form is Format.ARROW and sys.stdout.isatty():
        raise typer.BadParameter("arrow is no text: send it into a file or a pipe")
    return form


def folder_word(text: str) -> Path:
    """A folder, as a command is given it. One that is empty was surely meant to be another than
    that in which the command runs: a variable of a script that was never set."""
    if not text:
        raise typer.BadParameter("it is empty: name a folder, or . for this one")
    return Path(text)


Url = Annotated[str, typer.Option(envvar="DODONA_URL", help="The cluster's master.")]
DataDir = Annotated[
    Path | None,
    typer.Option(
        parser=folder_word,
        metavar="FOLDER",
        help="An embedded database's folder, instead of a cluster.",
        show_default=False,
    ),
]
Form = Annotated[
    Format,
    typer.Option("--format", callback=_check_format, help="For people, or for programs."),
]
Tables = Annotated[
    list[str] | None,
    typer.Argument(help="Their paths. Without any: all.", metavar="TABLES", show_default=False),
]
TablePath = Annotated[str, typer.Argument(help="The table, such as //bank/accounts.")]
InputFormat = Annotated[
    FileFormat | None,
    typer.Option("--input-format", help="Of the file: by its suffix, unless given."),
]
Columns = Annotated[
    str | None, typer.Option(help="Their names, divided by commas. All, unless given.")
]
ReadTimestamp = Annotated[
    str | None,
    typer.Option("--timestamp", help="As of when: a timestamp, or a time with its zone. Now."),
]
Attributes = Annotated[
    list[str] | None,
    typer.Option("--attribute", metavar="NAME=VALUE", help="VALUE is JSON, or one word."),
]
