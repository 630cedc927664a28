"""Each promise sees a history, made by hand, that breaks it, and passes its neighbours."""

import pytest

from serializable_model.cases import APART, A, B, C, key, puts, serial
from serializable_model.promises import History, Outcome, not_atomic, not_serial, not_valid, waiting
from serializable_model.state import (
    ABORT,
    BLIND,
    COMMITTED,
    PLAIN,
    PREPARED,
    REFUSED,
    SECOND,
    Case,
    Client,
    Record,
    State,
    Txn,
    Write,
)


def case_of(*txns: Txn, present: int = 0b1111) -> Case:
    return Case("by hand", txns, 4, APART, present)


def history_of(*spans: tuple[int, int], ended_before: tuple[int, ...] = ()) -> History:
    """Transactions with their start and commit timestamps, and masks of those that had ended."""
    masks = ended_before or (0,) * len(spans)
    return History(
        tuple(
            Outcome(at, start, committed, mask)
            for at, ((start, committed), mask) in enumerate(zip(spans, masks, strict=True))
        )
    )


SKEW = case_of(serial(key(A), writes=puts(B)), serial(key(B), writes=puts(A)))
READS_A = serial(key(A), writes=puts(C))


def test_write_skew_is_a_cycle() -> None:
    assert not_serial(SKEW, history_of((1, 3), (2, 4))) == "SERIAL: T0 and T1 fit no order"


def test_one_after_the_other_is_no_cycle() -> None:
    assert not_serial(SKEW, history_of((1, 2), (3, 4))) is None


def test_a_plain_transaction_has_no_reads_in_the_graph() -> None:
    case = case_of(READS_A, Txn(PLAIN, (key(C),), puts(A)))
    assert not_serial(case, history_of((1, 3), (2, 4))) is None


def test_real_time_is_an_edge() -> None:
    """T0 reads the row before T1 writes it. So T0 is first, although it began when T1 had ended."""
    case = case_of(serial(key(A)), Txn(BLIND, writes=puts(A)))
    assert not_serial(case, history_of((3, 3), (1, 4))) is None
    late = history_of((3, 3), (1, 4), ended_before=(0b10, 0))
    assert not_serial(case, late) == "SERIAL: T0 and T1 fit no order"


def test_a_reader_can_show_an_order_that_the_writers_do_not_have() -> None:
    """T2 sees T1 and not T0. T1 has read what T0 changed later, and T0 what T1 changed before."""
    case = case_of(
        serial(key(A), writes=puts(B)), Txn(PLAIN, writes=puts(A)), serial(key(A), key(B))
    )
    assert not_serial(case, history_of((1, 6), (2, 3), (4, 4))) is not None
    assert not_serial(case, history_of((1, 6), (2, 3), (7, 7))) is None


@pytest.mark.parametrize(("committed", "is_broken"), [(2, False), (4, True), (6, False)])
def test_a_change_between_start_and_commit_is_seen(committed: int, is_broken: bool) -> None:
    case = case_of(READS_A, Txn(PLAIN, writes=puts(A)))
    broken = not_valid(case, history_of((3, 5), (1, committed)))
    assert broken == ("VALID: T0 has read a, and T1 changed it" if is_broken else None)


@pytest.mark.parametrize(("present", "is_broken"), [(0b1111, False), (0b1110, True)])
def test_another_group_counts_if_the_row_was_absent(present: int, is_broken: bool) -> None:
    case = case_of(READS_A, Txn(PLAIN, writes=puts(A, groups=SECOND)), present=present)
    assert (not_valid(case, history_of((1, 4), (2, 3))) is not None) == is_broken


def test_a_row_that_was_deleted_is_absent() -> None:
    """T1 deletes the row, and T2 creates it again with another group, after T0 has begun."""
    deletes, creates = Write(A, is_delete=True), puts(A, groups=SECOND)
    case = case_of(READS_A, Txn(PLAIN, writes=(deletes,)), Txn(PLAIN, writes=creates))
    broken = not_valid(case, history_of((3, 6), (1, 2), (4, 5)))
    assert broken == "VALID: T0 has read a, and T2 changed it"
    assert not_valid(case, history_of((3, 6), (1, 7), (4, 5))) is None


def state_of(client: Client, *records: Record) -> State:
    one, two = records
    return State(9, (0, 0), ((one, two),), (client,))


@pytest.mark.parametrize(
    "state",
    [
        state_of(Client(1, decided=3), Record(PREPARED, 3), Record(REFUSED)),
        state_of(Client(1), Record(COMMITTED, 3), Record(REFUSED)),
        state_of(Client(1, decided=ABORT), Record(COMMITTED, 3), Record(PREPARED, 2)),
    ],
    ids=["a report and a cell", "two cells", "a cell and a report"],
)
def test_two_outcomes_are_seen(state: State) -> None:
    assert not_atomic(state) == "ATOMIC: T0 is committed, and aborted"


def test_one_outcome_is_no_violation() -> None:
    assert (
        not_atomic(state_of(Client(1, decided=3), Record(COMMITTED, 3), Record(PREPARED))) is None
    )
    assert not_atomic(state_of(Client(1, decided=ABORT), Record(REFUSED), Record(PREPARED))) is None


def test_what_has_not_ended_is_named() -> None:
    prepared = state_of(Client(1, decided=3), Record(COMMITTED, 3), Record(PREPARED, 2))
    assert waiting(prepared) == "DEADLOCK: T0 is prepared in cell 1 for ever"
    assert waiting(state_of(Client(1), Record(), Record())) == "DEADLOCK: T0 waits for ever"
    assert waiting(state_of(Client(1, decided=3), Record(COMMITTED, 3), Record())) is None
