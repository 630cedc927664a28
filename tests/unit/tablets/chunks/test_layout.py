"""The columns of a chunk in each layout, and what the log keeps of one."""

import msgspec
import pyarrow as pa
import pytest

from dodona.schema import Column, TableSchema
from dodona.types import KEY_MAX, KEY_MIN, NULL_TIMESTAMP, Key, Timestamp
from dodona_tablets.core.rows.chunks.info import AttachedChunk, ChunkInfo
from dodona_tablets.core.rows.chunks.layout import Layout, chunk_schema, layout_of

ID = Column("id", "int64", sort_order="ascending", required=True)
NARROW = TableSchema.parse([ID, Column("a", "utf8", required=True), Column("b", "any")])
WIDE = TableSchema.parse([ID, *(Column(f"c{at}", "int64") for at in range(64))])


@pytest.mark.parametrize(
    ("layout", "names"),
    [
        ("batch", []),
        ("masked", ["$mask"]),
        ("plain", ["$timestamp", "$mask"]),
        ("special", ["$timestamp", "$mask", "$delta", "$shared"]),
    ],
)
def test_the_layout_of_a_chunk_is_recognized_by_its_columns(
    layout: Layout, names: list[str]
) -> None:
    schema = chunk_schema(NARROW, layout)
    assert schema.names == ["$key", "id", "a", "b", *names]
    assert layout_of(schema.names) == layout
    version = b"2" if layout == "masked" else b"1"
    assert schema.metadata == {b"dodona.chunk": version}


def test_values_may_be_absent_though_their_column_is_required() -> None:
    assert chunk_schema(NARROW, "plain").field("a").nullable


@pytest.mark.parametrize(("schema", "kind"), [(NARROW, pa.uint64()), (WIDE, pa.binary())])
def test_masks_of_wide_tables_are_bytes(schema: TableSchema, kind: object) -> None:
    columns = chunk_schema(schema, "special")
    assert columns.field("$mask").type == columns.field("$delta").type == kind
    assert columns.field("$shared").type == pa.uint64()


def test_the_description_of_a_chunk_is_the_same_after_encoding_and_decoding() -> None:
    info = ChunkInfo(7, 10, 1000, Key(b"a"), Key(b"z"), Timestamp(5), Timestamp(9), 2, 77)
    attached = AttachedChunk(info, upper=Key(b"m"))
    raw = msgspec.msgpack.encode(attached)
    assert msgspec.msgpack.decode(raw, type=AttachedChunk) == attached
    assert (attached.stamp, attached.lower) == (NULL_TIMESTAMP, KEY_MIN)
    assert AttachedChunk(info).upper == KEY_MAX
    assert info.has_timestamps
    stamped = msgspec.structs.replace(
        info, min_timestamp=NULL_TIMESTAMP, max_timestamp=NULL_TIMESTAMP
    )
    assert not stamped.has_timestamps
