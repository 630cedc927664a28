"""The production cores in the simulator: many seeds without a violation.

Each seed is a whole cluster under faults of its own (see `simulator.faults`). All seeds run once,
side by side, before the first test that asks about them. A failure names the command that replays
it. More seeds: `python -m simulator --seeds FIRST:END`. What they would find: `negative`.
"""

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable
from typing import get_args

import pytest
from rich.console import Console

from dodona._core.protocol.context import Acknowledgement
from dodona._core.protocol.steps import Protocol
from dodona._core.writing.outcomes import PENDING
from dodona_loadtest.checkers.violation import Promise
from dodona_loadtest.histories.history import Transaction
from dodona_loadtest.histories.recorder import Recorder
from dodona_loadtest.live.outcomes import Answers, ask_outcomes
from dodona_loadtest.workloads import WORKLOADS
from simulator import report
from simulator.__main__ import main
from simulator.runner import AGAIN_RATE, ELSEWHERE_COUNT, Work, run_seeds
from simulator.simulation import simulate
from simulator.summary import SCHEDULED_KINDS, Summary

NAMES = sorted(WORKLOADS)
SEEDS = [it for it in range(500) if it < 200 or NAMES[it % len(NAMES)] == "loads"]
"""Loads have fault points of their own, which take as many of their seeds to be hit."""
SECONDS = 60
SHORT_SECONDS = 30
BATCH_SECONDS_MAX = 3_600
"""For all seeds. They take minutes; slow machines and debuggers take longer."""
SCHEDULED_FAULTS_MIN = 10_000

PLANTED_SEEDS_MAX = 30

of_the_batch = pytest.mark.timeout(BATCH_SECONDS_MAX)


@pytest.fixture(scope="session")
def batch() -> Summary:
    """What all seeds came to. Whoever asks for it may be the one who waits for it."""
    summary = run_seeds(SEEDS, Work(SECONDS), os.cpu_count() or 1)
    report.show(summary, Console(width=100))  # shown where a test fails, or on demand
    return summary


@pytest.mark.pooled  # the batch has a process for each core
@of_the_batch
def test_no_seed_finds_a_violation(batch: Summary) -> None:
    found = [f"replay: {it.command}: {it.violations[0]}" for it in batch.failures]
    assert found == []
    assert batch.seed_count == len(SEEDS)
    assert batch.virtual_seconds >= len(SEEDS) * SECONDS


@pytest.mark.pooled
@of_the_batch
def test_one_seed_in_twenty_was_run_twice_and_some_of_them_elsewhere(batch: Summary) -> None:
    """A second history that differs is a violation."""
    assert batch.again_count >= len(SEEDS) * AGAIN_RATE
    assert batch.again_elsewhere_count == ELSEWHERE_COUNT


@pytest.mark.pooled
@of_the_batch
def test_the_simulated_runs_meet_their_goals_for_faults_and_recoveries(batch: Summary) -> None:
    """Without conflicts, unsure outcomes and recoveries, a run without violations says little."""
    missed = [goal for goal in batch.goals if not goal.is_met and goal.name != "virtual time"]
    assert missed == [], "speed is said, and never judged here"
    assert batch.share("told unknown") > 0.005
    assert sum(batch.scheduled_faults.values()) >= SCHEDULED_FAULTS_MIN
    assert batch.counts["crashes"] > 0.25 * SCHEDULED_FAULTS_MIN
    assert batch.counts["snapshots"] > 20 * len(SEEDS)
    assert batch.counts["blind"] > 20 * len(SEEDS)
    for recovery in ("QueryStatus", "AskCoordinator", "AskOutcome", "CommitOne", "Prepare"):
        assert batch.messages[recovery] > len(SEEDS), recovery


@pytest.mark.pooled
@of_the_batch
def test_every_kind_of_fault_happens(batch: Summary) -> None:
    happened = {kind.split()[0] for kind in batch.scheduled_faults}
    assert happened == set(SCHEDULED_KINDS)
    assert set(batch.workloads) == set(WORKLOADS)
    assert set(batch.acknowledgements) == set(get_args(Acknowledgement))


@pytest.mark.pooled
@of_the_batch
def test_every_fault_point_is_hit(batch: Summary) -> None:
    assert batch.points_never_hit == []


@pytest.mark.slow("simulates many clusters")
@pytest.mark.part("a share of the seeds")
@pytest.mark.parametrize("workload", NAMES)
def test_a_short_run_of_each_workload_has_no_violation(workload: str) -> None:
    result = simulate(NAMES.index(workload), SHORT_SECONDS, workload)
    assert result.violations == [], f"replay: {result.command}"


# The end of a run


def test_a_pending_outcome_is_asked_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pending is also what is said while a cell is silent: it is no word on what became of it."""
    asked: Counter[str] = Counter()

    def ask(db: Recorder, transactions: Iterable[Transaction]) -> Protocol[Answers]:
        answers = yield from ask_outcomes(db, transactions)
        for t, outcomes in answers:
            asked[t.name] += 1
            if asked[t.name] == 1:
                outcomes[:] = [PENDING] * len(outcomes)
        return answers

    monkeypatch.setattr("simulator.simulation.ask_outcomes", ask)
    assert simulate(7, 5).violations == []
    assert max(asked.values()) == 2


# Determinism


def test_the_same_seed_gives_the_same_history() -> None:
    assert simulate(3, 5).digest == simulate(3, 5).digest
    assert simulate(3, 5).digest != simulate(4, 5).digest


@pytest.mark.parametrize("hash_seed", ["0", "1", "4711"])
def test_the_history_does_not_depend_on_the_process(hash_seed: str) -> None:
    """Nothing iterates over a set, takes an id or reads a clock."""
    script = "import sys; from simulator.simulation import simulate; print(simulate(3, 5).digest)"
    environment = os.environ | {
        "PYTHONHASHSEED": hash_seed,
        "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
    }
    done = subprocess.run(
        [sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == simulate(3, 5).digest


# The command


def test_the_command_reports_a_clean_run(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["3", "--seconds", "2", "--workload", "bank"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "seed 3, workload bank, 2 s under faults"
    assert lines[-1] == "no violation"


def test_the_command_ends_with_the_violation(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dodona_tablets.core.tablet.snapshot.blocking_reader", lambda *_: None)
    for seed in range(PLANTED_SEEDS_MAX):
        status = main([str(seed), "--workload", "cycle", "--seconds", "20"])
        lines = capsys.readouterr().out.splitlines()
        if status:
            break
    assert status == 1
    assert lines[-1].split(":")[0] in get_args(Promise)
    replay = f"python -m simulator {seed} --workload cycle --seconds 20"
    assert any(line.endswith(f"replay: {replay}") for line in lines)


def test_the_command_refuses_nonsense() -> None:
    with pytest.raises(SystemExit):
        main(["3", "--seconds", "0"])
