"""Interleaved rounds: in each round every contender has its turn with every number of callers.

All contenders of a row run together, and each is idle except in its turn. The contender that went
first in one round goes last in the next. So a machine that slows down or warms up does so for all.
"""

import os
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar

from dodona_loadtest.harness.client_process import ClientProcess, Order
from dodona_loadtest.harness.errors import ContenderError, ContenderMissing
from dodona_loadtest.harness.load import AsyncLoad
from dodona_loadtest.harness.pinning import Pinning, choose_pinning, pin_this_process
from dodona_loadtest.harness.row import Contender, Line, Observation, Row, RowResult
from dodona_loadtest.harness.servers import cpu_seconds
from dodona_loadtest.harness.study import StudyResult

Progress = Callable[[str], None]
Item = TypeVar("Item")

REST_S: Final = 1.0
"""Seconds before each turn. Virtual disks grant a budget of writes, which heavy writes use up."""


@dataclass(frozen=True, slots=True)
class Plan:
    """The times and numbers of a run. `is_quick` takes fewer numbers of callers. `scale` is the
    share of a study's full counts of rows."""

    rounds: int
    warm_up_s: float
    measure_s: float
    is_quick: bool
    pinning: Pinning
    scale: float = 1.0

    def callers(self, row: Row) -> tuple[int, ...]:
        return row.callers_quick if self.is_quick else row.callers


@dataclass(frozen=True, slots=True)
class _Entrant:
    """A contender that is up and has its client process."""

    contender: Contender
    client: ClientProcess
    server_pids: tuple[int, ...]

    def observe(self, order: Order) -> Observation:
        rest()
        cpu_before_s, began_s = cpu_seconds(self.server_pids), time.monotonic()
        sample = self.client.measure(order)
        cpu_s, elapsed_s = cpu_seconds(self.server_pids) - cpu_before_s, time.monotonic() - began_s
        # The servers' processor time includes the warm-up, which runs at the same rate.
        share = min(1.0, sample.duration_s / elapsed_s)
        return Observation(sample, cpu_s * share * 1e6 / max(1, sample.operations))


def run_row(row: Row, plan: Plan, folder: Path, progress: Progress) -> RowResult:
    """Start all contenders, run all rounds, stop everything. Contenders may leave the row."""
    result = RowResult(row)
    observations: dict[tuple[int, str], list[Observation]] = defaultdict(list)
    with ExitStack() as stack:
        pinning = stack.enter_context(placed(row, plan.pinning))
        entrants = _start_all(row, plan, pinning, folder, stack, result, progress)
        for number in range(plan.rounds):
            for callers in plan.callers(row):
                for entrant in rotated(entrants, number):
                    name = entrant.contender.name
                    if name in result.dropped:
                        continue
                    progress(f"{row.name}: round {number + 1}, {callers:,} callers, {name}")
                    try:
                        observation = entrant.observe(
                            Order(callers, plan.warm_up_s, plan.measure_s)
                        )
                    except ContenderError as error:
                        drop(result, name, error)
                    else:
                        observations[callers, name].append(observation)
    result.lines = [
        line for line in _lines(row, plan, observations) if line.contender not in result.dropped
    ]
    return result


def drop(result: RowResult | StudyResult, name: str, error: ContenderError) -> None:
    """Remove a contender, with all its figures. One that loses a row in the last round had not kept
    its acknowledged rows in earlier rounds either."""
    result.dropped[name] = str(error)
    if not isinstance(error, ContenderMissing):
        result.failed.add(name)


@contextmanager
def placed(row: Row, asked: Pinning) -> Iterator[Pinning]:
    """Let servers that start meanwhile run where this row wants them, by default."""
    if row.pinning is None or asked.name != "none":
        yield asked
        return
    pinning = choose_pinning(row.pinning)
    pin_this_process(pinning.servers)
    try:
        yield pinning
    finally:
        pin_this_process(asked.servers)


def _start_all(
    row: Row,
    plan: Plan,
    pinning: Pinning,
    folder: Path,
    stack: ExitStack,
    result: RowResult,
    progress: Progress,
) -> list[_Entrant]:
    entrants = []
    for index, contender in enumerate(row.contenders):
        progress(f"{row.name}: starting {contender.name}")
        own_folder = folder / f"{row.name}-{index}"
        own_folder.mkdir(mode=0o755)
        try:
            running = stack.enter_context(contender.start(own_folder))
            is_served = isinstance(running.load, AsyncLoad)
            cores = pinning.client if is_served else pinning.embedded
            client = ClientProcess(running.load, cores, max(plan.callers(row)))
            stack.enter_context(client)
        except ContenderError as error:
            drop(result, contender.name, error)
            continue
        result.versions[contender.name] = running.version
        entrants.append(_Entrant(contender, client, running.server_pids))
    return entrants


def rest() -> None:
    """Wait before each turn: writes left from the turn before would slow down the next."""
    os.sync()
    time.sleep(REST_S)


def rotated(entrants: Sequence[Item], number: int) -> list[Item]:
    """Rotate the order, so that another contender goes first in each round."""
    if not entrants:
        return []
    start = number % len(entrants)
    return [*entrants[start:], *entrants[:start]]


def _lines(
    row: Row, plan: Plan, observations: dict[tuple[int, str], list[Observation]]
) -> list[Line]:
    return [
        Line(callers, contender.name, tuple(observations[callers, contender.name]))
        for callers in plan.callers(row)
        for contender in row.contenders
        if observations.get((callers, contender.name))
    ]
