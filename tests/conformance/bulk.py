"""Rows for bulk loads, as Arrow data, and what a load that is refused leaves behind."""

from collections.abc import Iterable
from typing import Any

import pyarrow as pa

from conformance.tables import MakeTable, Row, Schema, read
from dodona import LoadRecord
from dodona.client import Client
from dodona.types import LoadId

HALVES: list[list[Any]] = [[], [100]]
"""Pivot keys: 0 to 99 are in the first tablet."""


def rows(keys: Iterable[int], value: int | None = 1) -> pa.Table:
    """Of the table `PLAIN`."""
    found = list(keys)
    values = pa.array([value] * len(found), pa.int64())
    return pa.table({"k": pa.array(found, pa.int64()), "v": values})


def keys(numbers: Iterable[int]) -> pa.Table:
    """To be deleted."""
    return pa.table({"k": pa.array(list(numbers), pa.int64())})


def values(db: Client, path: str, timestamp: int | None = None) -> dict[int, Any]:
    """All rows of a table that is like `PLAIN`: value by key."""
    found = read(db, path) if timestamp is None else read(db, path, timestamp=timestamp)
    return {row["k"]: row["v"] for row in found}


def record_of(db: Client, load: LoadId) -> LoadRecord:
    """What is remembered of a load."""
    (record,) = [it for it in db.loads.list_loads() if it.load == load]
    return record


def filled(db: Client, make_table: MakeTable, schema: Schema, content: list[Row]) -> str:
    """A table with two tablets that has these rows."""
    path = make_table(schema, pivot_keys=HALVES)
    if content:
        db.insert_rows(path, content)
    return path
