"""Run one process of the timestamp oracle: `python -m dodona_oracle master | proxy`.

Owns: the choice of the role. The exit status is 2 for wrong usage. Otherwise it is the one that
`dodona_server.serving` sets.
"""

import sys
from collections.abc import Callable
from typing import Any, Final

from dodona_server.early_stop import end_on_sigterm

if __name__ == "__main__":
    end_on_sigterm()  # before the imports, which take long

from dodona_oracle.shell.master import run_master
from dodona_oracle.shell.proxy import run_proxy
from dodona_oracle.shell.settings import MasterSettings, ProxySettings
from dodona_server.serving import run_process
from dodona_server.settings import USAGE_STATUS, ServerSettings

USAGE: Final = """usage: python -m dodona_oracle {master,proxy} [settings]

  master   allocate timestamps, own the catalog
  proxy    batch timestamp requests of many clients

Each prints its settings with --help. Settings are read from the command line, then from
the environment (DODONA_MASTER_DATA_DIR=... and so on)."""


ROLES: Final[dict[str, tuple[Callable[[Any], None], type[ServerSettings]]]] = {
    "master": (run_master, MasterSettings),
    "proxy": (run_proxy, ProxySettings),
}


def main(arguments: list[str]) -> None:
    """Run the process that the arguments name. Raises SystemExit."""
    role = arguments[0] if arguments else ""
    if role in ROLES:
        run, kind = ROLES[role]
        run_process(kind, run, f"python -m dodona_oracle {role}", arguments[1:])
    elif role in ("-h", "--help"):
        print(USAGE)
    else:
        print(USAGE, file=sys.stderr)
        raise SystemExit(USAGE_STATUS)


if __name__ == "__main__":
    main(sys.argv[1:])
