"""Small tables to be saved, how they are compared, and who watches.

Owns: `Interrupting`, which fails in the middle of a step, and `Counting`.
"""

import threading
from typing import Any

import pyarrow
import pyarrow.ipc
import pytest

from dodona.client import Client
from dodona.errors import SchemaViolation
from dodona.schema import TableSchema
from dodona_local.progress import Progress
from dodona_wire.types import KEY_MIN

Row = dict[str, Any]

PLAIN: list[Row] = [
    {"name": "k", "type": "int64", "sort_order": "ascending"},
    {"name": "v", "type": "int64"},
]


IMPOSSIBLE: list[Row] = [
    {"name": "c", "type": "int64", "sort_order": "ascending", "expression": "if(k > 5, k % 0, k)"},
    {"name": "k", "type": "int64", "sort_order": "ascending"},
    {"name": "v", "type": "int64"},
]
"""A new table can't have this expression: some rows have no value of it. Older tables may have
it."""


def make_impossible(db: Client, path: str) -> list[Row]:
    """Make a table that has the expression, and return its rows."""
    schema = TableSchema.parse_existing(IMPOSSIBLE)
    pivots = (KEY_MIN, schema.bound_of([3]))
    db._run(db._catalog.restore_table(path, schema, pivots, {"owner": "ada"}))
    db.insert_rows(path, [{"k": number, "v": number} for number in (None, *range(6))])
    with pytest.raises(SchemaViolation, match="divides by zero"):
        db.insert_rows(path, [{"k": 6, "v": 6}])
    return list(db.select(path))


def make_plain(db: Client, path: str, count: int = 10, **options: Any) -> None:
    db.create_table(path, PLAIN, mount=True, **options)
    db.insert_rows(path, [{"k": number, "v": number} for number in range(count)])


def same(left: Any, right: Any) -> bool:
    """Byte for byte: NaN too."""

    def packed(table: Any) -> bytes:
        sink = pyarrow.BufferOutputStream()
        with pyarrow.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table.combine_chunks())
        return bytes(sink.getvalue())

    return packed(left) == packed(right)


class Interrupting(Progress):
    """Somebody loses patience after some rows."""

    def __init__(self, error: BaseException, step: str) -> None:
        self._error = error
        self._step = step
        self._name = ""

    def begin(self, name: str, total: int | None, unit: str) -> None:
        self._name = name

    def advance(self, count: int) -> None:
        if self._name == self._step:
            raise self._error


class Counting(Progress):
    def __init__(self) -> None:
        self.steps: dict[str, int] = {}
        self.totals: dict[str, int | None] = {}
        self._lock = threading.Lock()

    def begin(self, name: str, total: int | None, unit: str) -> None:
        self._name = name
        self.steps[name] = 0
        self.totals[name] = total

    def advance(self, count: int) -> None:
        with self._lock:
            self.steps[self._name] += count
