"""A tablet node that finds an empty folder at each start, as on another machine."""

import shutil
import sys

from dodona_server.early_stop import end_on_sigterm

if __name__ == "__main__":
    end_on_sigterm()
    shutil.rmtree(sys.argv[sys.argv.index("--data-dir") + 1], ignore_errors=True)

from dodona_tablets.__main__ import main

if __name__ == "__main__":
    main(sys.argv[1:])
