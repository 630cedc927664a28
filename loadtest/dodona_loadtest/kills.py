"""`python -m dodona_loadtest.kills`: `kill -9` of every role, again and again, under workloads.

Master, proxies, nodes and client processes of a private cluster are killed and paused at random
times, sometimes two together, and start again. After each round the cluster rests. All work has to
end in time, and the checkers judge. It ends only processes that it started. After a violation the
exit status is 1, and the folder with data, logs and journals stays.

With `--failovers`, the logs of the cluster have copies, and nodes stand by. One fault comes at a
time: of an owner, a replica, etcd's leader, or an owner and another process. Writers measure the
longest time without an acknowledgement.
"""

import argparse
import secrets
import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from dodona_loadtest.chaos.campaign import CampaignPlan, Summary, markdown, run_campaign
from dodona_loadtest.chaos.failover_campaign import (
    failover_lines,
    failover_markdown,
    is_broken,
    run_failovers,
)
from dodona_loadtest.harness.document import check_place, write_section
from dodona_loadtest.harness.ending import end_in_order
from dodona_local.errors import LaunchFailed

KILLS: Final = 200


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m dodona_loadtest.kills", description=__doc__.splitlines()[0]
    )
    counts = parser.add_mutually_exclusive_group()
    counts.add_argument("--kills", type=int, default=KILLS, help=f"default: {KILLS}")
    counts.add_argument(
        "--failovers", type=int, help="instead of kills: so many failovers of cells with copies"
    )
    parser.add_argument("--per-round", type=int, default=20, help="default: 20")
    parser.add_argument(
        "--pace-ms", type=float, default=1_000.0, help="mean time between faults; default: 1000"
    )
    parser.add_argument("--seed", type=int, help="of what is hit; default: any, and printed")
    parser.add_argument(
        "--markdown",
        type=Path,
        metavar="FILE",
        help="also write the summary into this document, between the markers of `kills` "
        "or `failovers`",
    )
    parser.add_argument("--folder", type=Path, help="work under this one; default: the temporary")
    return parser


def main(command: Sequence[str] | None = None) -> int:
    """Run the command. Return the exit status."""
    parser = _parser()
    given = parser.parse_args(command)
    section = "kills" if given.failovers is None else "failovers"
    count = given.kills if given.failovers is None else given.failovers
    if count < 1 or given.per_round < 1 or given.pace_ms <= 0:
        parser.error(f"--{section}, --per-round and --pace-ms must be positive")
    if given.markdown:
        try:
            check_place(given.markdown, section)
        except ValueError as error:
            parser.error(str(error))
    seed = secrets.randbelow(1 << 32) if given.seed is None else given.seed
    plan = CampaignPlan(count, seed, given.per_round, given.pace_ms)
    folder = Path(tempfile.mkdtemp(prefix="dodona-kills-", dir=given.folder))
    print(f"seed {seed}, in {folder}", flush=True)
    try:
        summary, lines, text = _run(plan, folder, is_of_failovers=given.failovers is not None)
    except LaunchFailed as error:
        print(f"kills: {error}", file=sys.stderr)
        return 2
    print("\n".join(lines))
    if given.markdown:
        write_section(given.markdown, section, text)
    if is_broken(summary):
        print(f"what is left of it is in {folder}")
        return 1
    shutil.rmtree(folder)
    return 0


def _say(line: str) -> None:
    print(line, flush=True)


def _run(
    plan: CampaignPlan, folder: Path, *, is_of_failovers: bool
) -> tuple[Summary, list[str], str]:
    """Run a campaign. Return its summary, as lines and as Markdown too. Raises LaunchFailed."""
    if is_of_failovers:
        summary = run_failovers(plan, folder, _say)
        return summary, failover_lines(summary), failover_markdown(summary)
    summary = run_campaign(plan, folder, _say)
    return summary, summary.lines(), markdown(summary)


if __name__ == "__main__":
    end_in_order()
    sys.exit(main())
