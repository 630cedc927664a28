"""The design keeps its promises in every state of each configuration, and the page says how many
states those are."""

from typing import Final

import pytest

from replication_model.bounds import Bounds
from replication_model.configurations import CONFIGURATIONS, SIZES, Configuration
from replication_model.explorer import explore
from replication_model.log_model import LogModel
from replication_model.report import configuration_row
from unit.replication_model.page import configuration_rows

SHOWN: Final = (
    "3 replicas, reads without a lease",
    "2 replicas and a spare, planned moves",
)
"""Changes of the set, reads and releases, in less than a second."""
PAGE_COMMAND: Final = "python -m replication_model --markdown docs/explanation/replication.md"


def case_of(configuration: Configuration) -> object:
    is_shown = configuration.title in SHOWN
    marks = [] if is_shown else [pytest.mark.slow("looks at many states")]
    return pytest.param(configuration, id=configuration.title, marks=marks)


@pytest.mark.parametrize(
    "configuration", [case_of(it) for it in CONFIGURATIONS if it.size != "huge"]
)
def test_the_design_keeps_its_promises_in_each_state(configuration: Configuration) -> None:
    found = explore(configuration.make())
    assert (found.violation, found.trace) == (None, ())
    assert found.is_complete
    # All but the seconds, which differ between machines.
    assert (
        configuration_rows()[configuration.title][:-1]
        == (configuration_row(found, configuration.title)[:-1])
    ), PAGE_COMMAND


def test_the_page_has_each_configuration() -> None:
    titles = [it.title for it in CONFIGURATIONS]
    assert len(set(titles)) == len(titles)
    assert {it.size for it in CONFIGURATIONS} == set(SIZES)
    assert [*configuration_rows()] == titles, PAGE_COMMAND


SMALLEST: Final = Bounds("2 replicas", replica_count=2, member_count=2, may_change_set=False)
CUTTING: Final = Bounds(
    "1 replica and a spare, the log is cut",
    replica_count=2,
    member_count=1,
    member_count_max=2,
    copies_min=1,
    may_cut=True,
)
SPLITTING: Final = Bounds(
    "2 replicas, compares in two steps",
    replica_count=2,
    member_count=2,
    copies_min=1,
    splits_compares=True,
)
BASIC: Final = {
    "a process takes over: epoch {}",
    "epoch {} fences {}",
    "epoch {} takes the log {}",
    "epoch {}: the next entry reaches {}",
    "epoch {} aligns {}",
    "epoch {} acknowledges {}",
    "epoch {} writes",
    "a tick passes",
}
SETS: Final = {
    "epoch {} drops {} from the set",
    "epoch {} adds {} to the set",
    "epoch {} learns that its set has changed",
}


@pytest.mark.parametrize(
    ("bounds", "more"),
    [
        (SMALLEST, set()),
        (
            CUTTING,
            {
                *SETS,
                "epoch {} cuts its log: {}",
                "a replica cuts its log: {}",
                "epoch {} begins the log {} anew",
            },
        ),
        (SPLITTING, {"the set of epoch {} changes", *SETS}),
    ],
    ids=["basic", "cutting", "two steps"],
)
def test_a_search_meets_every_kind_of_step(bounds: Bounds, more: set[str]) -> None:
    """A promise about something that never happens says nothing."""
    found = explore(LogModel(bounds))
    assert found.is_complete
    assert found.counts_by_action.keys() == BASIC | more


def test_a_learner_behind_the_cut_joins_once_it_has_the_checkpoint() -> None:
    model = LogModel(CUTTING)
    state = model.first()
    for text in (
        "epoch 1 writes",
        "epoch 1: the next entry reaches [o1]",
        "epoch 1 acknowledges [o1 1a]",
        "epoch 1 cuts its log: [. 1a]",
        "epoch 1 fences []",
        "epoch 1 begins the log [] anew",
        "epoch 1: the next entry reaches [.]",
        "epoch 1 adds [. 1a] to the set",
    ):
        steps = [*model.steps(state)]
        assert not [it for it in steps if it.text == "epoch 1 adds [.] to the set"]
        (state,) = [it.state for it in steps if it.text == text]


def test_a_search_with_a_limit_is_not_complete() -> None:
    found = explore(LogModel(SMALLEST), states_max=100)
    assert not found.is_complete
    assert found.state_count >= 100
