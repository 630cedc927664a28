"""Represent rows from a file on their way to a table, in parts that know their place in the file.

Owns: a part, as Python rows and as Arrow batches, and the place of a row that does not fit. Places
count from 1, without the heading.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final, NamedTuple, Protocol

import msgspec

from dodona._core.writing.bulk import fit
from dodona_wire.errors import DodonaError, SchemaViolation
from dodona_wire.rows.arrow import arrow_of_tuples
from dodona_wire.rows.logical_arrow import user_table, values_of
from dodona_wire.rows.packed_names import unpacked
from dodona_wire.rows.schema import Column, TableSchema
from dodona_wire.types import BatchKind

Row = dict[str, Any]
PART_BYTES: Final = 16 << 20
"""The approximate size of a part; a single row may be longer."""


class Want(NamedTuple):
    """The table, the kind of change and the size of parts that a file is read for."""

    table: str
    schema: TableSchema
    kind: BatchKind
    rows_per_part: int

    @property
    def columns(self) -> tuple[Column, ...]:
        """Return the columns that the file may have."""
        return self.schema.key_columns if self.kind == "delete" else self.schema.columns

    def check_names(self, names: Sequence[str]) -> None:
        """Check that a file's columns are columns of the table. Raises SchemaViolation."""
        known = [column.name for column in self.columns]
        strangers = [name for name in names if name not in known]
        if strangers:
            what = "no such key column" if self.kind == "delete" else "no such column"
            raise SchemaViolation(what, columns=strangers, table=self.table, known=known)
        if len(set(names)) < len(names):
            raise SchemaViolation("two columns have the same name", columns=list(names))


class FilePart(Protocol):
    """Some rows of a file, in its order."""

    @property
    def count(self) -> int: ...

    @property
    def size_bytes(self) -> int:
        """Return the approximate size of the part's text in the file; 0 for Arrow's formats."""
        ...

    def rows(self) -> list[Row]:
        """Return rows with checked values, each with the columns that it has. Raises
        SchemaViolation."""
        ...

    def batches(self) -> Iterator[Any]:
        """Yield `pyarrow.RecordBatch`es of the table's types. Raises SchemaViolation."""
        ...

    def place(self, index: int) -> dict[str, int]:
        """Return the place in the file of the row with this index in the part, as attributes of an
        error."""
        ...


class RowPart:
    """Rows that were read as Python objects. `lines` are their lines in the file."""

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
        """Yield batches. For an update, rows with the same columns are together, because a missing
        column keeps its value."""
        self._check()
        # `_check` has compared given values of computed columns. The writer makes them again.
        columns = [it for it in self._want.columns if it.expression is None]
        if self._want.kind != "update":
            yield from _batches_of(columns, self._rows)
            return
        by_names: dict[frozenset[str], list[Row]] = {}
        for row in self._rows:
            by_names.setdefault(frozenset(row), []).append(row)
        for names, rows in by_names.items():
            given = [it for it in columns if it.name in names or it.sort_order is not None]
            yield from _batches_of(given, rows)

    def _check(self) -> None:
        """Check the rules for whole rows. The values were checked when they were read."""
        schema, kind = self._want.schema, self._want.kind
        required = [column.name for column in self._want.columns if column.required]
        key_names = set(schema.needed_key_names)
        least_count = len(key_names) + (kind != "delete")
        computed = schema.computed_by_name.keys()
        for index, row in enumerate(self._rows):
            is_whole = len(row) >= least_count and key_names <= row.keys()
            if computed and is_whole:
                is_whole = not computed & row.keys()
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
    """Rows of an Arrow batch, with the columns of the file."""

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
        values = values_of(column.logical, array)
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
        """Return the batch in the table's types. Raises SchemaViolation, with the place of the
        first row that does not fit, if a row is the cause."""
        try:
            fitted = fit(self._want.schema, self._batch, self._want.kind)
            given = [it for it in self._want.columns if it.name in fitted.schema.names]
            return user_table(given, fitted)
        except SchemaViolation as error:
            index = self._first_mismatch()
            if index is not None:
                error.attributes.update(self.place(index))
            raise

    def _first_mismatch(self) -> int | None:
        """Return the index of the first row that does not fit, by bisection; None if the columns do
        not fit even without rows."""
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
    """Yield the same rows in record batches of `rows_max` rows, or about `PART_BYTES`. The last one
    may be smaller."""
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
    """Return one batch, or all batches if Arrow can't join them, such as dictionaries of views."""
    import pyarrow

    if len(batches) == 1:
        return batches
    try:
        return [pyarrow.concat_batches(batches)]
    except pyarrow.ArrowException:
        return batches


@contextmanager
def placed(part: FilePart) -> Iterator[None]:
    """Replace the row index in errors by the row's place in the file."""
    try:
        yield
    except DodonaError as error:
        index = error.attributes.pop("row_index", None)
        if isinstance(index, int) and 0 <= index < part.count:
            error.attributes.update(part.place(index))
        raise
