"""Processes that wait for the silence of an owner: one goes on soon, and none disturbs it."""

import pytest

from simulator.replica_host import LOG
from simulator.replicated_log import Process, ReplicatedLogRun
from simulator.standby import owner_of, seconds_until_another, standby_run
from suite.levels import some

SECONDS_MAX = 2.0
"""Silence 0.7 s, lease 0.76 s, and what the steps take, which is virtual."""


def opened(seed: int, replica_count: int = 3) -> tuple[ReplicatedLogRun, Process]:
    run = standby_run(seed, replica_count=replica_count)
    run.release_rate = 0.0
    run.world.run_until(3_000_000)
    owner = owner_of(run)
    assert owner is not None
    return run, owner


def epoch_of(run: ReplicatedLogRun) -> int:
    newest = run.etcd.newest(LOG)
    assert newest is not None
    return newest.document.epoch


def test_nobody_takes_a_log_from_an_owner_that_replicas_hear() -> None:
    for seed in some(range(8), one_in=8):
        run, owner = opened(seed)
        run.world.run_until(12_000_000)
        assert (owner_of(run), epoch_of(run)) == (owner, 1), seed


@pytest.mark.parametrize("how", ["pause", "lose a replica and pause", "away from two replicas"])
def test_another_process_goes_on_soon(how: str) -> None:
    for seed in some(range(12), one_in=12):
        run, owner = opened(seed)
        newest = run.etcd.newest(LOG)
        assert newest is not None
        members = newest.document.members
        if how != "away from two replicas":
            owner.pause(30_000_000)
        if how == "lose a replica and pause":
            run.replicas[members[0]].is_lost = True
        if how == "away from two replicas":
            for replica in members[:2]:
                run.network.cut(owner.name, replica)
        assert seconds_until_another(run, owner, 1) < SECONDS_MAX, seed
        assert run.truth.faults == []


def test_one_replica_that_does_not_hear_the_owner_changes_no_owner() -> None:
    """The owner drops it, and goes on."""
    for seed in some(range(8), one_in=8):
        run, owner = opened(seed)
        newest = run.etcd.newest(LOG)
        assert newest is not None
        lost = newest.document.members[0]
        run.network.cut(owner.name, lost)
        run.world.run_until(9_000_000)
        assert (owner_of(run), epoch_of(run)) == (owner, 1), seed
        newest = run.etcd.newest(LOG)
        assert newest is not None
        assert lost not in newest.document.members


def test_while_etcd_has_no_leader_nothing_changes_hands() -> None:
    run, owner = opened(1)
    run.etcd.lose_leader(5_000_000)
    owner.pause(60_000_000)
    run.world.run_until(run.world.now_us + 4_500_000)
    assert epoch_of(run) == 1
    assert seconds_until_another(run, owner, 1) < 3.0


def test_a_process_that_starts_again_has_its_log_back_without_a_wait() -> None:
    """It knows the owner of before: its own last process."""
    run, owner = opened(2)
    owner.crash()
    began_us = run.world.now_us
    while owner_of(run) is not owner:
        run.world.run_until(run.world.now_us + 1_000)
    assert run.world.now_us - began_us < 1_000_000, "the wait for the lease, and no silence"


def test_no_storm_breaks_a_promise_and_the_log_is_owned_afterwards() -> None:
    for seed in some(range(26), one_in=13):
        truth = standby_run(seed).run()
        assert truth.faults == [], seed


@pytest.mark.slow("many seeds")
@pytest.mark.parametrize("first", range(3_000, 3_100, 25))
def test_no_storm_of_many_breaks_a_promise(first: int) -> None:
    for seed in range(first, first + 25):
        assert standby_run(seed).run().faults == [], seed
