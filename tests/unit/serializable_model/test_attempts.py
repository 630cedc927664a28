"""New attempts of refused transactions keep the promises, and each planted bug is found."""

from collections.abc import Callable, Iterator

import pytest

from replication_model.explorer import explore
from replication_model.step import Step
from serializable_model import planted_again
from serializable_model.attempts import (
    AGAIN,
    LARGE_AGAIN,
    again,
    counters,
    overtaken,
    plain,
    prepared_apart,
)
from serializable_model.cases import A, C, key, puts
from serializable_model.cells import LOSE, STAY
from serializable_model.endings import unsettled
from serializable_model.model import SerializableModel
from serializable_model.planted import PastPrepared, PlantedBug
from serializable_model.planted_again import AGAIN_BUGS
from serializable_model.promises import History, Outcome, not_once, not_snapshot, waiting
from serializable_model.rules import Rules
from serializable_model.state import (
    ABORT,
    COMMITTED,
    NONE,
    PREPARED,
    REFUSED,
    UNDECIDED,
    Case,
    Client,
    Record,
    State,
)
from suite.levels import share

Looked = Callable[[SerializableModel, State], bool]


def title_of(it: Case | PlantedBug) -> str:
    return it.title


def _large(case: Case) -> object:
    return pytest.param(case, id=case.title, marks=pytest.mark.slow("looks at some 50,000 states"))


@pytest.mark.parametrize("case", [*share(AGAIN, one_in=3), *map(_large, LARGE_AGAIN)], ids=title_of)
def test_new_attempts_keep_the_promises_in_each_state(case: Case) -> None:
    found = explore(SerializableModel(case))
    assert (found.violation, found.trace) == (None, ())
    assert found.is_complete


@pytest.mark.parametrize("bug", AGAIN_BUGS, ids=title_of)
def test_a_planted_bug_is_found(bug: PlantedBug) -> None:
    found = explore(bug.make())
    assert found.violation is not None, "the search sees nothing"
    assert found.violation.startswith(bug.promise)


def test_each_bug_is_searched_in_a_configuration_without_one() -> None:
    for case in {bug.case for bug in AGAIN_BUGS} - {*AGAIN, *LARGE_AGAIN}:
        assert explore(SerializableModel(case)).violation is None, case.title


def test_each_bug_of_the_rules_is_planted() -> None:
    kinds = vars(planted_again).values()
    bugs = {it for it in kinds if isinstance(it, type) and issubclass(it, Rules)}
    assert {bug.rules for bug in AGAIN_BUGS} == bugs - {Rules} | {PastPrepared}


@pytest.mark.parametrize("case", share([overtaken(), prepared_apart()], one_in=2), ids=title_of)
def test_dead_clients_keep_nothing_for_ever(case: Case) -> None:
    assert unsettled(SerializableModel(case)) is None


# ---- the searches see something


class _Until:
    """The same model, which calls a state that is looked for a violation."""

    def __init__(self, case: Case, is_looked_for: Looked) -> None:
        self._model = SerializableModel(case)
        self.title = case.title
        self.first: Callable[[], State] = self._model.first
        self.steps: Callable[[State], Iterator[Step[State]]] = self._model.steps
        self.pack: Callable[[State], State] = self._model.pack
        self.unpack: Callable[[State], State] = self._model.unpack
        self._is_looked_for = is_looked_for

    def violation(self, state: State) -> str | None:
        return "found" if self._is_looked_for(self._model, state) else None


def _can_be(case: Case, is_looked_for: Looked) -> bool:
    return explore(_Until(case, is_looked_for)).violation == "found"


def _begins(at: int) -> Looked:
    return lambda _, state: state.clients[at].start > 0


def _commits(*attempts: int) -> Looked:
    return lambda _, state: all(state.clients[at].decided > UNDECIDED for at in attempts)


@pytest.mark.parametrize("case", AGAIN, ids=title_of)
def test_each_new_attempt_can_begin(case: Case) -> None:
    """A search in which no transaction is sent again would keep all promises."""
    for at, txn in enumerate(case.txns):
        assert txn.again_of is None or _can_be(case, _begins(at))


def test_a_new_attempt_commits_if_only_a_write_was_overtaken() -> None:
    assert _can_be(overtaken(), _commits(1, 2))


def test_a_lost_update_is_refused_again() -> None:
    """T3 has read a row that T0 changes. So it commits if T0 does not, and only then."""
    assert not _can_be(counters(), _commits(0, 3))
    assert _can_be(counters(), _commits(3))


def test_a_new_attempt_waits_for_the_first_one() -> None:
    """Cell 0 has prepared the first attempt before the new one began."""

    def waits(model: SerializableModel, state: State) -> bool:
        first, start = state.records[0][0], state.clients[2].start
        is_there = start > 0 and first.phase == PREPARED and first.at < start
        return is_there and model.meeting(state, 2, 0) == STAY

    assert _can_be(prepared_apart(), waits)


def test_a_new_attempt_may_be_refused_by_the_first_one() -> None:
    """Cell 0 has prepared the first attempt after the new one began. Only an abort can end it."""

    def is_refused(model: SerializableModel, state: State) -> bool:
        first, start = state.records[0][0], state.clients[2].start
        is_late = start > 0 and first.phase == PREPARED and first.at > start
        is_new = state.records[2][0].phase == NONE
        return is_late and is_new and model.meeting(state, 2, 0) == LOSE

    assert _can_be(prepared_apart(), is_refused)


def test_a_late_copy_of_the_first_attempt_may_be_prepared_after_the_new_one_committed() -> None:
    """Recovery then aborts it. So `test_new_attempts_keep_the_promises_in_each_state` shows that
    such a copy does no harm."""

    def is_late(_: SerializableModel, state: State) -> bool:
        decided = state.clients[2].decided
        copies = [it for it in state.records[0] if it.phase == PREPARED]
        return decided > UNDECIDED and any(it.at > decided for it in copies)

    assert _can_be(overtaken(), is_late)


# ---- the promises, on histories that are made by hand

TWICE = again("by hand", plain(key(A), writes=puts(A)), plain(writes=puts(A, C)))


@pytest.mark.parametrize(
    ("committed", "broken"),
    [
        (1, None),
        (3, "SNAPSHOT: T2 has read a too early, before T1"),
        (5, "SNAPSHOT: T2 overwrites a of T1"),
    ],
)
def test_a_snapshot_is_that_of_the_new_start(committed: int, broken: str | None) -> None:
    """T2 has read at 2, is sent again at 4, and commits at 6."""
    history = History((Outcome(1, 0, committed, 0), Outcome(2, 4, 6, 0, since=2)))
    assert not_snapshot(TWICE, history) == broken


def state_of(*attempts: tuple[Client, Record]) -> State:
    records = tuple((record, Record()) for _, record in attempts)
    return State(9, (0, 0), records, tuple(client for client, _ in attempts))


def test_two_attempts_that_commit_are_seen() -> None:
    other = (Client(2, decided=ABORT), Record(REFUSED))
    reported = (Client(3, decided=5, since=1), Record(PREPARED, 5))
    twice = state_of((Client(1, decided=ABORT), Record(COMMITTED, 4)), other, reported)
    assert not_once(TWICE, twice) == "ONCE: T0 is committed, and also as T2"
    once = state_of((Client(1, decided=ABORT), Record(PREPARED, 4)), other, reported)
    assert not_once(TWICE, once) is None


def test_a_new_attempt_that_never_began_is_not_awaited() -> None:
    ended = (Client(1, decided=5), Record(COMMITTED, 5))
    assert waiting(state_of(ended, ended, (Client(), Record()))) is None
