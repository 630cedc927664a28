"""Bugs of new attempts: when a client makes one, and what a cell is to check."""

from typing import Any, Final

import pytest

from dodona._core.writing import committing
from dodona._core.writing.parts import Terms
from dodona._core.writing.reads import TransactionReads
from dodona._core.writing.refreshing import may_refresh
from dodona._core.writing.transaction import TransactionBuffer
from dodona_loadtest.checkers.violation import Promise
from dodona_wire.errors import CommitOutcomeUnknown, DodonaError
from dodona_wire.types import NULL_TIMESTAMP
from negative.bug import BUSY, CheckedBug, Plant, PlantedBug, Where
from unit.client import test_refresh

DUTIES: Final = Where("serializable_write_skew", seconds=8, changes=BUSY)
LOSING: Final = Where(
    "serializable_write_skew", seconds=8, changes=BUSY, network={"loss_rate": 0.1}
)


def count_reads_from_the_new_start(patch: pytest.MonkeyPatch) -> None:
    def planted(conditions: Any, owner: Any, _: Any) -> Terms:
        return Terms(conditions, owner, NULL_TIMESTAMP)

    patch.setattr(committing, "Terms", planted)


def send_no_reads(patch: pytest.MonkeyPatch) -> None:
    validated = TransactionReads.validated

    def planted(reads: TransactionReads, *, is_again: bool) -> Any:
        return {} if is_again else validated(reads, is_again=False)

    patch.setattr(TransactionReads, "validated", planted)


def let_writes_protect_reads(patch: pytest.MonkeyPatch) -> None:
    with_reads = committing._with_reads

    class First:
        is_again = False

        def __init__(self, transaction: TransactionBuffer) -> None:
            self.tables = transaction.tables

    def planted(routes: Any, parts: Any, transaction: Any, validated: Any) -> Any:
        return with_reads(routes, parts, First(transaction), validated)  # type: ignore[arg-type]

    patch.setattr(committing, "_with_reads", planted)


def begin_after_a_timeout(patch: pytest.MonkeyPatch) -> None:
    def planted(transaction: TransactionBuffer, error: DodonaError) -> bool:
        return isinstance(error, CommitOutcomeUnknown) or may_refresh(transaction, error)

    patch.setattr(committing, "may_refresh", planted)


_RUNS: tuple[tuple[str, Plant, Promise, Where], ...] = (
    (
        "a new attempt counts its reads from its own start",
        count_reads_from_the_new_start,
        "VALID",
        DUTIES,
    ),
    ("a new attempt does not send its reads", send_no_reads, "VALID", DUTIES),
    ("a new attempt begins after a timeout", begin_after_a_timeout, "GHOST", LOSING),
)

BUGS: tuple[PlantedBug | CheckedBug, ...] = (
    *(PlantedBug(None, title, plant, (promise,), where) for title, plant, promise, where in _RUNS),
    CheckedBug(
        None,
        "writes of a new attempt protect its reads",
        let_writes_protect_reads,
        lambda _: test_refresh.test_a_row_that_was_read_and_written_is_validated_again(),
        "test_a_row_that_was_read_and_written_is_validated_again",
    ),
)
