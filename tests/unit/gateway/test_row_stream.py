"""Rows that come in pieces: cut anywhere, damaged, too long, and promising more than they bring."""

import tracemalloc
from itertools import pairwise
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dodona.errors import InvalidRequest, LimitExceeded
from dodona_gateway.core.row_stream import BatchReader, LinesOfJson, PackedRows, reader_of

ROWS: list[dict[str, Any]] = [
    {"id": 1, "text": "ä" * 20, "raw": b"\xff", "any": {"$x": [1, {"y": None}]}},
    {},
    {"id": -(1 << 63), "nothing": None, "double": 0.5, "large": (1 << 64) - 1},
]
PACKED = b"".join(map(msgspec.msgpack.encode, ROWS))
LINES = (
    b'{"id": 1, "text": "' + "ä".encode() * 20 + b'", "raw": {"$base64": "/w=="},'
    b' "any": {"$x": [1, {"y": null}]}}\n\r\n{}\n \n'
    b'{"id": -9223372036854775808, "nothing": null, "double": 0.5, "large": 18446744073709551615}'
)
STREAMS: dict[type[Any], bytes] = {PackedRows: PACKED, LinesOfJson: LINES}
AS_JSON = [ROWS[0] | {"raw": {"$base64": "/w=="}}, *ROWS[1:]]
"""What the lines have: columns say what an object with a reserved name is."""
READ: dict[type[Any], list[dict[str, Any]]] = {PackedRows: ROWS, LinesOfJson: AS_JSON}
KINDS = sorted(STREAMS, key=lambda it: it.__name__)

kinds = pytest.mark.parametrize("kind", KINDS)


def read(reader: BatchReader, *parts: bytes) -> list[Any]:
    rows = [row for part in parts for row in reader.feed(part)]
    return rows + reader.finish()


@kinds
@given(cuts=st.lists(st.integers(0, max(map(len, STREAMS.values()))), max_size=5))
def test_a_stream_may_be_cut_anywhere(kind: type[Any], cuts: list[int]) -> None:
    stream = STREAMS[kind]
    ends = [0, *sorted(cuts), len(stream)]
    parts = [stream[a:b] for a, b in pairwise(ends)]
    assert read(kind(), *parts) == READ[kind]


@kinds
def test_a_row_stream_can_arrive_byte_by_byte_or_be_empty(kind: type[Any]) -> None:
    stream = STREAMS[kind]
    assert read(kind(), *[stream[it : it + 1] for it in range(len(stream))]) == READ[kind]
    assert read(kind()) == []
    assert read(kind(), b"", b"") == []


def test_a_body_that_ends_within_a_row_is_no_body() -> None:
    ends = [len(msgspec.msgpack.encode(ROWS[0])), len(msgspec.msgpack.encode(ROWS[0])) + 1]
    for length in range(len(PACKED)):
        reader = PackedRows()
        reader.feed(PACKED[:length])
        if length in (0, *ends):
            assert reader.finish() == []
            continue
        with pytest.raises(InvalidRequest, match="ends within a row"):
            reader.finish()


def test_a_last_line_that_is_cut_is_no_line() -> None:
    reader = LinesOfJson()
    reader.feed(LINES[:-1])
    with pytest.raises(InvalidRequest, match="not a JSON object") as refused:
        reader.finish()
    assert refused.value.attributes["row_index"] == 2


@pytest.mark.parametrize(
    ("kind", "row"),
    [
        (PackedRows, b"\xc1"),
        (PackedRows, b"\x01"),
        (PackedRows, b"\x90"),
        (PackedRows, b"\x81\x01\x02"),
        (PackedRows, b"\x81\xa1\xff\x02"),
        (PackedRows, b"\x81\xa1a\xa1\xff"),
        (PackedRows, b"\x81\xa1a\x81\x90\x81\x80\x01"),
        (PackedRows, b"\x81\xa1a\xc7\x00\xff"),
        (PackedRows, b"\x81\xa1a" + b"\x91" * 5000 + b"\x01"),
        (LinesOfJson, b"1\n"),
        (LinesOfJson, b"[]\n"),
        (LinesOfJson, b"{} {}\n"),
        (LinesOfJson, b"{\n"),
        (LinesOfJson, b"\xff\n"),
        (LinesOfJson, b'{"a": NaN}\n'),
        (LinesOfJson, b'{"a": "\\ud800"}\n'),
        (LinesOfJson, b'{"a": 1' + b"0" * 5000 + b"}\n"),
        (LinesOfJson, b'{"a": 1e999}\n'),
        (LinesOfJson, b'{"a": ' + b"[" * 5000 + b"\n"),
        (LinesOfJson, b'{"$base64": "/w=="}\n'),
        (LinesOfJson, b'{"$double": "number"}\n'),
    ],
)
@pytest.mark.parametrize("is_whole", [True, False])
def test_an_invalid_row_in_a_stream_is_refused_with_its_row_index(
    kind: type[Any], row: bytes, is_whole: bool
) -> None:
    good = msgspec.msgpack.encode({"a": 1}) if kind is PackedRows else b'{"a": 1}\n'
    with pytest.raises(InvalidRequest) as refused:
        read(kind(), *([good + good + row] if is_whole else [good, good, row]))
    assert refused.value.attributes == {"row_index": 2}


@kinds
def test_a_row_over_the_size_limit_is_refused_in_one_part_or_in_several(kind: type[Any]) -> None:
    def row(length: int) -> bytes:
        text = "x" * length
        return (
            msgspec.msgpack.encode({"a": text})
            if kind is PackedRows
            else b'{"a":"%s"}' % (text.encode())
        )

    spare = 6 if kind is PackedRows else 8
    fits = row(1000 - spare)
    assert len(fits) == 1000
    end = b"" if kind is PackedRows else b"\n"
    assert len(read(kind(1000), fits + end, fits + end + fits)) == 3
    for parts in ([row(1001 - spare) + end], [row(3000)[:2000]], [row(3000)[:600]] * 2):
        with pytest.raises(LimitExceeded, match="at most 1000 bytes") as refused:
            read(kind(1000), end.join([fits, b""]), *parts)
        assert refused.value.attributes["row_index"] == 1


@pytest.mark.parametrize(
    "promise",
    [
        b"\xdd\xff\xff\xff\xff" * 500,
        b"\xdf\xff\xff\xff\xff" * 500,
        b"\x81\xa1a\xc6\xff\xff\xff\xff",
        b"\x81\xa1a\xdb\xff\xff\xff\xff",
        b"\x81\xa1a\xc9\xff\xff\xff\xff\x00",
        b"\x81\xa1a" + b"\x91" * 400 + b"\xdd\x7f\xff\xff\xff",
    ],
)
def test_a_false_length_in_a_row_stream_allocates_little_memory(promise: bytes) -> None:
    reader = PackedRows()
    reader.feed(msgspec.msgpack.encode({"a": 1}))
    tracemalloc.start()
    try:
        with pytest.raises(InvalidRequest):
            read(reader, promise)
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


@kinds
def test_a_row_reader_does_not_keep_earlier_rows_in_memory(kind: type[Any]) -> None:
    reader = kind()
    tracemalloc.start()
    try:
        for _ in range(200):
            assert len(reader.feed(STREAMS[kind] + b"\n" * (kind is LinesOfJson))) == len(ROWS)
        small = msgspec.msgpack.encode({"a": "x" * 20}) if kind is PackedRows else b'{"a": 1}\n'
        for _ in range(100):
            reader.feed(small * 1000)
        assert tracemalloc.get_traced_memory()[0] < 1 << 20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("kind", ["msgpack", "ndjson"])
@given(noise=st.binary(max_size=60), cut=st.integers(0, 60))
def test_noise_is_rows_or_a_refusal(kind: Any, noise: bytes, cut: int) -> None:
    try:
        rows = read(reader_of(kind), noise[:cut], noise[cut:])
    except InvalidRequest:
        return
    assert all(type(row) is dict for row in rows)
