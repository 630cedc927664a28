"""Show which parts of this install work, and what the others need: `dodona doctor`.

Owns: the list of parts. The command starts nothing but `java -version`, and connects to nothing.
"""

import sys
from importlib.metadata import version
from typing import Final

import typer

from dodona_local.cli.extras import PACKAGES_BY_EXTRA, missing_for
from dodona_local.cli.options import Form, Format

WORKS: Final = "works"
MISSING: Final = "missing"
NOTHING: Final = "nothing"
PURPOSES: Final = {
    "server": "servers, the embedded database, the gateway with its console",
    "sql": "queries in SQL",
    "pandas": "data frames of pandas, in and out",
    "polars": "data frames of Polars, in and out",
    "spark": "reads and writes from Spark",
    "replication": "logs with copies: dodona up --replicas, which needs etcd, too",
    "tracing": "traces by OpenTelemetry",
    "demo": "real flights in dodona demo; without them it makes up others",
}
"""What each extra is for."""

commands = typer.Typer()


@commands.command()
def doctor(form: Form = Format.TABLE) -> None:
    """Show which parts of this install work, and what the others need."""
    if missing_for("server") is not None:  # what prints lists in each format comes with it
        typer.echo("\n".join(" | ".join(it) for it in parts()))
        return
    from dodona_local.cli.printing import print_list
    from dodona_wire.rows.schema import Column

    names = ("part", "state", "purpose", "what to do")
    print_list(form, [Column(name, "utf8") for name in names], parts())


def parts() -> list[tuple[str, str, str, str]]:
    """Return a row for the version, and one for each extra."""
    python = ".".join(map(str, sys.version_info[:3]))
    this = ("dodona", WORKS, f"version {version('dodona')}, in Python {python}", NOTHING)
    return [this, *(_extra(extra) for extra in PACKAGES_BY_EXTRA)]


def _extra(extra: str) -> tuple[str, str, str, str]:
    missing = missing_for(extra)
    return (extra, WORKS if missing is None else MISSING, PURPOSES[extra], missing or NOTHING)
