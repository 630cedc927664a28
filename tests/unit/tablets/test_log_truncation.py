"""What a log forgets: truncation behind a checkpoint, where reading begins, and the survey."""

import random
import threading
from pathlib import Path

import pytest

from dodona.errors import DataCorrupted, FolderInUse
from dodona.types import Timestamp
from dodona_tablets.core.records import Checkpoint, Record, WatermarkRaised
from dodona_tablets.shell.log import LOG_NAME, SEGMENTS_MIN, CellLog
from dodona_wire.net.folder import sync_folder
from suite.waiting import WAIT_S_MAX
from unit.tablets.logs import BYTES_MAX, RECORDS, fill, groups_of, renew_bounds, rows, write_file


def files(folder: Path) -> list[str]:
    return sorted(it.name for it in (folder / LOG_NAME).iterdir())


def numbers(records: list[Record]) -> list[int]:
    """Of `fill`'s rows, and those of its checkpoints with a minus."""
    return [-it.number if isinstance(it, Checkpoint) else it.stamp for it in records]  # type: ignore[union-attr]


def test_a_truncated_log_begins_with_its_checkpoint(tmp_path: Path) -> None:
    log = CellLog.open(tmp_path, BYTES_MAX)
    fill(log, range(1, 36))
    before = files(tmp_path)
    log.truncate_before(20)
    first = f"{22:020}.mdb"  # behind 20 rows and a checkpoint
    assert files(tmp_path) == before[before.index(first) :]
    assert numbers(list(log.read())) == [-20, *range(21, 31), -30, *range(31, 36)]
    log.close()
    log = CellLog.open(tmp_path, BYTES_MAX)
    assert numbers(list(log.read())) == [-20, *range(21, 31), -30, *range(31, 36)]
    fill(log, range(36, 41))
    log.truncate_before(40)
    assert numbers(list(log.read())) == [-40]
    assert len(files(tmp_path)) == 1
    log.close()


def test_a_restart_without_a_truncation_keeps_all_records(tmp_path: Path) -> None:
    log = CellLog.open(tmp_path, BYTES_MAX)
    fill(log, range(1, 31))
    log.close()
    log = CellLog.open(tmp_path, BYTES_MAX)
    assert len(list(log.read())) == 33
    log.close()


def test_reading_skips_the_records_before_the_checkpoint_in_its_group(tmp_path: Path) -> None:
    log = CellLog.open(tmp_path, BYTES_MAX)
    fill(log, range(1, 5))
    log.append([rows(5), Checkpoint(1), rows(6)])
    log.append([rows(7), Checkpoint(2), rows(8), Checkpoint(3), rows(9)])
    assert len(numbers(list(log.read()))) == 12
    log.truncate_before(1)
    assert numbers(list(log.read())) == [-1, 6, 7, -2, 8, -3, 9]
    log.close()


def test_reading_may_begin_with_any_checkpoint_that_is_there(tmp_path: Path) -> None:
    log = CellLog.open(tmp_path, BYTES_MAX)
    fill(log, range(1, 26))
    log.append([rows(26), Checkpoint(101), rows(27), Checkpoint(102), rows(28)])
    for is_known in (True, False):  # to this process, by what it appended or read
        wanted = [-20, 21, 22, 23, 24, 25, 26, -101, 27, -102, 28]
        assert numbers(list(log.read(checkpoint=20))) == wanted, is_known
        assert numbers(list(log.read(checkpoint=102))) == [-102, 28]
        log.close()
        log = CellLog.open(tmp_path, BYTES_MAX)
    with pytest.raises(DataCorrupted, match="does not have checkpoint 15"):
        list(log.read(checkpoint=15))
    log.close()


def test_files_before_the_beginning_are_not_opened(tmp_path: Path) -> None:
    log = CellLog.open(tmp_path, BYTES_MAX)
    fill(log, range(1, 31))
    first, second, *_ = sorted((tmp_path / LOG_NAME).iterdir())
    first.unlink()
    second.write_bytes(b"damage")
    assert numbers(list(log.read(checkpoint=30))) == [-30]
    log.close()


def test_a_restart_during_a_truncation_reads_the_remaining_records(tmp_path: Path) -> None:
    log = CellLog.open(tmp_path, BYTES_MAX)
    fill(log, range(1, 31))
    whole = numbers(list(log.read()))
    *paths, staying = sorted((tmp_path / LOG_NAME).iterdir())[:7]
    assert log._bounds is not None
    log._bounds.move_first(int(staying.stem))
    log.close()
    for path in paths:  # as if it had come so far
        path.unlink()
        log = CellLog.open(tmp_path, BYTES_MAX)
        left = numbers(list(log.read()))
        assert left in (whole[whole.index(-10) :], whole[whole.index(-20) :])
        log.close()
    log = CellLog.open(tmp_path, BYTES_MAX)
    assert len(list(log.survey())) == 2
    log.truncate_before(20)  # the core asks again
    assert numbers(list(log.read()))[0] == -20
    log.close()


def test_a_log_without_its_beginning_and_without_a_checkpoint_is_damaged(tmp_path: Path) -> None:
    write_file(tmp_path / LOG_NAME / f"{5:020}.mdb", groups_of([RECORDS, RECORDS], 5))
    renew_bounds(tmp_path)
    log = CellLog.open(tmp_path, BYTES_MAX)
    for read in (log.read, log.survey):
        with pytest.raises(DataCorrupted, match="does not have a checkpoint to begin with"):
            list(read())
    log.close()


def test_a_checkpoint_that_is_not_there_takes_nothing_away(tmp_path: Path) -> None:
    log = CellLog.open(tmp_path, BYTES_MAX)
    fill(log, range(1, 31))
    before = files(tmp_path)
    log.truncate_before(31)
    assert files(tmp_path) == before
    log.truncate_before(30)
    log.truncate_before(10)  # late
    assert numbers(list(log.read())) == [-30]
    log.close()


def test_files_go_one_after_the_other_each_for_good(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a power cut could leave an older one, and not the one behind it."""
    log = CellLog.open(tmp_path, BYTES_MAX)
    fill(log, range(1, 31))
    seen = [files(tmp_path)]

    def watched(folder: Path | int) -> None:
        sync_folder(folder)
        seen.append(files(tmp_path))

    monkeypatch.setattr("dodona_tablets.shell.log.sync_folder", watched)
    log.truncate_before(30)
    assert len(seen[0]) > 10
    assert seen[1:] == [seen[0][count:] for count in range(1, len(seen[0]))]
    log.close()


def test_a_running_truncation_ends_before_another_process_can_open_the_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = CellLog.open(tmp_path, BYTES_MAX)
    fill(log, range(1, 31))
    begun, may_go_on = threading.Event(), threading.Event()

    def slow(folder: Path | int) -> None:
        begun.set()
        assert may_go_on.wait(WAIT_S_MAX)
        sync_folder(folder)

    monkeypatch.setattr("dodona_tablets.shell.log.sync_folder", slow)
    truncating = threading.Thread(target=log.truncate_before, args=(30,))
    truncating.start()
    assert begun.wait(WAIT_S_MAX)
    log.append([rows(31)])  # it does not wait for that
    closing = threading.Thread(target=log.close)
    closing.start()
    with pytest.raises(FolderInUse):
        CellLog.open(tmp_path, BYTES_MAX)
    may_go_on.set()
    for thread in (truncating, closing):
        thread.join(WAIT_S_MAX)
    log = CellLog.open(tmp_path, BYTES_MAX)
    assert numbers(list(log.read())) == [-30, 31]
    log.close()


@pytest.mark.parametrize("group_bytes_max", [3_000, 300_000])
def test_a_log_that_is_truncated_again_and_again_does_not_grow(
    tmp_path: Path, group_bytes_max: int
) -> None:
    """Whatever the sizes of its groups, also large ones among small ones."""
    random_ = random.Random(group_bytes_max)
    log = CellLog.open(tmp_path, BYTES_MAX)
    appended_bytes = 0
    for number in range(1, 16):
        for _ in range(5):
            size_bytes = int(group_bytes_max ** random_.uniform(0.5, 1))
            log.append([rows(number, size_bytes)])
            appended_bytes += size_bytes
        log.append([Checkpoint(number)])
        log.truncate_before(number)
        assert len(files(tmp_path)) == 1
        assert log.size_bytes() < BYTES_MAX // SEGMENTS_MIN + group_bytes_max + 20_000
    assert appended_bytes > 10 * group_bytes_max
    log.close()


# Survey


def test_a_survey_returns_the_records_other_than_rows_and_outcomes(tmp_path: Path) -> None:
    log = CellLog.open(tmp_path, BYTES_MAX)
    log.append(RECORDS[:2])
    log.append([rows(1), WatermarkRaised(Timestamp(7)), rows(2)])
    log.append([Checkpoint(1)])
    fill(log, range(11, 31))
    log.append(RECORDS)
    raised = [WatermarkRaised(Timestamp(7)), RECORDS[2]]
    marks = [Checkpoint(1), Checkpoint(20), Checkpoint(30)]
    assert list(log.survey()) == [raised[0], *marks, raised[1]]
    log.truncate_before(20)
    assert list(log.survey()) == [*marks[1:], raised[1]]
    log.close()


def test_a_survey_does_not_look_at_groups_of_rows(tmp_path: Path) -> None:
    groups = groups_of([[rows(1)], [Checkpoint(1)], [rows(2), Checkpoint(2)], [rows(3)]])
    first, *_, last = groups
    groups[first] = groups[last] = b"damage"
    write_file(tmp_path / LOG_NAME / f"{1:020}.mdb", groups)
    log = CellLog.open(tmp_path, BYTES_MAX)
    assert list(log.survey()) == [Checkpoint(1), Checkpoint(2)]
    with pytest.raises(DataCorrupted, match="has format 100"):
        list(log.read())
    log.close()


def test_a_survey_finds_the_checkpoints_for_a_truncation(tmp_path: Path) -> None:
    log = CellLog.open(tmp_path, BYTES_MAX)
    fill(log, range(1, 31))
    log.close()
    log = CellLog.open(tmp_path, BYTES_MAX)
    assert len(list(log.survey())) == 3
    log.truncate_before(30)
    assert numbers(list(log.read())) == [-30]
    log.close()
