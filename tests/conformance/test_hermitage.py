"""Martin Kleppmann's Hermitage: what snapshot isolation prevents and what it allows.

Owns: the cases, each as scripts of two or three transactions on the rows x = 10 and y = 20, run in
all interleavings of their steps. What is prevented must show in none of them. What is allowed must
show in some, and in none any more once the transactions lock the rows that they read, or once they
are serializable.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import pytest

from conformance.backends import Backend, Embedded, Simulated
from conformance.schedules import (
    APART,
    INITIAL,
    SCHEMA,
    Account,
    CommitStyle,
    Place,
    Run,
    Step,
    U,
    X,
    Y,
    Z,
    abort,
    at_once,
    begin,
    change_all,
    commit,
    delete_read,
    lock,
    read,
    read_where,
    values_read,
    write,
)
from conformance.tables import create_spread
from dodona.types import Atomicity, Isolation


@dataclass(frozen=True, slots=True)
class Case:
    """Scripts, and what about a run of theirs is the anomaly."""

    scripts: tuple[tuple[Step, ...], ...]
    is_anomaly: Callable[[Run], bool]
    is_short: bool = True
    """Whether each request of a commit can be a step: with many steps that is too much."""


# ---- places


@dataclass(frozen=True, slots=True)
class Setting:
    """Where the rows x and y are, and how finely commits are interleaved."""

    backend: str
    cell_count: int
    pivot_keys: list[list[Any]]
    style: CommitStyle = "whole"


class MakePlace(Protocol):
    def __call__(
        self, case: Case, atomicity: Atomicity = ..., isolation: Isolation | None = ...
    ) -> Place: ...


ONE: list[list[Any]] = [[]]
SETTINGS = {
    "embedded-one-tablet": Setting("embedded", 1, ONE),
    "embedded-two-tablets": Setting("embedded", 1, APART),
    "simulator-one-tablet": Setting("simulator", 1, ONE),
    "simulator-two-tablets": Setting("simulator", 1, APART),
    "simulator-two-cells": Setting("simulator", 2, APART),
    "simulator-two-cells-by-request": Setting("simulator", 2, APART, "requests"),
    "processes-two-cells": Setting("processes", 2, APART),
}


@pytest.fixture(
    params=[
        pytest.param(setting, id=name, marks=[pytest.mark.integration] * ("processes" in name))
        for name, setting in SETTINGS.items()
    ]
)
def setting(request: pytest.FixtureRequest) -> Setting:
    chosen: Setting = request.param
    return chosen


@pytest.fixture
def place_of(request: pytest.FixtureRequest, setting: Setting, new_path: str) -> MakePlace:
    def make(
        case: Case, atomicity: Atomicity = "full", isolation: Isolation | None = None
    ) -> Place:
        backend: Backend
        if setting.backend == "simulator":
            backend = Simulated(setting.cell_count)
        else:
            backend = request.getfixturevalue(setting.backend)
        options = {"atomicity": atomicity, "pivot_keys": setting.pivot_keys}
        create_spread(backend, new_path, SCHEMA, mount=True, **options)
        _check_cells(backend, new_path, setting.cell_count)
        is_too_long = setting.style == "requests" and not case.is_short
        style: CommitStyle = "phases" if is_too_long else setting.style
        return Place(backend, new_path, style, atomicity, isolation)

    return make


def _check_cells(backend: Backend, path: str, count: int) -> None:
    assert len({tablet.cell for tablet in backend.db.get_table(path).tablets}) == count
    assert isinstance(backend, Embedded) or backend.cell_count == count


# ---- prevented

G0_FINALS: list[dict[int, int]] = [INITIAL, {X: 11, Y: 21}, {X: 12, Y: 22}]
OTV_STATES: list[dict[int, int]] = [INITIAL, {X: 11, Y: 19}, {X: 12, Y: 18}]


def _sees_both_writes(run: Run) -> bool:
    first, second = run.transactions
    return 22 in values_read(first) and 11 in values_read(second)


def _sees_two_states(run: Run) -> bool:
    seen: dict[int, int] = {}
    for rows in run.transactions[-1].reads:
        seen.update(rows)
    return seen not in OTV_STATES


def _phantom_appears(run: Run) -> bool:
    before, after = run.transactions[0].reads
    return Z not in before and Z in after


def _deletes_the_wrong_row(run: Run) -> bool:
    return run.are_all_committed and run.final not in ({Y: 30}, {X: 20})


def _loses_an_update(run: Run) -> bool:
    return run.are_all_committed and run.final[X] != 12


def _reads_of_two_snapshots(run: Run) -> bool:
    x, y = run.transactions[0].reads
    return (x[X], y[Y]) in ((10, 18), (12, 20))


def _scans_of_two_snapshots(run: Run) -> bool:
    before, after = run.transactions[0].reads
    return X in before and X in after


def _deletes_what_it_did_not_see(run: Run) -> bool:
    return run.are_all_committed and run.transactions[0].reads[0] == {X: 10} and Y not in run.final


PREVENTED = {
    "G0-dirty-write": Case(
        (
            (begin, write({X: 11}), write({Y: 21}), commit),
            (begin, write({X: 12}), write({Y: 22}), commit),
        ),
        lambda run: run.final not in G0_FINALS,
    ),
    "G1a-aborted-read": Case(
        ((begin, write({X: 101}), abort), (begin, read(X), read(X))),
        lambda run: 101 in [*values_read(run.transactions[1]), run.final[X]],
    ),
    "G1b-intermediate-read": Case(
        (
            (begin, write({X: 101}), write({X: 11, Y: 21}), commit),
            (begin, read(X), read(X)),
        ),
        lambda run: 101 in [*values_read(run.transactions[1]), run.final[X]],
    ),
    "G1c-circular-information-flow": Case(
        (
            (begin, write({X: 11}), read(Y), commit),
            (begin, write({Y: 22}), read(X), commit),
        ),
        _sees_both_writes,
    ),
    "OTV-observed-transaction-vanishes": Case(
        (
            (write({X: 11, Y: 19}), commit),
            (write({X: 12, Y: 18}), commit),
            (read(X), read(Y)),
        ),
        _sees_two_states,
        is_short=False,
    ),
    "PMP-predicate-many-preceders": Case(
        (
            (begin, read_where(lambda it: it == 30), read_where(lambda it: it % 3 == 0)),
            (begin, write({Z: 30}), commit),
        ),
        _phantom_appears,
    ),
    "PMP-for-writes": Case(
        (
            (begin, read(X, Y), change_all(lambda it: it + 10), commit),
            (begin, read_where(lambda it: it == 20), delete_read(), commit),
        ),
        _deletes_the_wrong_row,
    ),
    "P4-lost-update": Case(
        (
            (begin, read(X), write({X: lambda seen: seen[X] + 1}), commit),
            (begin, read(X), write({X: lambda seen: seen[X] + 1}), commit),
        ),
        _loses_an_update,
    ),
    "G-single-read-skew": Case(
        (
            (begin, read(X), read(Y)),
            (begin, read(X, Y), write({X: 12}), write({Y: 18}), commit),
        ),
        _reads_of_two_snapshots,
    ),
    "G-single-by-predicate": Case(
        (
            (begin, read_where(lambda it: it % 5 == 0), read_where(lambda it: it % 3 == 0)),
            (begin, write({X: 12}), commit),
        ),
        _scans_of_two_snapshots,
    ),
    "G-single-for-writes": Case(
        (
            (begin, read(X), read_where(lambda it: it == 20), delete_read(), commit),
            (begin, read(X, Y), write({X: 12, Y: 18}), commit),
        ),
        _deletes_what_it_did_not_see,
    ),
}


@pytest.mark.parametrize("name", PREVENTED)
def test_no_interleaving_shows_an_anomaly_that_snapshot_isolation_prevents(
    name: str, place_of: MakePlace
) -> None:
    case = PREVENTED[name]
    runs = list(place_of(case).runs(case.scripts))
    assert not [run for run in runs if case.is_anomaly(run)]
    assert any(run.transactions[-1].reads or run.are_all_committed for run in runs)


@pytest.mark.parametrize("name", ["G1a-aborted-read", "G1b-intermediate-read"])
def test_no_interleaving_of_non_atomic_transactions_shows_uncommitted_values(
    name: str, place_of: MakePlace
) -> None:
    case = PREVENTED[name]
    runs = list(place_of(case, "none").runs(case.scripts))
    assert not [run for run in runs if case.is_anomaly(run)]


@pytest.mark.parametrize(
    "name",
    [
        "PMP-predicate-many-preceders",
        "PMP-for-writes",
        "P4-lost-update",
        "G-single-read-skew",
        "G-single-by-predicate",
        "G-single-for-writes",
    ],
)
def test_non_atomic_transactions_can_show_an_anomaly_that_read_committed_allows(
    name: str, place_of: MakePlace
) -> None:
    case = PREVENTED[name]
    assert any(case.is_anomaly(run) for run in place_of(case, "none").runs(case.scripts))


# ---- allowed, unless the rows that were read are locked


def _both_saw_the_beginning(run: Run) -> bool:
    return run.are_all_committed and all(it.reads == [INITIAL] for it in run.transactions)


def _both_saw_nothing(run: Run) -> bool:
    return run.are_all_committed and all(it.reads == [{}] for it in run.transactions)


def _reader_sees_the_second_alone(run: Run) -> bool:
    """The third saw the second's write and not the first's, and yet the first came before it."""
    first, _, third = run.transactions
    return run.are_all_committed and first.reads == [INITIAL] and third.reads == [{X: 10, Y: 25}]


def _g2_item(*locks: Step) -> Case:
    return Case(
        (
            (begin, read(X, Y), at_once(*locks, write({X: 11})), commit),
            (begin, read(X, Y), at_once(*locks, write({Y: 21})), commit),
        ),
        _both_saw_the_beginning,
    )


def _g2_predicate(*locks: Step) -> Case:
    """The rows that a predicate might find are locked although they are not there."""
    wanted = read_where(lambda it: it % 3 == 0)
    return Case(
        (
            (begin, wanted, at_once(*locks, write({Z: 30})), commit),
            (begin, wanted, at_once(*locks, write({U: 42})), commit),
        ),
        _both_saw_nothing,
    )


def _g2_two_edges(*locks: Step) -> Case:
    return Case(
        (
            (read(X, Y), at_once(*locks, write({X: 0})), commit),
            (at_once(read(X, Y), write({Y: lambda seen: seen[Y] + 5})), commit),
            (read(X, Y),),
        ),
        _reader_sees_the_second_alone,
        is_short=False,
    )


PREVENTED_FOR_WRITES = ["PMP-for-writes", "P4-lost-update", "G-single-for-writes"]
"""These read and write: validated reads must not let through what other checks prevent."""

ALLOWED = {
    "G2-item-write-skew": (_g2_item, lock(X, Y)),
    "G2-anti-dependency-cycle": (_g2_predicate, lock(Z, U)),
    "G2-two-anti-dependencies": (_g2_two_edges, lock(X, Y)),
}


@pytest.mark.parametrize("name", ALLOWED)
def test_some_interleaving_shows_an_anomaly_that_snapshot_isolation_allows(
    name: str, place_of: MakePlace
) -> None:
    make, _ = ALLOWED[name]
    case = make()
    assert any(case.is_anomaly(run) for run in place_of(case).runs(case.scripts))


@pytest.mark.parametrize("name", ALLOWED)
def test_read_locks_prevent_the_anomalies_that_snapshot_isolation_allows(
    name: str, place_of: MakePlace
) -> None:
    make, locks = ALLOWED[name]
    case = make(locks)
    runs = list(place_of(case).runs(case.scripts))
    assert not [run for run in runs if case.is_anomaly(run)]
    assert any(run.are_all_committed for run in runs)


@pytest.mark.parametrize("name", [*ALLOWED, *PREVENTED_FOR_WRITES])
def test_no_interleaving_of_serializable_transactions_shows_an_anomaly(
    name: str, place_of: MakePlace
) -> None:
    case = ALLOWED[name][0]() if name in ALLOWED else PREVENTED[name]
    runs = list(place_of(case, isolation="serializable").runs(case.scripts))
    assert not [run for run in runs if case.is_anomaly(run)]
    assert any(run.are_all_committed for run in runs)
    assert any(not run.are_all_committed for run in runs)


@pytest.mark.parametrize("name", ALLOWED)
def test_one_serializable_transaction_after_the_other_commits(
    name: str, place_of: MakePlace
) -> None:
    make, _ = ALLOWED[name]
    place = place_of(make(), isolation="serializable")
    for script in make().scripts:
        assert all(run.are_all_committed for run in place.runs([script]))


# ---- the eyes of this suite


BEGINNING: list[dict[int, int]] = [INITIAL]
PLANTED: dict[str, tuple[list[list[dict[int, int]]], dict[int, int]]] = {
    "G0-dirty-write": ([[], []], {X: 11, Y: 22}),
    "G1a-aborted-read": ([[], [{X: 101}, {X: 10}]], INITIAL),
    "G1b-intermediate-read": ([[], [{X: 101}, {X: 11}]], {X: 11, Y: 21}),
    "G1c-circular-information-flow": ([[{Y: 22}], [{X: 11}]], {X: 11, Y: 22}),
    "OTV-observed-transaction-vanishes": ([[], [], [{X: 12}, {Y: 19}]], {X: 12, Y: 18}),
    "PMP-predicate-many-preceders": ([[{}, {Z: 30}], []], INITIAL | {Z: 30}),
    "PMP-for-writes": ([BEGINNING, [{Y: 20}]], {X: 20, Y: 30}),
    "P4-lost-update": ([[{X: 10}], [{X: 10}]], {X: 11, Y: 20}),
    "G-single-read-skew": ([[{X: 10}, {Y: 18}], BEGINNING], {X: 12, Y: 18}),
    "G-single-by-predicate": ([[INITIAL, {X: 12}], []], {X: 12, Y: 20}),
    "G-single-for-writes": ([[{X: 10}, {Y: 20}], BEGINNING], {X: 12}),
    "G2-item-write-skew": ([BEGINNING, BEGINNING], {X: 11, Y: 21}),
    "G2-anti-dependency-cycle": ([[{}], [{}]], INITIAL | {Z: 30, U: 42}),
    "G2-two-anti-dependencies": (
        [BEGINNING, BEGINNING, [{X: 10, Y: 25}]],
        {X: 0, Y: 25},
    ),
}


@pytest.mark.parametrize("name", [*PREVENTED, *ALLOWED])
def test_an_anomaly_is_seen_where_there_is_one(name: str) -> None:
    case = PREVENTED[name] if name in PREVENTED else ALLOWED[name][0]()
    reads, final = PLANTED[name]
    accounts = tuple(Account(seen, is_committed=True) for seen in reads)
    assert case.is_anomaly(Run(accounts, final))
