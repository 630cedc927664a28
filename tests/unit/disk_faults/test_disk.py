"""The disk that power cuts are imagined on keeps what it must, may lose the rest, and tears it."""

from collections.abc import Iterator, Sequence
from random import Random

import pytest

from disk_faults.cuts import cuts_of
from disk_faults.disk import SECTOR_BYTES, Disk, Drawn, Dropped, Kept
from disk_faults.images import PAGE_BYTES, Content, Image, read_image, write_image
from disk_faults.operations import (
    ROOT,
    Made,
    Mapped,
    Marked,
    Operation,
    Removed,
    Renamed,
    Resized,
    Synced,
    SyncFailed,
    Written,
)

FILE, OTHER, FOLDER = 1, 2, 3
NAMED: list[Operation] = [Made(ROOT, "file", FILE), Synced(ROOT)]
OLD, NEW = b"o" * PAGE_BYTES, b"n" * PAGE_BYTES
DURABLE: list[Operation] = [*NAMED, Written(FILE, 0, OLD), Synced(FILE)]
DRAWS = 200


def disk_after(operations: Sequence[Operation]) -> Disk:
    disk = Disk()
    disk.do(operations)
    return disk


def found(image: Image) -> dict[str, bytes]:
    return {name: content.data() for name, content in image.files.items()}


def lost(operations: Sequence[Operation]) -> dict[str, bytes]:
    return found(disk_after(operations).image(Dropped()))


def kept(operations: Sequence[Operation]) -> dict[str, bytes]:
    return found(disk_after(operations).image(Kept()))


def drawn(operations: Sequence[Operation]) -> Iterator[dict[str, bytes]]:
    disk = disk_after(operations)
    for seed in range(DRAWS):
        yield found(disk.image(Drawn(Random(seed))))


# Bytes


def test_a_power_cut_may_lose_unsynced_bytes_and_keeps_synced_bytes() -> None:
    assert lost([*NAMED, Written(FILE, 0, b"x")]) == {"file": b""}
    assert kept([*NAMED, Written(FILE, 0, b"x")]) == {"file": b"x"}
    assert lost([*NAMED, Written(FILE, 0, b"x"), Synced(FILE)]) == {"file": b"x"}
    behind: list[Operation] = [Written(FILE, 0, b"x"), Synced(FILE), Written(FILE, 1, b"y")]
    assert lost([*NAMED, *behind]) == {"file": b"x"}


def test_a_descriptor_that_syncs_itself_syncs_no_other_page() -> None:
    writes: list[Operation] = [
        Written(FILE, 2 * PAGE_BYTES, b"far"),
        Written(FILE, 0, b"near", is_synced=True),
    ]
    assert lost([*NAMED, *writes]) == {"file": b"near"}
    assert lost([*DURABLE, *writes]) == {"file": b"near" + OLD[4:]}
    assert len(kept([*NAMED, *writes])["file"]) == 2 * PAGE_BYTES + 3


def test_a_page_is_torn_between_sectors_only() -> None:
    states = {content["file"] for content in drawn([*DURABLE, Written(FILE, 0, NEW)])}
    sectors = {
        state[at : at + SECTOR_BYTES]
        for state in states
        for at in range(0, PAGE_BYTES, SECTOR_BYTES)
    }
    assert sectors == {OLD[:SECTOR_BYTES], NEW[:SECTOR_BYTES]}
    assert {OLD, NEW} < states


def test_of_a_sector_that_was_written_twice_any_version_may_be_there() -> None:
    writes: list[Operation] = [Written(FILE, 0, b"1"), Written(FILE, 0, b"2")]
    first = {content["file"][:1] for content in drawn([*DURABLE, *writes])}
    assert first == {b"o", b"1", b"2"}


def test_a_power_cut_may_leave_zeros_where_written_bytes_are_lost() -> None:
    states = {content["file"] for content in drawn([*NAMED, Written(FILE, 0, NEW)])}
    assert bytes(PAGE_BYTES) in states
    assert {b"", NEW} < states


def test_a_file_that_is_cut_off_and_written_again_may_be_empty() -> None:
    writes: list[Operation] = [Resized(FILE, 0), Written(FILE, 0, b"n")]
    states = {content["file"] for content in drawn([*DURABLE, *writes])}
    assert {b"", b"n", OLD} < states
    assert lost([*DURABLE, *writes, Synced(FILE)]) == {"file": b"n"}


def test_bytes_removed_by_a_resize_do_not_return_when_the_file_grows() -> None:
    grown: list[Operation] = [
        Resized(FILE, 10),
        Synced(FILE),
        Resized(FILE, PAGE_BYTES),
        Synced(FILE),
    ]
    assert lost([*DURABLE, *grown]) == {"file": OLD[:10] + bytes(PAGE_BYTES - 10)}


def test_bytes_of_a_failed_sync_may_be_lost_even_after_a_later_sync() -> None:
    failed: list[Operation] = [*DURABLE, Written(FILE, 0, NEW), SyncFailed(FILE)]
    later: list[Operation] = [*failed, Synced(FILE), Written(FILE, PAGE_BYTES, NEW), Synced(FILE)]
    assert kept(later)["file"] == NEW + NEW
    assert lost(later)["file"] == OLD + NEW
    mended: list[Operation] = [*failed, Written(FILE, 0, b"m"), Synced(FILE)]
    assert lost(mended)["file"] == b"m" + NEW[1:]


# Names


def test_a_file_name_is_not_durable_before_its_folder_is_synced() -> None:
    made: list[Operation] = [Made(ROOT, "other", OTHER), Written(OTHER, 0, b"x"), Synced(OTHER)]
    assert "other" not in lost([*DURABLE, *made])
    assert lost([*DURABLE, *made, Synced(ROOT)])["other"] == b"x"
    names = {tuple(sorted(content)) for content in drawn([*DURABLE, *made])}
    assert names == {("file",), ("file", "other")}


def test_files_in_a_folder_are_lost_unless_the_parent_folder_is_synced() -> None:
    made: list[Operation] = [
        Made(ROOT, "folder", FOLDER, is_folder=True),
        Made(FOLDER, "x", OTHER),
        Synced(FOLDER),
    ]
    assert lost(made) == {}
    assert lost([*made, Synced(ROOT)]) == {"folder/x": b""}
    assert disk_after(made).image(Kept()).folders == ("folder",)


def test_a_removed_file_may_be_there_still() -> None:
    removed: list[Operation] = [*DURABLE, Removed(ROOT, "file")]
    assert lost(removed) == {"file": OLD}
    assert kept(removed) == {}
    assert lost([*removed, Synced(ROOT)]) == {}


def test_a_rename_happens_wholly_or_not_at_all() -> None:
    renamed: list[Operation] = [
        *DURABLE,
        Made(ROOT, "other", OTHER),
        Written(OTHER, 0, NEW),
        Synced(OTHER),
        Renamed(ROOT, "other", "file"),
    ]
    states = [tuple(content.items()) for content in drawn(renamed)]
    assert set(states) == {
        (("file", OLD),),
        (("file", OLD), ("other", NEW)),
        (("file", NEW),),
    }


def test_a_name_change_survives_only_with_its_preceding_changes() -> None:
    changes: list[Operation] = [
        Made(ROOT, "a", OTHER),
        Renamed(ROOT, "a", "b"),
        Removed(ROOT, "b"),
        Made(ROOT, "b", FILE),
    ]
    names = {tuple(sorted(content)) for content in drawn(changes)}
    assert names == {(), ("a",), ("b",)}


def test_a_memory_mapped_file_may_hold_anything_after_a_power_cut() -> None:
    states = {content["file"] for content in drawn([*DURABLE, Mapped(FILE)])}
    assert len(states) > DRAWS // 2


# Cuts


def test_a_cut_is_made_while_an_operation_is_under_way() -> None:
    operations: list[Operation] = [
        *NAMED,
        Written(FILE, 0, b"x", is_synced=True),
        Marked(b"durable"),
    ]
    cuts = list(cuts_of(operations, seed=1))
    first = next(cut for cut in cuts if found(cut.image).get("file") == b"x")
    assert (first.at, first.mark_count) == (len(NAMED), 0)
    afterwards = [cut for cut in cuts if cut.mark_count == 1]
    assert [found(cut.image) for cut in afterwards] == [{"file": b"x"}]


def test_cuts_of_a_seed_are_the_same_each_time_and_no_two_are_alike() -> None:
    operations: list[Operation] = [
        *NAMED,
        *(Written(FILE, at * PAGE_BYTES, NEW) for at in range(5)),
        Synced(FILE),
    ]
    cuts = list(cuts_of(operations, seed=1))
    assert cuts == list(cuts_of(operations, seed=1))
    assert cuts != list(cuts_of(operations, seed=2))
    assert len({cut.image.fingerprint() for cut in cuts}) == len(cuts) > 10


# Images


@pytest.mark.parametrize("data", [b"", b"x", bytes(10_000), NEW + bytes(PAGE_BYTES) + b"end"])
def test_an_image_is_written_and_read_back_unchanged(
    tmp_path_factory: pytest.TempPathFactory, data: bytes
) -> None:
    folder = tmp_path_factory.mktemp("image")
    image = Image(("a", "a/b"), {"a/b/file": Content.of(data), "c": Content.of(b"c")})
    write_image(image, folder)
    assert (folder / "a" / "b" / "file").read_bytes() == data == image.files["a/b/file"].data()
    again = read_image(folder)
    assert again == image
    assert again.fingerprint() == image.fingerprint()
    other = Image(image.folders, {**image.files, "c": Content.of(b"d")})
    assert other.fingerprint() != image.fingerprint()
