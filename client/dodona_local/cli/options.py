"""Options that many commands have, and how lists are printed.

Owns: their names, defaults and texts.
"""

import enum
from pathlib import Path
from typing import Annotated, Final

import typer

MASTER_URL: Final = "http://127.0.0.1:8500"


class Format(enum.StrEnum):
    """How a list is printed."""

    TABLE = "table"
    JSON = "json"


Url = Annotated[str, typer.Option(envvar="DODONA_URL", help="The cluster's master.")]
DataDir = Annotated[
    Path | None,
    typer.Option(help="An embedded database's folder, instead of a cluster.", show_default=False),
]
Form = Annotated[Format, typer.Option("--format", help="For people, or for programs.")]
Tables = Annotated[
    list[str] | None,
    typer.Argument(help="Their paths. Without any: all.", metavar="TABLES", show_default=False),
]
