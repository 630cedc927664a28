"""Scenarios on a database in memory: what is honest passes, and a lie of each kind is found."""

from random import Random
from typing import Any, Final

import pytest

from dodona_loadtest.checkers.violation import Promise
from dodona_loadtest.histories.rest_session import RestCall, RestSession
from dodona_loadtest.scenarios import SCENARIOS
from dodona_loadtest.scenarios.parameters import Option, Parameters, options
from dodona_loadtest.scenarios.smallbank import PENALTY, SmallBank
from unit.loadtest.model_rows import Lies, Model, ModelGateway, ModelSession, Trial

PARAMETERS: Final = Parameters(
    rows=24, keys_per_read=3, scan_rows_max=6, hot_rows=2, field_count=2, hotspot_accounts=4
)
LIES: Final[list[tuple[str, Lies, set[Promise]]]] = [
    ("timestamps", Lies(repeats_timestamps=True), {"UNIQUE", "MONOTONIC"}),
    ("row_commits", Lies(loses_writes=True), {"DURABILITY"}),
    ("cross_cell_commits", Lies(loses_writes=True), {"ATOMICITY"}),
    ("row_commits", Lies(doubles_writes=True), {"GHOST"}),
    ("cross_cell_commits", Lies(refuses_all=True), {"FALSE-CONFLICT"}),
    ("cross_cell_commits", Lies(misses_conflicts=True), {"NOCONFLICT"}),
    ("non_atomic", Lies(reads_old=True), {"LATEST"}),
    ("non_atomic", Lies(loses_writes=True), {"HOLE"}),
    ("hot_rows", Lies(misses_conflicts=True), {"NOCONFLICT", "INVARIANT"}),
    ("hot_rows", Lies(reads_old=True), {"LATEST", "EXT"}),
    ("snapshot_reads", Lies(reads_new=True), {"EXT"}),
    ("scans", Lies(hides_rows=True), {"EXT"}),
    ("ycsb_a", Lies(reads_old=True), {"LATEST"}),
    ("ycsb_b", Lies(loses_writes=True), {"DURABILITY"}),
    ("ycsb_c", Lies(reads_old=True), {"LATEST"}),
    ("ycsb_d", Lies(reads_old=True), {"LATEST"}),
    ("ycsb_e", Lies(hides_rows=True), {"EXT"}),
    ("ycsb_f", Lies(misses_conflicts=True), {"NOCONFLICT"}),
    ("smallbank", Lies(misses_conflicts=True), {"NOCONFLICT", "INVARIANT"}),
    ("smallbank", Lies(doubles_writes=True), {"GHOST"}),
    ("smallbank", Lies(loses_writes=True), {"ATOMICITY", "INVARIANT"}),
]


def trial_of(name: str, seed: int = 1, lies: Lies | None = None) -> Trial:
    scenario = SCENARIOS[name](Random(seed), PARAMETERS)
    model = Model({table.path: table for table in scenario.tables}, lies or Lies())
    return Trial(scenario, model, seed)


@pytest.mark.parametrize("name", sorted(SCENARIOS))
@pytest.mark.parametrize("seed", [1, 2])
def test_an_honest_database_breaks_no_promise(name: str, seed: int) -> None:
    trial = trial_of(name, seed)
    trial.run(ModelSession, sessions=5, turns=1_500)
    assert trial.judge() == []
    assert trial.history.record_count > 200


@pytest.mark.parametrize(("name", "lies", "promises"), LIES)
def test_a_lie_is_found(name: str, lies: Lies, promises: set[Promise]) -> None:
    trial = trial_of(name, lies=lies)
    trial.run(ModelSession, sessions=5, turns=1_500)
    found = {violation.promise for violation in trial.judge()}
    assert promises <= found


@pytest.mark.parametrize("name", sorted(set(SCENARIOS) - {"timestamps", "ycsb_c"}))
def test_a_database_that_refuses_every_write_is_found(name: str) -> None:
    """It breaks no promise that checkers know of: nothing acknowledged is lost."""
    trial = trial_of(name, lies=Lies(refuses_all=True))
    trial.run(ModelSession, sessions=5, turns=6_000)
    broken = [it.text for it in trial.tally.judge({}, 1.0) if not it.is_kept]
    assert broken
    assert all("was acknowledged" in text for text in broken)


@pytest.mark.parametrize("name", sorted(SCENARIOS))
def test_of_an_honest_database_something_of_each_kind_is_acknowledged(name: str) -> None:
    trial = trial_of(name)
    trial.run(ModelSession, sessions=5, turns=2_000)
    assert trial.tally.operations
    assert trial.tally.judge({}, 1.0) == []


def test_every_scenario_is_lied_to() -> None:
    assert {name for name, _, _ in LIES} == set(SCENARIOS)


@pytest.mark.parametrize("name", sorted(SCENARIOS))
def test_each_scenario_passes_over_rest_despite_lost_messages(name: str) -> None:
    """With answers that get lost on either way, of which no caller may be sure."""
    trial = trial_of(name)
    gateway, random = ModelGateway(trial.model), Random(7)

    def lose(call: RestCall) -> str:
        assert call.path.startswith("/v1/")
        return random.choice(("request", "answer")) if random.random() < 0.1 else ""

    gateway.loses = lose
    trial.run(lambda _: RestSession(gateway, trial._tick), sessions=3, turns=400)
    assert trial.judge() == []
    assert trial.history.record_count > 200
    labels = {call.label for call in gateway.calls}
    assert not any(character.isdigit() for label in labels for character in label[3:])


def test_a_gateway_keeps_no_transaction_that_was_left_behind() -> None:
    trial = trial_of("smallbank")
    gateway = ModelGateway(trial.model)
    trial.run(lambda _: RestSession(gateway, trial._tick), sessions=3, turns=400)
    left = [call for call in gateway.calls if call.path.endswith("/abort")]
    assert len(left) > 3  # payments that were declined
    assert gateway.open_count <= 3


def test_a_lie_over_rest_is_found() -> None:
    trial = trial_of("smallbank", lies=Lies(reads_old=True))
    gateway = ModelGateway(trial.model)
    trial.run(lambda _: RestSession(gateway, trial._tick), sessions=3, turns=400)
    assert {"EXT", "INVARIANT"} <= {violation.promise for violation in trial.judge()}


# ---- SmallBank


def bank_after(turns: int) -> tuple[SmallBank, Trial]:
    trial = trial_of("smallbank")
    trial.run(ModelSession, sessions=8, turns=turns)
    assert trial.judge() == []
    assert isinstance(trial.workload, SmallBank)
    return trial.workload, trial


def test_smallbank_runs_its_transactions_and_counts_write_skews() -> None:
    bank, trial = bank_after(20_000)
    assert set(bank.operations) >= {"Balance", "DepositChecking", "TransactSavings"}
    assert sum(share for share, _ in bank.operations.values()) == pytest.approx(1)
    # A check that is covered by the savings which somebody takes away meanwhile is legal.
    assert bank.counts["write skews, which are legal"] > 0
    penalties = [
        t for t, (_, amount, _) in bank._checks.items() if bank._paid[t] == -amount - PENALTY
    ]
    assert penalties
    assert len(trial.history.transactions) > 2_000


def test_the_hotspot_is_as_hot_as_asked_for() -> None:
    bank = SmallBank(Random(1), PARAMETERS)
    random = Random(1)
    drawn = [bank.draw_key(random)["id"] for _ in range(10_000)]
    share = sum(number < PARAMETERS.hotspot_accounts for number in drawn) / len(drawn)
    expected = 0.9 + 0.1 * PARAMETERS.hotspot_accounts / PARAMETERS.rows
    assert share == pytest.approx(expected, abs=0.01)


# ---- parameters


class Noted:
    """Parameters, and which of them somebody looked at."""

    def __init__(self) -> None:
        self.seen: set[str] = set()

    def __getattr__(self, name: str) -> Any:
        self.seen.add(name)
        return getattr(PARAMETERS, name)

    def reads(self, usual: float) -> float:
        self.seen.add("read_share")
        return PARAMETERS.reads(usual)


@pytest.mark.parametrize("name", sorted(SCENARIOS))
def test_a_scenario_reads_exactly_the_options_that_are_listed_for_it(name: str) -> None:
    noted: Any = Noted()
    scenario = SCENARIOS[name](Random(1), noted)
    trial = Trial(scenario, Model({table.path: table for table in scenario.tables}))
    trial.run(ModelSession, sessions=3, turns=1_500)
    said = {option.name for option in options() if option.about.is_of(name)}
    assert said == noted.seen & {option.name for option in options()}


@pytest.mark.parametrize("option", list(options()), ids=lambda option: str(option.name))
def test_a_parameter_out_of_bounds_is_refused_by_name(option: Option) -> None:
    lowest, highest = option.about.lowest, option.about.highest
    wrong: list[Any] = ["nonsense"]
    if not option.choices:
        assert lowest is not None
        assert highest is not None
        wrong = [lowest - 1, highest + 1]
    for value in wrong:
        with pytest.raises(ValueError, match=option.flag):
            Parameters(**{option.name: value})
