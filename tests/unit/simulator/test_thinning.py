"""Leaving out some of what goes wrong in a run."""

from dataclasses import replace

import pytest

from simulator.faults import LINK_FAULTS, Fault
from simulator.simulation import Result, options_of, simulate
from simulator.summary import scheduled_of
from simulator.thinning import Thinning, parse_keep, value_of, wild_names

SEED, SECONDS = 5, 20
OPTIONS = options_of(SEED, SECONDS)
WILD = replace(
    OPTIONS,
    moves_rate=0.3,
    master_clock_rate=0.0,
    remount_us_mean=5,
    network=replace(OPTIONS.network, loss_rate=0.1),
)


def test_fault_rates_are_found_by_their_types_and_can_all_be_left_out() -> None:
    names = wild_names(WILD)
    for name in ("moves_rate", "master_clock_rate", "remount_us_mean", "network.loss_rate"):
        assert name in names
    calm = Thinning(without=tuple(names)).thin(WILD)
    assert wild_names(calm) == []
    assert value_of(calm, "master_clock_rate") == 1.0
    assert value_of(calm, "network.loss_rate") == 0.0
    assert calm.call_timeout_us == WILD.call_timeout_us
    assert calm.network.delay_us_mean == WILD.network.delay_us_mean


def test_faults_are_kept_by_their_numbers() -> None:
    faults = tuple(Fault(at_us, "pause", "master", 1) for at_us in range(5))
    options = replace(OPTIONS, faults=faults)
    assert Thinning().thin(options) == options
    assert Thinning(keep=(1, 3)).thin(options).faults == (faults[1], faults[3])
    assert Thinning(keep=()).thin(options).faults == ()


@pytest.mark.parametrize(
    "thinning",
    [
        Thinning(keep=(len(OPTIONS.faults),)),
        Thinning(without=("network.colour",)),
        Thinning(without=("call_timeout_us",)),
        Thinning(without=("network",)),
    ],
)
def test_a_fault_or_rate_that_a_run_does_not_have_cannot_be_selected(thinning: Thinning) -> None:
    with pytest.raises(ValueError, match="--"):
        thinning.thin(OPTIONS)


def test_a_thinning_is_written_as_command_line_arguments() -> None:
    assert Thinning().arguments == ""
    thinning = Thinning((3, 17), ("moves_rate", "network.loss_rate"), until_s=7, session_count=2)
    words = "--keep 3,17 --without moves_rate,network.loss_rate --until 7 --sessions 2"
    assert thinning.arguments == words
    assert parse_keep("3,17") == (3, 17)
    assert Thinning(keep=()).arguments == "--keep none"
    assert parse_keep("none") == ()


def scheduled_count(result: Result) -> int:
    return sum(scheduled_of(result.fault_counts).values())


def test_a_thinned_run_has_only_the_remaining_faults() -> None:
    full = simulate(SEED, SECONDS)
    sure = [at for at, fault in enumerate(OPTIONS.faults) if fault.kind in LINK_FAULTS]
    thinning = Thinning(keep=tuple(sure[:2]), without=tuple(wild_names(OPTIONS)), session_count=2)
    thin = simulate(SEED, SECONDS, thinning=thinning)
    assert scheduled_count(full) > 2
    assert scheduled_count(thin) == 2
    assert thin.counts["sessions killed"] == 0
    assert thin.command.endswith(thinning.arguments)
    assert thin.digest == simulate(SEED, SECONDS, thinning=thinning).digest


def test_a_thinned_run_can_end_before_its_last_fault() -> None:
    short = simulate(SEED, SECONDS, thinning=Thinning(until_s=5))
    due = [fault for fault in OPTIONS.faults if fault.at_us <= 5_000_000]
    assert 0 < scheduled_count(short) <= len(due) < len(OPTIONS.faults)
    assert short.seconds == SECONDS, "they are drawn for as long as ever"
