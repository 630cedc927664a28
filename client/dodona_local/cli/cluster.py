"""Show the state of a running cluster: `dodona cluster`.

Owns: its arguments, and its output for an embedded database.
"""

from typing import TYPE_CHECKING

import typer

from dodona_local.cli.extras import require_extras
from dodona_local.cli.options import MASTER_URL, DataDir, Form, Format, Url
from dodona_local.cli.running import FAILED, client_of

if TYPE_CHECKING:
    from dodona_local.status import PartStatus

commands = typer.Typer(no_args_is_help=True, help="Show the state of a running cluster.")


@commands.command()
def status(url: Url = MASTER_URL, data_dir: DataDir = None, form: Form = Format.TABLE) -> None:
    """List the servers of a cluster, and whether each is ready. Exit code 1: one is not."""
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
    print_list(form, columns, found)
    if not all(it.is_ready for it in found):
        raise typer.Exit(FAILED)


def _embedded(folder: str, tablets: int) -> "PartStatus":
    from importlib.metadata import version

    from dodona_local.status import READY, PartStatus

    return PartStatus("embedded", READY, version("dodona"), tablets, address=folder)
