"""Compute a term for many rows together, with numpy and Arrow: no Python object for each row. Pure.

Owns: what `evaluation` does for one row, done on columns. A column is an array, and the mask of its
nulls. A branch is computed only for the rows that take it, so a row has an error here exactly if it
has one alone. The two libraries are imported on first use: the light client works without them.
Invariant: values, nulls and errors are those of `evaluation`. Of rows with errors, any may be
named.
"""

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple, NoReturn

from dodona_wire.expressions import farm_hash_arrays as hashes
from dodona_wire.expressions.evaluation import TEXT_BYTES_MAX, cased, function_of
from dodona_wire.expressions.terms import COMPARISONS, Term
from dodona_wire.expressions.time_floors import FLOORS, HOURS_PER_DAY, floor_days
from dodona_wire.expressions.values import BITS, INT64_MIN, Kind

TYPES: Final = {Kind.INT64: "i8", Kind.UINT64: "u8", Kind.DOUBLE: "f8", Kind.BOOLEAN: "?"}


class Values(NamedTuple):
    """Values of one term: numbers and booleans as an array of numpy, texts as a `pyarrow.Array` of
    type binary. Where `is_null` is true, the value means nothing."""

    data: Any
    is_null: Any = None
    """An array of booleans; None if no value is null."""


class Rows(NamedTuple):
    """The rows for which a term is computed."""

    columns: Sequence[Values | None]
    """By place. Columns that the term does not use may be None."""
    row_count: int

    def only(self, mask: Any) -> "Rows":
        """Return the rows where the mask is true."""
        taken = [None if it is None else _filtered(it, mask) for it in self.columns]
        return Rows(taken, int(mask.sum()))


class RowError(ValueError):
    """A row for which there is no value."""

    def __init__(self, row: int) -> None:
        super().__init__(f"There is no value for row {row}.")
        self.row = row


def values_of(term: Term, rows: Rows) -> Values:
    """Return the term's values. Raises RowError. The text of the error is that of `evaluation` for
    this row."""
    with _numpy().errstate(all="ignore"):
        return _compute(term, rows)


def _compute(term: Term, rows: Rows) -> Values:
    name = term.operator
    match name:
        case "literal":
            return _constant(term, rows.row_count)
        case "column":
            place: int = term.value
            column = rows.columns[place]
            assert column is not None, "a term is computed from the columns that it names"
            return column
        case "if":
            return _if(term, rows)
        case "and" | "or":
            return _chain(term, rows)
        case "coalesce":
            return _coalesced(term, rows)
    given = [_compute(it, rows) for it in term.operands]
    match name:
        case "is_null":
            return Values(_nulls(given[0], rows.row_count))
        case "farm_hash":
            return _hashed(term, given, rows.row_count)
    if name in COMPARISONS:
        return _compared(name, term.operands[0].kind, given, rows.row_count)
    is_null = _either(*[it.is_null for it in given])
    return Values(_of_values(term, [it.data for it in given], is_null, rows), is_null)


# ---- nulls and rows


def _either(*masks: Any) -> Any:
    found = None
    for mask in masks:
        if mask is not None:
            found = mask if found is None else found | mask
    return found


def _nulls(it: Values, count: int) -> Any:
    return _numpy().zeros(count, "?") if it.is_null is None else it.is_null


def _filtered(it: Values, mask: Any) -> Values:
    return Values(_rows_of(it.data, mask), None if it.is_null is None else it.is_null[mask])


def _rows_of(data: Any, mask: Any) -> Any:
    import pyarrow

    if isinstance(data, pyarrow.Array):
        return data.filter(pyarrow.array(mask))
    return data[mask]


def _constant(term: Term, count: int) -> Values:
    import pyarrow

    numpy = _numpy()
    is_null = numpy.ones(count, "?") if term.value is None else None
    if term.kind == Kind.STRING:
        return Values(
            pyarrow.repeat(pyarrow.scalar(term.value or b"", pyarrow.binary()), count), is_null
        )
    return Values(numpy.full(count, term.value or 0, TYPES[term.kind]), is_null)


def _merged(kind: Kind, parts: Sequence[tuple[Any, Values]], count: int) -> Values:
    """Return one column of parts: each has the mask of its rows, and their values. Rows in no part
    are null."""
    import pyarrow

    numpy = _numpy()
    is_null = numpy.ones(count, "?")
    for mask, it in parts:
        is_null[mask] = False if it.is_null is None else it.is_null
    nulls = is_null if is_null.any() else None
    if kind != Kind.STRING:
        data = numpy.zeros(count, TYPES[kind])
        for mask, it in parts:
            data[mask] = it.data
        return Values(data, nulls)
    places = numpy.zeros(count, "i8")  # 0 is the place of an empty text
    taken, end = [pyarrow.array([b""], pyarrow.binary())], 1
    for mask, it in parts:
        places[mask] = numpy.arange(end, end + len(it.data))
        taken.append(it.data)
        end += len(it.data)
    return Values(pyarrow.concat_arrays(taken).take(pyarrow.array(places)), nulls)


def _part(term: Term, rows: Rows, mask: Any) -> tuple[Any, Values]:
    """Compute a term only for the rows of a mask. An error names the row among all rows."""
    try:
        return mask, _compute(term, rows.only(mask))
    except RowError as error:
        raise RowError(int(mask.nonzero()[0][error.row])) from None


def _if(term: Term, rows: Rows) -> Values:
    condition, one, other = term.operands
    found = _compute(condition, rows)
    is_known = ~_nulls(found, rows.row_count)
    is_true, is_false = found.data & is_known, ~found.data & is_known
    parts = [_part(one, rows, is_true), _part(other, rows, is_false)]
    return _merged(term.kind, parts, rows.row_count)


def _coalesced(term: Term, rows: Rows) -> Values:
    parts, waiting = [], _numpy().ones(rows.row_count, "?")
    for it in term.operands:
        _, found = _part(it, rows, waiting)
        has_value = ~_nulls(found, len(found.data))
        mask = waiting.copy()
        mask[waiting] = has_value
        parts.append((mask, _filtered(found, has_value)))
        waiting &= ~mask
    return _merged(term.kind, parts, rows.row_count)


def _chain(term: Term, rows: Rows) -> Values:
    """Compute AND or OR. A row is done with the first operand that decides."""
    numpy, is_and = _numpy(), term.operator == "and"
    decided, has_null = numpy.zeros(rows.row_count, "?"), numpy.zeros(rows.row_count, "?")
    for it in term.operands:
        mask, found = _part(it, rows, ~decided)
        is_known = ~_nulls(found, len(found.data))
        has_null[mask] |= ~is_known
        decided[mask] = is_known & (found.data != is_and)
    has_null &= ~decided
    return Values(decided != is_and, has_null if has_null.any() else None)


# ---- hashes and comparisons


def _hashed(term: Term, given: Sequence[Values], count: int) -> Values:
    numpy, found = _numpy(), []
    for operand, it in zip(term.operands, given, strict=True):
        if operand.kind == Kind.STRING:
            its = hashes.text_fingerprints(*_views(it.data))
        else:
            data = it.data.astype("u8") if operand.kind == Kind.BOOLEAN else it.data.view("u8")
            its = hashes.number_fingerprints(data)
        if it.is_null is not None:
            its = numpy.where(it.is_null, numpy.uint64(0), its)  # the fingerprint of 0 is 0
        found.append(its)
    return Values(hashes.combined(found, count))


def _views(texts: Any) -> tuple[Any, Any]:
    """Return the offsets and the bytes of a binary array."""
    numpy = _numpy()
    if not len(texts):
        return numpy.zeros(1, "i4"), numpy.empty(0, "u1")
    _, places, data = texts.buffers()
    offsets = numpy.frombuffer(places, "i4", len(texts) + 1, texts.offset * 4)
    return offsets, numpy.frombuffer(data or b"", "u1")


def _compared(name: str, kind: Kind, given: Sequence[Values], count: int) -> Values:
    numpy = _numpy()
    one, other = given
    data = _compare(name, kind, one.data, other.data)
    if one.is_null is None and other.is_null is None:
        return Values(data)
    nulls = [_nulls(it, count) for it in given]
    of_nulls = _compare(name, Kind.BOOLEAN, ~nulls[0], ~nulls[1])
    return Values(numpy.where(nulls[0] | nulls[1], of_nulls, data))


_ARROW_COMPARISONS: Final = {
    "=": "equal",
    "!=": "not_equal",
    "<": "less",
    "<=": "less_equal",
    ">": "greater",
    ">=": "greater_equal",
}


def _compare(name: str, kind: Kind, one: Any, other: Any) -> Any:
    if kind == Kind.STRING:
        import pyarrow.compute

        compare = getattr(pyarrow.compute, _ARROW_COMPARISONS[name])
        return compare(one, other).to_numpy(zero_copy_only=False)
    return getattr(_numpy(), _ARROW_COMPARISONS[name])(one, other)


# ---- functions of values that are not null


def _of_values(term: Term, given: Sequence[Any], is_null: Any, rows: Rows) -> Any:
    """Return values for rows without nulls, and anything for the others. Raises RowError."""
    numpy, name, kind = _numpy(), term.operator, term.kind
    if name in FLOORS:
        return _floored(term, given[0], is_null)
    match name:
        case "not" | "~":
            return ~given[0]
        case "negative":
            return numpy.negative(given[0])
        case "cast":
            return _cast(given[0], kind, is_null)
        case "length":
            offsets, _ = _views(given[0])
            return numpy.diff(offsets).astype("i8")
        case "lower" | "upper":
            return _cased(given[0], is_upper=name == "upper")
        case "concat":
            return _concatenated(*given)
        case "/" | "%":
            return _divided(name, given[0], given[1], is_null)
        case "<<" | ">>":
            _refuse((given[1] < 0) | (given[1] >= BITS), is_null)
            shift = numpy.left_shift if name == "<<" else numpy.right_shift
            return shift(given[0], given[1] & given[1].dtype.type(BITS - 1))
    return _OPERATIONS[name](*given)


_OPERATIONS: Final[dict[str, Callable[[Any, Any], Any]]] = {
    "+": lambda one, other: one + other,
    "-": lambda one, other: one - other,
    "*": lambda one, other: one * other,
    "&": lambda one, other: one & other,
    "|": lambda one, other: one | other,
}


def _refuse(is_bad: Any, is_null: Any) -> None:
    """Raise RowError for the first bad row that is not null."""
    if is_null is not None:
        is_bad = is_bad & ~is_null
    if is_bad.any():
        _raise(is_bad)


def _raise(is_bad: Any) -> NoReturn:
    raise RowError(int(is_bad.argmax()))


def _divided(name: str, one: Any, other: Any, is_null: Any) -> Any:
    numpy = _numpy()
    if one.dtype.kind == "f":
        return one / other
    is_bad = other == 0
    if one.dtype.kind == "i":
        is_bad |= (one == INT64_MIN) & (other == -1)
    _refuse(is_bad, is_null)
    other = numpy.where(is_bad, one.dtype.type(1), other)
    rest = numpy.fmod(one, other)  # it has the sign of the first operand
    return rest if name == "%" else (one - rest) // other


def _cast(data: Any, kind: Kind, is_null: Any) -> Any:
    numpy = _numpy()
    if kind == Kind.BOOLEAN:
        return data != 0
    if data.dtype.kind != "f" or kind == Kind.DOUBLE:
        return data.astype(TYPES[kind])
    whole = numpy.trunc(data)
    low, end = (-(2.0**63), 2.0**63) if kind == Kind.INT64 else (0.0, 2.0**64)
    is_bad = ~((whole >= low) & (whole < end))
    _refuse(is_bad, is_null)
    return numpy.where(is_bad, 0.0, whole).astype(TYPES[kind])


def _floored(term: Term, data: Any, is_null: Any) -> Any:
    numpy, to, per_day = _numpy(), FLOORS[term.operator], term.value
    if to in ("hour", "day"):
        step = max(per_day // HOURS_PER_DAY, 1) if to == "hour" else per_day
        found = data - data % data.dtype.type(step)
        is_bad = found > data  # it wrapped around
    else:
        days = floor_days((data // data.dtype.type(per_day)).astype("i8"), to)
        low = 0 if term.kind == Kind.UINT64 else -(-INT64_MIN // per_day)
        is_bad = days < low
        found = numpy.where(is_bad, 0, days).astype(data.dtype) * data.dtype.type(per_day)
    _refuse(is_bad, is_null)
    return found


# ---- texts


def _concatenated(one: Any, other: Any) -> Any:
    import pyarrow
    import pyarrow.compute

    lengths = [_numpy().diff(_views(it)[0]).astype("i8") for it in (one, other)]
    _refuse(lengths[0] + lengths[1] > TEXT_BYTES_MAX, None)
    return pyarrow.compute.binary_join_element_wise(one, other, pyarrow.scalar(b""))


def _cased(texts: Any, *, is_upper: bool) -> Any:
    """Change the case. ASCII is done together; each other text is done alone, as in Python, whose
    rules for a few letters are not Arrow's."""
    import pyarrow
    import pyarrow.compute

    change = pyarrow.compute.ascii_upper if is_upper else pyarrow.compute.ascii_lower
    offsets, data = _views(texts)
    if not len(texts) or not (data[offsets[0] : offsets[-1]] > 127).any():
        return change(texts.cast(pyarrow.string())).cast(pyarrow.binary())
    found = [cased(it, is_upper=is_upper) for it in texts.to_pylist()]
    return pyarrow.array(found, pyarrow.binary())


def error_of(term: Term, rows: Rows, error: RowError) -> ValueError:
    """Return the error that the row has alone, with its text."""
    row: list[Any] = []
    for it in rows.columns:
        if it is None or (it.is_null is not None and it.is_null[error.row]):
            row.append(None)
        else:
            value = it.data[error.row]
            row.append(value.as_py() if hasattr(value, "as_py") else value.item())
    try:
        function_of(term)(row)
    except ValueError as alone:
        return alone
    raise AssertionError("a row has an error among others, and none alone")


def _numpy() -> Any:
    import numpy

    return numpy
