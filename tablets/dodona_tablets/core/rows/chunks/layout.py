"""The columns of a chunk: which there are, in which order, of which Arrow types.

Owns: the names of system columns, the four layouts, and the Arrow schema of each for a table.
A chunk has the encoded key, the key columns, all value columns (null where a version does not set
them), and what the layout adds:

- `batch`: nothing. Every row is a write of all columns, at a timestamp known when it is attached.
- `masked`: the mask of the value columns that the row sets (none: deletion), at a timestamp known
  when it is attached. Format 2; all else is format 1, as readers that know no other expect.
- `plain`: the timestamp and the mask of the value columns that the version sets (none: deletion).
- `special`: as plain, then the mask of values that are changes of aggregates, and the mask of lock
  groups that were taken by shared_write.

Masks count value columns in the order of this chunk: numbers, or bytes in tables that are wide.
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
"""In the metadata of the Arrow schema, with the version of the format (see `format_version`)."""
BLOCK_ROWS_MAX: Final = 1 << 16
BLOCK_BYTES_MAX: Final = 8 << 20
"""Of a block with more than one row: its first reader checks all of it, in some milliseconds."""

Layout = Literal["batch", "masked", "plain", "special"]

MARKS: Final = (TIMESTAMP, MASK, DELTA, SHARED)
_MARKS: Final[dict[Layout, tuple[str, ...]]] = {
    "batch": (),
    "masked": (MASK,),
    "plain": MARKS[:2],
    "special": MARKS,
}


def format_version(layout: Layout) -> int:
    """Of the files of a chunk in this layout. Whoever knows only an older one has to refuse them:
    to him they would look damaged."""
    return 2 if layout == "masked" else 1


def chunk_schema(schema: TableSchema, layout: Layout) -> pa.Schema:
    """The Arrow schema of a table's chunks in this layout."""
    masks = pa.binary() if schema.is_wide else pa.uint64()
    fields = [pa.field(KEY, pa.binary(), nullable=False)]
    fields += [pa.field(column.name, arrow_type(column)) for column in schema.columns]
    for name in _MARKS[layout]:
        kind = masks if name in (MASK, DELTA) else pa.uint64()
        fields.append(pa.field(name, kind, nullable=False))
    return pa.schema(fields, {FORMAT_NAME: str(format_version(layout))})


def layout_of(names: list[str]) -> Layout:
    """The layout of a batch with columns of these names, in order."""
    if names[-1] == SHARED:
        return "special"
    if names[-1] == MASK:
        return "plain" if names[-2] == TIMESTAMP else "masked"
    return "batch"
