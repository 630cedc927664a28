"""What two logs share, what a log has, and how a log reads."""

import pytest

from replication_model.logs import CUT, HOLE, Log, agreed_count, has_all, opening_record, show

O1, O2, O3 = (opening_record(it, is_second=False) for it in (1, 2, 3))


@pytest.mark.parametrize(
    ("stored", "log", "count"),
    [
        ((), (O1,), 0),
        ((O1,), (O1, O1 + 1), 1),
        ((O1, O1 + 1), (O1, O2), 1),
        ((O1, O1 + 1, O3), (O1, O2, O3), 3),
        ((CUT,), (CUT, O1 + 1), 1),
        ((CUT,), (O1, O1 + 1), 0),
        ((CUT, CUT), (CUT, O1 + 1), 0),
        ((O1, O1 + 1), (CUT, O1 + 1), 2),
        ((O1,), (CUT, O1 + 1), 0),
        ((HOLE,), (HOLE, O2), 1),
    ],
)
def test_two_logs_agree_up_to_the_last_entry_of_one_epoch(
    stored: Log, log: Log, count: int
) -> None:
    assert agreed_count(stored, log) == count


@pytest.mark.parametrize(
    ("log", "acknowledged", "expected"),
    [
        ((O1, O1 + 1), (O1,), True),
        ((O1,), (O1, O1 + 1), False),
        ((O1, O2), (O1, O1 + 1), False),
        ((CUT, O1 + 1), (O1, O1 + 1), True),
        ((CUT, O1 + 1), (O1,), True),
        ((CUT,), (O1,), False),
        ((CUT, O2), (O1, O1 + 1), False),
        ((HOLE, O1 + 1), (O1, O1 + 1), False),
    ],
)
def test_a_log_has_what_itself_or_its_checkpoint_has(
    log: Log, acknowledged: Log, expected: bool
) -> None:
    assert has_all(log, acknowledged) is expected


def test_a_log_reads_by_epochs_and_writes() -> None:
    second = opening_record(2, is_second=True)
    assert show((CUT, HOLE, O1, O1 + 1, O1 + 2, O2, second)) == "[. ? o1 1a 1b o2 o2']"
    assert show(()) == "[]"
