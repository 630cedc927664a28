"""Replicated logs in a storm: what is acknowledged stays, and no read is stale."""

from collections import Counter
from pathlib import Path
from typing import Any, Final

import pytest

from dodona_replication.core.owner import Owner
from dodona_replication.core.owner_effects import OwnerLimits
from dodona_replication.core.take_over import TakeOver
from dodona_wire.messages.replicas import LogFenced
from dodona_wire.types import Now
from simulator import logs
from simulator.acknowledged import Truth
from simulator.logs import KINDS, changes, main, run_seed
from simulator.pool import Failed
from simulator.replicated_log import ReplicatedLogRun
from suite.levels import some

SEEDS: Final = range(50)
SEEDS_TO_CATCH_MAX: Final = 12


def test_no_storm_breaks_a_promise() -> None:
    counts: Counter[str] = Counter()
    changed: Counter[str] = Counter()
    seeds = [*some(SEEDS, one_in=13)]
    for seed in seeds:
        run = ReplicatedLogRun(seed)
        truth = run.run()
        assert truth.faults == [], seed
        counts.update(truth.counts)
        changed.update(changes(run))
    assert counts["acknowledged"] > 100 * len(seeds)
    assert counts["reads"] > 100 * len(seeds)
    for name in ("take-over", "member dropped", "member added"):
        assert changed[name] >= len(seeds) // 2, name
    assert changed["release"] >= len(seeds) // 4, "a third of the runs has none"


@pytest.mark.slow("many seeds")
@pytest.mark.parametrize("first", range(1_000, 1_200, 50))
def test_no_storm_of_many_breaks_a_promise(first: int) -> None:
    for seed in range(first, first + 50):
        assert ReplicatedLogRun(seed).run().faults == [], seed


def test_without_leases_no_storm_breaks_a_promise() -> None:
    """R22: each read waits until all replicas have answered a later request."""
    reads = 0
    for seed in some(range(2_000, 2_060), one_in=30):
        truth = ReplicatedLogRun(seed, limits=OwnerLimits(lease_ms=0)).run()
        assert truth.faults == [], seed
        reads += truth.counts["reads"]
    assert reads > 100


# ---- the command


@pytest.mark.part("the command runs with processes")
def test_the_command_writes_what_was_run_into_the_document(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "page.md"
    page.write_text("before\n<!-- logs: begin -->\n<!-- logs: end -->\nbehind\n")
    assert main(["3:6", "--jobs", "1", "--markdown", str(page)]) == 0
    text = page.read_text()
    assert text.startswith("before\n")
    assert text.endswith("behind\n")
    assert "python -m simulator.logs 3:6 --jobs 1" in text
    assert all(f"| {it} | 1 |" in text for it in KINDS)
    assert "| broken promises | 0 |" in text
    assert "| broken promises | 0 |" in capsys.readouterr().out


def test_the_command_names_each_broken_promise_with_its_seed(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    outcome = run_seed(3)
    broken = outcome._replace(faults=["node-0 reads too little"])
    answers = [(3, broken), (4, Failed("it ended"))]
    monkeypatch.setattr(logs, "work_off", lambda *_: iter(answers))
    assert main(["3:5"]) == 1
    said = capsys.readouterr().out
    assert "| broken promises | 2 |" in said
    assert "seed 3, take-overs at any time: node-0 reads too little" in said
    assert "seed 4: it ended" in said


# ---- planted bugs


class ByMajority(Owner):
    """R12: a majority of the replicas is not enough."""

    def _advance(self, now: Now) -> None:
        counted = [self._copies[it].stored_index for it in self.ownership.counted]
        index = sorted(counted)[(len(counted) - 1) // 2]
        if index >= self.opening_index and index > self.acknowledged_index:
            self.acknowledged_index = index
            self._recent.acknowledge(index)
            self._tell(now)


class WithoutLease(Owner):
    """R18: the owner reads for as long as it has not heard of another one."""

    def may_read(self, now: Now) -> bool:
        return self.is_open(now)


class AnyAnswer(Owner):
    """R22: without a lease, answers to requests of before the read count, too."""

    def may_read_since(self, since_us: int, now: Now) -> bool:
        return self.is_open(now) and self._answered_us() >= 0


class WithoutOpening(Owner):
    """R11: the owner serves what it has recovered, although other members may lack it."""

    def __init__(self, taken: TakeOver, opening: bytes, now: Now) -> None:
        super().__init__(taken, opening, now)
        self.acknowledged_index = self.opening_index
        self._tell(now)


class WithoutWait(TakeOver):
    """R21: the lease of the owner before may still last."""

    def _take_fence(self, replica: str, found: LogFenced, now: Now) -> None:
        super()._take_fence(replica, found, now)
        if self.serve_from_us is not None:
            self.serve_from_us = now.instant_us


class DroppedTooEarly(Owner):
    """R13: what a change is to drop does not count any more, although the change may fail."""

    def _advance(self, now: Now) -> None:
        pending = self.ownership.pending
        document = self.document if pending is None else pending.document
        index = min(self._copies[it].stored_index for it in document.members)
        if index >= self.opening_index and index > self.acknowledged_index:
            self.acknowledged_index = index
            self._recent.acknowledge(index)
            self._tell(now)


class LearnerTooEarly(Owner):
    """R15: a learner joins before it has what is acknowledged."""

    def _learn(self, now: Now) -> None:
        learner = self._learner
        is_idle = self.ownership.pending is None and not self.is_ended and not self.is_releasing
        if is_idle and learner is not None and self._copies[learner].is_aligned:
            self._compare(self.document.with_members([*self.ownership.members, learner]))
        else:
            super()._learn(now)


BUGS: Final[dict[str, dict[str, Any]]] = {
    **{it.__name__: {"make_owner": it} for it in (ByMajority, WithoutLease, WithoutOpening)},
    **{it.__name__: {"make_owner": it} for it in (DroppedTooEarly, LearnerTooEarly)},
    "WithoutWait": {"make_take_over": WithoutWait},
    "AnyAnswer": {"make_owner": AnyAnswer, "limits": OwnerLimits(lease_ms=0)},
}


@pytest.mark.parametrize("name", BUGS)
def test_a_planted_bug_is_caught(name: str) -> None:
    for seed in range(SEEDS_TO_CATCH_MAX):
        if caught(seed, **BUGS[name]).faults:
            return
    pytest.fail(f"{name} shows in none of {SEEDS_TO_CATCH_MAX} seeds")


def caught(seed: int, **made: Any) -> Truth:
    return ReplicatedLogRun(seed, **made).run()
