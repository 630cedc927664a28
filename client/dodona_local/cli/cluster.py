"""Show a running cluster, and give a stopped one copies of its logs: `dodona cluster`.

Owns: the arguments, and the output of `status` for an embedded database.
"""

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from dodona_local.cli.extras import require_extras
from dodona_local.cli.options import MASTER_URL, DataDir, Form, Format, Url, folder_word
from dodona_local.cli.running import FAILED, client_of, say, warn

if TYPE_CHECKING:
    from dodona_local.status import PartStatus

SERVER_FIELDS: Final = 9
"""The first fields of a `PartStatus` are columns."""

commands = typer.Typer(
    no_args_is_help=True,
    help="Show the state of a running cluster, or give the logs of a stopped one copies.",
)


@commands.command()
def status(url: Url = MASTER_URL, data_dir: DataDir = None, form: Form = Format.TABLE) -> None:
    """List the servers of a cluster, and whether each is ready. If logs have copies, also list the
    log replicas, and the copies of each log. Exit code 1: a server is not ready."""
    require_extras("server")
    from dodona_local.cli.printing import print_list
    from dodona_local.status import look_at_cluster
    from dodona_wire.rows.schema import Column

    if data_dir is None:
        found = look_at_cluster(url)
    else:
        with client_of(url, data_dir) as db:
            tablets = sum(cell.tablet_count for cell in db.get_cluster().cells)
        found = [_embedded(str(data_dir), tablets)]
    text = ("part", "state", "version"), ("address",)
    numbers = "tablets", "rows", "transactions", "prepared", "committed"
    columns = [
        *(Column(name, "utf8") for name in text[0]),
        *(Column(name, "uint64") for name in numbers),
        *(Column(name, "utf8") for name in text[1]),
    ]
    rows: list[tuple[object, ...]] = [it[:SERVER_FIELDS] for it in found]
    if any(it.copies is not None for it in found):
        columns += [Column("owner", "utf8"), Column("epoch", "uint64"), Column("copies", "utf8")]
        rows = [(*row, *_of_copies(it)) for row, it in zip(rows, found, strict=True)]
    print_list(form, columns, rows)
    if not all(it.is_ready for it in found):
        raise typer.Exit(FAILED)


@commands.command()
def adopt(
    path: Annotated[
        Path,
        typer.Argument(
            parser=folder_word, metavar="FOLDER", help="Data folder of a cluster that is stopped."
        ),
    ],
    replicas: Annotated[
        int | None,
        typer.Option(min=3, max=16, help="Number of log replicas, by default 3. Needs etcd."),
    ] = None,
    object_store: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="Move chunks there: s3://bucket/prefix. By default into the folder `objects` in "
            "FOLDER.",
        ),
    ] = None,
    undo: Annotated[
        bool,
        typer.Option("--undo", help="Go back to the logs of the nodes, unless that loses writes."),
    ] = False,
    finish: Annotated[
        bool, typer.Option("--finish", help="End the adoption. Then it can't be undone.")
    ] = False,
) -> None:
    """Give the logs of a stopped cluster copies on log replicas, as `dodona up --replicas` has.
    The folders of the nodes move into the folder `plain`, and stay there as they are."""
    if undo and finish:
        raise typer.BadParameter("--undo goes back, and --finish makes that impossible: choose one")
    if (undo or finish) and (replicas is not None or object_store is not None):
        raise typer.BadParameter("--undo and --finish know the replicas: leave the options out")
    require_extras("server", "replication")
    from dodona_local import adopting
    from dodona_local.adoption import start_of
    from dodona_local.progress_screen import Screen
    from dodona_local.replicas import COPIES, Replicas

    if undo:
        aside = adopting.undo(path)
        say(f"undone: start it with dodona up --data-dir {shlex.quote(str(path))}")
        say(f"not needed any more: {aside}, and objects that were stored elsewhere")
    elif finish:
        kept = adopting.finish(path)
        say(f"finished: remove {kept} when you have a backup")
    else:
        with Screen() as screen:
            wanted = Replicas(replicas or COPIES, object_store or "")
            adoption = adopting.adopt(path, wanted, screen, warn)
        say(f"adopted: start it with {start_of(path, adoption)}")


def _of_copies(found: "PartStatus") -> tuple[str | None, int | None, str | None]:
    copies = found.copies
    return (None, None, None) if copies is None else (copies.owner, copies.epoch, copies.text)


@commands.command()
def copies(url: Url = MASTER_URL, data_dir: DataDir = None, form: Form = Format.TABLE) -> None:
    """List the log replicas of each cell, with their role, and how far each is behind. The list is
    empty if logs have no copies. If a cell can't be asked, its name is printed, and the exit code
    is 3."""
    require_extras("server")
    from dodona_local.cli.printing import print_list
    from dodona_local.status import list_copies
    from dodona_wire.errors import Unavailable
    from dodona_wire.rows.schema import Column

    if data_dir is None:
        found, silent = list_copies(url)
    else:
        with client_of(url, data_dir):
            found, silent = [], []  # the log of an embedded database has no copies
    columns = [
        *(Column(name, "uint64") for name in ("cell", "epoch")),
        *(Column(name, "utf8") for name in ("owner", "role")),
        *(Column(name, "uint64") for name in ("lag_entries", "lag_ms", "silent_ms")),
        *(Column(name, "utf8") for name in ("replica", "address", "reason")),
    ]
    print_list(form, columns, found)
    for line in silent[1:]:
        warn(f"dodona: {line}")
    if silent:
        raise Unavailable(silent[0])


def _embedded(folder: str, tablets: int) -> "PartStatus":
    from importlib.metadata import version

    from dodona_local.status import READY, PartStatus

    return PartStatus("embedded", READY, version("dodona"), tablets, address=folder)
