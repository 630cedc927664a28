"""Define the application of all commands, and the console script.

Owns: the topics, their order in `--help`, and the options before a command.
"""

import sys
from contextlib import suppress
from typing import Annotated

try:
    import typer
except ModuleNotFoundError:  # the install is incomplete
    sys.exit("the command line needs more packages: pip install 'dodona[server]'")

from dodona_local.cli import (
    cluster,
    doctor,
    histories,
    leases,
    loads,
    rows,
    saving,
    servers,
    tables,
    timestamps,
    tokens,
    transactions,
    tree,
)
from dodona_local.cli.options import CALL_TIMEOUT_MS_MAX
from dodona_local.cli.running import EXIT_CODES, OUTPUT_LOST, Group, bound_calls, code_of, warn
from dodona_local.cli.streams import hurry_output, output_failure, prepare_streams

application = typer.Typer(
    cls=Group,
    add_completion=True,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="Dodona: a timestamp oracle, and tablets with transactions by its timestamps.",
    epilog="\n".join(["Exit codes:", *(f"{code}: {text}" for code, text in EXIT_CODES.items())]),
)


def main() -> None:
    """Run the console script."""
    prepare_streams()
    try:
        application(prog_name="dodona")
    finally:
        _tell_lost_output()


def _tell_lost_output() -> None:
    """Report output that was not written. Raises SystemExit for it, unless the command has failed
    already."""
    ended = sys.exc_info()[1]
    try:
        with suppress(BrokenPipeError):
            sys.stdout.flush()
    except KeyboardInterrupt as error:
        hurry_output()
        raise SystemExit(code_of(error)) from None
    if (failure := output_failure()) is not None:
        warn(f"dodona: not all output is written: standard output: {failure.strerror}")
        if isinstance(ended, SystemExit) and not ended.code:
            raise SystemExit(OUTPUT_LOST) from None


def _show_version(is_wanted: bool) -> None:
    if is_wanted:
        import importlib.metadata

        print(f"dodona {importlib.metadata.version('dodona')}")
        raise typer.Exit


@application.callback()
def options(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version."),
    ] = False,
    timeout_ms: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=CALL_TIMEOUT_MS_MAX,
            envvar="DODONA_TIMEOUT_MS",
            help="Limit the time of each call to the cluster, in ms. Default: no limit.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Define the options before a command. With a callback, typer names commands even if there is
    only one."""
    bound_calls(timeout_ms)


for topic in (servers, doctor, tables, tree, rows, histories, saving):
    application.add_typer(topic.commands)
for name, commands in {
    "timestamp": timestamps.commands,
    "transactions": transactions.commands,
    "loads": loads.commands,
    "lease": leases.commands,
    "tokens": tokens.commands,
    "cluster": cluster.commands,
}.items():
    application.add_typer(commands, name=name)
