"""Codecs of YSON, each in a process of its own: Dodona's, and YTsaurus's two.

All get the same rows as dicts, and the same bytes. Dodona's codec reads in parts of the size of a
request's parts. The others get the whole.
"""

import asyncio
import importlib.metadata
from abc import abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from random import Random
from typing import Any, Final, Literal

from dodona_loadtest.harness.errors import ContenderFailed, client_library
from dodona_loadtest.harness.worker_process import Spent, Stopwatch, Worker, WorkerProcess
from dodona_wire.rows.columns import ColumnType
from dodona_ytsaurus.yson import RowReader, RowWriter, YsonLimits, loads

COLUMNS: Final[list[tuple[str, ColumnType]]] = [
    ("key", "int64"),
    ("count", "uint64"),
    ("weight", "double"),
    ("name", "string"),
]
TextOrBinary = Literal["binary", "text"]
PART_BYTES: Final = 64 << 10
SEED: Final = 1


@contextmanager
def open_codec(
    worker: "CodecWorker", cores: frozenset[int], library: str | None
) -> "Iterator[WorkerProcess[CodecWorker]]":
    """Start the codec's process. Raises ContenderMissing if it isn't on this machine."""
    if library is not None:
        client_library(library)
    with WorkerProcess(worker, cores) as process:
        yield process


def version(package: str) -> str:
    """Return the version for the report."""
    return f"{package} {importlib.metadata.version(package)}"


def sample_rows(count: int) -> list[dict[str, Any]]:
    """Return rows with keys in order, numbers of all lengths, and short strings."""
    random = Random(SEED)
    return [
        {
            "key": number,
            "count": random.getrandbits(random.randrange(1, 65)),
            "weight": random.random(),
            "name": b"name %d" % random.randrange(10_000),
        }
        for number in range(count)
    ]


class CodecWorker(Worker):
    """A codec. It makes the rows and their bytes first, so that only its work is measured."""

    async def open(self) -> None:
        self._rows: list[Any] = []
        self._bytes: dict[TextOrBinary, bytes] = {}

    async def close(self) -> None:
        pass

    async def prepare(self, count: int) -> None:
        """Make so many rows."""
        rows = sample_rows(count)
        self._bytes = {"binary": written(rows, "binary"), "text": written(rows, "text")}
        self._rows = [self.own(row) for row in rows]

    async def write(self, format: TextOrBinary) -> Spent:
        """Write all rows into one buffer."""
        watch = Stopwatch()
        result = await asyncio.to_thread(self.encode, self._rows, format)
        spent = watch.read()
        if result != self._bytes[format] and not _is_same(result, self._bytes[format]):
            raise ContenderFailed(f"wrote other rows than Dodona in {format}")
        return spent

    async def read(self, format: TextOrBinary) -> Spent:
        """Read all rows, and keep none."""
        watch = Stopwatch()
        count = await asyncio.to_thread(self.decode, self._bytes[format])
        spent = watch.read()
        if count != len(self._rows):
            raise ContenderFailed(f"read {count} rows of {len(self._rows)} in {format}")
        return spent

    def own(self, row: dict[str, Any]) -> dict[str, Any]:
        """Return the row in the form that this codec takes."""
        return row

    @abstractmethod
    def encode(self, rows: list[Any], format: TextOrBinary) -> bytes:
        """Return a list fragment."""

    @abstractmethod
    def decode(self, data: bytes) -> int:
        """Return how many rows there are in a list fragment."""


def _is_same(one: bytes, other: bytes) -> bool:
    """Return whether two texts differ only in their form, such as in spaces."""
    limits = YsonLimits(bytes_max=max(len(one), len(other)), values_max=100_000_000)
    rows, others = (loads(data, limits, kind="list_fragment") for data in (one, other))
    return bool(rows == others)


def written(rows: list[dict[str, Any]], format: TextOrBinary) -> bytes:
    """Return the bytes of Dodona's own writer."""
    return RowWriter(COLUMNS, format).encode(rows)


class DodonaCodec(CodecWorker):
    """Dodona's codec, in pure Python, which knows the columns."""

    def encode(self, rows: list[Any], format: TextOrBinary) -> bytes:
        return written(rows, format)

    def decode(self, data: bytes) -> int:
        reader = RowReader(keeps_uint64=False)
        count = 0
        for at in range(0, len(data), PART_BYTES):
            count += len(reader.feed(data[at : at + PART_BYTES]))
        return count + len(reader.finish())


class YtsaurusCodec(CodecWorker):
    """YTsaurus's own codec: the native one, or the one in Python."""

    def __init__(self, library: str, reading: str, writing: str) -> None:
        self._library = library
        self._reading = reading
        self._writing = writing

    def own(self, row: dict[str, Any]) -> dict[str, Any]:
        """Mark unsigned numbers, because these codecs know no columns."""
        uint64 = client_library("yt.yson.yson_types").YsonUint64
        return {**row, "count": uint64(row["count"])}

    def encode(self, rows: list[Any], format: TextOrBinary) -> bytes:
        dumps = client_library(self._writing).dumps
        result: bytes = dumps(rows, yson_format=format, yson_type="list_fragment")
        return result

    def decode(self, data: bytes) -> int:
        rows = client_library(self._reading).loads(data, yson_type="list_fragment", encoding=None)
        return sum(1 for _ in rows)
