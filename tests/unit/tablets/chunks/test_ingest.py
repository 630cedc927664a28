"""Bulk batches: what is refused and how, what is not copied, and what becomes of equal keys."""

import struct
from typing import Any

import msgspec
import pyarrow as pa
import pytest

from dodona.errors import DodonaError, DuplicateKey, InvalidRequest, LimitExceeded, SchemaViolation
from dodona.schema import Column, TableSchema
from dodona.types import KEY_MAX, KEY_MIN, MAX_TIMESTAMP, BatchKind, Key, Timestamp
from dodona_tablets.core.rows.chunks import ingest, streams
from dodona_tablets.core.rows.chunks.ingest import prepare_batch
from dodona_tablets.core.rows.chunks.jobs import BatchJob, Built, build
from dodona_tablets.core.rows.chunks.layout import chunk_schema
from dodona_wire.messages.base import Failure
from dodona_wire.rows import arrow
from dodona_wire.rows.arrow import arrow_schema, stream_of
from unit.tablets.chunks.making import made

SCHEMA = TableSchema.parse(
    [
        Column("id", "int64", sort_order="ascending"),
        Column("part", "double", sort_order="ascending"),
        Column("text", "utf8", required=True),
        Column("some", "any"),
    ]
)
PACKED = msgspec.msgpack.encode([1, {"a": None}])


def row(
    number: int | None = 1, part: float = 0.5, text: str | None = "x", some: Any = PACKED
) -> Any:
    return {"id": number, "part": part, "text": text, "some": some}


def batch_of(*rows: dict[str, Any]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(list(rows), schema=arrow_schema(SCHEMA))


def prepare(
    *rows: dict[str, Any], lower: Key = KEY_MIN, upper: Key = KEY_MAX
) -> list[dict[str, Any]]:
    found = prepare_batch(SCHEMA, stream_of(batch_of(*rows)), lower, upper)
    assert found.schema.equals(chunk_schema(SCHEMA, "batch"))
    listed: list[dict[str, Any]] = found.to_pylist()
    for it in listed:
        assert SCHEMA.decode_key(it.pop("$key")) == (it["id"], it["part"])
    return listed


def compressed(batch: pa.RecordBatch, codec: str = "zstd") -> bytes:
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression=codec)
    with pa.ipc.new_stream(sink, batch.schema, options=options) as writer:
        writer.write(batch)
    return bytes(sink.getvalue())


def refusal(stream: Any, schema: TableSchema = SCHEMA) -> DodonaError:
    with pytest.raises(DodonaError) as caught:
        prepare_batch(schema, stream, KEY_MIN, KEY_MAX)
    return caught.value


# ---- what comes of a batch


def test_rows_in_order_are_not_copied() -> None:
    stream = stream_of(batch_of(*(row(number) for number in range(100))))
    found = prepare_batch(SCHEMA, stream, KEY_MIN, KEY_MAX)
    buffer = pa.py_buffer(stream)
    for name in ("id", "text", "some"):
        data = found.column(name).buffers()[-1]
        assert buffer.address <= data.address < buffer.address + buffer.size


def test_rows_are_put_in_order() -> None:
    given = [row(3), row(1, 2.0), row(2), row(1, 1.0), row(None)]
    assert prepare(*given) == [given[at] for at in (4, 3, 1, 2, 0)]


def test_of_equal_keys_the_last_row_stays() -> None:
    given = [row(2, text="a"), row(1, text="b"), row(2, text="c"), row(2, text="d"), row(3)]
    assert prepare(*given) == [given[1], given[3], given[4]]


def test_equal_doubles_are_equal_keys() -> None:
    (found,) = prepare(row(1, 0.0, "a"), row(1, -0.0, "b"))
    assert found["text"] == "b"
    assert str(found["part"]) == "0.0"


@pytest.mark.parametrize("codec", ["zstd", "lz4"])
def test_streams_may_be_compressed_and_have_several_batches(codec: str) -> None:
    whole = batch_of(*(row(number) for number in range(100)))
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression=codec)
    with pa.ipc.new_stream(sink, whole.schema, options=options) as writer:
        for start in (60, 0, 30):
            writer.write(whole.slice(start, 30))
    found = prepare_batch(SCHEMA, bytes(sink.getvalue()), KEY_MIN, KEY_MAX)
    assert found.column("id").to_pylist() == [*range(90)]


def test_a_stream_may_lie_anywhere_in_memory() -> None:
    stream = b"?" + stream_of(batch_of(row(2), row(1)))
    found = prepare_batch(SCHEMA, memoryview(stream)[1:], KEY_MIN, KEY_MAX)
    assert found.column("id").to_pylist() == [1, 2]


@pytest.mark.parametrize("batches", [[], [batch_of()]])
def test_no_rows_are_a_batch_without_rows(batches: list[pa.RecordBatch]) -> None:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, arrow_schema(SCHEMA)) as writer:
        for batch in batches:
            writer.write(batch)
    found = prepare_batch(SCHEMA, bytes(sink.getvalue()), KEY_MIN, KEY_MAX)
    assert (found.num_rows, found.schema) == (0, chunk_schema(SCHEMA, "batch"))


def test_the_messagepack_of_null_is_null() -> None:
    assert [it["some"] for it in prepare(row(1, some=b"\xc0"), row(2))] == [None, PACKED]


def test_a_batch_becomes_a_chunk() -> None:
    found = prepare_batch(SCHEMA, stream_of(batch_of(row(2, some=None), row(1))), KEY_MIN, KEY_MAX)
    view = made([found], SCHEMA).view(SCHEMA, stamp=Timestamp(9))
    values = [view.versions(SCHEMA.bound_of([it, 0.5]), MAX_TIMESTAMP)[0][2] for it in (1, 2)]
    assert values == [("x", [1, {"a": None}]), ("x", None)]


# ---- what is refused


@pytest.mark.parametrize("stream", [b"", b"no Arrow", stream_of(batch_of(row()))[:-80]])
def test_a_batch_that_is_not_an_arrow_stream_is_refused(stream: bytes) -> None:
    error = refusal(stream)
    assert type(error) is InvalidRequest
    assert "not an Arrow IPC stream" in error.message


@pytest.mark.parametrize(
    "columns",
    [
        {"id": [1], "part": [1.0], "text": ["x"]},
        {"part": [1.0], "id": [1], "text": ["x"], "some": [b"\x01"]},
        {"id": [1], "part": [1.0], "text": ["x"], "other": [b"\x01"]},
        {"id": [1.0], "part": [1.0], "text": ["x"], "some": [b"\x01"]},
        {"id": [1], "part": [1.0], "text": [b"x"], "some": [b"\x01"]},
        {"id": [1], "part": [1.0], "text": pa.array(["x"]).dictionary_encode(), "some": [b"\x01"]},
    ],
)
def test_other_columns_than_the_tables(columns: dict[str, Any]) -> None:
    error = refusal(stream_of(pa.record_batch(columns)))
    assert type(error) is SchemaViolation
    assert "the table has" in error.message


def test_nulls_in_a_required_column() -> None:
    error = refusal(stream_of(batch_of(row(), row(text=None))))
    assert type(error) is SchemaViolation
    assert error.attributes == {"column": "text", "row_index": 1}


def test_nulls_in_a_required_key_column() -> None:
    key = Column("id", "int64", sort_order="ascending", required=True)
    schema = TableSchema.parse([key, *SCHEMA.columns[1:]])
    error = refusal(stream_of(batch_of(row(), row(None))), schema)
    assert error.attributes == {"column": "id", "row_index": 1}


def test_the_messagepack_of_null_in_a_required_column() -> None:
    schema = TableSchema.parse([*SCHEMA.columns[:-1], Column("some", "any", required=True)])
    error = refusal(stream_of(batch_of(row(), row(some=b"\xc0"))), schema)
    assert (error.message, error.attributes["row_index"]) == ("required column is null", 1)


def test_a_double_that_is_no_number_in_a_key() -> None:
    assert refusal(stream_of(batch_of(row(), row(part=float("nan"))))).attributes["row_index"] == 1


@pytest.mark.parametrize(
    "packed",
    [
        b"",
        b"\x92\x01",
        b"\xa1\xff",
        b"\x81\x01\x02",
        b"\xd6\xff\0\0\0\0",
        b"\xd4\x05\x01",
        b"\x91" * 40 + b"\x01",
        b"\x91" * 100_000 + b"\x01",
    ],
    ids=["none", "cut", "not UTF-8", "number as name", "date", "extension", "deep", "very deep"],
)
def test_an_invalid_value_of_type_any_is_refused_with_column_and_row(packed: bytes) -> None:
    error = refusal(stream_of(batch_of(row(), row(some=packed))))
    assert type(error) is SchemaViolation
    assert (error.attributes["column"], error.attributes["row_index"]) == ("some", 1)


def test_text_that_is_not_utf8() -> None:
    stream = stream_of(batch_of(row(text="Dodona")))
    error = refusal(stream.replace(b"Dodona", b"Dod\xffna"))
    assert type(error) is InvalidRequest
    assert "UTF8" in error.message


def test_values_and_rows_that_are_too_long_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = stream_of(batch_of(row(), row(text="x" * 100)))
    monkeypatch.setattr(ingest, "ROW_BYTES_MAX", 100)
    assert refusal(stream).attributes == {"size_bytes": 18 + 100 + len(PACKED), "row_index": 1}
    monkeypatch.setattr(arrow, "VALUE_BYTES_MAX", 99)
    error = refusal(stream)
    assert type(error) is SchemaViolation
    assert error.attributes == {"column": "text", "row_index": 1}


@pytest.mark.parametrize(("number", "is_refused"), [(1, True), (2, False), (4, False), (5, True)])
def test_keys_outside_the_tablet(number: int, is_refused: bool) -> None:
    lower, upper = SCHEMA.bound_of([2]), SCHEMA.bound_of([5])
    rows = [row(3), row(number, 0.25), row(4)]
    if not is_refused:
        assert len(prepare(*rows, lower=lower, upper=upper)) == 3
        return
    with pytest.raises(InvalidRequest) as caught:
        prepare(*rows, lower=lower, upper=upper)
    assert caught.value.attributes == {"key": {"id": number, "part": 0.25}}


# ---- updates and deletions


def part_of(*names: str) -> pa.RecordBatch:
    """Some columns of three rows, of which two have one key."""
    return batch_of(row(2, text="b"), row(1, text="a"), row(2, text="c")).select(names)


def test_an_update_batch_sets_only_the_columns_in_the_batch() -> None:
    batch = part_of("id", "part", "text")
    found = prepare_batch(SCHEMA, stream_of(batch), KEY_MIN, KEY_MAX, "update")
    assert found.schema.equals(chunk_schema(SCHEMA, "masked"))
    assert found.to_pylist() == [
        {"$key": SCHEMA.bound_of([number, 0.5]), **row(number, text=text, some=None), "$mask": 0b01}
        for number, text in ((1, "a"), (2, "c"))
    ]
    view = made([found], SCHEMA).view(SCHEMA, stamp=Timestamp(9))
    assert view.versions(SCHEMA.bound_of([2, 0.5]), MAX_TIMESTAMP) == [(9, 0b01, ("c",), None)]


def test_an_update_of_all_columns_is_a_write() -> None:
    batch = part_of("id", "part", "text", "some")
    found = prepare_batch(SCHEMA, stream_of(batch), KEY_MIN, KEY_MAX, "update")
    assert found.equals(prepare_batch(SCHEMA, stream_of(batch), KEY_MIN, KEY_MAX))


def test_deletions_have_keys_only() -> None:
    batch = part_of("id", "part")
    found = prepare_batch(SCHEMA, stream_of(batch), KEY_MIN, KEY_MAX, "delete")
    assert found.schema.equals(chunk_schema(SCHEMA, "masked"))
    assert found.column("$mask").to_pylist() == [0, 0]
    view = made([found], SCHEMA).view(SCHEMA, stamp=Timestamp(9))
    assert view.versions(SCHEMA.bound_of([2, 0.5]), MAX_TIMESTAMP) == [(9, 0, (), None)]


def test_updates_of_wide_tables_have_wide_masks() -> None:
    more = [Column(f"c{it}", "int64") for it in range(70)]
    schema = TableSchema.parse([*SCHEMA.columns, *more])
    batch = pa.record_batch({"id": [1], "part": [0.5], "some": [PACKED], "c68": [5]})
    found = prepare_batch(schema, stream_of(batch), KEY_MIN, KEY_MAX, "update")
    view = made([found], schema).view(schema, stamp=Timestamp(9))
    (version,) = view.versions(schema.bound_of([1, 0.5]), MAX_TIMESTAMP)
    assert version == (9, 1 << 70 | 0b10, ([1, {"a": None}], 5), None)


@pytest.mark.parametrize(
    ("kind", "names", "text"),
    [
        ("update", ["id", "part"], "sets key columns only"),
        ("update", ["id", "part", "some", "text"], "the table has"),
        ("update", ["part", "id", "text"], "the table has"),
        ("update", ["id", "text", "some"], "the table has"),
        ("update", ["id"], "sets key columns only"),
        ("delete", ["id", "part", "text"], "the table has"),
        ("delete", ["id"], "the table has"),
        ("write", ["id", "part", "text"], "the table has"),
    ],
)
def test_columns_that_are_not_those_of_the_kind(
    kind: BatchKind, names: list[str], text: str
) -> None:
    with pytest.raises(SchemaViolation, match=text):
        prepare_batch(SCHEMA, stream_of(part_of(*names)), KEY_MIN, KEY_MAX, kind)


def test_updates_of_unknown_or_aggregate_columns_are_refused() -> None:
    sum_ = Column("sum", "int64", aggregate="sum")
    schema = TableSchema.parse([*SCHEMA.columns, sum_])
    for name, wrong in (
        ("sum", {"column": "sum", "columns": ["sum"]}),
        ("other", {"column": "other"}),
    ):
        batch = pa.record_batch({"id": [1], "part": [0.5], "text": ["x"], name: [5]})
        with pytest.raises(SchemaViolation) as caught:
            prepare_batch(schema, stream_of(batch), KEY_MIN, KEY_MAX, "update")
        assert caught.value.attributes == wrong


def test_an_update_may_lack_required_columns_and_not_set_them_to_null() -> None:
    batch = part_of("id", "part", "some")
    assert prepare_batch(SCHEMA, stream_of(batch), KEY_MIN, KEY_MAX, "update").num_rows == 2
    batch = batch_of(row(), row(text=None)).select(["id", "part", "text"])
    with pytest.raises(SchemaViolation) as caught:
        prepare_batch(SCHEMA, stream_of(batch), KEY_MIN, KEY_MAX, "update")
    assert caught.value.attributes == {"column": "text", "row_index": 1}


def test_the_size_limit_of_updates_counts_only_the_columns_that_they_set(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    batch = batch_of(row(), row(text="x" * 100)).select(["id", "part", "text"])
    monkeypatch.setattr(ingest, "ROW_BYTES_MAX", 100)
    with pytest.raises(SchemaViolation) as caught:
        prepare_batch(SCHEMA, stream_of(batch), KEY_MIN, KEY_MAX, "update")
    assert caught.value.attributes == {"size_bytes": 18 + 100, "row_index": 1}


@pytest.mark.parametrize("stream", [b"", b"no Arrow", stream_of(batch_of(row()))[:40]])
def test_an_update_that_is_no_stream(stream: bytes) -> None:
    with pytest.raises(InvalidRequest, match="not an Arrow IPC stream"):
        prepare_batch(SCHEMA, stream, KEY_MIN, KEY_MAX, "update")


# ---- keys that come twice


def test_an_exact_batch_has_each_key_once() -> None:
    rows = [row(3), row(2, 1.0), row(1), row(2, 2.0), row(2, -0.0), row(2, 2.0), row(2, 0.0)]
    with pytest.raises(DuplicateKey) as caught:
        prepare_batch(SCHEMA, stream_of(batch_of(*rows)), KEY_MIN, KEY_MAX, is_exact=True)
    assert caught.value.attributes == {"key": {"id": 2, "part": 0.0}}
    once = stream_of(batch_of(*rows[:4]))
    found = prepare_batch(SCHEMA, once, KEY_MIN, KEY_MAX, is_exact=True)
    assert found.equals(prepare_batch(SCHEMA, once, KEY_MIN, KEY_MAX))


def test_a_batch_job_builds_deletions_and_refuses_equal_keys_if_exact() -> None:
    def job(kind: BatchKind, *names: str, is_exact: bool) -> BatchJob:
        stream = stream_of(part_of(*names))
        return BatchJob(7, SCHEMA, stream, KEY_MIN, KEY_MAX, kind, is_exact)

    built = build(job("delete", "id", "part", is_exact=False))
    assert isinstance(built, Built)
    assert (built.info.row_count, built.info.garbage_count) == (2, 2)
    refused = build(job("update", "id", "part", "text", is_exact=True))
    assert isinstance(refused, Failure)
    assert (refused.kind, refused.attributes) == ("duplicate_key", {"key": {"id": 2, "part": 0.5}})


# ---- what would come to more than is sent


def test_more_rows_than_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "STREAM_ROWS_MAX", 2)
    assert len(prepare(row(1), row(2))) == 2
    assert type(refusal(stream_of(batch_of(row(1), row(2), row(3))))) is LimitExceeded


@pytest.mark.parametrize("codec", ["zstd", "lz4"])
def test_a_short_stream_that_would_come_to_much(
    codec: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = compressed(batch_of(row(text="x" * 10_000)), codec)
    assert len(stream) < 2_000
    assert prepare_batch(SCHEMA, stream, KEY_MIN, KEY_MAX).num_rows == 1
    monkeypatch.setattr(streams, "STREAM_BYTES_MAX", 10_000)
    assert type(refusal(stream)) is LimitExceeded


def test_a_stream_that_claims_to_come_to_more_than_memory() -> None:
    stream = compressed(batch_of(row(text="x" * 10_000)))
    before, claim, after = stream.rpartition(struct.pack("<q", 10_000))
    assert claim
    error = refusal(before + struct.pack("<q", 1 << 50) + after)
    assert type(error) is LimitExceeded


def test_the_size_limit_also_applies_to_uncompressed_streams(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stream = stream_of(batch_of(row(text="x" * 10_000)))
    monkeypatch.setattr(streams, "STREAM_BYTES_MAX", 10_000)
    assert type(refusal(stream)) is LimitExceeded
