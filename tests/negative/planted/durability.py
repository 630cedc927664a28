"""Items 37 to 47: what a restart must find again, failing disks, and writes without atomicity."""

import asyncio
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from dodona._core.writing.buffer import merge
from dodona.errors import DataCorrupted
from dodona.schema import TableSchema
from dodona.types import DELETE_MASK, MIN_TIMESTAMP, Timestamp, Write
from dodona_server.runtime import Runtime
from dodona_tablets.core.cell.cell import Cell
from dodona_tablets.core.cell.room import Room
from dodona_tablets.core.commit.taking import take_locks
from dodona_tablets.core.node import NodeCore
from dodona_tablets.core.records import Record
from dodona_tablets.core.requests.reads import Reads
from dodona_tablets.core.tablet.locks import release
from dodona_tablets.core.tablet.snapshot import Read
from dodona_tablets.core.tablet.transaction import Transaction
from dodona_tablets.shell import log
from dodona_tablets.shell.log import CellLog
from dodona_wire.cores.effects import Effect, ReplyAtOnce, ReplyTo
from negative.bug import BUSY, CheckedBug, PlantedBug, Where
from unit.client import test_transaction
from unit.oracle import test_folder, test_runtime_lifecycle
from unit.tablets import (
    test_compaction,
    test_full_log,
    test_log,
    test_log_truncation,
    test_nonatomic,
    test_reads,
)

# Conflict state


def retire_what_is_needed(patch: pytest.MonkeyPatch) -> None:
    for part in ("flushing", "horizon"):
        name = f"dodona_tablets.core.upkeep.{part}.oldest_needed"
        patch.setattr(name, lambda cell: cell.latest)


def replay_without_locks(patch: pytest.MonkeyPatch) -> None:
    def planted(cell: Cell, alive: Transaction) -> None:
        take_locks(cell, alive)
        release(alive, None)

    patch.setattr("dodona_tablets.core.start.replay.take_locks", planted)


def serve_without_a_fence(patch: pytest.MonkeyPatch) -> None:
    """Whoever began before the restart is let in; what was refused, and the times of locks, is
    forgotten."""
    begin = NodeCore._begin_serving

    def planted(self: NodeCore, _: Timestamp) -> None:
        begin(self, Timestamp(1))

    patch.setattr(NodeCore, "_begin_serving", planted)


def read_what_was_retired(patch: pytest.MonkeyPatch) -> None:
    read = Reads._read

    def planted(self: Reads, request: Read) -> Any:
        tablet = self._cell.tablets.get(request.tablet)
        if tablet is not None:
            tablet.retained_timestamp = MIN_TIMESTAMP
        return read(self, request)

    patch.setattr(Reads, "_read", planted)


def check_retained(_: Path) -> None:
    test_reads.test_a_read_below_the_retained_timestamp_is_refused_with_that_timestamp()


# The log


def answer_before_the_log(patch: pytest.MonkeyPatch) -> None:
    take = NodeCore.take_effects

    def planted(self: NodeCore) -> list[Effect]:
        return [
            ReplyAtOnce(effect.route, effect.body) if isinstance(effect, ReplyTo) else effect
            for effect in take(self)
        ]

    patch.setattr(NodeCore, "take_effects", planted)


def skip_the_checksum(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("dodona_tablets.shell.log_groups.zlib.crc32", lambda *_: 0)


def take_damage_for_the_end(patch: pytest.MonkeyPatch) -> None:
    read = CellLog.read

    def planted(self: CellLog) -> Iterator[Record]:
        with suppress(DataCorrupted):
            yield from read(self)

    patch.setattr(CellLog, "read", planted)


def damage(change: Any, words: str) -> Any:
    return lambda folder: test_log.test_damage_is_refused_with_file_group_and_byte(
        folder, change, words
    )


def answer_after_a_failed_flush(patch: pytest.MonkeyPatch) -> None:
    fail = Runtime.fail

    def planted(self: Runtime, error: BaseException) -> None:
        self._enter(self._finish_flush, ())
        fail(self, error)

    patch.setattr(Runtime, "fail", planted)


def check_failed_flush(_: Path) -> None:
    asyncio.run(
        test_runtime_lifecycle.test_a_failed_log_stops_the_runtime_and_waiting_callers_get_no_answer()
    )


def leave_names_to_chance(patch: pytest.MonkeyPatch) -> None:
    for module in ("dodona_wire.net.folder", "dodona_tablets.shell.log"):
        patch.setattr(f"{module}.sync_folder", lambda _: None)


def check_names(folder: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        test_folder.test_all_names_that_were_made_are_durable(
            test_folder.open_log, folder, test_folder.watch(patch)
        )


def ignore_a_full_map(patch: pytest.MonkeyPatch) -> None:
    append = CellLog.append

    def planted(self: CellLog, records: Any) -> None:
        with suppress(OSError):
            append(self, records)

    patch.setattr(CellLog, "append", planted)


def let_writes_into_a_full_log(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Room, "check_log", lambda _: None)


def check_full_log(_: Path) -> None:
    for write in (test_full_log.commit_one, test_full_log.write_rows):
        test_full_log.test_every_kind_of_write_is_refused_until_there_is_room(write)


def remove_the_newest_first(patch: pytest.MonkeyPatch) -> None:
    """Files of a log, when it is truncated: a crash in between leaves a hole."""

    def planted(self: CellLog, number: int) -> None:
        count = self._count_before(self._index_by_checkpoint[number])
        for older in reversed(self._older[:count]):
            older.path.unlink()
            log.sync_folder(self._path)  # type: ignore[attr-defined]  # where a test looks
        del self._older[:count]

    patch.setattr(CellLog, "truncate_before", planted)


def check_truncation(folder: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        test_log_truncation.test_files_go_one_after_the_other_each_for_good(folder, patch)


# Writes without atomicity


def acknowledge_sync_writes_at_once(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("dodona_tablets.core.requests.nonatomic.ReplyTo", ReplyAtOnce)


def lose_a_deletion_before_a_write(patch: pytest.MonkeyPatch) -> None:
    """The columns that the write does not name keep their values, where they had to become null."""

    def planted(schema: TableSchema, old: Write, new: Write) -> Write:
        return new if old[1] == DELETE_MASK else merge(schema, old, new)

    patch.setattr("dodona._core.writing.buffer.merge", planted)
    patch.setattr("dodona._core.writing.transaction.merge", planted)


def take_any_stamp(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("dodona_tablets.core.requests.nonatomic.check_stamp", lambda *_: None)


def check_stamps(_: Path) -> None:
    for seconds in (-62, 62):
        test_nonatomic.test_a_clock_that_is_far_off_is_refused_with_the_text_of_the_document(
            seconds
        )


BUGS = (
    CheckedBug(
        37,
        "old versions go that conflict checks still need",
        retire_what_is_needed,
        lambda _: test_compaction.test_a_transaction_that_stays_prepared_holds_everything_back(),
        "test_a_transaction_that_stays_prepared_holds_everything_back",
    ),
    PlantedBug(
        38,
        "a restart does not take the locks of prepared transactions again",
        replay_without_locks,
        ("NOCONFLICT", "EXT", "CRASH"),
    ),
    PlantedBug(
        38,
        "a restart lets in those who began before it",
        serve_without_a_fence,
        ("RWLOCK", "GHOST", "NOCONFLICT"),
        Where(
            "cycle",
            changes=BUSY,
            network={"repeat_rate": 0.5, "slow_us_max": 1_000_000},
            crash_count=40,
        ),
    ),
    CheckedBug(
        39,
        "a read below the retained timestamp is answered",
        read_what_was_retired,
        check_retained,
        "test_a_read_below_the_retained_timestamp_is_refused_with_that_timestamp",
    ),
    CheckedBug(
        39,
        "the retained timestamp passes transactions that are alive",
        retire_what_is_needed,
        lambda _: test_compaction.test_the_retained_timestamp_leaves_room_for_every_transaction(),
        "test_the_retained_timestamp_leaves_room_for_every_transaction",
    ),
    PlantedBug(
        40,
        "a node answers before its log is durable",
        answer_before_the_log,
        ("DURABILITY", "ATOMICITY", "CRASH", "EXT"),
    ),
    CheckedBug(
        41,
        "a log is read without a look at its checksums",
        skip_the_checksum,
        damage(lambda raw: raw[:-1] + bytes([raw[-1] ^ 1]), "checksum"),
        "test_damage_is_refused_with_file_group_and_byte",
    ),
    CheckedBug(
        41,
        "damage in the middle of a log is taken for its end",
        take_damage_for_the_end,
        test_log.test_a_missing_group_is_damage,
        "test_a_missing_group_is_damage",
    ),
    CheckedBug(
        42,
        "callers that waited for a failed flush get the answer that it is durable",
        answer_after_a_failed_flush,
        check_failed_flush,
        "test_a_failed_log_stops_the_runtime_and_waiting_callers_get_no_answer",
    ),
    CheckedBug(
        43,
        "a log that is full takes records nevertheless",
        ignore_a_full_map,
        test_log.test_a_full_map_raises_an_error_and_keeps_the_records,
        "test_a_full_map_raises_an_error_and_keeps_the_records",
    ),
    CheckedBug(
        43,
        "new writes are let in until there is no room for what is under way",
        let_writes_into_a_full_log,
        check_full_log,
        "test_every_kind_of_write_is_refused_until_there_is_room",
    ),
    CheckedBug(
        44,
        "the name of a log that was just made is not synced",
        leave_names_to_chance,
        check_names,
        "test_all_names_that_were_made_are_durable",
    ),
    CheckedBug(
        44,
        "a truncation removes the newest files of a log first",
        remove_the_newest_first,
        check_truncation,
        "test_files_go_one_after_the_other_each_for_good",
    ),
    PlantedBug(
        45,
        "a write with durability=sync is acknowledged from memory",
        acknowledge_sync_writes_at_once,
        ("DURABILITY",),
        Where("counters", crash_count=10),
    ),
    CheckedBug(
        46,
        "a deletion is lost when the same transaction writes the row again",
        lose_a_deletion_before_a_write,
        lambda _: test_transaction.test_the_buffer_merges_within_a_call_and_between_calls(),
        "test_the_buffer_merges_within_a_call_and_between_calls",
    ),
    CheckedBug(
        47,
        "rows are stamped by a clock that is minutes off",
        take_any_stamp,
        check_stamps,
        "test_a_clock_that_is_far_off_is_refused_with_the_text_of_the_document",
    ),
)
