"""Rows from a file on their way to a table, some at a time, which know their place in the file.

Owns: a part, as Python rows and as Arrow batches, and the place of a row that does not fit. Places
are told from 1; a heading is not counted.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final, NamedTuple, Protocol

import msgspec

from dodona._core.writing.bulk import fit
from dodona_wire.errors import DodonaError, SchemaViolation
from dodona_wire.rows.arrow import arrow_of_tuples
from dodona_wire.rows.packed_names import unpacked
from dodona_wire.rows.schema import Column, TableSchema
from dodona_wire.types import BatchKind

Row = dict[str, Any]
PART_BYTES: Final = 16 << 20
"""Of a part, about; a single row may be longer."""


class Want(NamedTuple):
    """What is to be made of a file."""

    table: str
    schema: TableSchema
    kind: BatchKind
    rows_per_part: int

    @property
    def columns(self) -> tuple[Column, ...]:
        """Those that the file may have."""
        return self.schema.key_columns if self.kind == "delete" else self.schema.columns

    def check_names(self, names: Sequence[str]) -> None:
        """That a file's columns are some of these. Raises SchemaViolation."""
        known = [column.name for column in self.columns]
        strangers = [name for name in names if name not in known]
        if strangers:
            what = "no such key column" if self.kind == "delete" else "no such column"
            raise SchemaViolation(what, columns=strangers, table=self.table, known=known)
        if len(set(names)) < len(names):
            raise SchemaViolation("two columns have one name", columns=list(names))


class FilePart(Protocol):
    """Some rows, in the file's order."""

    @property
    def count(self) -> int: ...

    @property
    def size_bytes(self) -> int:
        """Of its text in the file, about; of Arrow's formats it is not known."""
        ...

    def rows(self) -> list[Row]:
        """With checked values, and the columns that each row has. Raises SchemaViolation."""
        ...

    def batches(self) -> Iterator[Any]:
        """As `pyarrow.RecordBatch`es of the table's types. Raises SchemaViolation."""
        ...

    def place(self, index: int) -> dict[str, int]:
        """Where the row of this index in the part is in the file, as attributes of an error."""
        ...


class RowPart:
    """Rows that were Python's from the beginning; `lines` are where they are."""

    def __init__(
        self, want: Want, first_row: int, rows: list[Row], lines: Sequence[int], size_bytes: int
    ) -> None:
        self.size_bytes = size_bytes
        self._want = want
        self._first_row = first_row
        self._rows = rows
        self._lines = lines

    @property
    def count(self) -> int:
        return len(self._rows)

    def rows(self) -> list[Row]:
        return self._rows

    def batches(self) -> Iterator[Any]:
        """Of an update, rows with the same columns together: what a row lacks stays as it is."""
        self._check()
        columns, key_names = self._want.columns, self._want.schema.key_names
        if self._want.kind != "update":
            yield from _batches_of(columns, self._rows)
            return
        by_names: dict[frozenset[str], list[Row]] = {}
        for row in self._rows:
            by_names.setdefault(frozenset(row), []).append(row)
        for names, rows in by_names.items():
            given = [it for it in columns if it.name in names or it.name in key_names]
            yield from _batches_of(given, rows)

    def _check(self) -> None:
        """What the schema asks of whole rows: of values it was asked when they were read."""
        schema, kind = self._want.schema, self._want.kind
        required = [column.name for column in self._want.columns if column.required]
        key_names = set(schema.key_names)
        least_count = len(key_names) + (kind != "delete")
        for index, row in enumerate(self._rows):
            is_whole = len(row) >= least_count and key_names <= row.keys()
            if not is_whole or any(row.get(name) is None for name in required):
                try:
                    if kind == "delete":
                        schema.key_of(row)
                    else:
                        schema.write_of(row, is_update=kind == "update")
                except SchemaViolation as error:
                    error.attributes.update(self.place(index))
                    raise

    def place(self, index: int) -> dict[str, int]:
        return {"row": self._first_row + index + 1, "line": self._lines[index]}


def _batches_of(columns: Sequence[Column], rows: Sequence[Row]) -> list[Any]:
    tuples = [tuple([row.get(column.name) for column in columns]) for row in rows]
    batches: list[Any] = arrow_of_tuples(columns, tuples).to_batches()
    return batches


class BatchPart:
    """Rows of an Arrow batch whose columns are as the file has them."""

    def __init__(self, want: Want, first_row: int, batch: Any, size_bytes: int = 0) -> None:
        self.size_bytes = size_bytes
        self._want = want
        self._first_row = first_row
        self._batch = batch

    @property
    def count(self) -> int:
        return int(self._batch.num_rows)

    def rows(self) -> list[Row]:
        batch = self._fitted()
        given = [it for it in self._want.columns if it.name in self._batch.schema.names]
        values = [self._values_of(column, batch.column(column.name)) for column in given]
        names = [column.name for column in given]
        return [dict(zip(names, row, strict=True)) for row in zip(*values, strict=True)]

    def batches(self) -> Iterator[Any]:
        yield self._fitted()

    def place(self, index: int) -> dict[str, int]:
        return {"row": self._first_row + index + 1}

    def _values_of(self, column: Column, array: Any) -> list[Any]:
        values: list[Any] = array.to_pylist()
        if column.type != "any":
            return values
        for index, value in enumerate(values):
            try:
                values[index] = None if value is None else unpacked(value, column.name)
            except SchemaViolation as error:
                error.attributes.update(self.place(index))
                raise
            except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
                text, place = f"not MessagePack: {error}", self.place(index)
                raise SchemaViolation(text, column=column.name, **place) from error
        return values

    def _fitted(self) -> Any:
        """Raises SchemaViolation, with the place of the first row that does not fit, if it is a
        row's fault."""
        try:
            return fit(self._want.schema, self._batch, self._want.kind)
        except SchemaViolation as error:
            index = self._first_mismatch()
            if index is not None:
                error.attributes.update(self.place(index))
            raise

    def _first_mismatch(self) -> int | None:
        """By halves: of a longest beginning that fits, and one that does not."""
        fits, fails = 0, self.count
        if self._is_mismatch(0):
            return None
        while fails - fits > 1:
            middle = (fits + fails) // 2
            if self._is_mismatch(middle):
                fails = middle
            else:
                fits = middle
        return fits

    def _is_mismatch(self, count: int) -> bool:
        try:
            fit(self._want.schema, self._batch.slice(0, count), self._want.kind)
        except SchemaViolation:
            return True
        return False


def regrouped(batches: Iterable[Any], rows_max: int) -> Iterator[Any]:
    """The same rows in record batches of so many rows, or about `PART_BYTES`; fewer at the end."""
    gathered: list[Any] = []
    row_count = size_bytes = 0
    for batch in batches:
        while batch.num_rows:
            rows_in_room = (PART_BYTES - size_bytes) * batch.num_rows // max(batch.nbytes, 1)
            head = batch.slice(0, max(min(rows_max - row_count, rows_in_room), 1))
            batch = batch.slice(head.num_rows)
            gathered.append(head)
            row_count += head.num_rows
            size_bytes += head.nbytes
            if row_count >= rows_max or size_bytes >= PART_BYTES * 7 // 8:
                yield from _joined(gathered)
                gathered, row_count, size_bytes = [], 0, 0
    if gathered:
        yield from _joined(gathered)


def _joined(batches: list[Any]) -> list[Any]:
    """→ one batch, or all of them where Arrow can't join them, as dictionaries of views."""
    import pyarrow

    if len(batches) == 1:
        return batches
    try:
        return [pyarrow.concat_batches(batches)]
    except pyarrow.ArrowException:
        return batches


@contextmanager
def placed(part: FilePart) -> Iterator[None]:
    """Errors that name a row by its index in what was handed on name its place in the file."""
    try:
        yield
    except DodonaError as error:
        index = error.attributes.pop("row_index", None)
        if isinstance(index, int) and 0 <= index < part.count:
            error.attributes.update(part.place(index))
        raise
