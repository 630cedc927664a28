"""Run one tablet node until SIGTERM: `python -m dodona_tablets --cell N --data-dir FOLDER ...`."""

import sys

from dodona_server.early_stop import end_on_sigterm

if __name__ == "__main__":
    end_on_sigterm()  # before the imports, which take long

from dodona_server.serving import run_process
from dodona_tablets.shell.service import run_node
from dodona_tablets.shell.settings import NodeSettings

if __name__ == "__main__":
    run_process(NodeSettings, run_node, "python -m dodona_tablets", sys.argv[1:])
