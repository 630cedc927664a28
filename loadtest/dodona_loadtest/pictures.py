"""`python -m dodona_loadtest.pictures FILE...`: pictures of runs, from their figures alone.

The files are those that `dodona_loadtest.bench --json` wrote. The pictures go beside them, or into
the given folder.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec

from dodona_loadtest.harness.drawing import draw_all
from dodona_loadtest.harness.recorded import read_recorded


def main(command: Sequence[str] | None = None) -> int:
    """Draw the pictures. Return the exit status: 2 for a file that has no figures."""
    parser = argparse.ArgumentParser(
        prog="python -m dodona_loadtest.pictures", description=__doc__.splitlines()[0]
    )
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE")
    parser.add_argument("--into", type=Path, metavar="FOLDER", help="default: beside the file")
    given = parser.parse_args(command)
    for path in given.files:
        try:
            recorded = read_recorded(path)
        except (OSError, msgspec.DecodeError) as error:
            print(f"pictures: {path} can't be read: {error}", file=sys.stderr)
            return 2
        for drawn in draw_all(recorded, given.into or path.parent):
            print(drawn)
    return 0


if __name__ == "__main__":
    sys.exit(main())
