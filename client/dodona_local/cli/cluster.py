"""Show the state of a running cluster: `dodona cluster`.

Owns: its arguments, and its output for an embedded database.
"""

from typing import TYPE_CHECKING, Final

import typer

from dodona_local.cli.extras import require_extras
from dodona_local.cli.options import MASTER_URL, DataDir, Form, Format, Url
from dodona_local.cli.running import FAILED, client_of, warn

if TYPE_CHECKING:
    from dodona_local.status import PartStatus

SERVER_FIELDS: Final = 9
"""The first fields of a `PartStatus` are columns."""

commands = typer.Typer(no_args_is_help=True, help="Show the state of a running cluster.")


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
