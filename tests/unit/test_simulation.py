"""The production cores in the simulator: many seeds without a violation, planted bugs with one.

Each seed is a whole cluster under faults of its own (see `simulator.faults`). All seeds run once,
side by side, before the first test that asks about them. A failure names the command that replays
it. More seeds: `python -m simulator --seeds FIRST:END`.
"""

import os
import subprocess
import sys
from typing import Any, get_args

import pytest
from rich.console import Console

from dodona._core.batcher import Batcher
from dodona._core.context import Acknowledgement, Context
from dodona._core.effects import Effect, ReplyAtOnce, ReplyTo, Route
from dodona._core.messages import Aborted, AskOutcome, Decide, Failure, Reply
from dodona._core.reserve import Reserve
from dodona._core.steps import Calls, Protocol
from dodona.schema import TableSchema
from dodona.types import MAX_TIMESTAMP, CellId, Key, Timestamp, TransactionId
from dodona_loadtest.checkers.violation import Promise
from dodona_loadtest.workloads import WORKLOADS
from dodona_tablets.core.locks import check_row
from dodona_tablets.core.node import NodeCore
from dodona_tablets.core.participant import Participant
from dodona_tablets.core.row import Row
from dodona_tablets.core.transaction import Transaction
from simulator import report
from simulator.__main__ import main
from simulator.runner import AGAIN_RATE, ELSEWHERE_COUNT, Work, run_seeds
from simulator.servers import CoreFactory
from simulator.simulation import simulate
from simulator.summary import SCHEDULED_KINDS, Summary

SEEDS = 500
SECONDS = 60
BATCH_SECONDS_MAX = 3_600
"""For all seeds. They take minutes; slow machines and debuggers take longer."""
SCHEDULED_FAULTS_MIN = 10_000

PLANTED_SECONDS = 25
PLANTED_SEEDS_MAX = 30

of_the_batch = pytest.mark.timeout(BATCH_SECONDS_MAX)


@pytest.fixture(scope="session")
def batch() -> Summary:
    """What all seeds came to. Whoever asks for it may be the one who waits for it."""
    summary = run_seeds(range(SEEDS), Work(SECONDS), os.cpu_count() or 1)
    report.show(summary, Console(width=100))  # shown where a test fails, or on demand
    return summary


@of_the_batch
def test_no_seed_finds_a_violation(batch: Summary) -> None:
    found = [f"replay: {it.command}: {it.violations[0]}" for it in batch.failures]
    assert found == []
    assert batch.seed_count == SEEDS
    assert batch.virtual_seconds >= SEEDS * SECONDS


@of_the_batch
def test_one_seed_in_twenty_was_run_twice_and_some_of_them_elsewhere(batch: Summary) -> None:
    """A second history that differs is a violation."""
    assert batch.again_count >= SEEDS * AGAIN_RATE
    assert batch.again_elsewhere_count == ELSEWHERE_COUNT


@of_the_batch
def test_the_runs_contain_what_they_are_to_prove(batch: Summary) -> None:
    """Without conflicts, unsure outcomes and recoveries, a run without violations says little."""
    missed = [goal for goal in batch.goals if not goal.is_met and goal.name != "virtual time"]
    assert missed == [], "speed is said, and never judged here"
    assert batch.share("told unknown") > 0.005
    assert sum(batch.scheduled_faults.values()) >= SCHEDULED_FAULTS_MIN
    assert batch.counts["crashes"] > 0.25 * SCHEDULED_FAULTS_MIN
    assert batch.counts["snapshots"] > 20 * SEEDS
    assert batch.counts["blind"] > 20 * SEEDS
    for recovery in ("QueryStatus", "AskCoordinator", "AskOutcome", "CommitOne", "Prepare"):
        assert batch.messages[recovery] > SEEDS, recovery


@of_the_batch
def test_every_kind_of_fault_happens(batch: Summary) -> None:
    happened = {kind.split()[0] for kind in batch.scheduled_faults}
    assert happened == set(SCHEDULED_KINDS)
    assert set(batch.workloads) == set(WORKLOADS)
    assert set(batch.acknowledgements) == set(get_args(Acknowledgement))


@of_the_batch
def test_every_point_of_mischief_is_hit(batch: Summary) -> None:
    assert batch.points_never_hit == []


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


# Planted bugs: one for each layer, each caught within a few seeds


class AnswersTooEarly(NodeCore):
    """Does not wait for its log before it answers: breaks the one law."""

    def take_effects(self) -> list[Effect]:
        return [
            ReplyAtOnce(effect.route, effect.body) if isinstance(effect, ReplyTo) else effect
            for effect in super().take_effects()
        ]


def broken_promises(
    *wanted: str, make_core: CoreFactory = NodeCore, workload: str | None = None
) -> set[str]:
    """What the seeds show, up to the first one that shows one of the wanted kinds.

    A bug may first show as something else: which kind comes first depends on every detail.
    """
    promises: set[str] = set()
    for seed in range(PLANTED_SEEDS_MAX):
        outcome = simulate(seed, PLANTED_SECONDS, workload, make_core)
        promises |= {violation.promise for violation in outcome.violations}
        if promises & set(wanted):
            break
    return promises


def test_answers_before_the_log_is_durable_are_caught() -> None:
    wanted = ("DURABILITY", "ATOMICITY", "CRASH", "EXT")
    assert broken_promises(*wanted, make_core=AnswersTooEarly) & set(wanted)


def test_commits_without_a_conflict_check_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dodona_tablets.core.participant.check_row", lambda *_: None)
    assert broken_promises("NOCONFLICT", "CRASH") & {"NOCONFLICT", "CRASH"}


def test_readers_that_do_not_wait_for_prepared_rows_are_caught(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("dodona_tablets.core.snapshot.blocking_reader", lambda *_: None)
    assert "EXT" in broken_promises("EXT")


def test_a_client_that_takes_silence_for_an_abort_is_caught(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def ask_once(_: Context, cell: CellId, question: AskOutcome | Decide) -> Protocol[Reply]:
        (reply,) = yield Calls(((cell, question),))
        return Aborted(question.transaction) if isinstance(reply, Failure) else reply

    monkeypatch.setattr("dodona._core.committing.ask_until_answered", ask_once)
    assert "GHOST" in broken_promises("GHOST")


class HoardingBatcher(Batcher[Route]):
    """Asks for one timestamp more than it needs, and serves the next batch's first caller by it."""

    kept: Timestamp | None = None

    def next_batch_count(self) -> int | None:
        count = super().next_batch_count()
        return None if count is None else count + 1

    def split(self, first: Timestamp) -> list[tuple[Route, Timestamp, int]]:
        shares = super().split(Timestamp(first + 1))
        kept, self.kept = self.kept, first
        waiter, _, count = shares[0]
        if kept is not None and count == 1:
            shares[0] = (waiter, kept, count)
        return shares


def test_timestamps_kept_for_later_callers_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dodona_oracle.core.proxy.Batcher", HoardingBatcher)
    assert "MONOTONIC" in broken_promises("MONOTONIC")


# Planted bugs of blind writes


def copy_of(row: Row) -> Row:
    copy = Row()
    copy.versions, copy.holders = row.versions, row.holders
    copy.lock_times = row.lock_times
    return copy


def test_a_blind_write_that_does_not_wait_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    def check(
        row: Row, key: Key, schema: TableSchema, start: Timestamp, *masks: int
    ) -> Transaction | None:
        seen = copy_of(row)
        if start == MAX_TIMESTAMP:
            seen.holders = None
        return check_row(seen, key, schema, start, *masks)

    monkeypatch.setattr("dodona_tablets.core.participant.check_row", check)
    assert "NOCONFLICT" in broken_promises("NOCONFLICT", workload="blind")


def test_an_update_lost_to_a_blind_write_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a blind write committed stands in nobody's way."""
    is_blind: dict[int, bool] = {}
    commit = Participant.handle_timestamp

    def handle(participant: Participant, transaction: TransactionId, at: Timestamp) -> None:
        alive = participant._cell.transactions.get(transaction)
        is_blind[at] = alive is not None and alive.start == MAX_TIMESTAMP
        commit(participant, transaction, at)

    def check(row: Row, *asked: Any) -> Transaction | None:
        seen = copy_of(row)
        seen.versions = [version for version in row.versions if not is_blind.get(version[0])]
        return check_row(seen, *asked)

    monkeypatch.setattr(Participant, "handle_timestamp", handle)
    monkeypatch.setattr("dodona_tablets.core.participant.check_row", check)
    assert "NOCONFLICT" in broken_promises("NOCONFLICT", workload="blind")


class Repeating(Reserve):
    """Hands out every name twice."""

    last: TransactionId | None = None

    def take(self, instant_us: int) -> TransactionId | None:
        taken, self.last = self.last, None
        if taken is None:
            taken = self.last = super().take(instant_us)
        return taken


def test_names_given_out_twice_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dodona._core.context.Reserve", Repeating)
    assert {"UNIQUE", "DURABILITY"} <= broken_promises("DURABILITY", workload="blind")


def test_a_blind_write_committed_at_its_name_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """The name was issued long before: it is not the time of the commit."""
    commit = Participant.handle_timestamp

    def handle(participant: Participant, transaction: TransactionId, at: Timestamp) -> None:
        alive = participant._cell.transactions.get(transaction)
        is_blind = alive is not None and alive.start == MAX_TIMESTAMP
        commit(participant, transaction, Timestamp(transaction + 1) if is_blind else at)

    monkeypatch.setattr(Participant, "handle_timestamp", handle)
    assert "MONOTONIC" in broken_promises("MONOTONIC", workload="blind")


def test_a_blind_write_sent_again_under_another_name_is_caught(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Silence does not say that nothing came of it."""
    monkeypatch.setattr("dodona._core.committing.was_never_sent", lambda _: True)
    assert "GHOST" in broken_promises("GHOST", workload="blind")


# The command


def test_the_command_reports_a_clean_run(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["3", "--seconds", "2", "--workload", "bank"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "seed 3, workload bank, 2 s under faults"
    assert lines[-1] == "no violation"


def test_the_command_ends_with_the_violation(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dodona_tablets.core.snapshot.blocking_reader", lambda *_: None)
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
