"""Find the outcomes of transactions: `dodona transactions`.

Owns: its arguments.
"""

from typing import Annotated

import typer

from dodona_local.cli.extras import require_extras
from dodona_local.cli.options import MASTER_URL, DataDir, Form, Format, Url
from dodona_local.cli.running import client_of, warn

commands = typer.Typer(no_args_is_help=True, help="Find the outcomes of transactions.")


@commands.command()
def outcome(
    transaction: Annotated[
        int, typer.Argument(min=1, metavar="ID", help="Start timestamp of the transaction.")
    ],
    coordinator: Annotated[
        int | None,
        typer.Option(min=0, help="Cell that decides the transaction. Default: ask all cells."),
    ] = None,
    settle: Annotated[
        bool,
        typer.Option(
            "--settle", help="Decide the transaction now: committed, or aborted for ever."
        ),
    ] = False,
    url: Url = MASTER_URL,
    data_dir: DataDir = None,
    form: Form = Format.TABLE,
) -> None:
    """Print whether a transaction was committed, and at which timestamp."""
    require_extras("server")
    from dodona_local.cli.printing import print_json, print_list
    from dodona_wire.rows.schema import Column
    from dodona_wire.types import CellId, TransactionId

    cell = None if coordinator is None else CellId(coordinator)
    with client_of(url, data_dir) as db:
        found = db.outcome(TransactionId(transaction), cell, settle)
    if form is Format.JSON:
        print_json({"transaction": transaction, "state": found.state, "timestamp": found.timestamp})
        return
    columns = [Column("transaction", "uint64"), Column("state", "utf8")]
    row = (transaction, found.state, found.timestamp)
    print_list(form, [*columns, Column("timestamp", "uint64")], [row])


@commands.command("in-doubt")
def in_doubt(url: Url = MASTER_URL, data_dir: DataDir = None, form: Form = Format.TABLE) -> None:
    """List transactions that are prepared in a cell and not decided there, oldest first. Their rows
    are locked. If a cell can't be asked, its name is printed, and the exit code is 3."""
    require_extras("server")
    from dodona_local.cli.printing import print_list
    from dodona_local.status import list_in_doubt
    from dodona_wire.errors import Unavailable
    from dodona_wire.rows.schema import Column

    if data_dir is None:
        found, silent = list_in_doubt(url)
    else:
        with client_of(url, data_dir):
            found, silent = [], []  # a database with one cell never prepares a transaction
    columns = [
        *(Column(name, "uint64") for name in ("transaction", "cell", "coordinator")),
        Column("participants", "any"),
        *(Column(name, "uint64") for name in ("prepare_timestamp", "age_ms")),
    ]
    print_list(form, columns, found)
    for line in silent[1:]:
        warn(f"dodona: {line}")
    if silent:
        raise Unavailable(silent[0])
