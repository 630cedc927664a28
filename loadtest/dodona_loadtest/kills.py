"""`python -m dodona_loadtest.kills`: `kill -9` of every role, again and again, under workloads.

Master, proxies, nodes and client processes of a private cluster are killed and paused at random
times, sometimes two together, and start again. After each round the cluster rests. All work has to
end in time, and the checkers judge. It ends only processes that it started. After a violation the
exit status is 1, and the folder with data, logs and journals stays.
"""

import argparse
import secrets
import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from dodona_loadtest.chaos.campaign import CampaignPlan, markdown, run_campaign
from dodona_loadtest.harness.document import check_place, write_section
from dodona_loadtest.harness.ending import end_in_order
from dodona_local.errors import LaunchFailed

SECTION: Final = "kills"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m dodona_loadtest.kills", description=__doc__.splitlines()[0]
    )
    parser.add_argument("--kills", type=int, default=200, help="default: 200")
    parser.add_argument("--per-round", type=int, default=20, help="default: 20")
    parser.add_argument(
        "--pace-ms", type=float, default=1_000.0, help="mean time between faults; default: 1000"
    )
    parser.add_argument("--seed", type=int, help="of what is hit; default: any, and printed")
    parser.add_argument(
        "--markdown",
        type=Path,
        metavar="FILE",
        help="also write the summary into this document, between the markers of `kills`",
    )
    parser.add_argument("--folder", type=Path, help="work under this one; default: the temporary")
    return parser


def main(command: Sequence[str] | None = None) -> int:
    """Run the command. Return the exit status."""
    parser = _parser()
    given = parser.parse_args(command)
    if given.kills < 1 or given.per_round < 1 or given.pace_ms <= 0:
        parser.error("--kills, --per-round and --pace-ms must be positive")
    if given.markdown:
        try:
            check_place(given.markdown, SECTION)
        except ValueError as error:
            parser.error(str(error))
    seed = secrets.randbelow(1 << 32) if given.seed is None else given.seed
    plan = CampaignPlan(given.kills, seed, given.per_round, given.pace_ms)
    folder = Path(tempfile.mkdtemp(prefix="dodona-kills-", dir=given.folder))
    print(f"seed {seed}, in {folder}", flush=True)
    try:
        summary = run_campaign(plan, folder, lambda line: print(line, flush=True))
    except LaunchFailed as error:
        print(f"kills: {error}", file=sys.stderr)
        return 2
    print("\n".join(summary.lines()))
    if given.markdown:
        write_section(given.markdown, SECTION, markdown(summary))
    if summary.violations:
        print(f"what is left of it is in {folder}")
        return 1
    shutil.rmtree(folder)
    return 0


if __name__ == "__main__":
    end_in_order()
    sys.exit(main())
