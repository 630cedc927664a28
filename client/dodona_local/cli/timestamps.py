"""Print fresh timestamps, and convert timestamps: `dodona timestamp`.

Owns: its arguments.
"""

from typing import Annotated

import typer

from dodona_local.cli.extras import require_extras
from dodona_local.cli.options import MASTER_URL, DataDir, Form, Format, Url
from dodona_local.cli.running import client_of, say

PER_REQUEST_MAX = 1_000_000

commands = typer.Typer()


@commands.callback(invoke_without_command=True)
def timestamp(
    context: typer.Context,
    count: Annotated[
        int, typer.Option(min=1, max=PER_REQUEST_MAX, help="Number of timestamps.")
    ] = 1,
    url: Url = MASTER_URL,
    data_dir: DataDir = None,
    form: Form = Format.TABLE,
) -> None:
    """Print fresh timestamps, which are larger than all before, or convert one."""
    if context.invoked_subcommand is not None:
        return
    require_extras("server")
    from dodona_local.cli.printing import print_json, print_list
    from dodona_wire.rows.schema import Column

    with client_of(url, data_dir) as db:
        first = db._run(db._session.generate_timestamp(count))  # the public call takes no count
    numbers = range(first, first + count)
    if form is Format.JSON:
        print_json(list(numbers))
    elif form is Format.TABLE:
        say("\n".join(map(str, numbers)))
    else:
        print_list(form, [Column("timestamp", "uint64")], [(number,) for number in numbers])


@commands.command()
def show(timestamp: Annotated[int, typer.Argument(help="A timestamp.")]) -> None:
    """Print the approximate time of a timestamp, in UTC. Sends no request."""
    from dodona.timestamps import datetime_from_timestamp

    say(datetime_from_timestamp(timestamp).isoformat())


@commands.command()
def at(
    moment: Annotated[
        str, typer.Argument(help="A time with its zone, such as 2026-07-01T12:00:00Z.")
    ],
) -> None:
    """Print the first timestamp of a time. Sends no request."""
    from dodona_local.cli.words import moment_of

    say(str(moment_of(moment)))
