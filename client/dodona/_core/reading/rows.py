"""The rows that a read returned: a sequence of dicts, with methods that return tables.

Owns: the form of the result. Rows are kept as tuples, and become dicts on access. Arrow, pandas
and polars are imported on first use.
Invariant: the caller owns what an access returns. The tuples here may contain the stored values of
type any, and lists and dicts. A change by the caller must not show in another access. So each
access copies such values.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, overload

from dodona_wire.rows.nested_values import nested_copy
from dodona_wire.rows.schema import Column
from dodona_wire.rows.values import own_copies, own_copy

ROWS_SHOWN_MAX: Final = 10
TEXT_LENGTH_MAX: Final = 32

Row = dict[str, Any]


class Rows(Sequence[Row]):
    """Rows in the order in which they were read. Equal to any sequence of equal dicts."""

    __slots__ = ("_columns", "_copy", "_names", "_tuples")
    __hash__ = None  # type: ignore[assignment]  # it is compared by what it holds

    def __init__(self, columns: Sequence[Column], tuples: list[tuple[Any, ...]]) -> None:
        self._columns = tuple(columns)
        self._names = tuple([column.name for column in columns])
        self._tuples = tuples
        self._copy = _copier_of(columns)

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the columns, in the table's order."""
        return self._names

    def tuples(self) -> list[tuple[Any, ...]]:
        """Return the same rows as tuples of the columns' values, in a new list."""
        return [*self._tuples] if self._copy is None else [*map(self._copy, self._tuples)]

    def __len__(self) -> int:
        return len(self._tuples)

    @overload
    def __getitem__(self, place: int) -> Row: ...
    @overload
    def __getitem__(self, place: slice) -> "Rows": ...
    def __getitem__(self, place: int | slice) -> "Row | Rows":
        if isinstance(place, slice):
            return Rows(self._columns, self._tuples[place])
        values, copy = self._tuples[place], self._copy
        return dict(zip(self._names, values if copy is None else copy(values), strict=True))

    def __iter__(self) -> Iterator[Row]:
        names, copy = self._names, self._copy
        for values in self._tuples:
            yield dict(zip(names, values if copy is None else copy(values), strict=True))

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Rows):
            return self._names == other._names and self._tuples == other._tuples
        if isinstance(other, Sequence) and not isinstance(other, str | bytes):
            return list(self) == list(other)
        return NotImplemented

    def to_arrow(self) -> Any:
        """Return a `pyarrow.Table`. Columns of type any contain MessagePack. Lists, structs and
        dicts are lists, structs and maps of Arrow."""
        from dodona_wire.rows.arrow import arrow_of_tuples

        return arrow_of_tuples(self._columns, self._tuples)

    def to_pandas(self) -> Any:
        """Return a `pandas.DataFrame`. The schema decides the dtypes, not the values. int64 is
        `Int64`, uint64 `UInt64`, double `Float64`, boolean `boolean`, utf8 `string`. string, any,
        lists, structs and dicts are `object`. So integers beside nulls stay integers. A null is
        `pandas.NA`, and None in columns of `object`. NaN stays NaN. Raises InvalidRequest without
        pandas."""
        from dodona._core.reading.frames import frame_of_tuples

        return frame_of_tuples(self._columns, self.tuples())

    def to_polars(self) -> Any:
        """Return a `polars.DataFrame`. The schema decides the dtypes, not the values. int64 is
        `Int64`, uint64 `UInt64`, double `Float64`, boolean `Boolean`, utf8 `String`, string
        `Binary`. any is `Binary`, which contains MessagePack. A list is `List`, a struct `Struct`,
        and a dict a `List` of structs of key and value. A null is null, and NaN stays NaN.
        Raises InvalidRequest without polars."""
        from dodona._core.reading.frames import polars_of_tuples

        return polars_of_tuples(self._columns, self._tuples)

    def _repr_html_(self) -> str:
        from dodona_wire.html_tables import html_table

        return html_table(self._names, self._tuples)

    def __repr__(self) -> str:
        shown = self._tuples[:ROWS_SHOWN_MAX]
        cells = [list(self._names), *([_text(value) for value in row] for row in shown)]
        widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
        lines = ["  ".join(map(str.ljust, row, widths)).rstrip() for row in cells]
        lines.insert(1, "  ".join("-" * width for width in widths))
        count = len(self._tuples)
        lines.append(f"({count} row{'' if count == 1 else 's'})")
        return "\n".join(lines)


Copy = Callable[[tuple[Any, ...]], tuple[Any, ...]]


def _copier_of(columns: Sequence[Column]) -> Copy | None:
    """Return the function that copies the values that a caller could change; None if there are no
    such values."""
    if not any(it.logical.members for it in columns):
        return own_copies if any(it.type == "any" for it in columns) else None
    copies = [nested_copy if it.logical.members else own_copy for it in columns]
    return lambda values: tuple([copy(it) for copy, it in zip(copies, values, strict=True)])


def _text(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= TEXT_LENGTH_MAX else text[: TEXT_LENGTH_MAX - 1] + "…"
