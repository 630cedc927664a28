"""Run one tablet node until SIGTERM: `python -m dodona_tablets --cell N --data-dir FOLDER ...`.

`python -m dodona_tablets replica --cluster NAME --data-dir FOLDER ...` runs a log replica instead.
"""

import sys
from typing import TYPE_CHECKING

from dodona_server.early_stop import end_on_sigterm

if __name__ == "__main__":
    end_on_sigterm()  # before the imports, which take long

from dodona_server.serving import run_process

if TYPE_CHECKING:
    from dodona_tablets.shell.settings import NodeSettings


def main(arguments: list[str]) -> None:
    """Run the process that the arguments name. Raises SystemExit."""
    program = "python -m dodona_tablets"
    if arguments[:1] == ["replica"]:
        from dodona_replication.shell.replica_service import run_replica
        from dodona_replication.shell.replica_settings import ReplicaSettings

        run_process(ReplicaSettings, run_replica, f"{program} replica", arguments[1:])
    else:
        from dodona_tablets.shell.settings import NodeSettings

        run_process(NodeSettings, _run_node, program, arguments)


def _run_node(settings: "NodeSettings") -> None:
    if settings.is_replicated:
        from dodona_tablets.shell.replicated_node import run_replicated_node

        run_replicated_node(settings)
    else:
        from dodona_tablets.shell.service import run_node

        run_node(settings)


if __name__ == "__main__":
    main(sys.argv[1:])
