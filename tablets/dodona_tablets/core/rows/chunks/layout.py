"""Define the columns of a chunk: their names, their order and their Arrow types.

Owns: the names of system columns, the four layouts, and the Arrow schema of each for a table. A
chunk has the encoded key, the key columns, and all value columns (null where a version does not set
them). Each layout adds:

- `batch`: nothing. Every row is a write of all columns. Its timestamp is known when the chunk is
  attached.
- `masked`: the mask of the value columns that the row sets. An empty mask is a deletion. The
  timestamp is known when the chunk is attached. This layout is format 2. All others are format 1.
- `plain`: the timestamp, and the mask of the value columns that the version sets. An empty mask is
  a deletion.
- `special`: the columns of `plain`, the mask of values that are changes of aggregates, and the mask
  of lock groups that `shared_write` took.

Masks count value columns in the order of this chunk. They are numbers, or bytes in wide tables.
"""

from typing import Final, Literal

import pyarrow as pa

from dodona_wire.rows.arrow import arrow_type
from dodona_wire.rows.schema import TableSchema

KEY: Final = "$key"
TIMESTAMP: Final = "$timestamp"
MASK: Final = "$mask"
DELTA: Final = "$delta"
SHARED: Final = "$shared"
FORMAT_NAME: Final = "dodona.chunk"
"""The key of the format version in the metadata of the Arrow schema (see `format_version`)."""
BLOCK_ROWS_MAX: Final = 1 << 16
BLOCK_BYTES_MAX: Final = 8 << 20
"""The most bytes of a block with more than one row. Its first reader checks the whole block, in
some milliseconds."""

Layout = Literal["batch", "masked", "plain", "special"]

MARKS: Final = (TIMESTAMP, MASK, DELTA, SHARED)
_MARKS: Final[dict[Layout, tuple[str, ...]]] = {
    "batch": (),
    "masked": (MASK,),
    "plain": MARKS[:2],
    "special": MARKS,
}


def format_version(layout: Layout) -> int:
    """Return the format version of a chunk's files in this layout. Both versions are written today.
    A layout that comes later gets a new version, so that a reader without it refuses the chunk."""
    return 2 if layout == "masked" else 1


def chunk_schema(schema: TableSchema, layout: Layout) -> pa.Schema:
    """Return the Arrow schema of a table's chunks in this layout."""
    masks = pa.binary() if schema.is_wide else pa.uint64()
    fields = [pa.field(KEY, pa.binary(), nullable=False)]
    fields += [pa.field(column.name, arrow_type(column)) for column in schema.columns]
    for name in _MARKS[layout]:
        kind = masks if name in (MASK, DELTA) else pa.uint64()
        fields.append(pa.field(name, kind, nullable=False))
    return pa.schema(fields, {FORMAT_NAME: str(format_version(layout))})


def layout_of(names: list[str]) -> Layout:
    """Return the layout of a batch with columns of these names, in order."""
    if names[-1] == SHARED:
        return "special"
    if names[-1] == MASK:
        return "plain" if names[-2] == TIMESTAMP else "masked"
    return "batch"
