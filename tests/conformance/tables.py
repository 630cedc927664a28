"""The tables of the conformance suite, and how its tests look at rows and refusals."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final, Protocol

import pytest

from conformance.backends import Backend
from dodona.client import Client
from dodona.errors import DodonaError
from dodona.types import SYNC_LAST_COMMITTED, Timestamp

Row = dict[str, Any]
Schema = list[dict[str, Any]]

KEY: Final[Row] = {"name": "k", "type": "int64", "sort_order": "ascending"}
PLAIN: Final[Schema] = [KEY, {"name": "v", "type": "int64"}]
TWO_COLUMNS: Final[Schema] = [KEY, {"name": "v", "type": "int64"}, {"name": "w", "type": "string"}]
GROUPS: Final[Schema] = [
    KEY,
    {"name": "a", "type": "int64", "lock": "a"},
    {"name": "b", "type": "int64", "lock": "b"},
    {"name": "c", "type": "int64", "lock": "c"},
    {"name": "main", "type": "int64"},
]
SUM: Final[Schema] = [
    KEY,
    {"name": "total", "type": "int64", "aggregate": "sum"},
    {"name": "v", "type": "int64"},
]
APART: Final[list[list[Any]]] = [[], [100]]
"""Pivot keys of two tablets: 0 to 99 are in the first."""
CREATIONS_MAX: Final = 100
MAIN_LOCK: Final = "<primary>"


class MakeTable(Protocol):
    """Makes a mounted table under a name of its own. → its path."""

    def __call__(self, schema: Schema = ..., **options: Any) -> str: ...


def create_spread(backend: Backend, path: str, schema: Schema, **options: Any) -> None:
    """Create a table whose tablets, if it is mounted, are on as many cells as they can be. The
    master gives none to a cell that it has not heard of lately, as on a busy machine, and leaves
    them there: then the table is made anew."""
    for _ in range(CREATIONS_MAX):
        backend.db.create_table(path, schema, **options)
        cells = [tablet.cell for tablet in backend.db.get_table(path).tablets]
        if None in cells or len(set(cells)) == min(len(cells), backend.cell_count):
            return
        backend.db.remove_table(path)
        backend.let_pass(100)
    pytest.fail(f"{path} is on {cells}, of {backend.cell_count} cells")


def read(
    db: Client,
    path: str,
    columns: Sequence[str] | None = None,
    timestamp: int = SYNC_LAST_COMMITTED,
) -> list[Row]:
    """All rows of a table."""
    return list(db.select(path, columns=columns, timestamp=Timestamp(timestamp)))


def value(db: Client, path: str, key: int, column: str = "v", **options: Any) -> Any:
    """One column of the row of that key, which there must be."""
    (row,) = db.lookup_rows(path, [{"k": key}], **options)
    return row[column]


class Refusal:
    """What a call was refused with."""

    error: DodonaError


@contextmanager
def refused(
    kind: type[DodonaError], match: str | None = None, *, is_retryable: bool, **attributes: Any
) -> Iterator[Refusal]:
    """The block is refused: with just this class of error, these attributes among its own."""
    refusal = Refusal()
    with pytest.raises(DodonaError, match=match) as caught:
        yield refusal
    error = refusal.error = caught.value
    assert type(error) is kind, repr(error)
    assert {name: error.attributes.get(name) for name in attributes} == attributes
    assert error.is_retryable == is_retryable
