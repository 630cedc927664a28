"""`python -m dodona_loadtest.load`: Locust on a private cluster, without a browser; verdicts.

It starts two nodes and a gateway in a temporary folder, and runs each scenario with each client. At
the end it says which ones passed. The exit status is 0 if all did, 1 if one failed, and 2 if one
had nothing to judge. Options that it does not know go to Locust: `--rows 5000 --p99-ms-max 50`.
"""

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, get_args

from dodona_loadtest.harness.ending import bound, end_in_order
from dodona_loadtest.scenarios import SCENARIOS
from dodona_local.launcher import LocalCluster
from dodona_wire.errors import DodonaError

Client = Literal["python", "rest"]
LOCUSTFILES: Final = Path(__file__).parent / "locustfiles"
FAILED: Final = 1
SHORT: Final = ("smallbank", "ycsb_a")
SLACK_S_MAX: Final = 300.0
"""Seconds beyond the test itself: filling, the last requests, the judgement."""


@dataclass(frozen=True, slots=True)
class Load:
    """One test on a cluster with a gateway."""

    client: Client
    scenario: str
    seconds: float
    users: int
    more: Sequence[str] = ()
    """Options for Locust."""

    def command(self, cluster: LocalCluster) -> list[str]:
        """Return the command to run."""
        host = cluster.master_url if self.client == "python" else cluster.gateway_urls[0]
        locustfile = LOCUSTFILES / f"locustfile_{self.client}.py"
        return [
            *(sys.executable, "-m", "locust", "--headless", "--only-summary"),
            *("-f", str(locustfile), "--host", host, "--master-url", cluster.master_url),
            *("--users", str(self.users), "--spawn-rate", str(self.users)),
            *("--run-time", f"{max(1, round(self.seconds))}s", "--scenario", self.scenario),
            *self.more,
        ]

    def run(self, cluster: LocalCluster) -> "subprocess.CompletedProcess[str]":
        """Run the command. Return its output and its exit status."""
        return subprocess.run(
            bound(self.command(cluster)),
            capture_output=True,
            text=True,
            timeout=self.seconds + SLACK_S_MAX,
            check=False,
        )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m dodona_loadtest.load", description=__doc__.splitlines()[0]
    )
    names = ", ".join(SHORT)
    parser.add_argument(
        "--scenario",
        action="append",
        choices=list(SCENARIOS),
        help=f"repeatable; default: {names}",
    )
    parser.add_argument("--all", action="store_true", help="every scenario")
    parser.add_argument("--client", choices=get_args(Client), help="default: one after the other")
    parser.add_argument("--seconds", type=int, default=10, help="of each test; default: 10")
    parser.add_argument("--users", type=int, default=16, help="of each test; default: 16")
    return parser


def main(command: Sequence[str] | None = None) -> int:
    """Run the tests. Return the exit status."""
    parser = _parser()
    given, more = parser.parse_known_args(command)
    if given.seconds < 1 or given.users < 1:
        parser.error("--seconds and --users must be positive")
    scenarios = list(SCENARIOS) if given.all else given.scenario or SHORT
    clients = [given.client] if given.client else get_args(Client)
    loads = [
        Load(client, scenario, given.seconds, given.users, more)
        for scenario in scenarios
        for client in clients
    ]
    try:
        with (
            tempfile.TemporaryDirectory(prefix="dodona-load-") as folder,
            LocalCluster(
                Path(folder) / "data", node_count=2, gateway_count=1, is_insecure=True
            ) as cluster,
        ):
            statuses = [_run(load, cluster) for load in loads]
    except DodonaError as error:
        print(f"load: {error}", file=sys.stderr)
        return 2
    for load, status in zip(loads, statuses, strict=True):
        word = {0: "passed", 1: "FAILED"}.get(status, "had nothing to judge")
        print(f"{load.scenario}, {load.client}: {word}")
    return max(statuses, key=lambda status: (status == 1, status))


def _run(load: Load, cluster: LocalCluster) -> int:
    try:
        done = load.run(cluster)
    except subprocess.TimeoutExpired as late:
        print((late.stdout or b"").decode(errors="replace"), flush=True)
        print(f"it did not end within {late.timeout:g} s", file=sys.stderr)
        return FAILED
    print(done.stdout, flush=True)
    if done.returncode:
        print(done.stderr, file=sys.stderr)
    return done.returncode


if __name__ == "__main__":
    end_in_order()
    sys.exit(main())
