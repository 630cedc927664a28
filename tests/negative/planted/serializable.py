"""Bugs of serializable transactions: what a client records, what a cell checks, what it holds."""

from pathlib import Path
from typing import Any, Final

import pytest

from dodona._core.protocol.steps import Protocol
from dodona._core.reading.read_session import ReadSession
from dodona._core.reading.reading import encode_keys
from dodona._core.writing import committing, reads
from dodona._core.writing.parts import with_reads
from dodona._core.writing.reads import CallReads, ReadKeys
from dodona._core.writing.transaction import TransactionBuffer
from dodona_loadtest.checkers.violation import Promise
from dodona_tablets.core.cell.cell import Cell
from dodona_tablets.core.commit import taking
from dodona_tablets.core.commit.participant import Participant
from dodona_tablets.core.commit.taking import take_locks
from dodona_tablets.core.rows.recent_keys import RecentKeys
from dodona_tablets.core.tablet import validation
from dodona_tablets.core.tablet.read_holds import ReadHolds
from dodona_tablets.core.tablet.transaction import State, Transaction
from dodona_tablets.core.tablet.validation import check_holds
from dodona_wire.types import KEY_MAX, MAX_TIMESTAMP, NULL_TIMESTAMP, Key, TransactionId
from negative.bug import BUSY, CheckedBug, Plant, PlantedBug, Where
from unit.tablets.cells import Bench
from unit.tablets.test_validation import (
    test_a_cell_that_was_only_read_holds_its_reads_over_a_restart,
)

SECONDS: Final = 8
LISTS: Final = Where("serializable", seconds=SECONDS, changes=BUSY)
DUTIES: Final = Where("serializable_write_skew", seconds=SECONDS, changes=BUSY)

# The client


def leave_absent_keys_out(patch: pytest.MonkeyPatch) -> None:
    lookup = ReadSession.lookup_rows

    def planted(session: Any, path: str, keys: Any, *given: Any, **named: Any) -> Protocol[Any]:
        rows = yield from lookup(session, path, keys, *given, **named)
        buffer: TransactionBuffer | None = named.get("transaction")
        known = None if buffer is None or buffer.reads is None else buffer.reads.tables.get(path)
        if known is not None:
            for key, row in zip(encode_keys(session.routing.find(path), keys), rows, strict=True):
                if row is None:
                    known.keys.pop(key, None)
        return rows

    patch.setattr(ReadSession, "lookup_rows", planted)


def leave_the_last_row_of_a_range_out(patch: pytest.MonkeyPatch) -> None:
    note = CallReads.note_ranges

    def before(end: Key) -> Key:
        return end if end == KEY_MAX or not end[-1] else Key(end[:-1] + bytes([end[-1] - 1]))

    def planted(call: CallReads, route: Any, ranges: Any, mask: int) -> None:
        note(call, route, [(lower, before(upper)) for lower, upper in ranges], mask)

    patch.setattr(CallReads, "note_ranges", planted)


def leave_tablets_out_that_are_only_read(patch: pytest.MonkeyPatch) -> None:
    def planted(*given: Any) -> Any:
        return [(tablet, part) for tablet, part in with_reads(*given) if part.writes]

    patch.setattr(committing, "with_reads", planted)


def keep_the_first_of_merged_reads(patch: pytest.MonkeyPatch) -> None:
    def planted(one: ReadKeys, other: ReadKeys) -> ReadKeys:
        return one._replace(lock_mask=one.lock_mask | other.lock_mask)

    patch.setattr(reads, "READS_MAX", 2)
    patch.setattr(reads, "READS_KEPT", 1)
    patch.setattr(reads, "_hull", planted)


# What a cell checks


def see_no_writers(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(validation, "_check_writers", lambda *_: None)


def let_pass(patch: pytest.MonkeyPatch, *, is_blind: bool) -> None:
    def planted(transaction: Transaction, *given: Any) -> Transaction | None:
        is_it = is_blind == (transaction.start == MAX_TIMESTAMP)
        return None if is_it else check_holds(transaction, *given)

    patch.setattr(taking, "check_holds", planted)


def let_writers_pass(patch: pytest.MonkeyPatch) -> None:
    let_pass(patch, is_blind=False)


def let_blind_writers_pass(patch: pytest.MonkeyPatch) -> None:
    let_pass(patch, is_blind=True)


def forget_that_presence_is_of_all_groups(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(validation, "_groups", lambda tablet, key, groups, at: groups)


def know_no_changes_from_before(patch: pytest.MonkeyPatch) -> None:
    begin = RecentKeys.__init__
    patch.setattr(RecentKeys, "__init__", lambda recent, _: begin(recent, NULL_TIMESTAMP))


# What a cell holds


def release_reads(cell: Cell, transaction: Transaction) -> None:
    for part in transaction.modifications:
        holds = cell.tablets[part.tablet].read_holds
        if holds is not None:
            holds.release(transaction, part.reads)


def hold_nothing_after_a_restart(patch: pytest.MonkeyPatch) -> None:
    def planted(cell: Cell, alive: Transaction) -> None:
        take_locks(cell, alive)
        release_reads(cell, alive)

    patch.setattr("dodona_tablets.core.start.replay.take_locks", planted)


def act_when_prepared(patch: pytest.MonkeyPatch, act: Any) -> None:
    handle = Participant.handle_timestamp

    def planted(participant: Participant, transaction: TransactionId, timestamp: Any) -> None:
        cell = participant._cell
        alive = cell.transactions.get(transaction)
        was_locked = alive is not None and alive.state is State.LOCKED
        handle(participant, transaction, timestamp)
        if alive is not None and was_locked and alive.state is State.PREPARED:
            act(cell, alive)

    patch.setattr(Participant, "handle_timestamp", planted)


def release_when_prepared(patch: pytest.MonkeyPatch) -> None:
    act_when_prepared(patch, release_reads)


def hold_from_prepared_on(patch: pytest.MonkeyPatch) -> None:
    def take(cell: Cell, transaction: Transaction) -> None:
        for part in transaction.modifications:
            tablet = cell.tablets[part.tablet]
            tablet.read_holds = tablet.read_holds or ReadHolds()
            tablet.read_holds.take(transaction, part.reads)

    def planted(cell: Cell, transaction: Transaction) -> None:
        take_locks(cell, transaction)
        release_reads(cell, transaction)

    patch.setattr("dodona_tablets.core.commit.participant.take_locks", planted)
    act_when_prepared(patch, take)


def held_over_a_restart(_: Path) -> None:
    """The other cell's prepare timestamp must lie above the restart, which few runs bring."""
    test_a_cell_that_was_only_read_holds_its_reads_over_a_restart(Bench(2))


_RUNS: tuple[tuple[str, Plant, Promise, Where], ...] = (
    ("a client leaves out what it did not find", leave_absent_keys_out, "G2", LISTS),
    (
        "a client leaves out the last row of a range",
        leave_the_last_row_of_a_range_out,
        "VALID",
        LISTS,
    ),
    (
        "a client does not send reads to a tablet that it does not write",
        leave_tablets_out_that_are_only_read,
        "G2",
        LISTS,
    ),
    ("merged reads become fewer", keep_the_first_of_merged_reads, "VALID", LISTS),
    ("a validation passes writers that have not committed", see_no_writers, "VALID", LISTS),
    ("writers pass what others have read", let_writers_pass, "VALID", LISTS),
    ("blind writers pass what others have read", let_blind_writers_pass, "VALID", LISTS),
    (
        "presence belongs only to the lock groups that were read",
        forget_that_presence_is_of_all_groups,
        "VALID",
        DUTIES,
    ),
    ("recent changes begin with the first range", know_no_changes_from_before, "VALID", LISTS),
    ("reads are held until prepared", release_when_prepared, "VALID", LISTS),
    ("reads are held from prepared on", hold_from_prepared_on, "VALID", LISTS),
)

BUGS: tuple[PlantedBug | CheckedBug, ...] = (
    *(PlantedBug(None, title, plant, (promise,), where) for title, plant, promise, where in _RUNS),
    CheckedBug(
        None,
        "reads are not held after a restart",
        hold_nothing_after_a_restart,
        held_over_a_restart,
        "test_a_cell_that_was_only_read_holds_its_reads_over_a_restart",
    ),
)
