"""`dodona backup`, `restore` and `check`: tables in folders, and folders on their own.

Owns: their arguments and what they say at the end.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from dodona_local.cli.extras import require_extras
from dodona_local.cli.options import MASTER_URL, DataDir, ReadTimestamp, Tables, Url, folder_word
from dodona_local.cli.running import FAILED, client_of, say, warn

if TYPE_CHECKING:
    from dodona_local.backup import Manifest

WHAT_TO_DO: Final = (
    "Do not start servers on it, and keep it as it is: what is damaged can't be served. Go on with "
    "a copy of the folder from before, or with a backup (dodona restore)."
)

commands = typer.Typer()


@commands.command()
def backup(
    path: Annotated[
        Path,
        typer.Argument(
            parser=folder_word, metavar="PATH", help="Folder for the backup: new, or empty."
        ),
    ],
    tables: Tables = None,
    url: Url = MASTER_URL,
    data_dir: DataDir = None,
    timestamp: ReadTimestamp = None,
    skip_unmounted: Annotated[
        bool,
        typer.Option("--skip-unmounted", help="Leave out tables that are not mounted."),
    ] = False,
) -> None:
    """Save tables as they are at one moment, while everybody goes on."""
    require_extras("server")
    from dodona_local.backup import back_up
    from dodona_local.cli.words import timestamp_of
    from dodona_local.progress_screen import Screen
    from dodona_wire.net.urls import hide_password

    skipped: list[str] = []
    at = None if timestamp is None else timestamp_of(timestamp)
    with client_of(url, data_dir) as db, Screen() as screen:
        source = str(data_dir or hide_password(url))
        made = back_up(
            db,
            path,
            tables or None,
            at,
            source=source,
            progress=screen,
            skip=skipped.append if skip_unmounted else None,
        )
    for table in skipped:
        warn(f"dodona: left out, since it is not mounted: {table}")
    say(f"{_counts(made)} as of {made.time}, timestamp {made.timestamp}: {path}")


@commands.command()
def restore(
    path: Annotated[Path, typer.Argument(parser=folder_word, metavar="PATH", help="The backup.")],
    tables: Tables = None,
    url: Url = MASTER_URL,
    data_dir: DataDir = None,
) -> None:
    """Make the tables of a backup anew. What is there already is never overwritten."""
    require_extras("server")
    from dodona_local.backup import restore
    from dodona_local.progress_screen import Screen

    with client_of(url, data_dir, is_made=True) as db, Screen() as screen:
        made = restore(db, path, tables or None, progress=screen)
    say(f"{_counts(made)} restored, as of {made.time}")


@commands.command()
def check(
    path: Annotated[
        Path,
        typer.Argument(
            parser=folder_word,
            metavar="PATH",
            help="Folder of a cluster, an embedded database, one server, or a backup.",
        ),
    ],
) -> None:
    """Read all of a folder that nobody uses, and say what is there and whether it is sound."""
    require_extras("server")
    from dodona_local.checking import check_folder
    from dodona_local.progress_screen import Screen, show_table

    with Screen() as screen:
        found = check_folder(path, screen)
    show_table(("part", "what it has", ""), [part.columns for part in found])
    for damage in (damage for part in found for damage in part.damages):
        warn(f"dodona: {damage}")
    if any(part.damages for part in found):
        warn(WHAT_TO_DO)
        raise typer.Exit(FAILED)


def _counts(manifest: "Manifest") -> str:
    count = len(manifest.tables)
    return f"{count:,} table{'s' if count > 1 else ''} with {manifest.row_count:,} rows"
