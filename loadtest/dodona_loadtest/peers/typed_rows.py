"""Rows of logical types, and the same rows with the stored types, as Dodona's client has them.

Owns: the columns of both, and the rows. The key decides all values of a row, and both forms
have the same bytes in a cell. So what differs between them is the conversion, and the checks.
"""

from datetime import timedelta
from decimal import Decimal
from random import Random
from typing import Any, Final, Literal, NamedTuple

import numpy
import pyarrow

import dodona.aio
from dodona_loadtest.harness.errors import ContenderFailed
from dodona_loadtest.harness.load import AsyncOperation
from dodona_loadtest.harness.measure import Sample, measure_operations
from dodona_loadtest.harness.worker_process import Spent, Stopwatch, Worker
from dodona_wire.rows.logical_arrow import user_array
from dodona_wire.rows.logical_types import DATE_LAST_DAY, UUID_BYTES, logical_type
from dodona_wire.rows.logical_values import EPOCH

KEY: Final = "id"
VALUES: Final = {
    "day": "date",
    "at": "timestamp",
    "price": "decimal(10,2)",
    "token": "uuid",
    "small": "int32",
    "ratio": "float",
}
"""The logical type of each value column."""
KEY_ROWS: Final = 40_000
"""Rows of a table that lookups read: there are no more than 49,673 values of type date."""
MOUNT_MS_MAX: Final = 300_000
WORD_BITS: Final = 64
US_BITS: Final = 52
"""Microseconds of so many bits end in the year 2112, so one bit less is always a timestamp."""
PRICE_MAX: Final = 10**10 - 1

Form = Literal["logical", "stored"]
Target = Literal["arrow", "rows", "sql"]


class KeyTable(NamedTuple):
    """A table for lookups by one key column of this type."""

    path: str
    type: str


def schema_of(form: Form) -> list[dict[str, Any]]:
    """Return the columns of a table of this form."""
    types = {it: logical_type(kind) for it, kind in VALUES.items()}
    columns = [
        {"name": name, "type": kind.name if form == "logical" else kind.stored}
        for name, kind in types.items()
    ]
    return [{"name": KEY, "type": "int64", "sort_order": "ascending"}, *columns]


def table_of(form: Form, count: int) -> pyarrow.Table:
    """Return the rows of the keys 0 to `count - 1`, in the form of a user who works with Arrow."""
    arrays = {KEY: pyarrow.array(numpy.arange(count))}
    for name, stored in _stored_arrays(count).items():
        kind = logical_type(VALUES[name])
        arrays[name] = user_array(kind, stored) if form == "logical" else stored
    return pyarrow.table(arrays)


def _stored_arrays(count: int) -> dict[str, pyarrow.Array]:
    words = numpy.arange(count, dtype=numpy.uint64) * numpy.uint64(0x9E3779B97F4A7C15)
    words ^= words >> numpy.uint64(29)
    signed = words.view("i8")
    prices = signed % PRICE_MAX ^ numpy.iinfo("i8").min
    tokens = numpy.stack((words, ~words), axis=1).view("u1")
    return {
        "day": pyarrow.array(words % (DATE_LAST_DAY + 1)),
        "at": pyarrow.array(words >> numpy.uint64(WORD_BITS - US_BITS + 1)),
        "price": _binary(prices.astype(">i8").view("u1").reshape(count, 8)),
        "token": _binary(tokens.reshape(count, UUID_BYTES)),
        "small": pyarrow.array(signed >> 32),
        "ratio": pyarrow.array((words >> numpy.uint64(40)) / float(1 << 24)),
    }


def _binary(rows: Any) -> pyarrow.Array:
    count, width = rows.shape
    offsets = pyarrow.py_buffer(numpy.arange(count + 1, dtype=numpy.int32) * width)
    buffers = [None, offsets, pyarrow.py_buffer(numpy.ascontiguousarray(rows))]
    return pyarrow.Array.from_buffers(pyarrow.binary(), count, buffers)


def keys_of(type_name: str, count: int) -> list[Any]:
    """Return that many keys of a type, in order, as users have them."""
    kind = logical_type(type_name)
    if kind.form == "date":
        return [EPOCH.date() + timedelta(days=it) for it in range(count)]
    if kind.form == "decimal":
        return [Decimal(it).scaleb(-kind.scale) for it in range(count)]
    return list(range(count))


class TypedWorker(Worker):
    """One client, whose tables have one of both forms."""

    def __init__(self, url: str, form: Form) -> None:
        self._url = url
        self._form: Form = form

    async def open(self) -> None:
        self._db = await dodona.aio.connect(self._url)

    async def close(self) -> None:
        await self._db.close()

    async def create(self, path: str) -> None:
        """Make a mounted table of one tablet."""
        schema = schema_of(self._form)
        await self._db.create_table(path, schema=schema, atomicity="none", mount=True)

    async def remove(self, path: str) -> None:
        """Remove the table with all its rows."""
        await self._db.unmount_table(path, timeout_ms=MOUNT_MS_MAX)
        await self._db.remove_table(path)

    async def flush(self, path: str) -> None:
        """Flush all rows into chunks."""
        await self._db.unmount_table(path, timeout_ms=MOUNT_MS_MAX)
        await self._db.mount_table(path, timeout_ms=MOUNT_MS_MAX)

    async def load(self, path: str, count: int) -> Spent:
        """Write Arrow data that is in memory. Making the data is not measured."""
        table = table_of(self._form, count)
        watch = Stopwatch()
        written = await self._db.write_arrow(path, table)
        spent = watch.read()
        if written != count or await self._db.read_arrow(path, None, [100]) != table[:100]:
            raise ContenderFailed(f"{written} of {count} rows were written, or others")
        return spent

    async def scan(self, path: str, count: int, target: Target, duration_s: float) -> float:
        """Read the table again and again. Return rows a second."""
        watch, read = Stopwatch(), 0
        while (spent := watch.read()).duration_s < duration_s or not read:
            found = await self._read(path, target)
            if found != count:
                raise ContenderFailed(f"a scan of {count} rows had {found}")
            read += found
        return read / spent.duration_s

    async def _read(self, path: str, target: Target) -> int:
        if target == "rows":
            return len(await self._db.select(path))
        if target == "sql":
            return int((await self._db.query(f"select * from [{path}]")).num_rows)
        return int((await self._db.read_arrow(path)).num_rows)

    async def fill(self, table: KeyTable) -> None:
        """Make a table of one key column of a type, with `KEY_ROWS` rows, in chunks."""
        columns = [
            {"name": KEY, "type": table.type, "sort_order": "ascending"},
            {"name": "value", "type": "int64"},
        ]
        await self._db.create_table(table.path, schema=columns, mount=True)
        data = {KEY: keys_of(table.type, KEY_ROWS), "value": list(range(KEY_ROWS))}
        await self._db.write(table.path, data)
        await self.flush(table.path)

    async def look_up(self, table: KeyTable, duration_s: float) -> Sample:
        """Look up existing rows by one key, at random, by one caller."""
        return await measure_operations([self._lookup(table)], duration_s)

    def _lookup(self, table: KeyTable) -> AsyncOperation:
        random, look_up, keys = Random(2013), self._db.lookup_rows, keys_of(table.type, KEY_ROWS)

        async def read() -> None:
            key = keys[int(random.random() * KEY_ROWS)]
            (found,) = await look_up(table.path, [{KEY: key}])
            if found[KEY] != key:
                raise ContenderFailed(f"the row {key} is not there")

        return read
