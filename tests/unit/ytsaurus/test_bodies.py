"""Bodies: unpacked piece by piece however they are cut, and bounded; rows counted."""

import gzip
import zlib
from collections.abc import Callable
from typing import Any

import brotli
import pytest

from dodona.errors import InvalidRequest, LimitExceeded, UnsupportedMediaType
from dodona_gateway.core.unpacking import PIECE_BYTES_MAX, unpacker_of
from dodona_ytsaurus.terms.bodies import (
    BODY_BYTES_MAX,
    VALUES_MAX,
    check_size,
    check_values,
    count_values,
)
from dodona_ytsaurus.yson import Attributed

PACKED: list[tuple[str | None, Callable[[bytes], bytes]]] = [
    ("gzip", gzip.compress),
    ("gzip", zlib.compress),
    (" GZIP ", zlib.compress),
    ("deflate", zlib.compress),
    ("br", brotli.compress),
    ("identity", lambda it: it),
    (None, lambda it: it),
]


def unpacked(encoding: str | None, content: bytes, step: int) -> bytes:
    unpacker = unpacker_of(encoding)
    parts = [content[at : at + step] for at in range(0, len(content), step)]
    whole = b"".join(piece for part in parts for piece in unpacker.feed(part))
    unpacker.finish()
    return whole


@pytest.mark.parametrize(("encoding", "pack"), PACKED)
@pytest.mark.parametrize("step", [1, 7, 1 << 20])
def test_a_body_is_unpacked_from_parts_of_any_size(
    encoding: str | None, pack: Callable[[bytes], bytes], step: int
) -> None:
    content = bytes(range(256)) * 40
    assert unpacked(encoding, pack(content), step) == content
    assert unpacked(encoding, pack(b""), step) == b""


@pytest.mark.parametrize(("encoding", "pack"), PACKED[:5])
def test_a_bomb_comes_in_pieces_of_bounded_length(
    encoding: str, pack: Callable[[bytes], bytes]
) -> None:
    packed = pack(bytes(20 << 20))
    assert len(packed) < 100_000
    sizes = [len(piece) for piece in unpacker_of(encoding).feed(packed)]
    assert sum(sizes) == 20 << 20
    assert max(sizes) <= 2 * PIECE_BYTES_MAX


def test_an_uncompressed_part_is_cut_into_pieces_of_bounded_size() -> None:
    sizes = [len(piece) for piece in unpacker_of(None).feed(bytes(PIECE_BYTES_MAX * 2 + 1))]
    assert sizes == [PIECE_BYTES_MAX, PIECE_BYTES_MAX, 1]


@pytest.mark.parametrize(("encoding", "pack"), PACKED[:5])
def test_a_truncated_compressed_body_is_refused(
    encoding: str, pack: Callable[[bytes], bytes]
) -> None:
    packed = pack(b"some rows" * 100)
    for length in range(1, len(packed)):
        with pytest.raises(InvalidRequest):
            unpacked(encoding, packed[:length], 1 << 20)


@pytest.mark.parametrize(("encoding", "pack"), PACKED[:5])
@pytest.mark.parametrize("step", [1, 1 << 20])
def test_garbage_is_refused(encoding: str, pack: Callable[[bytes], bytes], step: int) -> None:
    for content in (b"garbage!", pack(b"rows") + b"garbage!", b"\x00" * 10):
        with pytest.raises(InvalidRequest, match=r"The body is n|is cut"):
            unpacked(encoding, content, step)


@pytest.mark.parametrize("step", [1, 5, 1 << 20])
def test_members_of_gzip_follow_each_other(step: int) -> None:
    assert unpacked("gzip", gzip.compress(b"a") + gzip.compress(b"b"), step) == b"ab"


def test_other_packings() -> None:
    for name in ("z-lz4", "zstd", "gzip, br", "x" * 1_000):
        with pytest.raises(UnsupportedMediaType) as refused:
            unpacker_of(name)
        assert len(refused.value.message) < 150


def test_bounds() -> None:
    check_size(BODY_BYTES_MAX)
    check_size(10, 10)
    check_values(VALUES_MAX)
    with pytest.raises(LimitExceeded):
        check_size(BODY_BYTES_MAX + 1)
    with pytest.raises(LimitExceeded):
        check_size(11, 10)
    with pytest.raises(LimitExceeded):
        check_values(VALUES_MAX + 1)


@pytest.mark.parametrize(
    ("rows", "count"),
    [
        ([], 0),
        ([{}], 0),
        ([{"a": 1, "b": None}, {"a": b"x"}], 3),
        ([{"a": [1, 2, [3]]}], 1 + 3 + 1),
        ([{"a": {"b": {"c": 1, "d": 2}}}], 1 + 1 + 2),
        ([{"a": Attributed([1, 2], {"x": [1]})}], 1 + (1 + 1) + (1 + 2)),
        ([{"a": [Attributed(1, {"x": 1, "y": 2})]}], 1 + 1 + 2 + 1),
    ],
)
def test_values_are_counted_at_all_levels(rows: list[Any], count: int) -> None:
    assert count_values(rows) == count


@pytest.mark.parametrize("row", [5, None, "x", [1], Attributed({"k": 1}, {"a": 1})])
def test_a_row_is_a_map(row: Any) -> None:
    with pytest.raises(InvalidRequest, match="A row must be a map without attributes"):
        count_values([{"k": 1}, row])
