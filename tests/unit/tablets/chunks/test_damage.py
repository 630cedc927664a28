"""Damaged chunks: an error that says where, or the right answer, and never a wrong one."""

from collections.abc import Callable
from itertools import chain
from typing import Any

import pytest
from msgspec.structs import astuple, replace

from dodona.errors import DataCorrupted
from dodona.keys import successor
from dodona.schema import Column, TableSchema
from dodona.types import KEY_MAX, KEY_MIN, SYNC_LAST_COMMITTED, Key, Timestamp
from dodona_tablets.core.rows.chunks import checking
from dodona_tablets.core.rows.chunks.checking import check_chunk
from dodona_tablets.core.rows.chunks.chunk import Chunk
from dodona_tablets.core.rows.chunks.index import ChunkIndex, decode_index, encode_index
from dodona_tablets.core.rows.chunks.info import AttachedChunk, ChunkInfo
from dodona_tablets.core.rows.chunks.reading import versions_of
from dodona_tablets.core.rows.chunks.statistics import measure
from dodona_tablets.core.rows.chunks.view import ChunkView
from dodona_tablets.core.rows.version import Version
from unit.tablets.chunks.making import Made, Rows, key, made_of, small_blocks

SMALL = TableSchema.parse([Column("id", "int64", sort_order="ascending"), Column("a", "utf8")])
ROWS: Rows = {
    key(1): [(Timestamp(30), 1, ("new",), None), (Timestamp(20), 1, ("old",), None)],
    key(2): [(Timestamp(25), 0, (), None), (Timestamp(15), 1, (None,), None)],
    key(3): [(Timestamp(40), 1, ("",), None)],
}
ABSENT = [key(0), key(5), Key(key(2) + b"\x00")]


@pytest.fixture(scope="module")
def chunk() -> Made:
    with small_blocks(3):
        return made_of(ROWS, SMALL)


def answers(made: Made) -> dict[Key, list[Version] | None]:
    """What can be asked of a chunk, by lookups and by walks; None where there is no answer."""
    found: dict[Key, list[Version] | None] = dict.fromkeys((*ROWS, *ABSENT))
    try:
        view = made.view(SMALL)
    except DataCorrupted:
        return found
    for row in found:
        try:
            found[row] = view.versions(row, SYNC_LAST_COMMITTED)
            if found[row]:
                walked = [versions_of(SMALL, it) for it in view.batches(row, successor(row))]
                assert [it[1] for it in chain.from_iterable(walked)] == found[row]
        except DataCorrupted:
            found[row] = None
    return found


def damaged(raw: bytes, place: int) -> bytes:
    """With one bit wrong."""
    return raw[:place] + bytes([raw[place] ^ 1 << place % 8]) + raw[place + 1 :]


def test_no_damaged_byte_of_a_file_makes_a_wrong_answer(chunk: Made) -> None:
    right = answers(chunk)
    assert right == {**ROWS, **{row: [] for row in ABSENT}}
    refused = 0
    for place in range(len(chunk.data)):
        found = answers(chunk._replace(data=damaged(chunk.data, place)))
        assert all(found[row] in (None, right[row]) for row in right)
        refused += None in found.values()
    blocks = chunk.open().index.blocks
    assert refused == sum(it.size_bytes for it in blocks)  # nobody's answer is outside of them


def test_no_damaged_byte_of_an_index_is_believed(chunk: Made) -> None:
    for place in range(len(chunk.raw_index)):
        found = answers(chunk._replace(raw_index=damaged(chunk.raw_index, place)))
        assert set(map(type, found.values())) == {type(None)}


def test_the_check_finds_every_damaged_byte(chunk: Made) -> None:
    check_chunk(chunk.open())
    for place in range(len(chunk.data)):
        broken = chunk._replace(data=damaged(chunk.data, place)).open()
        with pytest.raises(DataCorrupted) as caught:
            check_chunk(broken)
        assert caught.value.attributes["offset_bytes"] <= place


def test_a_checksum_error_names_the_chunk_and_the_block(chunk: Made) -> None:
    opened = chunk.open()
    info = opened.index.blocks[1]
    broken = chunk._replace(data=damaged(chunk.data, info.offset + 200))
    view = ChunkView(
        Chunk(chunk.info, broken.data, chunk.raw_index, "chunks/7.arrow"),
        AttachedChunk(chunk.info),
        SMALL,
    )
    assert view.versions(key(1), SYNC_LAST_COMMITTED) == ROWS[key(1)]
    with pytest.raises(DataCorrupted, match="a block fails its checksum") as caught:
        view.versions(key(2), SYNC_LAST_COMMITTED)
    assert caught.value.attributes == {
        "path": "chunks/7.arrow",
        "chunk": 7,
        "block": 1,
        "offset_bytes": info.offset,
        "size_bytes": info.size_bytes,
    }


@pytest.mark.parametrize("part", ["data", "raw_index"])
def test_a_truncated_file_is_refused(chunk: Made, part: str) -> None:
    raw = getattr(chunk, part)
    for length in range(len(raw)):
        with pytest.raises(DataCorrupted):
            chunk._replace(**{part: raw[:length]}).open()
    with pytest.raises(DataCorrupted):
        chunk._replace(**{part: raw + b"\x00"}).open()


def test_files_of_another_chunk_are_refused(chunk: Made) -> None:
    other = made_of({row: [(Timestamp(6), 1, ("a",), None)] for row in ROWS}, SMALL, number=8)
    with pytest.raises(DataCorrupted, match="another chunk"):
        chunk._replace(raw_index=other.raw_index).open()
    alike = made_of({row: [(Timestamp(6), 1, ("b",), None)] for row in ROWS}, SMALL, number=8)
    assert len(alike.data) == len(other.data)
    view = other._replace(data=alike.data).view(SMALL)
    with pytest.raises(DataCorrupted, match="checksum"):
        view.versions(key(1), SYNC_LAST_COMMITTED)


def test_an_index_of_a_later_version_is_refused(chunk: Made) -> None:
    with pytest.raises(DataCorrupted, match="version 9"):
        chunk._replace(raw_index=b"\x09" + chunk.raw_index[1:]).open()


def test_an_index_that_does_not_decode_is_refused(chunk: Made) -> None:
    index, _ = decode_index(chunk.raw_index, "")
    raw, _ = encode_index(replace(index, layout="strange"))
    with pytest.raises(DataCorrupted, match="does not decode"):
        decode_index(raw, "here")


# What only the check can find: an index that is whole, and wrong


def rewritten(chunk: Made, change: Callable[[ChunkIndex], ChunkIndex]) -> Chunk:
    index = change(decode_index(chunk.raw_index, "")[0])
    raw, checksum = encode_index(index)
    info = replace(index.describe(checksum), garbage_count=chunk.info.garbage_count)
    return Chunk(info, chunk.data, raw)


def in_first_block(**changes: Any) -> Callable[[ChunkIndex], ChunkIndex]:
    return lambda it: replace(it, blocks=(replace(it.blocks[0], **changes), *it.blocks[1:]))


@pytest.mark.parametrize(
    "change",
    [
        in_first_block(row_count=3),
        in_first_block(key_count=2),
        in_first_block(lower=key(0)),
        in_first_block(upper=key(2)),
        in_first_block(min_timestamp=Timestamp(9)),
        in_first_block(max_timestamp=Timestamp(31)),
        in_first_block(bloom=memoryview(bytes(8))),
        lambda it: replace(it, garbage_count=it.garbage_count + 1),
        lambda it: replace(it, head_crc32=it.head_crc32 ^ 1),
        lambda it: replace(it, tail_crc32=it.tail_crc32 ^ 1),
        lambda it: replace(it, blocks=it.blocks[:1]),
        lambda it: replace(it, blocks=it.blocks[::-1]),
        lambda it: replace(it, blocks=(it.blocks[0], it.blocks[0], *it.blocks[1:])),
    ],
)
def test_the_check_finds_a_wrong_index(
    chunk: Made, change: Callable[[ChunkIndex], ChunkIndex]
) -> None:
    with pytest.raises(DataCorrupted):
        check_chunk(rewritten(chunk, change))
    check_chunk(rewritten(chunk, lambda it: it))


def test_the_check_finds_a_wrong_description(chunk: Made) -> None:
    wrong = ChunkInfo(*astuple(chunk.info))
    wrong = replace(wrong, row_count=wrong.row_count + 1)
    with pytest.raises(DataCorrupted, match="statistics"):
        check_chunk(Chunk(wrong, chunk.data, chunk.raw_index))


def test_the_check_finds_rows_out_of_order(chunk: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    def misplaced(*arguments: Any) -> Any:
        return measure(*arguments)._replace(misplaced_row=2)

    monkeypatch.setattr(checking, "measure", misplaced)
    with pytest.raises(DataCorrupted, match="out of order") as caught:
        check_chunk(chunk.open())
    assert caught.value.attributes["row"] == 2


def test_a_read_outside_the_bounds_of_a_chunk_reads_no_block(chunk: Made) -> None:
    """What the index alone can answer needs no block."""
    view = chunk._replace(data=bytes(len(chunk.data))).view(SMALL)
    assert view.versions(key(0), SYNC_LAST_COMMITTED) == []
    assert view.versions(key(1), Timestamp(4)) == []
    assert list(view.batches(KEY_MIN, key(1))) == []
    with pytest.raises(DataCorrupted):
        list(view.batches(KEY_MIN, KEY_MAX))
