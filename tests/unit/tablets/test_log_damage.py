"""A log's files after a crash or with damage: nothing is ever lost in silence.

What a crash leaves of a commit is everything or nothing. Any other difference is refused with the
file, or is one to bytes that mean nothing.
"""

import os
import random
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest

from dodona.errors import DataCorrupted
from dodona_tablets.core.records import Checkpoint, Record
from dodona_tablets.shell import log as log_module
from dodona_tablets.shell.log import LOG_NAME, CellLog
from dodona_tablets.shell.log_check import LogSummary, verify_log
from unit.tablets.logs import (
    RECORDS,
    fill,
    forget_bounds,
    groups_of,
    renew_bounds,
    rows,
    write_file,
)

PAGE: Final = 4096
NAME: Final = f"{1:020}.mdb"
GROUPS: Final[list[list[Record]]] = [
    [rows(number, 40 + 900 * number % 7000), *RECORDS] for number in range(30)
]
"""Within a page of the engine's, and longer."""
WHOLE: Final = [record for group in GROUPS for record in group]


BYTES_MAX: Final = 1 << 26
"""Of a log that has no need for a second file."""


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only file of a log with these groups. It is opened hundreds of times."""
    monkeypatch.setattr(os, "fsync", lambda _: None)
    path = tmp_path / LOG_NAME / NAME
    write_file(path, groups_of(GROUPS))
    return path


def put(path: Path, raw: bytes) -> None:
    """The only file of a log again, with these bytes."""
    forget_bounds(path.parent.parent)
    for other in path.parent.iterdir():
        other.unlink()
    path.write_bytes(raw)


def found(path: Path) -> list[Record]:
    """What a recovery of this file's log finds. Raises DataCorrupted."""
    log = CellLog.open(path.parent.parent, BYTES_MAX)
    try:
        return list(log.read())
    finally:
        log.close()


# Crashes


def pages_of(raw: bytes | bytearray) -> list[bytes]:
    return [bytes(raw[at : at + PAGE]) for at in range(0, len(raw), PAGE)]


@pytest.mark.parametrize("size_bytes", [90, 9000])
def test_a_commit_of_which_not_all_was_written_is_there_or_is_none(
    path: Path, size_bytes: int
) -> None:
    """LMDB writes last what makes the others part of the file: but with all of these a commit is
    durable, and somebody may have been told of it."""
    path.unlink()
    forget_bounds(path.parent.parent)
    log = CellLog.open(path.parent.parent, BYTES_MAX)
    for group in GROUPS:
        log.append(group)
    before = path.read_bytes()
    log.append([rows(99, size_bytes)])
    after = path.read_bytes()
    log.close()
    old, new = pages_of(before.ljust(len(after), b"\0")), pages_of(after)
    changed = [at for at, page in enumerate(new) if page != old[at] and at > 1]
    assert len(changed) >= (4 if size_bytes > PAGE else 2)
    outcomes = []
    for count in range(len(changed) + 1):
        image = list(old)
        for at in random.Random(count).sample(changed, count):
            image[at] = new[at]
        put(path, b"".join(image))
        rest = found(path)
        assert rest[: len(WHOLE)] == WHOLE
        outcomes.append(rest[len(WHOLE) :])
        log = CellLog.open(path.parent.parent, BYTES_MAX)
        log.append(RECORDS)
        assert list(log.read()) == [*rest, *RECORDS]
        log.close()
    assert outcomes[0] == []
    assert outcomes[-1] == [rows(99, size_bytes)]
    assert all(it in ([], outcomes[-1]) for it in outcomes)


# The last head is not synced


def without_head(path: Path, group_count: int) -> bytes:
    """The file with so many groups as a power cut leaves it that came before the last head was
    durable: that page is as the commit two before has left it."""
    path.unlink(missing_ok=True)
    write_file(path, groups_of(GROUPS[: max(group_count - 1, 0)]))
    older = path.read_bytes()
    path.unlink()
    write_file(path, groups_of(GROUPS[:group_count]))
    at = PAGE * (group_count % 2)
    raw = bytearray(path.read_bytes())
    raw[at : at + PAGE] = older[at : at + PAGE]
    return bytes(raw)


@pytest.mark.parametrize("is_copied", [False, True])
@pytest.mark.parametrize("count", range(1, len(GROUPS) + 1))
def test_a_commit_without_its_head_is_recovered_into_the_next_file(
    path: Path, count: int, is_copied: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Behind a file that stays, or with all of a short one."""
    monkeypatch.setattr(log_module, "SHORT_BYTES_MAX", 1 << 30 if is_copied else 0)
    monkeypatch.setattr(log_module, "SHORT_MIN", 1)
    raw = without_head(path, count)
    put(path, raw)
    whole = [record for group in GROUPS[:count] for record in group]
    assert verify_log(path.parent.parent).group_count == count
    assert path.read_bytes() == raw, "to look changes nothing"
    for _ in range(2):
        assert found(path) == whole
    indexes = {1} if is_copied else {1, count, count + 1}
    names = [f"{index:020}.mdb" for index in sorted(indexes)]
    assert sorted(it.name for it in path.parent.iterdir()) == names
    log = CellLog.open(path.parent.parent, BYTES_MAX)
    log.append(RECORDS)
    log.close()
    assert found(path) == [*whole, *RECORDS]
    assert verify_log(path.parent.parent).group_count == count + 1


def test_of_two_commits_without_heads_the_first_is_not_left_out(path: Path) -> None:
    """The second was under way when the power went, and may be there or not."""
    raw = bytearray(without_head(path, len(GROUPS)))
    path.unlink()
    write_file(path, groups_of(GROUPS[:-2]))
    raw[: 2 * PAGE] = path.read_bytes()[: 2 * PAGE]
    put(path, bytes(raw))
    assert found(path) == WHOLE
    put(path, flipped(bytes(raw), value_place(raw, len(GROUPS) - 1) + 20, 1))
    assert found(path) == [record for group in GROUPS[:-1] for record in group]
    put(path, flipped(bytes(raw), value_place(raw, len(GROUPS) - 2) + 20, 1))
    with pytest.raises(DataCorrupted, match="fails its checksum"):
        found(path)


def value_place(raw: bytes | bytearray, at: int) -> int:
    """Where the value of this group lies last: others are older copies of its page."""
    return raw.rindex(list(groups_of(GROUPS).values())[at])


def test_bytes_of_a_row_that_look_like_a_group_are_not_read_as_a_group(path: Path) -> None:
    """Whoever writes rows could send pages: what is in a long value is not looked at."""
    index = 9  # a short one, all of it within its page
    before = GROUPS[: index - 1]
    key = list(groups_of(GROUPS[:index]))[-1]
    forged = next(it for it in pages_of(without_head(path, index)) if key in it and it[10] == 2)
    path.unlink()
    write_file(path, groups_of(before))
    heads = path.read_bytes()[: 2 * PAGE]
    path.unlink()
    write_file(path, groups_of([*before, [rows(99, 9000)]]))
    raw = bytearray(path.read_bytes())
    (long_value,) = groups_of([[rows(99, 9000)]], index).values()
    begin = raw.rindex(long_value) // PAGE
    for within, is_found in ((begin + 1, False), (len(raw) // PAGE, True)):
        image = bytearray(raw.ljust((within + 1) * PAGE, b"\0"))
        image[: 2 * PAGE] = heads
        image[within * PAGE : (within + 1) * PAGE] = struct.pack("<Q", within) + forged[8:]
        put(path, bytes(image))
        groups = GROUPS[:index] if is_found else before
        assert found(path) == [record for group in groups for record in group]


def test_every_prefix_of_a_file_is_whole_or_refused(path: Path) -> None:
    raw = path.read_bytes()
    lengths = {*range(0, len(raw), 512), *range(len(raw) - 20, len(raw) + 1), 1, 8191}
    for length in sorted(lengths):
        put(path, raw[:length])
        if length == len(raw):
            assert found(path) == WHOLE
            continue
        with pytest.raises(DataCorrupted) as caught:
            found(path)
        assert caught.value.attributes["path"] == str(path)


def test_room_at_the_end_of_a_file_may_be_missing(path: Path) -> None:
    used_bytes = path.stat().st_size
    path.unlink()
    forget_bounds(path.parent.parent)
    log = CellLog.open(path.parent.parent, BYTES_MAX)
    for group in [*GROUPS, RECORDS]:
        log.append(group)
    log.close()
    raw = path.read_bytes()
    for length in (len(raw) - 1, len(raw) // 2, used_bytes + 2 * PAGE):
        put(path, raw[:length])
        assert found(path) == [*WHOLE, *RECORDS]


# Damage


def flipped(raw: bytes, place: int, bit: int) -> bytes:
    changed = bytearray(raw)
    changed[place] ^= 1 << bit
    return bytes(changed)


def is_refused(path: Path, check: Callable[[Path], object]) -> bool:
    """Whether it is, naming the file; else everything has to be there."""
    try:
        check(path)
    except DataCorrupted as error:
        return bool(error.attributes["path"] == str(path))
    assert found(path) == WHOLE
    return False


def test_a_bit_flip_in_the_number_of_a_commit_is_refused_or_repaired(path: Path) -> None:
    """Its number, and how many groups there are with it; of both that could be. Or it does no harm:
    as the last write of a commit that failed, it is made again."""
    raw = path.read_bytes()
    made_again = []
    for begin in (0, PAGE):
        for place in (*range(begin + 120, begin + 128), *range(begin + 144, begin + 152)):
            for bit in range(8):
                put(path, flipped(raw, place, bit))
                if not is_refused(path, found):
                    made_again.append((place, bit))
    assert len(GROUPS) == 0b11110
    assert made_again == [(144, 1)], "as if it were the commit two before"


def take_back(path: Path, number: int) -> None:
    """As LMDB does it, when the last write of this commit failed."""
    raw = bytearray(path.read_bytes())
    last_page, _ = struct.unpack_from("=QQ", raw, PAGE * (1 - number % 2) + 136)
    struct.pack_into("=QQ", raw, PAGE * (number % 2) + 136, last_page, max(number - 2, 0))
    path.write_bytes(raw)


@pytest.mark.parametrize("count", [1, 2, 7, 30])
def test_a_commit_whose_last_write_failed_is_written_again(path: Path, count: int) -> None:
    """Nobody was told of it; but had it been reported, and then damaged, it would look the same."""
    path.unlink()
    write_file(path, groups_of(GROUPS[:count]))
    take_back(path, count)
    before = path.read_bytes()
    assert verify_log(path.parent.parent).group_count == count
    assert path.read_bytes() == before
    for _ in range(2):
        assert found(path) == [record for group in GROUPS[:count] for record in group]
    log = CellLog.open(path.parent.parent, BYTES_MAX)
    log.append(RECORDS)
    log.close()
    assert found(path)[-len(RECORDS) :] == RECORDS
    assert verify_log(path.parent.parent).group_count == count + 1


def test_a_commit_whose_last_write_failed_and_whose_group_is_damaged_is_refused(path: Path) -> None:
    raw = path.read_bytes()
    value = groups_of(GROUPS)
    begin = raw.index(list(value.values())[-1])
    put(path, flipped(raw, begin + 30, 3))
    take_back(path, len(GROUPS))
    with pytest.raises(DataCorrupted, match="fails its checksum"):
        found(path)
    assert list(path.parent.iterdir()) == [path]


def test_other_damage_to_a_commit_head_is_refused_or_harmless(path: Path) -> None:
    raw = path.read_bytes()
    refused_count = 0
    for place in (*range(0, 152, 2), *range(PAGE + 1, PAGE + 152, 2)):
        put(path, flipped(raw, place, place % 8))
        refused_count += is_refused(path, found)
    assert refused_count > 20


@pytest.mark.parametrize("is_copied", [False, True])
def test_the_rest_of_a_group_behind_the_pages_that_a_head_counts_is_read_and_stays(
    path: Path, is_copied: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One page too few: LMDB would map the file without the last one, which killed the process
    where nothing else lay behind in memory; and it was cut off as if it were room."""
    monkeypatch.setattr(log_module, "SHORT_BYTES_MAX", 1 << 30 if is_copied else 0)
    monkeypatch.setattr(log_module, "SHORT_MIN", 1)
    raw = bytearray(path.read_bytes())
    head = PAGE * (len(GROUPS) % 2)
    (last_page,) = struct.unpack_from("=Q", raw, head + 136)
    assert last_page + 1 == len(raw) // PAGE
    assert raw[-PAGE:].strip(b"\0"), "a group ends there"
    struct.pack_into("=Q", raw, head + 136, last_page - 1)
    put(path, bytes(raw))
    for _ in range(3):
        assert found(path) == WHOLE
    assert is_refused(path, lambda it: verify_log(it.parent.parent)) == (not is_copied)


def test_damage_to_a_group_is_reported_with_file_group_and_byte(path: Path) -> None:
    raw = path.read_bytes()
    for index, value in enumerate(groups_of(GROUPS).values(), 1):
        if len(value) < PAGE:  # it shares a page, of which there may be older ones
            continue
        begin = raw.index(value)
        for place in random.Random(begin).sample(range(begin, begin + len(value)), 3):
            put(path, flipped(raw, place, place % 8))
            with pytest.raises(DataCorrupted) as caught:
                found(path)
            assert caught.value.attributes == {"path": str(path), "group": index, "byte": begin}


# What an operator asks for


def test_a_sound_log_is_described(tmp_path: Path) -> None:
    log = CellLog.open(tmp_path, 1 << 20)
    fill(log, range(1, 21))
    size_bytes = log.size_bytes()
    log.close()
    file_count = len(list((tmp_path / LOG_NAME).iterdir()))
    assert file_count > 3
    assert verify_log(tmp_path) == LogSummary(file_count, 1, 22, 22, 2, size_bytes)
    log = CellLog.open(tmp_path, 1 << 20)
    list(log.survey())
    log.truncate_before(20)
    file_count = len(list((tmp_path / LOG_NAME).iterdir()))
    first_index = int(min((tmp_path / LOG_NAME).iterdir()).stem)
    size_bytes = log.size_bytes()
    log.close()
    count = 23 - first_index
    assert verify_log(tmp_path) == LogSummary(file_count, first_index, count, count, 1, size_bytes)


def test_verifying_changes_nothing(path: Path) -> None:
    before = path.read_bytes()
    verify_log(path.parent.parent)
    assert path.read_bytes() == before
    assert list(path.parent.iterdir()) == [path]


def test_verifying_also_checks_groups_that_recovery_skips(tmp_path: Path) -> None:
    groups = groups_of([[rows(1)], [Checkpoint(1)]], first_index=5)
    first = next(iter(groups))
    groups[first] = groups[first][:-1]
    path = tmp_path / LOG_NAME / f"{5:020}.mdb"
    write_file(path, groups)
    renew_bounds(tmp_path)
    assert found(path) == [Checkpoint(1)]
    with pytest.raises(DataCorrupted, match="fails its checksum") as caught:
        verify_log(tmp_path)
    assert caught.value.attributes["group"] == 5


def test_a_log_without_beginning_does_not_pass(tmp_path: Path) -> None:
    write_file(tmp_path / LOG_NAME / f"{5:020}.mdb", groups_of([[rows(1)]], first_index=5))
    renew_bounds(tmp_path)
    with pytest.raises(DataCorrupted, match="no first group and no checkpoint"):
        verify_log(tmp_path)


def test_a_missing_file_is_found(tmp_path: Path) -> None:
    log = CellLog.open(tmp_path, 1 << 20)
    fill(log, range(1, 13))
    log.close()
    sorted((tmp_path / LOG_NAME).iterdir())[2].unlink()
    with pytest.raises(DataCorrupted, match="is missing"):
        verify_log(tmp_path)


def test_damage_anywhere_is_found_or_does_no_harm(path: Path) -> None:
    """Also in pages of the engine's own that a recovery trusts: these are looked at first."""
    raw = path.read_bytes()
    random_ = random.Random(1)
    places = [random_.randrange(2 * PAGE, len(raw)) for _ in range(60)]
    places += [at + random_.randrange(40) for at in range(2 * PAGE, len(raw), PAGE)]
    refused_count = 0
    for place in places:
        put(path, flipped(raw, place, place % 8))
        refused_count += is_refused(path, lambda it: verify_log(it.parent.parent))
    assert refused_count > len(places) / 2
