"""The application that all commands are part of, and the console script.

Owns: which topics there are, in which order `--help` lists them, and the options before them.
"""

import sys
from typing import Annotated

try:
    import typer
except ModuleNotFoundError:  # the base install is the light client, which has no commands
    sys.exit("the command line needs more packages: pip install 'dodona[server]'")

from dodona_local.cli import loads, saving, servers, tokens
from dodona_local.cli.running import Group

application = typer.Typer(
    cls=Group,
    add_completion=True,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="Dodona: a timestamp oracle and the transactional tablets that live by its timestamps.",
)


def main() -> None:
    """The console script."""
    application(prog_name="dodona")


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
) -> None:
    """Options that come before any command. Its presence keeps commands named, however few."""


application.add_typer(servers.commands)
application.add_typer(saving.commands)
application.add_typer(loads.commands, name="loads")
application.add_typer(tokens.commands, name="tokens")
