"""Arrow streams that come in pieces: cut anywhere, damaged, and promising more than they bring."""

import tracemalloc
from itertools import pairwise
from random import Random
from typing import Any

import pyarrow
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dodona.errors import InvalidRequest, LimitExceeded
from dodona_gateway.core.arrow_stream import BATCH_ROWS_MAX, END, ArrowStream
from dodona_gateway.core.row_stream import reader_of

TABLE = pyarrow.table({"id": [1, 2, 3, 4, 5], "text": ["a", None, "ccc", "", "e" * 50]})


def stream_of(table: Any, *, batch_rows: int = 2, **options: Any) -> bytes:
    sink = pyarrow.BufferOutputStream()
    chosen = pyarrow.ipc.IpcWriteOptions(**options)
    with pyarrow.ipc.new_stream(sink, table.schema, options=chosen) as writer:
        writer.write_table(table, max_chunksize=batch_rows)
    content: bytes = sink.getvalue().to_pybytes()
    return content


STREAM = stream_of(TABLE)


def read(*parts: bytes, reader: ArrowStream | None = None) -> list[Any]:
    stream = reader or ArrowStream()
    batches = [batch for part in parts for batch in stream.feed(part)]
    stream.finish()
    return batches


def joined(batches: list[Any]) -> Any:
    return pyarrow.Table.from_batches(batches, TABLE.schema)


@given(st.lists(st.integers(0, len(STREAM)), max_size=5))
def test_a_stream_may_be_cut_anywhere(cuts: list[int]) -> None:
    ends = [0, *sorted(cuts), len(STREAM)]
    batches = read(*[STREAM[a:b] for a, b in pairwise(ends)])
    assert joined(batches) == TABLE
    assert [it.num_rows for it in batches] == [2, 2, 1]


def test_an_arrow_stream_is_read_byte_by_byte_and_without_its_end_mark() -> None:
    assert joined(read(*[STREAM[it : it + 1] for it in range(len(STREAM))])) == TABLE
    assert STREAM.endswith(END)
    assert joined(read(STREAM[: -len(END)])) == TABLE
    assert read(stream_of(TABLE.slice(0, 0))) == []


def test_an_arrow_stream_cut_inside_a_message_is_refused() -> None:
    ends = message_ends(STREAM)
    for length in range(len(STREAM)):
        if length in ends:  # of the schema, and of each batch
            assert len(read(STREAM[:length])) == ends.index(length)
            continue
        with pytest.raises(InvalidRequest, match="is cut or empty"):
            read(STREAM[:length])


def test_the_arrow_body_reader_refuses_an_empty_stream_at_its_end() -> None:
    reader = reader_of("arrow")
    assert joined(reader.feed(STREAM)) == TABLE
    assert reader.finish() == []
    with pytest.raises(InvalidRequest, match="is cut or empty"):
        reader_of("arrow").finish()


@pytest.mark.parametrize("more", [b"x", b"x" * 8, b"x" * 9, STREAM, END])
@pytest.mark.parametrize("is_apart", [True, False])
def test_nothing_may_follow_the_end(more: bytes, is_apart: bool) -> None:
    with pytest.raises(InvalidRequest, match="more bytes after the end"):
        read(*([STREAM, more] if is_apart else [STREAM + more]))


def message_ends(stream: bytes) -> list[int]:
    """Where each message of a sound stream ends."""
    ends: list[int] = []
    while stream[(at := ends[-1] if ends else 0) :] != END:
        size_bytes = int.from_bytes(stream[at + 4 : at + 8], "little")
        message = pyarrow.ipc.read_message(stream[at:])
        ends.append(at + 8 + size_bytes + len(message.body or b""))
    return ends


def test_messages_come_in_one_order() -> None:
    schema, first, *_ = message_ends(STREAM)
    with pytest.raises(InvalidRequest, match="does not begin with its schema"):
        read(STREAM[schema:])
    with pytest.raises(InvalidRequest, match="begin with its schema, or has two"):
        read(STREAM[:first] + STREAM)
    assert joined(read(STREAM[:schema] + STREAM[schema:])) == TABLE


@pytest.mark.parametrize("compression", ["lz4", "zstd"])
def test_a_compressed_arrow_stream_is_refused(compression: str) -> None:
    long = pyarrow.table({"text": ["x" * (1 << 20)] * 16})
    stream = stream_of(long, batch_rows=16, compression=compression)
    assert len(stream) < 1 << 20
    with pytest.raises(InvalidRequest, match="is compressed"):
        read(stream)


def test_dictionaries_are_refused_of_which_one_value_could_be_very_many() -> None:
    coded = pyarrow.array(["x"] * 5).dictionary_encode()
    with pytest.raises(InvalidRequest, match="has dictionaries") as refused:
        read(stream_of(pyarrow.table({"text": coded})))
    assert refused.value.attributes == {"columns": ["text"]}
    inner = pyarrow.StructArray.from_arrays([coded], ["text"])
    with pytest.raises(InvalidRequest, match="has dictionaries"):
        read(stream_of(pyarrow.table({"it": inner})))


@pytest.mark.parametrize("count", [BATCH_ROWS_MAX + 1, 1 << 40, (1 << 63) - 1])
def test_rows_that_take_no_bytes_are_counted(count: int) -> None:
    fits = pyarrow.table({"it": pyarrow.nulls(BATCH_ROWS_MAX)})
    stream = stream_of(fits, batch_rows=BATCH_ROWS_MAX)
    (batch,) = read(stream)
    assert batch.num_rows == BATCH_ROWS_MAX
    many = stream.replace(BATCH_ROWS_MAX.to_bytes(8, "little"), count.to_bytes(8, "little"))
    with pytest.raises(LimitExceeded, match="Send smaller batches"):
        read(many)


def test_an_arrow_message_above_the_bound_is_refused_before_all_bytes_arrive() -> None:
    long = pyarrow.table({"text": ["x" * 5000]})
    stream = stream_of(long)
    (batch,) = read(stream, reader=ArrowStream(6000))
    assert batch.num_rows == 1
    schema, _ = message_ends(stream)
    reader = ArrowStream(4000)
    with pytest.raises(LimitExceeded, match="at most 4000 bytes"):
        reader.feed(stream[: schema + 300])


def damaged(at: int, value: bytes, stream: bytes = STREAM) -> bytes:
    return stream[:at] + value + stream[at + len(value) :]


@pytest.mark.parametrize(
    "content",
    [
        b"\x00" * 100,
        b"ARROW1\x00\x00" + STREAM,
        b'{"id": 1}\n' * 10,
        damaged(4, b"\xff\xff\xff\xff"),
        damaged(4, b"\xff\xff\xff\x7f"),
        damaged(4, b"\x01\x00\x40\x00"),
        damaged(8, b"\xff\xff\xff\xff"),
        damaged(8, b"\xff" * 100),
        damaged(8, b"\x00" * 100),
        damaged(4, b"\x01\x00\x00\x00"),
        damaged(4, b"\x08\x00\x00\x00"),
    ],
)
def test_damage_is_refused_and_makes_no_room(content: bytes) -> None:
    tracemalloc.start()
    before = pyarrow.total_allocated_bytes()
    try:
        with pytest.raises(InvalidRequest):
            read(content)
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
        assert pyarrow.total_allocated_bytes() - before < 1 << 20
    finally:
        tracemalloc.stop()


def test_offsets_that_lead_astray_are_found() -> None:
    body = TABLE.slice(0, 3).combine_chunks()
    stream = stream_of(body, batch_rows=3)
    offsets = b"".join(it.to_bytes(4, "little") for it in (0, 1, 1, 4))
    assert stream.count(offsets) == 1
    astray = stream.replace(offsets, offsets[:-4] + (1 << 30).to_bytes(4, "little"))
    with pytest.raises(InvalidRequest, match="can't be read"):
        read(astray)


@pytest.mark.parametrize("seed", range(20))
def test_a_stream_with_any_bytes_changed_is_read_or_refused(seed: int) -> None:
    """Whatever is changed, the process goes on, and what is read is sound."""
    random = Random(seed)
    columns = {
        "id": pyarrow.array([1, None, 3]),
        "text": pyarrow.array(["a", None, "ccc"]),
        "raw": pyarrow.array([b"", b"\xff", None], pyarrow.large_binary()),
        "flag": pyarrow.array([True, None, False]),
        "list": pyarrow.array([[1], None, []]),
        "fixed": pyarrow.array([b"ab", b"cd", None], pyarrow.binary(2)),
    }
    stream = stream_of(pyarrow.table(columns))
    for _ in range(500):
        content = bytearray(stream)
        for _ in range(random.choice([1, 1, 2, 8])):
            at = random.randrange(len(content))
            content[at] = random.choice([0, 1, 0x7F, 0x80, 0xFF, random.randrange(256)])
        try:
            batches = read(bytes(content))
        except InvalidRequest:
            continue
        for batch in batches:
            assert batch.num_rows <= BATCH_ROWS_MAX
            assert batch.schema.names
            batch.validate(full=True)
