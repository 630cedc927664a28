"""Read CSV with a heading as parts: a block at a time, without a Python object for each plain
value.

Owns: the conversion from a cell's bytes to a column's value. An empty cell without quotes is null;
"" is an empty text. Arrow converts columns in which all cells are plain.
`dodona_wire.rows.text_format` converts other cells, and raises their errors. `csv_blocks` checks
the quotes.
"""

import codecs
import csv
import io
import re
from collections.abc import Iterator
from typing import Any, Final

import pyarrow
import pyarrow.compute
import pyarrow.csv

from dodona_local.files.csv_blocks import SAID_LENGTH_MAX, whole_rows
from dodona_local.files.parts import BatchPart, Want, regrouped
from dodona_wire.errors import InvalidRequest, SchemaViolation
from dodona_wire.rows.arrow import array_of, arrow_type
from dodona_wire.rows.schema import Column
from dodona_wire.rows.text_format import CSV_BASE64, bytes_of_text, value_of_text

BLOCK_BYTES: Final = 32 << 20
"""The bytes that are read at a time. A row must be shorter."""
HEADING_BYTES_MAX: Final = 4 << 20
MISMATCH: Final = re.compile(r"Row #(\d+): Expected (\d+) columns, got (\d+): (.*)", re.DOTALL)
PLAIN: Final = {"int64": "^-?[0-9]{1,19}$", "uint64": "^[0-9]{1,20}$", "boolean": "^(true|false)$"}
"""The patterns of cells that Arrow reads with the same result, by stored types."""
_DAY: Final = "^[0-9]{4}-[0-9]{2}-[0-9]{2}"
PLAIN_LOGICAL: Final = {
    "date": f"{_DAY}$",
    "seconds": f"{_DAY}[T ][0-9]{{2}}:[0-9]{{2}}:[0-9]{{2}}Z$",
    "microseconds": f"{_DAY}[T ][0-9]{{2}}:[0-9]{{2}}:[0-9]{{2}}([.][0-9]{{1,6}})?Z$",
    "decimal": "^-?[0-9]{1,38}([.][0-9]{1,38})?$",
}
"""The same, by forms of logical types."""
EXACT_BELOW: Final = float(1 << 53)
"""A double can hold every whole number below this one."""


def open_csv(stream: io.BufferedReader, want: Want) -> Iterator[BatchPart]:
    """Return the parts. This call and the parts raise InvalidRequest, SchemaViolation."""
    names = _heading(stream)
    want.check_names(names)
    return _parts(stream, names, want)


def _heading(stream: io.BufferedReader) -> list[str]:
    """Return the names in the heading, which has several lines if a name has a line break."""

    def lines() -> Iterator[str]:
        first = stream.readline(HEADING_BYTES_MAX).removeprefix(codecs.BOM_UTF8)
        yield first.decode()
        while line := stream.readline(HEADING_BYTES_MAX):
            yield line.decode()

    try:
        names = next(csv.reader(lines(), strict=True), [])
    except (UnicodeDecodeError, csv.Error) as error:
        raise InvalidRequest(f"not CSV: the heading can't be read: {error}") from error
    if not names:
        raise InvalidRequest("not CSV: there is no heading with the names of the columns")
    return names


def _parts(stream: io.BufferedReader, names: list[str], want: Want) -> Iterator[BatchPart]:
    columns = {column.name: column for column in want.columns}
    row_count = 0
    for raw in regrouped(_batches(stream, names), want.rows_per_part):
        arrays = [
            _Cells(columns[name], row_count).read(raw.column(place))
            for place, name in enumerate(names)
        ]
        fields = [pyarrow.field(name, arrow_type(columns[name])) for name in names]
        batch = pyarrow.RecordBatch.from_arrays(arrays, schema=pyarrow.schema(fields))
        yield BatchPart(want, row_count, batch, _text_bytes(raw))
        row_count += batch.num_rows


def _batches(stream: io.BufferedReader, names: list[str]) -> Iterator[Any]:
    """Yield record batches of bytes, with null for empty cells. Raises InvalidRequest, which names
    the row."""
    row_count = 0
    try:
        for block in whole_rows(stream, BLOCK_BYTES):
            for batch in _cells_of(block, names):
                yield batch
                row_count += batch.num_rows
    except pyarrow.ArrowInvalid as error:
        raise _not_csv(str(error), row_count) from error
    except InvalidRequest as error:
        error.attributes["row"] = row_count + 1
        raise


def _cells_of(block: Any, names: list[str]) -> Any:
    table = pyarrow.csv.read_csv(
        pyarrow.BufferReader(block),
        # with one thread Arrow numbers the rows
        pyarrow.csv.ReadOptions(use_threads=False, block_size=BLOCK_BYTES, column_names=names),
        pyarrow.csv.ParseOptions(
            newlines_in_values=True,
            ignore_empty_lines=len(names) > 1,  # with one column an empty line is a null
        ),
        pyarrow.csv.ConvertOptions(
            column_types=dict.fromkeys(names, pyarrow.binary()),
            null_values=[""],
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
        ),
    )
    return table.to_batches()


def _text_bytes(raw: Any) -> int:
    """Return the approximate size of the text: quotes are not counted."""
    lengths = [pyarrow.compute.sum(pyarrow.compute.binary_length(it)) for it in raw.columns]
    return int(raw.num_rows * raw.num_columns + sum(it.as_py() or 0 for it in lengths))


def _not_csv(said: str, rows_before: int) -> InvalidRequest:
    """Return Arrow's error, in the words of Dodona if its form is known."""
    found = MISMATCH.search(said)
    if found is None:
        return InvalidRequest(f"not CSV: {said[:SAID_LENGTH_MAX]}")
    row, wanted, given, cells = found.groups()
    text = f"a row has {given} cells, and the heading {wanted}"
    return InvalidRequest(text, row=rows_before + int(row), cells=cells[:SAID_LENGTH_MAX])


class _Cells:
    """The cells of one column in a part whose first row has this index in the file."""

    def __init__(self, column: Column, first_row: int) -> None:
        self._column = column
        self._first_row = first_row

    def read(self, cells: Any) -> Any:
        """Return an array of the column's type. Raises SchemaViolation, which names column and
        row."""
        if self._column.type == "string":
            return self._bytes(cells)
        try:
            text = cells.cast(pyarrow.string())
            return text if self._column.type in ("utf8", "json") else self._plain(text)
        except (pyarrow.ArrowInvalid, pyarrow.ArrowNotImplementedError):
            return self._one_by_one(cells)

    def _plain(self, text: Any) -> Any:
        """Return the array as Arrow converts it. Raises ArrowInvalid if Arrow can't convert every
        cell."""
        wanted = arrow_type(self._column)
        kind = self._column.logical
        if kind.is_stored or kind.form == "integer":
            pattern = PLAIN.get(kind.stored)
        else:
            pattern = PLAIN_LOGICAL.get(kind.form)
        if pattern is not None:
            is_plain = pyarrow.compute.match_substring_regex(text, pattern)
        elif self._column.type == "double":
            is_plain = _are_exact(text, text.cast(wanted))
        else:
            raise pyarrow.ArrowInvalid(self._column.type)
        if pyarrow.compute.all(is_plain).as_py() is False:
            raise pyarrow.ArrowInvalid("not plain")
        return text.cast(wanted)

    def _bytes(self, cells: Any) -> Any:
        is_base64 = pyarrow.compute.starts_with(cells, CSV_BASE64)
        if not pyarrow.compute.any(is_base64).as_py():
            return cells
        return self._one_by_one(cells)

    def _one_by_one(self, cells: Any) -> Any:
        values = cells.to_pylist()
        for index, cell in enumerate(values):
            if cell is None:
                continue
            try:
                values[index] = self._value(cell)
            except SchemaViolation as error:
                error.attributes["row"] = self._first_row + index + 1
                raise
        return array_of(self._column, values)

    def _value(self, cell: bytes) -> Any:
        if self._column.type == "string":
            return bytes_of_text(cell, self._column.name)
        try:
            return value_of_text(self._column, cell.decode())
        except UnicodeDecodeError as error:
            text = f"a cell is not UTF-8: {error}"
            raise SchemaViolation(text, column=self._column.name) from error


def _are_exact(text: Any, doubles: Any) -> Any:
    """Return which numbers Arrow converts exactly: finite ones, except whole numbers that a double
    may not hold."""
    compute = pyarrow.compute
    is_small = compute.less(compute.abs(doubles), EXACT_BELOW)
    if compute.all(is_small).as_py() is not False:
        return is_small
    is_float = compute.match_substring_regex(text, "[.eE]")
    return compute.and_(compute.is_finite(doubles), compute.or_(is_small, is_float))
