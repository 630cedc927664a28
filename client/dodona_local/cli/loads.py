"""List, recover and abort bulk loads: `dodona loads`.

Owns: their arguments. `dodona_local.loads_screen` prints them.
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

commands = typer.Typer(no_args_is_help=True, help="List, recover and abort bulk loads.")


@commands.command("list")
def list_loads(url: Url = MASTER_URL, data_dir: DataDir = None, form: Form = Format.TABLE) -> None:
    """List the atomic loads of the last thirty days, oldest first."""
    with _loads_of(url, data_dir) as (screen, db):
        screen.show_loads(db.loads.list_loads(), form)


@commands.command()
def recoveries(url: Url = MASTER_URL, data_dir: DataDir = None, form: Form = Format.TABLE) -> None:
    """List the loads that were recovered after their lease had expired, oldest first."""
    with _loads_of(url, data_dir) as (screen, db):
        screen.show_recoveries(db.loads.list_recoveries(), form)


@commands.command()
def recover(url: Url = MASTER_URL, data_dir: DataDir = None, form: Form = Format.TABLE) -> None:
    """Recover loads whose lease has expired: finish published loads, and abort all others. Each new
    load does this too."""
    with _loads_of(url, data_dir) as (screen, db):
        owner = f"dodona loads recover, process {os.getpid()} of {socket.gethostname()}"
        screen.show_recoveries(db.loads.recover(owner), form)


@commands.command()
def abort(
    load: Annotated[
        int, typer.Argument(min=1, help="Id of the load, as `list` prints it.", metavar="ID")
    ],
    url: Url = MASTER_URL,
    data_dir: DataDir = None,
    form: Form = Format.TABLE,
) -> None:
    """Abort a load, even one that is running. A published load stays as it is, with exit code 1."""
    from dodona_wire.errors import InvalidRequest, LoadEnded
    from dodona_wire.types import LoadId

    with _loads_of(url, data_dir) as (screen, db):
        try:
            published = db.loads.abort(LoadId(load), "dodona loads abort was run")
        except LoadEnded as error:  # there is nothing to run again
            raise InvalidRequest(error.message, **error.attributes) from error
        screen.show_end(load, published, form)
        if published is not None:
            raise typer.Exit(FAILED)


@contextmanager
def _loads_of(
    url: str, data_dir: Path | None
) -> Iterator[tuple["types.ModuleType", "dodona.Client"]]:
    """Yield the module that prints loads, and the client."""
    require_extras("server")
    from dodona_local import loads_screen

    with client_of(url, data_dir) as db:
        yield loads_screen, db
