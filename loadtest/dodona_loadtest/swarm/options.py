"""The options of a load test, besides those of Locust itself.

Owns: names, defaults and words of these options, and the orders made from them.
"""

import argparse
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Final

from dodona_loadtest.live.run import Order
from dodona_loadtest.scenarios import SCENARIOS
from dodona_loadtest.scenarios.parameters import Parameters, options
from dodona_loadtest.swarm.tally import LIMITS
from dodona_loadtest.workloads import WORKLOADS, Workload

RECORDS_MAX: Final = 400_000


@dataclass(frozen=True, slots=True)
class Asked:
    """The options of one test."""

    order: Order
    parameters: Parameters
    limits: dict[str, float | None]
    records_max: int
    warm_up_s: float
    token: str | None

    @property
    def needs_python_client(self) -> bool:
        """Whether no other client can run it."""
        return self.make(Random(0)).needs_python_client

    @property
    def ignored(self) -> list[str]:
        """Options that were set and make no difference to this scenario. This is no error, because
        `load --all` gives all scenarios the same options."""
        name = self.order.workload
        return [
            it.flag
            for it in options()
            if getattr(self.parameters, it.name) != it.default
            and not (name in SCENARIOS and it.about.is_of(name))
        ]

    def make(self, random: Random) -> Workload:
        """Return the scenario, or the simulator's workload of that name. Raises ValueError."""
        name = self.order.workload
        if name in SCENARIOS:
            return SCENARIOS[name](random, self.parameters)
        return WORKLOADS[name](random)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options to Locust's."""
    group = parser.add_argument_group("Dodona's options")
    group.add_argument(
        "--scenario", choices=[*SCENARIOS, *sorted(WORKLOADS)], default="row_commits"
    )
    group.add_argument("--master-url", metavar="URL", help="the master's; default: --host")
    group.add_argument("--token-file", type=Path, help="with the bearer token for a gateway")
    group.add_argument("--seed", type=int, default=1, help="of what users want to do; default: 1")
    group.add_argument(
        "--think-ms", type=float, default=0.0, help="mean pause of users; default: 0"
    )
    group.add_argument(
        "--warm-up-seconds", type=float, default=0.0, help="judged, but not in the figures"
    )
    group.add_argument(
        "--records-max",
        type=int,
        default=RECORDS_MAX,
        help=f"the test ends when its history has so many; default: {RECORDS_MAX:,}",
    )
    limits = parser.add_argument_group("Dodona's limits: beyond them a test fails")
    for limit in LIMITS:
        words = f"{limit.meaning}; default: {'none' if limit.default is None else limit.default}"
        limits.add_argument(f"--{limit.name}", type=float, default=limit.default, help=words)
    parameters = parser.add_argument_group("Dodona's scenarios")
    for it in options():
        words = f"{it.about.meaning} ({it.about.scenarios}); default: {it.default}"
        parameters.add_argument(
            it.flag,
            type=it.type,
            default=it.default,
            choices=it.choices or None,
            help=words.replace("%", "%%"),
        )


def read_options(given: argparse.Namespace, host: str | None) -> Asked:
    """Read the options. Raises ValueError for a wrong value, OSError if the token can't be read."""
    if not host:
        raise ValueError(
            "--host is missing: the gateway's URL, or for the Python client the master's"
        )
    if given.think_ms < 0 or given.warm_up_seconds < 0:
        raise ValueError("--think-ms and --warm-up-seconds must not be negative")
    if given.records_max < 1:
        raise ValueError("--records-max must be positive")
    limits = {it.name: getattr(given, it.name.replace("-", "_")) for it in LIMITS}
    master, token = given.master_url or host, given.token_file
    asked = Asked(
        order=Order(master, given.scenario, given.seed, think_ms_mean=given.think_ms),
        parameters=Parameters(**{it.name: getattr(given, it.name) for it in options()}),
        limits=limits,
        records_max=given.records_max,
        warm_up_s=given.warm_up_seconds,
        token=None if token is None else token.read_text("utf-8").strip(),
    )
    asked.make(Random(0))
    return asked
