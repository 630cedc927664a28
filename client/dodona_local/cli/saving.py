"""Save tables into folders, restore them, and check folders: `dodona backup`, `restore`, `check`.

Owns: their arguments, and their last lines of output.
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
    "Do not start servers on this folder, and do not change it: damaged data can't be served. Use "
    "an earlier copy of the folder, or restore a backup (dodona restore)."
)

commands = typer.Typer()


@commands.command()
def backup(
    path: Annotated[
        Path,
        typer.Argument(
            parser=folder_word, metavar="PATH", help="Folder for the backup: a new or an empty one."
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
    """Save tables as of one timestamp. Other programs go on meanwhile."""
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
    path: Annotated[
        Path, typer.Argument(parser=folder_word, metavar="PATH", help="Folder of the backup.")
    ],
    tables: Tables = None,
    url: Url = MASTER_URL,
    data_dir: DataDir = None,
) -> None:
    """Create the tables of a backup again. Existing tables are never overwritten."""
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
    """Read a whole folder that no server uses, list its parts, and verify them."""
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
