"""Write rows of a table as a list fragment of YSON.

Owns: how rows become columns, so that each column is written in one call. It also owns how other
rows are written: missing (`#`), with attributes, or without some of the columns. Both ways give the
same bytes. Imports no clock and no I/O.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice, repeat
from operator import itemgetter
from typing import Any, Final

from dodona_wire.errors import InvalidRequest
from dodona_wire.rows.columns import ColumnType
from dodona_ytsaurus.yson.columns import ColumnWriter
from dodona_ytsaurus.yson.values import Attributed, Format
from dodona_ytsaurus.yson.writer import dumps

ROWS_PER_PART: Final = 1024

Row = Sequence[Any] | Mapping[str, Any] | Attributed | None
"""Values in the order of the columns, or by name, where some may be missing. Such a row may have
attributes, and None is a missing row. Versioned rows have attributes, and their values are lists of
`Attributed`."""


class RowWriter:
    """A writer of rows of these columns. Each ends with `;`, in text with `;` and a new line."""

    __slots__ = ("_by_name", "_columns", "_end", "_format", "_values_of", "names")

    def __init__(
        self, columns: Iterable[tuple[str, ColumnType]], format: Format = "binary"
    ) -> None:
        """`columns` are names and types. Raises InvalidRequest if there are none, or one twice."""
        is_binary = format == "binary"
        self._format: Format = format
        self._columns = [
            ColumnWriter(name, kind, b";" if place else b"{", is_binary)
            for place, (name, kind) in enumerate(columns)
        ]
        self.names = tuple(column.name for column in self._columns)
        self._by_name = {column.name: column for column in self._columns}
        if not self.names or len(self._by_name) < len(self.names):
            text = "There are no columns, or two columns have the same name."
            raise InvalidRequest(text, columns=self.names)
        self._end = b";};" if is_binary else b";};\n"
        get = itemgetter(*self.names)
        self._values_of = get if len(self.names) > 1 else lambda row: (get(row),)

    def encode(self, rows: Iterable[Row]) -> bytes:
        """Return all rows as bytes. Raises InvalidRequest on a row or a value that doesn't fit the
        columns."""
        return b"".join(self.parts(rows))

    def parts(self, rows: Iterable[Row]) -> Iterator[bytes]:
        """Yield the bytes of `encode`, up to 1,024 rows at a time."""
        source = iter(rows)
        while part := list(islice(source, ROWS_PER_PART)):
            yield self._part(part)

    def _part(self, rows: list[Any]) -> bytes:
        values = None if self._format == "pretty" else self._plain(rows)
        if values is None:
            return dumps(map(self._general, rows), self._format, kind="list_fragment")
        try:
            by_column = list(zip(*values, strict=True))
        except ValueError:
            raise self._mismatch(next(it for it in values if len(it) != len(values[0]))) from None
        if len(by_column) != len(self._columns):
            raise self._mismatch(values[0])
        formatted = [
            column.format_value(its) for column, its in zip(self._columns, by_column, strict=True)
        ]
        return b"".join(chain.from_iterable(zip(*formatted, repeat(self._end))))

    def _plain(self, rows: list[Any]) -> Sequence[Sequence[Any]] | None:
        """Return the rows' values if each row has all columns and nothing else, otherwise None."""
        kinds = set(map(type, rows))
        if kinds <= {tuple, list}:
            return rows
        if kinds == {dict} and set(map(len, rows)) == {len(self.names)}:
            try:
                return list(map(self._values_of, rows))
            except KeyError:
                return None
        return None

    def _general(self, row: Any) -> Any:
        """Return the row in a form that `dumps` writes correctly."""
        if row is None:
            return None
        if isinstance(row, Attributed):
            return Attributed(self._typed(row.value, is_versioned=True), row.attributes)
        return self._typed(row, is_versioned=False)

    def _typed(self, row: Any, is_versioned: bool) -> dict[str, Any]:
        if not isinstance(row, Mapping):
            if len(row) != len(self.names):
                raise self._mismatch(row)
            row = dict(zip(self.names, row, strict=True))
        typed = {
            name: column.typed(row[name], is_versioned)
            for name, column in self._by_name.items()
            if name in row
        }
        if len(typed) != len(row):
            unknown = next(name for name in row if name not in self._by_name)
            raise InvalidRequest("The row has an unknown column.", column=unknown)
        return typed

    def _mismatch(self, row: Sequence[Any]) -> InvalidRequest:
        return InvalidRequest(
            f"The row has {len(row)} values, but there are {len(self.names)} columns."
        )
