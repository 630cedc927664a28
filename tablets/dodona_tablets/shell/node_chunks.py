"""What a node needs of the chunks of its cell, wherever they are kept.

Owns: the calls of recovery and of long work. `chunk_files` keeps chunks in files of the node,
`chunk_cache` in an object store, with copies in files of the node.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol

import pyarrow as pa

from dodona_tablets.core.rows.chunks.chunk import Chunk
from dodona_tablets.core.rows.chunks.info import ChunkInfo
from dodona_wire.rows.schema import TableSchema
from dodona_wire.types import ClusterId


class NodeChunks(Protocol):
    """The chunks of one cell, by number. Threads may write and remove chunks of different numbers
    side by side, while others read."""

    @property
    def place(self) -> str:
        """Return where the chunks are, for errors."""
        ...

    @property
    def first_number(self) -> int:
        """Return the lowest number that this process may give to a chunk."""
        ...

    def write(
        self, number: int, schema: TableSchema, batches: Iterable[pa.RecordBatch]
    ) -> ChunkInfo | None:
        """Write a chunk durably. Returns None if there are no rows. Raises DodonaError if there is
        no room for it, and OSError."""
        ...

    def open(self, info: ChunkInfo) -> Chunk:
        """Open a chunk. Raises DataCorrupted, Unavailable, OSError."""
        ...

    def open_all(self, needed: Mapping[int, ChunkInfo]) -> dict[int, Chunk]:
        """Open the chunks that a start needs. Raises as `open`."""
        ...

    def numbers(self, cluster: Callable[[], ClusterId]) -> set[int]:
        """Return the numbers of the chunks that processes before this one have left, also of
        incomplete ones. `cluster` returns the cluster that the cell has joined, if any. Call it
        before the chunks are opened. Raises Unavailable, InvalidRequest, OSError."""
        ...

    def remove(self, numbers: Sequence[int]) -> None:
        """Remove chunks that the log does not name any more. A process that has them open may go on
        reading them. Raises OSError."""
        ...
