"""`dodona loads`: what became of bulk loads, and clearing up behind them.

Owns: their arguments. How they are shown is `dodona_local.loads_screen`'s.
"""

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dodona_local.cli.extras import require_extras
from dodona_local.cli.options import MASTER_URL, DataDir, Form, Format, Url
from dodona_local.cli.running import FAILED, client_of

if TYPE_CHECKING:
    import types

    import dodona

commands = typer.Typer(
    no_args_is_help=True, help="Bulk loads: what became of them, and clearing up."
)


@commands.command("list")
def list_loads(url: Url = MASTER_URL, data_dir: DataDir = None, form: Form = Format.TABLE) -> None:
    """The atomic loads of the last thirty days, oldest first."""
    with _loads_of(url, data_dir) as (screen, db):
        screen.show_loads(db.loads.list_loads(), form)


@commands.command()
def recoveries(url: Url = MASTER_URL, data_dir: DataDir = None, form: Form = Format.TABLE) -> None:
    """What was made of loads whose owners died, oldest first."""
    with _loads_of(url, data_dir) as (screen, db):
        screen.show_recoveries(db.loads.list_recoveries(), form)


@commands.command()
def recover(url: Url = MASTER_URL, data_dir: DataDir = None, form: Form = Format.TABLE) -> None:
    """Clear up behind loads whose lease has ended: what was published stays, the rest is aborted.
    Loads that begin do so by themselves."""
    with _loads_of(url, data_dir) as (screen, db):
        owner = f"dodona loads recover, process {os.getpid()} of {socket.gethostname()}"
        screen.show_recoveries(db.loads.recover(owner), form)


@commands.command()
def abort(
    load: Annotated[int, typer.Argument(min=1, help="As `list` shows it.", metavar="ID")],
    url: Url = MASTER_URL,
    data_dir: DataDir = None,
    form: Form = Format.TABLE,
) -> None:
    """Give a load up, whoever is at it. What was published stays so; then the exit code is 1."""
    from dodona_wire.errors import InvalidRequest, LoadEnded
    from dodona_wire.types import LoadId

    with _loads_of(url, data_dir) as (screen, db):
        try:
            published = db.loads.abort(LoadId(load), "it was aborted by dodona loads abort")
        except LoadEnded as error:  # there is nothing that could be run again
            raise InvalidRequest(error.message, **error.attributes) from error
        screen.show_end(load, published, form)
        if published is not None:
            raise typer.Exit(FAILED)


@contextmanager
def _loads_of(
    url: str, data_dir: Path | None
) -> Iterator[tuple["types.ModuleType", "dodona.Client"]]:
    """How they are shown, and whose they are."""
    require_extras("server")
    from dodona_local import loads_screen

    with client_of(url, data_dir) as db:
        yield loads_screen, db
